//! The parts of the mapping that grow with the session: a process maps them in pieces, as they come into use.
//!
//! Address space is the program's: one with a limit (RLIMIT_AS) must not find it taken. A piece reaches one
//! page into the next one, and that page is what the next one is mapped from, because no descriptor of the
//! file stays open.

use crate::platform::{self, Errno};
use crate::shm::layout::LARGEST_PAGE as PAGE;
use crate::sync::Ordering;
use core::sync::atomic::{AtomicPtr, AtomicU32};
use std::boxed::Box;
use std::vec::Vec;

/// Maps so many bytes of the session's mapping from an offset on.
pub(super) type MapPart<'a> = dyn Fn(usize, usize) -> Result<*mut u8, Errno> + 'a;

/// A table of items of equal size, of which the first ones are mapped.
#[derive(Debug)]
pub(super) struct Pieces {
    list: Box<[AtomicPtr<u8>]>,
    item_bytes: usize,
    items: u32,
    items_in_piece: u32,
    /// Items that are mapped.
    mapped: AtomicU32,
}

impl Pieces {
    /// `items` of `item_bytes` each. The bytes of a piece are whole pages.
    fn new(items: u32, item_bytes: usize, items_in_piece: u32) -> Pieces {
        let pieces = items.div_ceil(items_in_piece);
        Pieces {
            list: (0..pieces)
                .map(|_| AtomicPtr::new(core::ptr::null_mut()))
                .collect::<Vec<_>>()
                .into_boxed_slice(),
            item_bytes,
            items,
            items_in_piece,
            mapped: AtomicU32::new(0),
        }
    }

    /// No items.
    pub(super) fn none() -> Pieces {
        Pieces::new(0, 1, 1)
    }

    /// Inside a mapping of the whole file, which begins at `base`.
    pub(super) fn of_whole(
        base: *mut u8,
        offset: usize,
        items: u32,
        item_bytes: usize,
        items_in_piece: u32,
    ) -> Pieces {
        let pieces = Pieces::new(items, item_bytes, items_in_piece);
        for (i, piece) in pieces.list.iter().enumerate() {
            let at = offset + i * items_in_piece as usize * item_bytes;
            piece.store(base.wrapping_add(at), Ordering::Relaxed);
        }
        pieces.mapped.store(items, Ordering::Relaxed);
        pieces
    }

    /// With the pieces of the first `wanted` items mapped.
    pub(super) fn map(
        map: &MapPart<'_>,
        offset: usize,
        items: u32,
        item_bytes: usize,
        items_in_piece: u32,
        wanted: u32,
    ) -> Result<Pieces, Errno> {
        let pieces = Pieces::new(items, item_bytes, items_in_piece);
        let count = wanted.clamp(1, items).div_ceil(items_in_piece);
        for (i, piece) in pieces.list.iter().enumerate().take(count as usize) {
            let from = offset + i * pieces.piece_bytes();
            match map(pieces.bytes_of(i), from) {
                Ok(memory) => piece.store(memory, Ordering::Relaxed),
                Err(error) => {
                    pieces.unmap();
                    return Err(error);
                }
            }
        }
        pieces.count_mapped();
        Ok(pieces)
    }

    fn piece_bytes(&self) -> usize {
        self.items_in_piece as usize * self.item_bytes
    }

    /// What is mapped for a piece: with the first page of the next one.
    fn bytes_of(&self, piece: usize) -> usize {
        let all = (self.items as usize * self.item_bytes).next_multiple_of(PAGE);
        let before = piece * self.piece_bytes();
        (self.piece_bytes() + PAGE).min(all - before)
    }

    fn count_mapped(&self) {
        let is_mapped = |piece: &&AtomicPtr<u8>| !piece.load(Ordering::Acquire).is_null();
        let pieces = self.list.iter().take_while(is_mapped).count() as u32;
        let items = (pieces * self.items_in_piece).min(self.items);
        self.mapped.fetch_max(items, Ordering::Release);
    }

    /// Items that are mapped: the first ones.
    pub(super) fn mapped(&self) -> u32 {
        self.mapped.load(Ordering::Acquire)
    }

    /// Maps the pieces of the first `wanted` items; where there is no room, fewer.
    #[cold]
    pub(super) fn extend(&self, wanted: u32) {
        let count = wanted.min(self.items).div_ceil(self.items_in_piece) as usize;
        for i in 1..count {
            let (Some(before), Some(piece)) = (self.list.get(i - 1), self.list.get(i)) else {
                break;
            };
            if !piece.load(Ordering::Acquire).is_null() {
                continue;
            }
            let before = before.load(Ordering::Acquire);
            let bytes = self.bytes_of(i);
            // SAFETY: the piece before is mapped with the page behind it, and is never unmapped.
            let page = unsafe { before.add(self.piece_bytes()) };
            let Ok(memory) = platform::map_again(page, bytes) else {
                break;
            };
            let null = core::ptr::null_mut();
            if piece
                .compare_exchange(null, memory, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                // SAFETY: another thread was faster; nothing refers to this one.
                unsafe { platform::unmap(memory, bytes) };
            }
        }
        self.count_mapped();
    }

    /// Where an item lies; `None`: not in what is mapped.
    #[inline]
    pub(super) fn at(&self, i: u32) -> Option<*mut u8> {
        if i >= self.items {
            return None;
        }
        let piece = self.list.get((i / self.items_in_piece) as usize)?;
        let memory = piece.load(Ordering::Acquire);
        let within = (i % self.items_in_piece) as usize * self.item_bytes;
        (!memory.is_null()).then(|| memory.wrapping_add(within))
    }

    /// Whether an address lies in one of the pieces.
    pub(super) fn contains(&self, address: usize) -> bool {
        self.each()
            .any(|(memory, bytes)| address.wrapping_sub(memory.addr()) < bytes)
    }

    /// What is mapped.
    pub(super) fn each(&self) -> impl Iterator<Item = (*mut u8, usize)> {
        let all = self.list.iter().enumerate();
        all.map(|(i, piece)| (piece.load(Ordering::Acquire), self.bytes_of(i)))
            .filter(|(memory, _)| !memory.is_null())
    }

    pub(super) fn unmap(&self) {
        for (memory, bytes) in self.each() {
            // SAFETY: the caller drops what refers to it.
            unsafe { platform::unmap(memory, bytes) };
        }
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::platform::Backing;
    use crate::shm::mapping::tests::unique;

    #[test]
    fn pieces_are_mapped_from_those_before() {
        let path = unique();
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let fd = platform::open(&path, flags, 0o600).expect("made");
        platform::remove(&path);
        // Ten items of a page, three a piece, behind two pages of something else.
        platform::set_length(fd, 12 * PAGE as u64).expect("sized");
        let whole = platform::map(12 * PAGE, Backing::Shared(fd), 0).expect("mapped");
        for i in 0..10u8 {
            // SAFETY: inside of the mapping.
            unsafe { *whole.add((2 + usize::from(i)) * PAGE) = i + 1 };
        }
        let map = |bytes, offset| platform::map(bytes, Backing::Shared(fd), offset);
        let pieces = Pieces::map(&map, 2 * PAGE, 10, PAGE, 3, 1).expect("mapped");
        platform::close(fd);
        assert_eq!(pieces.mapped(), 3);
        assert!(pieces.at(3).is_none());
        pieces.extend(4);
        assert_eq!(pieces.mapped(), 6);
        pieces.extend(u32::MAX);
        assert_eq!(pieces.mapped(), 10);
        for i in 0..10 {
            let at = pieces.at(i).expect("mapped");
            // SAFETY: a page of this item's.
            assert_eq!(u32::from(unsafe { *at }), i + 1);
            assert!(pieces.contains(at.addr()));
        }
        assert!(pieces.at(10).is_none() && !pieces.contains(whole.addr()));
        pieces.unmap();
        // SAFETY: nothing refers to it.
        unsafe { platform::unmap(whole, 12 * PAGE) };
    }
}
