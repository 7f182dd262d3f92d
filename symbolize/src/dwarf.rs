//! DWARF: function, file, line and inlined frames of an address. `addr2line` finds the frames and reads
//! units as they are needed; the lines where functions are defined come from their entries.

use super::debug_files::{Buffers, Files};
use super::demangle::is_mangled;
use super::dwarf_units;
use super::namespaces::Scopes;
use super::object_file::{FileContent, ObjectFile};
use super::section_cache::{Identity, SymbolCache};
use addr2line::gimli::{
    self, AttributeValue, EndianSlice, Reader as _, RunTimeEndian, SectionId, UnitOffset, UnitRef,
};
use addr2line::{LookupContinuation, LookupResult, SplitDwarfLoad};
use object::{CompressionFormat, Object, ObjectSection};
use stackbeat_core::address::Svma;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

type Reader<'a> = EndianSlice<'a, RunTimeEndian>;

/// How often an entry may point at another one for its definition (inlined → abstract → declared).
const ORIGINS: usize = 4;

/// The DWARF of one module.
pub(crate) struct Dwarf<'a> {
    context: addr2line::Context<Reader<'a>>,
    files: &'a Files,
    buffers: &'a Buffers,
    scopes: Scopes,
}

/// One frame as DWARF knows it.
#[derive(Debug, Default)]
pub(crate) struct DwarfFrame {
    /// Linkage name when there is one, else the name with the namespaces that the function stands in.
    pub name: Option<String>,
    /// File and line being executed.
    pub file: Option<String>,
    pub line: u32,
    /// Where the function is defined, 0 unknown.
    pub definition_line: u32,
    /// File of the definition, when it differs from `file`.
    pub definition_file: Option<String>,
    /// Whether it is the body of an async function in Rust, which is a closure for its symbol.
    pub is_async_body: bool,
}

impl<'a> Dwarf<'a> {
    /// Reads the indices of a file's DWARF for a search of these addresses (ascending) and no others; `None`
    /// when it has none. What is unpacked for it is kept in the cache.
    pub(crate) fn open(
        file: &ObjectFile<'a>,
        supplementary: Option<&ObjectFile<'a>>,
        cache: Option<(&SymbolCache, Identity)>,
        addresses: &[Svma],
        files: &'a Files,
        buffers: &'a Buffers,
    ) -> Option<Dwarf<'a>> {
        file.section_by_name(".debug_info")?;
        let mut dwarf = match cache.filter(|_| is_packed(file)) {
            Some((cache, identity)) => load_cached(file, cache, identity, buffers).ok()?,
            None => gimli::Dwarf::load(|id| section(file, named(id), buffers)).ok()?,
        };
        match supplementary {
            Some(supplementary) => dwarf
                .load_sup(|id| section(supplementary, named(id), buffers))
                .ok()?,
            None => dwarf_units::keep_only(&mut dwarf, addresses, buffers),
        }
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        Some(Dwarf {
            context: addr2line::Context::from_dwarf(dwarf).ok()?,
            files,
            buffers,
            scopes: Scopes::default(),
        })
    }

    /// The frames at an address, innermost first; empty when DWARF does not cover it.
    pub(crate) fn frames(&self, svma: Svma) -> Vec<DwarfFrame> {
        let mut out = Vec::new();
        // The call before address 0 (see `Names::at`): addr2line adds one to what it looks for.
        if svma == Svma(u64::MAX) {
            return out;
        }
        let Ok(mut frames) = self.resolve(self.context.find_frames(svma.0)) else {
            return out;
        };
        let unit = self.resolve(self.context.find_dwarf_and_unit(svma.0));
        while let Ok(Some(frame)) = frames.next() {
            let mut found = DwarfFrame {
                name: frame
                    .function
                    .as_ref()
                    .and_then(|name| Some(name.raw_name().ok()?.into_owned())),
                ..Default::default()
            };
            if let Some(location) = frame.location {
                found.file = location.file.map(str::to_owned);
                found.line = location.line.unwrap_or(0);
            }
            if let (Some(unit), Some(offset)) = (&unit, frame.dw_die_offset) {
                if let Some(name) = &mut found.name
                    && !is_mangled(name)
                    && let Some(scope) = self.scope(*unit, offset)
                {
                    *name = format!("{scope}::{name}");
                }
                found.is_async_body = is_async_body(*unit, offset);
                let definition = definition(*unit, offset);
                found.definition_line = match definition.line {
                    0 => self.first_line(*unit, offset),
                    line => line,
                };
                found.definition_file = definition
                    .file
                    .filter(|file| Some(file) != found.file.as_ref());
            }
            out.push(found);
        }
        out
    }

    /// The line of the first instruction of a function that was not inlined, for entries without the line of
    /// the definition (`-g1`, `line-tables-only`); 0: not known.
    fn first_line(&self, unit: UnitRef<'_, Reader<'a>>, offset: UnitOffset) -> u32 {
        let first = || {
            let entry = unit.entry(offset).ok()?;
            (entry.tag() == gimli::DW_TAG_subprogram).then_some(())?;
            let low = unit
                .attr_address(entry.attr_value(gimli::DW_AT_low_pc)?)
                .ok()??;
            self.context.find_location(low).ok()??.line
        };
        first().unwrap_or(0)
    }

    /// What the function of an entry stands in.
    fn scope(&self, unit: UnitRef<'_, Reader<'a>>, offset: UnitOffset) -> Option<Rc<str>> {
        origins(unit, offset).find_map(|at| self.scopes.of(unit, at))
    }

    fn resolve<L>(&self, mut result: LookupResult<L>) -> L::Output
    where
        L: LookupContinuation<Buf = Reader<'a>>,
    {
        loop {
            result = match result {
                LookupResult::Output(output) => return output,
                LookupResult::Load { load, continuation } => {
                    continuation.resume(self.load_dwo(load))
                }
            };
        }
    }

    /// Split DWARF: the compiler left the unit's body in a `.dwo` file beside the object file.
    fn load_dwo(&self, load: SplitDwarfLoad<Reader<'a>>) -> Option<Arc<gimli::Dwarf<Reader<'a>>>> {
        let mut path = PathBuf::new();
        if let Some(directory) = &load.comp_dir {
            path.push(directory.to_string().ok()?);
        }
        path.push(load.path.as_ref()?.to_string().ok()?);
        let file = self
            .files
            .alloc(FileContent::open(&path).ok()?)
            .parse()
            .ok()?;
        let mut dwarf =
            gimli::Dwarf::load(|id| section(&file, named(id).and(id.dwo_name()), self.buffers))
                .ok()?;
        let header = dwarf.units().next().ok()??;
        if dwarf.unit(header).ok()?.dwo_id != Some(load.dwo_id) {
            return None;
        }
        dwarf.make_dwo(&load.parent);
        Some(Arc::new(dwarf))
    }
}

/// The name of a section that frames are found with; `None` for those about variables and macros, which are
/// large and often compressed.
fn named(id: SectionId) -> Option<&'static str> {
    match id {
        SectionId::DebugLoc
        | SectionId::DebugLocLists
        | SectionId::DebugMacinfo
        | SectionId::DebugMacro => None,
        _ => Some(id.name()),
    }
}

/// Whether the DWARF of a file has to be unpacked.
fn is_packed(file: &ObjectFile<'_>) -> bool {
    let range = file
        .section_by_name(SectionId::DebugInfo.name())
        .and_then(|section| section.compressed_file_range().ok());
    range.is_some_and(|range| range.format != CompressionFormat::None)
}

fn load_cached<'a>(
    file: &ObjectFile<'a>,
    cache: &SymbolCache,
    identity: Identity,
    buffers: &'a Buffers,
) -> gimli::Result<gimli::Dwarf<Reader<'a>>> {
    if let Some(sections) = cache.load(&identity) {
        let sections: HashMap<String, &[u8]> = sections
            .into_iter()
            .map(|(name, content)| (name, buffers.alloc(content).as_slice()))
            .collect();
        return gimli::Dwarf::load(|id| {
            let content = sections.get(id.name()).copied().unwrap_or_default();
            Ok(EndianSlice::new(content, endian(file)))
        });
    }
    let (mut unpacked, mut is_whole) = (Vec::new(), true);
    let dwarf = gimli::Dwarf::load(|id| {
        let found = section(file, named(id), buffers)?;
        if let Some(name) = named(id)
            && let Some(in_file) = file.section_by_name(name)
        {
            is_whole &= !found.is_empty() || in_file.size() == 0;
            unpacked.push((name, found.slice()));
        }
        Ok::<_, gimli::Error>(found)
    })?;
    if is_whole {
        cache.store(identity, &unpacked);
    }
    Ok(dwarf)
}

fn section<'a>(
    file: &ObjectFile<'a>,
    name: Option<&str>,
    buffers: &'a Buffers,
) -> Result<Reader<'a>, gimli::Error> {
    let data = name
        .and_then(|name| file.section_by_name(name))
        .and_then(|section| section.uncompressed_data().ok())
        .map(|data| match data {
            Cow::Borrowed(data) => data,
            Cow::Owned(data) => buffers.alloc(data).as_slice(),
        });
    Ok(EndianSlice::new(data.unwrap_or(&[]), endian(file)))
}

fn endian(file: &ObjectFile<'_>) -> RunTimeEndian {
    if file.is_little_endian() {
        RunTimeEndian::Little
    } else {
        RunTimeEndian::Big
    }
}

#[derive(Default)]
struct Definition {
    line: u32,
    file: Option<String>,
}

/// An entry, and those that it points at for what it does not say itself.
fn origins(unit: UnitRef<'_, Reader<'_>>, offset: UnitOffset) -> impl Iterator<Item = UnitOffset> {
    let next = move |offset: &UnitOffset| {
        let entry = unit.entry(*offset).ok()?;
        let origin = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification));
        match origin {
            Some(AttributeValue::UnitRef(next)) => Some(next),
            // Another unit (link-time optimization) or the supplementary file.
            _ => None,
        }
    };
    std::iter::successors(Some(offset), next).take(ORIGINS)
}

/// Whether an entry is of the body of an async function in Rust, which is a closure for its symbol.
fn is_async_body(unit: UnitRef<'_, Reader<'_>>, offset: UnitOffset) -> bool {
    let name = origins(unit, offset).find_map(|at| {
        let name = unit.entry(at).ok()?.attr_value(gimli::DW_AT_name)?;
        unit.attr_string(name).ok()
    });
    name.is_some_and(|name| name.slice().starts_with(b"{async_fn#"))
}

/// Follows an entry to the one that says where the function is defined.
fn definition(unit: UnitRef<'_, Reader<'_>>, offset: UnitOffset) -> Definition {
    let mut found = Definition::default();
    for offset in origins(unit, offset) {
        let Ok(entry) = unit.entry(offset) else { break };
        if let Some(line) = entry
            .attr_value(gimli::DW_AT_decl_line)
            .and_then(|value| value.udata_value())
        {
            found.line = u32::try_from(line).unwrap_or(0);
            found.file = entry
                .attr_value(gimli::DW_AT_decl_file)
                .and_then(|value| file_name(unit, value));
            break;
        }
    }
    found
}

fn file_name(unit: UnitRef<'_, Reader<'_>>, value: AttributeValue<Reader<'_>>) -> Option<String> {
    let index = match value {
        AttributeValue::FileIndex(index) => index,
        other => other.udata_value()?,
    };
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let text = |value| Some(unit.attr_string(value).ok()?.to_string_lossy().into_owned());
    let mut path = PathBuf::new();
    if let Some(directory) = unit.comp_dir {
        path.push(&*directory.to_string_lossy());
    }
    // Directory 0 is the compilation directory; before DWARF 5 it is not in the table.
    if (file.directory_index() != 0 || header.version() >= 5)
        && let Some(directory) = file.directory(header)
    {
        path.push(text(directory)?);
    }
    path.push(text(file.path_name())?);
    path.into_os_string().into_string().ok()
}
