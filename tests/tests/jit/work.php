<?php
// Two functions that compute for the given seconds of CPU time each, and a regular expression as long, with a
// millisecond or more between two looks at the clock, which is a hooked call. Prints what the functions gave, and
// the milliseconds of each by its own clock.
function cpu() {
    $used = getrusage();
    return $used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']
        + ($used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec']) / 1e6;
}

function remainders($n) {
    $sum = 0;
    for ($i = 0; $i < $n; $i++) {
        $sum += ($i * 7) % 13;
    }
    return $sum;
}

class Shop {
    function price($n) {
        $price = 0.0;
        for ($i = 1; $i < $n; $i++) {
            $price += ($i + 0.5) * 1.0001;
        }
        return $price;
    }
}

function matches($n) {
    return preg_match('/(?:a|b)+[cd]$/', str_repeat('ab', $n));
}

$shop = new Shop;
$work = [
    'remainders' => fn() => remainders(300000),
    'Shop::price' => fn() => $shop->price(300000),
    'matches' => fn() => matches(600),
];
if (!isset($argv[2])) {
    unset($work['matches']);
}
foreach ($work as $name => $function) {
    $from = cpu();
    do {
        $result = $function();
        $took = cpu() - $from;
    } while ($took < $argv[1]);
    echo "$name $result ", round($took * 1000), "\n";
}
