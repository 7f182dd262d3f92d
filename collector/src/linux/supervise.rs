//! Waits for the program and stands between it and the terminal: signals for the whole foreground
//! group reach the program without us, those for us alone are handed on, and job control stops and
//! continues both.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use stackbeat_core::ids::Pid;

use super::group_sentinel::GroupSentinel;
use super::procfs;
use super::spawn::{Child, signal_set};
use super::transfers::Transfers;
use crate::session::grid;

/// Signals that are read from a descriptor while a session lasts.
pub(crate) const HANDLED: [libc::c_int; 12] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGCONT,
    libc::SIGCHLD,
    // A limit on file sizes: the write fails, and that is reported.
    libc::SIGXFSZ,
];

/// Why `Supervisor::wait` came back.
#[derive(Debug)]
pub(crate) enum Wake {
    /// The time is over.
    Timeout,
    /// The program was stopped and continued, or a signal was handed on.
    Signal,
    /// SIGINT, SIGTERM or SIGHUP came for us after the program's end: do not wait any longer.
    Leave,
    /// The program has ended.
    Ended {
        wait_status: i32,
        user: Duration,
        system: Duration,
        /// CPU time of its own, without that of children that it waited for.
        own_cpu: Option<Duration>,
        /// What it has read and written.
        transfers: Option<Transfers>,
    },
}

/// Watches over one child.
#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child,
    signals: OwnedFd,
    /// `None` where there can be no further process: signals to the group then reach the program twice.
    sentinel: Option<GroupSentinel>,
    ended: bool,
    /// A stop signal from the terminal reached us too.
    stop_wanted: bool,
    /// A signal that asks us for a dump, and whether it came.
    dump_signal: Option<libc::c_int>,
    dump_wanted: bool,
}

impl Supervisor {
    /// The descriptor that signals are read from. The signals must be blocked already.
    pub(crate) fn signal_descriptor() -> io::Result<OwnedFd> {
        let set = signal_set(&HANDLED);
        // SAFETY: the set is valid; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// `dump_signal` is one of those that are handled; it is not handed on. `sentinel` has been there
    /// since before the child was started.
    pub(crate) fn new(
        child: Child,
        signals: OwnedFd,
        sentinel: Option<GroupSentinel>,
        dump_signal: Option<libc::c_int>,
    ) -> Supervisor {
        Supervisor {
            child,
            signals,
            sentinel,
            ended: false,
            stop_wanted: false,
            dump_signal,
            dump_wanted: false,
        }
    }

    pub(crate) fn pid(&self) -> libc::pid_t {
        self.child.pid
    }

    /// Whether a dump was asked for since the last call.
    pub(crate) fn take_dump_wanted(&mut self) -> bool {
        std::mem::take(&mut self.dump_wanted)
    }

    /// Waits at most `timeout` for something to happen.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Wake {
        let pidfd = match &self.child.pidfd {
            Some(fd) if !self.ended => fd.as_raw_fd(),
            // poll leaves out negative descriptors.
            _ => -1,
        };
        let mut polled = [self.signals.as_raw_fd(), pidfd].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let timeout = grid::time_to(timeout);
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos() as libc::c_long,
        };
        // SAFETY: the array has two elements; the mask of signals stays as it is.
        let ready =
            unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &raw const timeout, std::ptr::null()) };
        let mut leave = false;
        if ready > 0 && polled[0].revents != 0 {
            leave = self.read_signals();
        }
        if !self.ended
            && let Some(ended) = self.reap()
        {
            self.ended = true;
            return ended;
        }
        match (ready > 0, leave) {
            (_, true) => Wake::Leave,
            (true, false) => Wake::Signal,
            (false, false) => Wake::Timeout,
        }
    }

    /// Whether somebody wants us to end; signals that came before the program's end do not count.
    pub(crate) fn leave_wanted(&mut self) -> bool {
        self.read_signals()
    }

    /// Handles what is pending. True: somebody wants us to end, and there is no program to tell.
    fn read_signals(&mut self) -> bool {
        let mut leave = false;
        loop {
            // SAFETY: plain data for which all zeros is valid.
            let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
            let bytes = size_of_val(&info);
            // SAFETY: reads at most its size into `info`.
            let got =
                unsafe { libc::read(self.signals.as_raw_fd(), (&raw mut info).cast(), bytes) };
            if usize::try_from(got) != Ok(bytes) {
                return leave;
            }
            leave |= self.handle(&info);
        }
    }

    fn handle(&mut self, info: &libc::signalfd_siginfo) -> bool {
        let signal = info.ssi_signo as libc::c_int;
        if matches!(signal, libc::SIGCHLD | libc::SIGXFSZ) {
            return false;
        }
        if self.dump_signal == Some(signal) {
            self.dump_wanted = true;
            return false;
        }
        if self.ended {
            return matches!(
                signal,
                libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT
            );
        }
        if matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) {
            self.stop_wanted = true;
        }
        if !self.has_reached_program(info) {
            // SAFETY: the child has not been waited for, so the pid is still its own.
            unsafe { libc::kill(self.child.pid, signal) };
        }
        false
    }

    /// Whether the program has got the signal without us: the kernel's (keys, hang-up, terminal access)
    /// and those to the group go to both, and the program's own need not come back to it.
    fn has_reached_program(&mut self, info: &libc::signalfd_siginfo) -> bool {
        if info.ssi_code > 0 || info.ssi_pid == self.child.pid as u32 {
            return true;
        }
        // SAFETY: both ask for numbers.
        let is_in_group = unsafe { libc::getpgid(self.child.pid) == libc::getpgrp() };
        let signal = info.ssi_signo as libc::c_int;
        let is_for_group = self.sentinel.as_ref().is_some_and(|w| w.has_got(signal));
        if is_for_group {
            // What has been sent to it stays there: the next signal needs a new one, and there is one
            // at any moment.
            self.sentinel = GroupSentinel::post().ok();
        }
        is_in_group && is_for_group
    }

    /// Takes note of the child's changes of state.
    fn reap(&mut self) -> Option<Wake> {
        const STOPS: libc::c_int = libc::WSTOPPED | libc::WCONTINUED;
        loop {
            match self.change(libc::WEXITED | STOPS | libc::WNOWAIT)? {
                libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED => return self.end(),
                _ => {}
            }
            // Stop too, so that the shell sees the job stopped, but only when the terminal's
            // signal came to both: who stops the program alone does not mean the recording.
            if self.change(STOPS) == Some(libc::CLD_STOPPED) && self.stop_wanted {
                self.stop_wanted = false;
                // SAFETY: stops this process until somebody continues the job.
                unsafe { libc::raise(libc::SIGSTOP) };
            }
        }
    }

    /// What happened to the child, of that which `flags` of waitid ask for.
    fn change(&self, flags: libc::c_int) -> Option<libc::c_int> {
        let pid = self.child.pid;
        // SAFETY: plain data for which all zeros is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is a valid object.
        let result = unsafe {
            libc::waitid(
                libc::P_PID,
                pid as libc::id_t,
                &raw mut info,
                flags | libc::WNOHANG,
            )
        };
        // SAFETY: waitid has filled it in, or left the pid zero.
        (result == 0 && unsafe { info.si_pid() } == pid).then_some(info.si_code)
    }

    /// Waits for the child, which has ended. What it read and wrote is known until then.
    fn end(&self) -> Option<Wake> {
        let transfers = Transfers::of_process(Pid(self.child.pid as u32));
        let own_cpu = procfs::process_cpu_ns(Pid(self.child.pid as u32)).map(Duration::from_nanos);
        let mut status = 0;
        // SAFETY: plain data for which all zeros is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to valid objects.
        let pid = unsafe {
            libc::wait4(
                self.child.pid,
                &raw mut status,
                libc::WNOHANG,
                &raw mut usage,
            )
        };
        (pid == self.child.pid).then(|| Wake::Ended {
            wait_status: status,
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            own_cpu,
            transfers,
        })
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_usec).unwrap_or(0) * 1000,
    )
}
