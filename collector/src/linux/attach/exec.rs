//! What may change of a process while it is attached to: which program it executes, whether it runs, which
//! files its names lead to.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use stackbeat_core::ids::Pid;

use super::target::{Status, has_other_mounts, seen_by, until_exec_is_over};
use crate::linux::procfs;

/// Which program a process executes.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pid: Pid,
    /// `None`: not known.
    auxiliary_vector: Option<Vec<u8>>,
}

impl Program {
    pub(super) fn of(pid: Pid) -> Program {
        let auxiliary_vector = until_exec_is_over(pid, || procfs::auxiliary_vector(pid));
        Program {
            pid,
            auxiliary_vector,
        }
    }

    /// Whether it was replaced by another one, or is being replaced.
    pub(super) fn was_replaced(&self) -> bool {
        let is_other = || {
            let now = procfs::auxiliary_vector(self.pid)?;
            (now != *self.auxiliary_vector.as_ref()?).then_some(())
        };
        until_exec_is_over(self.pid, is_other).is_some()
    }
}

/// Whether no thread of a process runs any more.
pub(super) fn has_ended(pid: Pid) -> bool {
    let state = Status::read(pid).map(|status| status.state);
    state.is_none_or(|state| state == 'Z' && procfs::thread_count(pid) == Some(1))
}

/// Opens the file that a process has mapped under a name of its mappings. Such a name is from the root of
/// its mounts where that is not ours, and from our root otherwise, also if the process has changed its own
/// (chroot).
pub(super) fn open_mapped(pid: Pid, name: &str) -> io::Result<File> {
    let name = Path::new(name);
    let place = match has_other_mounts(pid) {
        true => seen_by(pid, name),
        false => name.to_owned(),
    };
    // By now anything may have that name: never block in a pipe or take a terminal.
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(place)
}
