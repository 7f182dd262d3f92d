//! Tells a signal that was sent to the whole process group from one that was sent to the recorder alone.
//!
//! The kernel says who sent a signal, not to whom else. So a process of ours sits in the group, does
//! nothing and lets all signals pend: one that pends there as well has been sent to the group, and the
//! program has got it without us. The kernel delivers to the newest member of a group first (`attach_pid`
//! of kernel/pid.c adds at the head of the list, `__kill_pgrp_info` of kernel/signal.c walks it from
//! there), so it pends in the group sentinel before the recorder hears of it.

use std::fs;
use std::io;

/// The process that waits. Ends with its owner, and with the thread that posted it.
#[derive(Debug)]
pub(crate) struct GroupSentinel {
    pid: libc::pid_t,
}

impl GroupSentinel {
    /// Starts one in the caller's process group.
    ///
    /// # Errors
    ///
    /// Those of `fork`.
    pub(crate) fn post() -> io::Result<GroupSentinel> {
        // SAFETY: takes nothing and cannot fail.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child calls only async-signal-safe functions and allocates nothing.
        match unsafe { libc::fork() } {
            0 => watch(parent),
            pid if pid > 0 => Ok(GroupSentinel { pid }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether the group was sent this signal since the group sentinel was posted.
    pub(crate) fn has_got(&self, signal: libc::c_int) -> bool {
        fs::read_to_string(format!("/proc/{}/status", self.pid))
            .ok()
            .and_then(|status| pending(&status))
            .is_some_and(|pending| pending >> (signal - 1) & 1 != 0)
    }
}

impl Drop for GroupSentinel {
    fn drop(&mut self) {
        // SAFETY: our child, which nobody has waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// The signals that pend for a process as a whole (proc(5)): bit 0 is signal 1.
fn pending(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("ShdPnd:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The group sentinel' life.
fn watch(parent: libc::pid_t) -> ! {
    // SAFETY: async-signal-safe calls on objects of this function, in a forked child.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        // Nobody may wait for the end of a pipe because of it.
        if libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) != 0 {
            for fd in 0..libc::sysconf(libc::_SC_OPEN_MAX).min(1 << 20) as libc::c_int {
                libc::close(fd);
            }
        }
        while libc::getppid() == parent {
            libc::pause();
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pends_is_read_from_the_status() {
        let status = "Name:\tx\nSigPnd:\t0000000000000001\nShdPnd:\t0000000000004200\n";
        assert_eq!(pending(status), Some(1 << 14 | 1 << 9));
        assert_eq!(pending("Name:\tx\n"), None);
    }

    #[test]
    fn a_sentinel_sees_what_it_was_sent_and_goes_with_its_owner() {
        let sentinel = GroupSentinel::post().expect("a process");
        let pid = sentinel.pid;
        // A signal before its mask is set would end it: the kernel shows the mask.
        let is_ready = || {
            fs::read_to_string(format!("/proc/{pid}/status"))
                .is_ok_and(|s| s.contains("SigBlk:\tfffffffe"))
        };
        while !is_ready() {
            std::thread::yield_now();
        }
        assert!(!sentinel.has_got(libc::SIGTERM));
        // SAFETY: signals the child that ignores them.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        assert!(sentinel.has_got(libc::SIGTERM) && !sentinel.has_got(libc::SIGINT));
        drop(sentinel);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
