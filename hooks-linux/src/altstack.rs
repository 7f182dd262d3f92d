//! `sigaltstack`: the program does not see the alternate stack of ours (`agent::alternate_stack`), which it gets back where it
//! takes its own away.

use core::ffi::c_int;
use core::mem::zeroed;
use libc::{EPERM, SS_DISABLE, stack_t};
use stackbeat_core::agent;

/// include/uapi/linux/signal.h; libc lacks it for some targets.
const SS_AUTODISARM: c_int = 1 << 31;

original!(fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int {
    let Some(ours) = agent::alternate_stack() else {
        // SAFETY: the caller's arguments, passed on.
        return unsafe { sigaltstack::call(new, old) };
    };
    let is_ours = |stack: &stack_t| stack.ss_sp == ours.ss_sp && stack.ss_size == ours.ss_size;
    // SAFETY: by the caller's contract null or valid; read before `old` is written, they may be one.
    unsafe {
        let asked = new.as_ref().copied();
        let given = asked.map(
            |asked| match asked.ss_flags & !SS_AUTODISARM == SS_DISABLE {
                true => ours,
                false => asked,
            },
        );
        let new = given
            .as_ref()
            .map_or(core::ptr::null(), |given| given as *const _);
        let error = *libc::__errno_location();
        // None of our signals comes before it is known how large the new one is.
        let (mut result, mut before) = agent::undisturbed(|| {
            let mut before: stack_t = zeroed();
            let result = sigaltstack::call(new, &mut before);
            if result == 0
                && let Some(given) = given
            {
                agent::alternate_stack_changed(&given);
            }
            (result, before)
        });
        if result != 0 && *libc::__errno_location() == EPERM {
            // In a handler that runs on ours. What it sets lasts until it returns: the kernel puts back what it found.
            let mut current: stack_t = zeroed();
            if sigaltstack::call(core::ptr::null(), &mut current) == 0 && is_ours(&current) {
                *libc::__errno_location() = error;
                (result, before) = (0, current);
            }
        }
        if result == 0
            && let Some(old) = old.as_mut()
        {
            *old = before;
            if is_ours(&before) {
                *old = zeroed();
                old.ss_flags = SS_DISABLE;
            }
        }
        result
    }
}
