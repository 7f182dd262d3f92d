//! Why Java stays unrecorded.

use super::versions::Function;

/// Why nothing of ART is hooked.
#[derive(Debug, thiserror::Error)]
pub enum ArtError {
    /// The agent's table is none that this adapter knows.
    #[error("the agent is of another version")]
    AgentVersion,
    /// It failed before in this process.
    #[error("it was tried before")]
    TriedBefore,
    /// There is no ART that is known, or its file cannot be read.
    #[error("{0}")]
    NotFound(std::io::Error),
    /// This ART has not got all that is needed.
    #[error("ART {version} lacks {what}: {functions:?}")]
    Lacks {
        /// Android's version.
        version: u8,
        /// What cannot be done.
        what: &'static str,
        /// Its functions that were not found.
        functions: Vec<Function>,
    },
    /// The agent has as many runtimes as it can have.
    #[error("no room for another runtime")]
    NoRoom,
    /// A test wants what this ART cannot do.
    #[cfg(feature = "rig")]
    #[error("ART {version} cannot suspend single threads")]
    NoSuspension {
        /// Android's version.
        version: u8,
    },
}
