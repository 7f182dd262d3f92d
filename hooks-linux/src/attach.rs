//! The entrance of `stackbeat attach`: the collector has loaded this library into a running process and
//! calls these functions on one of its threads, which it has stopped at a place where a program may call
//! `dlopen`, with all signals blocked, on a stack of its own.
//!
//! The library stays loaded for good: code may have kept pointers to hooks, and threads may be inside
//! one. Detached it is inert, and can be attached again.

use crate::{env, patch, process, resolve, signal, start, thread};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering};
use stackbeat_core::agent::{self, Refusal};
use stackbeat_core::mapping::MappingError;

// What `stackbeat_attach` gives besides the number of slots that hold a hook. The collector knows these
// numbers (collector/src/attach/agent.rs).
const BUSY: i64 = -1;
const DISABLED: i64 = -2;
const FULL: i64 = -3;
const SANITIZER: i64 = -4;
const PANICKED: i64 = -5;
const OTHER_VERSION: i64 = -6;
const NOT_OURS: i64 = -7;
/// Less the error number.
const SYSTEM: i64 = -1000;

/// What is done once in a process.
static PREPARED: AtomicBool = AtomicBool::new(false);

/// Joins the session whose mapping lies at `path`.
///
/// # Safety
/// `path` is a C string; `find_object` is the address of `_dl_find_object` or 0; the thread is at a place where it may call `dlopen`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stackbeat_attach(path: *const c_char, find_object: usize) -> i64 {
    // SAFETY: by contract.
    let path = unsafe { CStr::from_ptr(path) };
    // SAFETY: by contract.
    let join = || unsafe { attach(path, find_object) };
    std::panic::catch_unwind(join).unwrap_or(PANICKED)
}

/// # Safety
/// As for [`stackbeat_attach`].
unsafe fn attach(path: &CStr, find_object: usize) -> i64 {
    if resolve::comes_last() {
        resolve::come_late();
    }
    if resolve::any_loaded(start::DEFERRING_SANITIZERS) {
        return SANITIZER;
    }
    // SAFETY: by contract.
    if let Err(refusal) = unsafe { agent::attach(path, find_object) } {
        return match refusal {
            Refusal::Busy => BUSY,
            Refusal::Disabled => DISABLED,
            Refusal::Full => FULL,
            Refusal::Mapping(MappingError::System(_, errno)) => SYSTEM - i64::from(errno.0),
            Refusal::Mapping(MappingError::OtherVersion(_)) => OTHER_VERSION,
            Refusal::Mapping(_) => NOT_OURS,
        };
    }
    if agent::follow_children()
        && let Some(own_path) = resolve::own_path()
    {
        env::keep(path, own_path);
    }
    if !PREPARED.swap(true, Ordering::Relaxed) && !start::was_preloaded() {
        process::watch_forks();
        thread::watch_thread_ends();
    }
    signal::start();
    patch::patch() as i64
}

/// Leaves the session and puts back what was there before. Gives the number of slots put back.
#[unsafe(no_mangle)]
pub extern "C" fn stackbeat_detach() -> i64 {
    std::panic::catch_unwind(|| {
        env::forget();
        let restored = patch::restore();
        signal::stop();
        agent::detach();
        restored as i64
    })
    .unwrap_or(PANICKED)
}
