//! The agent's own memory: mapped from the kernel, apart from the program's heap.
//!
//! [`Arena`] is a `#[global_allocator]` for libraries that are loaded into a program: what little
//! the agent allocates (at its start, never on a hook's path) does not pass through the malloc that
//! it hooks.

use crate::platform::{self, Backing};
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes mapped at once for small blocks.
const CHUNK_BYTES: usize = 256 << 10;
/// Larger blocks get a mapping of their own, which goes when they are freed.
const LARGE_BYTES: usize = 64 << 10;
const PAGE: usize = 4096;

/// Hands out pieces of mapped chunks and never takes small ones back.
#[derive(Debug)]
pub struct Arena {
    busy: AtomicBool,
    next: AtomicUsize,
    end: AtomicUsize,
}

impl Default for Arena {
    fn default() -> Self {
        Arena::new()
    }
}

impl Arena {
    /// An arena that has mapped nothing yet.
    pub const fn new() -> Arena {
        Arena {
            busy: AtomicBool::new(false),
            next: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }

    /// A piece of the chunk in use, or of a new one. Whoever comes while another thread is in here
    /// (or was, in the parent of this forked process) gets a mapping of its own.
    fn small(&self, layout: Layout) -> *mut u8 {
        if self.busy.swap(true, Ordering::Acquire) {
            return large(layout);
        }
        let align = layout.align();
        let mut at = self.next.load(Ordering::Relaxed).next_multiple_of(align);
        let mut block = core::ptr::null_mut();
        if at == 0 || at + layout.size() > self.end.load(Ordering::Relaxed) {
            at = match platform::map(CHUNK_BYTES, Backing::Anonymous, 0) {
                Ok(chunk) => {
                    let start = chunk.expose_provenance();
                    self.end.store(start + CHUNK_BYTES, Ordering::Relaxed);
                    start
                }
                Err(_) => 0,
            };
        }
        if at != 0 {
            self.next.store(at + layout.size(), Ordering::Relaxed);
            block = core::ptr::with_exposed_provenance_mut(at);
        }
        self.busy.store(false, Ordering::Release);
        block
    }
}

fn large(layout: Layout) -> *mut u8 {
    platform::map(layout.size().next_multiple_of(PAGE), Backing::Anonymous, 0).unwrap_or_default()
}

// SAFETY: blocks are disjoint pieces of mappings that stay until the block is freed; the chunk is
// only cut by one thread at a time; failures give null.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE {
            core::ptr::null_mut()
        } else if layout.size() > LARGE_BYTES {
            large(layout)
        } else {
            self.small(layout)
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() > LARGE_BYTES {
            // SAFETY: a block of this size has a mapping of its own, which the caller gives back.
            unsafe { platform::unmap(block, layout.size().next_multiple_of(PAGE)) };
        }
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_zeroed_and_apart() {
        let arena = Arena::new();
        let mut blocks = std::vec::Vec::new();
        for i in 1..2000usize {
            let layout = Layout::from_size_align(i * 7 % 900 + 1, 1 << (i % 8)).expect("valid");
            // SAFETY: the size is not 0; the block is used within its length.
            unsafe {
                let block = arena.alloc(layout);
                assert!(!block.is_null());
                assert_eq!(block as usize % layout.align(), 0);
                assert!((0..layout.size()).all(|k| *block.add(k) == 0));
                block.write_bytes(i as u8, layout.size());
                blocks.push((block, layout, i as u8));
            }
        }
        for (block, layout, value) in blocks {
            // SAFETY: as above, and each block is given back once.
            unsafe {
                assert!((0..layout.size()).all(|k| *block.add(k) == value));
                arena.dealloc(block, layout);
            }
        }
        let layout = Layout::from_size_align(1 << 20, 4096).expect("valid");
        // SAFETY: as above.
        unsafe {
            let block = arena.alloc(layout);
            block.add((1 << 20) - 1).write(1);
            arena.dealloc(block, layout);
        }
    }
}
