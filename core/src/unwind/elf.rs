//! The little of ELF that finding unwind tables takes: program headers, the build id and one symbol.
//!
//! Everything is read through a callback, so that the same code serves this process, another one and
//! a mapped file. 64-bit little-endian only. Layouts are those of the System V gABI, chapters 4 and 5.

use crate::address::{Bias, Svma};

/// Segment types (gABI "Program Header"; `PT_GNU_EH_FRAME` from the Linux Standard Base).
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
/// Bytes of a program header.
const HEADER_BYTES: usize = 56;
/// Bytes of a build id that are kept; SHA-1 has 20.
pub const BUILD_ID_BYTES: usize = 32;

/// Reads memory: fills the buffer from an address, or says that it cannot.
pub trait ReadBytes {
    /// Fills the buffer from `address`; false when not all of it can be read.
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> bool;

    /// Eight bytes, little-endian.
    fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)
            .then(|| u64::from_le_bytes(bytes))
    }

    /// Four bytes, little-endian.
    fn half(&mut self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)
            .then(|| u32::from_le_bytes(bytes))
    }
}

impl<F: FnMut(u64, &mut [u8]) -> bool> ReadBytes for F {
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> bool {
        self(address, buffer)
    }
}

/// A loaded segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First address of the segment.
    pub address: Svma,
    /// Bytes that it has in memory.
    pub memory_bytes: u64,
    /// Where its content begins in the file.
    pub file_offset: u64,
    /// Bytes of it that come from the file; the rest is zero.
    pub file_bytes: u64,
}

impl Segment {
    fn contains(&self, address: Svma) -> bool {
        address.bytes_since(self.address) < self.memory_bytes
    }
}

/// What the program headers of an image say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Image {
    /// Lowest address of any loaded segment.
    pub start: Svma,
    /// First address above any loaded segment.
    pub end: Svma,
    /// The same of the executable ones.
    pub text_start: Svma,
    /// First address above the executable ones.
    pub text_end: Svma,
    /// Address of the dynamic section; 0: none.
    pub dynamic: Svma,
    /// Address of `.eh_frame_hdr`; 0: none, or outside the loaded segments.
    pub eh_frame_header: Svma,
    /// Segment that holds `.eh_frame_hdr`.
    pub tables: Segment,
    /// Address and bytes of the first note segments; unused ones are 0.
    pub notes: [(Svma, u64); 4],
}

/// Address, size and number of program headers from the ELF header at `address`.
pub fn program_headers(memory: &mut impl ReadBytes, address: u64) -> Option<(u64, usize)> {
    let mut header = [0u8; 64];
    if !memory.read(address, &mut header) || !is_elf64(&header) {
        return None;
    }
    let offset = u64::from_le_bytes(header[32..40].try_into().ok()?);
    let size = u16::from_le_bytes([header[54], header[55]]);
    let count = u16::from_le_bytes([header[56], header[57]]);
    (size == 56).then(|| (address.wrapping_add(offset), count as usize))
}

fn is_elf64(header: &[u8]) -> bool {
    header.starts_with(b"\x7fELF\x02\x01")
}

/// Program headers read at once: reading may be a system call.
const HEADERS_AT_ONCE: usize = 14;
/// Most loaded segments that are searched for the one with the tables.
const MAX_SEGMENTS: usize = 8;

/// Reads the program headers at `address`. `None`: unreadable, or no code in it.
pub fn image(memory: &mut impl ReadBytes, address: u64, count: usize) -> Option<Image> {
    let mut image = Image {
        start: Svma(u64::MAX),
        text_start: Svma(u64::MAX),
        ..Image::default()
    };
    let (mut notes, mut segments) = (0, 0);
    let mut loaded = [Segment::default(); MAX_SEGMENTS];
    let mut bytes = [0u8; HEADERS_AT_ONCE * HEADER_BYTES];
    let count = count.min(256);
    for first in (0..count).step_by(HEADERS_AT_ONCE) {
        let bytes = &mut bytes[..(count - first).min(HEADERS_AT_ONCE) * HEADER_BYTES];
        if !memory.read(address.wrapping_add((first * HEADER_BYTES) as u64), bytes) {
            return None;
        }
        for header in bytes.chunks_exact(HEADER_BYTES) {
            let half = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]));
            let word =
                |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| header[at + i]));
            let segment = Segment {
                address: Svma(word(16)),
                memory_bytes: word(40),
                file_offset: word(8),
                file_bytes: word(32),
            };
            let end = segment.address.saturating_add(segment.memory_bytes);
            match half(0) {
                PT_LOAD => {
                    image.start = image.start.min(segment.address);
                    image.end = image.end.max(end);
                    if half(4) & PF_X != 0 {
                        image.text_start = image.text_start.min(segment.address);
                        image.text_end = image.text_end.max(end);
                    }
                    if let Some(place) = loaded.get_mut(segments) {
                        *place = segment;
                        segments += 1;
                    }
                }
                PT_DYNAMIC => image.dynamic = segment.address,
                PT_GNU_EH_FRAME => image.eh_frame_header = segment.address,
                PT_NOTE if notes < image.notes.len() => {
                    image.notes[notes] = (segment.address, segment.memory_bytes);
                    notes += 1;
                }
                _ => {}
            }
        }
    }
    if image.text_start >= image.text_end {
        return None;
    }
    let tables = image.eh_frame_header;
    match loaded[..segments].iter().find(|s| s.contains(tables)) {
        Some(segment) => image.tables = *segment,
        None => image.eh_frame_header = Svma(0),
    }
    Some(image)
}

/// The build id of an image loaded with `bias`: its bytes and their number (0: it has none).
pub fn build_id(
    memory: &mut impl ReadBytes,
    image: &Image,
    bias: Bias,
) -> ([u8; BUILD_ID_BYTES], usize) {
    let mut id = [0; BUILD_ID_BYTES];
    for (address, bytes) in image.notes {
        let mut at = bias.in_process(address);
        let end = at.saturating_add(bytes);
        while at.saturating_add(16) <= end {
            // Header and name of a note, and as much of its content as a build id has.
            let mut note = [0u8; 16 + BUILD_ID_BYTES];
            let note = &mut note[..(end - at).min(16 + BUILD_ID_BYTES as u64) as usize];
            if !memory.read(at, note) {
                break;
            }
            let half = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| note[at + i]));
            let (name, content, kind) = (half(0), half(4), half(8));
            // NT_GNU_BUILD_ID of the owner "GNU\0".
            if kind == 3 && name == 4 && note[12..16] == *b"GNU\0" {
                let length = (content as usize).min(note.len() - 16);
                id[..length].copy_from_slice(&note[16..16 + length]);
                return (id, length);
            }
            let size =
                12 + (name as u64).next_multiple_of(4) + (content as u64).next_multiple_of(4);
            at = at.saturating_add(size);
        }
    }
    (id, 0)
}

/// Finds a defined symbol by its name through `DT_GNU_HASH`; the result is its address in the
/// process. Versions are not compared.
pub fn symbol(memory: &mut impl ReadBytes, dynamic: Svma, bias: Bias, name: &[u8]) -> Option<u64> {
    symbol_and_size(memory, dynamic, bias, name).map(|(address, _)| address)
}

/// The same, and how many bytes it has.
pub fn symbol_and_size(
    memory: &mut impl ReadBytes,
    dynamic: Svma,
    bias: Bias,
    name: &[u8],
) -> Option<(u64, u64)> {
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_GNU_HASH: u64 = 0x6fff_fef5;
    let (mut strings, mut symbols, mut hash) = (0, 0, 0);
    for i in 0..512 {
        let at = bias.in_process(dynamic) + i * 16;
        let value = memory.word(at + 8)?;
        match memory.word(at)? {
            0 => break,
            DT_STRTAB => strings = value,
            DT_SYMTAB => symbols = value,
            DT_GNU_HASH => hash = value,
            _ => {}
        }
    }
    if strings == 0 || symbols == 0 || hash == 0 {
        return None;
    }
    // Some loaders add the bias to these in place, others leave them.
    let absolute = |address: u64| {
        if address < bias.0 {
            bias.in_process(Svma(address))
        } else {
            address
        }
    };
    let (strings, symbols, hash) = (absolute(strings), absolute(symbols), absolute(hash));
    let wanted = name
        .iter()
        .fold(5381u32, |h, c| h.wrapping_mul(33).wrapping_add(*c as u32));
    let buckets = memory.half(hash)?;
    let first = memory.half(hash + 4)?;
    let bloom_words = memory.half(hash + 8)? as u64;
    let bucket_array = hash + 16 + bloom_words * 8;
    let chain = bucket_array + buckets as u64 * 4;
    let begin = memory.half(bucket_array + wanted.checked_rem(buckets)? as u64 * 4)?;
    if begin < first {
        return None;
    }
    for index in begin..begin.saturating_add(4096) {
        let entry = memory.half(chain + (index - first) as u64 * 4)?;
        if (entry ^ wanted) >> 1 == 0 {
            let symbol = symbols + index as u64 * 24;
            let text = strings + memory.half(symbol)? as u64;
            let section = memory.half(symbol + 4)? >> 16;
            if section != 0 && is_text(memory, text, name) {
                let address = bias.in_process(Svma(memory.word(symbol + 8)?));
                return Some((address, memory.word(symbol + 16)?));
            }
        }
        if entry & 1 == 1 {
            return None;
        }
    }
    None
}

/// Where a section lies that is loaded, and its bytes: by the section headers of a file, of which `file`
/// reads parts by their offsets.
pub fn section(file: &mut impl ReadBytes, name: &[u8]) -> Option<(Svma, u64)> {
    const BYTES: usize = 64;
    const SHT_PROGBITS: u32 = 1;
    const SHF_ALLOC: u64 = 2;
    const MOST_SECTIONS: u64 = 256;
    const LONGEST_NAME: usize = 32;

    let mut header = [0u8; 64];
    if !file.read(0, &mut header) || !is_elf64(&header) {
        return None;
    }
    let number = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let (headers, count, names) = (
        u64::from_le_bytes(header[40..48].try_into().ok()?),
        number(60).min(MOST_SECTIONS),
        number(62),
    );
    if number(58) != BYTES as u64 {
        return None;
    }
    let at = |index: u64| headers.checked_add(index * BYTES as u64);
    let names = file.word(at(names)?.checked_add(24)?)?;
    let mut header = [0u8; BYTES];
    for index in 0..count {
        if !file.read(at(index)?, &mut header) {
            return None;
        }
        let half = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        let word = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| header[at + i]));
        if half(4) != SHT_PROGBITS || word(8) & SHF_ALLOC == 0 {
            continue;
        }
        let mut text = [0u8; LONGEST_NAME];
        let text = text.get_mut(..name.len() + 1)?;
        let is_read = file.read(names.checked_add(half(0).into())?, text);
        if is_read && text.split_last() == Some((&0, name)) {
            return Some((Svma(word(16)), word(32)));
        }
    }
    None
}

/// Whether the NUL-terminated text at an address is `name`.
fn is_text(memory: &mut impl ReadBytes, address: u64, name: &[u8]) -> bool {
    let mut byte = [0];
    name.iter()
        .chain([&0])
        .zip(address..)
        .all(|(c, at)| memory.read(at, &mut byte) && byte[0] == *c)
}

#[cfg(all(test, target_os = "linux", not(miri), not(loom)))]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// The section headers and the program headers of this file say the same.
    #[test]
    fn sections_are_where_program_headers_say() {
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        let mut read = |at, buffer: &mut [u8]| file.read_exact_at(buffer, at).is_ok();
        let (headers, count) = program_headers(&mut read, 0).expect("it is ELF");
        let image = image(&mut read, headers, count).expect("it has code");
        let found = section(&mut read, b".eh_frame_hdr").map(|(address, _)| address);
        assert_eq!(found, Some(image.eh_frame_header));
        assert_eq!(section(&mut read, b".eh_frame_hd"), None);
        // Not loaded.
        assert_eq!(section(&mut read, b".shstrtab"), None);
    }

    /// Files that end anywhere, and ones whose headers are damaged.
    #[test]
    fn a_file_that_is_no_good_has_no_sections() {
        let whole = std::fs::read("/proc/self/exe").expect("this program");
        let in_part = |bytes: &[u8]| {
            let mut read = |at: u64, buffer: &mut [u8]| {
                let part = usize::try_from(at)
                    .ok()
                    .and_then(|at| bytes.get(at..)?.get(..buffer.len()));
                part.map(|part| buffer.copy_from_slice(part)).is_some()
            };
            section(&mut read, b".eh_frame_hdr")
        };
        assert!(in_part(&whole).is_some());
        for end in [0, 1, 40, 63, 64, 4096, whole.len() - 64 * 40] {
            assert_eq!(in_part(&whole[..end]), None, "{end}");
        }
        let mut damaged = whole[..64].to_vec();
        for at in 40..64 {
            damaged[at] = 0xff;
            let _ = in_part(&damaged);
        }
    }
}
