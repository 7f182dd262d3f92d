//! Why a dump was not written, by a client's request or by itself.

use std::io;
use std::path::PathBuf;

/// Why a dump was not written.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The collector's working folder is not the client's, so only an absolute path says where.
    #[error("{}: not an absolute path", output.display())]
    RelativePath {
        /// The path as it was asked for.
        output: PathBuf,
    },
    /// The drain has stopped before it came to this order.
    #[error("the session has ended meanwhile")]
    SessionEnded,
    /// The output is there and may not be replaced.
    #[error("{}: exists already; choose another output or allow to replace it", output.display())]
    OutputExists {
        /// The file that is in the way.
        output: PathBuf,
    },
    /// The session's trace cannot be read again, or the output cannot be written.
    #[error("{}: {source}", output.display())]
    Io {
        /// Where the dump was to go.
        output: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl DumpError {
    /// What became of an attempt to write to `output`.
    pub(crate) fn of_io(output: PathBuf, source: io::Error) -> DumpError {
        match source.kind() {
            io::ErrorKind::AlreadyExists => DumpError::OutputExists { output },
            _ => DumpError::Io { output, source },
        }
    }
}
