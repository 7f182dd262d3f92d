//! Slots by the indirect symbol table: what calls use, of any linker. It is in `__LINKEDIT` of the loaded
//! image.

use super::format::*;
use super::image::Symbols;
use super::reader::Reader;
use super::slots::{Slot, SlotKind, Wanted};
use super::source::{Source, read_all, table};
use super::{Image, ImageError, Section, Slots};

/// The slots of wanted symbols that calls go through. Signed slots are left out: the table does not say how
/// they are signed.
pub fn indirect_slots(
    image: &Image,
    source: &impl Source,
    wanted: Wanted<'_>,
) -> Result<Slots, ImageError> {
    let mut slots = Vec::new();
    find(image, source, wanted, &mut slots)?;
    slots.sort_unstable();
    Ok(Slots {
        slots,
        without_data: true,
    })
}

pub(super) fn find(
    image: &Image,
    source: &impl Source,
    wanted: Wanted<'_>,
    found: &mut Vec<Slot>,
) -> Result<(), ImageError> {
    let (Some(symbols), Some((offset, count))) = (image.symbols, image.indirect) else {
        return Ok(());
    };
    let names = table(source, "the table of symbol names", symbols.names)?;
    for section in &image.pointers {
        // `__auth_got`, `__auth_ptr`.
        if image.is_arm64e && section.name.starts_with(b"__auth") {
            continue;
        }
        // Each section has a part of the table of its own, which begins at `first_indirect`.
        let pointers = section.bytes / 8;
        let first = u64::from(section.first_indirect);
        if first + pointers > count.into() {
            return Err(ImageError::Range {
                what: "a section's part of the indirect symbol table",
                value: first + pointers,
            });
        }
        let at = u64::from(offset) + first * 4;
        let numbers = read_all(source, "the indirect symbol table", at, pointers * 4)?;
        let mut numbers = Reader::new("the indirect symbol table", &numbers);
        for slot in 0..pointers {
            let number = numbers.u32()?;
            if number & (INDIRECT_SYMBOL_LOCAL | INDIRECT_SYMBOL_ABS) != 0 {
                continue;
            }
            let (name, library) = symbol(source, &symbols, &names, number)?;
            if let Some(symbol) = wanted(name) {
                found.push(slot_of(image, section, slot, (symbol, library))?);
            }
        }
    }
    Ok(())
}

fn slot_of(
    image: &Image,
    section: &Section,
    slot: u64,
    (symbol, library): (usize, i32),
) -> Result<Slot, ImageError> {
    let address = section.address.wrapping_add(slot * 8);
    if image.segment_of_slot(address).is_none() {
        return Err(ImageError::Range {
            what: "a section of pointers",
            value: address,
        });
    }
    Ok(Slot {
        address,
        symbol,
        library,
        addend: 0,
        kind: if section.is_lazy {
            SlotKind::Lazy
        } else {
            SlotKind::Eager
        },
        authentication: None,
    })
}

/// Its name, and the library that it comes from.
fn symbol<'a>(
    source: &impl Source,
    symbols: &Symbols,
    names: &'a [u8],
    number: u32,
) -> Result<(&'a [u8], i32), ImageError> {
    if number >= symbols.count {
        return Err(ImageError::Range {
            what: "an indirect symbol",
            value: number.into(),
        });
    }
    let at = u64::from(symbols.offset) + u64::from(number) * NLIST_BYTES;
    let entry = read_all(source, "the symbol table", at, NLIST_BYTES)?;
    let mut entry = Reader::new("the symbol table", &entry);
    let name = entry.u32()?;
    entry.take(2)?;
    // `GET_LIBRARY_ORDINAL`, `EXECUTABLE_ORDINAL` and `DYNAMIC_LOOKUP_ORDINAL` of mach-o/nlist.h.
    let library = match entry.u16()? >> 8 {
        0xff => -1,
        0xfe => -2,
        ordinal => ordinal.into(),
    };
    let names = Reader::new("the table of symbol names", names);
    Ok((names.from(name as usize)?.name()?, library))
}
