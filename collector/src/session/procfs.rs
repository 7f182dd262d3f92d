//! What /proc says about a process, and the end of processes that are not our children.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Notices the end of a process.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// `None` when there is no such process (any more), or the kernel has no pidfds (before 5.3).
    pub fn open(pid: u32) -> Option<Watch> {
        // SAFETY: pidfd_open takes a pid and flags and returns a new descriptor or an error.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the descriptor is new and nobody else's.
        Some(Watch(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Whether all its threads have ended.
    pub fn has_ended(&self) -> bool {
        let mut polled = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid element; a timeout of 0 does not wait.
        unsafe { libc::poll(&raw mut polled, 1, 0) == 1 }
    }
}

/// Whether a process with this pid exists.
pub fn exists(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { libc::kill(pid as libc::pid_t, 0) };
    asked == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// The command line, empty when it cannot be read.
pub fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let Some(bytes) = bytes.strip_suffix(b"\0") else {
        return Vec::new();
    };
    bytes
        .split(|b| *b == 0)
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect()
}

/// The path of the executable, empty when it cannot be read.
pub fn executable(pid: u32) -> String {
    fs::read_link(format!("/proc/{pid}/exe"))
        .map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The name of a thread.
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(String::from_utf8_lossy(name).into_owned())
}
