//! Shares the session's mapping with a process that runs already: in a folder that it sees, as a file that
//! its user may open.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

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
}

impl Place {
    /// A process with mounts of its own (a container) gets the mapping into a folder that it sees.
    pub(super) fn choose(target: &Target, options: &mut Options) -> Result<Place, AttachError> {
        if !target.other_mounts || options.mapping_folder.is_some() {
            return Ok(Place { other: None });
        }
        let mut failure = None;
        for folder in [SHARED_MEMORY, "/tmp"] {
            match File::open(attach::seen_by(target.pid, Path::new(folder))) {
                Ok(file) => {
                    let fd = OwnedFd::from(file);
                    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
                    options.mapping_folder = Some(path.into());
                    return Ok(Place {
                        other: Some((folder.into(), fd)),
                    });
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(AttachError::System {
            pid: target.pid,
            step: "it sees no folder in which memory can be shared with it",
            source: failure.unwrap_or_else(|| std::io::ErrorKind::NotFound.into()),
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
