//! The steps of a walk that are rare: signal frames, realigned stacks, words outside of the own stack,
//! and frames that need all registers. Pure like `walk`, and apart from its loop.

use super::{ReadStack, Rules, Start};
use crate::unwind::full::AllRegisters;
use crate::unwind::rule::{Kind, Rule};
use crate::unwind::{Registers, WalkEnd};

/// Most steps taken with all registers from one frame that needs them to the next.
const FULL_STEPS: usize = 64;

/// The outermost frame that a walk has reached with all registers, and whether its pc is exact. A walk that
/// meets the next frame that needs them goes on from here: a stack of nothing else (ART's interpreter) would
/// be walked anew for each.
pub(super) type Reached = Option<(AllRegisters, bool)>;

/// The state of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub pc: u64,
    pub sp: u64,
    pub fp: u64,
    pub exact: bool,
}

impl State {
    /// Whether the walk has not made a step yet.
    pub(super) fn is(&self, from: &Start) -> bool {
        let r = from.registers;
        (self.pc, self.sp, self.fp, self.exact) == (r.pc, r.sp, r.fp, from.exact)
    }
}

/// Whence a walk's first pc, which could not be read, was called. `None`: code is there (of a file that was
/// cut, for one), or it was not called from code that is known.
#[cold]
#[inline(never)]
pub(super) fn caller_of_nothing<M: ReadStack, R: Rules>(
    from: &Start,
    rules: &R,
    memory: &mut M,
) -> Option<State> {
    let Registers { pc, sp, fp, lr, .. } = *from.registers;
    if rules.rule(pc, true).kind() != Kind::Nowhere {
        return None;
    }
    // A call puts its return address on the stack where there is no link register.
    let (pc, sp) = match lr {
        0 => (memory.read(sp)?, sp.wrapping_add(8)),
        lr => (lr, sp),
    };
    let pc = crate::unwind::strip(pc);
    let is_known = rules.rule(pc, false).kind() != Kind::Nowhere;
    is_known.then_some(State {
        pc,
        sp,
        fp,
        exact: false,
    })
}

/// Goes to the caller where the common way does not lead.
#[cold]
#[inline(never)]
pub(super) fn rare_step<M: ReadStack, R: Rules>(
    here: State,
    rule: Rule,
    from: &Start,
    first: bool,
    reached: &mut Reached,
    rules: &R,
    memory: &mut M,
) -> Result<State, WalkEnd> {
    let mut read = |address| memory.read(address).ok_or(WalkEnd::BadStack);
    let at = |base: u64, offset: Option<i64>| match offset {
        Some(offset) => Ok(base.wrapping_add_signed(offset)),
        None => Err(WalkEnd::BadStack),
    };
    let next = match rule.kind() {
        Kind::End => return Err(WalkEnd::Root),
        Kind::Sp | Kind::Fp => {
            let base = if rule.kind() == Kind::Sp {
                here.sp
            } else {
                here.fp
            };
            let cfa = base.wrapping_add_signed(rule.base());
            let pc = match rule.ra() {
                Some(offset) => read(cfa.wrapping_add_signed(offset))?,
                // In the link register: only before anything was called.
                None if first && from.registers.lr != 0 => from.registers.lr,
                None => return Err(WalkEnd::BadStack),
            };
            let fp = match rule.fp() {
                Some(offset) => read(cfa.wrapping_add_signed(offset))?,
                None => here.fp,
            };
            State {
                pc,
                sp: cfa,
                fp,
                exact: false,
            }
        }
        Kind::Signal => State {
            sp: read(here.sp.wrapping_add_signed(rule.base()))?,
            pc: read(at(here.sp, rule.ra())?)?,
            fp: read(at(here.sp, rule.fp())?)?,
            exact: true,
        },
        Kind::FpIndirect => {
            let cfa = read(here.fp.wrapping_add_signed(rule.base()))?;
            let fp = match rule.fp() {
                Some(offset) => read(here.fp.wrapping_add_signed(offset))?,
                None => here.fp,
            };
            State {
                pc: read(at(cfa, rule.ra())?)?,
                sp: cfa,
                fp,
                exact: false,
            }
        }
        Kind::Complex => full_step(here, from, first, reached, rules, memory)?,
        _ => return Err(WalkEnd::Unsupported),
    };
    // Only a signal's frame leads to another stack; leaf functions of aarch64 may have no frame.
    let advances = next.sp > here.sp || (first && rule.ra().is_none() && next.sp == here.sp);
    if !advances && !next.exact {
        return Err(WalkEnd::BadStack);
    }
    match crate::unwind::strip(next.pc) {
        0 => Err(WalkEnd::Root),
        pc => Ok(State { pc, ..next }),
    }
}

/// Through a frame that no rule describes. If more registers than the walk keeps are needed, they are found
/// by walking again with all of them, from the beginning or from where that has got to.
fn full_step<M: ReadStack, R: Rules>(
    here: State,
    from: &Start,
    first: bool,
    reached: &mut Reached,
    rules: &R,
    memory: &mut M,
) -> Result<State, WalkEnd> {
    let mut read = |address| memory.read(address);
    let state = |registers: &AllRegisters, exact| {
        let (pc, sp) = registers.state();
        let fp = registers.fp();
        State { pc, sp, fp, exact }
    };
    let place = (here.pc, here.sp);
    let is_reached = first || reached.is_some_and(|(registers, _)| registers.state() == place);
    if !is_reached {
        let mut registers = AllRegisters::of_state(here.pc, here.sp, here.fp);
        if let Some(exact) = rules.full_step(&mut registers, here.exact, &mut read) {
            return Ok(state(&registers, exact));
        }
    }
    let beginning = (AllRegisters::of(from.registers), from.exact);
    let (mut registers, mut exact) = reached.take().unwrap_or(beginning);
    for _ in 0..FULL_STEPS {
        let is_here = registers.state() == place;
        exact = rules
            .full_step(&mut registers, exact, &mut read)
            .ok_or(WalkEnd::Unsupported)?;
        if is_here {
            *reached = Some((registers, exact));
            return Ok(state(&registers, exact));
        }
    }
    Err(WalkEnd::Unsupported)
}
