//! Arguments of the commands that make recordings.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use stackbeat_collector::session::CpuList;

use super::recording_arguments::{
    CaptureArgs, DumpArgs, LogArgs, OutputArgs, SwitchArgs, TraceArgs, WatchArgs,
};
use crate::units::parse_duration_ns;

/// Where options about processes stand in the help.
const PROCESSES: &str = "Processes";

const RECORD_EXAMPLES: &str = "\
Examples:
  stackbeat record -- sqlite3 shop.db < queries.sql
  stackbeat record -o build.beat -- make -j8
  stackbeat record --interval 100us --probes lock,wait -- ./server";

const RECORD_MORE: &str = "
  stackbeat record --no-children -- git log
  stackbeat record --commit $(git rev-parse HEAD) -o runs/1.beat -- ./bench

  As a flight recorder, which keeps the newest samples; a dump saves them:
  stackbeat record --mode ring --dump-last 10s --dump-on usr2 -- ./server
  stackbeat record --mode ring --dump-last 10s --dump-on-block 5s -- ./server
  stackbeat record --mode ring --dump-last 10s --dump-on-crash -- ./server

  Steered while it runs, by status, start, stop, set, mark and dump:
  stackbeat record --mode ring --start-disabled -- ./server

Probe groups: alloc memory lock wait io net poll sleep clock thread process
library sched runtime, or all, none. With `none`, only the sampler interrupts
running threads. Settings can also stand in stackbeat.toml and in STACKBEAT_*
variables (docs/configuration.md).";

/// Record a program: run it with the hooks and write a trace.
///
/// The program's input, output and exit status are its own; Ctrl-C reaches it as it would without
/// stackbeat, and the trace is written all the same. Child processes end up in the same trace.
#[derive(Debug, Args)]
#[command(after_help = RECORD_EXAMPLES, after_long_help = format!("{RECORD_EXAMPLES}{RECORD_MORE}"))]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub destination: OutputArgs,
    #[command(flatten)]
    pub log: LogArgs,
    /// Preload this agent library in place of the built-in one (also: STACKBEAT_AGENT).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub agent: Option<PathBuf>,
    /// Say in the trace that another run of a pair shares these processors: `ab --together` does.
    #[arg(long, hide = true)]
    pub shares_processor: bool,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
    // A heading holds for all that follows without one of its own.
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Record the program itself only, not the processes it starts.
    #[arg(long, help_heading = PROCESSES, hide_short_help = true)]
    pub no_children: bool,
    /// Go on after the program has ended until its children have ended too.
    #[arg(long, help_heading = PROCESSES, hide_short_help = true)]
    pub wait_children: bool,
    /// Record from inside the program: no process beside it, and no wake-up while it idles. With fewer
    /// means: docs/in-process.md.
    #[arg(long, help_heading = PROCESSES, hide_short_help = true)]
    pub in_process: bool,
    /// Pin the program to these processors, as 1 or 0-3,6; the recorder runs where it may.
    #[arg(long, value_name = "LIST", value_parser = CpuList::parse, help_heading = PROCESSES, hide_short_help = true)]
    pub cpus: Option<CpuList>,
    /// Do not set switches by which the program's runtime names its code (Node.js, .NET).
    #[arg(long, help_heading = PROCESSES, hide_short_help = true)]
    pub no_runtime_options: bool,
    #[command(flatten)]
    pub watch: WatchArgs,
    #[command(flatten)]
    pub dumps: DumpArgs,
    #[command(flatten)]
    pub switch: SwitchArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
}

const ATTACH_EXAMPLES: &str = "\
Examples:
  stackbeat attach --duration 10s 1234
  stackbeat attach -o slow.beat redis-server
  stackbeat attach --children -d 10s $(cat /run/nginx.pid)";

const ATTACH_MORE: &str = "
  stackbeat attach --interval 100us --probes lock,wait -d 5s 1234

Processes that it starts while it is attached to are recorded too; --children
takes those that are there already: the workers of a master, for example.
Settings can also stand in stackbeat.toml and in STACKBEAT_* variables
(docs/configuration.md).
It needs glibc, x86-64 and the right to trace the process (its user or root;
kernel.yama.ptrace_scope). One thread is stopped for some milliseconds at the
beginning and at the end; the others run on.
Exit codes: 0 it was recorded, 2 it could not be attached to.";

/// Record a program that is running already.
///
/// Brings the hooks into the process, records until Ctrl-C, --duration or its end, and takes them away
/// again: the program goes on as before. Child processes that it starts meanwhile are recorded too.
#[derive(Debug, Args)]
#[command(after_help = ATTACH_EXAMPLES, after_long_help = format!("{ATTACH_EXAMPLES}{ATTACH_MORE}"))]
#[command(mut_arg(
    "main_interval",
    |arg| arg.help("The same for the main thread, when it should differ")
))]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub destination: OutputArgs,
    /// Stop after this time: 500ms, 10s.
    ///
    /// By default at Ctrl-C, or when the program ends.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub duration: Option<u64>,
    #[command(flatten)]
    pub log: LogArgs,
    /// Attach although the program runs under a seccomp filter, which may kill it.
    #[arg(long, hide_short_help = true)]
    pub allow_seccomp: bool,
    /// Load this agent library in place of the built-in one (also: STACKBEAT_AGENT).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub agent: Option<PathBuf>,
    /// The process, by its number or its program's name.
    ///
    /// The name where only one process has it.
    #[arg(value_name = "PID|NAME", value_parser = parse_process)]
    pub process: ProcessArg,
    /// Ends with this process, which started it, and looks up no names: `stackbeat top` reads the session
    /// meanwhile.
    #[arg(long, hide = true, value_name = "PID")]
    pub live: Option<u32>,
    /// More than one is refused, with what to do instead.
    #[arg(hide = true, value_name = "PID")]
    pub others: Vec<String>,
    // A heading holds for all that follows without one of its own.
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Record the process itself only, not those that it starts meanwhile.
    #[arg(long, help_heading = PROCESSES, hide_short_help = true)]
    pub no_children: bool,
    /// Attach to those that it has started before, too.
    ///
    /// And to those that they have started: workers of a server.
    #[arg(long, conflicts_with = "no_children", help_heading = PROCESSES, hide_short_help = true)]
    pub children: bool,
    #[command(flatten)]
    pub watch: WatchArgs,
    #[command(flatten)]
    pub switch: SwitchArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// A process as it is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessArg {
    Pid(u32),
    /// Of its program.
    Name(String),
}

pub(super) fn parse_process(text: &str) -> Result<ProcessArg, String> {
    // Larger ones than the kernel gives are of no process (`PID_MAX_LIMIT`, include/linux/threads.h).
    const MOST: u32 = 1 << 22;
    match text.parse() {
        Ok(pid @ 1..=MOST) => Ok(ProcessArg::Pid(pid)),
        Err(_) if text.bytes().any(|byte| byte.is_ascii_alphabetic()) => {
            Ok(ProcessArg::Name(text.to_owned()))
        }
        _ => Err(format!(
            "the numbers of processes are 1 to {MOST}; `pgrep -a .` lists all processes"
        )),
    }
}
