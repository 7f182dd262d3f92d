//! `sigaltstack`: the program does not see the alternate stack of ours (`agent::alternate_stack`), which it
//! gets back where it takes its own away.

use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr::null;
use libc::{EPERM, SS_DISABLE, stack_t};
use stackbeat_core::agent;

original!(fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int {
    let Some(ours) = agent::alternate_stack() else {
        // SAFETY: the caller's arguments, passed on.
        return unsafe { sigaltstack::call(new, old) };
    };
    let error = || {
        // SAFETY: the thread's own.
        unsafe { *libc::__errno_location() }
    };
    let before = error();
    if !new.is_null() {
        agent::alternate_stack_changes(new);
    }
    // The kernel looks at the caller's pointers first: bad ones are its to refuse.
    // SAFETY: the caller's arguments, passed on, and a local.
    unsafe {
        let mut now: stack_t = zeroed();
        // None of our signals comes before it is known how large the new one is.
        let mut result = agent::undisturbed(|| {
            let result = sigaltstack::call(new, old);
            if !new.is_null() && sigaltstack::call(null(), &mut now) == 0 {
                if now.ss_flags & SS_DISABLE != 0 {
                    sigaltstack::call(&ours, core::ptr::null_mut());
                }
                agent::alternate_stack_changed(&now);
            }
            result
        });
        let is_ours = |stack: &stack_t| stack.ss_sp == ours.ss_sp && stack.ss_size == ours.ss_size;
        if result != 0 && error() == EPERM && is_ours(&now) {
            // In a handler that runs on ours. What it sets lasts until it returns: the kernel puts back what
            // it found.
            *libc::__errno_location() = before;
            result = sigaltstack::call(null(), old);
        }
        if result == 0
            && let Some(old) = old.as_mut()
            && is_ours(old)
        {
            *old = zeroed();
            old.ss_flags = SS_DISABLE;
        }
        result
    }
}
