# A Perl program whose change is said by its arguments: work.pl [KIND AMOUNT [TIMES]].
# Equal units of splitting, sorting and formatting; AMOUNT is spread evenly over them, TIMES makes more of them.
use strict;
use warnings;

my $kind   = $ARGV[0] // "none";
my $amount = $ARGV[1] // 0;
my $units  = int(180 * ($ARGV[2] // 1));

sub share {
    my ($unit) = @_;
    return int($amount * ($unit + 1) / $units) - int($amount * $unit / $units);
}

my $line = join(",", map { ($_ * 7919) % 10007 } 1 .. 400);

sub work {
    my %seen;
    my $text = "";
    for my $round (1 .. 4) {
        my @fields = split /,/, $line;
        $seen{ $_ % 97 }++ for @fields;
        $text = join(" ", map { sprintf("%05d", $_) } sort { $a <=> $b } @fields);
        $text =~ s/0+(\d)/$1/g;
    }
    return length($text) + keys(%seen);
}

# No letter of the class is there, so every way to place the gaps is tried.
my $letters = "ab" x 16;
sub backtrack { for (1 .. $_[0]) { die if $letters =~ /a.*a.*b.*[xyz]/ } }

my %kept;
sub keep {
    my ($unit, $count) = @_;
    $kept{"$unit $_"} = "x" x 60 for 1 .. $count;
}

sub run_program { for (1 .. $_[0]) { system("/bin/true") == 0 or die } }

# Sorted by what is left of them, by a sub that perl calls for every two.
my @numbers = $kind eq "sorted-by-sub" ? split(/,/, $line) : ();
sub by_rest {
    my ($left, $right) = ($a % 97, $b % 97);
    return $left <=> $right || $a <=> $b;
}
sub sort_by_sub { for (1 .. $_[0]) { my @sorted = sort by_rest @numbers } }

sub pause { for (1 .. $_[0]) { select(undef, undef, undef, 0.0005) } }

my $result = 0;
for my $unit (0 .. $units - 1) {
    $result += work();
    my $more = share($unit);
    backtrack($more)   if $kind eq "backtracking";
    keep($unit, $more) if $kind eq "kept-hash";
    run_program($more) if $kind eq "subprocess";
    sort_by_sub($more) if $kind eq "sorted-by-sub";
    pause($more)       if $kind eq "pauses";
}
print "$result\n";
