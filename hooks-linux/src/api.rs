//! What a program can ask for by itself, through `stackbeat.h` or the crate `stackbeat-api`, which look
//! these functions up by name. Their names and types never change; a change gets another version.

use core::ffi::c_char;
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

/// A mark, the begin or end of a scope, a counter or a station of a flow: `kind` is a number of
/// `stackbeat.v1.Event.Kind`, 10 for a counter.
///
/// # Safety
/// `name` is readable for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn stackbeat_v1_event(kind: u32, name: *const c_char, length: usize, value: i64) {
    let name = if name.is_null() {
        &[]
    } else {
        // SAFETY: by contract.
        unsafe { core::slice::from_raw_parts(name.cast::<u8>(), length) }
    };
    if let Ok(kind) = u8::try_from(kind) {
        agent::event(kind, name, value);
    }
}

/// The calling thread's stack, now.
#[unsafe(no_mangle)]
extern "C" fn stackbeat_v1_capture() {
    agent::force(Probe::Mark, 0);
}
