//! Slots by fixup chains, `LC_DYLD_CHAINED_FIXUPS`: what linkers write since macOS 12 and iOS 15 are the
//! oldest systems of an app.
//!
//! Source: `mach-o/fixup-chains.h` and `mach_o/ChainedFixups.cpp` of dyld 1378.
//!
//! ```text
//! header ── starts in image ── starts in segment: format, page size, first link of each page
//!   └────── imports: library, name                             │
//!                ^                                             v
//!                └─ number ── slot ── distance to the next ── slot ── …   (in the segment's own bytes)
//! ```

use super::format::*;
use super::image::Segment;
use super::reader::Reader;
use super::slots::{Authentication, Key, Slot, SlotKind, Wanted};
use super::source::{Source, read_all, table};
use super::{Image, ImageError};

/// How slots of a segment are written before dyld binds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerFormat {
    /// `DYLD_CHAINED_PTR_ARM64E`, 1.
    Arm64e,
    /// `DYLD_CHAINED_PTR_64`, 2.
    Plain64,
    /// `DYLD_CHAINED_PTR_64_OFFSET`, 6. Its binds are those of `Plain64`.
    Plain64Offset,
    /// `DYLD_CHAINED_PTR_ARM64E_USERLAND`, 9. Its binds are those of `Arm64e`.
    Arm64eUserland,
    /// `DYLD_CHAINED_PTR_ARM64E_USERLAND24`, 12.
    Arm64eUserland24,
}

/// A link of a chain.
struct Link {
    bind: Option<Bind>,
    /// Bytes to the next one; 0: the last.
    next: u64,
}

struct Bind {
    import: usize,
    addend: i64,
    authentication: Option<Authentication>,
}

fn bits(value: u64, from: u32, count: u32) -> u64 {
    value >> from & ((1 << count) - 1)
}

impl PointerFormat {
    /// By its number. The formats of kernels, firmware and caches have no binds, and 32-bit ones no 64-bit
    /// slots.
    pub fn of_number(number: u16) -> Result<PointerFormat, ImageError> {
        Ok(match number {
            1 => PointerFormat::Arm64e,
            2 => PointerFormat::Plain64,
            6 => PointerFormat::Plain64Offset,
            9 => PointerFormat::Arm64eUserland,
            12 => PointerFormat::Arm64eUserland24,
            other => return Err(ImageError::PointerFormat(other)),
        })
    }

    fn link(self, slot: u64) -> Link {
        if matches!(self, PointerFormat::Plain64 | PointerFormat::Plain64Offset) {
            let is_bind = bits(slot, 63, 1) == 1;
            return Link {
                bind: is_bind.then(|| Bind {
                    import: bits(slot, 0, 24) as usize,
                    addend: bits(slot, 24, 8) as i64,
                    authentication: None,
                }),
                next: bits(slot, 51, 12) * 4,
            };
        }
        let number_bits = match self {
            PointerFormat::Arm64eUserland24 => 24,
            _ => 16,
        };
        let is_signed = bits(slot, 63, 1) == 1;
        let is_bind = bits(slot, 62, 1) == 1;
        // 19 bits with a sign; a signed pointer has none.
        let addend = (bits(slot, 32, 19) << 45) as i64 >> 45;
        Link {
            bind: is_bind.then(|| Bind {
                import: bits(slot, 0, number_bits) as usize,
                addend: if is_signed { 0 } else { addend },
                authentication: is_signed.then(|| Authentication {
                    key: match bits(slot, 49, 2) {
                        0 => Key::InstructionA,
                        1 => Key::InstructionB,
                        2 => Key::DataA,
                        _ => Key::DataB,
                    },
                    has_address: bits(slot, 48, 1) == 1,
                    diversity: bits(slot, 32, 16) as u16,
                }),
            }),
            next: bits(slot, 51, 11) * 8,
        }
    }
}

/// `file` must be a file: slots of a loaded image are no links any more.
pub(super) fn find(
    image: &Image,
    file: &impl Source,
    wanted: Wanted<'_>,
    found: &mut Vec<Slot>,
) -> Result<(), ImageError> {
    let bytes = table(file, "the fixup chains", image.chains.unwrap_or_default())?;
    let chains = Reader::new("the fixup chains", &bytes);
    let mut header = chains;
    let version = header.u32()?;
    if version != 0 {
        return Err(ImageError::ChainsVersion(version));
    }
    let starts = chains.from(header.u32()? as usize)?;
    let imports = chains.from(header.u32()? as usize)?;
    let names = chains.from(header.u32()? as usize)?;
    let (count, format, names_format) = (header.u32()?, header.u32()?, header.u32()?);
    if names_format != 0 {
        return Err(ImageError::SymbolsFormat(names_format));
    }
    let imports = read_imports(imports, names, count, format, wanted)?;
    // Segments without imports need no walk.
    if imports.iter().all(Option::is_none) {
        return Ok(());
    }
    let mut offsets = starts;
    let segments = offsets.u32()?;
    if segments as usize > image.segments.len() {
        return Err(ImageError::Range {
            what: "the count of segments with fixup chains",
            value: segments.into(),
        });
    }
    let mut walk = Walk {
        image,
        file,
        imports: &imports,
        found,
        left: image.most_slots(),
    };
    for segment in image.segments.iter().take(segments as usize) {
        match offsets.u32()? {
            0 => {}
            offset => {
                let mut here = starts;
                here.take(offset as usize)?;
                walk.segment(segment, here)?;
            }
        }
    }
    Ok(())
}

/// An import of which slots are wanted.
#[derive(Clone, Copy)]
struct Import {
    symbol: usize,
    library: i32,
    /// What the table adds to the symbol's address.
    addend: i64,
}

/// For each import what is wanted of it.
fn read_imports(
    mut imports: Reader<'_>,
    names: Reader<'_>,
    count: u32,
    format: u32,
    wanted: Wanted<'_>,
) -> Result<Vec<Option<Import>>, ImageError> {
    let mut read = Vec::new();
    for _ in 0..count {
        let (name, library, addend) = match format {
            DYLD_CHAINED_IMPORT | DYLD_CHAINED_IMPORT_ADDEND => {
                let import = imports.u32()?;
                let addend = match format {
                    DYLD_CHAINED_IMPORT_ADDEND => i64::from(imports.u32()? as i32),
                    _ => 0,
                };
                // The upper ones are negative numbers.
                let library = match import as u8 {
                    special @ 0xf1.. => i32::from(special) - 0x100,
                    ordinal => ordinal.into(),
                };
                (import >> 9, library, addend)
            }
            DYLD_CHAINED_IMPORT_ADDEND64 => {
                let import = imports.u64()?;
                let library = match import as u16 {
                    special @ 0xfff1.. => i32::from(special) - 0x1_0000,
                    ordinal => ordinal.into(),
                };
                ((import >> 32) as u32, library, imports.u64()? as i64)
            }
            other => return Err(ImageError::ImportsFormat(other)),
        };
        let mut name_at = names;
        name_at.take(name as usize)?;
        read.push(wanted(name_at.name()?).map(|symbol| Import {
            symbol,
            library,
            addend,
        }));
    }
    Ok(read)
}

struct Walk<'a, S> {
    image: &'a Image,
    file: &'a S,
    imports: &'a [Option<Import>],
    found: &'a mut Vec<Slot>,
    left: u64,
}

impl<S: Source> Walk<'_, S> {
    fn segment(&mut self, segment: &Segment, mut starts: Reader<'_>) -> Result<(), ImageError> {
        let _bytes = starts.u32()?;
        let page_bytes = u64::from(starts.u16()?);
        let format = PointerFormat::of_number(starts.u16()?)?;
        let _segment_offset = starts.u64()?;
        let _most = starts.u32()?;
        let pages = starts.u16()?;
        let what = "a segment with fixup chains";
        let bytes = read_all(self.file, what, segment.file_offset, segment.file_bytes)?;
        for page in 0..u64::from(pages) {
            let start = starts.u16()?;
            if start == DYLD_CHAINED_PTR_START_NONE {
                continue;
            }
            // Several chains in a page are of 32-bit formats.
            if start & DYLD_CHAINED_PTR_START_MULTI != 0 {
                return Err(ImageError::Range {
                    what: "the first link of a page",
                    value: start.into(),
                });
            }
            self.chain(
                segment,
                &bytes,
                format,
                page * page_bytes + u64::from(start),
            )?;
        }
        Ok(())
    }

    fn chain(
        &mut self,
        segment: &Segment,
        bytes: &[u8],
        format: PointerFormat,
        mut offset: u64,
    ) -> Result<(), ImageError> {
        let slots = Reader::new("a segment with fixup chains", bytes);
        loop {
            let link = format.link(slots.from(offset as usize)?.u64()?);
            self.left = self.left.checked_sub(1).ok_or(ImageError::Many("fixups"))?;
            if let Some(bind) = link.bind {
                self.bind(segment.address.wrapping_add(offset), &bind)?;
            }
            if link.next == 0 {
                return Ok(());
            }
            offset += link.next;
        }
    }

    fn bind(&mut self, address: u64, bind: &Bind) -> Result<(), ImageError> {
        let import = self.imports.get(bind.import);
        let import = import.ok_or(ImageError::Range {
            what: "the import of a slot",
            value: bind.import as u64,
        })?;
        let Some(import) = import else { return Ok(()) };
        if self.image.segment_of_slot(address).is_none() {
            return Err(ImageError::Range {
                what: "the address of a slot",
                value: address,
            });
        }
        self.found.push(Slot {
            address,
            symbol: import.symbol,
            library: import.library,
            addend: import.addend.wrapping_add(bind.addend),
            kind: SlotKind::Eager,
            authentication: bind.authentication,
        });
        Ok(())
    }
}
