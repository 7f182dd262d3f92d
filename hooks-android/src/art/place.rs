//! Hooks that are placed in ART's code: by the first inline backend that can.

use core::ffi::c_void;
use core::sync::atomic::AtomicPtr;
use std::sync::{Mutex, PoisonError};

use crate::backend::{HookBackend, Placed, Request};
use crate::doctor::State;

/// The backends in the order in which they are tried: ShadowHook where the app carries it and it is made for
/// the processor, then Dobby.
fn backends() -> Vec<&'static dyn HookBackend> {
    // Where there is none.
    #[allow(unused_mut)]
    let mut all: Vec<&'static dyn HookBackend> = Vec::new();
    #[cfg(all(
        target_os = "android",
        any(target_arch = "arm", target_arch = "aarch64")
    ))]
    {
        use crate::backend::shadowhook::{LIBRARY, ShadowHook};
        use std::sync::LazyLock;
        // SAFETY: an app has no other library of this name.
        static SHADOWHOOK: LazyLock<Option<ShadowHook>> =
            LazyLock::new(|| unsafe { ShadowHook::load(LIBRARY) }.ok());
        all.extend(
            SHADOWHOOK
                .as_ref()
                .map(|backend| backend as &dyn HookBackend),
        );
    }
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
        all.push(&*DOBBY);
    }
    all
}

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
