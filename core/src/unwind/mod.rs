//! Unwinding: which calls led to where a thread is now. Registers go in, addresses come out.
//!
//! Stands between a hook and the CallstackTable.
//! - `rule`: what leads from a frame to its caller, in one word
//! - `cfi`: from a module's unwind tables to a rule; `full`: a step that no rule can describe
//! - `cache`: code address → rule, process-wide
//! - `walk`: the walk itself, with verified reuse of the thread's last stack; `rare`: its rare steps
//! - `frame_pointer`: the walk along saved frame pointers, where code keeps them
//! - `elf`: what finding tables takes
//!
//! Runs on the slow path of a capture, in hooks and in signal handlers: may not allocate, lock, or
//! call a hooked function.

pub mod cache;
pub mod cfi;
pub mod elf;
mod frame_pointer;
pub mod full;
pub mod rule;
pub mod walk;

pub use frame_pointer::{Aarch64, Architecture, CodeMask, FramePointerWalker, Native, X86_64};

/// Deepest stack that a capture can hold, whatever the configured limit.
pub const MAX_DEPTH: usize = 1024;

/// Registers that a walk begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    /// Address of the code: rip, pc.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// rbp, x29.
    pub fp: u64,
    /// Link register; 0 on x86-64.
    pub lr: u64,
    /// The other callee-saved registers: rbx, r12 to r15. Few frames need them (those of lazy
    /// binding); where they are not known they are 0, and such a frame ends the walk.
    pub saved: [u64; 5],
    /// The processor could not read code at `pc`: if none belongs there, the thread has called it through a
    /// pointer that leads nowhere.
    pub is_wild: bool,
}

/// Where a walk begins.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Registers of the innermost frame.
    pub registers: &'a Registers,
    /// `registers.pc` is the next instruction, not a return address.
    pub exact: bool,
    /// Upper end of the thread's own stack: tells stacks apart.
    pub high: u64,
    /// Frames at the leaf end whose code lies here are left out.
    pub skip: (u64, u64),
}

impl Registers {
    /// The registers of the function that this is inlined into, at this point.
    #[inline(always)]
    pub fn here() -> Registers {
        let mut r = Registers::default();
        // SAFETY: a local.
        unsafe { Registers::store_here(&raw mut r) };
        r
    }

    /// As [`Registers::here`], without a place for them on the stack.
    ///
    /// # Safety
    /// `to` can be written to.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub unsafe fn store_here(to: *mut Registers) {
        // SAFETY: by contract; all but the link register and the flag are copied from registers.
        unsafe {
            (*to).lr = 0;
            (*to).is_wild = false;
            core::arch::asm!(
                "lea {scratch}, [rip]",
                "mov [{to}], {scratch}",
                "mov [{to} + 8], rsp",
                "mov [{to} + 16], rbp",
                "mov [{to} + 32], rbx",
                "mov [{to} + 40], r12",
                "mov [{to} + 48], r13",
                "mov [{to} + 56], r14",
                "mov [{to} + 64], r15",
                to = in(reg) to,
                scratch = out(reg) _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// As [`Registers::here`], without a place for them on the stack.
    ///
    /// # Safety
    /// `to` can be written to.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub unsafe fn store_here(to: *mut Registers) {
        let (pc, sp, fp, lr): (u64, u64, u64, u64);
        // SAFETY: by contract; otherwise only reads registers.
        unsafe {
            core::arch::asm!("adr {pc}, .", "mov {sp}, sp", "mov {fp}, x29", "mov {lr}, x30",
                pc = out(reg) pc, sp = out(reg) sp, fp = out(reg) fp, lr = out(reg) lr,
                options(nomem, nostack, preserves_flags));
            to.write(Registers {
                pc,
                sp,
                fp,
                lr,
                saved: [0; 5],
                is_wild: false,
            });
        }
    }
}

/// Where a function is at the moment: pc, stack pointer, frame pointer. What it takes to walk its stack from
/// outside for as long as it does not return, because everything else that its callers need it has saved.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn here() -> [u64; 3] {
    let (pc, sp, fp): (u64, u64, u64);
    // SAFETY: only reads registers.
    unsafe {
        core::arch::asm!("lea {pc}, [rip]", "mov {sp}, rsp", "mov {fp}, rbp",
            pc = out(reg) pc, sp = out(reg) sp, fp = out(reg) fp,
            options(nomem, nostack, preserves_flags));
    }
    [pc, sp, fp]
}

/// Where a function is at the moment: pc, stack pointer, frame pointer. What it takes to walk its stack from
/// outside for as long as it does not return, because everything else that its callers need it has saved.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn here() -> [u64; 3] {
    let (pc, sp, fp): (u64, u64, u64);
    // SAFETY: only reads registers.
    unsafe {
        core::arch::asm!("adr {pc}, .", "mov {sp}, sp", "mov {fp}, x29",
            pc = out(reg) pc, sp = out(reg) sp, fp = out(reg) fp,
            options(nomem, nostack, preserves_flags));
    }
    [pc, sp, fp]
}

/// The part of a stack that may be read: addresses in `low..high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackBounds {
    /// Lowest address.
    pub low: u64,
    /// First address above.
    pub high: u64,
    /// What to add to a stack address to get the address where its bytes are read: 0 for the
    /// stack itself, else the way to a copy of it.
    shift: u64,
}

impl StackBounds {
    /// The calling thread's stack, read where it is.
    ///
    /// # Safety
    /// Every byte of `low..high` must be readable as long as this value is used.
    pub const unsafe fn of_stack(low: u64, high: u64) -> StackBounds {
        StackBounds {
            low,
            high,
            shift: 0,
        }
    }

    /// Bytes that stand for the stack at `low`.
    ///
    /// # Safety
    /// `copy` must stay readable as long as this value is used.
    pub unsafe fn of_copy(low: u64, copy: &[u8]) -> StackBounds {
        StackBounds {
            low,
            high: low.wrapping_add(copy.len() as u64),
            shift: (copy.as_ptr() as u64).wrapping_sub(low),
        }
    }

    /// The word at a stack address, if it is aligned and inside the bounds.
    #[inline(always)]
    pub fn read(&self, address: u64) -> Option<u64> {
        if address & 7 != 0 || address < self.low || address >= self.high {
            return None;
        }
        if self.high - address < 8 {
            return None;
        }
        // SAFETY: the address is aligned and eight bytes from it lie inside.
        Some(unsafe { self.read_unchecked(address) })
    }

    /// The word at a stack address.
    ///
    /// # Safety
    /// The address is aligned to 8, and the eight bytes there lie inside the bounds.
    #[inline(always)]
    pub(crate) unsafe fn read_unchecked(&self, address: u64) -> u64 {
        let place = address.wrapping_add(self.shift) as usize;
        // SAFETY: the constructors' callers promised that the bounds are readable. Volatile: other
        // threads may write there, and any value will do.
        unsafe { core::ptr::with_exposed_provenance::<u64>(place).read_volatile() }
    }
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// At the outermost frame.
    Root,
    /// The limit was reached; the root is missing.
    Depth,
    /// In code that no table describes, where frame pointers led nowhere; the root is missing.
    Unknown,
    /// At a word that cannot be read or makes no sense; the root is missing.
    BadStack,
    /// At a frame that needs registers which are not known; the root is missing.
    Unsupported,
}

/// The addresses of a walk, leaf first, in fixed memory. All-zero bytes are an empty one.
#[derive(Debug)]
#[repr(C)]
pub struct Frames {
    len: usize,
    limit: usize,
    /// The outermost so many frames are those of the same walker's last walk, which ended at the
    /// root and whose result capture still knows the nodes of. They need not be looked up again.
    pub same_outermost: usize,
    /// Frames from here up to there, counted from the leaf, are no callers: they go on when the frame below
    /// them in this list is done (Swift's async functions).
    awaiting: (usize, usize),
    addresses: [u64; MAX_DEPTH],
}

impl Frames {
    /// No frames, room for at most `limit`.
    pub const fn new(limit: usize) -> Frames {
        Frames {
            len: 0,
            limit: if limit > MAX_DEPTH { MAX_DEPTH } else { limit },
            same_outermost: 0,
            awaiting: (0, 0),
            addresses: [0; MAX_DEPTH],
        }
    }

    /// Empties it and sets the limit.
    #[inline]
    pub fn clear(&mut self, limit: usize) {
        self.len = 0;
        self.limit = limit.min(MAX_DEPTH);
        self.same_outermost = 0;
        self.awaiting = (0, 0);
    }

    /// Adds the next outer frame; false when the limit is reached.
    #[inline(always)]
    pub fn push(&mut self, address: u64) -> bool {
        if self.len >= self.limit {
            return false;
        }
        let Some(slot) = self.addresses.get_mut(self.len) else {
            return false;
        };
        *slot = address;
        self.len += 1;
        true
    }

    /// Whether a frame, counted from the leaf, is where an async function goes on that waits for the one
    /// before it. Its address is the begin of that code, no return address.
    #[inline]
    pub fn is_awaiting(&self, index: usize) -> bool {
        (self.awaiting.0..self.awaiting.1).contains(&index)
    }

    /// The addresses, leaf first.
    #[inline]
    pub fn addresses(&self) -> &[u64] {
        self.addresses.get(..self.len).unwrap_or(&[])
    }

    /// Most frames it may hold.
    #[inline]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when nothing was found.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A thread's walker with what it remembers from one capture to the next.
///
/// Lives in the thread's scratch memory, which is mapped zeroed and never constructed.
///
/// # Safety
/// All-zero bytes must be a valid value that has seen nothing yet.
pub unsafe trait StackWalker {
    /// Walks from `registers`. The first frame is `registers.pc`: an exact program counter when
    /// `exact_leaf`, else a return address. Frames of this library itself are left out.
    fn walk(
        &mut self,
        registers: &Registers,
        bounds: &StackBounds,
        exact_leaf: bool,
        out: &mut Frames,
    ) -> WalkEnd;
}

/// A code address without its signature (pointer authentication).
#[inline(always)]
fn strip(address: u64) -> u64 {
    CodeMask::native().strip(address)
}
