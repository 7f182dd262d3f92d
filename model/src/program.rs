//! Who ran: processes, their threads, and the files mapped into them as code.

use stackbeat_core::address::Bias;
use stackbeat_core::ids::{Pid, Tid, Upid, Utid};
use stackbeat_core::system_call::SystemCalls;
pub use stackbeat_proto::v1::process::Origin;

use super::{Metrics, ProcessIndex, StackIndex, ThreadIndex};

/// One program image in one process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Number of the image in the trace, from 1: an exec begins a new one.
    pub upid: Upid,
    /// The kernel's number.
    pub pid: Pid,
    /// The kernel's number of its parent.
    pub parent_pid: Pid,
    /// The process that forked it, or its own image before exec.
    pub parent: Option<ProcessIndex>,
    /// When the agent began in it, or the fork returned.
    pub start_ns: u64,
    /// Its last moment in the trace.
    pub end_ns: u64,
    /// The arguments, the program's name first; empty when unknown.
    pub command_line: Vec<String>,
    /// Path of the executable; empty when unknown.
    pub executable: String,
    /// The path given to exec, where that is known: a link and not its target.
    pub started_as: String,
    /// How the image came about.
    pub origin: Origin,
    /// What the agent found at its start, e.g. `malloc: active`.
    pub capabilities: Vec<String>,
    /// Start of the process by the kernel's clock, 0 when unknown.
    pub exec_ns: u64,
    /// As waitpid gives it, for the program that was started.
    pub wait_status: Option<i32>,
    /// Ended by a successful exec.
    pub execed: bool,
    /// The file says that it ended; otherwise the recording ended first.
    pub ended: bool,
}

impl Process {
    /// The file name of what was started, else the executable's, else that of the command line's first word,
    /// else its pid.
    pub fn name(&self) -> String {
        let paths = [&self.started_as, &self.executable];
        let name_of = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
        (paths.into_iter().chain(self.command_line.first()))
            .map(name_of)
            .find(|name| !name.is_empty())
            .unwrap_or_else(|| format!("pid {}", self.pid))
    }
}

/// One thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Number of the thread in the trace, from 1.
    pub utid: Utid,
    /// The image that it ran in.
    pub process: ProcessIndex,
    /// The kernel's number.
    pub tid: Tid,
    /// The last known name; empty when none is known.
    pub name: String,
    /// The first thread of its process.
    pub is_main: bool,
    /// When it begins, on the trace's clock. Its segments reach from here to `end_ns`.
    pub start_ns: u64,
    /// CPU time that it is known to have used before.
    pub cpu_before_ns: u64,
    /// When it ended, or the recording did.
    pub end_ns: u64,
    /// It ended while recording; otherwise the recording ended first.
    pub exited: bool,
    /// The thread that called `pthread_create`, when known.
    pub creator: Option<ThreadIndex>,
    /// Stack of the creator then.
    pub creator_stack: StackIndex,
    /// Samples in the file.
    pub samples: u64,
    /// Records that the thread wrote, when the file says it.
    pub records_written: Option<u64>,
    /// Exact counters at its end, when the file has them. `samples` is 0.
    pub totals: Option<Metrics>,
    /// System calls that passed hooks, when the file has them.
    pub system_calls: Option<SystemCalls>,
    /// These have the bytes that they moved, too, and wake-ups.
    pub knows_call_bytes: bool,
    /// What captures took, ns, by the cycle counter: time in which one lost its processor is in it, too.
    pub capture_ns: u64,
    /// Number of sample batches in the file.
    pub(super) batches: u64,
}

/// A file mapped into a process as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Where it is mapped.
    pub process: ProcessIndex,
    /// The first of the process' module epochs in which it is loaded.
    pub epoch: u32,
    /// The first epoch without it; 0: loaded until the end.
    pub end_epoch: u32,
    /// Path of the file.
    pub path: String,
    /// The linker's note that identifies the file's content; empty when it has none.
    pub build_id: Vec<u8>,
    /// First address of the mapping.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where it is loaded.
    pub bias: Bias,
}
