//! Reads the table of methods into packets, and gives it more room in time.

use std::collections::{HashMap, HashSet};

use prost::Message;
use stackbeat_core::managed::lines::{self, format};
use stackbeat_core::shm::layout::{METHOD_WORDS, METHODS};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::methods::{self, LINES_BYTES};
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::{self, packet};
use stackbeat_symbolize::python::Unqualified;

use crate::writer::encode;

/// Bytes of one packet, about.
const PACKET_BYTES: usize = 1 << 20;
/// Most bytes of texts, about: all of the table, and what replacements for letters that are none add. More
/// has a table only if somebody has written over it.
const MOST_BYTES: usize = METHOD_WORDS as usize * 8 * 3;
/// Most entries of a line table: no runtime needs less than half a byte for one.
const MOST_LINES: usize = LINES_BYTES * 2;

/// The reading side of the table.
#[derive(Debug)]
pub(crate) struct Methods {
    /// Numbers below were read, except `holes`.
    next: u32,
    /// Taken but not written yet when they were read.
    holes: Vec<u32>,
    /// Numbers that are in the trace already (`recover`).
    seeded: HashSet<u32>,
    /// Those that want qualified names.
    pub unqualified: Unqualified,
    /// Methods read, and the bytes of their texts.
    pub count: u64,
    bytes: usize,
}

impl Default for Methods {
    fn default() -> Self {
        Methods {
            next: 1,
            holes: Vec::new(),
            seeded: HashSet::new(),
            unqualified: Unqualified::default(),
            count: 0,
            bytes: 0,
        }
    }
}

/// What one encoding read; see [`Methods::commit`].
#[derive(Debug, Default)]
pub(crate) struct Step {
    next: u32,
    holes: Vec<u32>,
    count: u64,
    bytes: usize,
    unqualified: Unqualified,
}

impl Methods {
    /// Takes methods for stored that a partial trace holds.
    pub(crate) fn seed(&mut self, numbers: impl IntoIterator<Item = u32>) {
        self.seeded.extend(numbers);
    }

    /// Encodes what was added to the table since the last `commit`. What a node that was read before names is
    /// among it. Gives the state to commit once the packets are stored, and how many there are.
    pub(crate) fn encode_new(&self, mapping: &Mapping, out: &mut Vec<u8>) -> (Step, u64) {
        let table = methods::Methods::of(mapping);
        let used = table.used();
        let mut step = Step {
            next: used.max(self.next),
            ..Default::default()
        };
        let mut batch = Batch::default();
        let mut packets = 0;
        for number in self.holes.iter().copied().chain(self.next..used) {
            let Some(method) = table.read(number) else {
                step.holes.push(number);
                continue;
            };
            step.bytes += method.text_bytes();
            if self.bytes + step.bytes > MOST_BYTES {
                break;
            }
            step.count += 1;
            if !self.seeded.contains(&number) {
                let packed = packed(number, &method);
                batch.add(&packed, &[&method.name, &method.file]);
                step.unqualified.take(packed, method.name, method.file);
            }
            if let Some(full) = batch.take_full() {
                encode(packet::Body::Methods(full), out);
                packets += 1;
            }
        }
        if let Some(rest) = batch.take_rest() {
            encode(packet::Body::Methods(rest), out);
            packets += 1;
        }
        (step, packets)
    }

    /// The packets of this step are in the trace.
    pub(crate) fn commit(&mut self, step: Step) {
        self.next = step.next;
        self.holes = step.holes;
        self.count += step.count;
        self.bytes = self.bytes.saturating_add(step.bytes);
        self.unqualified.extend(step.unqualified);
    }
}

/// A method as a packet has it. Its strings are 0: the name, and 1: the file.
fn packed(number: u32, method: &methods::Method) -> v1::methods::Method {
    let mut packed = v1::methods::Method {
        number,
        name: 0,
        file: 1,
        first_line: method.first_line,
        runtime: method.runtime as i32,
        is_unqualified: is_unqualified(method),
        ..Default::default()
    };
    let (mut last_position, mut last_line) = (0u32, 0u32);
    let lines = lines::decode(method.line_format, method.first_line, &method.lines);
    for (position, line) in lines.into_iter().take(MOST_LINES) {
        // A table that does not ascend is damaged from there on.
        let Some(further) = position.checked_sub(last_position) else {
            break;
        };
        packed.position.push(further);
        packed.line.push(line.wrapping_sub(last_line) as i32);
        (last_position, last_line) = (position, line);
    }
    packed
}

/// Code objects have qualified names from CPython 3.11 on, where line tables have a new form.
fn is_unqualified(method: &methods::Method) -> bool {
    let is_older = [format::CPYTHON_LNOTAB, format::CPYTHON_PAIRS].contains(&method.line_format);
    is_older && method.runtime == methods::Runtime::CPython && method.name != "<module>"
}

/// Methods that have qualified names now, as packets.
pub(crate) fn qualified(unqualified: &Unqualified) -> Vec<v1::Methods> {
    let mut batch = Batch::default();
    let mut packets = Vec::new();
    for (method, strings) in unqualified.qualify() {
        batch.add(&method, &strings);
        packets.extend(batch.take_full());
    }
    packets.extend(batch.take_rest());
    packets
}

/// Methods on their way into a packet.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    strings: HashMap<String, u32>,
    packet: v1::Methods,
    bytes: usize,
}

impl Batch {
    /// Adds a method whose strings stand here.
    pub(crate) fn add(&mut self, method: &v1::methods::Method, strings: &[impl AsRef<str>]) {
        let mut string = |index: u32| {
            let text = strings.get(index as usize).map_or("", AsRef::as_ref);
            self.string(text)
        };
        let (name, file) = (string(method.name), string(method.file));
        let method = v1::methods::Method {
            name,
            file,
            ..method.clone()
        };
        self.bytes += method.encoded_len();
        self.packet.methods.push(method);
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if self.packet.strings.is_empty() {
            self.packet.strings.push(String::new());
        }
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.packet.strings.len() as u32;
        self.bytes += text.len();
        self.packet.strings.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    /// The packet, once it is large; then the next one begins.
    pub(crate) fn take_full(&mut self) -> Option<v1::Methods> {
        (self.bytes >= PACKET_BYTES).then(|| std::mem::take(self).packet)
    }

    /// The packet, if there is something in it.
    pub(crate) fn take_rest(self) -> Option<v1::Methods> {
        (!self.packet.methods.is_empty()).then_some(self.packet)
    }
}

/// Gives the table more storage before it is needed.
pub(crate) fn extend(mapping: &Mapping) {
    // A program that has methods at all shows hundreds of them in its first second.
    const MORE: u32 = 8;
    let header = mapping.methods_header();
    let begins = header.is_mapped.load(Ordering::Relaxed) == 1;
    if begins {
        header.is_mapped.store(2, Ordering::Relaxed);
    }
    if begins || methods::Methods::of(mapping).is_low() {
        let limit = header.limit.load(Ordering::Relaxed).saturating_mul(MORE);
        let words = header.words_limit.load(Ordering::Relaxed);
        let words = words.saturating_mul(MORE);
        // Without room methods have no names, and agents count them.
        let _ = mapping.extend_methods(limit.min(METHODS), words.min(METHOD_WORDS));
    }
}
