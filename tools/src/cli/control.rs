//! Arguments of the commands that steer a session while it runs.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::common_arguments::{ModeArg, trace_file};
use crate::units::parse_duration_ns;

/// Show the recordings that run now, and where each one stands.
///
/// Lists the sessions of this user, and of everybody when asked by root. A session is named by itself,
/// by the pid of any recorded process, or by that of its recorder.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat status
  stackbeat status $(pgrep -o nginx)
  stackbeat status --locks $(pgrep -o nginx)
  stackbeat status --json | jq '.sessions[].trace'

Exit code 1: there is no such session, or none at all.")]
pub(crate) struct StatusArgs {
    /// One session only, in detail.
    #[arg(value_name = "PID|SESSION")]
    pub session: Option<String>,
    /// Show which threads wait for locks now, who holds these, and deadlocks, with stacks.
    #[arg(long)]
    pub locks: bool,
    /// Print JSON (docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// Capture from now on, after `stop` or --start-disabled.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat record --start-disabled -- ./server &
  stackbeat start $(pgrep server)")]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub target: Target,
}

/// Capture nothing from now on; the program and the session go on.
///
/// What was recorded stays; reports show the stretch until the next `start` as time without evidence.
/// Allocations are still counted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat stop 4711")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub target: Target,
}

/// Change the settings of a session while it runs.
///
/// What is not named stays. The trace notes each change and when it was.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat set 4711 --interval 100us
  stackbeat set 4711 --probes lock,wait,io
  stackbeat set 4711 --mode ring")]
pub(crate) struct SetArgs {
    #[command(flatten)]
    pub target: Target,
    /// Time between two captures of one thread: 1ms, 100us, down to 50us.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub interval: Option<u64>,
    /// The same for main threads; they follow --interval unless this is given.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub main_interval: Option<u64>,
    /// Groups of calls to hook, separated by commas.
    #[arg(short, long, value_name = "GROUPS")]
    pub probes: Option<String>,
    /// What to do when the buffer is full.
    #[arg(long, value_enum)]
    pub mode: Option<ModeArg>,
    /// Print where the session stands afterwards as JSON (docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// Put a mark with a text into the trace, at this moment.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat mark 4711 'load test begins'")]
pub(crate) struct MarkArgs {
    #[command(flatten)]
    pub target: Target,
    /// What the mark says.
    pub text: String,
}

/// Save what a session holds, or its last seconds, as a trace of its own.
///
/// The session goes on. With `record --mode ring` a flight recorder: the ring keeps the newest samples, a
/// dump saves them when something has happened.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat record --mode ring --buffer 64MiB -- ./server &
  stackbeat dump $(pgrep server) --last 10s -o spike.beat
  stackbeat report spike.beat")]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    pub target: Target,
    /// Only this long before now; everything by default.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub last: Option<u64>,
    /// Where the trace goes. The session's recorder writes it, as its own user.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = trace_file())]
    pub output: PathBuf,
    /// Replace the output if it exists.
    #[arg(short, long)]
    pub force: bool,
    /// Leave out the names of functions.
    #[arg(long)]
    pub no_symbols: bool,
    /// Print what was written as JSON (docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// Which session.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The session: its name, the pid of any of its processes, or that of its recorder.
    #[arg(value_name = "PID|SESSION")]
    pub session: String,
}
