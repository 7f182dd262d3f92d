//! What can be said about a process before it is touched: whether it can be attached to, and why not.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::platform;

use crate::linux::find_program;
use crate::linux::procfs;
use crate::session::attach_error::AttachError;

/// A process that may be attached to.
#[derive(Debug)]
pub struct Target {
    /// Its pid, here.
    pub pid: Pid,
    /// The program and its arguments; its name alone when it has overwritten them.
    pub command: Vec<String>,
    /// Effective user and group.
    pub user: (u32, u32),
    /// It sees other mounts than we do, or has another root.
    pub other_mounts: bool,
}

/// The fields of /proc/PID/status that matter here.
#[derive(Debug, Default)]
pub(super) struct Status {
    name: String,
    pub(super) state: char,
    process: Pid,
    tracer: Pid,
    user: u32,
    group: u32,
    seccomp: u32,
    is_kernel_thread: bool,
}

impl Target {
    /// Looks at a process and refuses those that cannot be attached to.
    pub fn examine(pid: Pid, allow_seccomp: bool) -> Result<Target, AttachError> {
        // So one in the middle of an exec looks, too (`de_thread` of fs/exec.c).
        let may_be_in_exec = |found: &Result<Target, AttachError>| {
            matches!(
                found,
                Err(AttachError::NoSuchProcess { .. }
                    | AttachError::MainThreadEnded { .. }
                    | AttachError::Forbidden { .. })
            )
        };
        until_exec_is_over(pid, || {
            let found = Target::look_at(pid, allow_seccomp);
            (!may_be_in_exec(&found)).then_some(found)
        })
        .unwrap_or_else(|| Target::look_at(pid, allow_seccomp))
    }

    fn look_at(pid: Pid, allow_seccomp: bool) -> Result<Target, AttachError> {
        if cfg!(not(target_arch = "x86_64")) {
            return Err(AttachError::Machine);
        }
        let status = Status::read(pid).ok_or(AttachError::NoSuchProcess { pid })?;
        if pid == Pid(std::process::id()) {
            return Err(AttachError::Myself { pid });
        }
        if status.process != pid {
            return Err(AttachError::Thread {
                pid,
                process: status.process,
            });
        }
        match status.state {
            'Z' if procfs::thread_count(pid) > Some(1) => {
                return Err(AttachError::MainThreadEnded { pid });
            }
            'Z' | 'X' => return Err(AttachError::Zombie { pid }),
            _ if status.is_kernel_thread || procfs::is_kernel_thread(pid) => {
                return Err(AttachError::Kernel { pid });
            }
            'T' => return Err(AttachError::Stopped { pid }),
            _ => {}
        }
        if let Some(traced) = traced(pid, pid.main_thread()) {
            return Err(traced);
        }
        let own_user = platform::effective_user();
        if own_user != 0 && own_user != status.user {
            return Err(AttachError::OtherUser {
                pid,
                owner: user_name(status.user),
            });
        }
        judge_executable(pid)?;
        match status.seccomp {
            1 => return Err(AttachError::SeccompStrict { pid }),
            2 if !allow_seccomp => return Err(AttachError::Seccomp { pid }),
            _ => {}
        }
        if let Sessions::Of(collector) = Sessions::of(pid) {
            return Err(AttachError::Recorded { pid, collector });
        }
        let mut command = procfs::command_line(pid);
        if command.first().is_none_or(String::is_empty) {
            command = vec![status.name];
        }
        Ok(Target {
            pid,
            command,
            user: (status.user, status.group),
            other_mounts: has_other_mounts(pid) || has_other_root(pid),
        })
    }

    /// Whether the process finds the same file at a path.
    pub fn sees(&self, path: &Path) -> bool {
        are_same_file(path, &seen_by(self.pid, path)) == Some(true)
    }
}

/// A path as the process sees it, for us.
pub(crate) fn seen_by(pid: Pid, path: &Path) -> PathBuf {
    let inside = path.strip_prefix("/").unwrap_or(path);
    PathBuf::from(format!("/proc/{pid}/root")).join(inside)
}

/// False also for one that ends, or is in the middle of an exec.
pub(super) fn has_other_mounts(pid: Pid) -> bool {
    let its = format!("/proc/{pid}/ns/mnt");
    are_same_file(Path::new("/proc/self/ns/mnt"), Path::new(&its)) == Some(false)
}

fn has_other_root(pid: Pid) -> bool {
    are_same_file(Path::new("/"), &seen_by(pid, Path::new("/"))) == Some(false)
}

/// `None`: one of them is not to be seen.
fn are_same_file(a: &Path, b: &Path) -> Option<bool> {
    let (a, b) = (fs::metadata(a).ok()?, fs::metadata(b).ok()?);
    Some((a.dev(), a.ino()) == (b.dev(), b.ino()))
}

/// Somebody else traces the thread.
pub(super) fn traced(pid: Pid, tid: Tid) -> Option<AttachError> {
    let tracer = Status::read_of(&format!("/proc/{pid}/task/{tid}/status"))?.tracer;
    let is_other = ![0, std::process::id()].contains(&tracer.0);
    is_other.then(|| AttachError::Traced {
        pid,
        tracer,
        name: Status::read(tracer).map_or_else(|| "?".into(), |s| s.name),
    })
}

/// How long an exec may take, in which a process looks as if it ended or had nothing in memory.
const EXEC_TIME: Duration = Duration::from_millis(100);

/// Asks until there is an answer.
pub(super) fn until_exec_is_over<T>(pid: Pid, ask: impl Fn() -> Option<T>) -> Option<T> {
    let until = Instant::now() + EXEC_TIME;
    loop {
        let answer = ask();
        if answer.is_some() || Instant::now() > until || !procfs::exists(pid) {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Why the kernel would not let us trace, when it said no.
pub(super) fn forbidden(pid: Pid) -> AttachError {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let is_root = platform::effective_user() == 0;
    let reason = match scope.trim() {
        "1" | "2" if !is_root => {
            "kernel.yama.ptrace_scope lets only root attach to running programs; run as root, or \
             `sysctl kernel.yama.ptrace_scope=0`"
        }
        "3" => {
            "kernel.yama.ptrace_scope is 3: nobody may attach until the machine starts anew; \
             record the program from its start instead"
        }
        _ if is_root => {
            "a security module or a missing capability (CAP_SYS_PTRACE, in containers) forbids it"
        }
        _ => {
            "it has more rights than you have, or is not dumpable (setuid, setgid, capabilities, \
             prctl); attach as root"
        }
    };
    AttachError::Forbidden {
        pid,
        reason: reason.to_owned(),
    }
}

impl Status {
    pub(super) fn read(pid: Pid) -> Option<Status> {
        Status::read_of(&format!("/proc/{pid}/status"))
    }

    fn read_of(path: &str) -> Option<Status> {
        let text = fs::read(path).ok()?;
        let mut status = Status::default();
        for line in String::from_utf8_lossy(&text).lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            let number = |i: usize| {
                let word = value.split_ascii_whitespace().nth(i);
                word.and_then(|w| w.parse().ok()).unwrap_or(0)
            };
            match key {
                "Name" => status.name = value.to_owned(),
                "State" => status.state = value.chars().next().unwrap_or('?'),
                "Tgid" => status.process = Pid(number(0)),
                "TracerPid" => status.tracer = Pid(number(0)),
                "Uid" => status.user = number(1),
                "Gid" => status.group = number(1),
                "Seccomp" => status.seccomp = number(0),
                "Kthread" => status.is_kernel_thread = number(0) == 1,
                _ => {}
            }
        }
        Some(status)
    }
}

fn user_name(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| format!("uid {user}"))
}

fn judge_executable(pid: Pid) -> Result<(), AttachError> {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let name = fs::read_link(&link).map_err(|e| match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => forbidden(pid),
        _ => AttachError::NoSuchProcess { pid },
    })?;
    let file = File::open(&link).map_err(|_| forbidden(pid))?;
    let mut head = [0u8; 256];
    let length = file.read_at(&mut head, 0).unwrap_or(0);
    match find_program::judge_elf(&name, &file, &head[..length], &mut true) {
        None => Ok(()),
        Some(warning) => Err(AttachError::Executable {
            pid,
            what: find_program::obstacle(&warning),
        }),
    }
}

/// The sessions whose mappings a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sessions {
    /// None.
    None,
    /// This recorder's.
    Of(Pid),
    /// Only such whose recorders are gone.
    Left,
}

impl Sessions {
    pub(super) fn of(pid: Pid) -> Sessions {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        let collectors = maps.lines().filter_map(|line| {
            let name = line.rsplit('/').next()?;
            let mut parts = name.strip_prefix("stackbeat.")?.split(['.', ' ']);
            let collector = Pid(parts.next()?.parse().ok()?);
            parts.next().map(|_| collector)
        });
        collectors.fold(Sessions::None, |found, collector| match found {
            Sessions::Of(_) => found,
            _ if procfs::exists(collector) => Sessions::Of(collector),
            _ => Sessions::Left,
        })
    }
}
