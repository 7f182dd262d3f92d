//! What slots held before they got hooks.

use super::loaded_module::{SlotAddress, Target};
use crate::memory;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A hash table in mapped memory. Used under the lock of `dl_iterate_phdr` only.
/// An entry of a module that was unloaded does no harm: what comes to lie there is only looked up if it
/// holds a hook of ours, and then it has an entry of its own.
pub(super) struct Saved {
    places: AtomicPtr<Place>,
    capacity: AtomicUsize,
    used: AtomicUsize,
}

/// A slot's address (0: free) and what it held.
#[repr(C)]
struct Place {
    slot: AtomicUsize,
    held: AtomicUsize,
}

pub(super) static SAVED: Saved = Saved {
    places: AtomicPtr::new(core::ptr::null_mut()),
    capacity: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
};

impl Saved {
    fn places(&self) -> &[Place] {
        let places = self.places.load(Ordering::Relaxed);
        if places.is_null() {
            return &[];
        }
        // SAFETY: a mapping of this many places, of zeros at first, which `grow` alone replaces.
        unsafe { core::slice::from_raw_parts(places, self.capacity.load(Ordering::Relaxed)) }
    }

    /// The place of a slot, or the free one where it would be. There always is a free one.
    fn place(places: &[Place], slot: SlotAddress) -> Option<&Place> {
        let slot = slot.0;
        let mask = places.len().checked_sub(1)?;
        let mut i = (slot >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 & mask;
        loop {
            let place = &places[i];
            let found = place.slot.load(Ordering::Relaxed);
            if found == slot || found == 0 {
                return Some(place);
            }
            i = (i + 1) & mask;
        }
    }

    /// What a slot held; `None`: nothing was kept of it.
    pub(super) fn kept(&self, slot: SlotAddress) -> Option<Target> {
        let place = Self::place(self.places(), slot)?;
        let is_it = place.slot.load(Ordering::Relaxed) == slot.0;
        is_it.then(|| Target(place.held.load(Ordering::Relaxed)))
    }

    /// False: no memory.
    pub(super) fn keep(&self, slot: SlotAddress, held: Target) -> bool {
        if self.used.load(Ordering::Relaxed) * 2 >= self.capacity.load(Ordering::Relaxed)
            && !self.grow()
        {
            return false;
        }
        let Some(place) = Self::place(self.places(), slot) else {
            return false;
        };
        if place.slot.swap(slot.0, Ordering::Relaxed) == 0 {
            self.used.fetch_add(1, Ordering::Relaxed);
        }
        place.held.store(held.0, Ordering::Relaxed);
        true
    }

    fn grow(&self) -> bool {
        const FIRST: usize = 4096;
        let old = self.places();
        let capacity = (old.len() * 2).max(FIRST);
        let Some(memory) = memory::map_anonymous(capacity * size_of::<Place>()) else {
            return false;
        };
        let places = memory.cast::<Place>();
        // SAFETY: a fresh mapping of that size; zeros are free places.
        let new = unsafe { core::slice::from_raw_parts(places, capacity) };
        for place in old {
            let slot = place.slot.load(Ordering::Relaxed);
            if slot != 0
                && let Some(to) = Self::place(new, SlotAddress(slot))
            {
                to.slot.store(slot, Ordering::Relaxed);
                to.held
                    .store(place.held.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        let (old, bytes) = (old.as_ptr(), core::mem::size_of_val(old));
        self.places.store(places, Ordering::Relaxed);
        self.capacity.store(capacity, Ordering::Relaxed);
        if bytes != 0 {
            // SAFETY: the mapping of the last time; nobody but us knows it.
            unsafe { memory::unmap(old.cast_mut().cast(), bytes) };
        }
        true
    }
}
