//! The table of methods in the mapping. Most programs have no managed frames: a process maps the table only
//! once it finds a runtime that has some. Its head lies among what all map.

use super::{Mapping, MappingError, allocate};
use crate::platform::{self, Errno};
use crate::shm::layout::{
    METHOD_BYTES, METHOD_ENTRIES_AT, METHOD_INDEX_AT, METHOD_PLACES, METHOD_WORDS, METHOD_WORDS_AT,
    METHODS, MethodEntry, MethodsHeader,
};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Entries and words of text that have storage from the start: with the index 416 KiB. A
/// program that loads modules shows hundreds of methods before the drain, on a busy machine, gives more.
const FIRST_METHODS: u32 = 2048;
const FIRST_WORDS: u32 = 256 << 10 >> 3;
/// Where address space is limited, the table takes at most this part of what is left.
const PART_OF_SPACE: u64 = 16;

impl Mapping {
    /// The head of the table of methods.
    pub fn methods_header(&self) -> &MethodsHeader {
        self.at(self.layout.methods)
    }

    /// `length` `T`s in the table; none while this process has not mapped it.
    fn in_methods<T>(&self, offset: usize, length: usize) -> &[T] {
        assert!(offset + length * size_of::<T>() <= METHOD_BYTES);
        let table = self.methods.load(Ordering::Acquire);
        if table.is_null() {
            return &[];
        }
        // SAFETY: as in `at`; the table is mapped as a whole, and stays mapped as long as the mapping.
        unsafe { core::slice::from_raw_parts(table.add(offset).cast::<T>(), length) }
    }

    /// The hash index of the table.
    pub fn method_index(&self) -> &[AtomicU32] {
        self.in_methods(METHOD_INDEX_AT, METHOD_PLACES)
    }

    /// Its entries. Those at or above `MethodsHeader::limit` may have no storage yet.
    pub fn method_entries(&self) -> &[MethodEntry] {
        self.in_methods(METHOD_ENTRIES_AT, METHODS as usize)
    }

    /// The words of its texts. Those at or above `MethodsHeader::words_limit` may have no storage yet.
    pub fn method_words(&self) -> &[AtomicU64] {
        self.in_methods(METHOD_WORDS_AT, METHOD_WORDS as usize)
    }

    /// Agent: maps the table of methods, which `crate::shm::methods` needs; without it no method is found and
    /// none inserted. For the place where a runtime is found.
    ///
    /// # Errors
    /// The kernel's, and `ENOMEM` where address space is limited and the table would take much of what is
    /// left.
    ///
    /// # Signal safety
    /// Two system calls (prlimit, mremap). A second call does nothing.
    pub fn map_methods(&self) -> Result<(), Errno> {
        if !self.methods.load(Ordering::Acquire).is_null() {
            return Ok(());
        }
        let has_room = |left: u64| METHOD_BYTES as u64 <= left / PART_OF_SPACE;
        if !platform::address_space_left().is_none_or(has_room) {
            return Err(Errno(libc::ENOMEM));
        }
        let head = core::ptr::from_ref(self.methods_header()).cast_mut();
        let table = platform::map_again(head.cast::<u8>(), METHOD_BYTES)?;
        let null = core::ptr::null_mut();
        if self
            .methods
            .compare_exchange(null, table, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: another thread was faster; nothing refers to this one.
            unsafe { platform::unmap(table, METHOD_BYTES) };
        }
        Ok(())
    }

    /// The first storage of the table. For the collector.
    pub(super) fn prepare_methods(&self) -> Result<(), MappingError> {
        let offset = self.layout.methods + METHOD_INDEX_AT;
        allocate(self.fd, offset, METHOD_PLACES * 4)
            .map_err(|e| MappingError::System("allocate the table of methods", e))?;
        self.methods_header().used.store(1, Ordering::Relaxed);
        self.extend_methods(FIRST_METHODS, FIRST_WORDS)
    }

    /// Gives entries below `limit`, and words of texts below `words_limit`, their storage and lets agents use
    /// them. For the collector.
    pub fn extend_methods(&self, limit: u32, words_limit: u32) -> Result<(), MappingError> {
        let header = self.methods_header();
        self.extend_by(
            &header.limit,
            limit.min(METHODS),
            METHOD_ENTRIES_AT,
            size_of::<MethodEntry>(),
        )?;
        self.extend_by(
            &header.words_limit,
            words_limit.min(METHOD_WORDS),
            METHOD_WORDS_AT,
            size_of::<AtomicU64>(),
        )
    }

    fn extend_by(
        &self,
        limit: &AtomicU32,
        to: u32,
        offset: usize,
        item_bytes: usize,
    ) -> Result<(), MappingError> {
        let have = limit.load(Ordering::Relaxed);
        if to <= have {
            return Ok(());
        }
        let from = self.layout.methods + offset + have as usize * item_bytes;
        let bytes = (to - have) as usize * item_bytes;
        allocate(self.fd, from, bytes).map_err(|e| MappingError::System("allocate methods", e))?;
        limit.store(to, Ordering::Release);
        Ok(())
    }
}

#[cfg(all(test, not(miri), not(loom), target_os = "linux"))]
mod tests {
    use super::*;
    use crate::shm::layout::Capacity;
    use crate::shm::mapping::tests::unique;

    #[test]
    fn a_process_maps_the_table_when_it_needs_it() {
        let path = unique();
        let all = Mapping::create(&path, Capacity::default()).expect("made");
        let part = Mapping::join(&path).expect("joined");
        platform::remove(&path);
        let bytes = || part.parts().map(|(_, bytes)| bytes).sum::<usize>();
        let before = bytes();
        assert!(part.method_index().is_empty() && part.method_words().is_empty());
        part.map_methods().expect("mapped");
        part.map_methods().expect("mapped already");
        assert_eq!(bytes(), before + METHOD_BYTES);
        assert_eq!(part.method_index().len(), METHOD_PLACES);
        all.extend_methods(u32::MAX, u32::MAX).expect("room");
        let last = METHOD_WORDS as usize - 1;
        part.method_words()[last].store(77, Ordering::Relaxed);
        assert_eq!(all.method_words()[last].load(Ordering::Relaxed), 77);
        let header = all.methods_header();
        assert_eq!(header.limit.load(Ordering::Relaxed), METHODS);
        assert_eq!(header.words_limit.load(Ordering::Relaxed), METHOD_WORDS);
        part.replace_by_private().expect("replaced");
        assert_eq!(part.method_words()[last].load(Ordering::Relaxed), 0);
        assert_eq!(all.method_words()[last].load(Ordering::Relaxed), 77);
    }
}
