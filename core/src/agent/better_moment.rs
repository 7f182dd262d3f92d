//! Interruptions that are left to a moment which the thread is about to come to. A runtime's interruption may
//! find its thread where the runtime cannot say what runs; a safepoint is close, where it can. Then the
//! interruption takes no sample, and the hook at the safepoint takes it: it stands for the same tick of the
//! clock.
//!
//! Stands between a signal of a clock and its capture (`agent::capture`).

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Asked in signal handlers of the calling thread: not 0, if a better moment comes.
pub(super) type Comes = unsafe extern "C-unwind" fn() -> c_int;

static COMES: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Interruptions in a row that are left to a better moment. One comes within an interval, or something else
/// has the thread.
const MOST_LEFT: u32 = 2;
/// So many are not left to one, when none has come.
const NOT_LEFT: u32 = 8;

/// Adds the function that is asked, for good. False: there is one.
pub(super) fn add(comes: Comes) -> bool {
    let null = core::ptr::null_mut();
    let place = comes as *mut c_void;
    let placed = COMES.compare_exchange(null, place, Ordering::AcqRel, Ordering::Relaxed);
    placed.is_ok()
}

fn comes() -> bool {
    let comes = COMES.load(Ordering::Acquire);
    if comes.is_null() {
        return false;
    }
    // SAFETY: `add` has stored a function of this type.
    let comes: Comes = unsafe { core::mem::transmute(comes) };
    // SAFETY: the calling thread is in a handler of the sampling clock's signal.
    unsafe { comes() != 0 }
}

/// What a thread has left to better moments. All-zero: nothing.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Left {
    /// Interruptions since the last capture.
    left: u32,
    /// Interruptions that are not to be left from here on.
    not_left: u32,
}

impl Left {
    /// Whether an interruption is left to a better moment.
    pub(super) fn leaves(&mut self) -> bool {
        if self.not_left > 0 {
            self.not_left -= 1;
            return false;
        }
        if self.left >= MOST_LEFT {
            self.not_left = NOT_LEFT;
            return false;
        }
        let leaves = comes();
        self.left += u32::from(leaves);
        leaves
    }

    /// Whether one is waited for.
    pub(super) fn is_wanted(&self) -> bool {
        self.left != 0
    }

    /// There was a capture.
    pub(super) fn is_over(&mut self) {
        self.left = 0;
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn a_moment_that_does_not_come_is_not_waited_for() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        unsafe extern "C-unwind" fn yes() -> c_int {
            ASKED.fetch_add(1, Ordering::Relaxed);
            1
        }
        let mut left = Left {
            left: 0,
            not_left: 0,
        };
        assert!(!left.leaves() && !left.is_wanted());
        assert!(add(yes) && !add(yes));
        assert!(left.leaves() && left.is_wanted() && left.leaves());
        left.is_over();
        assert!(left.leaves() && left.leaves());
        // None came: these are samples where they are.
        let not_left = (0..=NOT_LEFT).filter(|_| left.leaves()).count();
        assert_eq!((not_left, ASKED.load(Ordering::Relaxed)), (0, 4));
        left.is_over();
        assert!(left.leaves());
    }
}
