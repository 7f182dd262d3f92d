//! The methods that runtimes have told of in this process, whether or not there is a recording. The table
//! that all processes of a recording share gets those that are on a stack.

use crate::platform::{self, Backing};
use crate::shm::callstack::Full;
use crate::shm::layout::{MethodEntry, MethodsHeader};
use crate::shm::methods::{Description, Methods, TEXT_WORDS};
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::vec;
use std::vec::Vec;

/// Most of them.
const METHODS: usize = 1 << 17;
const PLACES: usize = METHODS * 2;
/// Words of their texts: 32 MiB, of which pages exist when they are used.
const WORDS: usize = 32 << 20 >> 3;
/// Where address space is limited, they take at most this part of what is left.
const PART_OF_SPACE: u64 = 16;

/// All-zero is a valid one without methods, but for the head.
#[repr(C)]
struct Memory {
    header: MethodsHeader,
    index: [AtomicU32; PLACES],
    entries: [MethodEntry; METHODS],
    /// Of each, in which session it has which number: session << 32 | number.
    numbers: [AtomicU64; METHODS],
    words: [AtomicU64; WORDS],
}

static MEMORY: AtomicPtr<Memory> = AtomicPtr::new(core::ptr::null_mut());

fn memory() -> Option<&'static Memory> {
    // SAFETY: null, or mapped for good.
    unsafe { MEMORY.load(Ordering::Acquire).as_ref() }
}

impl Memory {
    fn methods(&self) -> Methods<'_> {
        Methods {
            header: &self.header,
            index: &self.index,
            entries: &self.entries,
            words: &self.words,
        }
    }
}

/// Maps the table at the first method.
#[cold]
fn map() -> Option<&'static Memory> {
    let bytes = size_of::<Memory>();
    let has_room = |left: u64| bytes as u64 <= left / PART_OF_SPACE;
    if !platform::address_space_left().is_none_or(has_room) {
        return None;
    }
    let new = platform::map(bytes, Backing::Anonymous, 0).ok()?;
    let place = new.cast::<Memory>();
    // SAFETY: zeroed memory of this size, at the begin of a page, which nobody else knows yet.
    unsafe {
        let header = &(*place).header;
        header.used.store(1, Ordering::Relaxed);
        header.limit.store(METHODS as u32, Ordering::Relaxed);
        header.words_limit.store(WORDS as u32, Ordering::Relaxed);
    }
    let null = core::ptr::null_mut();
    let placed = MEMORY.compare_exchange(null, place, Ordering::AcqRel, Ordering::Acquire);
    if placed.is_err() {
        // SAFETY: another thread was faster; nobody refers to this one.
        unsafe { platform::unmap(new, bytes) };
    }
    memory()
}

/// A hash of all that a method says of itself (FNV-1a, 64 bits, of the bytes and their lengths).
fn key_of(description: &Description) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;

    let head = u64::from(description.first_line) << 32
        | u64::from(description.line_format) << 8
        | description.runtime as u64;
    let texts = [description.name, description.file, description.lines];
    let lengths = texts.map(|text| text.len() as u64);
    let words = [head].into_iter().chain(lengths);
    let bytes = words.flat_map(u64::to_le_bytes);
    let bytes = bytes.chain(texts.into_iter().flatten().copied());
    let hash = bytes.fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    });
    hash.max(1)
}

/// The own number of a method. Equal descriptions are one method.
///
/// # Errors
/// When there is no room.
///
/// # Signal safety
/// Takes no lock, allocates nothing.
pub fn add(description: &Description) -> Result<u32, Full> {
    let memory = memory().or_else(map).ok_or(Full)?;
    memory.methods().insert(key_of(description), description)
}

/// The number of a method in a session's table, where it is inserted if it is not there yet.
///
/// # Errors
/// When there is no room there, or no such method.
///
/// # Signal safety
/// As [`add`].
pub fn number_in(session: u32, table: &Methods, own: u32) -> Result<u32, Full> {
    let memory = memory().ok_or(Full)?;
    let known = memory.numbers.get(own as usize).ok_or(Full)?;
    let word = known.load(Ordering::Relaxed);
    if (word >> 32) as u32 == session {
        return Ok(word as u32);
    }
    let number = table.insert_from(&memory.methods(), own)?;
    known.store(
        u64::from(session) << 32 | u64::from(number),
        Ordering::Relaxed,
    );
    Ok(number)
}

/// The address of the pointer to the table, for [`read_elsewhere`].
pub fn place() -> usize {
    (&raw const MEMORY).addr()
}

/// Reads the method with this own number of another process, whose table is at this address: key and text.
/// `read` fills a buffer from an address there, or gives false.
pub fn read_elsewhere(
    table: u64,
    own: u32,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Option<(u64, Vec<u64>)> {
    if table == 0 || own == 0 || own as usize >= METHODS {
        return None;
    }
    let entry = offset_of!(Memory, entries) + own as usize * size_of::<MethodEntry>();
    let mut word = |offset: usize| {
        let mut bytes = [0; 8];
        let at = table.checked_add((entry + offset) as u64)?;
        read(at, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    };
    let key = word(offset_of!(MethodEntry, key))?;
    let place = word(offset_of!(MethodEntry, place))?;
    let (first, count) = ((place >> 32) as usize, place as u32 as usize);
    if key == 0 || count > TEXT_WORDS || first.checked_add(count)? > WORDS {
        return None;
    }
    let mut bytes = vec![0; count * 8];
    let at = table.checked_add((offset_of!(Memory, words) + first * 8) as u64)?;
    let words = read(at, &mut bytes).then(|| bytes.as_chunks().0.iter());
    Some((key, words?.map(|word| u64::from_ne_bytes(*word)).collect()))
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::shm::mapping::tests::small;
    use crate::shm::methods::Runtime;
    use std::format;

    #[test]
    fn each_session_has_those_that_it_meets() {
        let named = |name: &'static str| Description {
            runtime: Runtime::Other,
            name: name.as_bytes(),
            file: b"toy.src",
            ..Description::default()
        };
        let [a, b, again] = ["a", "b", "a"].map(|name| add(&named(name)).expect("room"));
        assert!(a != 0 && a != b && a == again);
        let sessions = [small(), small()];
        for (i, mapping) in sessions.iter().enumerate() {
            let table = Methods::of(mapping);
            let session = 1000 + i as u32;
            let numbers = [b, a, b].map(|own| number_in(session, &table, own).expect("room"));
            assert_eq!(numbers, [1, 2, 1]);
            assert_eq!(table.used(), 3);
            let method = table.read(1).expect("there");
            assert_eq!((method.name, method.file), ("b".into(), "toy.src".into()));
        }
        let table = Methods::of(&sessions[0]);
        assert_eq!(number_in(1000, &table, 0), Err(Full));
        assert_eq!(number_in(1000, &table, u32::MAX), Err(Full));
        // More than a table takes.
        let names = (0..100_000).map(|i| format!("{i}"));
        let mut is_full = false;
        for name in names {
            let own = add(&Description {
                name: name.as_bytes(),
                ..Description::default()
            });
            is_full = number_in(1000, &table, own.unwrap_or(0)) == Err(Full);
        }
        assert!(is_full);
    }
}
