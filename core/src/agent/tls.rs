//! The thread-local block: one variable, zeroed at thread start.
//!
//! Rust on stable makes general-dynamic accesses in a shared library (twice the cost, and a call that may
//! allocate), so on Linux the variable is declared and reached in assembly. Android and Apple: `by_key`.
//!
//! A thread pointer need not be libc's: a child that shares memory may be started on a dummy block, as
//! Chromium's zygote does (`CLONE_VM`, `CLONE_SETTLS`), and a runtime may point it elsewhere for a while.
//! Then the variable is not where the offset says, and there may be no memory. So each access looks at what
//! libc keeps at the thread pointer first, and such a thread gets a block that stands for all of them:
//! nothing is registered there, ever.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::cycles::{AtomicCycles, Cycles};
use crate::shm::layout::ThreadEntry;

/// What the agent keeps for a thread. Atomics because a signal handler may come in between; no
/// other thread reads it.
#[derive(Debug)]
#[repr(C)]
pub struct Block {
    /// The thread's entry in the shared mapping; null: not registered, or not to be touched.
    pub entry: AtomicPtr<ThreadEntry>,
    /// The tick word that this thread compares with.
    pub tick: AtomicPtr<crate::shm::layout::Tick>,
    /// Count of allocations at which the thread captures, see `agent::event_sampling`.
    pub(crate) next_allocation: AtomicU64,
    /// The same for the thread's allocated bytes.
    pub(crate) next_byte: AtomicU64,
    /// Stack pointer of the capture under way; 0: none.
    pub guard: AtomicUsize,
    /// Private memory, see `capture::Scratch`.
    pub scratch: AtomicPtr<u8>,
    /// The entry while `entry` is taken away (vfork, fork).
    pub saved_entry: AtomicPtr<ThreadEntry>,
    /// Why `entry` is null: bits of [`flag`].
    pub flags: AtomicU32,
    /// Index of the entry.
    pub entry_index: AtomicU32,
    /// The process whose vfork began last, and none inside of its child.
    pub vfork_pid: AtomicU32,
    /// The timer of `agent::call_timer`, plus 1; 0: none.
    pub alarm: AtomicU32,
    /// Allocations counted while a fork has taken the entry away.
    pub(crate) pending_allocations: AtomicU64,
    /// The same for allocated bytes.
    pub(crate) pending_bytes: AtomicU64,
    /// The same for frees.
    pub(crate) pending_frees: AtomicU64,
    /// The program's stack pointer while the thread runs on its own stack (`agent::own_stack`); 0: it does
    /// not.
    pub away: AtomicUsize,
    /// 1: the thread was switched away since its usage was last read, before a wait that is watched for
    /// switches of its own.
    pub switched: AtomicU8,
    /// What waits inside of another one know of the thread's switches (`agent::leave_to_outer`).
    pub switched_inside: AtomicU8,
    /// 1: a poll has returned since the last capture and was not captured itself.
    pub has_iterated: AtomicU8,
    /// Bits of [`thread_bit`].
    pub thread_bits: AtomicU8,
    /// How many signal handlers of the program's have begun on this thread, times 256, and the signal of the
    /// last one. Wraps.
    pub handlers: AtomicU32,
    /// When a hook first left its capture to a signal that is on its way; 0: none does.
    pub held_since: AtomicCycles,
    /// A wait that is over before then is short and has no moment of the thread's
    /// (`agent::requests::length`); 0: not known, as after a wait inside of another one.
    pub short_until: AtomicCycles,
    /// The stack pointer with which the last of those handlers began.
    pub handler_sp: AtomicUsize,
}

/// Bits of [`Block::thread_bits`]: what is known of the signals that the thread blocks.
pub mod thread_bit {
    /// The program blocks the session's first signal, as far as it knows (`agent::leaves_signal_open`).
    pub const BLOCKS_SIGNAL: u8 = 1;
    /// Calls of the program's block SIGURG.
    pub const PROGRAM_BLOCKS_FIRST: u8 = 2;
    /// Calls of the program's block SIGWINCH.
    pub const PROGRAM_BLOCKS_SECOND: u8 = 4;
    /// A handler that blocks SIGURG because we made it so is about to end by a jump.
    pub const LEFT_FIRST: u8 = 8;
    /// The same with SIGWINCH.
    pub const LEFT_SECOND: u8 = 16;
    /// Either of them.
    pub const LEFT: u8 = LEFT_FIRST | LEFT_SECOND;
}

/// Bits of [`Block::flags`].
pub mod flag {
    /// In the child of a vfork: this memory is the parent's.
    pub const VFORK_CHILD: u32 = 1;
    /// Between the hook before fork and the one after it.
    pub const FORKING: u32 = 2;
    /// The thread said that it ends.
    pub const EXITED: u32 = 4;
    /// No entry was free for it; it asks again when one may be.
    pub const REFUSED: u32 = 8;
    /// Inside a vfork that is seen as a wait; what it began with stands in the entry.
    pub const VFORK_WAIT: u32 = 16;
    /// There was no memory for what it keeps to itself, or a filter keeps its number from us.
    pub const NO_MEMORY: u32 = 32;
    /// The thread pointer is not libc's: this block is nobody's.
    pub const FOREIGN: u32 = 64;
    /// A thread of the session itself, inside the program: never captured, never registered.
    pub const OWN: u32 = 128;
    /// Any of them.
    pub const ANY: u32 = u32::MAX;
}

// Room for it in the static block is what `dlopen` has left (`attach`).
const _: () = assert!(size_of::<Block>() <= 192);
// `first_word` reads it.
const _: () = assert!(core::mem::offset_of!(Block, entry) == 0);

/// The block of threads whose thread pointer is not libc's, or that have none.
#[cfg(all(
    any(target_os = "linux", target_os = "android", target_vendor = "apple"),
    not(miri),
    not(loom)
))]
static FOREIGN: Block = Block::with_flags(flag::FOREIGN);

impl Block {
    const fn with_flags(flags: u32) -> Block {
        Block {
            entry: AtomicPtr::new(core::ptr::null_mut()),
            tick: AtomicPtr::new(core::ptr::null_mut()),
            next_allocation: AtomicU64::new(0),
            next_byte: AtomicU64::new(0),
            guard: AtomicUsize::new(0),
            scratch: AtomicPtr::new(core::ptr::null_mut()),
            saved_entry: AtomicPtr::new(core::ptr::null_mut()),
            flags: AtomicU32::new(flags),
            entry_index: AtomicU32::new(0),
            vfork_pid: AtomicU32::new(0),
            alarm: AtomicU32::new(0),
            pending_allocations: AtomicU64::new(0),
            pending_bytes: AtomicU64::new(0),
            pending_frees: AtomicU64::new(0),
            away: AtomicUsize::new(0),
            switched: AtomicU8::new(0),
            switched_inside: AtomicU8::new(0),
            has_iterated: AtomicU8::new(0),
            thread_bits: AtomicU8::new(0),
            handlers: AtomicU32::new(0),
            held_since: AtomicCycles::new(Cycles(0)),
            short_until: AtomicCycles::new(Cycles(0)),
            handler_sp: AtomicUsize::new(0),
        }
    }

    /// True when a bit of [`flag`] is set.
    pub fn has(&self, bits: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & bits != 0
    }

    /// Sets bits.
    pub fn set(&self, bits: u32) {
        self.flags
            .store(self.flags.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
    }

    /// Clears bits.
    pub fn clear(&self, bits: u32) {
        self.flags.store(
            self.flags.load(Ordering::Relaxed) & !bits,
            Ordering::Relaxed,
        );
    }
}

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod imp {
    use super::Block;

    // The section flags and the symbol type are those of the ELF TLS specification (Drepper, "ELF
    // Handling For Thread-Local Storage", 3).
    core::arch::global_asm!(
        ".pushsection .tbss.stackbeat_thread_block,\"awT\",@nobits",
        ".p2align 6",
        ".globl stackbeat_thread_block",
        ".hidden stackbeat_thread_block",
        ".type stackbeat_thread_block, @object",
        ".size stackbeat_thread_block, {bytes}",
        "stackbeat_thread_block:",
        ".zero {bytes}",
        ".popsection",
        bytes = const size_of::<Block>(),
    );

    /// The word at this distance from the thread pointer. Below 48 that is the head of libc's own block,
    /// which is there for whoever calls libc: most of its functions read their canary in it.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn word<const OFFSET: usize>() -> usize {
        let word;
        // SAFETY: as said above; libc never changes these words of a running thread.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr fs:[{offset}]",
                out(reg) word,
                offset = const OFFSET,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        word
    }

    /// By the psABI the first word of a thread's block is its own address. glibc's has it once more in the
    /// third (`tcbhead_t` in sysdeps/x86_64/nptl/tls.h). A dummy block may be filled with one byte, so that
    /// both are equal: such a number is no address of a program's.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn address() -> *const Block {
        const ADDRESS_BITS: u32 = 47;
        let pointer = word::<0>();
        if pointer.wrapping_sub(1) >> ADDRESS_BITS != 0 || pointer != word::<16>() {
            return foreign();
        }
        at(pointer)
    }

    /// For callers whose thread pointer is libc's for certain.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn registered_address() -> *const Block {
        at(word::<0>())
    }

    /// The first word of the block, by the segment register alone: as libc reaches for its own.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn first_word() -> usize {
        let word;
        // SAFETY: the variable's distance from the thread pointer. The library is loaded before libc, so this
        // lies between the thread pointer and what libc reads; an attached one lies in the room that libc
        // leaves for such, in each thread's block.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr fs:[{1}]",
                out(reg) word,
                in(reg) distance(),
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        word
    }

    /// The variable's distance from the thread pointer. Asked for several times in a function it is loaded
    /// once.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn distance() -> usize {
        let distance;
        // SAFETY: initial-exec access as the psABI gives it. The word is constant in a process.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + stackbeat_thread_block@GOTTPOFF]",
                out(reg) distance,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        distance
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn at(pointer: usize) -> *const Block {
        core::ptr::with_exposed_provenance(pointer.wrapping_add(distance()))
    }

    /// Threads that do without libc may have no thread pointer. Asked without a system call, which a filter
    /// might answer with a signal; where the kernel does not let programs ask, there is one.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn has_thread_pointer() -> bool {
        /// arch/x86/include/uapi/asm/hwcap2.h.
        const HWCAP2_FSGSBASE: libc::c_ulong = 2;
        // SAFETY: reads the auxiliary vector; the instruction is there if that says so.
        unsafe {
            if libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE == 0 {
                return true;
            }
            let pointer: usize;
            core::arch::asm!("rdfsbase {0}", out(reg) pointer, options(nomem, nostack, preserves_flags));
            pointer != 0
        }
    }

    #[cfg(target_arch = "aarch64")]
    pub(super) fn has_thread_pointer() -> bool {
        thread_pointer() != 0
    }

    pub(super) fn known_address() -> Option<*const Block> {
        Some(address())
    }

    #[cold]
    fn foreign() -> *const Block {
        &raw const super::FOREIGN
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn thread_pointer() -> usize {
        word::<0>()
    }

    #[cfg(target_arch = "aarch64")]
    pub(super) fn thread_pointer() -> usize {
        let pointer;
        // SAFETY: reads a register.
        unsafe {
            core::arch::asm!(
                "mrs {0}, tpidr_el0",
                out(reg) pointer,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        pointer
    }

    /// glibc's block begins with the thread's table of thread-locals (`tcbhead_t` in
    /// sysdeps/aarch64/nptl/tls.h). A dummy block of zeros has none.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn address() -> *const Block {
        let (pointer, table): (usize, usize);
        // SAFETY: whoever calls libc has a thread pointer to readable memory; the word is constant in a
        // thread.
        unsafe {
            core::arch::asm!(
                "mrs {0}, tpidr_el0",
                "ldr {1}, [{0}]",
                out(reg) pointer,
                out(reg) table,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        if table == 0 {
            return foreign();
        }
        at(pointer)
    }

    /// For callers whose thread pointer is libc's for certain.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn registered_address() -> *const Block {
        at(thread_pointer())
    }

    /// The first word of the block.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn first_word() -> usize {
        // SAFETY: as for libc's own, which lie behind it.
        unsafe { *at(thread_pointer()).cast::<usize>() }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn at(pointer: usize) -> *const Block {
        let address: usize;
        // SAFETY: initial-exec access as the AArch64 ELF ABI gives it: the thread pointer plus the offset in
        // the GOT. Both are constant in a thread.
        unsafe {
            core::arch::asm!(
                "adrp {1}, :gottprel:stackbeat_thread_block",
                "ldr {1}, [{1}, :gottprel_lo12:stackbeat_thread_block]",
                "add {0}, {0}, {1}",
                inlateout(reg) pointer => address,
                out(reg) _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        core::ptr::with_exposed_provenance(address)
    }
}

#[cfg(all(
    any(
        target_os = "android",
        target_vendor = "apple",
        all(test, target_os = "linux")
    ),
    not(miri),
    not(loom)
))]
mod by_key;

#[cfg(all(
    any(target_os = "android", target_vendor = "apple"),
    not(miri),
    not(loom)
))]
mod imp {
    use super::{Block, by_key};

    #[inline(always)]
    pub(super) fn address() -> *const Block {
        by_key::address()
    }

    #[inline(always)]
    pub(super) fn registered_address() -> *const Block {
        by_key::address()
    }

    #[inline(always)]
    pub(super) fn first_word() -> usize {
        // SAFETY: the thread's own.
        unsafe { (*address()).entry.load(super::Ordering::Relaxed) }.addr()
    }

    pub(super) fn known_address() -> Option<*const Block> {
        by_key::known_address()
    }

    /// Not needed here.
    pub(super) fn thread_pointer() -> usize {
        0
    }

    pub(super) fn has_thread_pointer() -> bool {
        true
    }
}

/// For tools that check code by running it.
#[cfg(any(
    miri,
    loom,
    not(any(target_os = "linux", target_os = "android", target_vendor = "apple"))
))]
mod imp {
    use super::Block;

    std::thread_local! {
        static BLOCK: Block = const { Block::with_flags(0) };
    }

    #[inline(always)]
    pub fn address() -> *const Block {
        BLOCK.with(|block| block as *const Block)
    }

    #[inline(always)]
    pub fn registered_address() -> *const Block {
        address()
    }

    #[inline(always)]
    pub fn first_word() -> usize {
        // SAFETY: the thread's own.
        unsafe { (*address()).entry.load(super::Ordering::Relaxed) }.addr()
    }

    pub fn known_address() -> Option<*const Block> {
        Some(address())
    }

    pub fn thread_pointer() -> usize {
        0
    }

    pub fn has_thread_pointer() -> bool {
        true
    }
}

/// The calling thread's pointer to its own thread-locals; 0 where it is not known.
pub fn thread_pointer() -> usize {
    imp::thread_pointer()
}

/// Whether the calling thread has a thread pointer at all: whoever calls libc has one, who is interrupted by
/// a signal may not.
pub fn has_thread_pointer() -> bool {
    imp::has_thread_pointer()
}

/// The calling thread's block. Valid until the thread is gone; never hand it to another thread.
#[inline(always)]
pub fn block() -> &'static Block {
    // SAFETY: the address is that of this thread's zeroed (so valid) variable, which lives as long
    // as code can run in the thread, or that of a static.
    unsafe { &*imp::address() }
}

/// The calling thread's block, if it has one: nothing is made, and no memory is mapped.
pub fn known_block() -> Option<&'static Block> {
    // SAFETY: as in `block`.
    imp::known_address().map(|block| unsafe { &*block })
}

/// The calling thread's entry ([`Block::entry`]), for what libc itself does not do without its own
/// thread-locals: `malloc` and `free` reach for their cache there first. So nothing needs to be asked that
/// [`block`] asks.
#[inline(always)]
pub fn entry_by_libc() -> *const ThreadEntry {
    core::ptr::with_exposed_provenance(imp::first_word())
}

/// [`block`] for a thread that has an entry.
#[inline(always)]
pub fn registered_block() -> &'static Block {
    // SAFETY: as in `block`; whoever has an entry has libc's thread pointer.
    unsafe { &*imp::registered_address() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_its_own_zeroed_block() {
        assert_eq!(block().guard.load(Ordering::Relaxed), 0);
        block().guard.store(7, Ordering::Relaxed);
        let mine = block() as *const Block as usize;
        let (other, value) = std::thread::spawn(|| {
            (
                block() as *const Block as usize,
                block().guard.load(Ordering::Relaxed),
            )
        })
        .join()
        .expect("the thread does not panic");
        assert_ne!(mine, other);
        assert_eq!(value, 0);
        assert_eq!(block().guard.load(Ordering::Relaxed), 7);
        block().guard.store(0, Ordering::Relaxed);
    }
}
