//! What an app is told when something cannot be done.

use std::path::PathBuf;

use stackbeat_collector::embedded::BeginError;
use stackbeat_core::agent;

/// Why a session does not begin, or does not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("no folder is given")]
    NoFolder,
    #[error("no file is given")]
    NoFile,
    #[error("this process is recorded already")]
    IsRecorded,
    #[error("this process is not recorded: call start before")]
    IsNotRecorded,
    #[error("another recorder's agent is in this process: end that recording first")]
    OtherRecorder,
    #[error("{}", folder.display())]
    Folder {
        folder: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Begin(#[from] BeginError),
    #[error(transparent)]
    Path(#[from] std::ffi::NulError),
    #[error("the agent stays out: {0:?}")]
    StaysOut(agent::Refusal),
    /// In the session's words.
    #[error("{0}")]
    Refused(String),
    #[error("a defect: it panicked")]
    Panicked,
}
