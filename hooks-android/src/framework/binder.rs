//! Calls of other processes by Binder: a wait from the call to its reply. One that wants no reply is no wait.
//!
//! Source: frameworks/native, libs/binder/IPCThreadState.cpp: `transact` waits for the reply, unless its
//! flags say one-way.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

/// frameworks/native, libs/binder/include/binder/IBinder.h: `FLAG_ONEWAY`, which the kernel's
/// `linux/android/binder.h` calls `TF_ONE_WAY`.
const ONE_WAY: u32 = 1;

pub(super) static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

type Transact =
    unsafe extern "C-unwind" fn(*mut c_void, i32, u32, *const c_void, *mut c_void, u32) -> i32;

/// What stands in the trace: the code in the upper half, the handle in the lower one.
fn argument(handle: i32, code: u32) -> u64 {
    u64::from(code) << 32 | u64::from(handle.cast_unsigned())
}

/// `IPCThreadState::transact`. Meanwhile the thread may serve calls of the other process.
pub(super) unsafe extern "C-unwind" fn transact(
    state: *mut c_void,
    handle: i32,
    code: u32,
    data: *const c_void,
    reply: *mut c_void,
    flags: u32,
) -> i32 {
    // SAFETY: of this type; stored before anybody comes here.
    let original: Transact = unsafe { core::mem::transmute(ORIGINAL.load(Ordering::Acquire)) };
    let argument = argument(handle, code);
    if flags & ONE_WAY != 0 {
        agent::hit(Probe::BinderTransact, argument);
        // SAFETY: the caller's arguments, passed on.
        return unsafe { original(state, handle, code, data, reply, flags) };
    }
    let wait = agent::begin_wait(Probe::BinderTransact, argument);
    // SAFETY: as above.
    let status = unsafe { original(state, handle, code, data, reply, flags) };
    wait.end(status.into());
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_handle_have_half_a_word_each() {
        assert_eq!(argument(7, 0x5f4e_5446), 0x5f4e_5446_0000_0007);
        assert_eq!(argument(-1, 1), 0x1_ffff_ffff);
    }
}
