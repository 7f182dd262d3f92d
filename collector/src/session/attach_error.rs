//! Why a process cannot be attached to, or not be left. Each message names the process, the reason and
//! the next step.

use std::io;

use stackbeat_core::ids::Pid;

/// Why a process cannot be attached to, or not be left as it was.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The pid is nobody's.
    #[error("{pid}: no such process")]
    NoSuchProcess {
        /// The process.
        pid: Pid,
    },
    /// The number is a thread's, not a process'.
    #[error("{pid} is a thread of process {process}; attach to that")]
    Thread {
        /// The number that was given.
        pid: Pid,
        /// The process that the thread belongs to.
        process: Pid,
    },
    /// The recorder cannot trace itself.
    #[error("{pid} is this process")]
    Myself {
        /// The process.
        pid: Pid,
    },
    /// The process has ended.
    #[error("{pid}: has ended already (a zombie that its parent has not waited for)")]
    Zombie {
        /// The process.
        pid: Pid,
    },
    /// Its main thread has ended, others run on: what it has in memory is no longer to be seen by its pid.
    #[error(
        "{pid}: its main thread has ended, and only other threads of it run on; such a program can be recorded from \
         its start only"
    )]
    MainThreadEnded {
        /// The process.
        pid: Pid,
    },
    /// A thread of the kernel has no memory of its own.
    #[error("{pid}: is a thread of the kernel, not a program")]
    Kernel {
        /// The process.
        pid: Pid,
    },
    /// A stopped process runs nothing that could load the agent.
    #[error("{pid}: is stopped; let it go on first (kill -CONT {pid})")]
    Stopped {
        /// The process.
        pid: Pid,
    },
    /// The recorder is neither that user nor root.
    #[error("{pid}: belongs to another user ({owner}); attach as that user, or as root")]
    OtherUser {
        /// The process.
        pid: Pid,
        /// Name or number of its user.
        owner: String,
    },
    /// A debugger, strace or another tool traces the process.
    #[error(
        "{pid}: process {tracer} ({name}) traces it already, and a process can have one tracer \
         only; end that one first"
    )]
    Traced {
        /// The process.
        pid: Pid,
        /// Who traces it.
        tracer: Pid,
        /// The name of that program.
        name: String,
    },
    /// The process takes part in another session that lives.
    #[error("{pid}: is being recorded already, {}", recorder(*pid, *collector))]
    Recorded {
        /// The process.
        pid: Pid,
        /// The recorder of that session.
        collector: Pid,
    },
    /// ptrace(2) is refused, by Yama, a security module or missing rights.
    #[error("{pid}: the kernel does not allow to trace it: {reason}")]
    Forbidden {
        /// The process.
        pid: Pid,
        /// What refuses it, and what helps.
        reason: String,
    },
    /// Its program is one that no agent can be in.
    #[error("{pid}: {warning}; it cannot be attached to", warning = .what)]
    Executable {
        /// The process.
        pid: Pid,
        /// What is special about the program.
        what: String,
    },
    /// glibc's functions that load a library were not found.
    #[error(
        "{pid}: no dlopen in it: its C library is not glibc, or was not loaded dynamically; only \
         programs of glibc can be attached to"
    )]
    NoLoader {
        /// The process.
        pid: Pid,
    },
    /// Its filter may kill it, and [`Attachment::allow_seccomp`](super::Attachment::allow_seccomp) is not
    /// set.
    #[error(
        "{pid}: runs under a seccomp filter, which may kill it for system calls that the agent makes \
         (mmap, mprotect, rt_sigaction, getrusage, clock_gettime, gettid, futex, \
         process_vm_readv, open of /proc/self/maps); if you know that the filter allows them, \
         attach with --allow-seccomp"
    )]
    Seccomp {
        /// The process.
        pid: Pid,
    },
    /// It may read, write and exit only.
    #[error("{pid}: runs in strict seccomp mode, where the kernel kills it for any new call")]
    SeccompStrict {
        /// The process.
        pid: Pid,
    },
    /// Attaching is not made for this machine.
    #[error("attaching is only possible on x86-64 so far")]
    Machine,
    /// No thread stopped where a call of ours disturbs nothing.
    #[error(
        "{pid}: none of its threads came to a place where it may be interrupted, within {seconds} s \
         ({state}); try again, or when it does something else"
    )]
    NoPlace {
        /// The process.
        pid: Pid,
        /// How long it was tried, s.
        seconds: u64,
        /// What the last attempt came to.
        state: String,
    },
    /// dlopen failed in the process.
    #[error("{pid}: its dynamic linker did not load the agent library: {reason}")]
    Load {
        /// The process.
        pid: Pid,
        /// What the dynamic linker says, or what is missing.
        reason: String,
    },
    /// The agent was loaded, and does not take part.
    #[error("{pid}: the agent in it refused the session: {reason}")]
    Refused {
        /// The process.
        pid: Pid,
        /// What it says.
        reason: String,
    },
    /// The process ended before attaching or detaching was done.
    #[error("{pid}: ended while it was attached to")]
    Ended {
        /// The process.
        pid: Pid,
    },
    /// The process executed another program before attaching or detaching was done.
    #[error("{pid}: started another program (exec) while it was attached to; try again")]
    Executed {
        /// The process.
        pid: Pid,
    },
    /// A system call for attaching or detaching failed.
    #[error("{pid}: {step}")]
    System {
        /// The process.
        pid: Pid,
        /// What was to be done.
        step: &'static str,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// Who records a process, and how that ends.
fn recorder(pid: Pid, collector: Pid) -> String {
    match collector == pid {
        true => "from inside (--in-process); that recording ends with the program".to_owned(),
        false => {
            format!("by process {collector}; end that recording first (kill -INT {collector})")
        }
    }
}
