//! What recorders that were killed have left in shared memory: removes what holds nothing, names what can be
//! recovered.
//!
//! A recorder holds a lock on its mapping's file (flock(2)), which ends with it however it ends, and which is
//! seen from other pid namespaces, too.

use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use stackbeat_core::platform;
use stackbeat_core::shm::layout::buffer_state;
use stackbeat_core::shm::mapping::{Mapping, MappingError};
use stackbeat_core::shm::registry;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::summary::Outcome;
use stackbeat_symbolize::paths;

use super::{COPY_PREFIX, Orphan, checked_open, header_of, is_user_of, session_id, trace_of};
use crate::session::storage::PREFIX;

/// Files that are younger are left alone: a recorder that has just made one may not have locked it yet.
pub const YOUNG: Duration = Duration::from_secs(60);

/// A file that was removed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The file.
    pub path: PathBuf,
    /// Memory that it took.
    pub bytes: u64,
    /// Why nobody needs it.
    pub reason: &'static str,
}

/// What recorders that are gone have left of this user's.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// Files that are gone now.
    pub removed: Vec<Removed>,
    /// Recordings that `recover` can save.
    pub kept: Vec<Orphan>,
}

/// Looks through `folder` (/dev/shm), and removes what belongs to nobody. What cannot be read stays.
pub fn tidy(folder: &Path, youngest: Duration) -> Leftovers {
    let mut found = Leftovers::default();
    let Ok(items) = fs::read_dir(folder) else {
        return found;
    };
    let mut paths: Vec<PathBuf> = items.flatten().map(|item| item.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let Some((_lock, metadata)) = is_name_of_ours(name)
            .then(|| abandoned(&path, youngest))
            .flatten()
        else {
            continue;
        };
        let bytes = metadata.blocks() * 512;
        match judge(&path, bytes) {
            Judgement::Remove(reason) => {
                if fs::remove_file(&path).is_ok() {
                    found.removed.push(Removed {
                        path,
                        bytes,
                        reason,
                    });
                }
            }
            Judgement::Keep(orphan) => found.kept.push(orphan),
            Judgement::Leave => {}
        }
    }
    found
}

/// Mappings in `folder` of this user's sessions inside programs whose process is gone. The lock is
/// free then: who makes a mapping locks its file before it is complete.
pub(crate) fn of_embedded(folder: &Path) -> Vec<Abandoned> {
    let is_one = |path: PathBuf| {
        let (lock, _) = abandoned(&path, Duration::ZERO)?;
        let mapping = checked_open(&path).ok()?;
        let pid = mapping.header().collector_pid.load(Ordering::Relaxed);
        // Its own process takes part.
        let is_inside =
            registry::processes(&mapping).any(|(_, e)| e.pid.load(Ordering::Relaxed) == pid);
        let trace = trace_of(&mapping);
        (is_inside && trace.is_absolute()).then_some(Abandoned {
            mapping: path,
            pid,
            trace,
            _lock: lock,
        })
    };
    paths::files_of(folder)
        .into_iter()
        .filter(|path| is_name_of_ours(path.file_name().unwrap_or_default().as_bytes()))
        .filter_map(is_one)
        .collect()
}

/// What a session inside a program has left. Nobody else completes it meanwhile.
pub(crate) struct Abandoned {
    pub mapping: PathBuf,
    pub pid: u32,
    pub trace: PathBuf,
    _lock: File,
}

/// Whether a recorder or `recover` makes files of such a name: `stackbeat.PID.8 HEXADECIMAL DIGITS`, or
/// `stackbeat-copy.PID.NUMBER`. A user's traces may begin alike.
fn is_name_of_ours(name: &[u8]) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_id = |part: &str| part.len() == 8 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts = |prefix| {
        str::from_utf8(name)
            .ok()?
            .strip_prefix(prefix)?
            .split_once('.')
    };
    parts(PREFIX).is_some_and(|(pid, id)| is_number(pid) && is_id(id))
        || parts(COPY_PREFIX).is_some_and(|(pid, number)| is_number(pid) && is_number(number))
}

enum Judgement {
    Remove(&'static str),
    Keep(Orphan),
    /// Not for us to judge.
    Leave,
}

/// A file of this user's whose recorder is gone, with the lock that the recorder held.
fn abandoned(path: &Path, youngest: Duration) -> Option<(File, fs::Metadata)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    let user = platform::effective_user();
    let age = |time: SystemTime| time.elapsed().unwrap_or_default();
    if !metadata.is_file() || metadata.uid() != user || age(metadata.modified().ok()?) < youngest {
        return None;
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    locked.is_ok().then_some((file, metadata))
}

fn judge(path: &Path, bytes: u64) -> Judgement {
    let name = path.file_name().unwrap_or_default().as_bytes();
    if name.starts_with(COPY_PREFIX.as_bytes()) {
        return Judgement::Remove("a copy that a killed `recover` worked on");
    }
    let mapping = match checked_open(path) {
        Ok(mapping) => mapping,
        Err(MappingError::NotOurs) if is_mapped_by_anybody(path) => return Judgement::Leave,
        Err(MappingError::NotOurs) => {
            return Judgement::Remove("cut off, or its recorder was killed before it was complete");
        }
        // Its own version can tell.
        Err(_) => return Judgement::Leave,
    };
    let orphan = Orphan {
        mapping: path.to_path_buf(),
        collector_pid: mapping.header().collector_pid.load(Ordering::Relaxed),
        trace: trace_of(&mapping),
        bytes,
        still_running: is_mapped_by_anybody(path),
    };
    if orphan.still_running {
        // A recorder of a version that did not lock its file, or processes of the program.
        return match is_user_of(orphan.collector_pid, path) {
            true => Judgement::Leave,
            false => Judgement::Keep(orphan),
        };
    }
    let header = header_of(&orphan.trace).filter(|h| h.session_id == session_id(&mapping));
    let outcome = header
        .as_ref()
        .map(|h| h.summary.as_ref().map_or(Outcome::Running, |s| s.outcome()));
    match outcome {
        Some(Outcome::Finished | Outcome::Recovered) => {
            Judgement::Remove("its trace is complete without it")
        }
        _ if !has_processes(&mapping) => Judgement::Remove("nobody was recorded into it"),
        None if !has_records(&mapping) => {
            Judgement::Remove("its trace is gone, and it holds no record")
        }
        _ => Judgement::Keep(orphan),
    }
}

fn has_processes(mapping: &Mapping) -> bool {
    mapping.control().processes_used.load(Ordering::Relaxed) > 0
}

/// Whether some sub-buffer holds records that are in no trace.
fn has_records(mapping: &Mapping) -> bool {
    let buffers = (0..mapping.buffers()).filter_map(|i| mapping.buffer(i));
    buffers
        .filter(|b| b.state.load(Ordering::Relaxed) as u32 != buffer_state::FREE)
        .any(|b| b.committed.load(Ordering::Relaxed) != b.drained.load(Ordering::Relaxed))
}

/// Whether another process, one that we may read, has this file mapped.
pub(super) fn is_mapped_by_anybody(path: &Path) -> bool {
    let Ok(items) = fs::read_dir("/proc") else {
        return true;
    };
    items
        .filter_map(|item| item.ok()?.file_name().to_str()?.parse().ok())
        .any(|pid| pid != std::process::id() && is_user_of(pid, path))
}
