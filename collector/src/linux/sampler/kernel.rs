//! What the kernel says about a thread: whether it runs, from `/proc/PID/task/TID`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use stackbeat_core::ids::{Pid, Tid};

use super::{Sampler, Thread};

/// Descriptors kept open; beyond it files are opened for each poll.
const MAX_KEPT_FILES: usize = 512;

/// What the kernel says about a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    Running,
    Blocked,
    Gone,
}

impl Sampler {
    pub(super) fn ask_kernel(&mut self, thread: &mut Thread) -> Kernel {
        let Some(file) = &thread.state_file else {
            return match open_state(thread.pid, thread.tid) {
                Ok((file, kernel)) => {
                    if self.files < MAX_KEPT_FILES {
                        self.files += 1;
                        thread.state_file = Some(file);
                    }
                    kernel
                }
                // Only a file that was open before can tell that its thread has ended: the number
                // may belong to another pid namespace.
                Err(_) => Kernel::Blocked,
            };
        };
        match read_state(file) {
            // Its process has changed its user since.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                match open_state(thread.pid, thread.tid) {
                    Ok((file, kernel)) => {
                        thread.state_file = Some(file);
                        kernel
                    }
                    Err(error) => gone_or_blocked(&error),
                }
            }
            Err(error) => gone_or_blocked(&error),
            Ok(kernel) => kernel,
        }
    }
}

/// The file that says whether a thread runs, and what it says: `syscall` where we may read it (it takes the
/// rights of a debugger, which the kernel asks for at the first read when the file's mode lets us open it),
/// `stat` otherwise.
pub(super) fn open_state(pid: Pid, tid: Tid) -> io::Result<(File, Kernel)> {
    let open = |name: &str| {
        let file = File::open(format!("/proc/{pid}/task/{tid}/{name}"))?;
        let kernel = read_state(&file)?;
        Ok((file, kernel))
    };
    open("syscall").or_else(|error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => open("stat"),
        _ => Err(error),
    })
}

/// `syscall` begins with "running" or a number (proc(5)); `stat` holds the state after the name, which
/// ends with the last parenthesis.
fn read_state(file: &File) -> io::Result<Kernel> {
    let mut text = [0u8; 128];
    let length = file.read_at(&mut text, 0)?;
    let text = &text[..length];
    if text.starts_with(b"running") {
        return Ok(Kernel::Running);
    }
    let state = text
        .iter()
        .rposition(|b| *b == b')')
        .and_then(|at| text.get(at + 2));
    Ok(match state {
        Some(b'R') => Kernel::Running,
        Some(b'X' | b'x' | b'Z') => Kernel::Gone,
        _ => Kernel::Blocked,
    })
}

fn gone_or_blocked(error: &io::Error) -> Kernel {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => Kernel::Gone,
        _ => Kernel::Blocked,
    }
}
