//! The innermost frame of a walk, where a thread was interrupted, and what else differs between
//! architectures.

use super::link_register;
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

    /// The rule of an interrupted function that has no record at `pc`, as far as the instructions there tell.
    /// Only where calls put return addresses on the stack.
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

    fn leaf_rule(_pc: u64, _read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Rule> {
        None
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
        let code = code_bytes(pc.wrapping_sub(8), read)?;
        let depth = Bytes(code).return_address()?;
        Rule::new(Kind::Sp, depth as i64 + 8, None, Some(-8))
    }

    fn leaf(
        registers: &Registers,
        _mask: CodeMask,
        stack: Range<u64>,
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Leaf {
        let code = code_bytes(registers.pc.wrapping_sub(8), read);
        let depth = match code.map(|code| Bytes(code).return_address()) {
            None if registers.is_wild => Some(0),
            None => None,
            Some(depth) => depth,
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

/// Sixteen bytes from an address on.
fn code_bytes(at: u64, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<[u8; 16]> {
    let first = at & !7;
    let mut words = [0u8; 24];
    for (i, place) in words.chunks_exact_mut(8).enumerate() {
        match read(first.wrapping_add(8 * i as u64)) {
            Some(word) => place.copy_from_slice(&word.to_le_bytes()),
            // What follows may be the end of the code.
            None if i == 2 => {}
            None => return None,
        }
    }
    let skip = (at & 7) as usize;
    words.get(skip..skip + 16)?.try_into().ok()
}

/// Eight bytes in front of the pc, and eight from it on.
struct Bytes([u8; 16]);

impl Bytes {
    fn begins(&self, with: &[u8]) -> bool {
        self.0[8..].starts_with(with)
    }

    /// How far above the stack pointer the return address lies, if there is no record: in front of `push
    /// rbp`, in front of `mov rbp, rsp`, at `ret`, and in an entry of a table of imports.
    fn return_address(&self) -> Option<u64> {
        const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
        const PUSH_RBP: u8 = 0x55;
        const MOV_RBP_RSP: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];
        const RETURNS: [&[u8]; 4] = [&[0xc3], &[0xc2], &[0xf3, 0xc3], &[0xf2, 0xc3]];
        // `jmp [rip + …]`, alone or behind `bnd`.
        const IMPORTS: [&[u8]; 2] = [&[0xff, 0x25], &[0xf2, 0xff, 0x25]];
        let at = if self.begins(&ENDBR64) { 12 } else { 8 };
        let code = &self.0[at..];
        let is_one_of = |list: &[&[u8]]| list.iter().any(|one| code.starts_with(one));
        if is_one_of(&RETURNS) || is_one_of(&IMPORTS) {
            return Some(0);
        }
        // Four bytes fit behind a landing pad.
        let is_prologue = |code: &[u8]| MOV_RBP_RSP.iter().any(|mov| code.starts_with(mov));
        if code[0] == PUSH_RBP && is_prologue(&code[1..]) {
            return Some(0);
        }
        (self.0[7] == PUSH_RBP && is_prologue(code)).then_some(8)
    }
}
