//! What Ruby's machine code tells where symbols are hidden: where the virtual machine is, and where functions
//! begin and end.

use crate::managed::memory::Memory;

/// Code of a function that is looked at. What is looked for stands near its begin.
const MOST_CODE: usize = 256;

/// The address that a function loads a word from first, next to the code: `mov`, 64 bits, relative to the
/// instruction pointer (Intel SDM volume 2, 2.1.5 and 2.2.1.6).
pub(super) fn first_load(memory: &mut impl Memory, function: u64, bytes: u64) -> Option<u64> {
    const MOV: u8 = 0x8b;
    /// Bits of a register number do not matter.
    const WIDE: (u8, u8) = (0xfb, 0x48);
    const RELATIVE: (u8, u8) = (0xc7, 0x05);

    let mut code = [0; MOST_CODE];
    let code = code.get_mut(..bytes.min(MOST_CODE as u64) as usize)?;
    if !memory.bytes(function, code) {
        return None;
    }
    let is = |byte: u8, (mask, value): (u8, u8)| byte & mask == value;
    let at = code.windows(7).position(|instruction| {
        is(instruction[0], WIDE) && instruction[1] == MOV && is(instruction[2], RELATIVE)
    })?;
    let distance = code.get(at + 3..at + 7)?.try_into().ok()?;
    let next = function.checked_add(at as u64 + 7)?;
    next.checked_add_signed(i32::from_le_bytes(distance).into())
}

/// The table that unwinders search: where each function begins (`.eh_frame_hdr`, Linux Standard Base Core,
/// "Exception Frames").
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions {
    header: u64,
    count: u32,
}

impl Functions {
    const HEADER_BYTES: u64 = 12;
    const ENTRY_BYTES: u64 = 8;

    /// The one with this header, if it is of the form that linkers write.
    pub(super) fn at(memory: &mut impl Memory, header: u64) -> Option<Functions> {
        /// Version 1; the frames' address, relative, 4 bytes; a count, 4 bytes; entries, relative to the
        /// header, 4 bytes.
        const FORM: u32 = u32::from_le_bytes([1, 0x1b, 0x03, 0x3b]);

        let is_known = memory.half(header)? == FORM;
        is_known.then_some(Functions {
            header,
            count: memory.half(header.checked_add(8)?)?,
        })
    }

    /// Where the function around an address begins, and where the next one does.
    pub(super) fn around(&self, memory: &mut impl Memory, address: u64) -> Option<(u64, u64)> {
        let mut begin = |index: u32| {
            let entry = Self::HEADER_BYTES + Self::ENTRY_BYTES * u64::from(index);
            let distance = memory.half(self.header.checked_add(entry)?)?;
            self.header.checked_add_signed((distance as i32).into())
        };
        let (mut low, mut high) = (0, self.count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match begin(middle)? <= address {
                true => low = middle,
                false => high = middle,
            }
        }
        let bounds = (begin(low)?, begin(high)?);
        (high < self.count && bounds.0 <= address && address < bounds.1).then_some(bounds)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// Bytes from address 0x1000 on.
    struct Bytes(Vec<u8>);

    const BASE: u64 = 0x1000;

    impl Memory for Bytes {
        fn word(&mut self, address: u64) -> Option<u64> {
            let at = address.checked_sub(BASE)? as usize;
            let bytes = self.0.get(at..at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
        }
    }

    #[test]
    fn the_first_load_is_found_behind_other_instructions() {
        // endbr64; push rbp; mov rbx, rdi; mov rbp, [rip + 0x1fa2bf]; call; mov rax, [rip + 8]
        let mut code = vec![
            0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xfb, 0x48, 0x8b, 0x2d, 0xbf, 0xa2, 0x1f, 0,
            0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x05, 8, 0, 0, 0,
        ];
        let bytes = code.len() as u64;
        code.resize(64, 0);
        let mut memory = Bytes(code);
        let found = first_load(&mut memory, BASE, bytes);
        assert_eq!(found, Some(BASE + 15 + 0x1f_a2bf));
        // It is behind the function's end, or the code cannot be read.
        assert_eq!(first_load(&mut memory, BASE, 14), None);
        assert_eq!(first_load(&mut memory, BASE + 60, 27), None);
        // Backward.
        memory.0[11..15].copy_from_slice(&(-32i32).to_le_bytes());
        assert_eq!(first_load(&mut memory, BASE, bytes), Some(BASE + 15 - 32));
    }

    #[test]
    fn functions_are_found_in_a_table() {
        let begins = [-0x800i32, -0x700, -0x6f0, 0x10];
        let mut table = vec![1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0];
        table.extend(4u32.to_le_bytes());
        for begin in begins {
            table.extend(begin.to_le_bytes());
            table.extend([0; 4]);
        }
        table.resize(64, 0);
        let mut memory = Bytes(table);
        let functions = Functions::at(&mut memory, BASE).expect("of this form");
        let mut around = |address: u64| functions.around(&mut memory, address);
        assert_eq!(around(BASE - 0x801), None);
        assert_eq!(around(BASE - 0x800), Some((BASE - 0x800, BASE - 0x700)));
        assert_eq!(around(BASE - 0x701), Some((BASE - 0x800, BASE - 0x700)));
        assert_eq!(around(BASE - 0x700), Some((BASE - 0x700, BASE - 0x6f0)));
        assert_eq!(around(BASE), Some((BASE - 0x6f0, BASE + 0x10)));
        // Where the last one ends is not said.
        assert_eq!(around(BASE + 0x10), None);
        memory.0[3] = 0x1b;
        assert!(Functions::at(&mut memory, BASE).is_none());
    }
}
