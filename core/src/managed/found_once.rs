//! What was found in this process, once and for good.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

const ABSENT: u32 = 0;
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "nobody tells of modules there")
)]
const COMING: u32 = 1;
const PRESENT: u32 = 2;

/// A place for it. Of two that are found the first one stays. Signal safe: no lock.
#[derive(Debug)]
pub(super) struct FoundOnce<T> {
    /// [`ABSENT`], [`COMING`] while it is written, [`PRESENT`].
    state: AtomicU32,
    place: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the place is written once, by who changed `state` to `COMING`, and read only when it is `PRESENT`.
unsafe impl<T: Copy + Send + Sync> Sync for FoundOnce<T> {}

impl<T: Copy> FoundOnce<T> {
    /// Nothing is found yet.
    pub(super) const fn new() -> FoundOnce<T> {
        FoundOnce {
            state: AtomicU32::new(ABSENT),
            place: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// What was found.
    #[inline]
    pub(super) fn get(&self) -> Option<&T> {
        (self.state.load(Ordering::Acquire) == PRESENT)
            // SAFETY: written before the state said so, and never again.
            .then(|| unsafe { (*self.place.get()).assume_init_ref() })
    }

    /// Puts it there. False: there was one already.
    #[cfg_attr(
        not(any(target_os = "linux", target_os = "android")),
        allow(dead_code, reason = "nobody tells of modules there")
    )]
    pub(super) fn put(&self, found: T) -> bool {
        let (acquired, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let exchanged = self
            .state
            .compare_exchange(ABSENT, COMING, acquired, failed);
        if exchanged.is_ok() {
            // SAFETY: nobody reads it before the state says that it is there, and nobody else writes it.
            unsafe { (*self.place.get()).write(found) };
            self.state.store(PRESENT, Ordering::Release);
        }
        exchanged.is_ok()
    }
}
