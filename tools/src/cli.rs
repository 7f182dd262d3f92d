//! The arguments, as they are typed. This one definition feeds `--help`, the man page and the shell
//! completions; the commands resolve what they get here into options.

pub mod control;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum, ValueHint};

use stackbeat_core::probe::Cause;

use crate::export::{Format, Weight};
use crate::units::{Period, parse_duration_ns, parse_percent, parse_period, parse_size_bytes};

/// A tracer that needs no instrumentation: it hooks the calls that a program makes anyway and records
/// the calling thread's stack.
#[derive(Debug, Parser)]
#[command(name = "stackbeat", version, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  stackbeat record -- python3 script.py            record a program into python3.beat
  stackbeat report python3.beat                    where did its time go?
  stackbeat report python3.beat --html page.html   flame graph and timeline in one page
  stackbeat demo                                   record two programs and show all of it

Exit codes: 0 it worked, 1 a check said no, 2 an error, 3 a gate cannot tell; `record` exits as the
recorded program did.")]
pub struct Cli {
    /// When to use colours; `auto` honours NO_COLOR.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Record(RecordArgs),
    Attach(AttachArgs),
    Status(control::StatusArgs),
    Start(control::StartArgs),
    Stop(control::StopArgs),
    Set(control::SetArgs),
    Mark(control::MarkArgs),
    Dump(control::DumpArgs),
    Recover(RecoverArgs),
    Report(ReportArgs),
    Export(ExportArgs),
    Gate(GateArgs),
    Ab(AbArgs),
    Trend(TrendArgs),
    Diff(DiffArgs),
    Info(InfoArgs),
    Doctor(DoctorArgs),
    Probes(ProbesArgs),
    Demo(DemoArgs),
    #[command(hide = true)]
    DemoWorker(WorkerArgs),
    /// Print the shell completions of this command.
    #[command(after_help = "\
Examples:
  stackbeat completions bash > ~/.local/share/bash-completion/completions/stackbeat
  stackbeat completions zsh > ~/.zfunc/_stackbeat
  stackbeat completions fish > ~/.config/fish/completions/stackbeat.fish")]
    Completions {
        /// The shell to complete for.
        shell: clap_complete::Shell,
    },
    /// Print the manual page in roff: `stackbeat man | man -l -`.
    Man,
}

/// Record a program: run it with the hooks and write what they saw into a trace.
///
/// The program's input, output and exit status are its own; Ctrl-C reaches it as it would without
/// stackbeat, and the trace is written all the same. Child processes end up in the same trace.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat record -- sqlite3 shop.db < queries.sql
  stackbeat record -o build.beat -- make -j8
  stackbeat record --interval 100us --probes lock,wait -- ./server
  stackbeat record --no-children -- git log
  stackbeat record --commit $(git rev-parse HEAD) -o runs/1.beat -- ./bench
  stackbeat record --mode ring --dump-on usr2 --dump-last 10s -- ./server        then: kill -USR2 RECORDER
  stackbeat record --mode ring --dump-on-block 5s --dump-on-crash --dump-last 10s -- ./server
  stackbeat record --mode ring --start-disabled -- ./server      then: status, start, set, mark, dump, stop

Probe groups: alloc memory lock wait io net poll sleep clock thread process library sched, or all, none.
With `none`, only the sampler interrupts running threads.
Settings can also stand in stackbeat.toml and in STACKBEAT_* variables (docs/configuration.md).")]
pub struct RecordArgs {
    /// Where the trace goes; PROGRAM.beat by default, numbered if that exists.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = trace_file())]
    pub output: Option<PathBuf>,
    /// Replace the output if it exists.
    #[arg(short, long)]
    pub force: bool,
    /// Time between two captures of one thread: 1ms, 100us, down to 50us.
    #[arg(short, long, value_name = "TIME", default_value = "1ms", value_parser = parse_duration_ns)]
    pub interval: u64,
    /// The same for main threads, when it should differ.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub main_interval: Option<u64>,
    /// Most that the recording may cost, as a part of the program's CPU time: 1%, 0.5%. Intervals are stretched for
    /// it, up to 100ms; 0 keeps them. Without it only those below 1ms are, up to 1ms, for 5%.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub budget: Option<f64>,
    /// Groups of calls to hook, separated by commas.
    #[arg(short, long, value_name = "GROUPS", default_value = "all")]
    pub probes: String,
    /// Most frames to keep of one stack; a deeper one is kept truncated.
    #[arg(long, value_name = "FRAMES", default_value_t = 256)]
    pub depth: u32,
    /// Shared memory for samples that are not yet written.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_size_bytes)]
    pub buffer: u64,
    /// What to do when the buffer is full.
    #[arg(long, value_enum, default_value_t = ModeArg::Endless)]
    pub mode: ModeArg,
    /// Record the program itself only, not the processes it starts.
    #[arg(long)]
    pub no_children: bool,
    /// Go on after the program has ended until its children have ended too.
    #[arg(long)]
    pub wait_children: bool,
    /// Do not interrupt threads that run without passing a hook.
    #[arg(long)]
    pub no_interrupt: bool,
    /// Time between two readings of CPU, memory, faults and limits; `off` for none.
    ///
    /// 100ms by default, and off with `--mode ring`, where they would be all that grows.
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub counters: Option<Period>,
    /// Waits longer than this are kept with who ended them and who held the lock; `off` for none.
    #[arg(long, value_name = "TIME", value_parser = parse_period, default_value = "1ms")]
    pub long_wait: Period,
    #[command(flatten)]
    pub dumps: DumpArgs,
    /// Capture nothing until `stackbeat start` says so.
    #[arg(long)]
    pub start_disabled: bool,
    /// Write scopes, marks, counters and flows of the program (docs/marks.md) also to the kernel's trace_marker, as they
    /// happen; `auto`, the path of one, or a named pipe; `off` for none.
    #[arg(
        long,
        value_name = "PATH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto",
        value_hint = ValueHint::FilePath,
        value_parser = parse_systrace
    )]
    pub systrace: Option<SystraceArg>,
    /// Compress the trace.
    #[arg(short = 'z', long)]
    pub compress: bool,
    #[command(flatten)]
    pub series: SeriesArgs,
    /// Preload this agent library in place of the built-in one (also: STACKBEAT_AGENT).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub agent: Option<PathBuf>,
    /// Print no progress and no summary.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the summary as one line of JSON on standard error.
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Record a program that is running already.
///
/// Brings the hooks into the process, records until Ctrl-C, --duration or its end, and takes them away
/// again: the program goes on as before. Child processes that it starts meanwhile are recorded too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat attach --duration 10s 1234
  stackbeat attach -o slow.beat $(pidof redis-server)
  stackbeat attach --interval 100us --probes lock,wait -d 5s 1234
  stackbeat attach --children -d 10s $(cat /run/nginx.pid)     the master and its workers

Processes that it starts while it is attached to are recorded too; --children takes those that are there
already. Settings can also stand in stackbeat.toml and in STACKBEAT_* variables (docs/configuration.md).
It needs glibc, x86-64 and the right to trace the process (its user or root; kernel.yama.ptrace_scope).
One thread is stopped for some milliseconds at the beginning and at the end; the others run on.
Exit codes: 0 it was recorded, 2 it could not be attached to.")]
pub struct AttachArgs {
    /// Where the trace goes; PROGRAM.beat by default, numbered if that exists.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = trace_file())]
    pub output: Option<PathBuf>,
    /// Replace the output if it exists.
    #[arg(short, long)]
    pub force: bool,
    /// Stop after this time: 500ms, 10s; by default at Ctrl-C, or when the program ends.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub duration: Option<u64>,
    /// Time between two captures of one thread: 1ms, 100us, down to 50us.
    #[arg(short, long, value_name = "TIME", default_value = "1ms", value_parser = parse_duration_ns)]
    pub interval: u64,
    /// The same for the main thread, when it should differ.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub main_interval: Option<u64>,
    /// Most that the recording may cost, as a part of the program's CPU time: 1%, 0.5%. Intervals are stretched for
    /// it, up to 100ms; 0 keeps them. Without it only those below 1ms are, up to 1ms, for 5%.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub budget: Option<f64>,
    /// Groups of calls to hook, separated by commas.
    #[arg(short, long, value_name = "GROUPS", default_value = "all")]
    pub probes: String,
    /// Most frames to keep of one stack; a deeper one is kept truncated.
    #[arg(long, value_name = "FRAMES", default_value_t = 256)]
    pub depth: u32,
    /// Shared memory for samples that are not yet written.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_size_bytes)]
    pub buffer: u64,
    /// What to do when the buffer is full.
    #[arg(long, value_enum, default_value_t = ModeArg::Endless)]
    pub mode: ModeArg,
    /// Record the process itself only, not those that it starts meanwhile.
    #[arg(long)]
    pub no_children: bool,
    /// Attach to the processes too that it has started before, and to theirs: workers of a server.
    #[arg(long, conflicts_with = "no_children")]
    pub children: bool,
    /// Do not interrupt threads that run without passing a hook.
    #[arg(long)]
    pub no_interrupt: bool,
    /// Time between two readings of CPU, memory, faults and limits; `off` for none.
    ///
    /// 100ms by default, and off with `--mode ring`, where they would be all that grows.
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub counters: Option<Period>,
    /// Waits longer than this are kept with who ended them and who held the lock; `off` for none.
    #[arg(long, value_name = "TIME", value_parser = parse_period, default_value = "1ms")]
    pub long_wait: Period,
    /// Capture nothing until `stackbeat start` says so.
    #[arg(long)]
    pub start_disabled: bool,
    /// Attach although the program runs under a seccomp filter, which may kill it.
    #[arg(long)]
    pub allow_seccomp: bool,
    /// Write scopes, marks, counters and flows of the program (docs/marks.md) also to the kernel's trace_marker, as they
    /// happen; `auto`, the path of one, or a named pipe; `off` for none.
    #[arg(
        long,
        value_name = "PATH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto",
        value_hint = ValueHint::FilePath,
        value_parser = parse_systrace
    )]
    pub systrace: Option<SystraceArg>,
    /// Compress the trace.
    #[arg(short = 'z', long)]
    pub compress: bool,
    #[command(flatten)]
    pub series: SeriesArgs,
    /// Load this agent library in place of the built-in one (also: STACKBEAT_AGENT).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub agent: Option<PathBuf>,
    /// Print no progress and no summary.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the summary as one line of JSON on standard error.
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// The process.
    pub pid: u32,
}

/// Which point of which series a recording is, for `stackbeat trend`.
#[derive(Args, Clone, Debug, Default)]
pub struct SeriesArgs {
    /// What is measured, for `stackbeat trend`: recordings with another label are another series.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub label: String,
    /// The commit that the program was built of, for `stackbeat trend`.
    #[arg(
        long,
        value_name = "HASH",
        default_value = "",
        hide_default_value = true
    )]
    pub commit: String,
}

/// When dumps are written by themselves.
#[derive(Debug, Default, Args)]
pub struct DumpArgs {
    /// Write a dump beside the trace when the recorder gets this signal, which the program then does not get.
    #[arg(long, value_enum, value_name = "SIGNAL")]
    pub dump_on: Option<DumpSignal>,
    /// Write one when a turn of an event loop (from poll, select or epoll to the next) takes longer.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub dump_on_slow_turn: Option<u64>,
    /// Write one when a thread waits longer, for one of the causes of --dump-on-block-in.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub dump_on_block: Option<u64>,
    /// Causes of waits that --dump-on-block means, separated by commas: lock, wait, io, net, poll, sleep, join,
    /// process, unknown.
    #[arg(
        long,
        value_name = "CAUSES",
        default_value = "lock,io",
        value_delimiter = ',',
        value_parser = parse_cause
    )]
    pub dump_on_block_in: Vec<Cause>,
    /// Write one when the program dies of SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTRAP or SIGSYS.
    #[arg(long)]
    pub dump_on_crash: bool,
    /// Least time between two dumps that nobody asked for.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration_ns)]
    pub dump_every: u64,
    /// Most dumps of one recording that nobody asked for.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub dump_most: u32,
    /// How far such dumps go back; all that the session holds by default.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub dump_last: Option<u64>,
}

/// What threads wait for.
fn parse_cause(text: &str) -> Result<Cause, String> {
    let mut known = Cause::ALL.into_iter().filter(|c| *c != Cause::None);
    known.find(|cause| cause.name() == text).ok_or_else(|| {
        "not a cause: lock, wait, io, net, poll, sleep, join, process, unknown".to_owned()
    })
}

/// Where `--systrace` goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystraceArg {
    Off,
    Auto,
    At(PathBuf),
}

fn parse_systrace(text: &str) -> Result<SystraceArg, String> {
    match text {
        "" => Err("write auto, off, or a path".to_owned()),
        "off" => Ok(SystraceArg::Off),
        "auto" => Ok(SystraceArg::Auto),
        path => Ok(SystraceArg::At(path.into())),
    }
}

/// Signals that may ask for a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DumpSignal {
    /// SIGUSR1
    Usr1,
    /// SIGUSR2
    Usr2,
    /// SIGHUP
    Hup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Write everything as it comes; what cannot be written in time is counted as lost.
    Endless,
    /// Keep the newest samples that fit.
    Ring,
    /// Keep the oldest samples that fit, then stop.
    Startup,
}

/// Put together the trace of a recording that was killed.
///
/// Joins the unfinished trace and what the session's shared memory still holds. Without FILE, lists the
/// sessions in /dev/shm whose recorder is gone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat recover                            list what can be recovered
  stackbeat recover app.beat -o saved.beat     from an unfinished trace
  stackbeat recover /dev/shm/stackbeat.1234 -o saved.beat")]
pub struct RecoverArgs {
    /// The unfinished trace, or the session's mapping in /dev/shm.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Where the recovered trace goes; FILE with `.recovered.beat` by default.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = trace_file())]
    pub output: Option<PathBuf>,
    /// Replace the output if it exists.
    #[arg(short, long)]
    pub force: bool,
    /// Leave the shared memory in place afterwards.
    #[arg(long)]
    pub keep: bool,
    /// Print what was found as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Show where the time of a recording went.
///
/// Tables of threads, functions and blocking calls; JSON for scripts; a page with a flame graph and a
/// timeline for browsers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat report app.beat
  stackbeat report app.beat --html app.html            flame graph and timeline, one file, no network
  stackbeat report app.beat --sort blocked --top 30
  stackbeat report app.beat --thread worker-3
  stackbeat report app.beat --function parse_row       who calls it, what does it call
  stackbeat report app.beat --json | jq '.functions[:5]'

Self is time running in a function itself, total is wall time with its callees. Blocked time is exact:
from the begin to the end of the calls that waited.")]
pub struct ReportArgs {
    /// The trace.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// What the heaviest functions are heavy by.
    #[arg(long, value_enum, default_value_t = SortKey::SelfTime)]
    pub sort: SortKey,
    /// Lines per table; 0 for all. 15 by default, all in JSON.
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Only threads with this name (or part of it) or thread id; may be repeated.
    #[arg(long, value_name = "NAME|TID")]
    pub thread: Vec<String>,
    /// Only processes with this name (or part of it) or process id; may be repeated.
    #[arg(long, value_name = "NAME|PID")]
    pub process: Vec<String>,
    /// Rows for threads at most; those beyond are summed up by name, numbers left out. 0 for all. 2,000 on a page,
    /// all otherwise.
    #[arg(long, value_name = "N")]
    pub max_threads: Option<usize>,
    /// Show the callers and callees of the functions with this name, or part of it.
    #[arg(long, value_name = "NAME", conflicts_with = "html")]
    pub function: Option<String>,
    /// Print JSON (docs/json.md).
    #[arg(long, conflicts_with = "html")]
    pub json: bool,
    /// Write a page with flame graph and timeline; `-` for standard output.
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

/// What `--sort` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// Time running in the function itself.
    #[value(name = "self")]
    SelfTime,
    /// Wall time with callees.
    Total,
    /// CPU time of the function itself.
    Cpu,
    /// Blocked time with callees.
    Blocked,
    /// Bytes allocated by the function itself.
    Alloc,
}

/// Write a trace in the format of another tool.
///
/// Amounts stay what they are: nothing is rounded away, scaled or left out (docs/exports.md).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat export app.beat --to perfetto                    app.pftrace, for ui.perfetto.dev
  stackbeat export app.beat --to pprof -o app.pb.gz          go tool pprof -http=: app.pb.gz
  stackbeat export app.beat --to flamegraph-svg --weight alloc-bytes
  stackbeat export app.beat --to folded -o - | sort | head
  stackbeat export app.beat --to chrome --from 1s --until 1500ms --thread worker-3")]
pub struct ExportArgs {
    /// The trace.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The format.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub to: Format,
    /// Where to write; beside the trace by default, `-` for standard output.
    #[arg(short, long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// What widths stand for in formats that know one amount only; wall by default.
    #[arg(long, value_enum, value_name = "AMOUNT")]
    pub weight: Option<Weight>,
    /// Only threads with this name (or part of it) or thread id; may be repeated.
    #[arg(long, value_name = "NAME|TID")]
    pub thread: Vec<String>,
    /// Leave out what was before this time since the recording's start.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub from: Option<u64>,
    /// Leave out what was after this time since the recording's start.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub until: Option<u64>,
    /// Headline; the recorded command by default.
    #[arg(long)]
    pub title: Option<String>,
    /// Print what was written as JSON (docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// Say whether a program became slower, where, why, and how sure that is.
///
/// Compares the traces of repeated runs of a baseline and of a candidate, best made in turns on one
/// machine. Counts that do not vary are compared exactly; times by tests that keep the chance of a false
/// alarm over all comparisons at 1 %. docs/gate.md has every formula.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat gate --baseline main/ --candidate branch/
  stackbeat gate --baseline 'runs/main-*.beat' --candidate 'runs/branch-*.beat'
  stackbeat gate -b main/ -c branch/ --policy stackbeat.toml
  stackbeat gate -b main/ -c branch/ -o comment.md -o report.html -o results.xml
  stackbeat gate -b main/ -c branch/ --format github -o summary.md

Exit codes: 0 no regression, 1 a regression, 2 an error, 3 cannot tell: it says how many runs would do.")]
pub struct GateArgs {
    /// Traces of the baseline: folders, files, or patterns in quotes.
    #[arg(short, long, required = true, num_args = 1.., value_name = "DIR|GLOB")]
    #[arg(value_hint = ValueHint::AnyPath)]
    pub baseline: Vec<String>,
    /// Traces of the candidate.
    #[arg(short, long, required = true, num_args = 1.., value_name = "DIR|GLOB")]
    #[arg(value_hint = ValueHint::AnyPath)]
    pub candidate: Vec<String>,
    /// The n-th run of one side belongs to the n-th of the other, by the time they began.
    #[arg(long)]
    pub paired: bool,
    /// Thresholds, what to ignore, and budgets (docs/gate.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,
    /// What to print.
    #[arg(short, long, value_enum, default_value_t = GateFormat::Text)]
    pub format: GateFormat,
    /// Write it to a file too: .md, .json, .html, .sarif, .xml (JUnit) or .txt; may be repeated.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Vec<PathBuf>,
}

/// Run two commands in turns, record each run, and say whether the second is slower.
///
/// Each pair of runs is made in random order. Looks at the result are planned in advance and share the
/// error rate, so it stops early when the answer is clear either way. A regression is confirmed by fresh pairs of
/// runs that took no part in finding it. What the commands print is not shown.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat ab --baseline './old bench.sql' --candidate './new bench.sql'
  stackbeat ab --runs 30 --warmup 2 -b 'python3 a.py' -c 'python3 b.py' --format markdown
  stackbeat ab -b 'taskset -c 1 ./old' -c 'taskset -c 1 ./new'     pinned to a CPU

Exit codes: 0 no regression, 1 a regression, 2 an error, 3 cannot tell: it says how many runs would do.")]
pub struct AbArgs {
    /// The command to compare with; quotes work as in a shell, nothing else does.
    #[arg(short, long, value_name = "COMMAND")]
    pub baseline: String,
    /// The command that may be slower.
    #[arg(short, long, value_name = "COMMAND", allow_hyphen_values = true)]
    pub candidate: String,
    /// Most runs of each to find a regression with; to confirm it, at most as many again are made.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub runs: usize,
    /// Believe a regression without confirming it by fresh runs.
    #[arg(long)]
    pub no_confirm: bool,
    /// Runs of each before the first that counts.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warmup: usize,
    /// Folder for the traces: `baseline` and `candidate` in it, which `stackbeat gate` reads again.
    #[arg(short, long, value_name = "FOLDER", default_value = "stackbeat-ab")]
    #[arg(value_hint = ValueHint::DirPath)]
    pub output: PathBuf,
    /// Replace the traces that are in the folder.
    #[arg(long)]
    pub force: bool,
    /// Time between two captures of one thread.
    #[arg(short, long, value_name = "TIME", default_value = "1ms", value_parser = parse_duration_ns)]
    pub interval: u64,
    /// Take runs too that end with an error.
    #[arg(long)]
    pub ignore_failure: bool,
    /// Of the random order.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Thresholds, what to ignore, and budgets (docs/gate.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,
    /// What to print.
    #[arg(short, long, value_enum, default_value_t = GateFormat::Text)]
    pub format: GateFormat,
    /// Write it to a file too: .md, .json, .html, .sarif, .xml (JUnit) or .txt; may be repeated.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write: Vec<PathBuf>,
}

/// Show what differs between two traces, or between two sets of traces.
///
/// For a person who looks for something: tables; on a page the main threads of both (the first trace of each set)
/// on one axis of time, and a differential flame graph. No verdict: what is noise and what is not is said by
/// `stackbeat gate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat diff before.beat after.beat
  stackbeat diff main/ branch/                            means over all traces of each folder
  stackbeat diff before.beat after.beat --html diff.html  flame graph, red where there is more")]
pub struct DiffArgs {
    /// A trace, a folder of traces, or a pattern in quotes.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub a: String,
    /// What to compare it with.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub b: String,
    /// Lines per table.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub top: usize,
    /// Write a page with timelines and a differential flame graph; `-` for standard output.
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

/// Say which commits of a series made a program slower or faster.
///
/// Reads the traces of many commits below one folder and finds where the level of a metric changed. Times need
/// ten commits or more and a few after the change; counts that do not vary need two runs of each. Recordings of
/// different machines or programs are never mixed: each is a series of its own. docs/trend.md has every formula.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat record -o runs/$(git rev-parse HEAD)-1.beat -- ./bench
  stackbeat trend runs/                            a folder of a git repository: its history orders the commits
  stackbeat trend /data/runs --repo .              the traces lie elsewhere
  stackbeat trend runs/ --since v1.4               only what became worse from that tag on is a regression
  stackbeat trend runs/ -o trend.html -o trend.md

Which commit a trace is of: --commit of record, else the hash or tag in the name of its folder or file.
Exit codes: 0 no regression that is there still, 1 a regression or more than a budget allows, 2 an error,
3 cannot tell: too few commits.")]
pub struct TrendArgs {
    /// The folder with the traces: RUNS/COMMIT/N.beat, RUNS/COMMIT-N.beat, or any names with record --commit.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// The git repository whose history orders the commits; by default the one that DIR lies in.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub repo: Option<PathBuf>,
    /// What orders the commits.
    #[arg(long, value_enum, default_value_t = CommitOrder::Auto)]
    pub order: CommitOrder,
    /// A regression of an older commit is no failure any more: a hash, a tag, or the name of a folder.
    #[arg(long, value_name = "COMMIT")]
    pub since: Option<String>,
    /// Thresholds and what to ignore (docs/gate.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,
    /// What to print.
    #[arg(short, long, value_enum, default_value_t = GateFormat::Text)]
    pub format: GateFormat,
    /// Write it to a file too: .md, .json, .html, .sarif, .xml (JUnit) or .txt; may be repeated.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Vec<PathBuf>,
}

/// What `--order` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CommitOrder {
    /// The repository's history where there is one, else the start of each commit's first run.
    Auto,
    /// The repository's history.
    Git,
    /// The start of each commit's first run.
    Time,
}

/// How a verdict is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GateFormat {
    /// For a terminal.
    Text,
    /// For a comment on a pull request.
    Markdown,
    /// For scripts (docs/json.md).
    Json,
    /// Test results, as most CI systems show them.
    Junit,
    /// For code scanning (SARIF 2.1.0).
    Sarif,
    /// Annotations, as commands that GitHub's runner reads from the output.
    Github,
    /// One page with a differential flame graph.
    Html,
}

impl GateFormat {
    /// The format that a file's name asks for.
    pub fn of_file(file: &Path) -> anyhow::Result<GateFormat> {
        let ending = file.extension().and_then(|e| e.to_str()).unwrap_or("");
        Ok(match ending {
            "txt" => GateFormat::Text,
            "md" => GateFormat::Markdown,
            "json" => GateFormat::Json,
            "xml" => GateFormat::Junit,
            "sarif" => GateFormat::Sarif,
            "html" => GateFormat::Html,
            _ => anyhow::bail!(
                "{}: the ending names no format; use .txt, .md, .json, .xml, .sarif or .html",
                file.display()
            ),
        })
    }
}

/// Show what a trace says about itself: settings, counts, losses, completeness.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat info app.beat
  stackbeat info app.beat --check        exit code 1 when a sum does not come out
  stackbeat info app.beat --json | jq .losses")]
pub struct InfoArgs {
    /// The trace.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Check that every thread's times, CPU time and allocations add up.
    #[arg(long)]
    pub check: bool,
    /// List every module.
    #[arg(long)]
    pub modules: bool,
    /// Print JSON (docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// Say which hooks and clocks work on this machine, and why not.
///
/// Makes a short recording of a program that passes every kind of hook and checks what came out.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat doctor
  stackbeat doctor --json

Exit code 1: something that recording needs does not work.")]
pub struct DoctorArgs {
    /// Look at the machine only, record nothing.
    #[arg(long)]
    pub no_recording: bool,
    /// Print JSON (docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// List the probes and the functions that they hook, or count which of them a program calls.
///
/// With --count, runs a program and counts each call exactly, by function and by the threads' roles: so one sees
/// which groups of probes are worth their cost (`record --probes`). Nothing else is recorded, and each counted call
/// takes some 50 ns longer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat probes
  stackbeat probes --json | jq -r '.functions[] | select(.group == \"lock\").name'
  stackbeat probes --count -- redis-server --port 0
  stackbeat probes --count --json -- python3 script.py 2> calls.json

The table comes on standard error, after what the program says; the exit code is the program's.
Calls inside libc, and by programs that it does not link dynamically, pass no hook (docs/architecture.md).")]
pub struct ProbesArgs {
    /// Run a program and count its calls.
    #[arg(long, requires = "command")]
    pub count: bool,
    /// Count the calls of the program itself only, not of the processes it starts.
    #[arg(long, requires = "count")]
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

/// A file that a trace is written to. Standard output is the program's, or for what a command says.
fn trace_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path == Path::new("-") {
        true => Err(
            "a trace cannot go to standard output; name a file, or a named pipe (mkfifo) \
             that another program reads meanwhile",
        ),
        false => Ok(path),
    })
}

/// Record an installed program and a bundled one, show their tables, write their pages.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat demo
  stackbeat demo -o /tmp/look")]
pub struct DemoArgs {
    /// Folder for traces and pages.
    #[arg(short, long, value_name = "FOLDER", default_value = "stackbeat-demo")]
    #[arg(value_hint = ValueHint::DirPath)]
    pub output: PathBuf,
}

/// Run a program that `demo` and `doctor` record.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    pub program: String,
}

/// Prints the completions for one shell.
pub fn print_completions(shell: clap_complete::Shell) -> anyhow::Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(
        shell,
        &mut crate::settings::definition(),
        "stackbeat",
        &mut text,
    );
    crate::terminal::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

/// Prints one manual page with all commands.
pub fn print_man_page() -> anyhow::Result<u8> {
    let mut text = Vec::new();
    let mut command = crate::settings::definition();
    command.build();
    let page = clap_mangen::Man::new(command.clone());
    page.render(&mut text)?;
    for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
        if sub.get_name() == "help" {
            continue;
        }
        let title = format!(".SH \"STACKBEAT {}\"\n", sub.get_name().to_uppercase());
        text.extend_from_slice(title.as_bytes());
        let page = clap_mangen::Man::new(sub.clone());
        page.render_synopsis_section(&mut text)?;
        page.render_description_section(&mut text)?;
        page.render_options_section(&mut text)?;
        page.render_extra_section(&mut text)?;
    }
    crate::terminal::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_keeps_its_own_flags() {
        let cli = Cli::try_parse_from(["stackbeat", "record", "--json", "ls", "-l", "--json"]);
        let Ok(Command::Record(args)) = cli.map(|c| c.command) else {
            panic!("parses as record");
        };
        assert!(args.json);
        assert_eq!(args.command, ["ls", "-l", "--json"]);
    }
}
