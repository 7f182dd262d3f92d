//! Why a session refuses what a client asks for. Each message says what would be accepted.

use stackbeat_core::probe::Category;

use crate::session::dump_error::DumpError;
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

fn known_groups() -> String {
    let known: Vec<_> = Category::SELECTABLE.iter().map(|c| c.name()).collect();
    known.join(", ")
}
