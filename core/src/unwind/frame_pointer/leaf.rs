//! The innermost frame of a walk, where a thread was interrupted, and what else differs between
//! architectures.

use super::{CodeMask, LOWEST_CODE, Registers, stack_word};
use super::{link_register, return_slot};
use crate::unwind::rule::{Kind, Rule};
use core::ops::Range;

/// In a record's first word: it is that of one of Swift's async functions.
pub(super) const EXTENDED: u64 = 1 << 60;

/// Where the caller of an interrupted function is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// The frame pointer leads to the function's own record.
    HasRecord,
    /// The function has no record: the frame pointer is its caller's.
    Caller {
        /// The return address; 0: there is no caller.
        address: u64,
        /// The stack pointer after the return. Records lie above.
        sp: u64,
    },
}

/// An architecture's frame pointers.
pub trait Architecture {
    /// Where the record lies that a frame pointer leads to.
    fn frame_address(fp: u64) -> u64;

    /// Whether there can be code.
    fn is_code(address: u64) -> bool;

    /// The rule of the interrupted function if it has no record at `pc`, as far as the code from there on
    /// tells.
    fn leaf_rule(pc: u64, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Rule>;

    /// What the function at `registers.pc` has done with its return address.
    fn leaf(
        registers: &Registers,
        mask: CodeMask,
        stack: Range<u64>,
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Leaf;
}

/// arm64: a call puts the return address into the link register.
#[derive(Clone, Copy, Debug)]
pub struct Aarch64;

/// x86-64: a call puts the return address on the stack.
#[derive(Clone, Copy, Debug)]
pub struct X86_64;

/// This machine's.
#[cfg(target_arch = "aarch64")]
pub type Native = Aarch64;
/// This machine's.
#[cfg(not(target_arch = "aarch64"))]
pub type Native = X86_64;

impl Architecture for Aarch64 {
    /// The top byte is no part of the address (TBI). Swift marks records of async functions in it (LLVM,
    /// AArch64FrameLowering.cpp: "Set the extended frame bit", bit 60).
    #[inline(always)]
    fn frame_address(fp: u64) -> u64 {
        fp & 0x00ff_ffff_ffff_ffff
    }

    /// Instructions are words. Addresses have 52 bits at most (FEAT_LPA2).
    #[inline(always)]
    fn is_code(address: u64) -> bool {
        (LOWEST_CODE..1 << 52).contains(&address) && address.is_multiple_of(4)
    }

    fn leaf_rule(pc: u64, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Rule> {
        let mut instruction = |at| link_register::instruction(at, read);
        let is_live = link_register::is_live(pc, &mut instruction) == Some(true);
        is_live.then_some(Rule::new(Kind::Sp, 0, None, None)?)
    }

    fn leaf(
        registers: &Registers,
        mask: CodeMask,
        stack: Range<u64>,
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Leaf {
        let mut instruction = |at| link_register::instruction(at, read);
        // Without code at pc the thread has called it through a pointer that leads nowhere.
        let is_nowhere = registers.is_wild && instruction(registers.pc).is_none();
        if is_nowhere || link_register::is_live(registers.pc, &mut instruction) == Some(true) {
            return Leaf::Caller {
                address: mask.strip(registers.lr),
                sp: stack.start,
            };
        }
        Leaf::HasRecord
    }
}

impl Architecture for X86_64 {
    /// Swift marks records of async functions in it (LLVM, X86FrameLowering.cpp: bit 60).
    #[inline(always)]
    fn frame_address(fp: u64) -> u64 {
        fp & !EXTENDED
    }

    /// The lower half (`TASK_SIZE_MAX` with five levels of tables: 56 bits).
    #[inline(always)]
    fn is_code(address: u64) -> bool {
        (LOWEST_CODE..1 << 56).contains(&address)
    }

    fn leaf_rule(pc: u64, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Rule> {
        let mut code = [0; return_slot::MOST_BYTES];
        let bytes = copy_code(pc, &mut code, read);
        let depth = return_slot::depth(&code[..bytes])?;
        Rule::new(Kind::Sp, depth as i64 + 8, None, Some(-8))
    }

    fn leaf(
        registers: &Registers,
        _mask: CodeMask,
        stack: Range<u64>,
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Leaf {
        let mut code = [0; return_slot::MOST_BYTES];
        let bytes = copy_code(registers.pc, &mut code, read);
        let depth = match bytes {
            // Without code at pc the thread has called it through a pointer that leads nowhere.
            0 => registers.is_wild.then_some(0),
            _ => return_slot::depth(&code[..bytes]),
        };
        let Some(depth) = depth else {
            return Leaf::HasRecord;
        };
        let slot = registers.sp.wrapping_add(depth);
        match stack_word(slot, &stack, read) {
            Some(address) => Leaf::Caller {
                address,
                sp: slot + 8,
            },
            None => Leaf::HasRecord,
        }
    }
}

/// Copies code from an address on, as far as it can be read. Gives how many bytes.
fn copy_code(at: u64, into: &mut [u8], read: &mut impl FnMut(u64) -> Option<u64>) -> usize {
    let mut word = at & !7;
    let mut skip = (at & 7) as usize;
    let mut copied = 0;
    while copied < into.len()
        && let Some(bytes) = read(word).map(u64::to_le_bytes)
    {
        let part = bytes.get(skip..).unwrap_or_default();
        let count = part.len().min(into.len() - copied);
        for (to, from) in into.iter_mut().skip(copied).zip(part) {
            *to = *from;
        }
        copied += count;
        (word, skip) = (word.wrapping_add(8), 0);
    }
    copied
}
