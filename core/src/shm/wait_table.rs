//! The table of threads that wait: where one stands, and taking it out. What it is for: `waiters`.

use crate::shm::layout::{ThreadEntry, WAIT_BUCKETS, WAIT_PLACES};
use crate::shm::mapping::Mapping;
use crate::sync::{AtomicU32, Ordering};

/// Where the waiters for an object stand.
#[inline(always)]
pub(super) fn bucket_of(id: u64) -> usize {
    // The golden ratio's bits: addresses differ in their middle.
    ((id >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - WAIT_BUCKETS.trailing_zeros())) as usize
}

/// Whether anybody may wait for it: one load.
///
/// # Safety
/// `counts` is the first of a mapping's `waiter_counts`.
#[inline(always)]
pub unsafe fn may_wait(counts: *const AtomicU32, id: u64) -> bool {
    // SAFETY: by contract there are `WAIT_BUCKETS` of them, and the hash is below that.
    let count = unsafe { &*counts.add(bucket_of(id)) };
    count.load(Ordering::Relaxed) != 0
}

/// The bucket and the place in it that a number of `ThreadEntry::wait_place` names.
fn place(mapping: &Mapping, number: u32) -> Option<&AtomicU32> {
    let number = number.checked_sub(1)? as usize;
    let bucket = mapping.waiters().get(number / WAIT_PLACES)?;
    bucket.places.get(number % WAIT_PLACES)
}

/// Waiter or collector: takes the thread out of the table, if it is in it.
pub fn leave(mapping: &Mapping, index: u32, entry: &ThreadEntry) {
    let number = entry.wait_place.load(Ordering::Relaxed);
    if number == 0 {
        return;
    }
    entry.wait_place.store(0, Ordering::Relaxed);
    let Some(place) = place(mapping, number) else {
        return;
    };
    let freed = place.compare_exchange(index + 1, 0, Ordering::Release, Ordering::Relaxed);
    if freed.is_ok() {
        let home = bucket_of(entry.wait_object.load(Ordering::Relaxed));
        mapping.waiter_counts()[home].fetch_sub(1, Ordering::SeqCst);
    }
}
