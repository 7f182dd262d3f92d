//! Brings the agent into a process that runs already, and sends it away again.
//!
//! One thread of the process is stopped at a place where it may call `dlopen` (`place`), calls it for us
//! with the agent's path, then the agent's own entrance with the session's, and goes on where it was
//! (`tracee`). Everything else, patching the slots of modules included, the agent does itself. The other
//! threads run on all the time.

#[cfg(target_arch = "x86_64")]
mod asking;
mod error;
#[cfg(target_arch = "x86_64")]
mod image;
#[cfg(target_arch = "x86_64")]
mod inject;
#[cfg(target_arch = "x86_64")]
mod place;
mod target;
#[cfg(target_arch = "x86_64")]
mod tracee;

#[cfg(not(target_arch = "x86_64"))]
mod inject {
    //! Machines whose registers nobody has taught us yet.

    use std::path::Path;

    use super::{AttachError, Held, Target, Visit};

    pub fn attach(
        _: &Target,
        _: &Path,
        _: &Path,
        _: &mut dyn FnMut(Held),
    ) -> Result<Visit, AttachError> {
        Err(AttachError::Machine)
    }

    pub fn detach(_: u32, _: &mut dyn FnMut(Held)) -> Result<Visit, AttachError> {
        Err(AttachError::Machine)
    }
}

use std::fmt;
use std::time::Duration;

pub use error::AttachError;
pub use inject::{attach, detach};
pub use target::{Target, seen_by};

/// What a visit to a process cost it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// How long the thread that did the work was kept from its own.
    pub pause: Duration,
    /// Everything, with looking for a thread.
    pub total: Duration,
    /// Threads that were stopped and let go again because they were at a bad place.
    pub refused: u32,
    /// Slots that hold a hook now, or were put back.
    pub slots: u64,
}

/// A thread that was used for a visit and cannot be given back yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub pid: u32,
    pub tid: u32,
    /// For how long it has not stopped.
    pub time: Duration,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: thread {} has not stopped for {} s: it is in a call that cannot be interrupted, which it makes for the \
             recorder; it is waited for, because the program would die of it if it were left there",
            self.pid,
            self.tid,
            self.time.as_secs()
        )
    }
}
