//! Where an interrupted function of x86-64 has its return address, if the frame pointer does not lead there.
//!
//! A function may be in its prologue, behind its epilogue, or have no frame at all: then the frame pointer is
//! its caller's. The instructions that follow decide, because each path from a place finds the same stack
//! there. They are followed, with the stack pointer, up to one that says where the return address is:
//!
//! - `ret` takes it from where the stack pointer is by then.
//! - `mov rbp, rsp` and `lea rbp, [rsp + n]` begin a record if rbp was pushed there: it lies above.
//! - `leave`, `mov rsp, rbp` and `lea rsp, [rbp + n]` come from a frame pointer that leads to the function's
//!   own record.
//!
//! Conditional jumps are not taken. A call, another jump, and an instruction that is not known decide
//! nothing: most of a function's code has a record. Encodings: Intel 64 and IA-32 Architectures Software
//! Developer's Manual, volume 2, appendix A (opcode maps) and section 2.1 (ModR/M and SIB).

/// Most bytes of code that are looked at.
pub(super) const MOST_BYTES: usize = 96;

const RSP: u8 = 4;
const RBP: u8 = 5;

/// Where the return address lies. Offsets from the stack pointer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// Of the return address.
    pub return_address: u64,
    /// Of the caller's frame pointer; `None`: it is in its register.
    pub frame_pointer: Option<u64>,
    /// True only if the caller's frame pointer lies right below the return address, and is in its register,
    /// too: rbp may be an ordinary register of this code.
    pub is_of_record: bool,
}

/// What the function at the first of these instructions has done with its return address. `None`: the frame
/// pointer leads to its record, as far as they say.
pub(super) fn find(code: &[u8]) -> Option<Slot> {
    if is_import(code) {
        return Slot::new(0, None, false);
    }
    let (mut moved, mut highest) = (0i64, 0i64);
    // Where rbp is pushed to, and popped from.
    let (mut pushed, mut popped) = (None, None);
    let mut rest = code;
    loop {
        let bytes = match effect(rest)? {
            Effect::Moves(by, bytes) => {
                moved = moved.checked_add(by)?;
                bytes
            }
            Effect::PushesRbp(bytes) => {
                moved = moved.checked_sub(8)?;
                pushed = Some(moved);
                bytes
            }
            Effect::PopsRbp(bytes) => {
                // What is still to be pushed is in the register now.
                popped = Some(moved).filter(|_| pushed != Some(moved));
                moved = moved.checked_add(8)?;
                bytes
            }
            // Something was popped from there: a return address that is pushed again.
            Effect::Returns if highest > moved => return None,
            Effect::Returns => return Slot::new(moved, popped, false),
            Effect::BeginsRecord(offset) => {
                let record = moved.checked_add(offset)?;
                // rbp is pushed there on the way, or was before.
                let is_record = match pushed {
                    Some(pushed) => pushed == record,
                    None => record >= 0,
                };
                let slot = Slot::new(record.checked_add(8)?, None, pushed.is_none());
                return slot.filter(|_| is_record);
            }
            Effect::HasRecord => return None,
        };
        highest = highest.max(moved);
        rest = rest.get(bytes..)?;
    }
}

impl Slot {
    /// `None`: there is no such place above the stack pointer.
    fn new(return_address: i64, frame_pointer: Option<i64>, is_of_record: bool) -> Option<Slot> {
        let place = |offset: i64| u64::try_from(offset).ok().filter(|at| at % 8 == 0);
        Some(Slot {
            return_address: place(return_address)?,
            frame_pointer: match frame_pointer {
                Some(offset) => Some(place(offset)?),
                None => None,
            },
            is_of_record,
        })
    }
}

/// Whether an address, with the eight bytes in front of it, is where a call returns to.
pub(super) fn is_behind_call(before: [u8; 8]) -> bool {
    let is_indirect = |length: usize| match before.get(before.len() - length..) {
        Some([0xff, operand @ ..]) => operands(operand, 0)
            .is_some_and(|operands| operands.register == 2 && operands.bytes + 1 == length),
        _ => false,
    };
    before[3] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(is_indirect)
}

/// An entry of a table of imports: `jmp [rip + n]`, alone or behind `endbr64` and `bnd`.
fn is_import(code: &[u8]) -> bool {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    let code = code.strip_prefix(ENDBR64).unwrap_or(code);
    let code = code.strip_prefix(&[0xf2]).unwrap_or(code);
    code.starts_with(&[0xff, 0x25])
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Adds to the stack pointer, and has so many bytes.
    Moves(i64, usize),
    /// In so many bytes.
    PushesRbp(usize),
    /// In so many bytes.
    PopsRbp(usize),
    /// The frame pointer becomes the stack pointer plus an offset.
    BeginsRecord(i64),
    /// The frame pointer was the function's own.
    HasRecord,
    Returns,
}

/// The operands of an instruction with a ModR/M byte.
struct Operands {
    /// Number of the register, or the opcode's extension.
    register: u8,
    /// The r/m operand, if it is a register.
    other: Option<u8>,
    /// The r/m operand, if it is memory: base register and offset.
    memory: Option<(u8, i64)>,
    /// Bytes of all that, with the ModR/M byte.
    bytes: usize,
}

fn operands(code: &[u8], rex: u8) -> Option<Operands> {
    let modrm = *code.first()?;
    let (mode, low) = (modrm >> 6, modrm & 7);
    let register = modrm >> 3 & 7 | (rex & 4) << 1;
    let base_bit = (rex & 1) << 3;
    if mode == 3 {
        return Some(Operands {
            register,
            other: Some(low | base_bit),
            memory: None,
            bytes: 1,
        });
    }
    let (base, is_indexed, begin) = match low {
        4 => {
            let sib = *code.get(1)?;
            let index = sib >> 3 & 7 | (rex & 2) << 2;
            (sib & 7, index != RSP, 2)
        }
        _ => (low, false, 1),
    };
    let displacement = match mode {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    let at = code.get(begin..begin + displacement)?;
    let offset = match *at {
        [byte] => i64::from(byte as i8),
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        _ => 0,
    };
    // Without a mode, 5 is no register.
    let is_plain = !is_indexed && (mode != 0 || base != 5);
    Some(Operands {
        register,
        other: None,
        memory: is_plain.then_some((base | base_bit, offset)),
        bytes: begin + displacement,
    })
}

/// What the first instruction does. `None`: it is not followed.
fn effect(code: &[u8]) -> Option<Effect> {
    let mut at = 0;
    let mut is_short = false;
    while let Some(prefix @ (0x66 | 0xf2 | 0xf3)) = code.get(at) {
        is_short |= *prefix == 0x66;
        at += 1;
    }
    let mut rex = 0;
    if let Some(byte @ 0x40..=0x4f) = code.get(at) {
        rex = *byte;
        at += 1;
    }
    let is_long = rex & 8 != 0;
    let immediate = if is_short { 2 } else { 4 };
    let opcode = *code.get(at)?;
    at += 1;
    let behind = code.get(at..)?;
    let low_register = opcode & 7 | (rex & 1) << 3;
    let plain = |bytes: usize| Some(Effect::Moves(0, at + bytes));
    // A register is written. Of the stack pointer and the frame pointer only some ways are followed.
    let writes = |register: Option<u8>, bytes: usize| match register {
        Some(RSP | RBP) => None,
        _ => plain(bytes),
    };
    let with_operands = |immediate: usize| {
        let bytes = operands(behind, rex)?.bytes;
        Some(Effect::Moves(0, at + bytes + immediate))
    };
    match opcode {
        0x50..=0x57 if low_register == RBP => Some(Effect::PushesRbp(at)),
        0x50..=0x57 => Some(Effect::Moves(-8, at)),
        0x58..=0x5f => match low_register {
            RBP => Some(Effect::PopsRbp(at)),
            RSP => None,
            _ => Some(Effect::Moves(8, at)),
        },
        0x6a => Some(Effect::Moves(-8, at + 1)),
        0x68 => Some(Effect::Moves(-8, at + 4)),
        0xc2 | 0xc3 => Some(Effect::Returns),
        0xc9 => Some(Effect::HasRecord),
        0x70..=0x7f => plain(1),
        0x90 | 0x98 | 0x99 => plain(0),
        0xa8 => plain(1),
        0xa9 => plain(immediate),
        0xb0..=0xb7 => plain(1),
        0xb8..=0xbf if matches!(low_register, RSP | RBP) => None,
        0xb8..=0xbf => plain(if is_long { 8 } else { immediate }),
        0x00..=0x3f if opcode & 7 == 4 => plain(1),
        0x00..=0x3f if opcode & 7 == 5 => plain(immediate),
        // Of bytes, to memory, and comparisons.
        0x38..=0x3b | 0x84 | 0x85 | 0x88 | 0x8a | 0xd0 | 0xd2 | 0xfe => with_operands(0),
        0x00..=0x3f if opcode & 7 < 4 => {
            let operands = operands(behind, rex)?;
            let written = match opcode & 2 {
                0 => operands.other,
                _ => Some(operands.register),
            };
            writes(written, operands.bytes)
        }
        0x63 | 0x69 | 0x6b => {
            let operands = operands(behind, rex)?;
            let of_opcode = match opcode {
                0x69 => immediate,
                0x6b => 1,
                _ => 0,
            };
            writes(Some(operands.register), operands.bytes + of_opcode)
        }
        0x80 | 0xc0 | 0xc6 => with_operands(1),
        0xc1 | 0xc7 | 0xd1 | 0xd3 => {
            let operands = operands(behind, rex)?;
            let of_opcode = match opcode {
                0xc1 => 1,
                0xc7 => immediate,
                _ => 0,
            };
            writes(operands.other, operands.bytes + of_opcode)
        }
        0x81 | 0x83 => {
            let operands = operands(behind, rex)?;
            let bytes = if opcode == 0x83 { 1 } else { immediate };
            let end = at + operands.bytes + bytes;
            let amount = match *code.get(at + operands.bytes..end)? {
                [byte] => i64::from(byte as i8),
                [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
                _ => 0,
            };
            match (operands.register & 7, operands.other) {
                // A comparison.
                (7, _) => Some(Effect::Moves(0, end)),
                (0, Some(RSP)) if is_long => Some(Effect::Moves(amount, end)),
                (5, Some(RSP)) if is_long => Some(Effect::Moves(-amount, end)),
                (_, other) => writes(other, operands.bytes + bytes),
            }
        }
        0xf6 | 0xf7 => {
            let operands = operands(behind, rex)?;
            // `test` has an immediate; the others write.
            let of_test = if opcode == 0xf6 { 1 } else { immediate };
            match operands.register & 7 {
                0 | 1 => plain(operands.bytes + of_test),
                _ => writes(operands.other, operands.bytes),
            }
        }
        0xff => {
            let operands = operands(behind, rex)?;
            match operands.register & 7 {
                0 | 1 => writes(operands.other, operands.bytes),
                6 => Some(Effect::Moves(-8, at + operands.bytes)),
                _ => None,
            }
        }
        0x89 | 0x8b => {
            let operands = operands(behind, rex)?;
            let (to, from) = match opcode {
                0x89 => (operands.other, Some(operands.register)),
                _ => (Some(operands.register), operands.other),
            };
            match (to, from) {
                (Some(RBP), Some(RSP)) if is_long => Some(Effect::BeginsRecord(0)),
                (Some(RSP), Some(RBP)) if is_long => Some(Effect::HasRecord),
                (to, _) => writes(to, operands.bytes),
            }
        }
        0x8d => {
            let operands = operands(behind, rex)?;
            match (operands.register, operands.memory) {
                (RBP, Some((RSP, offset))) if is_long => Some(Effect::BeginsRecord(offset)),
                (RSP, Some((RSP, offset))) if is_long => {
                    Some(Effect::Moves(offset, at + operands.bytes))
                }
                (RSP, Some((RBP, _))) => Some(Effect::HasRecord),
                (to, _) => writes(Some(to), operands.bytes),
            }
        }
        0x0f => {
            let second = *behind.first()?;
            let of_two = operands(behind.get(1..)?, rex);
            match second {
                0x80..=0x8f => plain(1 + 4),
                0x0b => None,
                // To general registers: moves and arithmetic.
                0x40..=0x4f | 0xaf | 0xb6 | 0xb7 | 0xbc..=0xbf => {
                    let operands = of_two?;
                    writes(Some(operands.register), 1 + operands.bytes)
                }
                // To memory, bytes or vectors, hints, `endbr64`.
                0x0d | 0x90..=0x9f | 0xa3 => plain(1 + of_two?.bytes),
                second if is_of_vectors(second) => plain(1 + of_two?.bytes),
                0x70..=0x73 | 0xc2 | 0xc4..=0xc6 => plain(1 + of_two?.bytes + 1),
                _ => None,
            }
        }
        // Vectors by the shorter VEX prefix.
        0xc5 => {
            let bytes = operands(behind.get(2..)?, 0)?.bytes;
            match *behind.get(1)? {
                0x77 => plain(2),
                second => is_of_vectors(second).then(|| Effect::Moves(0, at + 2 + bytes)),
            }
        }
        _ => None,
    }
}

/// Whether an opcode behind 0f or VEX is one of vectors, or of hints, with a ModR/M byte and no immediate.
fn is_of_vectors(opcode: u8) -> bool {
    matches!(opcode, 0x10..=0x1f | 0x28..=0x2f | 0x50..=0x6f | 0x74..=0x76 | 0x7c..=0x7f | 0xd0..=0xfe)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// V8's function (node 20, `--print-opt-code`), each instruction with its offset and what is true there.
    #[test]
    fn a_function_of_v8s() {
        const CODE: [&[u8]; 21] = [
            &[0x48, 0x8b, 0x59, 0xf8],
            &[0xf6, 0x43, 0x35, 0x01],
            &[0x0f, 0x85, 0xb2, 0x6e, 0xe4, 0x1f],
            &[0x55],
            &[0x48, 0x89, 0xe5],
            &[0x56],
            &[0x57],
            &[0x50],
            &[0x48, 0x83, 0xec, 0x10],
            &[0x48, 0x89, 0x75, 0xe0],
            &[0x49, 0x3b, 0x65, 0xa0],
            &[0x0f, 0x86, 0x72, 0x00, 0x00, 0x00],
            &[0x48, 0xba, 0xd1, 0x45, 0xb0, 0xd1, 0x03, 0x00, 0x00, 0x00],
            &[0x49, 0x39, 0x8d, 0x98, 0x01, 0x00, 0x00],
            &[0x48, 0xc1, 0xe7, 0x20],
            &[0x48, 0x8b, 0x4d, 0xe8],
            &[0x48, 0x8b, 0xe5],
            &[0x5d],
            &[0x48, 0x83, 0xf9, 0x02],
            &[0x7f, 0x03],
            &[0xc2, 0x10, 0x00],
        ];
        let of = |instruction: usize| find(&CODE[instruction..].concat());
        let at = |return_address, is_of_record| {
            Some(Slot {
                return_address,
                frame_pointer: None,
                is_of_record,
            })
        };
        for before in 0..=3 {
            assert_eq!(of(before), at(0, false), "{before}");
        }
        assert_eq!(of(4), at(8, true));
        for inside in 5..=16 {
            assert_eq!(of(inside), None, "{inside}");
        }
        // It leads to the record still.
        let restored = Slot {
            return_address: 8,
            frame_pointer: Some(0),
            is_of_record: false,
        };
        assert_eq!(of(17), Some(restored));
        for behind in 18..=20 {
            assert_eq!(of(behind), at(0, false), "{behind}");
        }
    }

    #[test]
    fn what_decides_nothing() {
        for code in [
            &[][..],
            &[0x48],
            // A jump, a call, a trap, code that is cut off.
            &[0xeb, 0x01, 0xc3],
            &[0xe8, 0, 0, 0, 0, 0xc3],
            &[0x0f, 0x0b, 0xc3],
            &[0x48, 0x81, 0xc4, 0x10],
            // Another stack, and a frame pointer that is something else.
            &[0x48, 0x89, 0xc4, 0xc3],
            &[0x31, 0xed, 0xc3],
            // `pop r10; add rsp, 24; push r10; ret`: the return address is moved.
            &[0x41, 0x5a, 0x48, 0x83, 0xc4, 0x18, 0x41, 0x52, 0xc3],
            // Nothing lies below the stack pointer.
            &[0x53, 0xc3],
            // `push rbp; push rbx; mov rbp, rsp`: no record is there.
            &[0x55, 0x53, 0x48, 0x89, 0xe5],
            &[0x53, 0x48, 0x89, 0xe5],
        ] {
            assert_eq!(find(code), None, "{code:x?}");
        }
        assert_eq!(find(&[0x90; 200]), None);
    }

    /// rbp as an ordinary register that is saved: `push rbp; push rbx; sub rsp, 8; … ret`, from each place.
    #[test]
    fn a_saved_register_comes_back() {
        const CODE: [&[u8]; 8] = [
            &[0x55],
            &[0x53],
            &[0x48, 0x83, 0xec, 0x08],
            &[0x01, 0xc8],
            &[0x48, 0x83, 0xc4, 0x08],
            &[0x5b],
            &[0x5d],
            &[0xc3],
        ];
        let slots = [
            (0, None),
            (8, Some(0)),
            (16, Some(8)),
            (24, Some(16)),
            (24, Some(16)),
            (16, Some(8)),
            (8, Some(0)),
            (0, None),
        ];
        for (at, (return_address, frame_pointer)) in slots.into_iter().enumerate() {
            let slot = Slot {
                return_address,
                frame_pointer,
                is_of_record: false,
            };
            assert_eq!(find(&CODE[at..].concat()), Some(slot), "{at}");
        }
    }

    #[test]
    fn calls_of_each_length() {
        for call in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd2],
            &[0xff, 0x55, 0xc8],
            &[0xff, 0x54, 0x24, 0x10],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xff, 0x94, 0xc1, 1, 2, 3, 4],
            &[0xff, 0x14, 0xc5, 1, 2, 3, 4],
        ] {
            let mut before = [0x90; 8];
            before[8 - call.len()..].copy_from_slice(call);
            assert!(is_behind_call(before), "{call:x?}");
        }
        // `jmp`, `push`, and nothing.
        for other in [[0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0], [0; 8]] {
            assert!(!is_behind_call(other));
        }
    }

    /// Any bytes: it ends, and gives what can be.
    #[test]
    fn any_bytes() {
        let mut random = 0x5eed_u64;
        let mut found = 0;
        for _ in 0..if cfg!(miri) { 200 } else { 200_000 } {
            let code: [u8; MOST_BYTES] = core::array::from_fn(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random >> 32) as u8
            });
            if let Some(slot) = find(&code) {
                assert!(slot.return_address % 8 == 0);
                found += 1;
            }
        }
        assert!(found > 0);
    }

    /// Beside what compilers and assembler programmers say of their own code: the unwind tables of libc and
    /// of this program. They differ in padding that never runs, and in the first entry of a table of imports.
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri), not(loom)))]
    #[test]
    fn unwind_tables_say_the_same() {
        use crate::native::own_modules::{self, Lookup};
        use crate::unwind::cfi::{RegisterNumbers, Tables};
        use crate::unwind::rule::Kind;
        use std::vec::Vec;

        /// The length of an instruction that `effect` does not follow, if it is a call or a jump.
        fn transfer(code: &[u8]) -> Option<usize> {
            match *code.first()? {
                0xe8 | 0xe9 => Some(5),
                0xeb => Some(2),
                0xff => Some(1 + operands(code.get(1..)?, 0)?.bytes),
                0x41 if code.get(1) == Some(&0xff) => Some(2 + operands(code.get(2..)?, 1)?.bytes),
                _ => None,
            }
        }

        /// Where functions begin, by `.eh_frame_hdr`: its table has two signed words an entry, relative to
        /// it.
        fn functions(tables: &Tables<'_>) -> Vec<u64> {
            let words = tables.header.bytes.get(8..).expect("a header");
            let (words, _) = words.as_chunks::<4>();
            let count = u32::from_le_bytes(words[0]) as usize;
            let entries = words[1..].chunks(2).take(count);
            let address = |entry: &[[u8; 4]]| {
                let offset = i64::from(i32::from_le_bytes(entry[0]));
                tables.header.address.wrapping_add_signed(offset)
            };
            entries.map(address).collect()
        }

        own_modules::init();
        let (mut right, mut wrong) = (0, 0);
        for function in [libc::malloc as *const (), super::find as *const ()] {
            let Lookup::Module(module) = own_modules::find_or_take_in(function as u64) else {
                panic!("no module");
            };
            let tables = module.tables().expect("it has them");
            let starts = functions(tables);
            for (start, end) in starts.iter().zip(&starts[1..]) {
                let mut pc = *start;
                while pc < *end && module.is_code(pc) && module.is_code(pc + MOST_BYTES as u64) {
                    let begin = core::ptr::with_exposed_provenance(pc as usize);
                    // SAFETY: code of a module that stays loaded.
                    let code: &[u8] = unsafe { core::slice::from_raw_parts(begin, MOST_BYTES) };
                    let rule = tables.rule(pc, pc, &RegisterNumbers::NATIVE);
                    let slot = find(code).filter(|slot| !slot.is_of_record);
                    if let (Kind::Sp, Some(slot)) = (rule.kind(), slot) {
                        let cfa = rule.base() as u64;
                        // Below the stack pointer: it was popped from there.
                        let fp = rule.fp().and_then(|offset| cfa.checked_add_signed(offset));
                        let truth = (cfa - 8, fp);
                        match truth == (slot.return_address, slot.frame_pointer) {
                            true => right += 1,
                            false => wrong += 1,
                        }
                    }
                    let length = match effect(code) {
                        Some(
                            Effect::Moves(_, length)
                            | Effect::PushesRbp(length)
                            | Effect::PopsRbp(length),
                        ) => Some(length),
                        Some(Effect::Returns) => Some(if code[0] == 0xc2 { 3 } else { 1 }),
                        Some(Effect::BeginsRecord(_) | Effect::HasRecord) => match code {
                            [0xc9, ..] => Some(1),
                            [rex, 0x89 | 0x8b | 0x8d, rest @ ..] => {
                                operands(rest, *rex).map(|operands| 2 + operands.bytes)
                            }
                            _ => None,
                        },
                        None => transfer(code),
                    };
                    match length {
                        Some(length) => pc += length as u64,
                        None => break,
                    }
                }
            }
        }
        std::eprintln!("{right} as the tables say, {wrong} not");
        assert!(right > 10_000 && wrong * 500 <= right, "{right}, {wrong}");
    }
}
