use strict; $| = 1; my $alarms = 0; $SIG{ALRM} = sub { $alarms++ };
sub deep { my $n = shift; $n ? 1 + deep($n - 1) : 0 } { no warnings; print deep(50000), "\n"; }
my @all = map { join "", map { chr 97 + $_ % 26 } $_ .. $_ + 20 } 1 .. 20000; my %h; $h{$_}++ for @all; print scalar(keys %h), "\n";
alarm 1; select undef, undef, undef, 3 until $alarms; print "alarm $alarms\n";
my @pids; for my $i (1 .. 5) { my $p = fork; if (!$p) { select undef, undef, undef, 0.01; exit $i } push @pids, $p }
print join(" ", map { waitpid $_, 0; $? >> 8 } @pids), "\n"; print `echo child`;
my $text = "ab" x 30000; print length $1, "\n" if $text =~ /^((?:a(?:b|c))*)$/;
