//! Walks at each instruction of made-up programs, which a machine of the tests executes and keeps the truth
//! about.

use super::*;
use std::collections::HashMap;
use std::vec::Vec;

mod machine_aarch64;
mod machine_x86_64;
mod swift;

/// A generator of numbers (xorshift64).
pub(super) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Elsewhere an interpreter or an emulator runs this.
const PROGRAMS: u64 = match () {
    _ if cfg!(miri) => 3,
    _ if cfg!(target_arch = "x86_64") => 400,
    _ => 20,
};
const STACK_WORDS: usize = 4096;
/// Inside of 39 bits.
const STACK_LOW: u64 = 0x70_1234_0000;
const STACK_HIGH: u64 = STACK_LOW + 8 * STACK_WORDS as u64;

/// Where a machine is, what it has in memory, and what is true.
pub(super) struct State {
    registers: Registers,
    stack: Vec<u64>,
    /// Words of code.
    code: HashMap<u64, u64>,
    /// Return addresses of the calls under way, the innermost last.
    calls: Vec<u64>,
}

impl State {
    fn word(&mut self, address: u64) -> &mut u64 {
        assert!(address.is_multiple_of(8));
        &mut self.stack[((address - STACK_LOW) / 8) as usize]
    }

    /// Walks from here, and sees to it that only the live part of the stack and code are read.
    fn walk<A: Architecture>(
        &self,
        walker: &mut FramePointerWalker,
        mask: CodeMask,
        limit: usize,
    ) -> (Vec<u64>, usize, WalkEnd) {
        let sp = self.registers.sp;
        let mut read = |address: u64| {
            assert!(address.is_multiple_of(8));
            if (STACK_LOW..STACK_HIGH).contains(&address) {
                assert!(
                    address >= sp & !7,
                    "{address:#x} lies below the stack pointer"
                );
                return Some(self.stack[((address - STACK_LOW) / 8) as usize]);
            }
            self.code.get(&address).copied()
        };
        let from = Start {
            registers: &self.registers,
            exact: true,
            high: STACK_HIGH,
            skip: (0, 0),
        };
        let mut out = Frames::new(limit);
        let end = walker.walk_stack::<A>(&from, STACK_LOW, mask, &mut read, &mut out);
        (out.addresses().to_vec(), out.same_outermost, end)
    }

    fn truth(&self) -> Vec<u64> {
        let mut truth = std::vec![self.registers.pc];
        truth.extend(self.calls.iter().rev());
        truth
    }
}

/// A walker that sees each state of a run, and what it has found.
struct Checked {
    walker: std::boxed::Box<FramePointerWalker>,
    last: Vec<u64>,
    reused: usize,
    walks: usize,
    /// Walks come at one of so many instructions: calls return and others are made in between.
    one_in: u64,
    random: Random,
}

impl Checked {
    fn new(seed: u64) -> Checked {
        Checked {
            // SAFETY: all-zero is valid.
            walker: unsafe { crate::unwind::walk::zeroed() },
            last: Vec::new(),
            reused: 0,
            walks: 0,
            one_in: [1, 3, 10][seed as usize % 3],
            random: Random(seed),
        }
    }

    fn check<A: Architecture>(
        &mut self,
        state: &State,
        mask: CodeMask,
        what: &dyn core::fmt::Debug,
    ) {
        if !self.random.one_in(self.one_in) {
            return;
        }
        let (found, same, end) = state.walk::<A>(&mut self.walker, mask, MAX_DEPTH);
        assert_eq!(found, state.truth(), "at {what:?}");
        assert_eq!(end, WalkEnd::Root);
        assert!(same <= found.len() && same <= self.last.len());
        assert_eq!(
            found[found.len() - same..],
            self.last[self.last.len() - same..],
            "frames that are said to be those of before"
        );
        self.reused += same;
        self.walks += 1;
        self.last = found;
    }
}

#[test]
fn each_instruction_of_arm64_programs() {
    let (mut reused, mut walks) = (0, 0);
    for seed in 1..=PROGRAMS {
        let mut checked = Checked::new(seed);
        machine_aarch64::run(seed, |state, mask, op| {
            checked.check::<Aarch64>(state, mask, &op);
        });
        reused += checked.reused;
        walks += checked.walks;
    }
    assert!(
        reused > 2 * walks,
        "{reused} frames of {walks} walks were reused"
    );
}

#[test]
fn each_instruction_of_x86_64_programs() {
    let (mut reused, mut walks) = (0, 0);
    for seed in 1..=PROGRAMS {
        let mut checked = Checked::new(seed);
        machine_x86_64::run(seed, |state, op| {
            checked.check::<X86_64>(state, CodeMask(u64::MAX), &op);
        });
        reused += checked.reused;
        walks += checked.walks;
    }
    assert!(
        reused > 2 * walks,
        "{reused} frames of {walks} walks were reused"
    );
}

/// Words of all kinds: the walk reads above the stack pointer only, and ends.
#[test]
fn garbage_ends_the_walk() {
    let mut random = Random(0x5eed);
    let mut walker = FramePointerWalker::new();
    let mut ends = HashMap::new();
    for _ in 0..if cfg!(miri) { 50 } else { 20_000 } {
        let mut state = State {
            registers: Registers::default(),
            stack: std::vec![0; STACK_WORDS],
            code: HashMap::new(),
            calls: Vec::new(),
        };
        let sp = STACK_LOW + 8 * random.below(STACK_WORDS as u64);
        let words = random.below(200) as usize;
        for place in state.stack.iter_mut().rev().take(words) {
            *place = match random.below(6) {
                0 => random.next(),
                1 => 0,
                2 => STACK_HIGH - random.below(2048),
                _ => STACK_HIGH - 8 * random.below(200),
            };
        }
        state.registers = Registers {
            pc: random.next(),
            sp,
            fp: match random.below(4) {
                0 => random.next(),
                1 => STACK_HIGH - random.below(64),
                _ => STACK_HIGH - 8 * random.below(200),
            },
            lr: random.next(),
            saved: [0; 5],
            is_wild: random.one_in(4),
        };
        let mask = CodeMask::of_width(39 + random.below(14) as u32);
        let limit = 1 + random.below(40) as usize;
        let (found, same, end) = state.walk::<Aarch64>(&mut walker, mask, limit);
        assert!(found.len() <= limit && same <= found.len());
        assert!(found[1..].iter().all(|address| Aarch64::is_code(*address)));
        *ends.entry(std::format!("{end:?}")).or_insert(0) += 1;
        state.walk::<X86_64>(&mut walker, CodeMask(u64::MAX), limit);
    }
    assert!(ends.len() >= 2, "{ends:?}");
}

fn walk(words: &[u64], fp: u64, limit: usize) -> (Vec<u64>, WalkEnd) {
    // SAFETY: `words` outlives the bounds.
    let bounds = unsafe {
        let view = core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8);
        StackBounds::of_copy(0x7000, view)
    };
    let mut frames = Frames::new(limit);
    let registers = Registers {
        pc: 0x1000,
        sp: 0x7000,
        fp,
        ..Registers::default()
    };
    let end = FramePointerWalker::new().walk(&registers, &bounds, false, &mut frames);
    (frames.addresses().to_vec(), end)
}

#[test]
fn a_chain_is_followed_to_its_root() {
    let words = [0x7010, 0x2000, 0x7020, 0x3000, 0, 0x4000];
    let all = std::vec![0x1000, 0x2000, 0x3000, 0x4000];
    assert_eq!(walk(&words, 0x7000, 10), (all.clone(), WalkEnd::Root));
    assert_eq!(walk(&words, 0x7000, 2), (all[..2].to_vec(), WalkEnd::Depth));
    // A record without a return address is the root's, too.
    let words = [0x7010, 0x2000, 0x7020, 0];
    assert_eq!(walk(&words, 0x7000, 9), (all[..2].to_vec(), WalkEnd::Root));
}

#[test]
fn loops_and_wild_pointers_end_the_walk() {
    let first = (std::vec![0x1000, 0x2000], WalkEnd::Unknown);
    assert_eq!(walk(&[0x7000, 0x2000, 0, 0], 0x7000, 10), first);
    assert_eq!(walk(&[0xdead_beef_0000, 0x2000], 0x7000, 10), first);
    let none = (std::vec![0x1000], WalkEnd::Unknown);
    assert_eq!(walk(&[0x7010, 0x2000], 0x7001, 10), none);
    assert_eq!(walk(&[0x7010, 0x2000], 0x7008, 10), none);
    assert_eq!(walk(&[0x7010, 1], 0x7000, 10), none);
}

#[test]
fn own_frames_at_the_leaf_end_are_left_out() {
    let stack = [0x7010, 0x2004, 0x7020, 0x3000, 0x7030, 0x2008, 0, 0x4000];
    let mut walker = FramePointerWalker::new();
    for round in 0..3 {
        let registers = Registers {
            pc: 0x2000,
            sp: 0x7000,
            fp: 0x7000,
            ..Registers::default()
        };
        let from = Start {
            registers: &registers,
            exact: false,
            high: 0x7040,
            skip: (0x2000, 0x2010),
        };
        let mut read = |address: u64| stack.get(((address - 0x7000) / 8) as usize).copied();
        let mut out = Frames::new(9);
        let mask = CodeMask::UNSIGNED;
        let end = walker.walk_stack::<Aarch64>(&from, 0x7000, mask, &mut read, &mut out);
        assert_eq!(end, WalkEnd::Root);
        assert_eq!(out.addresses(), [0x3000, 0x2008, 0x4000]);
        assert_eq!(out.same_outermost, if round > 0 { 3 } else { 0 });
    }
}

/// Widths of kernels: 39 bits (Android), 47 (Darwin), 48 (Linux' default), 52.
#[test]
fn signatures_go_and_addresses_stay() {
    let mut random = Random(7);
    for width in [36, 39, 42, 47, 48, 52] {
        let mask = CodeMask::of_width(width);
        for _ in 0..1000 {
            let address = random.next() >> (64 - width);
            // Bit 55 is not signed over, and the signature fills all others above the width.
            let signed = address | random.next() << width & !(1 << 55);
            assert_eq!(mask.strip(signed), address);
            let upper = !0 << width | address;
            assert_eq!(
                mask.strip(upper & !(random.next() << width) | 1 << 55),
                upper
            );
        }
        assert_eq!(mask.strip(0), 0);
    }
}

#[cfg(target_arch = "aarch64")]
#[test]
fn the_processor_says_how_wide_addresses_are() {
    let mask = CodeMask::native();
    let here = the_processor_says_how_wide_addresses_are as *const () as u64;
    assert_eq!(mask.strip(here), here);
    let stack = &raw const mask as u64;
    assert_eq!(mask.strip(stack), stack);
}
