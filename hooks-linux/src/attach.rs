//! The entrance of `stackbeat attach`: the collector has loaded this library into a running process and
//! calls these functions on one of its threads, which it has stopped at a place where a program may call
//! `dlopen`, with all signals blocked, on a stack of its own.
//!
//! The library stays loaded for good: code may have kept pointers to hooks, and threads may be inside
//! one. Detached it is inert, and can be attached again.

use crate::{constructor, descriptor, env, fork_exec, patch, resolve, signal, thread};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering};
use stackbeat_core::agent::{self, Refusal};
use stackbeat_core::attach_status::{Refused, encode};
use stackbeat_core::shm::mapping::MappingError;

/// What is done once in a process.
static PREPARED: AtomicBool = AtomicBool::new(false);

/// Joins the session whose mapping lies at `path`.
///
/// # Safety
/// `path` is a C string; `find_object` is the address of `_dl_find_object` or 0; the thread is at a place
/// where it may call `dlopen`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stackbeat_attach(path: *const c_char, find_object: usize) -> i64 {
    // SAFETY: by contract.
    let path = unsafe { CStr::from_ptr(path) };
    // SAFETY: by contract.
    let join = || unsafe { attach(path, find_object) };
    encode(std::panic::catch_unwind(join).unwrap_or(Err(Refused::Panicked)))
}

/// What is behind the hooks can be found from here on.
pub(crate) fn come() {
    resolve::with_modules_kept(&mut || {
        if resolve::comes_last() {
            resolve::come_late();
        }
    });
}

/// # Safety
/// As for [`stackbeat_attach`].
unsafe fn attach(path: &CStr, find_object: usize) -> Result<usize, Refused> {
    let mut has_sanitizer = false;
    // Other threads may load libraries behind this one, and unload them.
    resolve::with_modules_kept(&mut || {
        if resolve::comes_last() {
            resolve::come_late();
        }
        has_sanitizer = resolve::any_loaded(constructor::DEFERRING_SANITIZERS);
    });
    if has_sanitizer {
        return Err(Refused::Sanitizer);
    }
    // SAFETY: by contract.
    if let Err(refusal) = unsafe { agent::attach(path, find_object) } {
        return Err(match refusal {
            Refusal::Busy => Refused::Busy,
            Refusal::Disabled => Refused::Disabled,
            Refusal::Full => Refused::Full,
            Refusal::Mapping(MappingError::System(_, errno)) => Refused::System(errno.0),
            Refusal::Mapping(MappingError::OtherVersion(_)) => Refused::OtherVersion,
            Refusal::Mapping(MappingError::OtherOwner) => Refused::OtherOwner,
            Refusal::Mapping(MappingError::AddressSpace) => Refused::AddressSpace,
            Refusal::Mapping(MappingError::NotOurs | MappingError::Capacity) => Refused::NotOurs,
        });
    }
    if !env::was_preloaded() {
        // What was known belongs to the time before the hooks were taken away.
        descriptor::forget_range(0, u32::MAX);
    }
    if agent::follow_children()
        && let Some(own_path) = resolve::own_path()
    {
        env::keep(path, own_path);
    }
    if !PREPARED.swap(true, Ordering::Relaxed) && !env::was_preloaded() {
        fork_exec::watch_forks();
        thread::watch_thread_ends();
    }
    signal::start();
    signal::crash::start();
    patch::unpatch::start();
    Ok(patch::patch())
}

/// Leaves the session and puts back what was there before. `collector_is_gone`: 1, it answers nothing any
/// more. Gives the number of slots put back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stackbeat_detach(collector_is_gone: usize) -> i64 {
    let leave = || {
        env::forget();
        let restored = patch::restore();
        signal::stop();
        signal::crash::stop();
        match collector_is_gone {
            0 => agent::detach(),
            _ => agent::abandon(),
        }
        restored
    };
    encode(std::panic::catch_unwind(leave).map_err(|_| Refused::Panicked))
}
