//! Shares the session's mapping with a process that runs already: in a folder that it sees, as a file that
//! its user may open.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags, access, open};

use super::attach::{self, Target};
use crate::session::attach_error::AttachError;
use crate::session::options::Options;
use crate::session::storage::{SHARED_MEMORY, Storage};

/// Where the mapping lies, for us and for the process.
#[derive(Debug)]
pub(super) struct Place {
    /// The folder as the process sees it, if that is another one; kept open, so that it can be reached when
    /// the process is gone.
    other: Option<(PathBuf, OwnedFd)>,
    /// Kept open, so that names are found when the process is gone.
    _root: Option<OwnedFd>,
}

impl Place {
    /// A process with mounts of its own (a container) gets the mapping into a folder that it sees, and names
    /// come from the files that it sees.
    pub(super) fn choose(target: &Target, options: &mut Options) -> Result<Place, AttachError> {
        if !target.other_mounts {
            return Ok(Place {
                other: None,
                _root: None,
            });
        }
        let root = open_folder(&attach::seen_by(target.pid, Path::new("/"))).ok();
        options.names.root = root.as_ref().map(path_of);
        let other = match options.mapping_folder {
            Some(_) => None,
            None => {
                let (folder, fd) = Place::folder(target)?;
                options.mapping_folder = Some(path_of(&fd));
                Some((folder, fd))
            }
        };
        Ok(Place { other, _root: root })
    }

    /// A folder in which memory can be shared with a process, as it sees it and open.
    fn folder(target: &Target) -> Result<(PathBuf, OwnedFd), AttachError> {
        let mut failure = None;
        for folder in [SHARED_MEMORY, "/tmp"] {
            let seen = attach::seen_by(target.pid, Path::new(folder));
            let is_writable = access(&seen, Access::WRITE_OK).map_err(io::Error::from);
            match is_writable.and_then(|()| open_folder(&seen)) {
                Ok(fd) => return Ok((folder.into(), fd)),
                Err(error) => failure = Some(error),
            }
        }
        Err(AttachError::System {
            pid: target.pid,
            step: "in none of the folders that it sees can memory be shared with it (/dev/shm, /tmp)",
            source: failure.unwrap_or_else(|| io::ErrorKind::NotFound.into()),
        })
    }

    /// The mapping's path as the process sees it.
    pub(super) fn inside(&self, storage: &Storage) -> PathBuf {
        match &self.other {
            Some((folder, _)) => folder.join(storage.path.file_name().unwrap_or_default()),
            None => storage.path.clone(),
        }
    }
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// A path to what a descriptor of ours refers to.
fn path_of(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// Lets a process' user open the mapping.
pub(super) fn give(storage: &Storage, target: &Target) -> Result<(), AttachError> {
    let (user, group) = target.user;
    let owner = std::fs::metadata(&storage.path).map(|m| m.uid());
    if owner.is_ok_and(|owner| owner == user) {
        return Ok(());
    }
    chown(&storage.path, Some(user), Some(group)).map_err(|source| AttachError::System {
        pid: target.pid,
        step: "the shared memory cannot be given to its user",
        source,
    })
}
