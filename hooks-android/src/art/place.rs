//! Hooks that are placed in ART's code: by the first inline backend that can.

use core::ffi::c_void;
use core::sync::atomic::AtomicPtr;
use std::sync::{Mutex, PoisonError};

use crate::backend::inline::backends;
use crate::backend::{Placed, Request};
use crate::doctor::State;

/// Loads what backends need. Placing loads nothing any more.
pub(crate) fn load_backends() {
    let _ = backends();
}

/// The hooks that are there.
static PLACED: Mutex<Vec<Placed>> = Mutex::new(Vec::new());

/// Places a jump at a function's begin. Says what became of it.
///
/// # Safety
/// `at` is a function of ART's of the type of `by`, and no thread is at its first instructions.
pub(crate) unsafe fn place(
    name: &'static str,
    (at, size): (*mut c_void, usize),
    by: *mut c_void,
    original: &'static AtomicPtr<c_void>,
) -> State {
    let request = Request {
        name,
        target: at,
        size,
        replacement: by,
        original,
    };
    // SAFETY: by contract.
    let report = unsafe { crate::backend::place_all(&backends(), &[request]) };
    let state = match (report.placed.first(), report.refused.first()) {
        (Some(placed), _) => State::Placed(placed.backend),
        (None, Some((_, reasons))) => State::refused(reasons),
        (None, None) => State::refused(&[]),
    };
    let mut placed = PLACED.lock().unwrap_or_else(PoisonError::into_inner);
    placed.extend(report.placed);
    state
}

/// Takes a hook away.
///
/// # Safety
/// No thread is at the function's first instructions.
pub(crate) unsafe fn remove(at: *mut c_void) {
    let mut placed = PLACED.lock().unwrap_or_else(PoisonError::into_inner);
    let of_function = placed
        .iter()
        .position(|placed| placed.target() == at.addr());
    if let Some(placed) = of_function.map(|i| placed.swap_remove(i)) {
        // SAFETY: by contract; ART is never unloaded.
        let errors = unsafe { crate::backend::remove_all(&backends(), vec![placed]) };
        errors
            .iter()
            .for_each(|error| eprintln!("stackbeat: {error}"));
    }
}
