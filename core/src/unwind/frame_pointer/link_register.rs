//! Whether the link register of an interrupted arm64 function still holds its return address.
//!
//! A function may be in front of its prologue, behind its epilogue, or have no frame: then its return address
//! is in x30, and the frame pointer is its caller's. Or it has a frame, and x30 holds what the last call has
//! left there. The code that follows says which: if the next instruction that touches x30 reads it, it is the
//! return address. If the next one writes it, by a call or from the frame, nobody needs what is in there.
//!
//! This is the same on each way through a function, because its epilogues cannot ask. So one way that comes
//! to such an instruction is enough. Ways that end without one (a trap, a jump through a table) are given up
//! for the next one.

/// Instructions looked at, at most.
const MOST_INSTRUCTIONS: u32 = 256;
/// Branches that may be followed later.
const MOST_BRANCHES: usize = 16;

/// The instruction at an address.
pub(super) fn instruction(at: u64, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<u32> {
    if at & 3 != 0 {
        return None;
    }
    let word = read(at & !7)?;
    Some((word >> (8 * (at & 4))) as u32)
}

/// What an instruction does with x30, and where it goes on. The encodings are those of the Arm ARM, C4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Neither reads nor writes it.
    None,
    /// The return address is in there.
    Reads,
    /// A call, or the return address comes back from the frame.
    Writes,
    /// Goes on elsewhere, so many bytes from here.
    Jump(i64),
    /// May go on elsewhere.
    Branch(i64),
    /// Goes on at a place that a register holds.
    Indirect(u32),
    /// Ends here, or it cannot be said.
    Unclear,
}

const LR: u32 = 30;
const SP: u32 = 31;

/// A signed field of an instruction, in bytes: words as encoded.
fn offset(instruction: u32, low: u32, bits: u32) -> i64 {
    let field = i64::from(instruction >> low) << (64 - bits);
    (field >> (64 - bits)) << 2
}

fn effect(instruction: u32) -> Effect {
    let i = instruction;
    let (rd, rn, rt2) = (i & 31, i >> 5 & 31, i >> 10 & 31);
    // PACIASP, AUTIASP, … PACIAZ, … (hints 24 to 31) and XPACLRI (hint 7).
    if i & 0xffff_ff1f == 0xd503_231f || i == 0xd503_20ff {
        return Effect::Reads;
    }
    match i {
        // BL; BLR; BLRAA and relatives.
        _ if i & 0xfc00_0000 == 0x9400_0000 => Effect::Writes,
        _ if i & 0xffff_fc1f == 0xd63f_0000 || i & 0xfeff_f800 == 0xd63f_0800 => Effect::Writes,
        // RET, RETAA, RETAB. Through another register: the return address was copied there.
        _ if i & 0xffff_fc1f == 0xd65f_0000 && rn == LR => Effect::Reads,
        _ if i & 0xffff_fc1f == 0xd65f_0000 => Effect::Unclear,
        0xd65f_0bff | 0xd65f_0fff => Effect::Reads,
        // BR; BRAA and relatives.
        _ if i & 0xffff_fc1f == 0xd61f_0000 && rn == LR => Effect::Reads,
        _ if i & 0xffff_fc1f == 0xd61f_0000 || i & 0xfeff_f800 == 0xd61f_0800 => {
            Effect::Indirect(rn)
        }
        // B; B.cond and BC.cond; CBZ and CBNZ; TBZ and TBNZ.
        _ if i & 0xfc00_0000 == 0x1400_0000 => Effect::Jump(offset(i, 0, 26)),
        _ if i & 0xff00_0000 == 0x5400_0000 => Effect::Branch(offset(i, 5, 19)),
        _ if i & 0x7e00_0000 == 0x3400_0000 => Effect::Branch(offset(i, 5, 19)),
        _ if i & 0x7e00_0000 == 0x3600_0000 => Effect::Branch(offset(i, 5, 14)),
        // STP and LDP of 64 bits.
        _ if i & 0xfe00_0000 == 0xa800_0000 && (rd == LR || rt2 == LR) => {
            if i & 1 << 22 == 0 {
                Effect::Reads
            } else {
                Effect::Writes
            }
        }
        // STR and LDR of 64 bits: unsigned offset; indexed or unscaled; with a register.
        _ if rd == LR
            && (i & 0xff80_0000 == 0xf900_0000
                || i & 0xffa0_0000 == 0xf800_0000
                || i & 0xffa0_0c00 == 0xf820_0800) =>
        {
            if i & 1 << 22 == 0 {
                Effect::Reads
            } else {
                Effect::Writes
            }
        }
        // MOV Xd, X30; MOV X30, Xm.
        _ if i & 0xffff_ffe0 == 0xaa1e_03e0 => Effect::Reads,
        _ if i & 0xffe0_ffff == 0xaa00_03fe => Effect::Unclear,
        // ADD X29, SP, #…: the record is written, and no call has been made since.
        _ if i & 0xff80_03ff == 0x9100_0000 | SP << 5 | 29 => Effect::Reads,
        // BRK; UDF.
        _ if i & 0xffe0_001f == 0xd420_0000 || i & 0xffff_0000 == 0 => Effect::Unclear,
        _ => Effect::None,
    }
}

/// Whether x30 is what the function at `pc` returns to. `None`: it cannot be said.
pub(super) fn is_live(pc: u64, code: &mut impl FnMut(u64) -> Option<u32>) -> Option<bool> {
    let mut later = [0u64; MOST_BRANCHES];
    let mut branches = 0;
    let mut at = pc;
    let mut looked_at = 0;
    loop {
        looked_at += 1;
        if looked_at > MOST_INSTRUCTIONS {
            return None;
        }
        let effect = code(at).map_or(Effect::Unclear, effect);
        match effect {
            Effect::None => {}
            Effect::Reads => return Some(true),
            Effect::Writes => return Some(false),
            Effect::Indirect(register) if is_import(at, register, code) => return Some(true),
            Effect::Jump(offset) => {
                at = at.wrapping_add_signed(offset);
                continue;
            }
            Effect::Branch(offset) => {
                if let Some(place) = later.get_mut(branches) {
                    *place = at.wrapping_add_signed(offset);
                    branches += 1;
                }
            }
            Effect::Indirect(_) | Effect::Unclear => {
                branches = branches.checked_sub(1)?;
                at = later[branches];
                continue;
            }
        }
        at = at.wrapping_add(4);
    }
}

/// Whether an indirect jump is one to an imported function: through x16 or x17, just loaded from a fixed
/// place. Such an entry is jumped to with the return address in x30, from everywhere.
fn is_import(at: u64, register: u32, code: &mut impl FnMut(u64) -> Option<u32>) -> bool {
    let mut loads = |back: u64| {
        // LDR Xt, [Xn, #…] with 64 bits.
        code(at.wrapping_sub(back))
            .is_some_and(|i| i & 0xffc0_0000 == 0xf940_0000 && i & 31 == register)
    };
    (16..=17).contains(&register) && (loads(4) || loads(8))
}
