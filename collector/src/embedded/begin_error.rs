//! Why a program has no session of its own.

use std::io;

use crate::session::error::RecordError;

/// An error with what led to it, for libraries that can only print.
pub fn error_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// Why [`super::begin`] has begun none.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// What to record is no text of [`super::Wanted::to_text`].
    #[error("what to record cannot be read")]
    Wanted(#[source] serde_json::Error),
    /// One session at a time.
    #[error("this process has a session already")]
    Present,
    /// The system has no thread for it.
    #[error("its thread cannot be started")]
    Thread(#[source] io::Error),
    /// What any recording may fail of.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A defect of stackbeat's.
    #[error("the session's thread panicked")]
    Panicked,
}
