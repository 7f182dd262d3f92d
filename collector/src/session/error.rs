//! Why a recording could not begin, and what its user should know although it could.

use std::io;
use std::path::PathBuf;

use stackbeat_core::ids::Pid;

use super::attach_error::{AttachError, Held};

/// Why a recording could not begin. Each message names the thing, the reason and the next step.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("no command given: put the program and its arguments after `--`")]
    NoCommand,
    #[error("{program}: command not found in PATH; give its path, or install it")]
    NotFound { program: String },
    #[error("{}: no such file", path.display())]
    NoSuchFile { path: PathBuf },
    #[error("{}: is a directory, not a program", path.display())]
    Directory { path: PathBuf },
    #[error("{}: not executable; `chmod +x` makes it so", path.display())]
    NotExecutable { path: PathBuf },
    #[error("{}: its interpreter {} does not exist", script.display(), interpreter.display())]
    NoInterpreter {
        script: PathBuf,
        interpreter: PathBuf,
    },
    #[error("{}: cannot be started", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{name} of {value} {unit} is out of range: {min} to {max} {unit} are possible")]
    OutOfRange {
        name: &'static str,
        value: u64,
        min: u64,
        max: u64,
        unit: &'static str,
    },
    #[error("{}: exists already; choose another output or allow to replace it", path.display())]
    OutputExists { path: PathBuf },
    #[error("{}: the trace cannot be created", path.display())]
    Output {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: the agent library cannot be preloaded: {reason}", path.display())]
    Agent { path: PathBuf, reason: &'static str },
    #[error(
        "no shared memory for the session in {tried}; {bytes} bytes are needed: make room there, \
         or ask for a smaller buffer"
    )]
    SharedMemory {
        tried: String,
        bytes: u64,
        #[source]
        source: io::Error,
    },
    #[error(
        "address space is limited (RLIMIT_AS, `ulimit -v`): the recorder needs {needed} bytes and has {left}; set the \
         limit for the program alone: `stackbeat record -- sh -c 'ulimit -v …; exec …'`"
    )]
    AddressSpace { left: u64, needed: u64 },
    #[error("the kernel's clock cannot be had ({0}); leave `--clock kernel` out")]
    NoKernelClock(WhyNot),
    #[error("timers cannot sample threads here ({0}); leave `--clock timer` out")]
    NoTimers(WhyNot),
    #[error("a thread of the collector cannot be started")]
    Thread(#[source] io::Error),
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Why the kernel's clock is not to be had, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum WhyNot {
    #[error("perf_event_open: {source}; {advice}")]
    Refused { source: io::Error, advice: String },
    #[error(
        "this kernel is older than 5.13 ({0}): a signal that is on its way at an exec would reach the new program"
    )]
    Old(String),
    #[error(
        "this kernel is PREEMPT_RT: it sends the clock's signals late, and they would end system calls"
    )]
    RealTime,
    #[error(
        "this kernel ({0}) may send the signals of such timers in the middle of system calls, and end these"
    )]
    EndsCalls(String),
}

/// What a user should know about a recording that takes place all the same.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Warning {
    #[error(
        "{}: is statically linked: its calls cannot be hooked, so it runs but the trace shows \
         only the child processes that can be", .0.display()
    )]
    Static(PathBuf),
    #[error(
        "{}: is setuid, setgid or has file capabilities: the dynamic loader drops the preload, so \
         it runs unseen; record a copy without these rights, or run as its owner", .0.display()
    )]
    Privileged(PathBuf),
    #[error("{}: is built for {machine}: it runs unseen", path.display())]
    Architecture { path: PathBuf, machine: String },
    #[error(
        "{}: uses the dynamic loader {loader}, not glibc's: it runs, but the trace shows only the child processes that \
         use glibc", path.display()
    )]
    OtherLoader { path: PathBuf, loader: String },
    #[error("{script}: its interpreter cannot be seen: {because}", script = script.display())]
    Interpreter {
        script: PathBuf,
        because: Box<Warning>,
    },
    #[error("shared memory is in {} because /dev/shm is missing or full", .0.display())]
    MappingElsewhere(PathBuf),
    #[error(
        "the cycle counter of this machine is not reliable; CLOCK_MONOTONIC dates samples (slower)"
    )]
    NoCycleCounter,
    #[error(
        "the session cannot be steered while it runs (`stackbeat status` does not see it): {0}"
    )]
    NoControl(String),
    #[error(
        "events are not written to {} as they happen: {reason}; the trace has them all the same", path.display()
    )]
    NoSystrace { path: PathBuf, reason: String },
    #[error(
        "{}: the kernel is not tracing, so it refuses events; `echo 1 > {}` makes it take them",
        marker.display(), switch.display()
    )]
    SystraceOff { marker: PathBuf, switch: PathBuf },
    #[error(
        "{failed} of {all} events could not be written to the trace_marker or pipe: it was full or off, or the program \
         could not open it again; the trace has them all the same"
    )]
    SystraceFailed { failed: u64, all: u64 },
    #[error("no agent reported: the program did not load the library, the trace has no samples")]
    NoAgent,
    #[error(
        "threads wait for each other's locks ({count} deadlocks so far); `stackbeat status --locks` \
         shows where, and `stackbeat report` afterwards"
    )]
    Deadlock { count: u64 },
    #[error(
        "somebody has cut the recording's shared memory off while it was in use: the trace ends there"
    )]
    Cut,
    #[error(
        "{count} entries of the shared memory contradict themselves and were left out: the program has written over it, \
         so figures of this trace may be wrong"
    )]
    Damaged { count: u64 },
    #[error(
        "{count} processes run unrecorded because their address space is limited (RLIMIT_AS, `ulimit -v`): the \
         recording would take more than a sixteenth of what is left"
    )]
    NoAddressSpace { count: u64 },
    #[error("{count} child processes could not be seen (statically linked or privileged)")]
    ChildrenNotHooked { count: u64 },
    #[error(
        "asked to end while names were looked up: {count} addresses have none; the rest of the trace \
         is complete"
    )]
    NamesSkipped { count: u64 },
    #[error("{0}")]
    WithoutNames(String),
    #[error(
        "captures were {kept_us} µs apart on average, not {asked_us}: more would have cost over \
         {percent} % of the program's time on this machine (a higher --budget allows it)"
    )]
    Slowed {
        asked_us: u64,
        kept_us: u64,
        percent: f64,
    },
    #[error(
        "hooks that only count took so much of the budget of {percent} % that too little was left for captures, and \
         those of allocation were taken away: allocations are counted up to then, and are not all there (a higher \
         --budget keeps them)"
    )]
    Unpatched { percent: f64 },
    #[error(
        "the recording cost {cost:.1} % of the program's time, more than the budget of {percent} %: captures \
         {captures:.1}, hooks that only count {hooks:.1}, the recorder {recorder:.1}; a higher --budget, --counters off \
         or fewer --probes make it hold"
    )]
    OverBudget {
        percent: f64,
        cost: f64,
        captures: f64,
        hooks: f64,
        recorder: f64,
    },
    #[error(
        "{count} processes that it has started before are not recorded; --children attaches to them too"
    )]
    DescendantsLeftOut { count: usize },
    #[error("one of its processes is not recorded: {0}")]
    NotAttached(String),
    #[error("{0}")]
    ThreadHeld(Held),
    #[error("hooks stay in process {pid}, where they pass calls straight through: {reason}")]
    NotDetached { pid: Pid, reason: String },
    #[error("writing the trace failed: {0}; what comes until there is room again is lost")]
    WriteFailed(String),
}
