//! Mapping calls of the program.

use core::ffi::{c_int, c_void};
use libc::{off_t, size_t};
use stackbeat_core::agent;
use stackbeat_core::platform::{self, Backing};
use stackbeat_core::probe::Probe;

stackbeat_core::posix_mapping! { hooks }
stackbeat_core::linux_mapping! { hooks }

hooks! {
    hit fn pkey_mprotect(address: *mut c_void, bytes: size_t, protection: c_int, key: c_int) -> c_int = Mprotect(bytes) [];
}

/// Maps zeroed memory for ourselves, past the hook.
pub(crate) fn map_anonymous(bytes: size_t) -> Option<*mut c_void> {
    let memory = platform::map(bytes, Backing::Anonymous, 0).ok()?;
    Some(memory.cast())
}

/// Changes the protection of pages, past the hook. False when the kernel refuses.
///
/// # Safety
/// Nobody needs the protection that the pages have now.
pub(crate) unsafe fn protect(address: usize, bytes: size_t, protection: c_int) -> bool {
    let arguments = [address, bytes, protection as usize, 0, 0, 0];
    // SAFETY: by contract.
    platform::allows(libc::SYS_mprotect, arguments)
        && unsafe { mprotect::call(address as *mut c_void, bytes, protection) == 0 }
}

/// Gives back what [`map_anonymous`] mapped.
///
/// # Safety
/// Nothing uses the memory any more.
pub(crate) unsafe fn unmap(memory: *mut c_void, bytes: size_t) {
    // SAFETY: by contract.
    unsafe { platform::unmap(memory.cast(), bytes) };
}
