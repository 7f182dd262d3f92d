//! The innermost frame of a walk, where a thread was interrupted, and what else differs between
//! architectures.

use super::link_register;
use super::return_slot::{self, Slot};
use super::{CodeMask, LOWEST_CODE, Registers, stack_word};
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

    /// The rule of an interrupted function if the frame pointer does not lead to its record, as far as the
    /// code from there on tells. `lr` is 0 where it is not known.
    fn leaf_rule(registers: &Registers, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Rule>;

    /// Whether an address is where a call returns to: one stands in front of it.
    fn is_behind_call(address: u64, read: &mut impl FnMut(u64) -> Option<u64>) -> bool;

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

    fn leaf_rule(registers: &Registers, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Rule> {
        let mut instruction = |at| link_register::instruction(at, read);
        let is_live = registers.lr != 0
            && link_register::is_live(registers.pc, &mut instruction) == Some(true);
        is_live.then_some(Rule::new(Kind::Sp, 0, None, None)?)
    }

    /// `bl`, `blr`, and its forms that authenticate (Arm ARM, C4.1.66).
    fn is_behind_call(address: u64, read: &mut impl FnMut(u64) -> Option<u64>) -> bool {
        let call = link_register::instruction(address.wrapping_sub(4), read);
        call.is_some_and(|call| {
            call >> 26 == 0x25
                || call & 0xffff_fc1f == 0xd63f_0000
                || call & 0xfeff_f800 == 0xd63f_0800
        })
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

    fn leaf_rule(registers: &Registers, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Rule> {
        let slot = find_slot(registers, read)??;
        let cfa = slot.return_address as i64 + 8;
        let fp = slot.frame_pointer.map(|at| at as i64 - cfa);
        Rule::new(Kind::Sp, cfa, fp, Some(-8))
    }

    fn is_behind_call(address: u64, read: &mut impl FnMut(u64) -> Option<u64>) -> bool {
        let mut before = [0; 8];
        copy_code(address.wrapping_sub(8), &mut before, read) == before.len()
            && return_slot::is_behind_call(before)
    }

    fn leaf(
        registers: &Registers,
        _mask: CodeMask,
        stack: Range<u64>,
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Leaf {
        let offset = match find_slot(registers, read) {
            // Without code at pc the thread has called it through a pointer that leads nowhere.
            None => registers.is_wild.then_some(0),
            // One that restores the frame pointer has a record.
            Some(slot) => slot
                .filter(|slot| slot.frame_pointer.is_none())
                .map(|slot| slot.return_address),
        };
        let slot = offset.map(|offset| registers.sp.wrapping_add(offset));
        let found = slot.and_then(|slot| Some((stack_word(slot, &stack, read)?, slot)));
        match found {
            Some((address, slot)) => Leaf::Caller {
                address,
                sp: slot + 8,
            },
            None => Leaf::HasRecord,
        }
    }
}

/// Where the function at `registers.pc` has its return address, if the frame pointer does not lead there. The
/// outer `None`: there is no code.
fn find_slot(
    registers: &Registers,
    read: &mut impl FnMut(u64) -> Option<u64>,
) -> Option<Option<Slot>> {
    let mut code = [0; return_slot::MOST_BYTES];
    let bytes = copy_code(registers.pc, &mut code, read);
    let code = code.get(..bytes).filter(|code| !code.is_empty())?;
    Some(return_slot::find(code).filter(|slot| {
        let record = registers
            .sp
            .wrapping_add(slot.return_address)
            .wrapping_sub(8);
        let fp = registers.fp;
        !slot.is_of_record || read(record) == Some(fp) && (fp == 0 || fp > record)
    }))
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
