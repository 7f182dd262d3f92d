//! What a recording is asked to do, and what it says while it runs and at its end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use stackbeat_core::probe::{self, Category};
use stackbeat_core::shm::layout::{Mode, SamplingClock, sampled_by};
use stackbeat_proto::v1::drops::Cause;

use super::cpus::CpuList;
use super::dump_error::DumpError;
use super::error::{RecordError, Warning};
use super::protocol::DumpReply;
use stackbeat_model::UnrecordedProgram;
use stackbeat_symbolize::NameSources;

/// Shortest interval that may be asked for, ns.
pub const MIN_INTERVAL_NS: u64 = 50_000;
/// Longest interval that may be asked for, ns.
pub const MAX_INTERVAL_NS: u64 = 4_000_000_000;
/// Shortest distance between two readings of counters, ns.
pub const MIN_COUNTERS_NS: u64 = 10_000_000;
/// Shortest wait that may be called long, ns: what a wake-up takes anyway.
pub(crate) const MIN_LONG_WAIT_NS: u64 = 10_000;
/// Part of the program's CPU time that intervals below a millisecond may cost where nothing else is said,
/// percent.
pub(crate) const SHORT_INTERVALS_PERCENT: f64 = 5.0;
/// A declared budget stretches intervals up to it, ns.
pub(crate) const LONGEST_STRETCHED_NS: u64 = 100_000_000;
/// Most frames that one capture may keep.
pub const MAX_DEPTH: u32 = 1024;
/// Smallest pool of sub-buffers, bytes.
pub(crate) const MIN_BUFFER_BYTES: u64 = 64 << 10;
/// Largest pool of sub-buffers, bytes.
pub(crate) const MAX_BUFFER_BYTES: u64 = 16 << 30;

/// What is to say when threads are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockChoice {
    /// Ticks, and timers in processes that have computed for long, where these can be had.
    #[default]
    Auto,
    /// The kernel's clock, or an error.
    Kernel,
    /// A timer of each thread's CPU time, or an error.
    Timer,
    /// Ticks of the recorder, for all processes and all the time.
    Tick,
}

/// What says when the threads of a session are sampled.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub clock: SamplingClock,
    /// What samples processes at first: a [`sampled_by`].
    pub at_first: u32,
    /// With timers: the shortest time between two samples by one, ns.
    pub timer_ns: u64,
    /// Why it is not the clock that was wanted; empty otherwise.
    pub why_not: String,
    /// Threads that run are suspended, not sent signals.
    pub by_suspension: bool,
}

impl Chosen {
    /// One clock for all.
    pub(crate) fn of(clock: SamplingClock) -> Chosen {
        Chosen {
            clock,
            at_first: sampled_by::SESSION_CLOCK,
            timer_ns: 0,
            why_not: String::new(),
            by_suspension: false,
        }
    }
}

/// What to record and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program (looked up in PATH when it has no slash) and its arguments.
    pub command: Vec<OsString>,
    /// The agent library to preload, an absolute path without spaces and colons.
    pub agent: PathBuf,
    /// Where the trace goes.
    pub output: PathBuf,
    /// Replace an output that exists.
    pub overwrite: bool,
    /// Interval between captures of a thread that is no main thread, ns.
    pub interval_ns: u64,
    /// Interval of main threads, ns.
    pub main_interval_ns: u64,
    /// Part of the program's CPU time that the recording may cost, in percent: intervals are stretched for
    /// it. 0: they are kept. `None`: see [`Options::budget`].
    pub budget_percent: Option<f64>,
    /// Bits of the [`Category`]s whose probes capture.
    pub probes: u64,
    /// Most frames kept of one stack.
    pub depth_limit: u32,
    /// Put the coroutines that await a task into its stacks (asyncio of CPython 3.14 and later).
    pub await_chains: bool,
    /// Bytes of the whole pool of sub-buffers.
    pub buffer_bytes: u64,
    /// What becomes of records: all are drained into the trace, or the newest or the first stay in the pool.
    pub mode: Mode,
    /// Record child processes too.
    pub follow_children: bool,
    /// Go on after the command has ended until its recorded children have ended too.
    pub wait_children: bool,
    /// The processors that the program is pinned to. The recorder is not.
    pub cpus: Option<CpuList>,
    /// Interrupt threads that run without passing a hook.
    pub interrupt_running: bool,
    /// What says when threads are sampled.
    pub clock: ClockChoice,
    /// Compress the packets of the trace.
    pub compress: bool,
    /// When dumps are written by themselves.
    pub dumps: Dumps,
    /// Distance between two readings of the processes' counters, ns; `None`: they are not read.
    pub counters_ns: Option<u64>,
    /// A wait that is longer, ns, is kept with who ended it; `None`: none is.
    pub long_wait_ns: Option<u64>,
    /// Count the calls of each hooked function, and capture nothing.
    pub count_calls: bool,
    /// Capture nothing until the session is told to start.
    pub start_disabled: bool,
    /// Write names of functions into the trace at its end.
    pub symbolize: bool,
    /// Where else than on this system names come from, when the recording has ended.
    pub names: NameSources,
    /// Where programs' own events are written besides, as they happen.
    pub systrace: Option<Systrace>,
    /// What is measured, for series of recordings; empty: not said.
    pub label: String,
    /// The commit that the program was built of; empty: not said.
    pub commit: String,
    /// The program shares its processor with another run that is recorded at the same time, to be compared
    /// with it.
    pub shares_processor: bool,
    /// Set the switches by which the program's runtime names its code.
    pub runtime_options: bool,
    /// Folder of the mapping; `None`: /dev/shm, or what can take its place.
    pub mapping_folder: Option<PathBuf>,
    /// The mapping has no file: only for a session inside the program, which is recorded alone.
    pub in_memory: bool,
}

/// A trace_marker of the kernel's, or a named pipe in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Systrace {
    /// Where tracefs usually is.
    Usual,
    /// A file by its path.
    At(PathBuf),
}

/// A declared bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Part of the program's CPU time that the recording may cost, in percent.
    pub percent: f64,
    /// Intervals are stretched up to it; longer ones are kept, ns.
    pub longest_ns: u64,
    /// The user asked for it: it is kept at the price of exact counts.
    pub is_declared: bool,
}

/// When dumps are written by themselves, and how far back they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dumps {
    /// A signal to the recorder that asks for a dump and is not handed on to the program.
    pub signal: Option<i32>,
    /// When an iteration of an event loop takes longer, ns.
    pub slow_iteration_ns: Option<u64>,
    /// When a thread waits longer, ns, for one of `causes`.
    pub block_ns: Option<u64>,
    /// What a thread has to wait for.
    pub causes: Vec<probe::Cause>,
    /// When the program or a process that it has started crashes.
    pub crash: bool,
    /// Least distance between two dumps that nobody asked for, ns.
    pub every_ns: u64,
    /// Most of these in a session.
    pub most: u32,
    /// How far back a dump goes, ns; `None`: all.
    pub last_ns: Option<u64>,
}

impl Default for Dumps {
    fn default() -> Dumps {
        Dumps {
            signal: None,
            slow_iteration_ns: None,
            block_ns: None,
            causes: vec![probe::Cause::Lock, probe::Cause::Io],
            crash: false,
            every_ns: 30_000_000_000,
            most: 10,
            last_ns: None,
        }
    }
}

impl Options {
    /// The defaults for a command: 1 ms, all probes, everything drained.
    pub fn new(command: Vec<OsString>, agent: PathBuf, output: PathBuf) -> Options {
        Options {
            command,
            agent,
            output,
            overwrite: false,
            interval_ns: 1_000_000,
            main_interval_ns: 1_000_000,
            budget_percent: None,
            probes: Category::SELECTABLE
                .iter()
                .fold(0, |mask, c| mask | c.bit()),
            depth_limit: 256,
            await_chains: false,
            buffer_bytes: 8 << 20,
            mode: Mode::Endless,
            follow_children: true,
            wait_children: false,
            cpus: None,
            interrupt_running: true,
            clock: ClockChoice::default(),
            compress: false,
            dumps: Dumps::default(),
            counters_ns: Some(100_000_000),
            long_wait_ns: Some(1_000_000),
            count_calls: false,
            start_disabled: false,
            symbolize: true,
            names: NameSources::default(),
            systrace: None,
            label: String::new(),
            commit: String::new(),
            shares_processor: false,
            runtime_options: true,
            mapping_folder: None,
            in_memory: false,
        }
    }

    /// The bound on what the recording costs; `None`: there is none. Where none was declared, intervals below
    /// a millisecond have one all the same, because ticks so near cost more than most would guess, and
    /// intervals from a millisecond on are kept.
    pub fn budget(&self) -> Option<Budget> {
        match self.budget_percent {
            None => Some(Budget {
                percent: SHORT_INTERVALS_PERCENT,
                longest_ns: 1_000_000,
                is_declared: false,
            }),
            Some(percent) if percent > 0.0 => Some(Budget {
                percent,
                longest_ns: LONGEST_STRETCHED_NS,
                is_declared: true,
            }),
            Some(_) => None,
        }
    }

    /// Refuses values that no recording can work with.
    ///
    /// # Errors
    ///
    /// Names the value and what would be accepted.
    pub fn validate(&self) -> Result<(), RecordError> {
        let number = |name, value, min, max, unit| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(RecordError::OutOfRange {
                    name,
                    value,
                    min,
                    max,
                    unit,
                })
            }
        };
        let intervals = (MIN_INTERVAL_NS, MAX_INTERVAL_NS);
        number("interval", self.interval_ns, intervals.0, intervals.1, "ns")?;
        number(
            "main interval",
            self.main_interval_ns,
            intervals.0,
            intervals.1,
            "ns",
        )?;
        if let Some(percent) = self.budget_percent {
            number("budget", percent.ceil() as u64, 0, 100, "percent")?;
        }
        if let Some(ns) = self.counters_ns {
            number("counters", ns, MIN_COUNTERS_NS, MAX_INTERVAL_NS, "ns")?;
        }
        if let Some(ns) = self.long_wait_ns {
            number("long wait", ns, MIN_LONG_WAIT_NS, MAX_INTERVAL_NS, "ns")?;
        }
        number(
            "depth",
            self.depth_limit.into(),
            1,
            MAX_DEPTH.into(),
            "frames",
        )?;
        number(
            "buffer",
            self.buffer_bytes,
            MIN_BUFFER_BYTES,
            MAX_BUFFER_BYTES,
            "bytes",
        )?;
        if self.command.first().is_none_or(|c| c.is_empty()) {
            return Err(RecordError::NoCommand);
        }
        Ok(())
    }
}

/// What a recording says while it goes on.
#[derive(Debug)]
pub enum Progress {
    /// Something the user should know; the recording goes on.
    Warning(Warning),
    /// The program was started.
    Started {
        /// Its pid.
        pid: u32,
    },
    /// Several times a second while the program runs.
    Recording(Status),
    /// A dump was written, or why not.
    Dumped {
        /// What it was written for, if it was not asked for.
        reason: Option<String>,
        /// What is in it.
        result: Result<DumpReply, DumpError>,
    },
    /// The command has ended, its children are waited for.
    WaitingForChildren {
        /// How many of them still run.
        processes: u32,
    },
    /// Names of functions are being looked up.
    Symbolizing {
        /// Addresses done.
        done: u64,
        /// Of how many.
        total: u64,
        /// What is fetched from a server at this moment.
        fetching: Option<String>,
    },
}

/// Where a recording stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Since the session began; at its end, how long it lasted.
    pub elapsed: Duration,
    /// Recorded processes that live now.
    pub live_processes: u32,
    /// Recorded threads that live now.
    pub live_threads: u32,
    /// Recorded processes so far, each once however often it executed another program.
    pub processes: u32,
    /// Recorded threads so far.
    pub threads: u32,
    /// Samples in the trace so far.
    pub samples: u64,
    /// Records known to be lost so far.
    pub lost: u64,
    /// Bytes of the trace so far.
    pub bytes: u64,
    /// The trace cannot be written at the moment (disk full): what comes is counted as lost.
    pub write_failing: bool,
}

/// How a recording ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The program's status as `wait` gives it (`ExitStatusExt::from_raw`).
    pub wait_status: i32,
    /// Pid that the program had.
    pub pid: u32,
    /// From the start of the recording to the end of its last thread, as whoever reads the trace has it.
    pub duration: Duration,
    /// CPU time of the program and of those of its descendants that were waited for.
    pub program_cpu: Duration,
    /// CPU time of the recording itself, without symbolization.
    pub collector_cpu: Duration,
    /// CPU time that the recorder took after the program's end, names included.
    pub after_cpu: Duration,
    /// Where the recording stood at its end.
    pub status: Status,
    /// Records that the program's threads committed; stored + lost is the same number.
    pub records_written: u64,
    /// Of these, the ones in the trace.
    pub records_stored: u64,
    /// Of these, the others.
    pub records_lost: u64,
    /// What was lost, cut or refused, by cause. Only those that happened.
    pub drops: Vec<(Cause, u64)>,
    /// Programs that ran without an agent.
    pub unrecorded: Vec<UnrecordedProgram>,
    /// Why the trace is not complete on disk, if it is not.
    pub write_error: Option<String>,
    /// What the collector measured about itself, as in the trace's footer.
    pub figures: Vec<(String, u64)>,
    /// Everything that was said as [`Progress::Warning`], and what became known at the end.
    pub warnings: Vec<Warning>,
    /// What attaching and detaching cost the program; `None` when it was started for the recording.
    pub attach_session: Option<AttachSession>,
}

impl Outcome {
    /// Records that are lost: a ring overwrites old ones by its nature, and these are none.
    pub fn lost(&self) -> u64 {
        let is_overwritten = |(cause, _): &&(Cause, u64)| *cause == Cause::Overwritten;
        let overwritten = self.drops.iter().find(is_overwritten);
        (self.records_lost).saturating_sub(overwritten.map_or(0, |(_, count)| *count))
    }
}

/// What attaching to a process, or detaching, cost it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachStep {
    /// How long the thread that did the work was kept from its own.
    pub pause: Duration,
    /// Everything, with looking for a thread.
    pub total: Duration,
    /// Threads that were stopped and let go again because they were at a bad place.
    pub refused: u32,
    /// Slots that hold a hook now, or were put back.
    pub slots: u64,
}

/// What attaching to a running program and detaching from it cost it.
#[derive(Clone, Copy, Debug)]
pub struct AttachSession {
    /// Attaching.
    pub attach: AttachStep,
    /// `None`: the program ended before.
    pub detach: Option<AttachStep>,
    /// What attaching to the processes came to that it had started before; `None`: not asked for.
    pub descendants: Option<Descendants>,
}

/// What attaching to the descendants came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descendants {
    /// Processes that the agent was brought into.
    pub attached: u32,
    /// Longest time that a thread of theirs was kept from its work.
    pub longest_pause: Duration,
}

/// How a running program is to be recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attachment {
    /// Stop after this time; `None`: when somebody says so, or the program ends.
    pub duration: Option<Duration>,
    /// Attach to the processes too that it has started before.
    pub descendants: bool,
    /// Attach to programs under a seccomp filter, which may kill them.
    pub allow_seccomp: bool,
}
