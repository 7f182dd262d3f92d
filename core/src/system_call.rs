//! Kinds of system calls, as reports and the gate tell them apart, and the bytes that calls moved.
//!
//! Each hooked function that is a system call, or stands for one, counts once for its thread, whatever it
//! calls inside. Functions that get by without one as long as nobody has to wait (locks, conditions,
//! semaphores), and clocks, which are read in the program's own memory, are none.
//!
//! Bytes are those that the calls returned: of reads and receives as read, of writes and sends as written, of
//! what moves data between descriptors as both.

use crate::probe::{Category, Probe};

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// What is counted of system calls: those that do one thing, and what they moved. The numbers are
        /// part of the trace format: never reuse or renumber one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum SystemCall {
            $($(#[$doc])* $variant = $number,)*
        }

        impl SystemCall {
            /// Every kind, in the order of their numbers.
            pub const ALL: [SystemCall; SYSTEM_CALLS] = [$(SystemCall::$variant,)*];

            /// The name in reports and files.
            pub const fn name(self) -> &'static str {
                match self { $(SystemCall::$variant => $name,)* }
            }

            /// The kind with this number, if this version knows it.
            pub fn from_number(number: u64) -> Option<SystemCall> {
                let at = usize::try_from(number).ok()?;
                SystemCall::ALL.get(at).copied()
            }
        }
    };
}

/// Number of kinds, those of bytes included, for arrays indexed by `SystemCall as usize`.
pub const SYSTEM_CALLS: usize = 21;

kinds! {
    /// Reads from a file, pipe, queue or the source of random numbers.
    Read = 0, "read";
    /// Writes, and what makes room to write.
    Write = 1, "write";
    /// Moves data between two descriptors: sendfile, splice, copy_file_range.
    Copy = 2, "copy";
    /// Opens a file by its path.
    Open = 3, "open";
    /// Closes a descriptor.
    Close = 4, "close";
    /// fsync, fdatasync, msync and their relatives.
    Sync = 5, "sync";
    /// Asks what a file is.
    Stat = 6, "stat";
    /// Makes, doubles, locks or changes descriptors without a path: fcntl, flock, dup, pipe, eventfd,
    /// epoll_ctl.
    Control = 7, "control";
    /// Makes, connects, accepts, sets and shuts down sockets.
    Socket = 8, "socket";
    /// Sends into sockets.
    Send = 9, "send";
    /// Receives from sockets.
    Receive = 10, "receive";
    /// poll, select, epoll_wait.
    Poll = 11, "poll";
    /// Waits for a time only.
    Sleep = 12, "sleep";
    /// Maps memory, and changes what is mapped.
    Memory = 13, "memory";
    /// Starts programs and processes, and waits for them.
    Process = 14, "process";
    /// Sends signals, and waits for them.
    Signal = 15, "signal";
    /// Futexes of the program's own locks, by `syscall`; libc's own pass no hook.
    Futex = 16, "futex";
    /// Gives the processor away.
    Yield = 17, "yield";
    /// Bytes that calls have read.
    BytesRead = 18, "bytes read";
    /// Bytes that calls have written.
    BytesWritten = 19, "bytes written";
    /// Calls in which the thread was switched away: it slept until something woke it, or, seldom, lost the
    /// CPU.
    WakeUps = 20, "wake-ups";
}

impl SystemCall {
    /// The kinds of bytes.
    pub const BYTES: [SystemCall; 2] = [SystemCall::BytesRead, SystemCall::BytesWritten];

    /// Counts bytes, not calls.
    pub const fn is_bytes(self) -> bool {
        matches!(self, SystemCall::BytesRead | SystemCall::BytesWritten)
    }

    /// Counts calls by what they do.
    pub const fn is_call(self) -> bool {
        !self.is_bytes() && !matches!(self, SystemCall::WakeUps)
    }

    /// The category of the probes whose calls are of this kind; of locks on files, and of bytes, that of
    /// calls on files.
    pub const fn category(self) -> Category {
        match self {
            SystemCall::Read
            | SystemCall::Write
            | SystemCall::Copy
            | SystemCall::Open
            | SystemCall::Close
            | SystemCall::Sync
            | SystemCall::Stat
            | SystemCall::Control
            | SystemCall::BytesRead
            | SystemCall::BytesWritten => Category::Io,
            SystemCall::Socket | SystemCall::Send | SystemCall::Receive => Category::Net,
            SystemCall::Poll => Category::Poll,
            SystemCall::Sleep => Category::Sleep,
            SystemCall::Memory => Category::Memory,
            SystemCall::Process => Category::Process,
            SystemCall::Signal | SystemCall::Futex | SystemCall::WakeUps => Category::Wait,
            SystemCall::Yield => Category::Sched,
        }
    }
}

impl Probe {
    /// The kind of system call that a call of this probe is; `None`: none, or not always one.
    #[inline]
    pub const fn system_call(self) -> Option<SystemCall> {
        Some(match self {
            Probe::Read | Probe::MessageReceive | Probe::QueueReceive => SystemCall::Read,
            Probe::Write | Probe::MessageSend | Probe::QueueSend => SystemCall::Write,
            Probe::Sendfile | Probe::Splice => SystemCall::Copy,
            Probe::Open => SystemCall::Open,
            Probe::Close => SystemCall::Close,
            Probe::Fsync => SystemCall::Sync,
            Probe::Stat => SystemCall::Stat,
            Probe::Fcntl | Probe::FileLock => SystemCall::Control,
            Probe::Connect | Probe::Accept | Probe::Getsockopt => SystemCall::Socket,
            Probe::Send => SystemCall::Send,
            Probe::Recv => SystemCall::Receive,
            Probe::Poll | Probe::Select | Probe::EpollWait => SystemCall::Poll,
            Probe::Nanosleep => SystemCall::Sleep,
            Probe::Mmap | Probe::Munmap | Probe::Mremap | Probe::Mprotect | Probe::Madvise => {
                SystemCall::Memory
            }
            Probe::Wait | Probe::Fork | Probe::Exec | Probe::Spawn | Probe::Vfork => {
                SystemCall::Process
            }
            Probe::SignalWait | Probe::SignalSend => SystemCall::Signal,
            Probe::FutexWait | Probe::FutexWake => SystemCall::Futex,
            Probe::Yield => SystemCall::Yield,
            _ => return None,
        })
    }

    /// Whether a call of this probe reads, and whether it writes, the bytes that it says it moved.
    #[inline]
    pub const fn moves(self) -> (bool, bool) {
        match self.system_call() {
            Some(SystemCall::Read | SystemCall::Receive) => (true, false),
            Some(SystemCall::Write | SystemCall::Send) => (false, true),
            Some(SystemCall::Copy) => (true, true),
            _ => (false, false),
        }
    }
}

/// How many of each kind, by `SystemCall as usize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemCalls(pub [u64; SYSTEM_CALLS]);

impl SystemCalls {
    /// From a file's list; `None` when it has none. Kinds that this version does not know are left out.
    pub fn from_list(counts: &[u64]) -> Option<SystemCalls> {
        let mut calls = SystemCalls::default();
        for (count, listed) in calls.0.iter_mut().zip(counts) {
            *count = *listed;
        }
        (!counts.is_empty()).then_some(calls)
    }

    /// Adds others; sums stop at the highest number.
    pub fn add(&mut self, other: &SystemCalls) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Whether a file's list is of a version that counts bytes and wake-ups.
    pub fn list_has_bytes(counts: &[u64]) -> bool {
        counts.len() > SystemCall::WakeUps as usize
    }

    /// How many calls of all kinds.
    pub fn sum(&self) -> u64 {
        self.calls()
            .fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Each kind with its number.
    pub fn iter(&self) -> impl Iterator<Item = (SystemCall, u64)> + '_ {
        SystemCall::ALL.into_iter().zip(self.0)
    }

    /// Each kind of calls with its number.
    pub fn calls(&self) -> impl Iterator<Item = (SystemCall, u64)> + '_ {
        self.iter().filter(|(kind, _)| kind.is_call())
    }

    /// How many of a kind.
    pub fn of(&self, kind: SystemCall) -> u64 {
        self.0[kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_in_order_and_have_names_of_their_own() {
        for (at, kind) in SystemCall::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
            let same = SystemCall::ALL.iter().filter(|k| k.name() == kind.name());
            assert_eq!(same.count(), 1, "{}", kind.name());
            assert_eq!(SystemCall::from_number(at as u64), Some(kind));
        }
        assert_eq!(SystemCall::from_number(SYSTEM_CALLS as u64), None);
    }

    #[test]
    fn a_kind_is_switched_with_its_probes() {
        for probe in Probe::ALL {
            if let Some(call) = probe.system_call() {
                assert_eq!(call.category(), probe.category(), "{}", probe.name());
            }
        }
    }

    #[test]
    fn what_gets_by_without_the_kernel_is_no_system_call() {
        for probe in [
            Probe::Malloc,
            Probe::MutexLock,
            Probe::MutexUnlock,
            Probe::CondWait,
            Probe::SemWait,
            Probe::ClockRead,
            Probe::Running,
        ] {
            assert_eq!(probe.system_call(), None, "{}", probe.name());
        }
        assert_eq!(Probe::Fsync.system_call(), Some(SystemCall::Sync));
    }
}
