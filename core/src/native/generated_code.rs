//! Code that runtimes have made in this process: how it is unwound, and whose it is.
//!
//! A runtime adds a piece of code before it runs there and removes it before the memory is used for anything
//! else. Captures look addresses up at any moment. Each piece has an entry whose version is even while it
//! holds; a reader that finds another version afterwards has read nothing. Entries and what they lead to are
//! never unmapped.
//!
//! ```text
//!   index    block of 4 KiB << 24 | entry + 1, by the hash of the block, a word for each block that a piece
//!            touches; 0: never used; all ones: was used
//!   entries  {version, start, bytes, rows}
//!   rows     words: unwinding {offset, rule, rule}, code {offset, first frame, frames}, frames {method, position}
//! ```
//!
//! # Signal safety
//! What captures call ([`rule`], [`frames`]) takes no lock and allocates nothing. [`add`] and [`remove`] hold
//! all signals back meanwhile.

pub mod elsewhere;

use crate::managed::Frame;
use crate::platform::{self, Backing};
use crate::unwind::rule::Rule;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Most pieces at a time.
const MOST_PIECES: usize = 1 << 17;
/// A power of two; for pieces of a block or less it is enough.
const INDEX_WORDS: usize = MOST_PIECES * 2;
/// How far from its place a word of the index may lie.
const MOST_PROBES: usize = 1024;
const BLOCK_BITS: u32 = 12;
const ENTRY_BITS: u32 = 24;
const WAS_USED: u64 = u64::MAX;
/// Most bytes of one piece: 64 MiB.
const MOST_BYTES: u32 = 64 << 20;
/// Most rows of each kind of one piece.
const MOST_ROWS: usize = 1 << 16;
/// How often a reader looks at a piece that is replaced meanwhile.
const TRIES: u32 = 3;

const UNWIND_WORDS: usize = 3;
const CODE_WORDS: usize = 3;
const FRAME_WORDS: usize = 2;

/// From an offset on, how to get to the caller.
#[derive(Clone, Copy, Debug)]
pub struct UnwindRow {
    /// Bytes from the piece's start.
    pub offset: u32,
    /// Relative to the stack pointer or the frame pointer.
    pub rule: Rule,
}

/// From an offset on, whose code it is.
#[derive(Clone, Copy, Debug)]
pub struct CodeRow {
    /// Bytes from the piece's start.
    pub offset: u32,
    /// Index of the outermost frame; the others, inlined each into the one before, follow.
    pub first: u32,
    /// How many frames; 0: code of no method.
    pub count: u32,
}

/// A piece of code.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// First address.
    pub start: u64,
    /// Its size.
    pub bytes: u32,
    /// In order of their offsets; the first one is 0.
    pub unwind: &'a [UnwindRow],
    /// In order of their offsets.
    pub code: &'a [CodeRow],
    /// What code rows name, with own numbers of methods (`crate::managed::own_methods`).
    pub frames: &'a [Frame],
}

impl Piece<'_> {
    fn is_sound(&self) -> bool {
        let frames = self.frames.len() as u64;
        let end = self.start.checked_add(u64::from(self.bytes));
        (1..=MOST_BYTES).contains(&self.bytes)
            && self.unwind.first().is_some_and(|row| row.offset == 0)
            && end.is_some_and(|end| end < 1 << 47)
            && [self.unwind.len(), self.code.len(), self.frames.len()]
                .into_iter()
                .all(|rows| rows <= MOST_ROWS)
            && self.unwind.is_sorted_by_key(|row| row.offset)
            && self.code.is_sorted_by_key(|row| row.offset)
            && self
                .code
                .iter()
                .all(|row| u64::from(row.first) + u64::from(row.count) <= frames)
            && self
                .unwind
                .iter()
                .all(|row| row.rule.is_common() || row.rule == Rule::END)
    }

    fn words(&self) -> usize {
        UNWIND_WORDS * self.unwind.len()
            + CODE_WORDS * self.code.len()
            + FRAME_WORDS * self.frames.len()
    }

    fn blocks(&self) -> core::ops::RangeInclusive<u64> {
        self.start >> BLOCK_BITS..=(self.start + u64::from(self.bytes) - 1) >> BLOCK_BITS
    }
}

/// What a piece is removed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u64);

impl Handle {
    fn new(index: u32, version: u32) -> Handle {
        Handle(u64::from(version) << 32 | u64::from(index))
    }

    /// Never 0.
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// A handle from a word that `to_word` gave.
    pub fn from_word(word: u64) -> Handle {
        Handle(word)
    }
}

/// A piece, or a place for one. All-zero is one that was never used.
#[derive(Debug)]
struct Entry {
    /// Even and not 0: it holds.
    version: AtomicU32,
    bytes: AtomicU32,
    start: AtomicU64,
    /// Address of the words, and in its low bits room for how many, as a power of two: one word, so that
    /// nobody reads behind the end. 0: none.
    rows: AtomicU64,
    unwind: AtomicU32,
    code: AtomicU32,
    /// While it is free: the next one that is, plus 1.
    next_free: AtomicU32,
}

static INDEX: [AtomicU64; INDEX_WORDS] = [const { AtomicU64::new(0) }; INDEX_WORDS];
static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(core::ptr::null_mut());
/// Entries that were ever used.
static USED: AtomicU32 = AtomicU32::new(0);
/// The first entry that is free again, plus 1.
static FREE: AtomicU32 = AtomicU32::new(0);
static IS_LOCKED: AtomicBool = AtomicBool::new(false);
/// Raised when a stack that a thread keeps from its last walk may be another one by now.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// A walk has met code of no module that nobody has added.
static MET_UNKNOWN: AtomicBool = AtomicBool::new(false);

/// Changes whenever the rule of generated code may have changed.
#[inline]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

fn entry(index: u32) -> Option<&'static Entry> {
    let entries = ENTRIES.load(Ordering::Acquire);
    let is_there = !entries.is_null() && (index as usize) < MOST_PIECES;
    // SAFETY: room for `MOST_PIECES`, zeroed, mapped for good.
    is_there.then(|| unsafe { &*entries.add(index as usize) })
}

/// Runs a change while nobody else makes one, without signals: a handler of the program's may make one, too.
fn locked<R>(change: impl FnOnce() -> R) -> R {
    let held = platform::hold_signals(u64::MAX);
    while IS_LOCKED.swap(true, Ordering::Acquire) {
        platform::yield_now();
    }
    let result = change();
    IS_LOCKED.store(false, Ordering::Release);
    if let Some(held) = held {
        held.release();
    }
    result
}

/// In a child after fork: who was making a change is not there.
pub fn after_fork() {
    IS_LOCKED.store(false, Ordering::Release);
}

/// Adds a piece. `None`: it is not in order, or there is no room.
pub fn add(piece: &Piece) -> Option<Handle> {
    if !piece.is_sound() {
        return None;
    }
    let handle = locked(|| {
        let index = take_entry()?;
        let entry = entry(index)?;
        let handle = write(entry, index, piece);
        if handle.is_none() {
            give_back(entry, index);
        }
        handle
    });
    if handle.is_some() && MET_UNKNOWN.swap(false, Ordering::AcqRel) {
        // Stacks that threads keep may lead through what was unknown until now.
        GENERATION.fetch_add(1, Ordering::AcqRel);
    }
    handle
}

/// Removes a piece. False: there is none of this handle.
pub fn remove(handle: Handle) -> bool {
    let (index, version) = (handle.0 as u32, (handle.0 >> 32) as u32);
    let is_removed = locked(|| {
        let Some(entry) = entry(index)
            .filter(|entry| version != 0 && entry.version.load(Ordering::Relaxed) == version)
        else {
            return false;
        };
        entry.version.store(version | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let start = entry.start.load(Ordering::Relaxed);
        let piece = Piece {
            start,
            bytes: entry.bytes.load(Ordering::Relaxed),
            unwind: &[],
            code: &[],
            frames: &[],
        };
        piece.blocks().for_each(|block| forget(block, index));
        give_back(entry, index);
        true
    });
    if is_removed {
        // Stacks that threads keep lead through it.
        GENERATION.fetch_add(1, Ordering::AcqRel);
    }
    is_removed
}

fn take_entry() -> Option<u32> {
    if ENTRIES.load(Ordering::Relaxed).is_null() {
        let bytes = MOST_PIECES * size_of::<Entry>();
        let memory = platform::map(bytes, Backing::Anonymous, 0).ok()?;
        ENTRIES.store(memory.cast(), Ordering::Release);
    }
    if let Some(index) = FREE.load(Ordering::Relaxed).checked_sub(1) {
        let next = entry(index)?.next_free.load(Ordering::Relaxed);
        FREE.store(next, Ordering::Relaxed);
        return Some(index);
    }
    let index = USED.load(Ordering::Relaxed);
    entry(index)?;
    USED.store(index + 1, Ordering::Relaxed);
    Some(index)
}

fn give_back(entry: &Entry, index: u32) {
    free_rows(entry);
    entry
        .next_free
        .store(FREE.load(Ordering::Relaxed), Ordering::Relaxed);
    FREE.store(index + 1, Ordering::Relaxed);
}

/// Writes a piece into a free entry and publishes it.
fn write(entry: &Entry, index: u32, piece: &Piece) -> Option<Handle> {
    let version = entry.version.load(Ordering::Relaxed) | 1;
    entry.version.store(version, Ordering::Relaxed);
    fence(Ordering::Release);
    let rows = room_for(entry, piece.words())?;
    let unwind = piece.unwind.iter().flat_map(|row| {
        let rule = row.rule.to_word();
        [row.offset, rule as u32, (rule >> 32) as u32]
    });
    let code = piece.code.iter();
    let code = code.flat_map(|row| [row.offset, row.first, row.count]);
    let frames = piece.frames.iter();
    let frames = frames.flat_map(|frame| [frame.method, frame.position]);
    for (word, value) in rows.iter().zip(unwind.chain(code).chain(frames)) {
        word.store(value, Ordering::Relaxed);
    }
    let relaxed = Ordering::Relaxed;
    entry.start.store(piece.start, relaxed);
    entry.bytes.store(piece.bytes, relaxed);
    entry.unwind.store(piece.unwind.len() as u32, relaxed);
    entry.code.store(piece.code.len() as u32, relaxed);
    for block in piece.blocks() {
        if !note(block, index) {
            piece.blocks().for_each(|block| forget(block, index));
            return None;
        }
    }
    let version = match version.wrapping_add(1) {
        0 => 2,
        version => version,
    };
    entry.version.store(version, Ordering::Release);
    Some(Handle::new(index, version))
}

/// Alignment of rows, whose low bits are free so.
const ROWS_ALIGN: usize = 64;

/// The words that such a word leads to.
fn room_at(rows: u64) -> &'static [AtomicU32] {
    if rows == 0 {
        return &[];
    }
    let low = ROWS_ALIGN as u64 - 1;
    let place = core::ptr::with_exposed_provenance((rows & !low) as usize);
    // SAFETY: memory of that many words, mapped for good, zeroed at first.
    unsafe { core::slice::from_raw_parts(place, 1 << (rows & low)) }
}

/// By size: rows that are free again, each with the next one in its first two words.
static FREE_ROWS: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

/// Room for so many words, as the entry has it until [`give_back`].
fn room_for(entry: &Entry, words: usize) -> Option<&'static [AtomicU32]> {
    let bits = words.max(16).next_power_of_two().trailing_zeros();
    let free = FREE_ROWS.get(bits as usize)?;
    let rows = match free.load(Ordering::Relaxed) {
        0 => take_words(1 << bits)? | u64::from(bits),
        rows => {
            free.store(next_of(rows), Ordering::Relaxed);
            rows
        }
    };
    entry.rows.store(rows, Ordering::Relaxed);
    Some(room_at(rows))
}

/// The next free rows behind these.
fn next_of(rows: u64) -> u64 {
    match room_at(rows) {
        [low, high, ..] => {
            u64::from(low.load(Ordering::Relaxed)) | u64::from(high.load(Ordering::Relaxed)) << 32
        }
        _ => 0,
    }
}

/// Takes an entry's rows back. Who still reads them finds that the entry's version is another one.
fn free_rows(entry: &Entry) {
    let rows = entry.rows.swap(0, Ordering::Relaxed);
    let room = room_at(rows);
    if let ([low, high, ..], Some(free)) =
        (room, FREE_ROWS.get(room.len().trailing_zeros() as usize))
    {
        let next = free.load(Ordering::Relaxed);
        low.store(next as u32, Ordering::Relaxed);
        high.store((next >> 32) as u32, Ordering::Relaxed);
        free.store(rows, Ordering::Relaxed);
    }
}

/// The address of memory for words that is never unmapped. Only a power of two of them, at least 16. A fork
/// at any place leaves the child with less, never with more than there is.
fn take_words(words: usize) -> Option<u64> {
    const CHUNK_BYTES: usize = 256 << 10;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static LEFT: AtomicU64 = AtomicU64::new(0);

    let bytes = (words * size_of::<u32>()) as u64;
    let (mut at, mut left) = (NEXT.load(Ordering::Relaxed), LEFT.load(Ordering::Relaxed));
    if bytes > left {
        let room = CHUNK_BYTES.max(bytes as usize);
        at = platform::map(room, Backing::Anonymous, 0)
            .ok()?
            .expose_provenance() as u64;
        left = room as u64;
        LEFT.store(0, Ordering::Release);
        NEXT.store(at, Ordering::Release);
    }
    LEFT.store(left - bytes, Ordering::Release);
    NEXT.store(at + bytes, Ordering::Release);
    Some(at)
}

/// The words of the index where one of a block may stand, in order.
fn places(block: u64) -> impl Iterator<Item = &'static AtomicU64> {
    let first = first_place(block);
    (first..first + MOST_PROBES).filter_map(|step| INDEX.get(step % INDEX_WORDS))
}

fn first_place(block: u64) -> usize {
    let wide = u128::from(block ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (wide ^ wide >> 64) as usize % INDEX_WORDS
}

fn word_of(block: u64, index: u32) -> u64 {
    block << ENTRY_BITS | u64::from(index + 1)
}

fn note(block: u64, index: u32) -> bool {
    let free = places(block).find(|place| matches!(place.load(Ordering::Relaxed), 0 | WAS_USED));
    free.map(|place| place.store(word_of(block, index), Ordering::Release))
        .is_some()
}

fn forget(block: u64, index: u32) {
    let word = word_of(block, index);
    let is = |step: usize, word: u64| {
        let place = INDEX.get(step % INDEX_WORDS);
        place.is_some_and(|place| place.load(Ordering::Relaxed) == word)
    };
    let store = |step: usize, word: u64| {
        if let Some(place) = INDEX.get(step % INDEX_WORDS) {
            place.store(word, Ordering::Relaxed);
        }
    };
    let first = first_place(block);
    let mut steps = (first..first + MOST_PROBES).take_while(|step| !is(*step, 0));
    let Some(mut at) = steps.find(|step| is(*step, word)) else {
        return;
    };
    store(at, WAS_USED);
    // Where nothing comes behind it, nobody has to look further.
    if is(at + 1, 0) {
        while is(at, WAS_USED) {
            store(at, 0);
            at = at.wrapping_sub(1).wrapping_add(INDEX_WORDS);
        }
    }
}

/// Whether any piece was ever added.
#[inline]
fn has_some() -> bool {
    !ENTRIES.load(Ordering::Relaxed).is_null()
}

/// Words of a piece, wherever they lie.
trait Words {
    fn word(&self, at: usize) -> Option<u32>;
}

impl Words for &'static [AtomicU32] {
    fn word(&self, at: usize) -> Option<u32> {
        Some(self.get(at)?.load(Ordering::Relaxed))
    }
}

/// The rows of a piece while a reader looks at them.
struct Rows<W = &'static [AtomicU32]> {
    words: W,
    unwind: usize,
    code: usize,
    /// Bytes from the piece's start.
    offset: u32,
}

impl<W: Words> Rows<W> {
    /// The last of so many rows, from a place on, that begins at or before the offset.
    fn row<const WORDS: usize>(&self, from: usize, rows: usize) -> Option<[u32; WORDS]> {
        let (mut low, mut high) = (0, rows);
        while low < high {
            let middle = low.midpoint(high);
            match self.words.word(from + middle * WORDS)? <= self.offset {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let at = from + low.checked_sub(1)? * WORDS;
        let mut row = [0; WORDS];
        for (i, word) in row.iter_mut().enumerate() {
            *word = self.words.word(at + i)?;
        }
        Some(row)
    }

    fn rule(&self) -> Option<Rule> {
        let [_, low, high] = self.row::<UNWIND_WORDS>(0, self.unwind)?;
        Some(Rule::from_word(u64::from(high) << 32 | u64::from(low)))
    }

    /// Where the frames lie, and how many there are.
    fn frames(&self) -> Option<(usize, usize)> {
        let from = UNWIND_WORDS * self.unwind;
        let [_, first, count] = self.row::<CODE_WORDS>(from, self.code)?;
        let frames = from + CODE_WORDS * self.code;
        Some((frames + FRAME_WORDS * first as usize, count as usize))
    }

    fn frame(&self, at: usize) -> Option<Frame> {
        Some(Frame::new(self.words.word(at)?, self.words.word(at + 1)?))
    }

    /// The frames at the offset, outermost first, and how many there are.
    fn all_frames(&self) -> Option<([Frame; MOST_INLINED], usize)> {
        let (at, count) = self.frames()?;
        let mut frames = [Frame::default(); MOST_INLINED];
        let count = count.min(MOST_INLINED);
        for (i, frame) in frames.iter_mut().take(count).enumerate() {
            *frame = self.frame(at + FRAME_WORDS * i)?;
        }
        Some((frames, count))
    }
}

/// Looks at the piece that has an address. `None`: none has, or it was changing all the time.
fn look<T>(address: u64, read: impl Fn(&Rows) -> Option<T>) -> Option<T> {
    let block = address >> BLOCK_BITS;
    for place in places(block) {
        let word = place.load(Ordering::Acquire);
        if word == 0 {
            return None;
        }
        if word == WAS_USED || word >> ENTRY_BITS != block {
            continue;
        }
        let index = (word as u32 & ((1 << ENTRY_BITS) - 1)).wrapping_sub(1);
        let Some(entry) = entry(index) else { continue };
        for _ in 0..TRIES {
            let before = entry.version.load(Ordering::Acquire);
            if before == 0 || before & 1 != 0 {
                break;
            }
            let offset = address.wrapping_sub(entry.start.load(Ordering::Relaxed));
            let is_inside = offset < u64::from(entry.bytes.load(Ordering::Relaxed));
            let found = is_inside.then(|| read(&rows_of(entry, offset as u32)));
            fence(Ordering::Acquire);
            if entry.version.load(Ordering::Relaxed) == before {
                match found {
                    Some(found) => return found,
                    None => break,
                }
            }
        }
    }
    None
}

fn rows_of(entry: &Entry, offset: u32) -> Rows {
    let rows = |rows: &AtomicU32| rows.load(Ordering::Relaxed) as usize;
    Rows {
        words: room_at(entry.rows.load(Ordering::Relaxed)),
        unwind: rows(&entry.unwind),
        code: rows(&entry.code),
        offset,
    }
}

/// How to get to the caller from an address (of the instruction itself, not behind a call).
pub fn rule(address: u64) -> Option<Rule> {
    let rule = has_some().then(|| look(address, Rows::rule)).flatten();
    if rule.is_none() && !MET_UNKNOWN.load(Ordering::Relaxed) {
        MET_UNKNOWN.store(true, Ordering::Release);
    }
    rule
}

/// Most frames of one place.
const MOST_INLINED: usize = 32;

/// Calls `each` with the frames at an address (of the instruction itself, not behind a call), outermost
/// first; inner ones beyond 32 are left out. False: it is code of no method that is known.
pub fn frames(address: u64, mut each: impl FnMut(Frame, bool)) -> bool {
    let found = look(address, Rows::all_frames);
    let Some((frames, count)) = found.filter(|(_, count)| *count != 0) else {
        return false;
    };
    for (i, frame) in frames.iter().take(count).enumerate() {
        each(*frame, i != 0);
    }
    true
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;
    use std::vec::Vec;

    /// Addresses of these tests: nothing lies there, and nothing is read.
    const BASE: u64 = 0x5000_0000_0000;

    fn rule_of(base: i64) -> Rule {
        Rule::new(Kind::Sp, base, None, Some(-8)).expect("fits")
    }

    use crate::unwind::rule::Kind;

    /// Adds a piece whose frames are all of the method, and whose rules say the number of the method, too.
    fn add_of(start: u64, bytes: u32, method: u32) -> Option<Handle> {
        let rule = rule_of(i64::from(method) * 8);
        let unwind = [0, bytes / 2].map(|offset| UnwindRow { offset, rule });
        let position = method + 1;
        let frames = [Frame::new(method, position); 3];
        let code = [(0, 0, 1), (bytes / 2, 1, 2)].map(|(offset, first, count)| CodeRow {
            offset,
            first,
            count,
        });
        add(&Piece {
            start,
            bytes,
            unwind: &unwind,
            code: &code,
            frames: &frames,
        })
    }

    fn frames_at(address: u64) -> Option<Vec<(Frame, bool)>> {
        let mut found = Vec::new();
        frames(address, |frame, is_inlined| found.push((frame, is_inlined))).then_some(found)
    }

    #[test]
    fn what_was_added_is_found_until_it_is_removed() {
        let start = BASE + (1 << 30) + 100;
        let handle = add_of(start, 10_000, 7).expect("room");
        let frame = Frame::new(7, 8);
        for (offset, count) in [(0, 1), (4_999, 1), (5_000, 2), (9_999, 2)] {
            let found = frames_at(start + offset).expect("a method");
            let expected: Vec<_> = (0..count).map(|i| (frame, i != 0)).collect();
            assert_eq!(found, expected, "{offset}");
            assert_eq!(rule(start + offset), Some(rule_of(56)));
        }
        for outside in [start - 1, start + 10_000, start + (1 << 40)] {
            assert_eq!((frames_at(outside), rule(outside)), (None, None));
        }
        assert!(remove(handle) && !remove(handle));
        assert_eq!((frames_at(start), rule(start)), (None, None));
        // Its place is another one's now.
        let other = add_of(start, 8, 9).expect("room");
        assert!(!remove(handle));
        assert_eq!(rule(start), Some(rule_of(72)));
        assert!(remove(other));
    }

    #[test]
    fn what_is_not_in_order_is_refused() {
        let row = |offset| UnwindRow {
            offset,
            rule: rule_of(8),
        };
        let code = |first, count| CodeRow {
            offset: 0,
            first,
            count,
        };
        let good = Piece {
            start: BASE,
            bytes: 8,
            unwind: &[row(0)],
            code: &[],
            frames: &[],
        };
        let bad = [
            Piece { bytes: 0, ..good },
            Piece {
                start: u64::MAX - 1,
                ..good
            },
            Piece {
                start: 1 << 47,
                ..good
            },
            Piece {
                unwind: &[row(4), row(0)],
                ..good
            },
            Piece {
                code: &[code(0, 1)],
                ..good
            },
            Piece {
                code: &[code(u32::MAX, u32::MAX)],
                ..good
            },
        ];
        for piece in &bad {
            assert_eq!(add(piece), None, "{piece:?}");
        }
    }

    /// Threads replace pieces at the same places all the time; others never find half of one.
    #[test]
    fn a_reader_finds_one_piece_or_none() {
        const PLACES: u64 = 8;
        const STRIDE: u64 = 3_000;

        let start = BASE + (2 << 30);
        let stop = AtomicBool::new(false);
        let mut seen = 0u64;
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                let stop = &stop;
                scope.spawn(move || {
                    let mut handles = [None; PLACES as usize];
                    let mut method = 1 + writer as u32;
                    while !stop.load(Ordering::Relaxed) {
                        for place in (writer..PLACES).step_by(2) {
                            if let Some(handle) = handles[place as usize].take() {
                                assert!(remove(handle));
                            }
                            method = method % 100_000 + 2;
                            let bytes = 1 + method % 2_999;
                            handles[place as usize] =
                                add_of(start + place * STRIDE, bytes.max(2), method);
                        }
                    }
                    for handle in handles.into_iter().flatten() {
                        assert!(remove(handle));
                    }
                });
            }
            let mut at = 0u64;
            for _ in 0..400_000 {
                at = (at * 31 + 17) % (PLACES * STRIDE);
                let Some(found) = frames_at(start + at) else {
                    continue;
                };
                seen += 1;
                let first = found[0].0;
                assert!(found.iter().all(|(frame, _)| *frame == first), "{found:?}");
                assert_eq!(first.position, first.method + 1);
                assert!(found.len() <= 2);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(seen > 1_000, "{seen}");
    }
}
