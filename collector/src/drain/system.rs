//! What the drain asks the system that the program's processes run on. Pids and tids are those of agents, which may be
//! somebody else's here, or nobody's.

use std::fmt;

use stackbeat_core::ids::{Pid, Tid};

/// The system, as a session knows it.
pub(crate) trait System: fmt::Debug + Send {
    /// Whether an agent's pid is another process' here.
    fn is_foreign(&self, pid: Pid) -> bool;

    /// Whether there is a process with this pid.
    fn exists(&self, pid: Pid) -> bool;

    /// Watches a process. `None` when there is no such process (any more), or the system cannot.
    fn watch(&self, pid: Pid) -> Option<Box<dyn Watch>>;

    /// What a process runs.
    fn image(&self, pid: Pid) -> Image;

    /// The path of the file that is mapped at an address, while it is.
    fn mapped_file(&self, pid: Pid, address: u64) -> Option<String>;

    /// Whether a process has a thread with this tid; true when that is not known.
    fn has_thread(&self, pid: Pid, tid: Tid) -> bool;

    /// The name that a thread has given itself.
    fn thread_name(&self, pid: Pid, tid: Tid) -> Option<String>;

    /// What was counted of a thread so far. `None`: it is gone, or nothing is counted.
    fn usage(&self, pid: Pid, tid: Tid) -> Option<Usage>;
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

/// A path as it is, unless it names a descriptor or another link of the kernel's: their names say nothing.
pub(crate) fn name_of_file(path: String) -> String {
    match path.starts_with("/proc/") || path.starts_with("/dev/fd/") {
        true => String::new(),
        false => path,
    }
}
