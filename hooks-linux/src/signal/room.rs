//! Handlers of the program's on its own alternate stack: ours stay away from them.
//!
//! An alternate stack may be as small as its handlers allow. One of our signals that came while a handler
//! runs there would need room besides: so such handlers block ours. The program sees its handler's mask as it
//! asked for it.

use super::{Action, FIRST, SECOND, mask_word};
use core::ffi::c_int;
use core::ptr::null;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{SA_ONSTACK, SIG_DFL, SIG_IGN};
use stackbeat_core::agent;

const SIGNALS: usize = 64;

/// By signal: what was added to the mask of its handler.
static ADDED: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];

/// Runs a call as `sigaction` for a signal from 1 to 64.
///
/// # Safety
/// As for `sigaction`.
pub(crate) unsafe fn install(
    signal: c_int,
    new: Option<Action>,
    old: *mut Action,
    call: impl FnOnce(*const Action, *mut Action) -> c_int,
) -> c_int {
    let added = &ADDED[signal as usize - 1];
    let before = added.load(Ordering::Relaxed);
    let Some(mut new) = new else {
        let result = call(null(), old);
        // SAFETY: by contract.
        unsafe { show(result, old, before) };
        return result;
    };
    let missing = missing(&new);
    // SAFETY: a sigset_t begins with the word of signals 1 to 64 (glibc's <bits/types/__sigset_t.h>).
    unsafe { *(&raw mut new.sa_mask).cast::<usize>() |= missing };
    let result = call(&new, old);
    // A child of `vfork` has handlers of its own, but its parent's memory.
    if result == 0 && agent::owns_memory() {
        added.store(missing, Ordering::Relaxed);
    }
    // SAFETY: by contract.
    unsafe { show(result, old, before) };
    result
}

/// What was added to the masks of handlers for these signals.
pub(super) fn added(signals: usize) -> usize {
    let of =
        |number: usize| (signals >> number & 1 != 0).then(|| ADDED[number].load(Ordering::Relaxed));
    (0..SIGNALS)
        .filter_map(of)
        .fold(0, |set, added| set | added)
}

/// Those of ours that a handler on the alternate stack does not block.
fn missing(action: &Action) -> usize {
    let is_handler = !matches!(action.sa_sigaction, SIG_DFL | SIG_IGN);
    let is_there = is_handler && action.sa_flags & SA_ONSTACK != 0;
    match is_there && FIRST.is_active.load(Ordering::Acquire) {
        true => (FIRST.bit() | SECOND.bit()) & !mask_word(&action.sa_mask),
        false => 0,
    }
}

/// Takes what was added from what a call has given.
///
/// # Safety
/// `old` is null or was filled by a call with this result.
unsafe fn show(result: c_int, old: *mut Action, added: usize) {
    // SAFETY: by contract; as in `install`.
    unsafe {
        if result == 0
            && let Some(old) = old.as_mut()
        {
            *(&raw mut old.sa_mask).cast::<usize>() &= !added;
        }
    }
}
