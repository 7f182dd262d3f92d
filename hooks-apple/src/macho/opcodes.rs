//! Slots by bind opcodes: `LC_DYLD_INFO`, what linkers write for systems before macOS 12 and iOS 15.

use super::format::*;
use super::reader::Reader;
use super::slots::{Slot, SlotKind, Wanted};
use super::source::{Source, table};
use super::{Image, ImageError};

/// Ten times what the largest apps have: opcodes can say anything, and each bind takes memory.
const MOST_BINDS: u64 = 1 << 22;

/// The machine that the opcodes run on.
struct Machine<'a> {
    image: &'a Image,
    kind: SlotKind,
    symbol: Option<usize>,
    library: i32,
    addend: i64,
    is_pointer: bool,
    /// Segment's address and length, and offset in it.
    segment: Option<(u64, u64)>,
    offset: u64,
    /// How many more slots there may be.
    left: u64,
}

pub(super) fn find(
    image: &Image,
    source: &impl Source,
    wanted: Wanted<'_>,
    found: &mut Vec<Slot>,
) -> Result<(), ImageError> {
    let ranges = image.opcodes.unwrap_or_default();
    let kinds = [SlotKind::Eager, SlotKind::Eager, SlotKind::Lazy];
    for (range, kind) in ranges.into_iter().zip(kinds) {
        let bytes = table(source, "a list of bind opcodes", range)?;
        let mut machine = Machine {
            image,
            kind,
            symbol: None,
            library: 0,
            addend: 0,
            is_pointer: true,
            segment: None,
            offset: 0,
            left: image.most_slots().min(MOST_BINDS),
        };
        let mut opcodes = Reader::new("a list of bind opcodes", &bytes);
        while !opcodes.at_end() && machine.step(&mut opcodes, wanted, found)? {}
    }
    Ok(())
}

impl Machine<'_> {
    /// `false`: nothing follows.
    fn step(
        &mut self,
        opcodes: &mut Reader<'_>,
        wanted: Wanted<'_>,
        found: &mut Vec<Slot>,
    ) -> Result<bool, ImageError> {
        let byte = opcodes.u8()?;
        let value = byte & 0x0f;
        match byte & 0xf0 {
            // In the list of lazy binds each symbol ends so.
            BIND_OPCODE_DONE => return Ok(self.kind == SlotKind::Lazy),
            BIND_OPCODE_SET_DYLIB_ORDINAL_IMM => self.library = value.into(),
            BIND_OPCODE_SET_DYLIB_ORDINAL_ULEB => {
                let ordinal = opcodes.uleb()?;
                self.library = i32::try_from(ordinal).map_err(|_| ImageError::Range {
                    what: "a library's ordinal",
                    value: ordinal,
                })?;
            }
            // 0, or four bits of a negative number.
            BIND_OPCODE_SET_DYLIB_SPECIAL_IMM => {
                self.library = if value == 0 { 0 } else { i32::from(value) - 16 };
            }
            BIND_OPCODE_SET_SYMBOL_TRAILING_FLAGS_IMM => self.symbol = wanted(opcodes.name()?),
            BIND_OPCODE_SET_TYPE_IMM => self.is_pointer = value == BIND_TYPE_POINTER,
            BIND_OPCODE_SET_ADDEND_SLEB => self.addend = opcodes.sleb()?,
            BIND_OPCODE_SET_SEGMENT_AND_OFFSET_ULEB => {
                let segment = self.image.segments.get(usize::from(value));
                let segment = segment.ok_or(ImageError::Range {
                    what: "a bind's segment",
                    value: value.into(),
                })?;
                self.segment = Some((segment.address, segment.memory_bytes));
                self.offset = opcodes.uleb()?;
            }
            BIND_OPCODE_ADD_ADDR_ULEB => self.skip(opcodes.uleb()?),
            BIND_OPCODE_DO_BIND => self.bind(8, found)?,
            BIND_OPCODE_DO_BIND_ADD_ADDR_ULEB => {
                let skip = opcodes.uleb()?;
                self.bind(skip.wrapping_add(8), found)?;
            }
            BIND_OPCODE_DO_BIND_ADD_ADDR_IMM_SCALED => {
                self.bind(u64::from(value) * 8 + 8, found)?;
            }
            BIND_OPCODE_DO_BIND_ULEB_TIMES_SKIPPING_ULEB => {
                let (count, skip) = (opcodes.uleb()?, opcodes.uleb()?);
                for _ in 0..count {
                    self.bind(skip.wrapping_add(8), found)?;
                }
            }
            _ => return Err(ImageError::Opcode(byte)),
        }
        Ok(true)
    }

    /// Skips are numbers that wrap around: linkers go back so.
    fn skip(&mut self, bytes: u64) {
        self.offset = self.offset.wrapping_add(bytes);
    }

    fn bind(&mut self, then_skip: u64, found: &mut Vec<Slot>) -> Result<(), ImageError> {
        let out_of_range = ImageError::Range {
            what: "a bind's offset in its segment",
            value: self.offset,
        };
        let (begin, length) = self.segment.ok_or(out_of_range.clone())?;
        if self.offset.checked_add(8).is_none_or(|end| end > length) {
            return Err(out_of_range);
        }
        self.left = self.left.checked_sub(1).ok_or(ImageError::Many("binds"))?;
        if let Some(symbol) = self.symbol.filter(|_| self.is_pointer) {
            let address = begin + self.offset;
            if self.image.segment_of_slot(address).is_none() {
                return Err(ImageError::Range {
                    what: "a bind's address",
                    value: address,
                });
            }
            found.push(Slot {
                address,
                symbol,
                library: self.library,
                addend: self.addend,
                kind: self.kind,
                authentication: None,
            });
        }
        self.skip(then_skip);
        Ok(())
    }
}
