# Makes orders, reads them back from text, sums them up, sorts them and saves them: the program of the
# picture in the README.
use strict;
use warnings;
use Digest::MD5 qw(md5_hex);
use IO::Handle;

my @items = qw(apple bread cheese dates);
srand 7;
my @lines = map { sprintf "new order %d: %d x %s", rand 60_000, $_ % 9, $items[rand 4] } 1 .. 60_000;

my @orders;
for my $line (@lines) {
    push @orders, [$1, $2, $3] if $line =~ /order (\d+): (\d+) x (\w+)/;
}

my %total;
$total{"$_->[2], page " . $_->[0] % 1000} += $_->[1] for @orders;

my @sorted = sort { $a->[0] <=> $b->[0] } @orders;

open my $file, '>', $ARGV[0] or die "$ARGV[0]: $!";
while (my @part = splice @sorted, 0, 600) {
    print $file join(',', @$_, substr md5_hex("@$_"), 0, 8), "\n" for @part;
    $file->flush;
    $file->sync;
}
