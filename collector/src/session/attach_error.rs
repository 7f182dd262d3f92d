//! Why a process cannot be attached to, or not be left yet. Each message names the process, the reason and the next step.

use std::fmt;
use std::io;
use std::time::Duration;

use stackbeat_core::ids::{Pid, Tid};

/// Why a process cannot be attached to, or not be left as it was.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("{pid}: no such process")]
    NoSuchProcess { pid: Pid },
    #[error("{pid} is a thread of process {process}; attach to that")]
    Thread { pid: Pid, process: Pid },
    #[error("{pid} is this process")]
    Myself { pid: Pid },
    #[error("{pid}: has ended already (a zombie that its parent has not waited for)")]
    Zombie { pid: Pid },
    #[error("{pid}: is a thread of the kernel, not a program")]
    Kernel { pid: Pid },
    #[error("{pid}: is stopped; let it go on first (kill -CONT {pid})")]
    Stopped { pid: Pid },
    #[error("{pid}: belongs to another user ({owner}); attach as that user, or as root")]
    OtherUser { pid: Pid, owner: String },
    #[error(
        "{pid}: process {tracer} ({name}) traces it already, and a process can have one tracer \
         only; end that one first"
    )]
    Traced { pid: Pid, tracer: Pid, name: String },
    #[error(
        "{pid}: is being recorded already, by process {collector}; end that recording first \
         (kill -INT {collector})"
    )]
    Recorded { pid: Pid, collector: Pid },
    #[error("{pid}: the kernel does not allow to trace it: {reason}")]
    Forbidden { pid: Pid, reason: String },
    #[error("{pid}: {warning}; it cannot be attached to", warning = .what)]
    Executable { pid: Pid, what: String },
    #[error(
        "{pid}: no dlopen in it: its C library is not glibc, or was not loaded dynamically; only \
         programs of glibc can be attached to"
    )]
    NoLoader { pid: Pid },
    #[error(
        "{pid}: runs under a seccomp filter, which may kill it for system calls that the agent makes \
         (mmap, mprotect, rt_sigaction, getrusage, clock_gettime, gettid, futex, \
         process_vm_readv, open of /proc/self/maps); if you know that the filter allows them, \
         attach with --allow-seccomp"
    )]
    Seccomp { pid: Pid },
    #[error("{pid}: runs in strict seccomp mode, where the kernel kills it for any new call")]
    SeccompStrict { pid: Pid },
    #[error("attaching is only possible on x86-64 so far")]
    Machine,
    #[error(
        "{pid}: none of its threads came to a place where it may be interrupted, within {seconds} s \
         ({state}); try again, or when it does something else"
    )]
    NoPlace {
        pid: Pid,
        seconds: u64,
        state: String,
    },
    #[error("{pid}: its dynamic linker did not load the agent library: {reason}")]
    Load { pid: Pid, reason: String },
    #[error("{pid}: the agent in it refused the session: {reason}")]
    Refused { pid: Pid, reason: String },
    #[error("{pid}: ended while it was attached to")]
    Ended { pid: Pid },
    #[error("{pid}: {step}")]
    System {
        pid: Pid,
        step: &'static str,
        #[source]
        source: io::Error,
    },
}

/// A thread that was used for a visit and cannot be given back yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub pid: Pid,
    pub tid: Tid,
    /// For how long it has not stopped.
    pub time: Duration,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: thread {} has not stopped for {} s: it is in a call that cannot be interrupted, which it makes for the \
             recorder; it is waited for, because the program would die of it if it were left there",
            self.pid,
            self.tid,
            self.time.as_secs()
        )
    }
}
