//! Why a session refuses what a client asks for. Each message says what would be accepted.

use std::io;
use std::path::PathBuf;

use stackbeat_core::probe::Category;

use crate::session::options::{MAX_INTERVAL_NS, MIN_INTERVAL_NS};
use crate::session::protocol::MAX_MARK;

/// Why a request was not carried out. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "an interval of {ns} ns is out of range: {MIN_INTERVAL_NS} to {MAX_INTERVAL_NS} ns are possible"
    )]
    Interval { ns: u64 },
    #[error("`{name}` is no mode; known are endless, ring and startup")]
    Mode { name: String },
    #[error("`{name}` is no group of probes; known are {}", known_groups())]
    Probes { name: String },
    #[error("nothing to set: name an interval, probes or a mode")]
    NothingToSet,
    #[error("a mark has 1 to {MAX_MARK} bytes of text, not {bytes}")]
    Mark { bytes: usize },
    #[error(transparent)]
    Dump(#[from] DumpError),
}

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
    pub(super) fn of_io(output: PathBuf, source: io::Error) -> DumpError {
        match source.kind() {
            io::ErrorKind::AlreadyExists => DumpError::OutputExists { output },
            _ => DumpError::Io { output, source },
        }
    }
}

fn known_groups() -> String {
    let known: Vec<_> = Category::SELECTABLE.iter().map(|c| c.name()).collect();
    known.join(", ")
}
