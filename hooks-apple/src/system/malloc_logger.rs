//! libmalloc's logger: it is told of each allocation, also of those inside the dyld shared cache, which pass
//! no slot.
//!
//! Source: libmalloc's private/stack_logging.h has the type and the kinds, src/malloc.c calls it after an
//! allocation and before a block is given back, with no lock of a zone held. One function at a time can be
//! the logger: where another tool has put its own there, it stays, and hooks count allocations.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ptr::null_mut;

use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

use super::symbols::MALLOC_LOGGER;

/// stack_logging.h: `stack_logging_type_alloc`, `…_dealloc`, `stack_logging_flag_zone`, `…_cleared`.
const ALLOC: u32 = 2;
const DEALLOC: u32 = 4;
const ZONE: u32 = 8;
const CLEARED: u32 = 64;

fn place_of_logger() -> Option<&'static AtomicPtr<c_void>> {
    // SAFETY: a variable of libmalloc's with the address of a function, which it reads as a whole.
    unsafe { MALLOC_LOGGER.get::<&'static AtomicPtr<c_void>>() }
}

fn own() -> *mut c_void {
    logger as *const () as *mut c_void
}

/// Whether there is a logger's place, and nobody else's logger in it.
pub(super) fn is_free() -> bool {
    place_of_logger().is_some_and(|place| {
        let there = place.load(Ordering::Acquire);
        there.is_null() || there == own()
    })
}

/// Whether it is told of allocations.
pub(super) fn is_placed() -> bool {
    place_of_logger().is_some_and(|place| place.load(Ordering::Acquire) == own())
}

/// # Safety
/// The library stays.
pub(super) unsafe fn place() {
    if let Some(place) = place_of_logger() {
        // Another tool may have come meanwhile.
        let _ = place.compare_exchange(null_mut(), own(), Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// # Safety
/// That of [`place`]: a thread may be about to call it.
pub(super) unsafe fn take_away() {
    if let Some(place) = place_of_logger() {
        let _ = place.compare_exchange(own(), null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// `malloc_logger_t`. The zone comes first where the kind says so, then a block, or bytes of one, or both.
unsafe extern "C" fn logger(
    kind: u32,
    zone_or_first: usize,
    second: usize,
    third: usize,
    result: usize,
    _hot_frames: u32,
) {
    let [first, second] = match kind & ZONE {
        0 => [zone_or_first, second],
        _ => [second, third],
    };
    match (kind & ALLOC != 0, kind & DEALLOC != 0) {
        (true, true) => {
            if first != 0 {
                agent::freed();
            }
            if result != 0 {
                agent::allocated(Probe::Realloc, second);
            }
        }
        (true, false) if result != 0 => {
            let probe = match kind & CLEARED {
                0 => Probe::Malloc,
                _ => Probe::Calloc,
            };
            agent::allocated(probe, first);
        }
        (false, true) if first != 0 => agent::freed(),
        _ => {}
    }
}
