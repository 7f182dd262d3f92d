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

mod rare;

use self::rare::{Reached, State, caller_of_nothing, rare_step};
use super::full::AllRegisters;
use super::rule::{Kind, Rule};
use super::{Architecture, MAX_DEPTH, Native, Registers, Start, WalkEnd};

/// How far reuse may carry a truncated stack beyond the limit before it is cut again.
pub const SLACK: usize = 64;

/// Addresses below this are no code (Linux' default mmap_min_addr is 64 KB, the page 0 is never code).
const LOWEST_CODE: u64 = 4096;

/// Reads a stack.
///
/// # Safety
/// `read_own` must be sound for the addresses that `own` names.
pub unsafe trait ReadStack {
    /// The word at an address, wherever it lies; `None` when it cannot be read.
    fn read(&mut self, address: u64) -> Option<u64>;

    /// The part of the stack that the walk began on, from its stack pointer up: lowest address and
    /// bytes. Its words can be read again in later walks as long as they lie above their stack
    /// pointers.
    fn own(&self) -> (u64, u64);

    /// The word at an address.
    ///
    /// # Safety
    /// The address is a multiple of 8 in the part that `own` names.
    unsafe fn read_own(&self, address: u64) -> u64;
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

    /// The rule at `pc` of code of no module, which is not remembered with the others.
    fn generated_rule(&self, pc: u64, exact: bool) -> Option<Rule> {
        let _ = (pc, exact);
        None
    }

    /// Changes whenever the rule of any address may have changed.
    fn generation(&self) -> u32;
}

/// A word of a stack and the value that a walk read there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Word {
    /// Where the word lies.
    pub address: u64,
    /// What was read there.
    pub value: u64,
}

/// One frame: the state of the walk in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    /// Return address, or the pc of an exact frame.
    pub pc: u64,
    /// Stack pointer in the frame.
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

    /// Whether it is one of code that a runtime has made and added.
    pub fn is_generated(&self) -> bool {
        self.flags & GENERATED != 0
    }

    /// Whether a walk in this state goes on from here as the last one did, if the words vouch for it.
    #[inline(always)]
    fn is_state(&self, pc: u64, sp: u64, fp: u64, exact: bool) -> bool {
        self.sp == sp
            && self.pc == pc
            && self.flags & PROVEN != 0
            && (self.flags & EXACT != 0) == exact
            && (self.flags & FP_LIVE == 0 || self.fp == fp)
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
/// Code of no module whose rule is known.
const GENERATED: u16 = 16;

/// A frame as the walk finds it, leaf first, and the rule by which it was left.
#[derive(Clone, Copy, Debug)]
struct Step {
    pc: u64,
    sp: u64,
    fp: u64,
    rule: Rule,
    flags: u8,
}

/// The pc is exact.
const STEP_EXACT: u8 = 1;
/// Left by the rule, which read words of the own stack only.
const STEP_REGULAR: u8 = 2;
/// Left in another way.
const STEP_IRREGULAR: u8 = 4;
/// Left by following a frame pointer through unknown code.
const STEP_GUESSED: u8 = 8;
/// Left by a rule of generated code.
const STEP_GENERATED: u8 = 16;

/// The stack of a thread as its last walk found it. Large and all-zero at first: keep it in mapped
/// memory of its own; only the pages that the depth needs are touched.
#[derive(Debug)]
#[repr(C)]
pub struct Stack {
    len: usize,
    kept: usize,
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
    }

    /// A new stack on the heap, for tests and for walks outside of the agent.
    pub fn boxed() -> std::boxed::Box<Stack> {
        // SAFETY: all-zero is a valid `Stack`: it consists of numbers, flags, and a `WalkEnd` whose
        // variants begin at 0.
        unsafe { zeroed() }
    }

    /// Walks the stack.
    pub fn walk<M: ReadStack, R: Rules>(
        &mut self,
        from: &Start,
        limit: usize,
        rules: &R,
        memory: &mut M,
    ) -> WalkEnd {
        let generation = rules.generation();
        if self.generation != generation || self.high != from.high {
            self.forget();
            self.generation = generation;
            self.high = from.high;
        }
        let limit = limit.clamp(1, MAX_DEPTH - SLACK);
        let mut found = self.run(from, limit, self.len, rules, memory);
        let depth = found.kept + found.steps;
        // A deep stack whose root end was cut: what is kept is too much or too little now?
        let lacks_depth = self.end == WalkEnd::Depth && depth + SLACK < limit;
        if found.kept > 0 && (depth > limit + SLACK || lacks_depth) {
            found = self.run(from, limit, 0, rules, memory);
        }
        self.store(&found);
        found.end
    }

    /// Whether a full walk from the same place gives the same frames as the last walk did. For tests
    /// and for the mode that checks every walk.
    pub fn equals_full_walk<M: ReadStack, R: Rules>(
        &mut self,
        from: &Start,
        rules: &R,
        memory: &mut M,
    ) -> bool {
        let found = self.run(from, self.len.max(1), 0, rules, memory);
        let same_end = found.end == self.end || found.end == WalkEnd::Depth;
        let full = &self.steps[..found.steps];
        same_end
            && full.len() == self.len
            && full
                .iter()
                .zip(self.frames().iter().rev())
                .all(|(step, frame)| (step.pc, step.sp) == (frame.pc, frame.sp))
    }

    /// Walks until the root, a state of the last walk among its first `reusable` frames, or something
    /// that stops it. The steps are left in `steps`.
    fn run<M: ReadStack, R: Rules>(
        &mut self,
        from: &Start,
        limit: usize,
        reusable: usize,
        rules: &R,
        memory: &mut M,
    ) -> Found {
        let Registers { pc, sp, fp, .. } = *from.registers;
        let (mut pc, mut sp, mut fp, mut exact) = (pc, sp, fp, from.exact);
        let own = memory.own();
        let is_own =
            |address: u64| address.is_multiple_of(8) && address.wrapping_sub(own.0) < own.1;
        let mut steps = 0;
        let mut unproven = None;
        let mut reached: Reached = None;
        if from.registers.is_wild
            && let Some(caller) = caller_of_nothing(from, rules, memory)
        {
            self.steps[0] = Step {
                pc,
                sp,
                fp,
                rule: Rule::NOWHERE,
                flags: STEP_EXACT | STEP_IRREGULAR,
            };
            steps = 1;
            State { pc, sp, fp, exact } = caller;
        }
        // The frame of the last walk to compare with next.
        let mut candidate = reusable;
        let mut candidate_sp = self.sp_of(candidate);
        // How many of the last walk's words are unchanged: compared once, when first needed. Frames
        // found later lie outward, so they need fewer.
        let mut intact = None;
        loop {
            while candidate > 0 && candidate_sp <= sp {
                let frame = &self.frames[candidate - 1];
                if frame.is_state(pc, sp, fp, exact) && is_own(sp) {
                    let needed = frame.words as usize;
                    let intact = *intact.get_or_insert_with(|| {
                        first_changed(memory, &self.words[..needed]).unwrap_or(needed)
                    });
                    if needed <= intact {
                        return Found {
                            kept: candidate,
                            steps,
                            end: self.end,
                            by_state: true,
                        };
                    }
                }
                candidate -= 1;
                candidate_sp = self.sp_of(candidate);
            }
            if steps >= limit {
                let steps = settle(unproven, steps);
                return Found::full(steps, WalkEnd::Depth, true);
            }
            let mut rule = rules.rule(pc, exact);
            let here = State { pc, sp, fp, exact };
            let mut flags = if exact {
                STEP_EXACT | STEP_REGULAR
            } else {
                STEP_REGULAR
            };
            if rule == Rule::NOWHERE
                && let Some(known) = rules.generated_rule(pc, exact)
            {
                rule = known;
                flags |= STEP_GENERATED;
            }
            if exact && matches!(rule.kind(), Kind::Unknown | Kind::Nowhere) {
                // What follows depends on code that no generation stands for.
                flags = STEP_EXACT | STEP_IRREGULAR;
                let lr = if here.is(from) { from.registers.lr } else { 0 };
                rule = rule_of_interrupted(here, lr, memory).unwrap_or(rule);
            }
            if steps > 0 || !(from.skip.0 <= pc && pc < from.skip.1) {
                self.steps[steps] = Step {
                    pc,
                    sp,
                    fp,
                    rule,
                    flags,
                };
                steps += 1;
            }
            if rule.is_simple() {
                let cfa = sp.wrapping_add_signed(rule.base());
                let slot = cfa.wrapping_sub(8);
                if cfa > sp && is_own(slot) {
                    // SAFETY: `is_own` was asked.
                    let next = super::strip(unsafe { memory.read_own(slot) });
                    unproven = None;
                    if next == 0 {
                        // Stacks made by hand end like this.
                        return Found::full(steps, WalkEnd::Root, true);
                    }
                    (pc, sp, exact) = (next, cfa, false);
                    continue;
                }
            }
            if rule.is_common() {
                let cfa =
                    (if rule.is_from_fp() { fp } else { sp }).wrapping_add_signed(rule.base());
                let pc_slot = cfa.wrapping_add_signed(rule.ra().unwrap_or(1));
                let fp_slot = rule.fp().map(|offset| cfa.wrapping_add_signed(offset));
                let all_own = is_own(pc_slot) && fp_slot.is_none_or(is_own);
                if cfa > sp && pc_slot >= sp && fp_slot.is_none_or(|slot| slot >= sp) && all_own {
                    // SAFETY: `is_own` was asked.
                    let next = super::strip(unsafe { memory.read_own(pc_slot) });
                    if let Some(slot) = fp_slot {
                        // SAFETY: as above.
                        fp = unsafe { memory.read_own(slot) };
                    }
                    unproven = None;
                    if next == 0 {
                        return Found::full(steps, WalkEnd::Root, true);
                    }
                    (pc, sp, exact) = (next, cfa, false);
                    continue;
                }
            }
            // What is left is rare.
            let kind = rule.kind();
            let last = steps.saturating_sub(1);
            self.steps[last].flags &= !STEP_REGULAR;
            if kind == Kind::Unknown || kind == Kind::Nowhere {
                if kind == Kind::Unknown {
                    unproven = None;
                }
                // By its frame pointer, if it looks like one: at or above the stack pointer, and in
                // the own stack. What it leads to is believed only if that is a module's code.
                if !is_own(fp) || !is_own(fp.wrapping_add(8)) || fp < sp {
                    let by_state = unproven.is_none();
                    return Found::full(settle(unproven, steps), WalkEnd::Unknown, by_state);
                }
                // SAFETY: `is_own` was asked for both.
                let (next_fp, next) = unsafe { (memory.read_own(fp), memory.read_own(fp + 8)) };
                unproven = unproven.or(Some(steps));
                if super::strip(next) < LOWEST_CODE {
                    return Found::full(settle(unproven, steps), WalkEnd::Unknown, false);
                }
                if let Some(step) = self.steps[..steps].last_mut() {
                    step.rule = Rule::FRAME_POINTER;
                    step.flags |= STEP_GUESSED;
                    if step.flags & STEP_IRREGULAR == 0 {
                        step.flags |= STEP_REGULAR;
                    }
                }
                (pc, sp, fp, exact) = (super::strip(next), fp + 16, next_fp, false);
                continue;
            }
            unproven = None;
            self.steps[last].flags |= STEP_IRREGULAR;
            let first = here.is(from);
            match rare_step(here, rule, from, first, &mut reached, rules, memory) {
                Ok(next) => State { pc, sp, fp, exact } = next,
                Err(end) => {
                    // The root by its rule is the root whatever the stack holds.
                    let by_state = rule.kind() == Kind::End;
                    return Found::full(steps, end, by_state);
                }
            }
        }
    }

    /// The stack pointer of the frame before a number of frames; beyond any when there is none.
    #[inline(always)]
    fn sp_of(&self, frames: usize) -> u64 {
        match frames.checked_sub(1) {
            Some(index) => self.frames[index].sp,
            None => u64::MAX,
        }
    }

    /// Puts the steps behind the frames kept.
    fn store(&mut self, found: &Found) {
        let Found {
            kept,
            steps,
            end,
            by_state,
        } = *found;
        self.kept = kept;
        self.end = end;
        let mut outer = kept.checked_sub(1).map(|last| self.frames[last]);
        let (mut words, mut flags) = match &outer {
            Some(outer) => (outer.words as usize, outer.flags),
            // Where the walk would have gone on, the frame pointer may matter.
            None => (
                0,
                flag(by_state, PROVEN) | flag(end != WalkEnd::Root, FP_LIVE),
            ),
        };
        for (step, place) in self.steps[..steps]
            .iter()
            .rev()
            .zip(&mut self.frames[kept..])
        {
            let mut proven = flags & PROVEN != 0;
            let mut live = flags & FP_LIVE != 0;
            // The root has read a word only if that ended the walk by being 0.
            let (outer_pc, outer_fp) = match &outer {
                Some(outer) => (outer.pc, outer.fp),
                None => (0, 0),
            };
            if outer.is_some() || end == WalkEnd::Root {
                if step.flags & STEP_REGULAR != 0 {
                    let (pc_slot, fp_slot) = step.slots(outer.as_ref());
                    if proven {
                        self.words[words] = Word {
                            address: pc_slot,
                            value: outer_pc,
                        };
                        words += 1;
                        if let Some(address) = fp_slot.filter(|_| live) {
                            self.words[words] = Word {
                                address,
                                value: outer_fp,
                            };
                            words += 1;
                        }
                    }
                    live = step.rule.is_from_fp() || (live && fp_slot.is_none());
                } else if step.flags & STEP_IRREGULAR != 0 && step.rule.kind() != Kind::End {
                    proven = false;
                }
            }
            let guessed = step.flags & STEP_GUESSED != 0 && outer.is_some();
            flags = (flags & GUESSED)
                | flag(step.flags & STEP_EXACT != 0, EXACT)
                | flag(live, FP_LIVE)
                | flag(proven, PROVEN)
                | flag(guessed, GUESSED)
                | flag(step.flags & STEP_GENERATED != 0, GENERATED);
            *place = Frame {
                pc: step.pc,
                sp: step.sp,
                fp: step.fp,
                node: 0,
                words: words as u16,
                flags,
            };
            outer = Some(*place);
        }
        self.len = kept + steps;
    }
}

/// A value of zero bytes on the heap, without passing over the stack.
///
/// # Safety
/// All-zero must be a valid `T`, whose size is not 0.
pub(crate) unsafe fn zeroed<T>() -> std::boxed::Box<T> {
    let layout = std::alloc::Layout::new::<T>();
    // SAFETY: the layout has a size; the memory is a valid `T` by the caller's promise and was made by
    // the allocator that `Box` uses.
    unsafe {
        let memory = std::alloc::alloc_zeroed(layout);
        if memory.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        std::boxed::Box::from_raw(memory.cast())
    }
}

fn flag(condition: bool, bit: u16) -> u16 {
    if condition { bit } else { 0 }
}

impl Step {
    /// Where a regular step read the next pc and fp. `outer`: the frame it led to.
    #[inline(always)]
    fn slots(&self, outer: Option<&Frame>) -> (u64, Option<u64>) {
        let cfa = match outer {
            Some(outer) => outer.sp,
            None if self.rule.kind() == Kind::Sp => self.sp.wrapping_add_signed(self.rule.base()),
            None => self.fp.wrapping_add_signed(self.rule.base()),
        };
        let slot = |offset| cfa.wrapping_add_signed(offset);
        (slot(self.rule.ra().unwrap_or(0)), self.rule.fp().map(slot))
    }
}

/// The rule of an interrupted function without tables, where its frame pointer does not lead to a record: in
/// its prologue, behind its epilogue, or without a frame. Believed only if a call stands in front of the
/// address that it returns to. `lr` is 0 where it is not known.
#[cold]
#[inline(never)]
fn rule_of_interrupted<M: ReadStack>(here: State, lr: u64, memory: &mut M) -> Option<Rule> {
    let registers = Registers {
        pc: here.pc,
        sp: here.sp,
        fp: here.fp,
        lr,
        ..Registers::default()
    };
    let mut read = |address| memory.read(address);
    let rule = Native::leaf_rule(&registers, &mut read)?;
    let next = match rule.ra() {
        Some(offset) => {
            let cfa = here.sp.wrapping_add_signed(rule.base());
            read(cfa.wrapping_add_signed(offset))?
        }
        None => lr,
    };
    Native::is_behind_call(super::strip(next), &mut read).then_some(rule)
}

/// What a walk found.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Frames of the last walk that are part of this one, from the root.
    kept: usize,
    /// New frames.
    steps: usize,
    end: WalkEnd,
    /// Where it ended follows from the last frame's state alone.
    by_state: bool,
}

impl Found {
    fn full(steps: usize, end: WalkEnd, by_state: bool) -> Found {
        Found {
            kept: 0,
            steps,
            end,
            by_state,
        }
    }
}

/// At the end of a walk: frames that were only reached by following frame pointers through unknown
/// code, and led nowhere, go.
fn settle(unproven: Option<usize>, steps: usize) -> usize {
    unproven.unwrap_or(steps)
}

/// The first of some words of the own stack that no longer has its value.
#[inline(always)]
fn first_changed<M: ReadStack>(memory: &M, words: &[Word]) -> Option<usize> {
    let changed = |word: &Word| {
        // SAFETY: it was `own` when it was taken, so it is aligned and below the stack's end, which is
        // still the same. It lies above the current frame's stack pointer, and that is `own` now.
        unsafe { memory.read_own(word.address) ^ word.value }
    };
    let mut begin = 0;
    for chunk in words.chunks_exact(8) {
        if chunk.iter().fold(0, |all, word| all | changed(word)) != 0 {
            break;
        }
        begin += 8;
    }
    let rest = &words[begin..];
    let at = rest.iter().position(|word| changed(word) != 0)?;
    Some(begin + at)
}
