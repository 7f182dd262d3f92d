//! The same in the memory of another process, for whoever walks stacks there: threads that wait for long are
//! looked at from outside.
//!
//! The agent says in its process' entry of the mapping where all of it lies ([`directory`]). Nothing there is
//! trusted: what is read is bounded and checked, and a piece that changes meanwhile is none.

use core::cell::RefCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;

use super::{
    BLOCK_BITS, ENTRIES, ENTRY_BITS, Entry, INDEX, INDEX_WORDS, MOST_PIECES, MOST_PROBES,
    ROWS_ALIGN, Rows, WAS_USED, Words, first_place,
};
use crate::managed::{Frame, own_methods};
use crate::unwind::rule::Rule;

/// Addresses of the index, of the pointer to the entries, and of that to the methods.
static DIRECTORY: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// Words of the index that are read at once.
const CHUNK: usize = 64;

/// Where another process finds all of this here.
pub fn directory() -> u64 {
    let places = [
        (&raw const INDEX).addr(),
        (&raw const ENTRIES).addr(),
        own_methods::place(),
    ];
    for (word, place) in DIRECTORY.iter().zip(places) {
        word.store(place as u64, Ordering::Release);
    }
    (&raw const DIRECTORY).addr() as u64
}

/// Fills a buffer from an address of another process. False: some of it cannot be read.
type Read<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> bool;

/// Memory of another process.
struct Remote<'a> {
    read: RefCell<Read<'a>>,
}

impl Remote<'_> {
    fn bytes<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.read.borrow_mut())(at, &mut bytes).then_some(bytes)
    }

    fn word(&self, at: u64) -> Option<u64> {
        self.bytes(at).map(u64::from_ne_bytes)
    }

    fn half(&self, at: u64) -> Option<u32> {
        self.bytes(at).map(u32::from_ne_bytes)
    }
}

/// The words of a piece's rows.
struct RemoteWords<'a, 'm> {
    memory: &'a Remote<'m>,
    at: u64,
    count: usize,
}

impl Words for RemoteWords<'_, '_> {
    fn word(&self, at: usize) -> Option<u32> {
        let offset = (at < self.count).then_some(at as u64 * 4)?;
        self.memory.half(self.at.checked_add(offset)?)
    }
}

/// What is known of an address.
#[derive(Clone, Debug)]
pub struct Found {
    /// How to get to the caller.
    pub rule: Rule,
    /// Whose code it is, outermost first; each of the others is inlined into the one before. Methods have the
    /// numbers of their process.
    pub frames: Vec<Frame>,
}

/// The piece of the process with this directory that has an address (of the instruction itself, not behind a
/// call). `None`: none has, or it was changing. `read` fills a buffer from an address there, or gives false.
pub fn look(
    directory: u64,
    address: u64,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Option<Found> {
    let memory = Remote {
        read: RefCell::new(read),
    };
    let index = memory.word(directory)?;
    let entries = memory.word(memory.word(directory.checked_add(8)?)?)?;
    if entries == 0 {
        return None;
    }
    let block = address >> BLOCK_BITS;
    let first = first_place(block);
    let mut chunk: Option<(usize, [u8; CHUNK * 8])> = None;
    for step in first..first + MOST_PROBES {
        let (number, at) = (step % INDEX_WORDS / CHUNK, step % CHUNK);
        if chunk.is_none_or(|(known, _)| known != number) {
            let place = index.checked_add((number * CHUNK * 8) as u64)?;
            chunk = Some((number, memory.bytes(place)?));
        }
        let word = chunk.and_then(|(_, bytes)| bytes.as_chunks().0.get(at).copied())?;
        let word = u64::from_ne_bytes(word);
        if word == 0 {
            return None;
        }
        if word == WAS_USED || word >> ENTRY_BITS != block {
            continue;
        }
        let number = (word as u32 & ((1 << ENTRY_BITS) - 1)).wrapping_sub(1);
        if (number as usize) < MOST_PIECES {
            let entry = entries.checked_add(u64::from(number) * size_of::<Entry>() as u64)?;
            if let Some(found) = piece(&memory, entry, address) {
                return Some(found);
            }
        }
    }
    None
}

/// What the piece of this entry says of an address.
fn piece(memory: &Remote<'_>, entry: u64, address: u64) -> Option<Found> {
    let half = |offset: usize| memory.half(entry.checked_add(offset as u64)?);
    let word = |offset: usize| memory.word(entry.checked_add(offset as u64)?);
    let version = half(offset_of!(Entry, version))?;
    let offset = address.checked_sub(word(offset_of!(Entry, start))?)?;
    let is_inside = offset < u64::from(half(offset_of!(Entry, bytes))?);
    if version == 0 || version & 1 != 0 || !is_inside {
        return None;
    }
    let rows = word(offset_of!(Entry, rows))?;
    let low = ROWS_ALIGN as u64 - 1;
    let rows = Rows {
        words: RemoteWords {
            memory,
            at: rows & !low,
            count: 1usize.checked_shl((rows & low) as u32)?,
        },
        unwind: half(offset_of!(Entry, unwind))? as usize,
        code: half(offset_of!(Entry, code))? as usize,
        offset: offset as u32,
    };
    let rule = rows.rule()?;
    let frames = rows.all_frames();
    let frames = frames.map_or_else(Vec::new, |(frames, count)| frames[..count].to_vec());
    (half(offset_of!(Entry, version))? == version).then_some(Found { rule, frames })
}

/// What the process with this directory has told of the method with this number of its own: key and text, for
/// [`crate::shm::methods::Methods::insert_words`].
pub fn method(
    directory: u64,
    own: u32,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Option<(u64, Vec<u64>)> {
    let place = {
        let memory = Remote {
            read: RefCell::new(&mut *read),
        };
        memory.word(memory.word(directory.checked_add(16)?)?)?
    };
    own_methods::read_elsewhere(place, own, read)
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::managed::own_methods;
    use crate::native::generated_code::{CodeRow, Piece, UnwindRow, add, frames, remove, rule};
    use crate::shm::mapping::tests::small;
    use crate::shm::methods::{Description, Methods};
    use crate::unwind::rule::Kind;

    /// As the kernel gives it to another process.
    fn read(address: u64, buffer: &mut [u8]) -> bool {
        let bytes = buffer.len();
        crate::platform::read_memory(crate::platform::process_id(), address, buffer) == Ok(bytes)
    }

    #[test]
    fn from_outside_it_is_what_it_is_inside() {
        let start = 0x5000_0000_0000 + (9 << 30) + 40;
        let method = own_methods::add(&Description {
            name: b"made",
            file: b"a.src",
            first_line: 7,
            ..Description::default()
        });
        let method = method.expect("room");
        let frame = |position| Frame::new(method, position);
        let all = [frame(1), frame(2), frame(3)];
        let code = [(0, 0, 1), (4_000, 0, 3), (9_000, 0, 0)];
        let code = code.map(|(offset, first, count)| CodeRow {
            offset,
            first,
            count,
        });
        let rules =
            [8, 16, 24].map(|base| Rule::new(Kind::Sp, base, None, Some(-8)).expect("fits"));
        let unwind = [(0, rules[0]), (50, rules[1]), (8_000, rules[2])];
        let unwind = unwind.map(|(offset, rule)| UnwindRow { offset, rule });
        let piece = Piece {
            start,
            bytes: 10_000,
            unwind: &unwind,
            code: &code,
            frames: &all,
        };
        let handle = add(&piece).expect("room");
        let directory = directory();
        for offset in (0..10_000).step_by(7) {
            let found = look(directory, start + offset, &mut read).expect("a piece");
            assert_eq!(Some(found.rule), rule(start + offset));
            let mut inside = Vec::new();
            frames(start + offset, |frame, _| inside.push(frame));
            assert_eq!(found.frames, inside, "{offset}");
        }
        for outside in [start - 1, start + 10_000] {
            assert!(look(directory, outside, &mut read).is_none());
        }

        let (key, text) = super::method(directory, method, &mut read).expect("is there");
        let mapping = small();
        let methods = Methods::of(&mapping);
        let number = methods.insert_words(key, &text).expect("room");
        let found = methods.read(number).expect("is there");
        assert_eq!(
            (found.name.as_str(), found.file.as_str()),
            ("made", "a.src")
        );
        assert_eq!(found.first_line, 7);
        for none in [0, u32::MAX] {
            assert!(super::method(directory, none, &mut read).is_none());
        }

        // Nothing of it can be read, or it makes no sense.
        assert!(look(8, start, &mut read).is_none());
        let nonsense = &mut |_: u64, buffer: &mut [u8]| {
            buffer.fill(0xee);
            true
        };
        assert!(look(directory, start, nonsense).is_none());
        assert!(super::method(directory, 1, nonsense).is_none());
        assert!(remove(handle));
        assert!(look(directory, start, &mut read).is_none());
    }
}
