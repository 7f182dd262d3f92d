//! What runtimes of managed code tell of themselves: methods, generated code, and how their frames are found.
//! For libraries that know a runtime and are loaded beside the agent (`stackbeat_runtime.h`).

use super::session;
use super::wake::{Awaited, WaitFor, begin_wait_for_at};
use crate::managed::frame_sources::{self, FrameSource};
use crate::managed::own_methods;
use crate::native::generated_code::{self, Handle, Piece};
use crate::probe::Probe;
use crate::shm::methods::{Description, Methods};

/// The number of a method, for good; 0: no room. Equal descriptions are one method.
///
/// # Signal safety
/// Takes no lock, allocates nothing.
pub fn add_method(description: &Description) -> u32 {
    own_methods::add(description).unwrap_or(0)
}

/// Adds code that a runtime has made. `None`: the piece is not in order, or there is no room.
pub fn add_code(piece: &Piece) -> Option<Handle> {
    prepare();
    generated_code::add(piece)
}

/// Removes code. False: there is none of this handle.
pub fn remove_code(handle: Handle) -> bool {
    generated_code::remove(handle)
}

/// Adds a source of frames for good. False: there are too many.
pub fn add_source(source: &'static FrameSource) -> bool {
    prepare();
    frame_sources::add(source)
}

/// The recording's table of methods gets storage now: the first captures may bring more than it has at the
/// start.
fn prepare() {
    if let Some(mapping) = session::mapping() {
        // Without room for it, methods have no number, which captures count.
        let _ = Methods::mapped(mapping);
    }
}

/// A wait of a runtime's begins, seen from outside at this pc, stack pointer and frame pointer: those of a
/// frame that stays until it has ended. `None`: there is no recording.
pub fn begin_wait_at(
    probe: Probe,
    arg: u64,
    awaited: Option<Awaited>,
    at: [u64; 3],
) -> Option<WaitFor> {
    session::is_active().then(|| begin_wait_for_at(probe, arg, awaited, at))
}
