//! What a session needs of its surroundings: the system that it runs on, and its place there. Drain, ticker
//! and sampler ask nobody else.
//!
//! One contract for each place: `crate::linux` beside the program, `crate::embedded` inside it. What is a
//! system's own stays behind it: files of /proc, masks of signals, clocks by pid.
//!
//! Pids and tids are those of agents, which may be somebody else's here, or nobody's.

pub(crate) mod code_source;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) mod nobody;

use std::fmt;
use std::io;

use stackbeat_core::ids::{Pid, Tid, Upid};
use stackbeat_core::platform::Errno;
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::unwind::Registers;
use stackbeat_proto::v1;

/// The surroundings of one session.
pub(crate) trait Host: fmt::Debug + Send + Sync {
    /// Whose process this is.
    fn whose(&self, pid: Pid) -> Whose;

    /// Whether there is a process with this pid.
    fn exists(&self, pid: Pid) -> bool;

    /// Watches a process. `None` when there is no such process (any more), or the system cannot.
    fn watch(&self, pid: Pid) -> Option<Box<dyn Watch>>;

    /// What a process runs.
    fn image(&self, pid: Pid) -> Image;

    /// The path of the file that is mapped at an address, while it is.
    fn mapped_file(&self, pid: Pid, address: u64) -> Option<String>;

    /// Code that a process has mapped a second time, apart from what the dynamic loader did: V8 does so with
    /// its builtins, to have them near the code that it makes (`OS::RemapPages` of
    /// src/base/platform/platform-linux.cc).
    fn copies_of_code(&self, _: Pid) -> Vec<CopyOfCode> {
        Vec::new()
    }

    /// CPU time of a process so far, threads of the session left out where that is known, ns; 0 when that is
    /// not known. May lag by a scheduler tick.
    fn process_cpu_ns(&self, pid: Pid) -> u64;

    /// What a process uses, for counters; asked again and again. `None`: that is not counted here, or the
    /// process is gone.
    fn resources(&self, pid: Pid) -> Option<Box<dyn Resources>>;

    /// What is set against a process: limits and pressure. `None`: there is nothing of the kind here.
    fn limits(&self, pid: Pid) -> Option<Box<dyn Limits>>;

    /// Threads of a process, those of the session left out; `None` when it is gone. Cheap: asked before
    /// [`Host::threads`].
    fn thread_count(&self, pid: Pid) -> Option<u64>;

    /// The threads of a process, those of the session left out; none when it is gone.
    fn threads(&self, pid: Pid) -> Vec<Tid>;

    /// Whether a process has a thread with this tid; true when that is not known.
    fn has_thread(&self, pid: Pid, tid: Tid) -> bool;

    /// The name that a thread has given itself.
    fn thread_name(&self, pid: Pid, tid: Tid) -> Option<String>;

    /// What was counted of a thread so far. `None`: it is gone, or nothing is counted.
    fn usage(&self, pid: Pid, tid: Tid) -> Option<Usage>;

    /// The part of [`Host::usage`] that is cheap. `None`: the thread is gone, or nothing is counted.
    fn scheduled(&self, pid: Pid, tid: Tid) -> Option<Scheduled>;

    /// CPU time of a thread in user mode, ns, as exact as the system's own tick. `None`: the thread is gone.
    fn user_ns(&self, pid: Pid, tid: Tid) -> Option<u64>;

    /// Whether a thread runs, asked once.
    fn state(&self, pid: Pid, tid: Tid) -> State;

    /// The same for a thread that is asked about again and again. The answers allocate nothing.
    fn follow(&self, pid: Pid, tid: Tid) -> Box<dyn Followed>;

    /// Whether a thread sleeps or is stopped that is about to do more: not one that ends, and none of the
    /// system's own that stand among a process' threads.
    fn is_waiting(&self, pid: Pid, tid: Tid) -> bool;

    /// Whether a thread makes a call of the recorder's own, which holds it for that.
    fn makes_our_call(&self, _: Pid, _: Tid) -> bool {
        false
    }

    /// How running threads are interrupted here. Asked once.
    ///
    /// # Errors
    /// What it takes cannot be started.
    fn interruption(&self) -> io::Result<Interruption>;

    /// A clock of a thread's CPU time that the system keeps, which does not run yet.
    ///
    /// # Errors
    /// The system has none, does not let us have one, or the thread has ended ([`io::ErrorKind::NotFound`]).
    fn thread_clock(&self, tid: Tid, period_ns: u64) -> io::Result<Box<dyn ThreadClock>>;

    /// The calling thread is the ticker's: it is to be woken on time, and soon where processors are taken.
    fn begin_ticking(&self);

    /// Sleeps until this moment of the monotonic clock, ns.
    fn sleep_until(&self, ns: u64);

    /// Distance between two ticks of the system's own, ns, at which it gives processors to other threads.
    /// Endless: it has none, or that is not known.
    fn system_tick_ns(&self) -> u64 {
        u64::MAX
    }

    /// What answers agents' questions about sockets. `None`: nobody does here.
    fn peers(&self) -> Option<Box<dyn Peers>>;
}

/// A part of a file's code that is mapped once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyOfCode {
    /// First address of the copy.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where the same code lies in the file's first mapping.
    pub original: u64,
}

/// Who has a pid that an agent named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A process that takes part in the session.
    Ours,
    /// Another process: the agent's number is not ours.
    Foreign,
    /// Nobody, a process that has just ended, or one that may be anybody: it does not let us look.
    Gone,
}

/// Notices the end of a process.
pub(crate) trait Watch: fmt::Debug + Send {
    /// Whether all its threads have ended.
    fn has_ended(&self) -> bool;
}

/// What a process runs; what cannot be read is empty.
#[derive(Debug, Default)]
pub(crate) struct Image {
    pub command_line: Vec<String>,
    pub executable: String,
    /// The path that was given to exec.
    pub started_as: String,
}

/// What was counted of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub cpu_ns: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

/// What a process uses at a moment, threads of the session left out; `None`: not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    /// Memory that it has now. Inside the program, that of the session is among it.
    pub resident_bytes: Option<u64>,
    pub threads: Option<u64>,
    /// Page faults so far: minor and major ones.
    pub faults: Option<[u64; 2]>,
    /// Open descriptors.
    pub descriptors: Option<u64>,
    /// What only some systems say of a process.
    pub others: Vec<Other>,
}

/// A number that a system gives of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Other {
    pub name: &'static str,
    /// Of the counter's values.
    pub unit: &'static str,
    pub value: u64,
    /// Not 0: the number only grows. The counter says how much more of it there is each second, divided by
    /// this.
    pub divided_by: u64,
}

/// A process whose resources are asked for again and again.
pub(crate) trait Resources: fmt::Debug + Send {
    /// What it uses now.
    fn read(&mut self) -> Use;
}

/// What is set against a process: limits of its group, waits of all for what they need.
pub(crate) trait Limits: fmt::Debug + Send {
    /// What is new at this moment: names, units and values of counters that belong to no process.
    fn read(&mut self, now_ns: u64) -> Vec<(&'static str, &'static str, i64)>;
}

/// What the scheduler has counted of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheduled {
    /// Time on a processor and time ready for one, ns.
    pub run_ns: u64,
    pub ready_ns: u64,
    /// How often it was put on a processor. Where that is not counted: any number that changes when the
    /// thread runs.
    pub times: u64,
}

/// Whether a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// On a processor, or ready for one.
    Running,
    /// It waits; or its host cannot say what it does.
    Blocked,
    /// It has ended for certain.
    Gone,
}

/// A thread that is asked about again and again.
pub(crate) trait Followed: fmt::Debug + Send {
    /// Whether it runs.
    fn state(&mut self) -> State;

    /// CPU time that it has used, ns, up to now if it is off its processor, else up to some moment of late;
    /// `None`: not known.
    fn run_ns(&mut self) -> Option<u64> {
        None
    }
}

/// How running threads are interrupted.
#[derive(Debug)]
pub(crate) enum Interruption {
    /// By a signal, whose handler captures.
    BySignal(Box<dyn Signals>),
    /// By suspending the thread, and taking from outside what a capture needs.
    #[cfg_attr(
        not(any(
            target_vendor = "apple",
            all(target_os = "linux", target_arch = "x86_64")
        )),
        allow(dead_code, reason = "no host suspends there")
    )]
    BySuspension(Box<dyn Suspension>),
}

/// Suspends threads, one at a time.
///
/// From `suspend` to `resume` is the *window*. Inside the program the suspended thread may hold any lock. So
/// these two and the reads allocate nothing, take no lock that a thread of the program may hold, log nothing,
/// and wait for nobody but the system.
pub(crate) trait Suspension: fmt::Debug + Send {
    /// The next thread is this one. Outside of the window.
    fn prepare(&mut self, _pid: Pid, _tid: Tid) {}

    /// Suspends a thread. Only after [`Suspended::Yes`] it has to be resumed.
    fn suspend(&mut self, pid: Pid, tid: Tid) -> Suspended;

    /// Reads words of the suspended thread's stack, from an address upward. Gives how many.
    fn read_stack(&mut self, pid: Pid, from: u64, into: &mut [u64]) -> usize;

    /// The same of words that are there for sure. Inside the program no system call is needed for them.
    ///
    /// # Safety
    /// The words lie between the suspended thread's stack pointer and the end of its stack, and the thread
    /// has not begun to end.
    unsafe fn read_own_stack(&mut self, pid: Pid, from: u64, into: &mut [u64]) -> usize {
        self.read_stack(pid, from, into)
    }

    /// Lets the suspended thread go on where it was: no call that it is in fails for that.
    fn resume(&mut self);

    /// Walks a stack in what was taken of it; outside of the window.
    fn walk(&mut self, taken: &ToWalk<'_>) -> Walked;
}

/// What came of an attempt to suspend a thread.
#[cfg_attr(
    not(any(
        target_vendor = "apple",
        all(target_os = "linux", target_arch = "x86_64")
    )),
    allow(dead_code, reason = "no host suspends there")
)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Suspended {
    /// It stands still.
    Yes {
        registers: Registers,
        /// CPU time that it has used, ns.
        cpu_ns: u64,
    },
    /// The system cannot stop it at this moment, or does not let us.
    NotNow,
    /// It has ended.
    Gone,
}

/// A stack that was taken.
#[cfg_attr(
    not(any(
        target_vendor = "apple",
        all(target_os = "linux", target_arch = "x86_64")
    )),
    allow(dead_code, reason = "no host suspends there")
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToWalk<'a> {
    pub pid: Pid,
    pub upid: Upid,
    /// The process' module epoch.
    pub epoch: u32,
    pub registers: &'a Registers,
    /// From the stack pointer (a multiple of 8) upward.
    pub words: &'a [u64],
    /// Upper end of the thread's stack; 0: not known.
    pub high: u64,
    /// Most frames.
    pub depth: usize,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub stack: Stack,
    /// Modules that no walk had met before.
    pub modules: Vec<v1::Module>,
}

/// A stack as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stack {
    /// Address fields and kinds of the frames' nodes, root first.
    pub frames: Vec<(u64, u32)>,
    /// It reaches the root.
    pub is_whole: bool,
}

/// Signals to threads, and what threads do with them. Sets of signals have signal 1 at bit 0.
pub(crate) trait Signals: fmt::Debug + Send {
    /// Sends one to a thread.
    ///
    /// # Errors
    /// The thread is gone, or we may not.
    fn send(&self, pid: Pid, tid: Tid, signal: u32) -> Result<(), Errno>;

    /// Those that were sent to this thread alone and that it has not taken. `None`: it is gone.
    fn pending(&self, pid: Pid, tid: Tid) -> Option<u64>;

    /// Those that it blocks. `None`: it is gone.
    fn blocked(&self, pid: Pid, tid: Tid) -> Option<u64>;

    /// Runs a full barrier on each processor that runs the program. False: the system does not.
    fn barrier(&self) -> bool;
}

/// A clock of a thread's CPU time, which sends it a signal after each period. Ends when dropped.
pub(crate) trait ThreadClock: fmt::Debug + Send {
    /// The numbers by which the thread knows what counts its time and what its page faults; not 0.
    fn numbers(&self) -> [u32; 2];

    /// Has it run, and send this signal: for the first time at any moment of the first period, which is as
    /// likely as another. It then stands still, or goes off after as much as before.
    ///
    /// # Errors
    /// As [`Host::thread_clock`].
    fn start(&self, tid: Tid, signal: i32) -> io::Result<()>;

    /// Has what has sent its first signal go on with its period: bits of `layout::first_strike`.
    fn go_on(&mut self, struck: u32);

    /// Another period, ns, from the one under way on, or from the first signal on. `strikes`: signals of time
    /// that have come so far.
    fn set_period(&mut self, period_ns: u64, strikes: u32);
}

/// Answers what agents ask of other ends of sockets (`stackbeat_core::shm::watches`).
pub(crate) trait Peers: fmt::Debug {
    /// Answers what is open; one load when nothing is.
    fn step(&mut self, mapping: &Mapping, now_ns: u64);

    /// When to ask again if nobody asks before, ns.
    fn next_ns(&self) -> u64;
}

/// A path as it is, unless it names a descriptor or another link of the kernel's: their names say nothing.
pub(crate) fn name_of_file(path: String) -> String {
    match path.starts_with("/proc/") || path.starts_with("/dev/fd/") {
        true => String::new(),
        false => path,
    }
}
