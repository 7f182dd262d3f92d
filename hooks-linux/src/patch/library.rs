//! Loading and unloading of libraries (`dlopen`, `dlmopen`, `dlclose`). After each load [`super`] looks for
//! new modules; in a process that was attached to, after `dlsym` and `dlvsym` too.
//!
//! `dlopen` searches the RUNPATH of whoever called it, so its hook is a jump ([`jump_after`]).

use core::ffi::{c_char, c_int, c_void};
use stackbeat_core::agent;
use stackbeat_core::jump_after;
use stackbeat_core::probe::Probe;

original!(fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void);
original!(fn dlmopen(namespace: isize, path: *const c_char, flags: c_int) -> *mut c_void);

/// `dlopen` and `dlmopen`.
mod load {
    crate::hooked_functions::function!(dlopen = LibraryLoad);
}

extern "C" fn loading() {
    load::called();
    agent::hit(Probe::LibraryLoad, 0);
    super::look_for_new();
}

/// What was loaded is about to be used.
extern "C" fn using() {
    super::look_for_new();
}

jump_after! { loading:
    #[unsafe(no_mangle)]
    pub(crate) dlopen = dlopen::ORIGINAL;
    #[unsafe(no_mangle)]
    pub(crate) dlmopen = dlmopen::ORIGINAL;
}

// These look at their caller too (RTLD_NEXT). Hooked only in a process that was attached to: the first use
// of a library means that it has been loaded and has slots to be patched.
original!(fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void);
original!(fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void);

jump_after! { using:
    pub(crate) dlsym_when_late = dlsym::ORIGINAL;
    pub(crate) dlvsym_when_late = dlvsym::ORIGINAL;
}

original!(fn dlclose(handle: *mut c_void) -> c_int = LibraryLoad);
/// `dlclose` does not look at its caller. Captures meanwhile, and the next one, trust nothing that is
/// known of the library.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    dlclose::called();
    agent::hit(Probe::LibraryLoad, handle as u64);
    agent::unloading_begins();
    // SAFETY: the caller's argument, passed on.
    let result = unsafe { dlclose::call(handle) };
    agent::unloading_ends();
    result
}
