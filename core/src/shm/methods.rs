//! The table of methods: names, files and line tables of managed code (Python, a JVM, …), insert-only, shared
//! by all processes. A node of the CallstackTable names a method by its number.
//!
//! Text and number are taken by `fetch_add` and written, and only then published in the hash index by
//! compare-and-swap. Whoever finds a number in the hash therefore finds the method written. Who dies in
//! between leaves a hole. Nothing is ever removed, and no number is given twice.
//!
//! ```text
//!   index    number of a method, by the hash of its key; 0: free
//!   entries  {key, place of its text}, by number
//!   words    texts: runtime | line format << 8 | bytes of name << 16, file << 32, line table << 48;
//!            first line; then name, file and line table, one behind the other, little endian
//! ```

use crate::shm::callstack::Full;
use crate::shm::layout::{MethodEntry, MethodsHeader};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::string::String;
use std::vec::Vec;

/// How far from its place an entry may lie.
const MAX_PROBES: usize = 64;
/// Most bytes of a name and of a file: longer ones are cut.
pub const NAME_BYTES: usize = 512;
/// The same of a file.
pub const FILE_BYTES: usize = 1024;
/// Most bytes of a line table: a longer one is left out.
pub const LINES_BYTES: usize = 16 << 10;
/// Words before the bytes of a text.
const HEAD_WORDS: usize = 2;
/// The most that the text of a method takes.
pub const TEXT_WORDS: usize = HEAD_WORDS + (NAME_BYTES + FILE_BYTES + LINES_BYTES).div_ceil(8);

/// The position of a frame in its method that is not known.
pub const NO_POSITION: u32 = u32::MAX;

/// The address field of a managed node: the number of its method (0: not known), and the position in it
/// (bytes of its bytecode, or [`NO_POSITION`]).
pub const fn managed_address(method: u32, position: u32) -> u64 {
    (method as u64) << 32 | position as u64
}

/// What runs a method. The numbers are those of `proto::v1::methods::Runtime`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Runtime {
    /// Not one of these.
    #[default]
    Other = 0,
    /// CPython.
    CPython = 1,
    /// Ruby (CRuby).
    Ruby = 2,
}

impl Runtime {
    /// By its number; one that is not known is [`Runtime::Other`].
    pub fn from_number(number: u8) -> Runtime {
        match number {
            1 => Runtime::CPython,
            2 => Runtime::Ruby,
            _ => Runtime::Other,
        }
    }
}

/// What an agent says of a method.
#[derive(Clone, Copy, Debug, Default)]
pub struct Description<'a> {
    /// What runs it.
    pub runtime: Runtime,
    /// Where it is defined; 0: not known.
    pub first_line: u32,
    /// How `lines` is encoded, which `crate::managed::lines` knows; 0: there is no line table.
    pub line_format: u8,
    /// Qualified, UTF-8.
    pub name: &'a [u8],
    /// Path of the source, as the runtime has it.
    pub file: &'a [u8],
    /// The line table, as the runtime has it.
    pub lines: &'a [u8],
}

/// The same as it was read from the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Method {
    /// What identifies it.
    pub key: u64,
    /// As in [`Description`], and so are the others.
    pub runtime: Runtime,
    /// Where it is defined; 0: not known.
    pub first_line: u32,
    /// How `lines` is encoded.
    pub line_format: u8,
    /// Qualified.
    pub name: String,
    /// Path of the source.
    pub file: String,
    /// The line table.
    pub lines: Vec<u8>,
}

impl Method {
    /// Bytes of its text in the table, about: those of all methods lie beside each other.
    pub fn text_bytes(&self) -> usize {
        HEAD_WORDS * 8 + self.name.len() + self.file.len() + self.lines.len()
    }
}

/// The table.
#[derive(Clone, Copy, Debug)]
pub struct Methods<'a> {
    /// How far it is used, and may be.
    pub header: &'a MethodsHeader,
    /// Twice as many as entries, a power of two.
    pub index: &'a [AtomicU32],
    /// By number.
    pub entries: &'a [MethodEntry],
    /// Texts.
    pub words: &'a [AtomicU64],
}

impl<'a> Methods<'a> {
    /// As [`Methods::of`], for an agent that is about to use it: maps it first, and has the collector give it
    /// more storage. Where that fails it is empty and full.
    ///
    /// # Signal safety
    /// Three system calls at the first time.
    #[cfg(not(loom))]
    pub fn mapped(mapping: &'a crate::shm::mapping::Mapping) -> Methods<'a> {
        use crate::shm::buffer::Pool;

        let is_mapped = &mapping.methods_header().is_mapped;
        if mapping.map_methods().is_ok()
            && is_mapped.load(Ordering::Relaxed) == 0
            && is_mapped.swap(1, Ordering::Relaxed) == 0
        {
            mapping.want_drain();
        }
        Methods::of(mapping)
    }

    /// The table of a mapping. In an agent it is empty and full until [`Methods::mapped`].
    #[cfg(not(loom))]
    pub fn of(mapping: &'a crate::shm::mapping::Mapping) -> Methods<'a> {
        Methods {
            header: mapping.methods_header(),
            index: mapping.method_index(),
            entries: mapping.method_entries(),
            words: mapping.method_words(),
        }
    }

    /// The places of the index where a key may stand, in order.
    fn places(&self, key: u64) -> impl Iterator<Item = &'a AtomicU32> {
        let index = self.index;
        // The mask keeps it in bounds: the length is a power of two, or there is none.
        let mask = index.len().wrapping_sub(1);
        let wide = (key ^ 0x9e37_79b9_7f4a_7c15) as u128 * 0xd6e8_feb8_6659_fd93;
        let start = (wide ^ wide >> 64) as usize;
        (0..MAX_PROBES).map_while(move |step| index.get(start.wrapping_add(step) & mask))
    }

    /// The number of the method with this key, if there is one.
    ///
    /// # Signal safety
    /// As [`Methods::insert`].
    pub fn find(&self, key: u64) -> Option<u32> {
        for place in self.places(key) {
            match place.load(Ordering::Acquire) {
                0 => return None,
                number if self.holds(number, key) => return Some(number),
                _ => {}
            }
        }
        None
    }

    /// The number of the method with this key, described so if there is none. Equal keys get the equal
    /// number, whatever process asks. `key` is never 0.
    ///
    /// # Errors
    /// When there is no room, for now or for good.
    ///
    /// # Signal safety
    /// Allocates nothing, waits for nobody: a call interrupted anywhere disturbs no other.
    pub fn insert(&self, key: u64, description: &Description) -> Result<u32, Full> {
        let text = Text::of(description);
        self.insert_text(key, text.words(), |words| text.store(words))
    }

    /// The number here of a method of another table, which gets it if it has none.
    ///
    /// # Errors
    /// When there is no room, or no such method there.
    ///
    /// # Signal safety
    /// As [`Methods::insert`].
    pub fn insert_from(&self, other: &Methods, number: u32) -> Result<u32, Full> {
        let (key, text) = other.text(number).ok_or(Full)?;
        self.insert_text(key, text.len() as u32, |words| {
            for (to, from) in words.iter().zip(text) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        })
    }

    /// The number of a method whose key and text were read from another process.
    ///
    /// # Errors
    /// When there is no room, or the text is longer than any.
    pub fn insert_words(&self, key: u64, text: &[u64]) -> Result<u32, Full> {
        let count = (text.len() <= TEXT_WORDS).then_some(text.len() as u32);
        self.insert_text(key, count.ok_or(Full)?, |words| {
            for (to, from) in words.iter().zip(text) {
                to.store(*from, Ordering::Relaxed);
            }
        })
    }

    fn insert_text(&self, key: u64, words: u32, store: impl Fn(&[AtomicU64])) -> Result<u32, Full> {
        if key == 0 {
            return Err(Full);
        }
        let mut mine = 0;
        for place in self.places(key) {
            let mut found = place.load(Ordering::Acquire);
            if found == 0 {
                if mine == 0 {
                    mine = self.make(key, words, &store)?;
                }
                match place.compare_exchange(0, mine, Ordering::Release, Ordering::Acquire) {
                    Ok(_) => return Ok(mine),
                    Err(other) => found = other,
                }
            }
            if self.holds(found, key) {
                // Another thread was faster: the entry made here becomes a hole.
                self.clear(mine);
                return Ok(found);
            }
        }
        self.clear(mine);
        Err(Full)
    }

    fn holds(&self, number: u32, key: u64) -> bool {
        let entry = self.entries.get(number as usize);
        key != 0 && entry.is_some_and(|entry| entry.key.load(Ordering::Relaxed) == key)
    }

    /// Takes the next free number and writes the method there.
    fn make(&self, key: u64, words: u32, store: impl Fn(&[AtomicU64])) -> Result<u32, Full> {
        let limit = self.words_limit();
        let Some((first, number)) = take(&self.header.words_used, words, limit)
            .and_then(|first| Some((first, take(&self.header.used, 1, self.limit())?)))
            .filter(|(_, number)| *number != 0)
        else {
            return Err(Full);
        };
        let place = self.words.get(first as usize..(first + words) as usize);
        let (Some(place), Some(entry)) = (place, self.entries.get(number as usize)) else {
            return Err(Full);
        };
        store(place);
        entry.key.store(key, Ordering::Relaxed);
        let place = u64::from(first) << 32 | u64::from(words);
        entry.place.store(place, Ordering::Release);
        Ok(number)
    }

    fn clear(&self, number: u32) {
        if number != 0
            && let Some(entry) = self.entries.get(number as usize)
        {
            entry.place.store(0, Ordering::Relaxed);
            entry.key.store(0, Ordering::Relaxed);
        }
    }

    fn limit(&self) -> u32 {
        let limit = self.header.limit.load(Ordering::Acquire);
        limit.min(self.entries.len() as u32)
    }

    fn words_limit(&self) -> u32 {
        let limit = self.header.words_limit.load(Ordering::Acquire);
        limit.min(self.words.len() as u32)
    }

    /// Numbers that have been given out: those below may be read.
    pub fn used(&self) -> u32 {
        self.header.used.load(Ordering::Acquire).min(self.limit())
    }

    /// Whether half of what has storage is used, or more: then the drain should give more
    /// (`crate::shm::buffer::Pool::want_drain`).
    pub fn is_low(&self) -> bool {
        let words = self.header.words_used.load(Ordering::Relaxed);
        let (limit, words_limit) = (self.limit(), self.words_limit());
        let methods_low = limit < self.entries.len() as u32 && self.used() >= limit / 2;
        methods_low || (words_limit < self.words.len() as u32 && words >= words_limit / 2)
    }

    /// A method's key and the words of its text; `None` as for [`Methods::read`].
    fn text(&self, number: u32) -> Option<(u64, &'a [AtomicU64])> {
        if number == 0 || number >= self.used() {
            return None;
        }
        let entry = self.entries.get(number as usize)?;
        let place = entry.place.load(Ordering::Acquire);
        let (first, words) = ((place >> 32) as usize, place as u32 as usize);
        let end = first.checked_add(words)?;
        if end > self.words_limit() as usize {
            return None;
        }
        let key = entry.key.load(Ordering::Relaxed);
        Some((key, self.words.get(first..end)?))
    }

    /// A method; `None` for holes (which may be filled later) and for what no agent writes.
    pub fn read(&self, number: u32) -> Option<Method> {
        let (key, words) = self.text(number)?;
        let (head, rest) = words.split_first()?;
        let (first_line, rest) = rest.split_first()?;
        let head = head.load(Ordering::Relaxed);
        let [_, name, file, lines] = [0, 16, 32, 48].map(|by| usize::from((head >> by) as u16));
        let is_ours = name <= NAME_BYTES && file <= FILE_BYTES && lines <= LINES_BYTES;
        let bytes = name + file + lines;
        if !is_ours || rest.len() != bytes.div_ceil(8) {
            return None;
        }
        let text: Vec<u8> = rest
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .take(bytes)
            .collect();
        let (name, rest) = text.split_at(name);
        let (file, lines) = rest.split_at(file);
        Some(Method {
            key,
            runtime: Runtime::from_number(head as u8),
            first_line: first_line.load(Ordering::Relaxed) as u32,
            line_format: (head >> 8) as u8,
            name: String::from_utf8_lossy(name).into_owned(),
            file: String::from_utf8_lossy(file).into_owned(),
            lines: lines.to_vec(),
        })
    }
}

/// Takes `count` of what has this counter; `None`: fewer are left.
fn take(counter: &AtomicU32, count: u32, limit: u32) -> Option<u32> {
    // Read first, so that a full table's counter does not run on and wrap.
    let has_room = |used: u32| used.checked_add(count).is_some_and(|end| end <= limit);
    if !has_room(counter.load(Ordering::Relaxed)) {
        return None;
    }
    let first = counter.fetch_add(count, Ordering::Relaxed);
    has_room(first).then_some(first)
}

/// A description in the form in which it is stored.
struct Text<'a> {
    head: u64,
    first_line: u64,
    parts: [&'a [u8]; 3],
}

impl<'a> Text<'a> {
    fn of(description: &Description<'a>) -> Text<'a> {
        let name = cut(description.name, NAME_BYTES);
        let file = cut(description.file, FILE_BYTES);
        let (line_format, lines): (u8, &[u8]) = match description.lines.len() {
            0..=LINES_BYTES if description.line_format != 0 => {
                (description.line_format, description.lines)
            }
            _ => (0, &[]),
        };
        Text {
            head: description.runtime as u64
                | u64::from(line_format) << 8
                | (name.len() as u64) << 16
                | (file.len() as u64) << 32
                | (lines.len() as u64) << 48,
            first_line: description.first_line.into(),
            parts: [name, file, lines],
        }
    }

    fn words(&self) -> u32 {
        let bytes: usize = self.parts.iter().map(|part| part.len()).sum();
        (HEAD_WORDS + bytes.div_ceil(8)) as u32
    }

    /// Fills these words: as many as it has.
    fn store(&self, words: &[AtomicU64]) {
        let mut bytes = self.parts.into_iter().flatten().copied();
        let packed = core::iter::from_fn(|| {
            let mut word = [0; 8];
            for byte in &mut word {
                *byte = bytes.next().unwrap_or(0);
            }
            Some(u64::from_le_bytes(word))
        });
        let values = [self.head, self.first_line].into_iter().chain(packed);
        for (word, value) in words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// The first bytes of a UTF-8 text, up to the end of a character.
fn cut(text: &[u8], most: usize) -> &[u8] {
    let is_inside = |byte: u8| byte & 0xc0 == 0x80;
    let mut end = text.len().min(most);
    // A character has at most three bytes behind its first one.
    for _ in 0..3 {
        match text.get(end) {
            Some(next) if is_inside(*next) && end > 0 => end -= 1,
            _ => break,
        }
    }
    &text[..end]
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::shm::mapping::Mapping;
    use crate::shm::mapping::tests::{small, unique};
    use std::format;
    use std::vec;

    fn named(name: &str) -> Description<'_> {
        Description {
            runtime: Runtime::CPython,
            first_line: 7,
            line_format: 3,
            name: name.as_bytes(),
            file: b"/srv/app/views.py",
            lines: &[1, 2, 3],
        }
    }

    #[test]
    fn equal_keys_are_one_method() {
        let mapping = small();
        let methods = Methods::of(&mapping);
        assert_eq!((methods.used(), methods.find(5)), (1, None));
        let a = methods.insert(5, &named("View.get")).expect("room");
        let b = methods.insert(6, &named("")).expect("room");
        assert_eq!((a, b, methods.used()), (1, 2, 3));
        assert_eq!(methods.insert(5, &named("another name")), Ok(a));
        assert_eq!((methods.find(5), methods.find(6)), (Some(a), Some(b)));
        assert_eq!((methods.find(7), methods.find(0)), (None, None));
        assert_eq!(methods.insert(0, &named("x")), Err(Full));
        let expected = Method {
            key: 5,
            runtime: Runtime::CPython,
            first_line: 7,
            line_format: 3,
            name: "View.get".into(),
            file: "/srv/app/views.py".into(),
            lines: vec![1, 2, 3],
        };
        assert_eq!(methods.read(a), Some(expected));
        assert_eq!(methods.read(b).expect("there").name, "");
        assert!([0, 3, u32::MAX].iter().all(|i| methods.read(*i).is_none()));
    }

    #[test]
    fn processes_get_the_same_numbers() {
        let path = unique();
        let all = Mapping::create(&path, crate::shm::layout::Capacity::default()).expect("made");
        let agents = [0, 1].map(|_| Mapping::join(&path).expect("joined"));
        crate::platform::remove(&path);
        let [one, other] = &agents;
        assert_eq!(Methods::of(one).insert(5, &named("f")), Err(Full));
        for agent in &agents {
            agent.map_methods().expect("mapped");
        }
        let f = Methods::of(one).insert(5, &named("f")).expect("room");
        assert_eq!(Methods::of(other).insert(5, &named("f")), Ok(f));
        assert_ne!(Methods::of(other).insert(6, &named("g")), Ok(f));
        assert_eq!(Methods::of(&all).read(f).expect("there").name, "f");
    }

    #[test]
    fn a_full_table_says_so_and_still_finds() {
        let mapping = small();
        let methods = Methods::of(&mapping);
        let long = "f".repeat(160);
        let fill = |from: u64| {
            (from..)
                .map_while(|key| methods.insert(key, &named(&long)).ok())
                .count() as u64
        };
        // The text is full first.
        assert!(!methods.is_low());
        let first = fill(1);
        assert!(methods.is_low());
        assert!((1000..2047).contains(&first), "{first}");
        for key in 1..=first {
            assert_eq!(methods.insert(key, &named(&long)), Ok(key as u32));
        }
        mapping.extend_methods(0, u32::MAX).expect("room");
        let second = fill(first + 1);
        assert_eq!(first + second, 2047);
        mapping.extend_methods(u32::MAX, u32::MAX).expect("room");
        let all = fill(first + second + 1) + first + second;
        // Too many may lie around the right place before all entries are used.
        assert!((12_000..=16_383).contains(&all), "{all}");
        assert!(!methods.is_low());
        for _ in 0..10 {
            assert_eq!(
                methods.insert(u64::MAX, &named(&"x".repeat(512))).ok(),
                methods.find(u64::MAX)
            );
        }
        assert!((1..=all).all(|key| methods.find(key).is_some()));
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let mapping = small();
        let methods = Methods::of(&mapping);
        let insert = |key, name: &str, lines: &[u8]| {
            let description = Description {
                lines,
                file: name.as_bytes(),
                ..named(name)
            };
            let number = methods.insert(key, &description).expect("room");
            methods.read(number).expect("there")
        };
        let method = insert(1, &"é".repeat(600), &[9; LINES_BYTES]);
        assert_eq!(method.name, "é".repeat(256));
        assert_eq!(method.file, "é".repeat(512));
        assert_eq!((method.lines.len(), method.line_format), (LINES_BYTES, 3));
        let method = insert(2, &format!("x{}", "é".repeat(600)), &[9; LINES_BYTES + 1]);
        assert_eq!(method.name, format!("x{}", "é".repeat(255)));
        assert_eq!((method.lines.len(), method.line_format), (0, 0));
        // Not UTF-8 at all: cut all the same.
        assert_eq!(cut(&[0x80; 20], 10).len(), 7);
        assert_eq!(cut(&[0x80; 2], 0).len(), 0);
    }

    #[test]
    fn threads_agree_on_the_numbers() {
        let mapping = small();
        let methods = Methods::of(&mapping);
        let results: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4u64)
                .map(|w| {
                    scope.spawn(move || {
                        let mut numbers = vec![0; 200];
                        for i in 0..200 {
                            let key = (i * 7 + w * 50) % 200;
                            let name = format!("f{key}");
                            let number = methods.insert(key + 1, &named(&name)).expect("room");
                            assert_eq!(methods.read(number).expect("written").name, name);
                            numbers[key as usize] = number;
                        }
                        numbers
                    })
                })
                .collect();
            let joined = workers.into_iter().map(|w| w.join().expect("no panic"));
            joined.collect()
        });
        assert!(results.iter().all(|numbers| *numbers == results[0]));
    }

    #[test]
    fn nonsense_is_not_read() {
        let mapping = small();
        let methods = Methods::of(&mapping);
        let f = methods.insert(5, &named("f")).expect("room");
        let entry = &methods.entries[f as usize];
        let good = entry.place.load(Ordering::Relaxed);
        let limit = u64::from(methods.words_limit());
        for place in [0, 1, 2, good + 1, good - 1, limit << 32 | 2, u64::MAX] {
            entry.place.store(place, Ordering::Relaxed);
            assert_eq!(methods.read(f), None, "{place:x}");
        }
        entry.place.store(good, Ordering::Relaxed);
        let head = &methods.words[(good >> 32) as usize];
        let was = head.swap(u64::MAX, Ordering::Relaxed);
        assert_eq!(methods.read(f), None);
        head.store(was, Ordering::Relaxed);
        methods.words[(good >> 32) as usize + 2].store(u64::MAX, Ordering::Relaxed);
        let read = methods.read(f).expect("there");
        assert!(read.name.starts_with('\u{fffd}'));
        methods.header.used.store(u32::MAX, Ordering::Relaxed);
        methods.header.limit.store(u32::MAX, Ordering::Relaxed);
        methods
            .header
            .words_limit
            .store(u32::MAX, Ordering::Relaxed);
        methods.header.words_used.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(methods.used() as usize, methods.entries.len());
        assert_eq!(methods.insert(6, &named("g")), Err(Full));
        for place in methods.index {
            place.store(u32::MAX, Ordering::Relaxed);
        }
        assert_eq!(methods.find(5), None);
        assert_eq!(methods.insert(5, &named("f")), Err(Full));
    }
}
