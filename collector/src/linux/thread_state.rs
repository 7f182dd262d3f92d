//! What the kernel says about a thread: whether it runs, from `/proc/PID/task/TID`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stackbeat_core::ids::{Pid, Tid};

use crate::host::{Followed, State};

/// Descriptors kept open; beyond it files are opened for each question.
const MAX_KEPT_FILES: usize = 512;

/// Counts the files that are kept open.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptFiles(Arc<AtomicUsize>);

/// A thread whose file is kept open, if there is room.
#[derive(Debug)]
pub(super) struct Task {
    pid: Pid,
    tid: Tid,
    file: Option<File>,
    /// `schedstat`, kept as well when it is asked for.
    schedstat: Option<File>,
    kept: KeptFiles,
}

impl Task {
    pub(super) fn new(pid: Pid, tid: Tid, kept: &KeptFiles) -> Task {
        Task {
            pid,
            tid,
            file: None,
            schedstat: None,
            kept: kept.clone(),
        }
    }

    /// The file, if fewer than so many are kept.
    fn kept(&self, file: File, most: usize) -> Option<File> {
        let kept = &self.kept.0;
        // Others add and take away meanwhile: it may be one more than that.
        let has_room = kept.load(Ordering::Relaxed) < most;
        has_room.then(|| {
            kept.fetch_add(1, Ordering::Relaxed);
            file
        })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let count = [&self.file, &self.schedstat].into_iter().flatten().count();
        self.kept.0.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Followed for Task {
    fn state(&mut self) -> State {
        let Some(file) = &self.file else {
            return match open_state(self.pid, self.tid) {
                Ok((file, state)) => {
                    self.file = self.kept(file, MAX_KEPT_FILES);
                    state
                }
                // Only a file that was open before can tell that its thread has ended: the number
                // may belong to another pid namespace.
                Err(_) => State::Blocked,
            };
        };
        match read_state(file) {
            // Its process has changed its user since.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                match open_state(self.pid, self.tid) {
                    Ok((file, state)) => {
                        self.file = Some(file);
                        state
                    }
                    Err(error) => gone_or_blocked(&error),
                }
            }
            Err(error) => gone_or_blocked(&error),
            Ok(state) => state,
        }
    }

    fn run_ns(&mut self) -> Option<u64> {
        if self.schedstat.is_none() {
            let (pid, tid) = (self.pid, self.tid);
            let file = File::open(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
            let run_ns = read_run_ns(&file);
            // Whether threads run is asked far more often: half of the room is for that alone.
            self.schedstat = self.kept(file, MAX_KEPT_FILES / 2);
            return run_ns;
        }
        read_run_ns(self.schedstat.as_ref()?)
    }
}

/// The first number of `schedstat`: what the scheduler has noted, which it does when the thread leaves its
/// processor and with the kernel's tick (Documentation/scheduler/sched-stats.rst). 0 where the kernel keeps
/// no such count.
fn read_run_ns(file: &File) -> Option<u64> {
    let mut text = [0u8; 64];
    let length = file.read_at(&mut text, 0).ok()?;
    let first = text[..length].split(|b| *b == b' ').next()?;
    let run_ns = std::str::from_utf8(first).ok()?.parse().ok()?;
    (run_ns != 0).then_some(run_ns)
}

/// Whether a thread runs, asked once. Nobody is certainly gone whom no file was opened of before.
pub(super) fn state(pid: Pid, tid: Tid) -> State {
    open_state(pid, tid).map_or(State::Blocked, |(_, state)| state)
}

/// The file that says whether a thread runs, and what it says: `syscall` where we may read it (it takes the
/// rights of a debugger, which the kernel asks for at the first read when the file's mode lets us open it),
/// `stat` otherwise.
fn open_state(pid: Pid, tid: Tid) -> io::Result<(File, State)> {
    let open = |name: &str| {
        let file = File::open(format!("/proc/{pid}/task/{tid}/{name}"))?;
        let state = read_state(&file)?;
        Ok((file, state))
    };
    open("syscall").or_else(|error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => open("stat"),
        _ => Err(error),
    })
}

/// `syscall` begins with "running" or a number (proc(5)); `stat` holds the state after the name, which
/// ends with the last parenthesis.
fn read_state(file: &File) -> io::Result<State> {
    let mut text = [0u8; 128];
    let length = file.read_at(&mut text, 0)?;
    let text = &text[..length];
    if text.starts_with(b"running") {
        return Ok(State::Running);
    }
    let state = text
        .iter()
        .rposition(|b| *b == b')')
        .and_then(|at| text.get(at + 2));
    Ok(match state {
        Some(b'R') => State::Running,
        Some(b'X' | b'x' | b'Z') => State::Gone,
        _ => State::Blocked,
    })
}

fn gone_or_blocked(error: &io::Error) -> State {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => State::Gone,
        _ => State::Blocked,
    }
}
