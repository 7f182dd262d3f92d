//! Arguments of the commands that say what works here, and show it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Say which hooks and clocks work on this machine, and why not.
///
/// Makes a short recording of a program that passes every kind of hook and checks what came out.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat doctor
  stackbeat doctor --json

Exit code 1: something that recording needs does not work.")]
pub(crate) struct DoctorArgs {
    /// Look at the machine only, record nothing.
    #[arg(long)]
    pub no_recording: bool,
    /// Print JSON (docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// List the probes, or count which hooked functions a program calls.
///
/// The list has the functions that each probe hooks. With --count, runs a program and counts each call
/// exactly, by function and by the threads' roles: so one sees which groups of probes are worth their cost
/// (`record --probes`). Nothing else is recorded, and each counted call takes some 50 ns longer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat probes
  stackbeat probes --json | jq -r '.functions[] | select(.group == \"lock\").name'
  stackbeat probes --count -- redis-server --port 0
  stackbeat probes --count --json -- python3 script.py 2> calls.json

The table comes on standard error, after what the program says; the exit code is the program's.
Calls inside libc, and by programs that it does not link dynamically, pass no hook (docs/architecture.md).")]
pub(crate) struct ProbesArgs {
    /// Run a program and count its calls.
    #[arg(long, requires = "command")]
    pub count: bool,
    /// Count the calls of the program itself only, not of the processes it starts.
    #[arg(long, requires = "count", hide_short_help = true)]
    pub no_children: bool,
    /// Lines of the table; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub top: usize,
    /// Print JSON (docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        requires = "count",
        value_name = "COMMAND"
    )]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Record two programs, show their tables, write their pages.
///
/// One is installed on this machine, the other is part of stackbeat.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat demo
  stackbeat demo -o /tmp/look")]
pub(crate) struct DemoArgs {
    /// Folder for traces and pages.
    #[arg(short, long, value_name = "FOLDER", default_value = "stackbeat-demo")]
    #[arg(value_hint = ValueHint::DirPath)]
    pub output: PathBuf,
}

/// Run a program that `demo` and `doctor` record.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    pub program: String,
}
