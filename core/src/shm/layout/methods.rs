//! The table of methods: sizes, and what lies where in it. See `crate::shm::methods`.

use crate::sync::{AtomicU32, AtomicU64};

/// Entries of the table, a power of two. Entry 0 is never used: a method's number is the index of its entry.
pub const METHODS: u32 = 1 << 14;
/// Places of the hash index: twice as many.
pub const METHOD_PLACES: usize = METHODS as usize * 2;
/// Words for the texts of methods: 4 MiB.
pub const METHOD_WORDS: u32 = 4 << 20 >> 3;

/// Bytes from the table's head to its index, entries and texts, and of all.
pub(crate) const METHOD_INDEX_AT: usize = 4096;
pub(crate) const METHOD_ENTRIES_AT: usize = METHOD_INDEX_AT + METHOD_PLACES * 4;
pub(crate) const METHOD_WORDS_AT: usize =
    METHOD_ENTRIES_AT + METHODS as usize * size_of::<AtomicU64>() * 2;
pub(crate) const METHOD_BYTES: usize = METHOD_WORDS_AT + METHOD_WORDS as usize * 8;

/// Head of the table of methods.
#[repr(C, align(4096))]
#[derive(Debug, Default)]
pub struct MethodsHeader {
    /// Next number; agents take it by `fetch_add`. Number 0 is never given.
    pub used: AtomicU32,
    /// Entries that may be used: allocated by the collector, only grows.
    pub limit: AtomicU32,
    /// The same of the words of texts.
    pub words_used: AtomicU32,
    /// Words that may be used, as `limit`.
    pub words_limit: AtomicU32,
    /// 1: some process has mapped the table and is going to fill it; 2: for that it has been given more
    /// storage.
    pub is_mapped: AtomicU32,
}

/// One method. `place` is stored last, with release: an entry whose place is 0 is a hole.
#[repr(C, align(16))]
#[derive(Debug, Default)]
pub struct MethodEntry {
    /// What identifies the method: a hash of its content that whoever inserts it has made.
    pub key: AtomicU64,
    /// First word of its text << 32 | words.
    pub place: AtomicU64,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<MethodsHeader>() == METHOD_INDEX_AT);
    assert!(size_of::<MethodEntry>() == 16);
    assert!(METHODS.is_power_of_two());
    assert!(METHOD_ENTRIES_AT.is_multiple_of(4096) && METHOD_WORDS_AT.is_multiple_of(4096));
};
