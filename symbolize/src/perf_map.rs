//! Names of code made at run time: what V8 (`node --perf-basic-prof`), CPython (`-X perf`), JVM agents and
//! others write for perf into `perf-PID.map`, read piece by piece while it grows. One line a function: start,
//! size, name.
//!
//! Memory of compiled code is used again. A line holds from when it was written until a later one overlaps
//! it, so an address may have several names, one after the other.

mod dotnet;
pub mod file;
mod php;
mod v8;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use stackbeat_proto::v1::NodeKind;
use stackbeat_proto::v1::methods::Runtime;

use super::SourceMaps;

/// Of a longer line the rest is left out.
const LONGEST_LINE: usize = 1 << 16;
/// The same of a name, bytes.
const LONGEST_NAME: usize = 1 << 12;
/// Times that lines may give or take names of addresses. Above, something is wrong with them.
const MOST_CHANGES: usize = 64 << 20;
/// Names that one address may have; those that come later are left out.
const MOST_NAMES_OF_ADDRESS: u16 = 1024;
/// What a function in force takes besides its name, bytes, about.
const FUNCTION_BYTES: usize = 96;

/// An address of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// In the instruction that is meant.
    inside: u64,
    epoch: u32,
    is_exact: bool,
}

/// A name that an address has from a time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The process' module epoch.
    pub epoch: u32,
    /// As the node has it.
    pub address: u64,
    /// `Native` or `LeafPc`.
    pub kind: NodeKind,
    /// From when on, ns. 0: this is the first name, the best guess also for what was before.
    pub from_ns: u64,
    /// `None`: no name holds.
    pub text: Option<Arc<str>>,
}

/// The names of an address.
#[derive(Debug, Default)]
struct Names {
    now: Option<Arc<str>>,
    /// As the last change said it.
    said: Option<Arc<str>>,
    changes: u16,
}

/// What a process' map says so far, and the addresses of the process that lie in generated code.
#[derive(Debug)]
pub struct PerfMap {
    /// The begin of a line whose end was not written yet.
    begun: Vec<u8>,
    /// The functions in force: by start, the end and the name. None overlaps another.
    in_force: BTreeMap<u64, (u64, Arc<str>)>,
    addresses: BTreeMap<Place, Names>,
    /// Addresses whose name may be another one.
    touched: Vec<Place>,
    changes_left: usize,
    /// What the functions in force take, bytes, about.
    bytes: usize,
    /// Lines and names that were left out because there are too many.
    pub left_out: u64,
}

impl Default for PerfMap {
    fn default() -> PerfMap {
        PerfMap {
            begun: Vec::new(),
            in_force: BTreeMap::new(),
            addresses: BTreeMap::new(),
            touched: Vec::new(),
            changes_left: MOST_CHANGES,
            bytes: 0,
            left_out: 0,
        }
    }
}

impl PerfMap {
    /// Takes in an address, with its module epoch.
    pub fn add(&mut self, epoch: u32, address: u64, kind: NodeKind, changes: &mut Vec<Change>) {
        let is_exact = kind == NodeKind::LeafPc;
        let place = Place {
            inside: address.saturating_sub(u64::from(!is_exact)),
            epoch,
            is_exact,
        };
        if self.addresses.contains_key(&place) {
            return;
        }
        let names = Names {
            now: self.function_at(place.inside).cloned(),
            ..Names::default()
        };
        self.addresses.insert(place, names);
        self.touched.push(place);
        self.settle(0, changes);
    }

    /// The name of the function that holds an address now.
    pub fn function_at(&self, address: u64) -> Option<&Arc<str>> {
        let (_, (end, name)) = self.in_force.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }

    /// Takes over what was appended to the map, which holds from this time on. `room`: bytes that functions
    /// of all maps may take from here on.
    pub fn append(
        &mut self,
        bytes: &[u8],
        from_ns: u64,
        room: &mut usize,
        changes: &mut Vec<Change>,
    ) {
        const MOST_TOUCHED: usize = 1 << 20;
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = rest.split_at(end);
            rest = &behind[1..];
            if self.begun.is_empty() {
                self.take_line(line, room);
            } else {
                let mut whole = std::mem::take(&mut self.begun);
                extend(&mut whole, line);
                self.take_line(&whole, room);
            }
            if self.touched.len() > MOST_TOUCHED {
                self.settle(from_ns, changes);
            }
        }
        extend(&mut self.begun, rest);
        self.settle(from_ns, changes);
    }

    /// The map was begun anew: what it said goes on to hold until another line overlaps an address.
    pub fn begin_anew(&mut self, room: &mut usize) {
        self.begun.clear();
        self.in_force.clear();
        *room += std::mem::take(&mut self.bytes);
    }

    fn take_line(&mut self, line: &[u8], room: &mut usize) {
        let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE)]);
        // .NET 8 ends a line by a zero now and then.
        for line in text.split('\0') {
            if let Some((range, name)) = parse(line) {
                self.take_function(range, name, room);
            }
        }
    }

    fn take_function(&mut self, range: Range<u64>, name: &str, room: &mut usize) {
        let name = &name[..name.floor_char_boundary(LONGEST_NAME)];
        if self.changes_left == 0 {
            self.left_out += 1;
            return;
        }
        while let Some((&start, &(end, _))) = self.in_force.range(..range.end).next_back()
            && end > range.start
        {
            if let Some((_, text)) = self.in_force.remove(&start) {
                let bytes = text.len() + FUNCTION_BYTES;
                self.bytes -= bytes;
                *room += bytes;
            }
            self.rename(start..end, None);
        }
        let bytes = name.len() + FUNCTION_BYTES;
        if bytes > *room {
            self.left_out += 1;
            return;
        }
        *room -= bytes;
        self.bytes += bytes;
        let name: Arc<str> = name.into();
        self.rename(range.clone(), Some(&name));
        self.in_force.insert(range.start, (range.end, name));
    }

    /// The addresses in this range have another name.
    fn rename(&mut self, range: Range<u64>, name: Option<&Arc<str>>) {
        let first = |inside| Place {
            inside,
            epoch: 0,
            is_exact: false,
        };
        for (place, names) in (self.addresses).range_mut(first(range.start)..first(range.end)) {
            names.now = name.cloned();
            self.touched.push(*place);
            self.changes_left = self.changes_left.saturating_sub(1);
        }
    }

    /// Says which addresses have another name than was said last.
    fn settle(&mut self, from_ns: u64, changes: &mut Vec<Change>) {
        self.touched.sort_unstable();
        self.touched.dedup();
        for place in self.touched.drain(..) {
            let Some(names) = self.addresses.get_mut(&place) else {
                continue;
            };
            if names.now == names.said {
                continue;
            }
            if names.changes == MOST_NAMES_OF_ADDRESS {
                self.left_out += 1;
                continue;
            }
            changes.push(Change {
                epoch: place.epoch,
                address: place.inside + u64::from(!place.is_exact),
                kind: match place.is_exact {
                    true => NodeKind::LeafPc,
                    false => NodeKind::Native,
                },
                from_ns: if names.changes == 0 { 0 } else { from_ns },
                text: names.now.clone(),
            });
            names.changes += 1;
            names.said = names.now.clone();
        }
    }

    /// What the functions in force take of the room for all maps.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Appends to a line as much as it may have.
fn extend(line: &mut Vec<u8>, bytes: &[u8]) {
    let room = LONGEST_LINE.saturating_sub(line.len());
    line.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

/// Start, end and name.
fn parse(line: &str) -> Option<(Range<u64>, &str)> {
    let mut words = line.trim_end().splitn(3, ' ');
    let mut hex = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
    let (start, size) = (hex()?, hex()?);
    let name = words.next()?;
    Some((start..start.checked_add(size)?, name)).filter(|_| size > 0)
}

/// What a line of a map names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Method {
    /// `None`: nothing tells.
    pub runtime: Option<Runtime>,
    /// Without what tells pieces of the same method's code apart.
    pub name: String,
    /// Empty: not known.
    pub file: String,
    /// Where it begins in the file, from 1; 0: not known.
    pub line: u32,
    /// The same.
    pub column: u32,
}

impl Method {
    fn new(runtime: Option<Runtime>, name: &str) -> Method {
        Method {
            runtime,
            name: name.to_owned(),
            file: String::new(),
            line: 0,
            column: 0,
        }
    }

    fn of(runtime: Runtime, name: &str) -> Method {
        Method::new(Some(runtime), name)
    }

    /// The method that the text of a line means.
    pub fn from_text(text: &str) -> Method {
        let known = v8::method(text).or_else(|| php::method(text));
        let known = known.or_else(|| dotnet::method(text));
        known.unwrap_or_else(|| {
            let is_of_python = text.starts_with("py::");
            Method::new(is_of_python.then_some(Runtime::Cpython), text)
        })
    }

    /// The same method in its source, if `maps` know that.
    pub fn in_source(&self, maps: &dyn SourceMaps) -> Option<Method> {
        if self.runtime != Some(Runtime::V8) || self.file.is_empty() {
            return None;
        }
        let name = match &*self.name {
            v8::NAMELESS => "",
            name => name,
        };
        let place = maps.original(&self.file, name, self.line, self.column)?;
        Some(Method {
            runtime: self.runtime,
            name: match place.name {
                Some(name) if name.is_empty() => v8::NAMELESS.to_owned(),
                Some(name) => name,
                None => self.name.clone(),
            },
            file: place.file,
            line: place.line,
            column: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Named = (u64, Option<String>);

    /// The names of these addresses, from when on each: pieces of the map with their times.
    fn look_up(pieces: &[(&[u8], u64)], addresses: &[u64]) -> Vec<Vec<Named>> {
        let (mut map, mut changes, mut room) = (PerfMap::default(), Vec::new(), usize::MAX / 2);
        for address in addresses {
            map.add(0, *address, NodeKind::LeafPc, &mut changes);
        }
        for (text, from_ns) in pieces {
            map.append(text, *from_ns, &mut room, &mut changes);
        }
        names_of(&changes, addresses)
    }

    fn names_of(changes: &[Change], addresses: &[u64]) -> Vec<Vec<Named>> {
        let named = |change: &Change| (change.from_ns, change.text.as_deref().map(str::to_owned));
        let of = |address: &u64| {
            let of_it = changes.iter().filter(|change| change.address == *address);
            of_it.map(named).collect()
        };
        addresses.iter().map(of).collect()
    }

    fn named(from_ns: u64, name: &str) -> Named {
        (from_ns, Some(name.to_owned()))
    }

    #[test]
    fn a_line_that_ends_with_a_zero_is_one() {
        let text = b"1000 40 f\x000x2000 90 g\n";
        let found = look_up(&[(text, 5)], &[0x1000, 0x2000]);
        assert_eq!(found, [[named(0, "f")], [named(0, "g")]]);
    }

    #[test]
    fn of_lines_that_came_together_the_last_counts_and_garbage_is_skipped() {
        let text = b"1000 40 LazyCompile:*old /a.js:1\nnonsense\n\xff\xfe 1 2\n0x2000 10 with space\n1000 20 new\n";
        let found = look_up(&[(text, 5)], &[0xfff, 0x1000, 0x101f, 0x1020, 0x200f]);
        assert_eq!(found[0], []);
        assert_eq!(found[1], [named(0, "new")]);
        assert_eq!(found[2], [named(0, "new")]);
        assert_eq!(found[3], []);
        assert_eq!(found[4], [named(0, "with space")]);
    }

    #[test]
    fn each_entry_holds_from_its_time_until_another_overlaps_it() {
        let pieces: [(&[u8], u64); 4] = [
            (b"1000 10 a\n", 100),
            (b"1008 10 b\n", 200),
            (b"1000 10 a\n", 300),
            (b"2000 10 c\n", 400),
        ];
        let found = look_up(&pieces, &[0x1000, 0x1008, 0x1010, 0x2000]);
        assert_eq!(found[0], [named(0, "a"), (200, None), named(300, "a")]);
        assert_eq!(found[1], [named(0, "a"), named(200, "b"), named(300, "a")]);
        assert_eq!(found[2], [named(0, "b"), (300, None)]);
        assert_eq!(found[3], [named(0, "c")]);
    }

    #[test]
    fn a_line_that_is_written_in_pieces_holds_from_its_end_on() {
        let pieces: [(&[u8], u64); 4] = [
            (b"1000 10 a\n1000 1", 100),
            (b"0 lo", 200),
            (b"ng\n1000 10 ", 300),
            (b"a\n", 400),
        ];
        let found = look_up(&pieces, &[0x1000]);
        assert_eq!(
            found[0],
            [named(0, "a"), named(300, "long"), named(400, "a")]
        );
    }

    #[test]
    fn an_address_that_comes_later_has_the_name_in_force() {
        let (mut map, mut changes, mut room) = (PerfMap::default(), Vec::new(), 1 << 20);
        let text = b"1000 10 a\n2000 10 b\n";
        map.append(text, 100, &mut room, &mut changes);
        assert_eq!(changes, []);
        // A return address stands behind its call, the last instruction of the function.
        map.add(0, 0x1010, NodeKind::Native, &mut changes);
        map.add(0, 0x1010, NodeKind::LeafPc, &mut changes);
        map.add(3, 0x2000, NodeKind::LeafPc, &mut changes);
        map.add(3, 0x2000, NodeKind::LeafPc, &mut changes);
        let found = changes
            .iter()
            .map(|c| (c.epoch, c.address, c.kind, c.text.as_deref()));
        let expected = [
            (0, 0x1010, NodeKind::Native, Some("a")),
            (3, 0x2000, NodeKind::LeafPc, Some("b")),
        ];
        assert!(found.eq(expected), "{changes:?}");
    }

    #[test]
    fn a_map_that_is_begun_anew_takes_no_name_away_by_itself() {
        let (mut map, mut changes, mut room) = (PerfMap::default(), Vec::new(), 1 << 20);
        for address in [0x1000, 0x2000] {
            map.add(0, address, NodeKind::LeafPc, &mut changes);
        }
        let text = b"1000 10 a\n2000 10 b\n1000 1";
        map.append(text, 100, &mut room, &mut changes);
        map.begin_anew(&mut room);
        assert_eq!((room, map.bytes()), (1 << 20, 0));
        map.append(b"1000 10 c\n", 200, &mut room, &mut changes);
        let found = names_of(&changes, &[0x1000, 0x2000]);
        assert_eq!(found[0], [named(0, "a"), named(200, "c")]);
        assert_eq!(found[1], [named(0, "b")]);
    }

    #[test]
    fn what_a_map_takes_is_bounded() {
        let (mut map, mut changes) = (PerfMap::default(), Vec::new());
        let mut room = 3 * (FUNCTION_BYTES + 1);
        map.append(
            b"1000 10 a\n2000 10 b\n3000 10 c\n4000 10 d\n",
            1,
            &mut room,
            &mut changes,
        );
        assert_eq!((room, map.left_out), (0, 1));
        // What is replaced makes room.
        map.append(b"1000 10 e\n", 2, &mut room, &mut changes);
        map.add(0, 0x1000, NodeKind::LeafPc, &mut changes);
        map.add(0, 0x4000, NodeKind::LeafPc, &mut changes);
        assert_eq!(names_of(&changes, &[0x1000, 0x4000])[0], [named(0, "e")]);
        assert_eq!((changes.len(), map.left_out), (1, 1));
        // A name that is too long.
        let long = format!("3000 10 {}\n", "é".repeat(LONGEST_LINE));
        map.add(0, 0x3000, NodeKind::LeafPc, &mut changes);
        changes.clear();
        room = 1 << 20;
        map.append(long.as_bytes(), 3, &mut room, &mut changes);
        let name = changes[0].text.as_ref().expect("one");
        assert_eq!(name.len(), LONGEST_NAME);
        // A line that does not end.
        map.append(&vec![b'x'; 3 * LONGEST_LINE], 3, &mut room, &mut changes);
        assert_eq!(map.begun.len(), LONGEST_LINE);
    }

    #[test]
    fn an_address_has_so_many_names_and_no_more() {
        let count = u64::from(MOST_NAMES_OF_ADDRESS) + 10;
        let lines: Vec<_> = (0..count).map(|i| format!("1000 10 f{i}\n")).collect();
        let pieces: Vec<_> = (lines.iter().zip(0..))
            .map(|(line, from_ns)| (line.as_bytes(), from_ns))
            .collect();
        let found = look_up(&pieces, &[0x1000]);
        assert_eq!(found[0].len(), usize::from(MOST_NAMES_OF_ADDRESS));
        assert_eq!(found[0][1], named(1, "f1"));
    }

    #[test]
    fn a_text_tells_its_runtime() {
        for (text, runtime, name) in [
            ("JS:*load /shop/page.js:12:3", Some(Runtime::V8), "load"),
            ("JIT$Shop::price", Some(Runtime::Php), "Shop::price"),
            (
                "int32 [work] Program::Main(string[])",
                Some(Runtime::Dotnet),
                "Program::Main(string[])",
            ),
            (
                "py::work:/app/w.py",
                Some(Runtime::Cpython),
                "py::work:/app/w.py",
            ),
            ("Builtin:ArrayMap", None, "Builtin:ArrayMap"),
        ] {
            let method = Method::from_text(text);
            assert_eq!((method.runtime, &*method.name), (runtime, name));
        }
    }
}
