//! Brings the agent into a process that runs already, and sends it away again.
//!
//! One thread of the process is stopped at a place where it may call `dlopen` (`safe_point`), calls it for us
//! with the agent's path, then the agent's own entrance with the session's, and goes on where it was
//! (`tracee`). Everything else, patching the slots of modules included, the agent does itself. The other
//! threads run on all the time.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod api_slots;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod exec;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod image;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod inject;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod safe_point;
mod target;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tracee;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod way_back;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod inject {
    //! Other machines, whose registers nobody has taught us yet, and Android.

    use std::path::Path;

    use stackbeat_core::ids::Pid;

    use super::Target;
    use crate::session::attach_error::AttachError;
    use crate::session::options::AttachStep;

    pub(crate) fn attach(_: &Target, _: &Path, _: &Path) -> Result<AttachStep, AttachError> {
        Err(AttachError::Machine)
    }

    pub(crate) fn detach(_: Pid) -> Result<AttachStep, AttachError> {
        Err(AttachError::Machine)
    }
}

pub(crate) use inject::{attach, detach};
pub use target::Target;
pub(crate) use target::seen_by;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use tracee::registers_to_begin_again;
