//! The atomics of every shared protocol: the real ones, or loom's when a model is checked.
//!
//! `RUSTFLAGS="--cfg loom"` swaps them; `scripts/loom.sh` runs the models.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, fence};

pub use core::sync::atomic::Ordering;

/// Adds to a counter that only the calling thread writes: no locked instruction.
#[inline(always)]
pub fn add_own(counter: &AtomicU64, amount: u64) {
    let value = counter.load(Ordering::Relaxed);
    counter.store(value.wrapping_add(amount), Ordering::Relaxed);
}

/// Reads a word that only the calling thread writes: a plain read, which the compiler can make part of a
/// comparison.
///
/// # Safety
/// No other thread of this process writes the word meanwhile.
#[inline(always)]
pub unsafe fn read_own(word: &AtomicU32) -> u32 {
    #[cfg(loom)]
    return word.load(Ordering::Relaxed);
    // SAFETY: valid as a reference is, and nobody writes it meanwhile.
    #[cfg(not(loom))]
    unsafe {
        word.as_ptr().read()
    }
}

/// Stands between two sequentially consistent accesses that no other access may pass. Nothing in real
/// builds, where the accesses see to it themselves; loom takes them for acquire and release only and
/// needs a fence in place of that.
#[inline(always)]
pub fn between_sequential() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// The cheap half of a pair of fences: the compiler keeps the order, and whoever needs the processor to keep
/// it has the kernel run the other half here (`platform::barrier_everywhere`). loom knows no such call; there
/// it is a fence.
#[inline(always)]
pub fn fence_by_others() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}
