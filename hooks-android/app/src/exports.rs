//! What native code of the app finds by name, as in a library that is preloaded on Linux. Their names and
//! types never change.

use core::ffi::{c_char, c_void};

use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

/// See `stackbeat_runtime.h`.
#[unsafe(no_mangle)]
extern "C" fn stackbeat_runtime(version: u32) -> *const c_void {
    agent::runtime_table(version)
}

/// A mark, a scope, a counter or a station of a flow: see `stackbeat.h`.
///
/// # Safety
/// `name` is null, or readable for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn stackbeat_v1_event(kind: u32, name: *const c_char, length: usize, value: i64) {
    // SAFETY: by contract.
    unsafe { agent::event_of_c(kind, name, length, value) }
}

/// The calling thread's stack, now.
#[unsafe(no_mangle)]
extern "C" fn stackbeat_v1_capture() {
    agent::force(Probe::Mark, 0);
}
