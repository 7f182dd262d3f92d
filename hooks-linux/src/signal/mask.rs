//! Calls by which a thread changes which signals it blocks (`pthread_sigmask`, `sigprocmask`), or asks which
//! ones pend. When a thread blocks the first of our signals, those that are under way arrive before;
//! afterwards the second can interrupt it. Where the kernel's clock sends the signals, which stops for
//! nothing, the first stays open and the program is told that it is blocked.

use core::ffi::c_int;
use core::ptr::null;
use libc::{
    SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGURG, SYS_rt_sigprocmask, siginfo_t, sigset_t,
    ucontext_t,
};
use stackbeat_core::crash_signals::CRASH_SIGNALS;
use stackbeat_core::{agent, platform};

use super::room;
use crate::signal;

macro_rules! masks {
    ($($name:ident)*) => {$(
        original!(fn $name(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
            if agent::blocks_signal() && !signal::is_first_free() {
                // Another thread has asked for a handler since.
                agent::stop_kernel_clock();
                close_first();
            }
            if agent::leaves_signal_open() && signal::is_first_free() && is_first_open() {
                // SAFETY: the caller's arguments, passed on.
                return unsafe { pretend(how, set, old, |how, set, old| $name::call(how, set, old)) };
            }
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
            // SAFETY: by the caller's contract, null or valid.
            if result == 0 && let Some(set) = unsafe { set.as_ref() } {
                note(how, set);
            }
            result
        }
    )*};
}
masks! { pthread_sigmask sigprocmask }

/// Whether the kernel has the first signal open: in a handler it may be blocked in truth.
fn is_first_open() -> bool {
    agent::mask() & platform::signal_bit(SIGURG as u32) == 0
}

/// Makes such a call without the first signal, and notes what the program believes.
///
/// # Safety
/// The pointers are null or valid.
unsafe fn pretend(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
    call: impl FnOnce(c_int, *const sigset_t, *mut sigset_t) -> c_int,
) -> c_int {
    let before = agent::blocks_signal();
    // SAFETY: by contract; both may be one place, so this is read before that is written.
    let wanted = unsafe { set.as_ref() }.copied();
    let (mut given, mut after) = (wanted, before);
    if let Some(given) = &mut given {
        // SAFETY: a valid set.
        let has_first = unsafe { libc::sigismember(given, SIGURG) == 1 };
        after = match how {
            SIG_BLOCK => before || has_first,
            SIG_SETMASK => has_first,
            _ => before && !has_first,
        };
        if matches!(how, SIG_BLOCK | SIG_SETMASK) {
            // SAFETY: as above.
            unsafe { libc::sigdelset(given, SIGURG) };
        }
    }
    let result = call(
        how,
        given.as_ref().map_or(null(), |set| &raw const *set),
        old,
    );
    if result != 0 {
        return result;
    }
    // SAFETY: by contract; filled by the call.
    if before && let Some(old) = unsafe { old.as_mut() } {
        // SAFETY: a valid set.
        unsafe { libc::sigaddset(old, SIGURG) };
    }
    agent::set_blocks_signal(after);
    agent::mask_changes();
    if let Some(wanted) = &wanted {
        note(how, wanted);
    }
    result
}

/// Such a call has succeeded. A handler of a fault that lets its signal in again is about to end by a jump.
fn note(how: c_int, set: &sigset_t) {
    let set = signal::mask_word(set);
    match how {
        SIG_BLOCK => agent::program_blocks(set as u64, 0),
        SIG_SETMASK => agent::program_blocks(set as u64, !set as u64),
        _ => agent::program_blocks(0, set as u64),
    }
    let faults = CRASH_SIGNALS.iter();
    let faults = faults.fold(0, |faults, (signal, _)| faults | 1 << (signal - 1));
    if how == SIG_UNBLOCK && set & faults != 0 {
        agent::handler_leaves(room::added(set & faults) as u64);
    }
}

/// The program has a handler for the first signal: where it believes to block that, it does. The clock has
/// stopped.
pub(crate) fn close_first() {
    if agent::blocks_signal() {
        agent::set_blocks_signal(false);
        platform::block_signals(agent::mask() | platform::signal_bit(SIGURG as u32));
        agent::mask_changes();
    }
}

/// The first signal has come from elsewhere, where the program believes to block it: from here on it is
/// blocked, and the signal pends again.
///
/// # Safety
/// What the kernel passed to the handler under way, in which the signal is blocked.
pub(crate) unsafe fn take_back(info: *const siginfo_t, context: *mut ucontext_t) {
    agent::stop_kernel_clock();
    agent::set_blocks_signal(false);
    // SAFETY: by contract.
    unsafe {
        libc::sigaddset(&raw mut (*context).uc_sigmask, SIGURG);
        agent::mask_changes();
        match (*info).si_code {
            libc::SI_TKILL => platform::send_again(SIGURG, info),
            _ => platform::send_again_to_process(SIGURG, info),
        }
    }
}

original!(fn sigpending(set: *mut sigset_t) -> c_int);
/// One of ours that pends is taken off before, and none is sent meanwhile.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigpending(set: *mut sigset_t) -> c_int {
    // SAFETY: the caller's argument, passed on.
    agent::undisturbed(|| unsafe { sigpending::call(set) })
}

/// Where the call will block the first signal and not the second: makes that ready, and blocks the first
/// already while none is under way, because one that was sent a moment before would pend, and be in the way
/// of the second. True if it was not blocked before.
fn prepare(how: c_int, set: &sigset_t) -> bool {
    let mask = signal::mask_word(set);
    let place = (&raw const *set) as usize;
    if !matches!(how, SIG_BLOCK | SIG_SETMASK)
        || !signal::blocks_first_only(mask)
        || !agent::owns_memory()
        || !platform::allows(
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
