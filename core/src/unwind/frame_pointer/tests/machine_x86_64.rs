//! The same for x86-64, over functions that keep frame pointers as C compilers, V8 and .NET do, leaf
//! functions without any, and entries of a table of imports.

use super::{Random, STACK_HIGH, STACK_LOW, STACK_WORDS, State};
use crate::unwind::Registers;
use std::collections::HashMap;
use std::vec::Vec;

const CODE: u64 = 0x40_0000;
const FUNCTION_BYTES: u64 = 0x400;
const FUNCTIONS: u64 = 10;
const START: u64 = CODE - 0x1000;

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// An instruction of so many bytes that touches neither rsp nor rbp.
    Other(&'static [u8]),
    PushRbp,
    /// Another register.
    Push,
    Pop,
    PopRbp,
    SetRbp,
    /// To so much above the stack pointer.
    SetRbpAbove(u8),
    /// The stack pointer becomes the frame pointer.
    SetRsp,
    /// It becomes what lies so much below the frame pointer.
    SetRspBelow(u8),
    SubRsp(u8),
    AddRsp(u8),
    Leave,
    Call(u64),
    /// Over the next instruction, taken or not by chance.
    Over,
    Import(u64),
    Return,
}

fn encode(op: Op, at: u64) -> Vec<u8> {
    match op {
        Op::Other(bytes) => bytes.to_vec(),
        Op::PushRbp => std::vec![0x55],
        Op::Push => std::vec![0x53],
        Op::Pop => std::vec![0x5b],
        Op::PopRbp => std::vec![0x5d],
        Op::SetRbp => match at & 1 {
            0 => std::vec![0x48, 0x89, 0xe5],
            _ => std::vec![0x48, 0x8b, 0xec],
        },
        Op::SetRbpAbove(n) => std::vec![0x48, 0x8d, 0x6c, 0x24, n],
        Op::SetRsp => match at & 1 {
            0 => std::vec![0x48, 0x89, 0xec],
            _ => std::vec![0x48, 0x8b, 0xe5],
        },
        Op::SetRspBelow(n) => std::vec![0x48, 0x8d, 0x65, n.wrapping_neg()],
        Op::SubRsp(n) => std::vec![0x48, 0x83, 0xec, n],
        Op::AddRsp(n) => std::vec![0x48, 0x83, 0xc4, n],
        Op::Leave => std::vec![0xc9],
        Op::Call(target) => {
            let to = (target as i64 - at as i64 - 5) as i32;
            [&[0xe8][..], &to.to_le_bytes()].concat()
        }
        Op::Over => std::vec![0x74, 0x01],
        Op::Import(_) => std::vec![0xff, 0x25, 0x10, 0x20, 0x00, 0x00],
        Op::Return => std::vec![0xc3],
    }
}

const ENDBR64: Op = Op::Other(&[0xf3, 0x0f, 0x1e, 0xfa]);
/// `nop`; `mov rax, rbx`; `mov eax, 0x5590c355`, whose bytes look like others; `lea rax, [rsp + 8]`.
const OTHERS: [Op; 4] = [
    Op::Other(&[0x90]),
    Op::Other(&[0x48, 0x89, 0xd8]),
    Op::Other(&[0xb8, 0x55, 0xc3, 0x90, 0x55]),
    Op::Other(&[0x48, 0x8d, 0x44, 0x24, 0x08]),
];

fn function(random: &mut Random, index: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    if random.one_in(2) {
        ops.push(ENDBR64);
    }
    if index + 1 < FUNCTIONS && random.one_in(6) {
        let callee = index + 1 + random.below(FUNCTIONS - index - 1);
        ops.push(Op::Import(CODE + callee * FUNCTION_BYTES));
        return ops;
    }
    let filler = |random: &mut Random, ops: &mut Vec<Op>| {
        for _ in 0..random.below(3) {
            if random.one_in(4) {
                ops.extend([Op::Over, OTHERS[0]]);
            }
            ops.push(OTHERS[random.below(4) as usize]);
        }
    };
    let saved = random.below(3);
    let room = 8 * random.below(8) as u8;
    let has_frame = index + 1 < FUNCTIONS && !random.one_in(6);
    // V8 looks first whether the code still holds.
    filler(random, &mut ops);
    let is_set_late = random.one_in(3);
    if has_frame {
        ops.push(Op::PushRbp);
        if !is_set_late {
            ops.push(Op::SetRbp);
        }
    }
    ops.extend((0..saved).map(|_| Op::Push));
    if room > 0 {
        ops.push(Op::SubRsp(room));
    }
    let below = room + 8 * saved as u8;
    if has_frame && is_set_late {
        ops.push(Op::SetRbpAbove(below));
    }
    for _ in 0..1 + random.below(3) {
        filler(random, &mut ops);
        if has_frame && index + 1 < FUNCTIONS {
            let callee = index + 1 + random.below(FUNCTIONS - index - 1);
            ops.push(Op::Call(CODE + callee * FUNCTION_BYTES));
        }
    }
    filler(random, &mut ops);
    match random.below(3) {
        0 if has_frame => ops.push(Op::Leave),
        1 if has_frame => {
            ops.extend([Op::SetRsp, Op::PopRbp]);
            filler(random, &mut ops);
        }
        way => {
            if has_frame && way == 2 {
                ops.push(Op::SetRspBelow(8 * saved as u8));
            } else if room > 0 {
                ops.push(Op::AddRsp(room));
            }
            ops.extend((0..saved).map(|_| Op::Pop));
            if has_frame {
                ops.push(Op::PopRbp);
            }
        }
    }
    ops.push(Op::Return);
    ops
}

/// Runs a program, and shows each state that it comes to.
pub(super) fn run(seed: u64, mut look: impl FnMut(&State, Op)) {
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut program = HashMap::new();
    let mut bytes = HashMap::new();
    for index in 0..FUNCTIONS {
        let mut at = CODE + index * FUNCTION_BYTES;
        for op in function(&mut random, index) {
            let encoded = encode(op, at);
            program.insert(at, (op, at + encoded.len() as u64));
            bytes.extend((at..).zip(encoded.iter().copied()));
            at += encoded.len() as u64;
        }
    }
    let mut code: HashMap<u64, u64> = HashMap::new();
    // What lies in front can be read, too.
    for at in (CODE - 16..CODE + FUNCTIONS * FUNCTION_BYTES).step_by(8) {
        let word: [u8; 8] =
            core::array::from_fn(|i| bytes.get(&(at + i as u64)).copied().unwrap_or(0xcc));
        code.insert(at, u64::from_le_bytes(word));
    }
    let mut state = State {
        registers: Registers {
            pc: CODE,
            sp: STACK_HIGH - 64,
            ..Registers::default()
        },
        stack: (0..STACK_WORDS).map(|_| random.next()).collect(),
        code,
        calls: std::vec![START],
    };
    *state.word(STACK_HIGH - 64) = START;
    for _ in 0..600 {
        let r = state.registers;
        if r.pc == START || r.sp < STACK_LOW + 1024 {
            break;
        }
        let (op, behind) = program[&r.pc];
        look(&state, op);
        let mut next = Registers { pc: behind, ..r };
        let mut push = |state: &mut State, value| {
            next.sp = r.sp - 8;
            *state.word(r.sp - 8) = value;
        };
        match op {
            Op::Other(_) => {}
            Op::PushRbp => push(&mut state, r.fp),
            Op::Push => push(&mut state, 0x1234_5678),
            Op::Call(target) => {
                push(&mut state, behind);
                state.calls.push(behind);
                next.pc = target;
            }
            Op::Pop => next.sp = r.sp + 8,
            Op::PopRbp => {
                next.fp = *state.word(r.sp);
                next.sp = r.sp + 8;
            }
            Op::SetRbp => next.fp = r.sp,
            Op::SetRbpAbove(n) => next.fp = r.sp + u64::from(n),
            Op::SetRsp => next.sp = r.fp,
            Op::SetRspBelow(n) => next.sp = r.fp - u64::from(n),
            Op::SubRsp(n) => next.sp = r.sp - u64::from(n),
            Op::AddRsp(n) => next.sp = r.sp + u64::from(n),
            Op::Leave => {
                next.fp = *state.word(r.fp);
                next.sp = r.fp + 8;
            }
            Op::Over => {
                if random.one_in(2) {
                    next.pc = behind + 1;
                }
            }
            Op::Import(target) => next.pc = target,
            Op::Return => {
                next.pc = *state.word(r.sp);
                next.sp = r.sp + 8;
                assert_eq!(state.calls.pop(), Some(next.pc), "the machine is wrong");
            }
        }
        state.registers = next;
    }
}
