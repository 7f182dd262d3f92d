//! A variable of the system's with the address of a function that it tells something. One function at a time
//! can be there: another tool's stays.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ptr::null_mut;

use super::symbols::Symbol;

/// `malloc_logger_t` of libmalloc's private/stack_logging.h, and of xnu's
/// libsyscall/mach/stack_logging_internal.h.
pub(super) type Function = unsafe extern "C" fn(u32, usize, usize, usize, usize, u32);

/// Where a function of ours can be the logger.
#[derive(Debug)]
pub(super) struct Logger {
    pub(super) variable: &'static Symbol,
    pub(super) function: Function,
}

impl Logger {
    fn place_of_it(&self) -> Option<&'static AtomicPtr<c_void>> {
        // SAFETY: a variable with the address of a function, which the system reads as a whole.
        unsafe { self.variable.get::<&'static AtomicPtr<c_void>>() }
    }

    fn own(&self) -> *mut c_void {
        self.function as *mut c_void
    }

    /// Whether there is such a variable, and nobody else's function in it.
    pub(super) fn is_free(&self) -> bool {
        self.place_of_it().is_some_and(|place| {
            let there = place.load(Ordering::Acquire);
            there.is_null() || there == self.own()
        })
    }

    /// Whether ours is told.
    pub(super) fn is_placed(&self) -> bool {
        self.place_of_it()
            .is_some_and(|place| place.load(Ordering::Acquire) == self.own())
    }

    /// # Safety
    /// The library stays.
    pub(super) unsafe fn place(&self) {
        if let Some(place) = self.place_of_it() {
            // Another tool may have come meanwhile.
            let _ =
                place.compare_exchange(null_mut(), self.own(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// # Safety
    /// That of [`Logger::place`]: a thread may be about to call it.
    pub(super) unsafe fn take_away(&self) {
        if let Some(place) = self.place_of_it() {
            let _ =
                place.compare_exchange(self.own(), null_mut(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}
