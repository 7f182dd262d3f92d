//! Hooks that are placed in ART's code: by the first inline backend that can.

use core::ffi::c_void;
use core::sync::atomic::AtomicPtr;
use std::sync::{Mutex, PoisonError};

use crate::backend::{HookBackend, Placed, Request};

/// The backends in the order in which they are tried.
fn backends() -> Vec<&'static dyn HookBackend> {
    #[cfg(all(
        feature = "dobby",
        any(
            target_os = "android",
            all(target_os = "linux", target_arch = "x86_64")
        )
    ))]
    {
        use crate::backend::dobby::Dobby;
        static DOBBY: std::sync::LazyLock<Dobby> = std::sync::LazyLock::new(Dobby::new);
        vec![&*DOBBY]
    }
    #[cfg(not(all(
        feature = "dobby",
        any(
            target_os = "android",
            all(target_os = "linux", target_arch = "x86_64")
        )
    )))]
    Vec::new()
}

/// The hooks that are there.
static PLACED: Mutex<Vec<Placed>> = Mutex::new(Vec::new());

/// Places a jump at a function's begin.
///
/// # Errors
/// What each backend says.
///
/// # Safety
/// `at` is a function of ART's of the type of `by`, and no thread is at its first instructions.
pub(crate) unsafe fn place(
    name: &'static str,
    (at, size): (*mut c_void, usize),
    by: *mut c_void,
    original: &'static AtomicPtr<c_void>,
) -> Result<(), String> {
    let request = Request {
        name,
        target: at,
        size,
        replacement: by,
        original,
    };
    // SAFETY: by contract.
    let report = unsafe { crate::backend::place_all(&backends(), &[request]) };
    let mut placed = PLACED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_placed = !report.placed.is_empty();
    placed.extend(report.placed);
    if is_placed {
        return Ok(());
    }
    let reasons = report.refused.into_iter().flat_map(|(_, reasons)| reasons);
    let reasons: Vec<String> = reasons.map(|reason| reason.to_string()).collect();
    Err(match reasons.is_empty() {
        true => "there is no backend".into(),
        false => reasons.join("; "),
    })
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
