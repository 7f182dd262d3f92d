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

/// Who has a pid that an agent named. An agent in a pid namespace of its own (a sandbox) names a number
/// that means somebody else here, or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A process that has the session's mapping mapped.
    Ours,
    /// Another process: the agent's number is not ours.
    Foreign,
    /// Nobody, or a process that has just ended.
    Gone,
}

/// Who has this pid. `mapping` is the file name of the session's mapping; `first_pid` that of the
/// program: kernels count pids up, so that one of its descendants has a lower one only after the
/// numbers have begun anew.
pub fn identify(pid: u32, mapping: &[u8], first_pid: u32) -> Identity {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    if maps.is_empty() {
        let wrapped = last_pid().is_none_or(|last| last < first_pid);
        return if is_kernel_thread(pid) || (pid < first_pid && !wrapped) {
            Identity::Foreign
        } else {
            Identity::Gone
        };
    }
    if maps
        .split(|b| *b == b'\n')
        .any(|line| line.ends_with(mapping))
    {
        Identity::Ours
    } else {
        Identity::Foreign
    }
}

/// Flag PF_KTHREAD (include/linux/sched.h) in the seventh field behind the name (proc(5), stat).
pub fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let flags = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Every process and its parent: the second field behind the name (proc(5), stat).
pub fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
            let stat = String::from_utf8_lossy(&stat);
            let (_, rest) = stat.rsplit_once(") ")?;
            Some((pid, rest.split(' ').nth(1)?.parse().ok()?))
        })
        .collect()
}

/// The pid that was given out last (proc(5), loadavg).
fn last_pid() -> Option<u32> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().last()?.parse().ok()
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

/// The path of the file that is mapped at an address, while it is.
pub fn mapped_file(pid: u32, address: u64) -> Option<String> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    maps.lines().find_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, rest) = rest.split_once(' ')?;
        let parse = |hex| u64::from_str_radix(hex, 16).ok();
        let path = rest.find('/').map(|at| rest[at..].to_owned());
        (parse(start)?..parse(end)?)
            .contains(&address)
            .then_some(path)?
    })
}

/// The name of a thread.
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_from_another_namespace_is_not_taken_for_ours() {
        let own = std::process::id();
        let executable = std::env::current_exe().expect("own path");
        let name = executable.file_name().expect("a name").as_encoded_bytes();
        assert_eq!(identify(own, name, own), Identity::Ours);
        assert_eq!(identify(own, b"no such mapping", own), Identity::Foreign);
        // The kernel's own threads map nothing, and were there long before the program.
        assert_eq!(identify(2, name, own), Identity::Foreign);
        let mut child = std::process::Command::new("true").spawn().expect("started");
        child.wait().expect("waited");
        assert_eq!(identify(child.id(), name, own), Identity::Gone);
    }

    #[test]
    fn the_end_of_a_process_is_noticed() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        let watch = Watch::open(child.id()).expect("a pidfd");
        assert!(!watch.has_ended());
        drop(child.stdin.take());
        child.wait().expect("waited");
        assert!(watch.has_ended());
        assert!(Watch::open(child.id()).is_none());
    }
}
