//! The session's own heap, mapped from the kernel: classes of blocks with a list of free ones each, and
//! mappings for large blocks.
//!
//! It shares nothing with the program's malloc, so no lock of that is ever waited for. Its own lock is held
//! for some instructions by threads that no signal interrupts.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use stackbeat_core::platform::{self, Backing};

/// Blocks of 16, 24, 32, 48, 64, 96, … bytes up to the largest: powers of two, and one and a half of them.
const SMALLEST_SHIFT: u32 = 4;
const CLASSES: usize = 24;
/// Larger blocks are mappings of their own, which go when they are freed.
const LARGEST: usize = 64 << 10;
const CHUNK_BYTES: usize = 256 << 10;
const PAGE: usize = 4096;

/// A free block; the first word of its memory.
#[derive(Debug)]
struct Free {
    next: *mut Free,
}

#[derive(Debug)]
struct Inner {
    free: [*mut Free; CLASSES + 2],
    /// What is left of the chunk in use.
    next: *mut u8,
    left: usize,
}

/// A `#[global_allocator]` that frees.
#[derive(Debug)]
pub struct Heap {
    /// 0 free, 1 taken, 2 taken and waited for; a futex word.
    lock: AtomicU32,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only used by who holds the lock.
unsafe impl Sync for Heap {}

impl Default for Heap {
    fn default() -> Heap {
        Heap::new()
    }
}

impl Heap {
    /// One that has mapped nothing yet.
    pub const fn new() -> Heap {
        Heap {
            lock: AtomicU32::new(0),
            inner: UnsafeCell::new(Inner {
                free: [null_mut(); CLASSES + 2],
                next: null_mut(),
                left: 0,
            }),
        }
    }

    fn locked<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        let taken = self
            .lock
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            while self.lock.swap(2, Ordering::Acquire) != 0 {
                platform::wait(&self.lock, 2, None);
            }
        }
        // SAFETY: the lock is held.
        let result = f(unsafe { &mut *self.inner.get() });
        if self.lock.swap(0, Ordering::Release) == 2 {
            platform::wake(&self.lock, 1);
        }
        result
    }
}

/// The class of a block of this layout and its bytes. `None`: it gets a mapping of its own.
fn class(layout: Layout) -> Option<(usize, usize)> {
    let bytes = layout.size().max(1 << SMALLEST_SHIFT);
    if bytes > LARGEST || layout.align() > PAGE {
        return None;
    }
    let power = bytes.next_power_of_two().max(layout.align());
    let shift = power.trailing_zeros() - SMALLEST_SHIFT;
    let between = power / 4 * 3;
    // Blocks of one and a half powers are aligned to half of one only.
    if shift > 0 && bytes <= between && layout.align() <= between & between.wrapping_neg() {
        return Some((2 * shift as usize - 1, between));
    }
    Some((2 * shift as usize, power))
}

impl Inner {
    fn take(&mut self, class: usize, bytes: usize) -> *mut u8 {
        let block = self.free[class];
        if !block.is_null() {
            // SAFETY: a free block of this heap, which `give` has written.
            self.free[class] = unsafe { (*block).next };
            return block.cast();
        }
        let align = bytes & bytes.wrapping_neg();
        let align = align.min(PAGE);
        let skip = self.next.align_offset(align);
        if self.next.is_null() || self.left < skip + bytes {
            let Ok(chunk) = platform::map(CHUNK_BYTES, Backing::Anonymous, 0) else {
                return null_mut();
            };
            (self.next, self.left) = (chunk, CHUNK_BYTES);
            return self.take(class, bytes);
        }
        let block = self.next.wrapping_add(skip);
        self.next = block.wrapping_add(bytes);
        self.left -= skip + bytes;
        block
    }

    /// # Safety
    /// The block is one of this class, and nobody uses it any more.
    unsafe fn give(&mut self, class: usize, block: *mut u8) {
        let block = block.cast::<Free>();
        // SAFETY: by contract; every class has room for a pointer and is aligned for one.
        unsafe { (*block).next = self.free[class] };
        self.free[class] = block;
    }
}

fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

// SAFETY: blocks are disjoint pieces of mappings, aligned as their class says, and belong to their owner
// until they are freed; failures give null.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            Some((class, bytes)) => self.locked(|inner| inner.take(class, bytes)),
            None if layout.align() > PAGE => null_mut(),
            None => platform::map(pages(layout.size()), Backing::Anonymous, 0).unwrap_or_default(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class(layout) {
            Some((class, _)) => self.locked(|inner| {
                // SAFETY: by the contract of `GlobalAlloc` the block is of this layout, so of this class.
                unsafe { inner.give(class, block) }
            }),
            // SAFETY: the same; such a block has a mapping of its own.
            None => unsafe { platform::unmap(block, pages(layout.size())) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_for() {
        let mut last = 0;
        for bytes in 1..=LARGEST {
            let layout = Layout::from_size_align(bytes, 8).expect("valid");
            let (class, room) = class(layout).expect("small");
            assert!(
                room >= bytes && class < CLASSES + 2,
                "{bytes}: {class} {room}"
            );
            assert!(room <= bytes.max(16) * 3 / 2 + 16, "{bytes}: {room}");
            assert!(room >= last);
            last = room;
        }
    }

    #[test]
    fn blocks_are_apart_and_come_again() {
        let heap = Heap::new();
        let mut blocks = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for round in 0..3 {
            for i in 0..4000usize {
                let bytes = i * 37 % 5000 + 1;
                let align = 1 << (i % 13);
                let layout = Layout::from_size_align(bytes, align).expect("valid");
                // SAFETY: the size is not 0.
                let block = unsafe { heap.alloc(layout) };
                assert!(
                    !block.is_null() && block.addr().is_multiple_of(align),
                    "{bytes} {align}"
                );
                // SAFETY: the block has so many bytes.
                unsafe { block.write_bytes(i as u8, bytes) };
                assert!(
                    round == 0 || seen.contains(&block.addr()),
                    "nothing is mapped anew"
                );
                seen.insert(block.addr());
                blocks.push((block, layout, i as u8));
            }
            for (block, layout, value) in blocks.drain(..) {
                // SAFETY: it was written above, and is given back once.
                unsafe {
                    assert!((0..layout.size()).all(|k| *block.add(k) == value));
                    heap.dealloc(block, layout);
                }
            }
        }
    }

    #[test]
    fn threads_share_it() {
        static SHARED: Heap = Heap::new();
        std::thread::scope(|scope| {
            for seed in 1..5usize {
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for i in 0..20_000usize {
                        let bytes = (i * seed * 7919) % 3000 + 1;
                        let layout = Layout::from_size_align(bytes, 8).expect("valid");
                        // SAFETY: as above.
                        unsafe {
                            let block = SHARED.alloc(layout);
                            block.write_bytes(seed as u8, bytes);
                            held.push((block, layout));
                            if held.len() > 64 {
                                let (block, layout) = held.swap_remove(i % 64);
                                assert!((0..layout.size()).all(|k| *block.add(k) == seed as u8));
                                SHARED.dealloc(block, layout);
                            }
                        }
                    }
                });
            }
        });
    }
}
