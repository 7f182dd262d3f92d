//! Leaves of a file's DWARF the units that may cover one of the addresses. `addr2line` reads the head of
//! every unit of a file, its abbreviations and its table of files; of libc's two thousand units a recording
//! meets some dozens.

use super::debug_files::Buffers;
use addr2line::gimli::{
    self, DebugAbbrevOffset, DebugAranges, DebugInfo, EndianSlice, Endianity, Format, Reader as _,
    RunTimeEndian, Section, UnitHeader, constants,
};
use stackbeat_core::address::Svma;
use std::collections::{HashMap, HashSet};

type Reader<'a> = EndianSlice<'a, RunTimeEndian>;

/// Shortens `dwarf` to the units for these addresses (ascending). Leaves it as it is where that cannot be
/// done or is not worth it.
pub(crate) fn keep_only<'a>(
    dwarf: &mut gimli::Dwarf<Reader<'a>>,
    addresses: &[Svma],
    buffers: &'a Buffers,
) {
    if let Some(kept) = pick(dwarf, addresses) {
        let endian = dwarf.debug_info.reader().endian();
        let section = |bytes| EndianSlice::new(buffers.alloc(bytes).as_slice(), endian);
        dwarf.debug_info = DebugInfo::from(section(kept.info));
        dwarf.debug_aranges = DebugAranges::from(section(kept.aranges));
    }
}

/// Sections that hold some units of others.
#[derive(Default)]
struct Kept {
    info: Vec<u8>,
    aranges: Vec<u8>,
}

/// `None`: all of them are needed.
fn pick(dwarf: &gimli::Dwarf<Reader<'_>>, addresses: &[Svma]) -> Option<Kept> {
    let covered = covered(&dwarf.debug_aranges, addresses)?;
    let whole = dwarf.debug_info.reader().slice();
    let mut kept = Kept::default();
    // Where the units that are kept stand now.
    let mut moved = HashMap::new();
    let mut without_references = HashSet::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next().ok()? {
        let offset = header.debug_info_offset()?;
        // Of what `.debug_aranges` does not list, only the unit itself knows what it covers.
        if covered.get(&offset.0) == Some(&false) {
            continue;
        }
        let abbreviations = header.debug_abbrev_offset();
        if without_references.insert(abbreviations) && refers_elsewhere(dwarf, abbreviations)? {
            return None;
        }
        moved.insert(offset.0, kept.info.len());
        kept.info
            .extend_from_slice(bytes_of(whole, &header, offset.0)?);
    }
    if kept.info.len() > whole.len() / 2 {
        return None;
    }
    kept.add_aranges(&dwarf.debug_aranges, &moved)?;
    Some(kept)
}

/// By offset of a unit that `.debug_aranges` lists: whether it covers one of the addresses.
fn covered(aranges: &DebugAranges<Reader<'_>>, addresses: &[Svma]) -> Option<HashMap<usize, bool>> {
    let mut covered = HashMap::new();
    let mut headers = aranges.headers();
    while let Some(header) = headers.next().ok()? {
        let mut entries = header.entries();
        while let Some(entry) = entries.next().ok()? {
            let range = entry.range();
            if range.begin < range.end {
                let next = addresses.partition_point(|address| address.0 < range.begin);
                let is_met = addresses.get(next).is_some_and(|at| at.0 < range.end);
                *covered.entry(header.debug_info_offset().0).or_insert(false) |= is_met;
            }
        }
    }
    Some(covered)
}

fn bytes_of<'a>(
    whole: &'a [u8],
    header: &UnitHeader<Reader<'_>>,
    offset: usize,
) -> Option<&'a [u8]> {
    let end = offset.saturating_add(header.length_including_self());
    whole.get(offset..end)
}

/// Whether entries with these abbreviations can refer to other units, by their offsets in `.debug_info`
/// (DWARF 5, 7.5.3 and 7.5.6).
fn refers_elsewhere(
    dwarf: &gimli::Dwarf<Reader<'_>>,
    DebugAbbrevOffset(offset): DebugAbbrevOffset,
) -> Option<bool> {
    let mut input = *dwarf.debug_abbrev.reader();
    input.skip(offset).ok()?;
    while input.read_uleb128().ok()? != 0 {
        let _tag = input.read_uleb128().ok()?;
        let _has_children = input.read_u8().ok()?;
        loop {
            let name = input.read_uleb128().ok()?;
            let form = constants::DwForm(input.read_uleb128_u16().ok()?);
            match form {
                constants::DW_FORM_ref_addr | constants::DW_FORM_indirect => return Some(true),
                constants::DW_FORM_implicit_const => {
                    input.read_sleb128().ok()?;
                }
                _ => {}
            }
            if name == 0 && form.0 == 0 {
                break;
            }
        }
    }
    Some(false)
}

impl Kept {
    /// Adds the sets of units that were kept, with their new offsets (DWARF 5, 6.1.2).
    fn add_aranges(
        &mut self,
        aranges: &DebugAranges<Reader<'_>>,
        moved: &HashMap<usize, usize>,
    ) -> Option<()> {
        const VERSION_BYTES: usize = 2;
        let endian = aranges.reader().endian();
        let mut headers = aranges.headers();
        while let Some(header) = headers.next().ok()? {
            let Some(&offset) = moved.get(&header.debug_info_offset().0) else {
                continue;
            };
            let format = header.encoding().format;
            let length_bytes = usize::from(format.initial_length_size());
            let begin = header.offset().0;
            let end = begin
                .saturating_add(length_bytes)
                .saturating_add(header.length());
            let set = aranges.reader().slice().get(begin..end);
            let at = self.aranges.len() + length_bytes + VERSION_BYTES;
            self.aranges.extend_from_slice(set?);
            let field = &mut self.aranges[at..];
            match format {
                Format::Dwarf32 => endian.write_u32(field, offset as u32),
                Format::Dwarf64 => endian.write_u64(field, offset as u64),
            }
        }
        Some(())
    }
}
