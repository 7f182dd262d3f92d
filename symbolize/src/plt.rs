//! Names for PLT stubs. They have no symbol; which function a stub jumps to follows from the GOT slot
//! that it loads and the relocation that fills the slot.

use super::demangle::demangle;
use super::object_file::{ObjectFile, Section};
use object::{
    Architecture, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget,
};
use stackbeat_core::address::Svma;
use std::cell::OnceCell;
use std::collections::HashMap;

/// The executable sections that linkers put stubs into.
const SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];

/// The stubs of one module, read when an address lies among them.
pub(crate) struct Plt<'a> {
    file: &'a ObjectFile<'a>,
    /// Ranges of the sections.
    ranges: Vec<(u64, u64)>,
    stubs: OnceCell<Stubs>,
}

/// (start of the stub, name), sorted.
type Stubs = Vec<(u64, String)>;

impl<'a> Plt<'a> {
    pub(crate) fn of(file: &'a ObjectFile<'a>) -> Plt<'a> {
        let sections = sections(file);
        Plt {
            file,
            ranges: sections
                .map(|s| (s.address(), s.address() + s.size()))
                .collect(),
            stubs: OnceCell::new(),
        }
    }

    /// The stub that contains an address: `Some(None)` for one whose target is not known (the
    /// resolver's own entry), `None` outside the PLT.
    pub(crate) fn find(&self, svma: Svma) -> Option<Option<(Svma, &str)>> {
        let svma = svma.0;
        let inside = self.ranges.iter().find(|r| (r.0..r.1).contains(&svma))?;
        let stubs = self.stubs.get_or_init(|| read(self.file));
        let after = stubs.partition_point(|stub| stub.0 <= svma);
        let stub = after.checked_sub(1).map(|i| &stubs[i]);
        Some(
            stub.filter(|stub| stub.0 >= inside.0 && svma - stub.0 < 24)
                .map(|stub| (Svma(stub.0), stub.1.as_str())),
        )
    }
}

fn sections<'a>(file: &'a ObjectFile<'a>) -> impl Iterator<Item = Section<'a>> {
    SECTIONS
        .iter()
        .filter_map(|name| file.section_by_name(name))
}

fn read<'a>(file: &'a ObjectFile<'a>) -> Stubs {
    let slots = slots(file);
    let mut stubs = Stubs::new();
    for section in sections(file) {
        let Ok(code) = section.data() else { continue };
        let found = match file.architecture() {
            Architecture::X86_64 => x86_64_stubs(section.address(), code),
            Architecture::Aarch64 => aarch64_stubs(section.address(), code),
            _ => Vec::new(),
        };
        for (start, slot) in found {
            if let Some(name) = slots.get(&slot) {
                stubs.push((start, format!("{}@plt", demangle(name))));
            }
        }
    }
    stubs.sort();
    stubs
}

/// GOT slot → name of the function whose address the dynamic linker puts there.
fn slots<'a>(file: &'a ObjectFile<'a>) -> HashMap<u64, &'a str> {
    let mut slots = HashMap::new();
    let (Some(relocations), Some(symbols)) =
        (file.dynamic_relocations(), file.dynamic_symbol_table())
    else {
        return slots;
    };
    for (slot, relocation) in relocations {
        if let RelocationTarget::Symbol(index) = relocation.target()
            && let Ok(symbol) = symbols.symbol_by_index(index)
            && let Ok(name) = symbol.name()
            && !name.is_empty()
        {
            slots.insert(slot, name);
        }
    }
    slots
}

/// Stubs are 8 or 16 bytes: [endbr64] [bnd] jmp *slot(%rip) …
fn x86_64_stubs(base: u64, code: &[u8]) -> Vec<(u64, u64)> {
    let mut stubs = Vec::new();
    let mut at = 0;
    while at + 6 <= code.len() {
        if code[at..at + 2] != [0xff, 0x25] {
            at += 1;
            continue;
        }
        let displacement =
            i32::from_le_bytes([code[at + 2], code[at + 3], code[at + 4], code[at + 5]]);
        let next = base + at as u64 + 6;
        stubs.push((
            base + (at as u64 & !7),
            next.wrapping_add_signed(i64::from(displacement)),
        ));
        at += 6;
    }
    stubs
}

/// Stubs are 16 bytes, or 24 with BTI: [bti c] adrp x16, page; ldr x17, [x16, #offset]; add; br x17.
fn aarch64_stubs(base: u64, code: &[u8]) -> Vec<(u64, u64)> {
    let words: Vec<u32> = code
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    let mut stubs = Vec::new();
    for (i, pair) in words.windows(2).enumerate() {
        let (adrp, ldr) = (pair[0], pair[1]);
        if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
            continue;
        }
        let pc = base + 4 * i as u64;
        // 21 bits, signed: immhi (bits 23–5), immlo (bits 30–29).
        let immediate = ((adrp >> 5) & 0x7_ffff) << 2 | (adrp >> 29) & 3;
        let pages = i64::from((immediate << 11) as i32 >> 11);
        let page = (pc & !0xfff).wrapping_add_signed(pages << 12);
        let offset = u64::from((ldr >> 10) & 0xfff) * 8;
        let has_bti = i > 0 && words[i - 1] == 0xd503_245f;
        stubs.push((pc - if has_bti { 4 } else { 0 }, page + offset));
    }
    stubs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aarch64_stub_addresses() {
        // adrp x16, 0x11000 (pc 0x5d0); ldr x17, [x16, #0x18]; add x16, x16, #0x18; br x17
        let words: [u32; 4] = [0x9000_0090, 0xf940_0e11, 0x9100_6210, 0xd61f_0220];
        let code: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(aarch64_stubs(0x5d0, &code), [(0x5d0, 0x10018)]);
        // adrp with a negative page distance: immlo=3, immhi=0x7ffff is −1.
        let back = [0xf0ff_fff0u32, 0xf940_0211];
        let code: Vec<u8> = back.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(aarch64_stubs(0x2000, &code), [(0x2000, 0x1000)]);
    }
}
