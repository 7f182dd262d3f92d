//! Classic BPF programs as seccomp runs them, so that the agent knows what a filter says of a system call
//! before it makes the call.
//!
//! Sources: Linux `Documentation/userspace-api/seccomp_filter.rst`,
//! `include/uapi/linux/{filter,bpf_common,seccomp}.h`, `kernel/seccomp.c` (`seccomp_check_filter`: which
//! instructions there are), `net/core/filter.c` (what they do).
//!
//! Everything here is pure. A program comes from memory that anybody may have written: whatever lies in it,
//! the evaluation ends, and what is no valid program allows nothing.

/// Most instructions of one program (`BPF_MAXINSNS`).
pub const MOST_INSTRUCTIONS: usize = 4096;

/// A `struct sock_filter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Operation, addressing mode and width, as `linux/bpf_common.h` numbers them.
    pub code: u16,
    /// Instructions to skip when a condition holds.
    pub jump_true: u8,
    /// Instructions to skip when it does not hold.
    pub jump_false: u8,
    /// The operand `k`: a constant, an offset or the length of a jump.
    pub constant: u32,
}

impl Instruction {
    /// From the eight bytes of one, in memory order.
    pub fn from_word(word: u64) -> Instruction {
        let b = word.to_ne_bytes();
        Instruction {
            code: u16::from_ne_bytes([b[0], b[1]]),
            jump_true: b[2],
            jump_false: b[3],
            constant: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    /// The eight bytes of one, in memory order.
    pub fn word(self) -> u64 {
        let (c, k) = (self.code.to_ne_bytes(), self.constant.to_ne_bytes());
        u64::from_ne_bytes([
            c[0],
            c[1],
            self.jump_true,
            self.jump_false,
            k[0],
            k[1],
            k[2],
            k[3],
        ])
    }
}

/// A system call as a filter sees it (`struct seccomp_data`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Number of the system call in this architecture.
    pub number: i32,
    /// An `AUDIT_ARCH_…` of the kernel.
    pub architecture: u32,
    /// Address of the code that makes the call.
    pub instruction_pointer: u64,
    /// The call's six arguments.
    pub arguments: [u64; 6],
}

/// `sizeof(struct seccomp_data)`.
const CALL_BYTES: u32 = 64;

impl Call {
    /// A 32-bit word of it; the offset is a multiple of 4 below [`CALL_BYTES`].
    fn word(&self, offset: u32) -> Option<u32> {
        let half = |value: u64| {
            let is_first = offset.is_multiple_of(8);
            // The words of a number lie in memory order.
            match is_first == cfg!(target_endian = "little") {
                true => value as u32,
                false => (value >> 32) as u32,
            }
        };
        match offset {
            _ if !offset.is_multiple_of(4) => None,
            0 => Some(self.number as u32),
            4 => Some(self.architecture),
            8 | 12 => Some(half(self.instruction_pointer)),
            16..CALL_BYTES => {
                let at = (offset - 16) as usize / 8;
                self.arguments.get(at).copied().map(half)
            }
            _ => None,
        }
    }
}

/// The architecture of this process' own calls (`include/uapi/linux/audit.h`).
pub const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") {
    0xc000_00b7
} else {
    0xc000_003e
};

/// The part of a result that says what happens (`SECCOMP_RET_ACTION_FULL`).
const ACTION: u32 = 0xffff_0000;
/// `SECCOMP_RET_ALLOW`, and `SECCOMP_RET_LOG`, which allows and writes a line.
const ALLOW: u32 = 0x7fff_0000;
const LOG: u32 = 0x7ffc_0000;
/// `SECCOMP_RET_KILL_THREAD`: what a division by zero gives, and here a program that is none.
const KILL: u32 = 0;

/// Whether a filter with this result lets the call be made as if there were no filter.
pub fn is_allowed(result: u32) -> bool {
    matches!(result & ACTION, ALLOW | LOG)
}

/// Words of scratch memory (`BPF_MEMWORDS`).
const MEMORY_WORDS: usize = 16;

/// Classes and modes of instructions.
mod code {
    pub(super) const LD: u16 = 0x00;
    pub(super) const LDX: u16 = 0x01;
    pub(super) const ST: u16 = 0x02;
    pub(super) const STX: u16 = 0x03;
    pub(super) const ALU: u16 = 0x04;
    pub(super) const JMP: u16 = 0x05;
    pub(super) const RET: u16 = 0x06;
    pub(super) const MISC: u16 = 0x07;
    pub(super) const CLASS: u16 = 0x07;

    pub(super) const IMM: u16 = 0x00;
    pub(super) const ABS: u16 = 0x20;
    pub(super) const MEM: u16 = 0x60;
    pub(super) const LEN: u16 = 0x80;
    /// The operand is X instead of the constant.
    pub(super) const X: u16 = 0x08;
    /// `ret`: the result is A instead of the constant.
    pub(super) const A: u16 = 0x10;
    pub(super) const TXA: u16 = 0x80;
}

/// What a program says of a call. `instruction` gives those of the program by their index; the program has
/// `length`.
pub fn evaluate(
    length: usize,
    instruction: impl Fn(usize) -> Option<Instruction>,
    call: &Call,
) -> u32 {
    run(length.min(MOST_INSTRUCTIONS), instruction, call).unwrap_or(KILL)
}

fn run(
    length: usize,
    instruction: impl Fn(usize) -> Option<Instruction>,
    call: &Call,
) -> Option<u32> {
    let (mut a, mut x) = (0u32, 0u32);
    let mut memory = [0u32; MEMORY_WORDS];
    let mut at = 0usize;
    // Jumps lead forward only, so no more than `length` instructions run.
    while at < length {
        let i = instruction(at)?;
        at += 1;
        let k = i.constant;
        match i.code & code::CLASS {
            code::LD => {
                a = match i.code & !code::CLASS {
                    code::IMM => k,
                    code::ABS => call.word(k)?,
                    code::MEM => *memory.get(k as usize)?,
                    code::LEN => CALL_BYTES,
                    _ => return None,
                }
            }
            code::LDX => {
                x = match i.code & !code::CLASS {
                    code::IMM => k,
                    code::MEM => *memory.get(k as usize)?,
                    code::LEN => CALL_BYTES,
                    _ => return None,
                }
            }
            code::ST if i.code == code::ST => *memory.get_mut(k as usize)? = a,
            code::STX if i.code == code::STX => *memory.get_mut(k as usize)? = x,
            code::ALU => {
                let operand = if i.code & code::X != 0 { x } else { k };
                a = compute(i.code, a, operand)?;
            }
            code::JMP => {
                let operand = if i.code & code::X != 0 { x } else { k };
                at = at.checked_add(jump(i, a, operand)?)?;
            }
            code::RET => {
                return match i.code & !code::CLASS {
                    0 => Some(k),
                    code::A => Some(a),
                    _ => None,
                };
            }
            code::MISC => match i.code & !code::CLASS {
                0 => x = a,
                code::TXA => a = x,
                _ => return None,
            },
            _ => return None,
        }
    }
    None
}

/// `None`: no such instruction, or a division by zero, which ends the program.
fn compute(code: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match code & !code::CLASS & !code::X {
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        0x60 => a.wrapping_shl(operand),
        0x70 => a.wrapping_shr(operand),
        0x80 if code & code::X == 0 => a.wrapping_neg(),
        0xa0 => a ^ operand,
        _ => return None,
    })
}

/// How many instructions a jump passes over.
fn jump(i: Instruction, a: u32, operand: u32) -> Option<usize> {
    let is_true = match i.code & !code::CLASS & !code::X {
        0x00 if i.code & code::X == 0 => return usize::try_from(i.constant).ok(),
        0x10 => a == operand,
        0x20 => a > operand,
        0x30 => a >= operand,
        0x40 => a & operand != 0,
        _ => return None,
    };
    Some(usize::from(if is_true {
        i.jump_true
    } else {
        i.jump_false
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn op(code: u16, jump_true: u8, jump_false: u8, constant: u32) -> Instruction {
        Instruction {
            code,
            jump_true,
            jump_false,
            constant,
        }
    }

    fn result(program: &[Instruction], call: &Call) -> u32 {
        evaluate(program.len(), |i| program.get(i).copied(), call)
    }

    fn call(number: i32) -> Call {
        Call {
            number,
            architecture: ARCHITECTURE,
            instruction_pointer: 0x1122_3344_5566_7788,
            arguments: [1, 0xaabb_ccdd_0000_0002, 3, 4, 5, u64::MAX],
        }
    }

    const RET_A: Instruction = Instruction {
        code: 0x16,
        jump_true: 0,
        jump_false: 0,
        constant: 0,
    };

    #[test]
    fn words_of_the_call_are_where_the_kernel_has_them() {
        let expected = [
            7,
            ARCHITECTURE,
            0x5566_7788,
            0x1122_3344,
            1,
            0,
            2,
            0xaabb_ccdd,
            3,
            0,
            4,
            0,
            5,
            0,
            u32::MAX,
            u32::MAX,
        ];
        for (i, expected) in expected.into_iter().enumerate() {
            let program = [op(0x20, 0, 0, i as u32 * 4), RET_A];
            assert_eq!(result(&program, &call(7)), expected, "word {i}");
        }
        for wrong in [1, 2, 62, 64, 68, u32::MAX] {
            assert_eq!(result(&[op(0x20, 0, 0, wrong), RET_A], &call(7)), KILL);
        }
    }

    #[test]
    fn numbers_are_computed_as_in_the_kernel() {
        // A = 12, X = 5, then the instruction.
        let with = |code, k| {
            let program = [
                op(0x00, 0, 0, 12),
                op(0x01, 0, 0, 5),
                op(code, 0, 0, k),
                RET_A,
            ];
            result(&program, &call(0))
        };
        for (code, constant, expected) in [
            (0x04, u32::MAX, 11),
            (0x0c, 0, 17),
            (0x14, 13, u32::MAX),
            (0x1c, 0, 7),
            (0x24, 3, 36),
            (0x2c, 0, 60),
            (0x34, 5, 2),
            (0x3c, 0, 2),
            (0x34, 0, KILL),
            (0x44, 3, 15),
            (0x4c, 0, 13),
            (0x54, 4, 4),
            (0x5c, 0, 4),
            (0x64, 2, 48),
            (0x6c, 0, 384),
            (0x74, 2, 3),
            (0x7c, 0, 0),
            (0x84, 0, 12u32.wrapping_neg()),
            (0xa4, 5, 9),
            (0xac, 0, 9),
            // `mod`, which seccomp does not know, and loads from a packet.
            (0x94, 5, KILL),
            (0x30, 0, KILL),
            (0x40, 0, KILL),
            (0x80, 0, 64),
            (0x87, 0, 5),
        ] {
            assert_eq!(with(code, constant), expected, "{code:#x}");
        }
    }

    #[test]
    fn jumps_and_memory() {
        let number = op(0x20, 0, 0, 0);
        let (yes, no) = (op(0x06, 0, 0, ALLOW), op(0x06, 0, 0, 0x0005_0001));
        for (code, number_in, expected) in [
            (0x15, 9, true),
            (0x15, 8, false),
            (0x25, 10, true),
            (0x25, 9, false),
            (0x35, 9, true),
            (0x35, 8, false),
            (0x45, 1, true),
            (0x45, 6, false),
        ] {
            let program = [number, op(code, 1, 0, 9), no, yes];
            let allowed = is_allowed(result(&program, &call(number_in)));
            assert_eq!(allowed, expected, "{code:#x} {number_in}");
        }
        let store = [
            number,
            op(0x02, 0, 0, 3),
            op(0x07, 0, 0, 0),
            op(0x03, 0, 0, 15),
            op(0x60, 0, 0, 15),
            op(0x61, 0, 0, 3),
            op(0x0c, 0, 0, 0),
            op(0x05, 0, 0, 1),
            no,
            RET_A,
        ];
        assert_eq!(result(&store, &call(21)), 42);
        assert_eq!(result(&[op(0x02, 0, 0, 16), yes], &call(1)), KILL);
        // Past the end, and an empty program.
        assert_eq!(result(&[op(0x05, 0, 0, u32::MAX), yes], &call(1)), KILL);
        assert_eq!(result(&[number], &call(1)), KILL);
        assert_eq!(result(&[], &call(1)), KILL);
    }

    #[test]
    fn only_allow_and_log_let_a_call_pass() {
        for (result, expected) in [
            (ALLOW, true),
            (ALLOW | 7, true),
            (LOG, true),
            (0x7ff0_0000, false),
            (0x7fc0_0000, false),
            (0x0005_0000, false),
            (0x0003_0000, false),
            (KILL, false),
            (0x8000_0000, false),
            (0x1234_0000, false),
        ] {
            assert_eq!(is_allowed(result), expected, "{result:#x}");
        }
    }

    /// Whatever lies in a program, it ends, without a panic.
    #[test]
    fn arbitrary_programs_end() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let length = random() % 40;
            let program: Vec<_> = (0..length)
                .map(|_| {
                    let mut i = Instruction::from_word(random());
                    // Mostly codes that there are, with constants in range now and then.
                    if random() % 4 != 0 {
                        i.code &= 0xbf;
                        i.jump_true &= 7;
                        i.jump_false &= 7;
                        i.constant %= 72;
                    }
                    i
                })
                .collect();
            for i in &program {
                assert_eq!(Instruction::from_word(i.word()), *i);
            }
            result(&program, &call(random() as i32));
        }
    }
}
