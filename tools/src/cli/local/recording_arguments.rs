//! Arguments of `record` and `attach`. Most are settings, too ([`crate::settings`]).

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use stackbeat_collector::session::ClockChoice;
use stackbeat_core::probe::Cause;

use crate::cli::common_arguments::{ModeArg, trace_file};
use crate::units::{parse_duration_ns, parse_size_bytes};

/// Where options of [`CaptureArgs`] and [`WatchArgs`] stand in the help.
const CAPTURES: &str = "Captures";

/// Which file a recording becomes.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArgs {
    /// Where the trace goes; PROGRAM.beat by default.
    ///
    /// That is numbered if it exists.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = trace_file())]
    pub output: Option<PathBuf>,
    /// Replace the output if it exists.
    #[arg(short, long)]
    pub force: bool,
}

/// What is captured, how often, and where it is kept meanwhile.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = CAPTURES)]
pub(crate) struct CaptureArgs {
    /// Time between two captures of a thread: 1ms, 50us.
    ///
    /// The shortest is 50us. Without it 1ms, and once a process has computed for a second the kernel's tick
    /// (some 4ms), which costs less.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub interval: Option<u64>,
    /// The same for main threads, when it should differ.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, hide_short_help = true)]
    pub main_interval: Option<u64>,
    /// Most that it may cost of the program's CPU time: 1%.
    ///
    /// Intervals are stretched for it, up to 100ms; 0 keeps them. Without it only those below 1ms are, up to
    /// 1ms, for 5%.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub budget: Option<f64>,
    /// Groups of calls to hook: lock,wait.
    #[arg(short, long, value_name = "GROUPS", default_value = "all")]
    pub probes: String,
    /// Most frames to keep of one stack; a deeper one is kept truncated.
    #[arg(
        long,
        value_name = "FRAMES",
        default_value_t = 256,
        hide_short_help = true
    )]
    pub depth: u32,
    /// Put what awaits an asyncio task into its stacks (Python 3.14 and later).
    #[arg(long, hide_short_help = true)]
    pub await_chains: bool,
    /// Shared memory for samples that are not yet written.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_size_bytes)]
    #[arg(help_heading = "Buffer", hide_short_help = true)]
    pub buffer: u64,
    /// What to do when the buffer is full.
    #[arg(long, value_enum, default_value_t = ModeArg::Endless, help_heading = "Buffer", hide_short_help = true)]
    pub mode: ModeArg,
}

/// What is recorded beside the captures in hooks.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = CAPTURES)]
pub(crate) struct WatchArgs {
    /// Do not interrupt threads that run without passing a hook.
    #[arg(long, hide_short_help = true)]
    pub no_interrupt: bool,
    /// What says when threads are sampled.
    // What the environment or a file says gives way to this flag.
    #[arg(long, value_enum, default_value_t = ClockArg::Auto, default_value_if("no_interrupt", "true", "tick"))]
    #[arg(hide_short_help = true)]
    pub clock: ClockArg,
    /// Time between two readings of CPU, memory, faults and limits; `off` for none.
    ///
    /// 100ms by default, and off with `--mode ring`, where they would be all that grows.
    #[arg(long, value_name = "TIME", value_parser = parse_period, hide_short_help = true)]
    pub counters: Option<Period>,
    /// Waits longer than this are kept with who ended them and who held the lock; `off` for none.
    #[arg(long, value_name = "TIME", value_parser = parse_period, default_value = "1ms", hide_short_help = true)]
    pub long_wait: Period,
}

impl WatchArgs {
    /// The sampling clock that was asked for. `keeps_interval`: the intervals are those that the user wants.
    ///
    /// # Errors
    /// The kernel's clock does nothing but interrupt threads.
    pub(crate) fn clock_choice(&self, keeps_interval: bool) -> anyhow::Result<ClockChoice> {
        match self.clock {
            ClockArg::Kernel | ClockArg::Timer if self.no_interrupt => anyhow::bail!(
                "--clock {} and --no-interrupt exclude each other: that clock interrupts threads; leave one of them out",
                self.clock
                    .to_possible_value()
                    .map_or(String::new(), |value| value.get_name().to_owned()),
            ),
            ClockArg::Auto if keeps_interval => Ok(ClockChoice::Tick),
            ClockArg::Auto => Ok(ClockChoice::Auto),
            ClockArg::Kernel => Ok(ClockChoice::Kernel),
            ClockArg::Timer => Ok(ClockChoice::Timer),
            ClockArg::Tick => Ok(ClockChoice::Tick),
        }
    }
}

/// When dumps are written by themselves.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Dumps (flight recorder)")]
pub(crate) struct DumpArgs {
    /// Write a dump beside the trace when the recorder gets this signal, which the program then does not get.
    #[arg(long, value_enum, value_name = "SIGNAL", hide_short_help = true)]
    pub dump_on: Option<DumpSignal>,
    /// Write one when an iteration of an event loop (from poll, select or epoll to the next) takes longer.
    #[arg(
        long,
        alias = "dump-on-slow-turn",
        value_name = "TIME",
        value_parser = parse_duration_ns,
        hide_short_help = true
    )]
    pub dump_on_slow_iteration: Option<u64>,
    /// Write one when a thread waits longer, for one of the causes of --dump-on-block-in.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, hide_short_help = true)]
    pub dump_on_block: Option<u64>,
    /// Causes of waits that --dump-on-block means, separated by commas: lock, wait, io, net, poll, sleep,
    /// join, process, ipc, unknown.
    #[arg(
        long,
        value_name = "CAUSES",
        default_value = "lock,io",
        value_delimiter = ',',
        value_parser = parse_cause,
        hide_short_help = true
    )]
    pub dump_on_block_in: Vec<Cause>,
    /// Write one when the program, or a process that it has started, dies of SIGSEGV, SIGABRT, SIGBUS,
    /// SIGILL, SIGFPE, SIGTRAP or SIGSYS.
    #[arg(long, hide_short_help = true)]
    pub dump_on_crash: bool,
    /// Least time between two dumps that nobody asked for.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration_ns, hide_short_help = true)]
    pub dump_every: u64,
    /// Most dumps of one recording that nobody asked for.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 10,
        hide_short_help = true
    )]
    pub dump_most: u32,
    /// How far such dumps go back; all that the session holds by default.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, hide_short_help = true)]
    pub dump_last: Option<u64>,
}

/// Whether capturing begins with the recording.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = CAPTURES)]
pub(crate) struct SwitchArgs {
    /// Capture nothing until `stackbeat start` says so.
    #[arg(long, hide_short_help = true)]
    pub start_disabled: bool,
}

/// Where events go beside the trace, how it is packed, and which point of which series it is.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Trace")]
pub(crate) struct TraceArgs {
    /// Write scopes, marks, counters and flows of the program (docs/marks.md) also to the kernel's
    /// trace_marker, as they happen; `auto`, the path of one, or a named pipe; `off` for none.
    #[arg(
        long,
        value_name = "PATH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto",
        value_hint = ValueHint::FilePath,
        value_parser = parse_systrace,
        hide_short_help = true
    )]
    pub systrace: Option<SystraceArg>,
    /// Compress the trace.
    #[arg(short = 'z', long, hide_short_help = true)]
    pub compress: bool,
    /// Name JavaScript by its sources, where source maps say them: comments and files beside.
    #[arg(long, hide_short_help = true)]
    pub source_maps: bool,
    /// Keep no unpacked debug files in ~/.cache/stackbeat/symbols, and use none.
    #[arg(long, hide_short_help = true)]
    pub no_symbol_cache: bool,
    /// Ask no server for debug files, even where DEBUGINFOD_URLS names some.
    #[arg(long, hide_short_help = true)]
    pub no_debuginfod: bool,
    /// What is measured, for `stackbeat trend`: recordings with another label are another series.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        hide_short_help = true
    )]
    pub label: String,
    /// The commit that the program was built of, for `stackbeat trend`.
    #[arg(
        long,
        value_name = "HASH",
        default_value = "",
        hide_default_value = true,
        hide_short_help = true
    )]
    pub commit: String,
}

/// What a recording says of itself.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogArgs {
    /// Print no progress and no summary.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the summary as one line of JSON on standard error.
    #[arg(long, conflicts_with = "quiet", hide_short_help = true)]
    pub json: bool,
    /// Show the trace in a browser afterwards, as `open` does.
    #[arg(long)]
    pub open: bool,
}

/// What threads wait for.
fn parse_cause(text: &str) -> Result<Cause, String> {
    let known = || Cause::ALL.into_iter().filter(|c| *c != Cause::None);
    known().find(|cause| cause.name() == text).ok_or_else(|| {
        let names: Vec<_> = known().map(Cause::name).collect();
        format!("not a cause: {}", names.join(", "))
    })
}

/// Reads a part of something: `1%`, `0.5%`, `1`.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    match number.parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("write a percentage from 0 to 100: 1%, 0.5%".to_owned()),
    }
}

/// A period, or that something is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    Off,
    Ns(u64),
}

/// Parses a duration, or `off`.
fn parse_period(text: &str) -> Result<Period, String> {
    match text {
        "off" => Ok(Period::Off),
        text => parse_duration_ns(text)
            .map(Period::Ns)
            .map_err(|error| format!("{error}, or off")),
    }
}

/// Where `--systrace` goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SystraceArg {
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
pub(crate) enum DumpSignal {
    /// SIGUSR1
    Usr1,
    /// SIGUSR2
    Usr2,
    /// SIGHUP
    Hup,
}

/// What `--clock` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockArg {
    /// `tick`, and `timer` in each process from when it has computed for a second. With --interval: `tick`.
    Auto,
    /// The recorder wakes up after each interval, and interrupts the threads that run.
    Tick,
    /// The kernel interrupts a thread after each interval of its CPU time (perf_event_open): nothing wakes up
    /// beside the program. Time in the kernel is seen in hooked calls only.
    Kernel,
    /// The kernel interrupts a thread at its next tick (some 4 ms; `doctor` says how long) after an interval
    /// of its CPU time, in the kernel or not. Costs least; waits are recorded as with the others.
    Timer,
}
