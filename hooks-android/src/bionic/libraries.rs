//! Libraries that are loaded while the hooks are there: their slots are changed when they come.
//!
//! What has been loaded is looked for before the next `dlopen`, `android_dlopen_ext` or `dlsym`: a library
//! that somebody loads is one that he asks for a function, as ART asks for `JNI_OnLoad`. Calls of a library's
//! constructors are not seen. The linker takes the namespace from its caller, so all three are jumps
//! (`stackbeat_core::jump_after`).
//!
//! A thread may hold the linker's lock here. So it waits for no other thread: where somebody else changes
//! slots, the next call looks.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use stackbeat_core::agent;
use stackbeat_core::jump_after;
use stackbeat_core::posix::function_table::{self, Function};
use stackbeat_core::probe::Probe;

use crate::backend::slots::Slots;

static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
#[cfg(target_os = "android")]
static ANDROID_DLOPEN_EXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// bionic's own, in `android/dlext.h`, is left out elsewhere.
pub(super) const FUNCTIONS: &[Function] = super::functions! {
    dlopen = DLOPEN;
    dlsym = DLSYM;
    #[cfg(target_os = "android")]
    android_dlopen_ext = ANDROID_DLOPEN_EXT;
};

/// Whose hooks are placed.
static SLOTS: AtomicPtr<Slots> = AtomicPtr::new(ptr::null_mut());

/// Before the hooks are placed.
pub(super) fn begin(slots: &'static Slots) {
    SLOTS.store(ptr::from_ref(slots).cast_mut(), Ordering::Release);
}

jump_after! { loading:
    dlopen = DLOPEN;
    #[cfg(target_os = "android")]
    android_dlopen_ext = ANDROID_DLOPEN_EXT;
}

jump_after! { look:
    dlsym = DLSYM;
}

extern "C" fn loading() {
    agent::hit(Probe::LibraryLoad, 0);
    look();
}

extern "C" fn look() {
    // SAFETY: null, or a value that stays.
    let slots = unsafe { SLOTS.load(Ordering::Acquire).as_ref() };
    // SAFETY: the calling thread's own.
    let (errno, before) = unsafe { (function_table::errno(), *function_table::errno()) };
    slots.map(Slots::look_for_loaded);
    // SAFETY: as above.
    unsafe { *errno = before };
}
