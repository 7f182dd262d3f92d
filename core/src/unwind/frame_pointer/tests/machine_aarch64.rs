//! A machine that executes the few instructions of arm64 that a frame is made of, over functions of all
//! shapes that compilers make. It knows nothing of what the walker knows: instructions are a type, and only
//! encoded for the walker.

use super::{CodeMask, Random, STACK_HIGH, STACK_LOW, STACK_WORDS, State};
use crate::unwind::Registers;
use std::collections::HashMap;
use std::vec::Vec;

const CODE: u64 = 0x40_0000;
const FUNCTION_BYTES: u64 = 0x400;
const FUNCTIONS: u64 = 12;
/// What the first function returns to.
const START: u64 = CODE - 0x1000;

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Nop,
    /// Something with other registers.
    Other(u32),
    PacIaSp,
    AutIaSp,
    /// STP X29, X30, [SP, #-n]!
    Push(u64),
    /// STP X29, X30, [SP, #n]
    Store(u64),
    /// LDP X29, X30, [SP], #n
    Pop(u64),
    /// LDP X29, X30, [SP, #n]
    Load(u64),
    SubSp(u64),
    AddSp(u64),
    /// ADD X29, SP, #n
    SetFp(u64),
    Call(u64),
    /// BLR X8
    CallRegister(u64),
    Jump(u64),
    /// To a place, taken or not by chance. Not taken where it leads to a trap.
    Maybe(u64, bool),
    /// BR X9, a jump through a table, to here
    Table(u64),
    /// BR X16, behind the load of an imported function's address
    Import(u64),
    Return,
    RetAa,
    Trap,
}

fn encode(op: Op, at: u64) -> u32 {
    const PAIR: u32 = 30 << 10 | 31 << 5 | 29;
    let words = |n: u64| (n / 8) as u32;
    let to = |target: u64| (target.wrapping_sub(at) / 4) as u32;
    let near = |target: u64| ((target as i64 - at as i64) / 4) as u32;
    match op {
        Op::Nop => 0xd503_201f,
        Op::Other(other) => other,
        Op::PacIaSp => 0xd503_233f,
        Op::AutIaSp => 0xd503_23bf,
        Op::Push(n) => 0xa980_0000 | (words(n).wrapping_neg() & 0x7f) << 15 | PAIR,
        Op::Store(n) => 0xa900_0000 | words(n) << 15 | PAIR,
        Op::Pop(n) => 0xa8c0_0000 | words(n) << 15 | PAIR,
        Op::Load(n) => 0xa940_0000 | words(n) << 15 | PAIR,
        Op::SubSp(n) => 0xd100_03ff | (n as u32) << 10,
        Op::AddSp(n) => 0x9100_03ff | (n as u32) << 10,
        Op::SetFp(n) => 0x9100_03fd | (n as u32) << 10,
        Op::Call(target) => 0x9400_0000 | near(target) & 0x03ff_ffff,
        Op::CallRegister(_) => 0xd63f_0100,
        Op::Jump(target) => 0x1400_0000 | near(target) & 0x03ff_ffff,
        // CBZ X0; TBNZ W0, #3; B.NE
        Op::Maybe(target, _) => match at >> 2 & 3 {
            0 => 0xb400_0000 | (near(target) & 0x7_ffff) << 5,
            1 => 0x3718_0000 | (near(target) & 0x3fff) << 5,
            _ => 0x5400_0001 | (near(target) & 0x7_ffff) << 5,
        },
        Op::Table(target) => {
            assert!(to(target) > 0);
            0xd61f_0120
        }
        Op::Import(_) => 0xd61f_0200,
        Op::Return => 0xd65f_03c0,
        Op::RetAa => 0xd65f_0bff,
        Op::Trap => 0xd420_0020,
    }
}

struct Writer<'a> {
    random: &'a mut Random,
    at: u64,
    ops: Vec<Op>,
    /// Where a branch to the trap at the end has to be put.
    traps: Vec<usize>,
}

impl Writer<'_> {
    fn here(&self) -> u64 {
        self.at + 4 * self.ops.len() as u64
    }

    fn filler(&mut self, most: u64) {
        for _ in 0..self.random.below(most + 1) {
            // NOP; STP X19, X20, [SP, #16]; MOV X0, X1; LDR X19, [SP, #8]; ADD X28, SP, #16; SVC #0; STR X29,
            // [X0].
            const OTHERS: [u32; 6] = [
                0xa901_53f3,
                0xaa01_03e0,
                0xf940_07f3,
                0x9100_43fc,
                0xd400_0001,
                0xf900_001d,
            ];
            let op = match self.random.below(12) {
                i @ 0..6 => Op::Other(OTHERS[i as usize]),
                6 => {
                    // Over the next one.
                    let over = self.here() + 8;
                    self.ops.push(Op::Maybe(over, true));
                    Op::Nop
                }
                7 => {
                    self.traps.push(self.ops.len());
                    Op::Maybe(0, false)
                }
                _ => Op::Nop,
            };
            self.ops.push(op);
        }
    }

    /// A body with calls.
    fn body(&mut self, index: u64) {
        for _ in 0..1 + self.random.below(3) {
            self.filler(3);
            if index + 1 < FUNCTIONS {
                let callee = index + self.random.below(FUNCTIONS - index);
                let target = CODE + callee * FUNCTION_BYTES;
                let op = match self.random.one_in(4) {
                    true => Op::CallRegister(target),
                    false => Op::Call(target),
                };
                // Calls of itself end some time.
                if callee == index {
                    let over = self.here() + 8;
                    self.ops.push(Op::Maybe(over, true));
                }
                self.ops.push(op);
            }
            if self.random.one_in(6) {
                // A switch: the way on is found by no constant, but the other branch shows where it comes to.
                let behind = self.here() + 8;
                self.ops.push(Op::Maybe(behind, true));
                self.ops.push(Op::Table(behind));
            }
        }
        self.filler(3);
    }

    fn tail(&mut self, index: u64) -> Option<u64> {
        let has_callee = index + 1 < FUNCTIONS && self.random.one_in(4);
        has_callee.then(|| {
            let callee = index + 1 + self.random.below(FUNCTIONS - index - 1);
            CODE + callee * FUNCTION_BYTES
        })
    }

    fn framed(&mut self, index: u64) {
        let signs = self.random.one_in(2);
        let frame = 16 * (2 + self.random.below(6));
        let split = self.random.one_in(2);
        let inside = (8 * self.random.below(frame / 8 - 1)) & !15;
        if signs {
            self.ops.push(Op::PacIaSp);
        }
        if split {
            self.ops.push(Op::SubSp(frame));
            self.filler(1);
            self.ops.push(Op::Store(inside));
            self.filler(1);
            self.ops.push(Op::SetFp(inside));
        } else {
            self.ops.push(Op::Push(frame));
            self.filler(1);
            self.ops.push(Op::SetFp(0));
        }
        self.body(index);
        if split {
            self.ops.push(Op::Load(inside));
            self.filler(1);
            self.ops.push(Op::AddSp(frame));
        } else {
            self.ops.push(Op::Pop(frame));
        }
        let tail = self.tail(index);
        match (signs, tail) {
            (true, None) if self.random.one_in(2) => {
                self.ops.push(Op::RetAa);
                return;
            }
            (true, _) => self.ops.push(Op::AutIaSp),
            _ => {}
        }
        self.end(tail);
    }

    fn end(&mut self, tail: Option<u64>) {
        match tail {
            Some(target) if self.random.one_in(2) => {
                // LDR X16, [X16, #8]
                self.ops.push(Op::Other(0xf940_0610));
                self.ops.push(Op::Import(target));
            }
            Some(target) => self.ops.push(Op::Jump(target)),
            None => self.ops.push(Op::Return),
        }
    }

    fn function(&mut self, index: u64) {
        match self.random.below(6) {
            0 => {
                self.filler(6);
                let tail = self.tail(index);
                self.end(tail);
            }
            1 => {
                // The frame is made only where it is needed.
                self.filler(2);
                let branch = self.ops.len();
                self.ops.push(Op::Nop);
                self.framed(index);
                self.ops[branch] = Op::Maybe(self.here(), true);
                self.filler(2);
                self.ops.push(Op::Return);
            }
            _ => self.framed(index),
        }
        let trap = self.here();
        self.ops.push(Op::Trap);
        for place in core::mem::take(&mut self.traps) {
            self.ops[place] = Op::Maybe(trap, false);
        }
        assert!(
            self.here() < self.at + FUNCTION_BYTES,
            "the function is too long"
        );
    }
}

/// The bits of a signature, which depend on both.
fn signature(address: u64, sp: u64, width: u32) -> u64 {
    let hash = (address ^ sp.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Never none.
    (hash | 1 << width) & (u64::MAX << width) & 0x007f_ffff_ffff_ffff
}

/// Runs a program, and shows each state that it comes to.
pub(super) fn run(seed: u64, mut look: impl FnMut(&State, CodeMask, Op)) {
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let width = [39, 47, 48, 52][random.below(4) as usize];
    let mut program = HashMap::new();
    let mut code = HashMap::new();
    for index in 0..FUNCTIONS {
        let mut writer = Writer {
            random: &mut random,
            at: CODE + index * FUNCTION_BYTES,
            ops: Vec::new(),
            traps: Vec::new(),
        };
        writer.function(index);
        let (at, ops) = (writer.at, writer.ops);
        for (i, op) in ops.into_iter().enumerate() {
            let at = at + 4 * i as u64;
            program.insert(at, op);
            let word: &mut u64 = code.entry(at & !7).or_default();
            *word |= u64::from(encode(op, at)) << (8 * (at & 4));
        }
    }
    let mut state = State {
        registers: Registers {
            pc: CODE,
            sp: STACK_HIGH - 64,
            fp: 0,
            lr: START,
            ..Registers::default()
        },
        stack: (0..STACK_WORDS).map(|_| random.next()).collect(),
        code,
        calls: std::vec![START],
    };
    for _ in 0..600 {
        let r = state.registers;
        if r.pc == START || r.sp < STACK_LOW + 1024 {
            break;
        }
        let op = program[&r.pc];
        look(&state, CodeMask::of_width(width), op);
        let mut next = Registers { pc: r.pc + 4, ..r };
        match op {
            Op::Nop | Op::Other(_) => {}
            Op::PacIaSp => next.lr = r.lr | signature(r.lr, r.sp, width),
            Op::AutIaSp => next.lr = authenticated(r.lr, r.sp, width),
            Op::Push(n) => {
                next.sp = r.sp - n;
                *state.word(next.sp) = r.fp;
                *state.word(next.sp + 8) = r.lr;
            }
            Op::Store(n) => {
                *state.word(r.sp + n) = r.fp;
                *state.word(r.sp + n + 8) = r.lr;
            }
            Op::Pop(n) => {
                next.fp = *state.word(r.sp);
                next.lr = *state.word(r.sp + 8);
                next.sp = r.sp + n;
            }
            Op::Load(n) => {
                next.fp = *state.word(r.sp + n);
                next.lr = *state.word(r.sp + n + 8);
            }
            Op::SubSp(n) => next.sp = r.sp - n,
            Op::AddSp(n) => next.sp = r.sp + n,
            Op::SetFp(n) => next.fp = r.sp + n,
            Op::Call(target) | Op::CallRegister(target) => {
                next.lr = r.pc + 4;
                state.calls.push(next.lr);
                next.pc = target;
            }
            Op::Jump(target) | Op::Table(target) | Op::Import(target) => next.pc = target,
            Op::Maybe(target, may) => {
                if may && random.one_in(2) {
                    next.pc = target;
                }
            }
            Op::Return | Op::RetAa => {
                next.pc = match op {
                    Op::RetAa => authenticated(r.lr, r.sp, width),
                    _ => r.lr,
                };
                assert_eq!(state.calls.pop(), Some(next.pc), "the machine is wrong");
            }
            Op::Trap => unreachable!(),
        }
        state.registers = next;
    }
}

fn authenticated(signed: u64, sp: u64, width: u32) -> u64 {
    let address = signed & !(u64::MAX << width);
    assert_eq!(
        signed,
        address | signature(address, sp, width),
        "the machine is wrong"
    );
    address
}
