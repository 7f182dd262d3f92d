// Most of the CPU time is one line of `score`.
function parse(n) {
    let length = 0;
    for (let i = 0; i < n; i++)
        length += String(i * 7).length;
    return length;
}

function score(n) {
    let total = 0;
    for (let i = 0; i < n; i++) total = ((total ^ i) * 31) % (1000003 + i); // CAUSE
    return total;
}

const cpu = () => { const { user, system } = process.cpuUsage(); return user + system; };
let scored = 0, sum = 0;
for (let round = 0; round < 100; round++) {
    sum += parse(60000);
    const before = cpu();
    sum += score(1500000);
    scored += cpu() - before;
}
console.log(JSON.stringify({ share: scored / cpu(), sum }));
