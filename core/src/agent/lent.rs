//! Memory for the arguments and the environment of an exec: a thread's own, because the program's stack may
//! have little left, and because what a vfork child mapped would stay behind in its parent.
//!
//! Pieces are given back in the opposite order. What an exec that succeeded in a vfork child has left is
//! recognized by the pid.

use super::scratch::{LENT_WORDS, Scratch};
use super::tls;
use crate::platform::{self, Backing};
use core::ffi::c_char;
use core::sync::atomic::Ordering;

/// Calls `f` with room for so many pointers: the thread's own memory, or a mapping where that has not enough,
/// which stays behind in the parent of a vfork child whose exec succeeds. `None`: there is no memory.
pub fn lend<R>(count: usize, f: impl FnOnce(Option<*mut *const c_char>) -> R) -> R {
    with_lent_memory(count, |memory| {
        if let Some(memory) = memory {
            return f(Some(memory.cast()));
        }
        let bytes = count * size_of::<*const c_char>();
        let Ok(memory) = platform::map(bytes, Backing::Anonymous, 0) else {
            return f(None);
        };
        let result = f(Some(memory.cast()));
        // SAFETY: mapped above, and used by nobody else.
        unsafe { platform::unmap(memory, bytes) };
        result
    })
}

/// Calls `f` with memory for so many words, or with `None`: the thread has none, or not enough.
fn with_lent_memory<R>(words: usize, f: impl FnOnce(Option<*mut u64>) -> R) -> R {
    let scratch = tls::block()
        .scratch
        .load(Ordering::Relaxed)
        .cast::<Scratch>();
    if scratch.is_null() {
        return f(None);
    }
    // SAFETY: this thread's memory. Handlers that come in between leave `used` as they found it.
    unsafe {
        let lent = &raw mut (*scratch).lent;
        let pid = platform::process_id();
        if (*lent).pid != pid {
            (*lent).pid = pid;
            (*lent).used = 0;
        }
        let used = (*lent).used;
        if words > LENT_WORDS - used.min(LENT_WORDS) {
            return f(None);
        }
        (*lent).used = used + words;
        let result = f(Some((&raw mut (*lent).words).cast::<u64>().add(used)));
        (*lent).used = used;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::own_stack;

    #[test]
    fn pieces_do_not_overlap_and_come_back() {
        let block = tls::block();
        assert!(own_stack::provide(block));
        for _ in 0..2 {
            with_lent_memory(600, |first| {
                let first = first.expect("there is room").addr();
                with_lent_memory(400, |second| {
                    assert_eq!(second.expect("there is room").addr(), first + 600 * 8);
                });
                with_lent_memory(600, |second| assert!(second.is_none()));
            });
        }
        own_stack::take_away(block);
        with_lent_memory(1, |none| assert!(none.is_none()));
    }
}
