//! Where the recorded processes were whose runtimes write files because we told them to.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use stackbeat_core::ids::Pid;

/// Folders in which processes with maps have been.
#[derive(Debug, Default)]
pub(crate) struct Folders(Mutex<BTreeSet<PathBuf>>);

impl Folders {
    /// That of a process.
    pub(crate) fn add_that_of(&self, pid: Pid) {
        if let Ok(folder) = fs::read_link(format!("/proc/{pid}/cwd")) {
            let mut folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            folders.insert(folder);
        }
    }

    /// These, and the recorder's own, in which it starts the program.
    pub(crate) fn all(&self) -> BTreeSet<PathBuf> {
        let folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        folders.iter().cloned().chain(own_folder()).collect()
    }
}

/// Where this process is.
pub(crate) fn own_folder() -> Option<PathBuf> {
    std::env::current_dir().ok()
}
