//! Moments and lengths by the clock that dates records (`clock::now`), as types of their own.
//!
//! The rule: what that clock says is [`Cycles`], from the hook that reads it to the drain that makes
//! nanoseconds of it. Nanoseconds are plain numbers whose names end in `_ns`. So a mix-up of the two does not
//! compile. The number inside is taken out only where one becomes the other, and where it becomes a word of a
//! record or of the trace.

use core::fmt;
use core::ops::{Add, Div, Sub};

use crate::sync::{AtomicU64, Ordering, add_own};

/// A moment or a length by the session's clock. As a moment 0 stands for none, where that is said.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cycles(pub u64);

impl Cycles {
    /// Later than all moments, longer than all lengths.
    pub const MAX: Cycles = Cycles(u64::MAX);

    /// The length from `earlier` until now; 0 when that is later.
    #[inline(always)]
    pub const fn saturating_sub(self, earlier: Cycles) -> Cycles {
        Cycles(self.0.saturating_sub(earlier.0))
    }

    /// The moment so much later, or the last one that there is.
    #[inline(always)]
    pub const fn saturating_add(self, length: Cycles) -> Cycles {
        Cycles(self.0.saturating_add(length.0))
    }

    /// So many times this length, or the longest one that there is.
    #[inline(always)]
    pub const fn saturating_mul(self, times: u64) -> Cycles {
        Cycles(self.0.saturating_mul(times))
    }

    /// The length from `earlier` on, of a counter that may have begun anew.
    #[inline(always)]
    pub const fn wrapping_sub(self, earlier: Cycles) -> Cycles {
        Cycles(self.0.wrapping_sub(earlier.0))
    }
}

impl Add for Cycles {
    type Output = Cycles;

    #[inline(always)]
    fn add(self, length: Cycles) -> Cycles {
        Cycles(self.0 + length.0)
    }
}

impl Sub for Cycles {
    type Output = Cycles;

    #[inline(always)]
    fn sub(self, earlier: Cycles) -> Cycles {
        Cycles(self.0 - earlier.0)
    }
}

/// A part of a length.
impl Div<u64> for Cycles {
    type Output = Cycles;

    #[inline(always)]
    fn div(self, parts: u64) -> Cycles {
        Cycles(self.0 / parts)
    }
}

/// The number alone.
impl fmt::Display for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A word of the mapping that holds [`Cycles`].
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct AtomicCycles(AtomicU64);

impl AtomicCycles {
    /// A word of a thread's own.
    #[cfg(not(loom))]
    pub const fn new(cycles: Cycles) -> AtomicCycles {
        AtomicCycles(AtomicU64::new(cycles.0))
    }

    /// As `AtomicU64::load`.
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> Cycles {
        Cycles(self.0.load(order))
    }

    /// As `AtomicU64::store`.
    #[inline(always)]
    pub fn store(&self, cycles: Cycles, order: Ordering) {
        self.0.store(cycles.0, order);
    }

    /// As `AtomicU64::swap`.
    #[inline(always)]
    pub fn swap(&self, cycles: Cycles, order: Ordering) -> Cycles {
        Cycles(self.0.swap(cycles.0, order))
    }

    /// As [`add_own`].
    #[inline(always)]
    pub fn add_own(&self, length: Cycles) {
        add_own(&self.0, length.0);
    }
}
