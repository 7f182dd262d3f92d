//! Walks that begin anywhere, over stacks full of anything: no fault, no hang, nothing invented
//! beyond the limit.

use std::time::{Duration, Instant};

use stackbeat_core::native::own_modules;
use stackbeat_core::native::own_walk::NativeWalker;
use stackbeat_core::unwind::full::AllRegisters;
use stackbeat_core::unwind::rule::{Kind, Rule};
use stackbeat_core::unwind::walk::{ReadStack, Rules, Stack};
use stackbeat_core::unwind::{Registers, StackBounds, Start, WalkEnd};

/// A small generator of numbers (xorshift64*), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The executable ranges of this process, without the libraries that other tests load and unload.
fn code() -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("it can be read");
    let executable = maps.lines().filter(|line| {
        line.contains(" r-xp ") && !line.contains("chains.c") && !line.contains("small.so")
    });
    let range = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        Some((
            u64::from_str_radix(start, 16).ok()?,
            u64::from_str_radix(end, 16).ok()?,
        ))
    };
    executable.filter_map(range).collect()
}

#[test]
fn any_registers_over_any_stack() {
    let _only = super::LIBRARIES.lock();
    const WORDS: usize = 4096;
    own_modules::init();
    let code = code();
    let mut random = Random(0x5eed);
    let mut stack = vec![0u64; WORDS];
    let low = stack.as_ptr() as u64;
    let high = low + WORDS as u64 * 8;
    // SAFETY: the vector outlives the bounds.
    let bounds = unsafe { StackBounds::of_stack(low, high) };
    let mut walker = NativeWalker::boxed();
    let mut long = 0;
    let begin = Instant::now();
    let mut rounds = 0;
    while begin.elapsed() < Duration::from_secs(3) {
        rounds += 1;
        let word = |random: &mut Random| match random.below(8) {
            0..4 => {
                let (start, end) = code[random.below(code.len() as u64) as usize];
                start + random.below(end - start)
            }
            4 | 5 => low + random.below(WORDS as u64) * 8,
            6 => random.below(64),
            _ => random.next(),
        };
        // Change some words only, so that the last walk can be reused in part.
        let changes = if random.below(4) == 0 { WORDS } else { 20 };
        for _ in 0..changes {
            let place = random.below(WORDS as u64) as usize;
            stack[place] = word(&mut random);
        }
        for _ in 0..20 {
            let mut registers = Registers {
                pc: word(&mut random),
                sp: low + random.below(WORDS as u64 + 8) * 8 - random.below(2),
                fp: word(&mut random),
                lr: word(&mut random),
                saved: [0; 5].map(|_: u64| word(&mut random)),
                is_wild: random.below(4) == 0,
            };
            if random.below(10) == 0 {
                registers.sp = word(&mut random);
            }
            let limit = 1 + random.below(300) as usize;
            let end = walker.walk_stack(&registers, &bounds, random.below(2) == 0, limit);
            let depth = walker.stack().frames().len();
            assert!(depth <= 1024);
            assert!(depth <= limit + 64, "{depth} frames, limit {limit}");
            assert!(end != WalkEnd::Depth || depth >= limit.saturating_sub(64));
            long += (depth > 5) as u32;
        }
    }
    // Garbage that never leads anywhere would test little.
    assert!(long > rounds / 50, "{long} of {rounds} rounds");
}

/// Made-up code: the rule of an address follows from its number.
struct MadeUp;

impl Rules for MadeUp {
    fn rule(&self, pc: u64, _: bool) -> Rule {
        let number = pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let base = 8 + (number >> 5) as i64 % 6 * 8;
        match number % 128 {
            0 => Rule::END,
            1 => Rule::NOWHERE,
            2 => Rule::UNKNOWN,
            3 => Rule::new(Kind::FpIndirect, -8, Some(0), Some(-8)).expect("it fits"),
            4 => Rule::new(Kind::Signal, 24, Some(8), Some(16)).expect("it fits"),
            5..8 => Rule::FRAME_POINTER,
            8..40 => Rule::new(Kind::Sp, base + 8, Some(-16), Some(-8)).expect("it fits"),
            _ => Rule::new(Kind::Sp, base, None, Some(-8)).expect("it fits"),
        }
    }

    fn full_step(
        &self,
        _: &mut AllRegisters,
        _: bool,
        _: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<bool> {
        None
    }

    fn generation(&self) -> u32 {
        1
    }
}

/// A made-up stack at `BASE`.
struct Words(Vec<u64>);

const BASE: u64 = 0x7000_0000;

// SAFETY: the words are in a vector, whose bounds are checked.
unsafe impl ReadStack for &Words {
    fn read(&mut self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(BASE)?;
        (offset % 8 == 0).then(|| self.0.get(offset as usize / 8).copied())?
    }

    fn own(&self) -> (u64, u64) {
        (BASE, self.0.len() as u64 * 8)
    }

    unsafe fn read_own(&self, address: u64) -> u64 {
        self.0[(address - BASE) as usize / 8]
    }
}

#[test]
fn reuse_equals_full_walks_over_changing_words() {
    const WORDS: u64 = 400;
    let mut random = Random(0xfeed);
    let word = |random: &mut Random| match random.below(200) {
        0 => 0,
        1..40 => BASE + random.below(WORDS) * 8,
        _ => 0x40_0000 + random.below(500),
    };
    let mut words = Words((0..WORDS).map(|_| word(&mut random)).collect());
    let mut start = words.0.clone();
    let (mut reusing, mut full) = (Stack::boxed(), Stack::boxed());
    let (mut kept, mut long) = (0, 0);
    for round in 0..400_000 {
        if round % 16 == 0 {
            if round % 512 == 0 {
                start = (0..WORDS).map(|_| word(&mut random)).collect();
            }
            words.0.copy_from_slice(&start);
        }
        let place = random.below(WORDS) as usize;
        words.0[place] = word(&mut random);
        let registers = Registers {
            pc: 0x40_0000 + random.below(2),
            sp: BASE + random.below(3) * 8,
            fp: BASE + random.below(2) * 800,
            ..Registers::default()
        };
        let limit = if round % 3 == 0 { 20 } else { 300 };
        let from = Start {
            registers: &registers,
            exact: true,
            high: 1,
            skip: (0, 0),
        };
        let ours = reusing.walk(&from, limit, &MadeUp, &mut &words);
        full.forget();
        let truth = full.walk(&from, limit, &MadeUp, &mut &words);
        let frames = |stack: &Stack| -> Vec<(u64, u64)> {
            stack.frames().iter().map(|f| (f.pc, f.sp)).collect()
        };
        if truth == WalkEnd::Depth || ours == WalkEnd::Depth {
            // Reuse may keep some frames more or less than the limit.
            let (ours, truth) = (frames(&reusing), frames(&full));
            let shorter = ours.len().min(truth.len());
            assert!(shorter + 64 >= limit, "round {round}");
            assert_eq!(ours[ours.len() - shorter..], truth[truth.len() - shorter..]);
            continue;
        }
        assert_eq!(frames(&reusing), frames(&full), "round {round}");
        assert_eq!(ours, truth, "round {round}");
        assert_eq!(reusing.is_guessed(), full.is_guessed(), "round {round}");
        kept += reusing.kept();
        long += (reusing.frames().len() > 20) as usize;
    }
    assert!(kept > 100_000 && long > 1000, "{kept} kept, {long} long");
}
