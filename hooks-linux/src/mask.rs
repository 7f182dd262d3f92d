//! Calls by which a thread changes which signals it blocks. One that blocks the first of our signals has those that
//! are under way arrive before, and can be interrupted by the second.

use crate::signal;
use core::ffi::c_int;
use libc::{SIG_BLOCK, SIG_SETMASK, SIGURG, SYS_rt_sigprocmask, sigset_t};
use stackbeat_core::{agent, sys};

macro_rules! masks {
    ($($name:ident)*) => {$(
        original!(fn $name(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
            // SAFETY: by the caller's contract, null or valid.
            let was_open = unsafe { set.as_ref() }.is_some_and(|set| prepare(how, set));
            // SAFETY: the caller's arguments, passed on.
            let result = unsafe { $name::call(how, set, old) };
            // SAFETY: by the caller's contract, null or valid; filled by the original.
            if was_open && let Some(old) = unsafe { old.as_mut() } {
                // SAFETY: a valid set.
                unsafe { libc::sigdelset(old, SIGURG) };
            }
            if !set.is_null() {
                agent::mask_changes();
            }
            result
        }
    )*};
}
masks! { pthread_sigmask sigprocmask }

original!(fn sigpending(set: *mut sigset_t) -> c_int);
/// One of ours that pends is taken off before, and none is sent meanwhile.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigpending(set: *mut sigset_t) -> c_int {
    // SAFETY: the caller's argument, passed on.
    agent::undisturbed(|| unsafe { sigpending::call(set) })
}

/// Where the call will block the first signal and not the second: makes that ready, and blocks the first already while
/// none is under way, because one that was sent a moment before would pend, and be in the way of the second. True if
/// it was not blocked before.
fn prepare(how: c_int, set: &sigset_t) -> bool {
    let mask = signal::mask_word(set);
    let place = (&raw const *set) as usize;
    if !matches!(how, SIG_BLOCK | SIG_SETMASK)
        || !signal::blocks_first_only(mask)
        || !agent::owns_memory()
        || !sys::allows(
            SYS_rt_sigprocmask,
            [SIG_BLOCK as usize, place, place, 8, 0, 0],
        )
    {
        return false;
    }
    signal::look_at_mask(mask);
    agent::undisturbed(|| {
        let mut first = *set;
        let mut old = first;
        // SAFETY: local sets, and the original.
        unsafe {
            libc::sigemptyset(&mut first);
            libc::sigaddset(&mut first, SIGURG);
            pthread_sigmask::call(SIG_BLOCK, &first, &mut old);
            agent::mask_changes();
            libc::sigismember(&old, SIGURG) == 0
        }
    })
}
