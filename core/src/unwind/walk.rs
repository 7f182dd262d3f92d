//! The walk: from registers to the addresses of a call stack, with verified reuse of the last one.
//!
//! A walk's state is (pc, sp, fp), and one step is a function of that state, of the rules in force and
//! of the words it reads. So if a walk reaches a state that the last walk of the same thread passed
//! through, and every word that the last walk read from there on is unchanged, then the rest of the
//! stack is the same: by induction over the steps, not by likelihood. `Stack` keeps the states and,
//! apart, the words to check, root first, so that what is reused stays where it is. The frame pointer
//! counts only where a later step uses it (it is an ordinary register in most code): `FP_LIVE`.
//!
//! What a check cannot vouch for is not reused: steps through alternate stacks and signal frames,
//! words outside the thread's own stack, rules of an older generation.
//!
//! Pure: registers, rules and a way to read memory go in, addresses come out. No allocation, no lock.

use super::full::AllRegisters;
use super::rule::{Kind, Rule};
use super::{MAX_DEPTH, Registers, WalkEnd};

/// How far reuse may carry a truncated stack beyond the limit before it is cut again.
pub const SLACK: usize = 64;

/// Most steps taken with all registers to reach a frame that needs them.
const FULL_STEPS: usize = 64;

/// Reads a stack.
pub trait ReadStack {
    /// The word at an address; `None` when it cannot be read.
    fn read(&mut self, address: u64) -> Option<u64>;

    /// Whether a word lies in the stack that the walk began on, at or above its stack pointer. Such a
    /// word can be read again in later walks as long as it lies above their stack pointers.
    fn is_own(&self, address: u64) -> bool;

    /// The first of these words that no longer has its value. All were `is_own` once and lie at or
    /// above the stack pointer.
    fn first_changed(&mut self, words: &[Word]) -> Option<usize> {
        words
            .iter()
            .position(|word| self.read(word.address) != Some(word.value))
    }
}

/// Knows the rules.
pub trait Rules {
    /// The rule at `pc`. `exact`: pc is the next instruction, not a return address.
    fn rule(&self, pc: u64, exact: bool) -> Rule;

    /// Goes to the caller with all registers; the flag: the new pc is exact. See `full::step`.
    fn full_step(
        &self,
        registers: &mut AllRegisters,
        exact: bool,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<bool>;

    /// Changes whenever the rule of any address may have changed.
    fn generation(&self) -> u32;
}

/// A word of a stack and the value that a walk read there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Word {
    pub address: u64,
    pub value: u64,
}

/// One frame: the state of the walk in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    /// Return address, or the pc of an exact frame.
    pub pc: u64,
    pub sp: u64,
    fp: u64,
    /// For the caller's use: kept as long as the frame is.
    pub node: u32,
    /// Words that vouch for everything outward of it: the first so many of `Stack::words`.
    words: u16,
    flags: u16,
}

impl Frame {
    /// Whether `pc` is the next instruction: a leaf, or interrupted by a signal.
    pub fn is_exact(&self) -> bool {
        self.flags & EXACT != 0
    }
}

/// The pc is exact.
const EXACT: u16 = 1;
/// The walk from here on depends on the frame pointer.
const FP_LIVE: u16 = 2;
/// The words vouch for everything outward.
const PROVEN: u16 = 4;
/// A frame outward was only reached by frame pointers through unknown code.
const GUESSED: u16 = 8;

/// A slot that nobody looks at again: the step that read it is not regular.
const SOMEWHERE: u64 = 1;

/// A frame as the walk finds it, leaf first, with how it gets to the next one.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    pc: u64,
    sp: u64,
    fp: u64,
    /// Where the next frame's pc and fp were read; 0: nowhere.
    pc_slot: u64,
    fp_slot: u64,
    exact: bool,
    uses_fp: bool,
    /// The step to the next frame can be vouched for by its words.
    regular: bool,
    /// The step to the next frame followed a frame pointer through unknown code.
    guessed: bool,
}

/// The stack of a thread as its last walk found it. Large and all-zero at first: keep it in mapped
/// memory of its own; only the pages that the depth needs are touched.
#[derive(Debug)]
#[repr(C)]
pub struct Stack {
    len: usize,
    kept: usize,
    words_len: usize,
    generation: u32,
    /// Upper end of the stack that the words lie in.
    high: u64,
    /// How the last walk ended; 0 (the root): also when there was none.
    end: WalkEnd,
    frames: [Frame; MAX_DEPTH],
    words: [Word; 2 * MAX_DEPTH],
    steps: [Step; MAX_DEPTH],
}

impl Stack {
    /// The frames, root first.
    pub fn frames(&self) -> &[Frame] {
        &self.frames[..self.len]
    }

    /// The frames, root first, to note nodes in.
    pub fn frames_mut(&mut self) -> &mut [Frame] {
        &mut self.frames[..self.len]
    }

    /// How many frames from the root are those of the walk before, with their nodes.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Whether some frame was only reached by following frame pointers through code that no table
    /// describes.
    pub fn is_guessed(&self) -> bool {
        self.frames()
            .last()
            .is_some_and(|leaf| leaf.flags & GUESSED != 0)
    }

    /// Forgets the last walk: the next one is a full one and keeps no node.
    pub fn forget(&mut self) {
        self.len = 0;
        self.kept = 0;
        self.words_len = 0;
    }

    /// A new stack on the heap, for tests and for walks outside of the agent.
    pub fn boxed() -> std::boxed::Box<Stack> {
        // SAFETY: all-zero is a valid `Stack`: it consists of numbers, flags, and a `WalkEnd` whose
        // variants begin at 0.
        unsafe { std::boxed::Box::<Stack>::new_zeroed().assume_init() }
    }

    /// Walks the stack. `high`: the upper end of the thread's own stack, which tells stacks apart;
    /// `exact`: `registers.pc` is no return address; `skip`: frames at the leaf end whose code lies there are left out; `limit`: most frames.
    pub fn walk<M: ReadStack, R: Rules>(
        &mut self,
        registers: &Registers,
        high: u64,
        exact: bool,
        skip: (u64, u64),
        limit: usize,
        rules: &R,
        memory: &mut M,
    ) -> WalkEnd {
        let generation = rules.generation();
        if self.generation != generation || self.high != high {
            self.forget();
            self.generation = generation;
            self.high = high;
        }
        let limit = limit.clamp(1, MAX_DEPTH - SLACK);
        let mut walk = Walk::new(registers, exact, true);
        let (kept, end) = walk.run(self, registers, skip, limit, rules, memory);
        if kept > 0 && (kept + walk.steps > MAX_DEPTH || self.lacks_depth(kept, walk.steps, limit))
        {
            // A deep stack whose root end was cut: what is kept is too much or too little now.
            self.forget();
            return self.walk(registers, high, exact, skip, limit, rules, memory);
        }
        self.store(kept, walk.steps, end);
        end
    }

    /// Whether a full walk from the same place gives the same frames as the last walk did. For tests
    /// and for the mode that checks every walk.
    pub fn equals_full_walk<M: ReadStack, R: Rules>(
        &mut self,
        registers: &Registers,
        exact: bool,
        skip: (u64, u64),
        rules: &R,
        memory: &mut M,
    ) -> bool {
        let mut walk = Walk::new(registers, exact, false);
        let limit = self.len.max(1);
        let (_, end) = walk.run(self, registers, skip, limit, rules, memory);
        let full = &self.steps[..walk.steps];
        let same_end = end == self.end || end == WalkEnd::Depth;
        same_end
            && full.len() == self.len
            && full
                .iter()
                .zip(self.frames().iter().rev())
                .all(|(step, frame)| (step.pc, step.sp) == (frame.pc, frame.sp))
    }

    /// Whether a stack cut at the limit would shrink by reuse to much less than the limit.
    fn lacks_depth(&self, kept: usize, steps: usize, limit: usize) -> bool {
        self.end == WalkEnd::Depth && kept + steps + SLACK < limit
    }

    /// Puts the steps behind the frames kept.
    fn store(&mut self, kept: usize, steps: usize, end: WalkEnd) {
        self.kept = kept;
        self.end = end;
        let (mut words, mut live, mut proven, mut guessed) = match kept.checked_sub(1) {
            Some(last) => {
                let frame = &self.frames[last];
                (
                    frame.words as usize,
                    frame.flags & FP_LIVE != 0,
                    frame.flags & PROVEN != 0,
                    frame.flags & GUESSED != 0,
                )
            }
            None => (0, false, end == WalkEnd::Root, false),
        };
        let mut outer = kept.checked_sub(1).map(|last| self.frames[last]);
        for i in 0..steps {
            let step = &self.steps[steps - 1 - i];
            // Of the root only a word that ended the walk by being 0 was read.
            let (outer_pc, outer_fp) = outer.map_or((0, 0), |outer| (outer.pc, outer.fp));
            if step.pc_slot != 0 {
                proven &= step.regular;
                if proven {
                    self.words[words] = Word {
                        address: step.pc_slot,
                        value: outer_pc,
                    };
                    words += 1;
                    if live && step.fp_slot != 0 {
                        self.words[words] = Word {
                            address: step.fp_slot,
                            value: outer_fp,
                        };
                        words += 1;
                    }
                }
            } else if outer.is_some() {
                proven = false;
            }
            live = step.uses_fp || (live && step.fp_slot == 0);
            guessed |= step.guessed && outer.is_some();
            let frame = Frame {
                pc: step.pc,
                sp: step.sp,
                fp: step.fp,
                node: 0,
                words: words as u16,
                flags: flag(step.exact, EXACT)
                    | flag(live, FP_LIVE)
                    | flag(proven, PROVEN)
                    | flag(guessed, GUESSED),
            };
            self.frames[kept + i] = frame;
            outer = Some(frame);
        }
        self.len = kept + steps;
        self.words_len = words;
    }
}

fn flag(condition: bool, bit: u16) -> u16 {
    if condition { bit } else { 0 }
}

/// The state of a walk under way.
struct Walk {
    pc: u64,
    sp: u64,
    fp: u64,
    exact: bool,
    steps: usize,
    /// Number of steps when a run of frames through code of no module began.
    unproven_from: Option<usize>,
    /// Whether a state of the last walk ends this one.
    may_reuse: bool,
}

impl Walk {
    fn new(registers: &Registers, exact: bool, may_reuse: bool) -> Walk {
        Walk {
            pc: registers.pc,
            sp: registers.sp,
            fp: registers.fp,
            exact,
            steps: 0,
            unproven_from: None,
            may_reuse,
        }
    }

    /// Walks until the root, a state of the last walk, or something that stops it. The number of
    /// frames kept from the last walk, and the end.
    fn run<M: ReadStack, R: Rules>(
        &mut self,
        stack: &mut Stack,
        registers: &Registers,
        skip: (u64, u64),
        limit: usize,
        rules: &R,
        memory: &mut M,
    ) -> (usize, WalkEnd) {
        let mut candidate = if self.may_reuse { stack.len } else { 0 };
        let begin_exact = self.exact;
        let mut link = Some(registers.lr);
        // How many of the last walk's words are unchanged: looked at once, when first needed. Frames
        // found later lie outward, so they need fewer.
        let mut intact = None;
        loop {
            // A state of the last walk?
            while candidate > 0 && stack.frames[candidate - 1].sp < self.sp {
                candidate -= 1;
            }
            if candidate > 0 {
                let frame = &stack.frames[candidate - 1];
                if frame.sp == self.sp && frame.pc == self.pc && self.is_in_state(frame) {
                    let needed = frame.words as usize;
                    let intact = *intact.get_or_insert_with(|| {
                        let changed = memory.first_changed(&stack.words[..needed]);
                        changed.unwrap_or(needed)
                    });
                    if needed <= intact {
                        self.settle(true);
                        return (candidate, stack.end);
                    }
                    candidate -= 1;
                }
            }
            if self.steps >= limit {
                self.settle(false);
                return (0, WalkEnd::Depth);
            }
            let rule = rules.rule(self.pc, self.exact);
            if self.steps > 0 || !(skip.0 <= self.pc && self.pc < skip.1) {
                stack.steps[self.steps] = Step {
                    pc: self.pc,
                    sp: self.sp,
                    fp: self.fp,
                    exact: self.exact,
                    ..Step::default()
                };
                self.steps += 1;
            }
            let step = &mut stack.steps[self.steps.saturating_sub(1)];
            let link = link.take();
            let result = if rule.kind() == Kind::Complex {
                step.pc_slot = SOMEWHERE;
                self.full_step(registers, begin_exact, link.is_some(), rules, memory)
            } else {
                self.step(rule, link, step, memory)
            };
            if let Err(end) = result {
                self.settle(end == WalkEnd::Root);
                return (0, end);
            }
        }
    }

    fn is_in_state(&self, frame: &Frame) -> bool {
        frame.flags & PROVEN != 0
            && (frame.flags & EXACT != 0) == self.exact
            && (frame.flags & FP_LIVE == 0 || frame.fp == self.fp)
    }

    /// At the end of a walk, or in code that a module has: frames that were only reached by
    /// following frame pointers through unknown code stay if that led somewhere, else they go.
    fn settle(&mut self, led_somewhere: bool) {
        if let Some(from) = self.unproven_from.take()
            && !led_somewhere
        {
            self.steps = from;
        }
    }

    /// Goes to the caller by a rule.
    #[inline(always)]
    fn step<M: ReadStack>(
        &mut self,
        rule: Rule,
        link: Option<u64>,
        step: &mut Step,
        memory: &mut M,
    ) -> Result<(), WalkEnd> {
        let kind = rule.kind();
        if kind != Kind::Sp && kind != Kind::Fp {
            return self.rare_step(rule, step, memory);
        }
        if self.unproven_from.is_some() {
            self.settle(true);
        }
        let from = if kind == Kind::Sp { self.sp } else { self.fp };
        let cfa = from.wrapping_add_signed(rule.base());
        step.uses_fp = kind == Kind::Fp;
        // Leaf functions of aarch64 may have no frame at all.
        if cfa < self.sp || (cfa == self.sp && !(self.exact && rule.ra().is_none())) {
            return Err(WalkEnd::BadStack);
        }
        let pc = match rule.ra() {
            Some(offset) => {
                step.pc_slot = cfa.wrapping_add_signed(offset);
                memory.read(step.pc_slot).ok_or(WalkEnd::BadStack)?
            }
            None => link.ok_or(WalkEnd::BadStack)?,
        };
        if let Some(offset) = rule.fp() {
            step.fp_slot = cfa.wrapping_add_signed(offset);
            self.fp = memory.read(step.fp_slot).ok_or(WalkEnd::BadStack)?;
        }
        step.regular = step.pc_slot >= step.sp
            && memory.is_own(step.pc_slot)
            && (step.fp_slot == 0 || step.fp_slot >= step.sp && memory.is_own(step.fp_slot));
        self.arrive(pc, cfa, false)
    }

    /// The next frame is `pc` with stack pointer `sp`.
    #[inline(always)]
    fn arrive(&mut self, pc: u64, sp: u64, exact: bool) -> Result<(), WalkEnd> {
        let pc = super::strip(pc);
        if pc == 0 {
            // Stacks made by hand end like this.
            return Err(WalkEnd::Root);
        }
        self.pc = pc;
        self.sp = sp;
        self.exact = exact;
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn rare_step<M: ReadStack>(
        &mut self,
        rule: Rule,
        step: &mut Step,
        memory: &mut M,
    ) -> Result<(), WalkEnd> {
        if rule.kind() == Kind::End {
            return Err(WalkEnd::Root);
        }
        step.pc_slot = SOMEWHERE;
        let mut read = |address| memory.read(address).ok_or(WalkEnd::BadStack);
        match rule.kind() {
            Kind::Signal => {
                let (Some(fp), Some(ra)) = (rule.fp(), rule.ra()) else {
                    return Err(WalkEnd::BadStack);
                };
                let sp = read(self.sp.wrapping_add_signed(rule.base()))?;
                let pc = read(self.sp.wrapping_add_signed(ra))?;
                self.fp = read(self.sp.wrapping_add_signed(fp))?;
                self.settle(true);
                self.arrive(pc, sp, true)
            }
            Kind::FpIndirect => {
                let cfa = read(self.fp.wrapping_add_signed(rule.base()))?;
                let Some(ra) = rule.ra() else {
                    return Err(WalkEnd::BadStack);
                };
                if cfa <= self.sp {
                    return Err(WalkEnd::BadStack);
                }
                let pc = read(cfa.wrapping_add_signed(ra))?;
                step.uses_fp = true;
                if let Some(offset) = rule.fp() {
                    self.fp = read(self.fp.wrapping_add_signed(offset))?;
                }
                self.settle(true);
                self.arrive(pc, cfa, false)
            }
            Kind::Unknown | Kind::Nowhere => {
                if rule.kind() == Kind::Unknown {
                    self.settle(true);
                }
                self.unknown_step(step, memory)
            }
            _ => Err(WalkEnd::Unsupported),
        }
    }

    /// Through a frame that no rule describes. If more registers than the walk keeps are needed, they
    /// are found by walking again from the beginning with all of them.
    #[cold]
    #[inline(never)]
    fn full_step<M: ReadStack, R: Rules>(
        &mut self,
        begin: &Registers,
        begin_exact: bool,
        first: bool,
        rules: &R,
        memory: &mut M,
    ) -> Result<(), WalkEnd> {
        let mut read = |address| memory.read(address);
        let mut registers = AllRegisters::of_state(self.pc, self.sp, self.fp);
        let mut interrupted = None;
        if !first {
            interrupted = rules.full_step(&mut registers, self.exact, &mut read);
        }
        if interrupted.is_none() {
            registers = AllRegisters::of(begin);
            let mut exact = begin_exact;
            for _ in 0..FULL_STEPS {
                let here = registers.state() == (self.pc, self.sp);
                let signal = rules
                    .full_step(&mut registers, exact, &mut read)
                    .ok_or(WalkEnd::Unsupported)?;
                if here {
                    interrupted = Some(signal);
                    break;
                }
                exact = signal;
            }
        }
        let exact = interrupted.ok_or(WalkEnd::Unsupported)?;
        let (pc, sp) = registers.state();
        if sp <= self.sp && !exact {
            return Err(WalkEnd::BadStack);
        }
        self.settle(true);
        self.fp = registers.fp();
        self.arrive(pc, sp, exact)
    }

    /// Through code without tables, by its frame pointer if it looks like one: aligned, at or above
    /// the stack pointer, and in the thread's own stack. What it leads to is believed only if it
    /// leads back to a module's code.
    fn unknown_step<M: ReadStack>(
        &mut self,
        step: &mut Step,
        memory: &mut M,
    ) -> Result<(), WalkEnd> {
        step.uses_fp = true;
        let fp = self.fp;
        if fp % 8 != 0 || fp < self.sp || !memory.is_own(fp) || !memory.is_own(fp.wrapping_add(8)) {
            return Err(WalkEnd::Unknown);
        }
        if self.unproven_from.is_none() {
            self.unproven_from = Some(self.steps);
        }
        let (Some(next_fp), Some(pc)) = (memory.read(fp), memory.read(fp + 8)) else {
            return Err(WalkEnd::Unknown);
        };
        if super::strip(pc) < 4096 {
            return Err(WalkEnd::Unknown);
        }
        step.fp_slot = fp;
        step.pc_slot = fp + 8;
        step.regular = true;
        step.guessed = true;
        self.fp = next_fp;
        self.arrive(pc, fp + 16, false)
    }
}
