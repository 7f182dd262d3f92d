//! Why a recording could not begin, and what its user should know although it could.

use std::io;
use std::path::PathBuf;

use stackbeat_core::ids::Pid;

use super::attach_error::AttachError;

/// Why a recording could not begin. Each message names the thing, the reason and the next step.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The options name no program.
    #[error("no command given: put the program and its arguments after `--`")]
    NoCommand,
    /// A name without a slash that no folder of PATH has.
    #[error("{program}: command not found in PATH; give its path, or install it")]
    NotFound {
        /// The name, as it was given.
        program: String,
    },
    /// The path that was given does not exist.
    #[error("{}: no such file", path.display())]
    NoSuchFile {
        /// The path.
        path: PathBuf,
    },
    /// The path that was given is a folder.
    #[error("{}: is a directory, not a program", path.display())]
    Directory {
        /// The path.
        path: PathBuf,
    },
    /// Nobody, or not this user, may execute the file.
    #[error("{}: not executable; `chmod +x` makes it so", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// The first line of a script names a file that does not exist.
    #[error("{}: its interpreter {} does not exist", script.display(), interpreter.display())]
    NoInterpreter {
        /// The script.
        script: PathBuf,
        /// What it names.
        interpreter: PathBuf,
    },
    /// fork or exec failed. Nothing of the program has run.
    #[error("{}: cannot be started", program.display())]
    Start {
        /// The file that was to be executed.
        program: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A number among the options with which no recording can work.
    #[error("{name} of {value} {unit} is out of range: {min} to {max} {unit} are possible")]
    OutOfRange {
        /// Which number.
        name: &'static str,
        /// The number.
        value: u64,
        /// Least that is possible.
        min: u64,
        /// Most that is possible.
        max: u64,
        /// Unit of all three.
        unit: &'static str,
    },
    /// The output is there, and [`Options::overwrite`](super::Options::overwrite) is not set.
    #[error("{}: exists already; choose another output or allow to replace it", path.display())]
    OutputExists {
        /// The output.
        path: PathBuf,
    },
    /// The output cannot be opened for writing.
    #[error(
        "{}: the trace cannot be created (its folder must exist, and we must be allowed to write there)",
        path.display()
    )]
    Output {
        /// The output.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The path of the agent library cannot stand in LD_PRELOAD, or the file cannot be read.
    #[error("{}: the agent library cannot be preloaded: {reason}", path.display())]
    Agent {
        /// The path of the library.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No folder has room for the mapping.
    #[error(
        "no shared memory for the session in {tried}; {bytes} bytes are needed: make room there, \
         or ask for a smaller buffer"
    )]
    SharedMemory {
        /// The folders that were tried.
        tried: String,
        /// Size of the mapping.
        bytes: u64,
        /// What the system says of the first of them.
        #[source]
        source: io::Error,
    },
    /// An allocation that fails would end the recorder in the middle of the recording.
    #[error(
        "address space is limited (RLIMIT_AS, `ulimit -v`): the recorder needs {needed} bytes and has {left}; set the \
         limit for the program alone: `stackbeat record -- sh -c 'ulimit -v …; exec …'`"
    )]
    AddressSpace {
        /// What this process may still map, bytes.
        left: u64,
        /// What it needs, bytes: the mapping and its own memory.
        needed: u64,
    },
    /// The kernel's clock was asked for, and cannot be had.
    #[error("the kernel's clock cannot be had ({0}); leave `--clock kernel` out")]
    NoKernelClock(WhyNot),
    /// Timers were asked for, and cannot be had.
    #[error("timers cannot sample threads here ({0}); leave `--clock timer` out")]
    NoTimers(WhyNot),
    /// One of the threads that a session cannot do without.
    #[error("a thread of the collector cannot be started")]
    Thread(#[source] io::Error),
    /// The process cannot be attached to.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Why the kernel's clock is not to be had, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum WhyNot {
    /// The kernel opens no event.
    #[error("perf_event_open: {source}; {advice}")]
    Refused {
        /// What the system says.
        source: io::Error,
        /// What may be done about it.
        advice: String,
    },
    /// The release of the kernel.
    #[error(
        "this kernel is older than 5.13 ({0}): a signal that is on its way at an exec would reach the new program"
    )]
    Old(String),
    /// A kernel with PREEMPT_RT.
    #[error(
        "this kernel is PREEMPT_RT: it sends the clock's signals late, and they would end system calls"
    )]
    RealTime,
    /// The release of a kernel that is older than 5.9, or of another machine than x86-64.
    #[error(
        "this kernel ({0}) may send the signals of such timers in the middle of system calls, and end these"
    )]
    EndsCalls(String),
}

/// What a user should know about a recording that takes place all the same.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Warning {
    /// The program has no dynamic loader that could load the agent.
    #[error(
        "{}: is statically linked: its calls cannot be hooked, so it runs but the trace shows \
         only the child processes that can be", .0.display()
    )]
    Static(PathBuf),
    /// The dynamic loader ignores LD_PRELOAD for such a program.
    #[error(
        "{}: is setuid, setgid or has file capabilities: the dynamic loader drops the preload, so \
         it runs unseen; record a copy without these rights, or run as its owner", .0.display()
    )]
    Privileged(PathBuf),
    /// A program for another machine than the agent.
    #[error("{}: is built for {machine}: it runs unseen", path.display())]
    Architecture {
        /// The program.
        path: PathBuf,
        /// The machine that it is built for.
        machine: String,
    },
    /// A program of another C library, musl for one.
    #[error(
        "{}: uses the dynamic loader {loader}, not glibc's: it runs, but the trace shows only the child processes that \
         use glibc", path.display()
    )]
    OtherLoader {
        /// The program.
        path: PathBuf,
        /// The loader that it asks for.
        loader: String,
    },
    /// A script runs in a program that cannot be seen.
    #[error("{script}: its interpreter cannot be seen: {because}", script = script.display())]
    Interpreter {
        /// The script.
        script: PathBuf,
        /// What is said of the interpreter.
        because: Box<Warning>,
    },
    /// The folder that took the place of /dev/shm. A mapping on a disk is slower.
    #[error("shared memory is in {} because /dev/shm is missing or full", .0.display())]
    MappingElsewhere(PathBuf),
    /// Samples are dated by a system clock.
    #[error(
        "the cycle counter of this machine is not reliable; CLOCK_MONOTONIC dates samples (slower)"
    )]
    NoCycleCounter,
    /// The control socket could not be made: why.
    #[error(
        "the session cannot be steered while it runs (`stackbeat status` does not see it): {0}"
    )]
    NoControl(String),
    /// The trace_marker or pipe that was asked for cannot be used.
    #[error(
        "events are not written to {} as they happen: {reason}; the trace has them all the same", path.display()
    )]
    NoSystrace {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what helps.
        reason: String,
    },
    /// Events wait in a pipe that nobody has opened for reading by the end.
    #[error(
        "{}: nobody has read the last {bytes} bytes of events; open it for reading before the program ends. The trace \
         has them all the same", path.display()
    )]
    SystraceUnread {
        /// The pipe.
        path: PathBuf,
        /// What is left in it.
        bytes: u64,
    },
    /// The trace_marker can be used, but the kernel takes nothing at the moment.
    #[error(
        "{}: the kernel is not tracing, so it refuses events; `echo 1 > {}` makes it take them",
        marker.display(), switch.display()
    )]
    SystraceOff {
        /// The trace_marker.
        marker: PathBuf,
        /// The file that switches tracing on.
        switch: PathBuf,
    },
    /// Said at the end.
    #[error(
        "{failed} of {all} events could not be written to the trace_marker or pipe: it was full or off, or the program \
         could not open it again; the trace has them all the same"
    )]
    SystraceFailed {
        /// Events that could not be written.
        failed: u64,
        /// All events that were to be written.
        all: u64,
    },
    /// Said at the end of a recording in which no process has registered.
    #[error("no agent reported: the program did not load the library, the trace has no samples")]
    NoAgent,
    /// Threads wait in a circle, each for a lock that the next one holds.
    #[error(
        "threads wait for each other's locks ({count} deadlocks so far); `stackbeat status --locks` \
         shows where, and `stackbeat report` afterwards"
    )]
    Deadlock {
        /// Such circles so far.
        count: u64,
    },
    /// The file of the mapping was truncated.
    #[error(
        "somebody has cut the recording's shared memory off while it was in use: the trace ends there"
    )]
    Cut,
    /// Said at the end: the mapping held what no agent writes.
    #[error(
        "{count} entries of the shared memory contradict themselves and were left out: the program has written over it, \
         so figures of this trace may be wrong"
    )]
    Damaged {
        /// Entries and records that were left out.
        count: u64,
    },
    /// Said at the end: agents that have switched themselves off at their start.
    #[error(
        "{count} processes run unrecorded because their address space is limited (RLIMIT_AS, `ulimit -v`): the \
         recording would take more than a sixteenth of what is left"
    )]
    NoAddressSpace {
        /// Processes that run without an agent for that.
        count: u64,
    },
    /// Said at the end: images that exec put in the place of recorded ones, and that nobody has seen.
    #[error("{count} child processes could not be seen (statically linked or privileged)")]
    ChildrenNotHooked {
        /// How many.
        count: u64,
    },
    /// Somebody has ended the search for names.
    #[error(
        "asked to end while names were looked up: {count} addresses have none; the rest of the trace \
         is complete"
    )]
    NamesSkipped {
        /// Addresses without a name.
        count: u64,
    },
    /// A session inside a program did not come to its end; its trace was completed from what it left.
    #[error("{}: its program was killed or became another one; completed from what it left ({})", trace.display(), left_out(*.lost, *.overwritten))]
    Completed {
        /// The trace.
        trace: PathBuf,
        /// Records that were lost.
        lost: u64,
        /// Records that newer ones have overwritten, as a ring does by its nature.
        overwritten: u64,
    },
    /// A file whose addresses have no names, and why.
    #[error("{0}")]
    WithoutNames(String),
    /// The budget has stretched the intervals.
    #[error(
        "captures were {kept_us} µs apart on average, not {asked_us}, at which recording would cost \
         more than {percent} % of the program's time on this machine (a higher --budget allows it)"
    )]
    Slowed {
        /// The shortest interval that was asked for, µs.
        asked_us: u64,
        /// What it was on average, µs.
        kept_us: u64,
        /// The budget, percent.
        percent: f64,
    },
    /// The budget could not be kept otherwise.
    #[error(
        "hooks that only count took so much of the budget of {percent} % that too little was left for captures, and \
         those of allocation were taken away: allocations are counted up to then, and are not all there (a higher \
         --budget keeps them)"
    )]
    Unpatched {
        /// The budget, percent.
        percent: f64,
    },
    /// Said at the end: the budget was not kept.
    #[error(
        "the recording cost {cost:.1} % of the program's time, more than the budget of {percent} %: captures \
         {captures:.1}, hooks that only count {hooks:.1}, the recorder {recorder:.1}; a higher --budget, --counters off \
         or fewer --probes make it hold"
    )]
    OverBudget {
        /// The budget, percent.
        percent: f64,
        /// What the recording cost, in percent of the program's CPU time.
        cost: f64,
        /// Of it, captures in the program's threads.
        captures: f64,
        /// Of it, hooks that captured nothing (estimated).
        hooks: f64,
        /// Of it, the recorder.
        recorder: f64,
    },
    /// The process that was attached to had children.
    #[error(
        "processes that it has started before are not recorded: {count}; --children attaches to them too"
    )]
    DescendantsLeftOut {
        /// How many processes.
        count: usize,
    },
    /// A descendant that could not be attached to: why, with its pid.
    #[error("one of its processes is not recorded: {0}")]
    NotAttached(String),
    /// The agent could not be taken out of a process.
    #[error("hooks stay in process {pid}, where they pass calls straight through: {reason}")]
    NotDetached {
        /// The process.
        pid: Pid,
        /// Why, with what can be done.
        reason: String,
    },
    /// What the system said to the last attempt to write.
    #[error("writing the trace failed: {0}; what comes until there is room again is lost")]
    WriteFailed(String),
}
/// What a trace does not have, in words: a ring overwrites old records, and only others are lost.
fn left_out(lost: u64, overwritten: u64) -> String {
    let lost = match lost {
        0 => "none lost".to_owned(),
        1 => "1 record lost".to_owned(),
        _ => format!("{lost} records lost"),
    };
    match overwritten {
        0 => lost,
        1 => format!("1 record overwritten by a newer one, {lost}"),
        _ => format!("{overwritten} records overwritten by newer ones, {lost}"),
    }
}
