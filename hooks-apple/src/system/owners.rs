//! Which thread has a lock that says it nowhere.
//!
//! A table of words by address: a lock whose place is taken by another one has no owner here. So an owner is
//! never another lock's. What was taken before the hooks came is not known.
//!
//! # Signal safety
//!
//! Atomics only.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use stackbeat_core::ids::Tid;
use stackbeat_core::platform;

/// Objects lie at multiples of this (libmalloc's smallest block).
const ALIGNMENT_BITS: u32 = 4;
const PLACE_BITS: u32 = 12;
/// What an address has beside its place fits into half a word.
const ADDRESS_BITS: u32 = ALIGNMENT_BITS + PLACE_BITS + 32;

struct Place {
    /// The rest of the address above the tid; 0: nobody's.
    word: AtomicU64,
    /// How often its owner has taken it. Only that thread writes here.
    depth: AtomicU32,
}

static PLACES: [Place; 1 << PLACE_BITS] = [const {
    Place {
        word: AtomicU64::new(0),
        depth: AtomicU32::new(0),
    }
}; 1 << PLACE_BITS];

/// The place of an address, and what stands in it above the tid.
fn place_of(address: u64) -> Option<(&'static Place, u64)> {
    let fits = address >> ADDRESS_BITS == 0 && address.trailing_zeros() >= ALIGNMENT_BITS;
    let index = (address >> ALIGNMENT_BITS) as usize % PLACES.len();
    let rest = address >> (ALIGNMENT_BITS + PLACE_BITS) << 32;
    fits.then(|| (&PLACES[index], rest))
}

/// The calling thread has taken the lock.
pub(super) fn taken(address: u64) {
    let Some((place, rest)) = place_of(address) else {
        return;
    };
    let own = rest | u64::from(platform::thread_id());
    if place.word.load(Ordering::Relaxed) == own {
        let depth = place.depth.load(Ordering::Relaxed);
        place
            .depth
            .store(depth.saturating_add(1), Ordering::Relaxed);
    } else {
        place.depth.store(1, Ordering::Relaxed);
        place.word.store(own, Ordering::Relaxed);
    }
}

/// The calling thread is about to let go of it.
pub(super) fn let_go(address: u64) {
    let Some((place, rest)) = place_of(address) else {
        return;
    };
    let word = place.word.load(Ordering::Relaxed);
    let is_own = word == rest | u64::from(platform::thread_id());
    let depth = place.depth.load(Ordering::Relaxed);
    if is_own && depth > 1 {
        place.depth.store(depth - 1, Ordering::Relaxed);
    } else if word >> 32 == rest >> 32 {
        let _ = place
            .word
            .compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Who has it; 0: not known.
pub(super) fn owner_of(address: u64) -> Tid {
    let word = place_of(address).map_or(0, |(place, rest)| {
        let word = place.word.load(Ordering::Relaxed);
        if word >> 32 == rest >> 32 { word } else { 0 }
    });
    Tid(word as u32)
}

/// The lock at an address is freed: the next one there is another.
pub(super) fn freed(address: u64) {
    let Some((place, rest)) = place_of(address) else {
        return;
    };
    let word = place.word.load(Ordering::Relaxed);
    if word >> 32 == rest >> 32 {
        let _ = place
            .word
            .compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Forgets all.
pub(super) fn forget() {
    for place in &PLACES {
        place.word.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: the table is the process'.
    #[test]
    fn an_owner_is_known_until_it_lets_go_and_never_another_locks() {
        let own = Tid(platform::thread_id());
        let (lock, same_place) = (0x6000_0123_4560, 0x6000_0123_4560 + (1 << 16));
        taken(lock);
        taken(lock);
        assert_eq!((owner_of(lock), owner_of(same_place)), (own, Tid(0)));
        let_go(lock);
        assert_eq!(owner_of(lock), own);
        // A thread that has it not lets go of it: whose it is then is not known.
        std::thread::spawn(move || let_go(lock))
            .join()
            .expect("no panic");
        assert_eq!(owner_of(lock), Tid(0));
        taken(lock);
        taken(same_place);
        assert_eq!((owner_of(lock), owner_of(same_place)), (Tid(0), own));
        let_go(lock);
        assert_eq!(owner_of(same_place), own);
        // Freed while it is held, and another lock at its address, which is taken as often as it is let go
        // of.
        taken(same_place);
        freed(lock);
        assert_eq!(owner_of(same_place), own);
        freed(same_place);
        assert_eq!(owner_of(same_place), Tid(0));
        taken(same_place);
        let_go(same_place);
        assert_eq!(owner_of(same_place), Tid(0));
        taken(same_place);
        // Not such addresses.
        for address in [lock + 8, 1 << 50] {
            taken(address);
            assert_eq!(owner_of(address), Tid(0));
        }
        forget();
        assert_eq!(owner_of(same_place), Tid(0));
    }
}
