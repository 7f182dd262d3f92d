//! Hooks that cost more than they may are taken away from the process. The collector says which; the
//! platform's hooks know how; here the one meets the other, on the slow path of a hook.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::shm::mapping::Mapping;

/// Takes the hooks of these categories (`Category::bit`) away; a [`Take`], null where that is not possible.
static TAKE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// Those that were. A forked child inherits them with the slots.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// False when it could not be done at once: then it is tried again in a later hook.
pub(super) type Take = fn(u64) -> bool;

/// From here on `take` is called with the categories that are to go, on any thread, in a hook; it may not
/// wait for a lock and leaves errno alone.
pub fn unpatch_by(take: Take) {
    TAKEN.store(0, Ordering::Relaxed);
    TAKE.store(take as *mut (), Ordering::Release);
}

/// Unpatches the categories that the collector wants unpatched and that still have hooks.
#[inline(always)]
pub(super) fn follow(mapping: &Mapping) {
    let wanted = mapping.control().unpatched.load(Ordering::Relaxed);
    if wanted & !TAKEN.load(Ordering::Relaxed) != 0 {
        take(wanted);
    }
}

#[cold]
#[inline(never)]
fn take(wanted: u64) {
    let take = TAKE.load(Ordering::Acquire);
    if take.is_null() {
        return;
    }
    let new = wanted & !TAKEN.fetch_or(wanted, Ordering::Relaxed);
    if new != 0 {
        // SAFETY: not null, so it is what `unpatch_by` stored.
        let take: Take = unsafe { core::mem::transmute(take) };
        if !take(new) {
            TAKEN.fetch_and(!new, Ordering::Relaxed);
        }
    }
}
