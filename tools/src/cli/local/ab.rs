//! Arguments of `stackbeat ab`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use stackbeat_collector::session::CpuList;

use crate::cli::verdict::GateFormat;
use crate::units::parse_duration_ns;

const EXAMPLES: &str = "\
Examples:
  stackbeat ab --baseline './old bench.sql' --candidate './new bench.sql'
  stackbeat ab --together -b ./old -c ./new    on one processor: far less noise

Exit codes: 0 no regression, 1 a regression, 2 an error, 3 cannot tell.";

const MORE: &str = "
Where it cannot tell, it says how many runs would do.

p is how often runs of one and the same program would differ as much by chance: below 0.01 it counts
as a change. It is corrected for all that is compared; p <0.0001 is less than once in 10000 times.

More examples:
  stackbeat ab --runs 30 --warmup 2 -b 'python3 a.py' -c 'python3 b.py' --format markdown
  stackbeat ab --in-turns -b ./old -c ./new        one after the other, for servers on one port
  stackbeat ab --cpus 2-3 -b ./old -c ./new        pinned to two processors";

/// Run two commands in turns and say whether the second is slower.
///
/// Each run is recorded. Each pair of runs is made in random order, one after the other or, where runs vary,
/// at the same time. Looks at the result are planned in advance and share the error rate, so it stops early
/// when the answer is clear either way. A regression is confirmed by fresh pairs of runs that took no part in
/// finding it. What the commands print is not shown.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}{MORE}"))]
pub(crate) struct AbArgs {
    /// The command to compare with.
    ///
    /// A shell runs it where it has pipes, redirections, variables or patterns; otherwise quotes work as in
    /// one.
    #[arg(short, long, value_name = "COMMAND")]
    pub baseline: String,
    /// The command that may be slower.
    #[arg(short, long, value_name = "COMMAND", allow_hyphen_values = true)]
    pub candidate: String,
    /// Most runs of each.
    ///
    /// To find a regression with; to confirm it, at most as many again are made.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = parse_runs)]
    pub runs: usize,
    /// Believe a regression without confirming it by fresh runs.
    #[arg(long, hide_short_help = true)]
    pub no_confirm: bool,
    /// Runs of each before the first that counts.
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true)]
    pub warmup: usize,
    /// Run both of a pair at once on one processor.
    ///
    /// It takes turns every few milliseconds: what slows one slows the other. For programs whose threads do
    /// not compute at the same time, and whose runs do not write the same file or open the same port; wall
    /// times have the other's turns in them. Without this, --in-turns and --cpus a few runs decide: where
    /// they show noise, the threads do not compute at the same time, and a first pair does not fail.
    #[arg(long)]
    pub together: bool,
    /// Run both of a pair one after the other.
    #[arg(long, conflicts_with = "together", hide_short_help = true)]
    pub in_turns: bool,
    /// Pin both to these processors, as 1 or 0-3,6.
    ///
    /// With --together: those that they share, by default the last one.
    #[arg(long, value_name = "LIST", value_parser = CpuList::parse)]
    pub cpus: Option<CpuList>,
    /// Folder for the traces [default: stackbeat-ab].
    ///
    /// `baseline` and `candidate` in it, which `stackbeat gate` reads again. Without this option traces of
    /// an earlier time stay: the next go to stackbeat-ab.2.
    #[arg(short, long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    /// Replace the traces that are in the folder.
    #[arg(long, hide_short_help = true)]
    pub force: bool,
    /// Time between two captures of one thread.
    #[arg(short, long, value_name = "TIME", default_value = "1ms", value_parser = parse_duration_ns, hide_short_help = true)]
    pub interval: u64,
    /// Take runs too that end with an error.
    #[arg(long, hide_short_help = true)]
    pub ignore_failure: bool,
    /// Of the random order.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        hide_short_help = true
    )]
    pub seed: u64,
    /// Counts that became more are a regression, too, even where no time did.
    #[arg(long, hide_short_help = true)]
    pub fail_on_counts: bool,
    /// Thresholds, what to ignore, and budgets (docs/gate.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub policy: Option<PathBuf>,
    /// What to print.
    #[arg(long, value_enum, default_value_t = GateFormat::Text)]
    pub format: GateFormat,
    /// Write it to a file too, as its ending says.
    ///
    /// .md, .json, .html, .sarif, .xml (JUnit) or .txt; may be repeated.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write: Vec<PathBuf>,
}

/// One run or more.
fn parse_runs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("nothing would be compared; ten are a good number".into()),
        Ok(runs) => Ok(runs),
        Err(_) => Err("write a number, 12 for example".into()),
    }
}
