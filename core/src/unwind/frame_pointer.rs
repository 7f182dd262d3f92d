//! The walk along saved frame pointers, for code that keeps them: Android's and Apple's arm64.
//!
//! A function that calls others keeps a record {frame pointer of its caller, return address} on the stack,
//! and the frame pointer leads to it (AAPCS64, 6.4.6 "The Frame Pointer"; the System V ABI of x86-64 the same
//! with rbp). Where a thread was interrupted, the innermost function may have no record yet, or any more, or
//! none at all: `leaf` finds out.
//!
//! A walk reads the records above the stack pointer, inside the bounds of the thread's stack, each above the
//! one before. So it ends, whatever the stack holds. Return addresses may be signed (pointer authentication):
//! `CodeMask`.
//!
//! The walker keeps the records of its last walk that came to the root. A walk that reaches one of them has
//! the same rest if every word that was read from there on is unchanged, because a step depends on nothing
//! else.
//!
//! Swift's async functions wait without a stack: `swift_async` finds who waits for one that runs.
//!
//! Pure: registers and a way to read words go in, addresses come out. No allocation, no lock. Both
//! architectures are compiled on every host.

mod leaf;
mod link_register;
mod return_slot;
mod swift_async;
#[cfg(test)]
mod tests;

use super::{Frames, MAX_DEPTH, Registers, StackBounds, StackWalker, Start, WalkEnd};
use core::ops::Range;
use leaf::Leaf;

pub use leaf::{Aarch64, Architecture, Native, X86_64};

/// Addresses below this are no code (Linux' default mmap_min_addr is 64 KiB, Darwin's page 0 is 4 GiB).
const LOWEST_CODE: u64 = 4096;

/// What remains of a signed return address.
///
/// The signature fills the bits from the width of addresses (39 to 52 on arm64) up to bit 54. Bit 55 says
/// which half of the address space it is (Arm ARM, `Strip`, the instruction XPACI).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeMask(u64);

impl CodeMask {
    /// Nothing is signed: only the top byte goes, which is no part of a code address.
    pub const UNSIGNED: CodeMask = CodeMask(0x007f_ffff_ffff_ffff);

    /// Addresses of so many bits.
    pub const fn of_width(bits: u32) -> CodeMask {
        match bits {
            0 | 56.. => CodeMask::UNSIGNED,
            bits => CodeMask((1 << bits) - 1),
        }
    }

    /// Of this process: the width differs between kernels. The processor says it with one instruction, which
    /// does nothing where addresses are not signed.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub fn native() -> CodeMask {
        use core::sync::atomic::{AtomicU64, Ordering};
        static KNOWN: AtomicU64 = AtomicU64::new(0);

        #[cold]
        fn learn() -> u64 {
            let mut all = CodeMask::UNSIGNED.0;
            // SAFETY: `hint 7` is XPACLRI, which changes x30 only.
            unsafe {
                core::arch::asm!(
                    "mov x30, {0}",
                    "hint 7",
                    "mov {0}, x30",
                    inlateout(reg) all,
                    out("x30") _,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            KNOWN.store(all, Ordering::Relaxed);
            all
        }

        match KNOWN.load(Ordering::Relaxed) {
            0 => CodeMask(learn()),
            known => CodeMask(known),
        }
    }

    /// Return addresses are not signed here.
    #[cfg(not(target_arch = "aarch64"))]
    #[inline(always)]
    pub fn native() -> CodeMask {
        CodeMask(u64::MAX)
    }

    /// The address without its signature.
    #[inline(always)]
    pub const fn strip(self, address: u64) -> u64 {
        const UPPER_HALF: u64 = 1 << 55;
        match address & UPPER_HALF {
            0 => address & self.0,
            _ => address | !self.0,
        }
    }
}

/// A frame's record as it was read.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// Where it lies.
    at: u64,
    /// Its first word, which leads to the caller's record.
    fp: u64,
    /// Its second word, maybe signed.
    return_address: u64,
}

/// Follows the chain of records of x86-64 and AArch64. All-zero bytes are a walker that has seen nothing.
#[derive(Debug)]
#[repr(C)]
pub struct FramePointerWalker {
    /// Upper end of the stack whose records are kept.
    high: u64,
    /// Records kept of the last walk, the outermost first.
    len: usize,
    /// Marked records are those of Swift's async functions.
    knows_swift: bool,
    records: [Record; MAX_DEPTH],
    /// New ones of the walk under way, the innermost first.
    found: [Record; MAX_DEPTH],
}

impl Default for FramePointerWalker {
    fn default() -> Self {
        FramePointerWalker::new()
    }
}

impl FramePointerWalker {
    /// A walker that has seen nothing.
    pub const fn new() -> FramePointerWalker {
        const NONE: Record = Record {
            at: 0,
            fp: 0,
            return_address: 0,
        };
        FramePointerWalker {
            high: 0,
            len: 0,
            knows_swift: false,
            records: [NONE; MAX_DEPTH],
            found: [NONE; MAX_DEPTH],
        }
    }

    /// From here on marked records are taken for those of Swift's async functions, as on Apple's systems.
    /// Then `read` is asked for words of the heap, too.
    pub fn knows_swift(&mut self) {
        self.knows_swift = true;
    }

    /// Walks the stack between `low` and `from.high`. `read` gives the word at an address that is a multiple
    /// of 8: on the stack, or of code near the pc of an exact leaf. `None`: it cannot be read. Nothing else
    /// is read.
    pub fn walk_stack<A: Architecture>(
        &mut self,
        from: &Start<'_>,
        low: u64,
        mask: CodeMask,
        read: &mut impl FnMut(u64) -> Option<u64>,
        out: &mut Frames,
    ) -> WalkEnd {
        if self.high != from.high {
            self.len = 0;
            self.high = from.high;
        }
        // The record of the last walk to compare with next.
        let mut candidate = core::mem::take(&mut self.len);
        let registers = from.registers;
        let mut sink = Sink {
            skip: from.skip,
            out,
        };
        if !sink.push(registers.pc) {
            return WalkEnd::Depth;
        }
        // Records lie at or above this.
        let mut floor = registers.sp.max(low);
        let mut at = A::frame_address(registers.fp);
        if from.exact {
            let stack = floor..from.high;
            match A::leaf(registers, mask, stack, read) {
                Leaf::HasRecord => {}
                Leaf::Caller { address: 0, .. } => return WalkEnd::Root,
                Leaf::Caller { address, .. } if !A::is_code(address) => return WalkEnd::Unknown,
                Leaf::Caller { address, .. } if !sink.push(address) => return WalkEnd::Depth,
                Leaf::Caller { sp, .. } => floor = floor.max(sp),
            }
        }
        // How many of the last walk's records are unchanged: compared once, when first needed. Those met
        // later lie outward.
        let mut intact = None;
        let (mut reused, mut found) = (0, 0);
        // Records up to the last one of an async function: who waits for that may be another one next time.
        let mut not_kept = 0;
        let end = loop {
            if at == 0 {
                break WalkEnd::Root;
            }
            let is_inside = at < from.high && from.high - at >= 16;
            if at < floor || !at.is_multiple_of(8) || !is_inside {
                break WalkEnd::Unknown;
            }
            while candidate > 0 && self.records[candidate - 1].at < at {
                candidate -= 1;
            }
            if candidate > 0 && self.records[candidate - 1].at == at {
                let kept = &self.records[..candidate];
                if candidate <= *intact.get_or_insert_with(|| unchanged(kept, read)) {
                    reused = candidate;
                    break push_kept(kept, mask, &mut sink);
                }
            }
            let (Some(fp), Some(return_address)) = (read(at), read(at + 8)) else {
                break WalkEnd::Unknown;
            };
            // A record for each frame, and one more that says that there is no frame.
            let Some(place) = self.found.get_mut(found) else {
                break WalkEnd::Depth;
            };
            *place = Record {
                at,
                fp,
                return_address,
            };
            found += 1;
            if self.knows_swift && swift_async::is_extended(fp) {
                let is_first = not_kept == 0;
                not_kept = found;
                // Further out an executor has run inside of another one: its function waits for nobody here.
                if is_first && !swift_async::push::<A>(at, mask, read, sink.out) {
                    break WalkEnd::Depth;
                }
            }
            match mask.strip(return_address) {
                0 => break WalkEnd::Root,
                address if !A::is_code(address) => break WalkEnd::Unknown,
                address if !sink.push(address) => break WalkEnd::Depth,
                _ => {}
            }
            floor = at + 16;
            at = A::frame_address(fp);
        };
        if end == WalkEnd::Root && reused + found <= MAX_DEPTH {
            let places = self.records[reused..].iter_mut();
            for (place, record) in places.zip(self.found[not_kept..found].iter().rev()) {
                *place = *record;
            }
            self.len = reused + found - not_kept;
        }
        end
    }

    /// Forgets the last walk.
    pub fn forget(&mut self) {
        self.len = 0;
    }
}

/// How many of these records, the outermost first, hold what they held.
fn unchanged(records: &[Record], read: &mut impl FnMut(u64) -> Option<u64>) -> usize {
    let is_changed = |record: &Record| {
        read(record.at) != Some(record.fp) || read(record.at + 8) != Some(record.return_address)
    };
    records.iter().position(is_changed).unwrap_or(records.len())
}

/// Pushes the frames of records that the last walk has read, which came to the root.
fn push_kept(records: &[Record], mask: CodeMask, sink: &mut Sink<'_>) -> WalkEnd {
    let before = sink.out.len();
    for record in records.iter().rev() {
        match mask.strip(record.return_address) {
            // Only the outermost one can have none.
            0 => {}
            address if !sink.push(address) => return WalkEnd::Depth,
            _ => {}
        }
    }
    // The last walk has pushed these and, where own code is left out, maybe frames further in.
    sink.out.same_outermost = sink.out.len() - before;
    WalkEnd::Root
}

/// Where frames go.
struct Sink<'a> {
    /// Frames at the leaf end whose code lies here are left out.
    skip: (u64, u64),
    out: &'a mut Frames,
}

impl Sink<'_> {
    /// Takes the next outer frame; false when the limit is reached.
    #[inline(always)]
    fn push(&mut self, address: u64) -> bool {
        let is_own = self.skip.0 <= address && address < self.skip.1;
        (is_own && self.out.is_empty()) || self.out.push(address)
    }
}

/// The word of a stack, if it is aligned and inside.
fn stack_word(
    address: u64,
    stack: &Range<u64>,
    read: &mut impl FnMut(u64) -> Option<u64>,
) -> Option<u64> {
    let is_inside = stack.contains(&address) && stack.end - address >= 8;
    (is_inside && address.is_multiple_of(8)).then(|| read(address))?
}

// SAFETY: numbers, for which all-zero means that nothing was seen.
unsafe impl StackWalker for FramePointerWalker {
    /// Reads the stack only. So the caller of an exact leaf without a record is missing.
    fn walk(
        &mut self,
        registers: &Registers,
        bounds: &StackBounds,
        exact_leaf: bool,
        out: &mut Frames,
    ) -> WalkEnd {
        let from = Start {
            registers,
            exact: exact_leaf,
            high: bounds.high,
            skip: (0, 0),
        };
        let mut read = |address| bounds.read(address);
        self.walk_stack::<Native>(&from, bounds.low, CodeMask::native(), &mut read, out)
    }
}
