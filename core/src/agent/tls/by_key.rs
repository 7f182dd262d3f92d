//! The block where a key of libc's leads to it: on Android and Apple.
//!
//! Thread-locals of the compiler may allocate at a thread's first access, inside the `malloc` that is hooked.
//! On Apple always (dyld, libdyld/ThreadLocalVariables: `instantiate` calls malloc). On Android before API
//! level 29, where they are emulated (compiler-rt, lib/builtins/emutls.c), and with ELF thread-locals at the
//! first access of a library that was loaded by `dlopen` (bionic, docs/elf-tls.md: there is no room for
//! static ones then).
//!
//! The value of a key is a word in the thread's own descriptor: reading and writing it takes no lock and no
//! memory (bionic, libc/bionic/pthread_key.cpp: `key_data` in `bionic_tls`; Apple's libpthread,
//! src/pthread_tsd.c: `tsd` in `pthread_t`). Making a key takes no memory, either. What a key leads to is a
//! place in a slab of ours, which is taken by one atomic operation.
//!
//! When a thread ends libc calls the key's destructor, some rounds in a row if somebody sets the value again.
//! The last round gives the place back. What comes later in this thread finds the block that stands for
//! nobody.

use super::{Block, FOREIGN};
use crate::platform::{self, Backing};
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

const SLABS: usize = 256;
const WORDS: usize = 8;
/// Places of one slab.
const PLACES: usize = WORDS * 64;
/// limits.h of bionic and Darwin (`_POSIX_THREAD_DESTRUCTOR_ITERATIONS`): both take no more.
const ROUNDS: u8 = 4;

/// No two threads share a cache line, which on Apple's processors is 128 bytes.
#[repr(C, align(128))]
struct Place {
    block: Block,
}

/// Mapped zeroed, which is valid, and never unmapped.
#[repr(C)]
struct Slab {
    taken: [AtomicU64; WORDS],
    /// Rounds of the destructor that have passed.
    rounds: [AtomicU8; PLACES],
    places: [Place; PLACES],
}

static TABLE: [AtomicPtr<Slab>; SLABS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; SLABS];
/// The key, plus 1; 0: not made yet.
static KEY: AtomicUsize = AtomicUsize::new(0);

/// The calling thread's block.
#[inline(always)]
pub(super) fn address() -> *const Block {
    match known_address() {
        Some(block) => block,
        None => first_address(),
    }
}

/// The same, if it has one.
#[inline(always)]
pub(super) fn known_address() -> Option<*const Block> {
    let key = KEY.load(Ordering::Acquire);
    if key == 0 {
        return None;
    }
    // SAFETY: the key is never deleted.
    let block = unsafe { libc::pthread_getspecific((key - 1) as libc::pthread_key_t) };
    (!block.is_null()).then_some(block.cast_const().cast())
}

#[cold]
#[inline(never)]
fn first_address() -> *const Block {
    // A handler in between would take a place, too.
    let held = platform::hold_signals(u64::MAX);
    let block = provide().unwrap_or(&raw const FOREIGN);
    if let Some(held) = held {
        held.release();
    }
    block
}

/// Gives the calling thread a place, unless it has one.
fn provide() -> Option<*const Block> {
    let key = key()?;
    // SAFETY: the key is never deleted.
    let known = unsafe { libc::pthread_getspecific(key) };
    if !known.is_null() {
        return Some(known.cast());
    }
    let (slab, place) = take()?;
    // SAFETY: slabs are never unmapped.
    let block = unsafe { &raw const (*slab).places[place].block };
    // SAFETY: the key is never deleted, and its destructor knows what the value means.
    if unsafe { libc::pthread_setspecific(key, block.cast()) } != 0 {
        give_back(slab, place);
        return None;
    }
    Some(block)
}

/// The key, which the first caller makes.
fn key() -> Option<libc::pthread_key_t> {
    let known = KEY.load(Ordering::Acquire);
    if known != 0 {
        return Some((known - 1) as libc::pthread_key_t);
    }
    let mut key = 0;
    // SAFETY: the destructor is a function of this library, which is never unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } != 0 {
        return None;
    }
    let exchanged = KEY.compare_exchange(0, key as usize + 1, Ordering::AcqRel, Ordering::Acquire);
    match exchanged {
        Ok(_) => Some(key),
        Err(known) => {
            // SAFETY: nobody has seen this one.
            unsafe { libc::pthread_key_delete(key) };
            Some((known - 1) as libc::pthread_key_t)
        }
    }
}

/// Takes a place.
fn take() -> Option<(*mut Slab, usize)> {
    for entry in &TABLE {
        let slab = match entry.load(Ordering::Acquire) {
            slab if slab.is_null() => map(entry)?,
            slab => slab,
        };
        // SAFETY: slabs are never unmapped.
        let taken = unsafe { &(*slab).taken };
        for (i, word) in taken.iter().enumerate() {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                let now = word.fetch_or(1 << bit, Ordering::Acquire);
                if now & 1 << bit == 0 {
                    return Some((slab, i * 64 + bit as usize));
                }
                seen = now;
            }
        }
    }
    None
}

/// Maps a slab, unless another thread is faster.
fn map(entry: &AtomicPtr<Slab>) -> Option<*mut Slab> {
    let slab = platform::map(size_of::<Slab>(), Backing::Anonymous, 0).ok()?;
    let null = core::ptr::null_mut();
    match entry.compare_exchange(null, slab.cast(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(slab.cast()),
        Err(other) => {
            // SAFETY: nobody has seen this one.
            unsafe { platform::unmap(slab, size_of::<Slab>()) };
            Some(other)
        }
    }
}

fn give_back(slab: *mut Slab, place: usize) {
    // SAFETY: the place is the caller's, who does not use it any more; slabs are never unmapped.
    unsafe {
        (&raw mut (*slab).places[place]).write_bytes(0, 1);
        (&(*slab).rounds)[place].store(0, Ordering::Relaxed);
        (&(*slab).taken)[place / 64].fetch_and(!(1 << (place % 64)), Ordering::Release);
    }
}

/// Whose place a block is.
fn place_of(block: *const Block) -> Option<(*mut Slab, usize)> {
    TABLE.iter().find_map(|entry| {
        let slab = entry.load(Ordering::Acquire);
        if slab.is_null() {
            return None;
        }
        // SAFETY: only an address is formed.
        let first = unsafe { &raw const (*slab).places }.addr();
        let offset = block.addr().wrapping_sub(first);
        (offset < PLACES * size_of::<Place>()).then(|| (slab, offset / size_of::<Place>()))
    })
}

/// libc has set the value to null and passes what it was.
unsafe extern "C" fn thread_ends(block: *mut c_void) {
    let Some(key) = key() else {
        return;
    };
    let mut next = block.cast_const();
    if let Some((slab, place)) = place_of(block.cast()) {
        // SAFETY: slabs are never unmapped.
        let passed = unsafe { (&(*slab).rounds)[place].fetch_add(1, Ordering::Relaxed) };
        if passed + 1 >= ROUNDS {
            give_back(slab, place);
            next = (&raw const FOREIGN).cast();
        }
    }
    // SAFETY: the key is never deleted.
    unsafe { libc::pthread_setspecific(key, next) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};
    use std::vec::Vec;

    fn taken() -> u32 {
        let slabs = TABLE.iter().map(|entry| entry.load(Ordering::Acquire));
        slabs
            .filter(|slab| !slab.is_null())
            // SAFETY: slabs are never unmapped.
            .flat_map(|slab| unsafe { &(*slab).taken })
            .map(|word| word.load(Ordering::Acquire).count_ones())
            .sum()
    }

    /// More threads at once than a slab has places: each has its own zeroed block until its end, also while
    /// other destructors run, and all places are given back.
    #[test]
    fn threads_have_places_and_give_them_back() {
        static LATE: Mutex<Vec<(usize, u32)>> = Mutex::new(Vec::new());
        static OTHER: AtomicUsize = AtomicUsize::new(0);
        /// Comes again in the next rounds, when ours has run.
        const ROUNDS_OF_OTHER: usize = 3;
        unsafe extern "C" fn other_destructor(round: *mut c_void) {
            if round.addr() < ROUNDS_OF_OTHER {
                let key = OTHER.load(Ordering::Relaxed) as libc::pthread_key_t;
                let next = core::ptr::without_provenance(round.addr() + 1);
                // SAFETY: the key is the test's.
                unsafe { libc::pthread_setspecific(key, next) };
            }
            // SAFETY: a place of this thread's, or nobody's.
            let flags = unsafe { (*address()).flags.load(Ordering::Relaxed) };
            LATE.lock()
                .expect("no panic")
                .push((address().addr(), flags));
        }
        let mut other = 0;
        // SAFETY: the destructor is a function of this test.
        let status = unsafe { libc::pthread_key_create(&mut other, Some(other_destructor)) };
        assert_eq!(status, 0);
        OTHER.store(other as usize, Ordering::Relaxed);
        const THREADS: usize = PLACES + 100;
        for _ in 0..3 {
            let before = taken();
            let barrier = Barrier::new(THREADS);
            let places = Mutex::new(HashSet::new());
            std::thread::scope(|scope| {
                for i in 0..THREADS as u32 {
                    let (barrier, places) = (&barrier, &places);
                    let thread = std::thread::Builder::new().stack_size(64 << 10);
                    let body = move || {
                        // SAFETY: the thread's own.
                        let block = unsafe { &*address() };
                        assert_eq!(block.flags.swap(i + 1000, Ordering::Relaxed), 0);
                        assert!(places.lock().expect("no panic").insert(address().addr()));
                        // SAFETY: the key is the test's.
                        unsafe {
                            libc::pthread_setspecific(other, core::ptr::without_provenance(1))
                        };
                        barrier.wait();
                        assert_eq!(block.flags.load(Ordering::Relaxed), i + 1000);
                        assert_eq!(address(), core::ptr::from_ref(block));
                    };
                    thread.spawn_scoped(scope, body).expect("a thread begins");
                }
            });
            assert_eq!(places.lock().expect("no panic").len(), THREADS);
            // Scoped threads are joined by what they have said, and end a little later.
            for _ in 0..500 {
                if taken() == before {
                    break;
                }
                std::thread::sleep(core::time::Duration::from_millis(10));
            }
            assert_eq!(taken(), before);
            let late = core::mem::take(&mut *LATE.lock().expect("no panic"));
            assert_eq!(late.len(), THREADS * ROUNDS_OF_OTHER);
            let own = |(at, flags): &(usize, u32)| {
                let is_nobodys = *at == (&raw const FOREIGN).addr();
                is_nobodys || (places.lock().expect("no panic").contains(at) && *flags >= 1000)
            };
            assert!(late.iter().all(own));
        }
    }
}
