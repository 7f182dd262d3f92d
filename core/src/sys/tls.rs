//! The thread-local block: one initial-exec variable, zeroed at thread start, without destructor.
//!
//! Rust on stable makes general-dynamic accesses in a shared library (twice the cost, and a call
//! that may allocate), so on Linux the variable is declared and reached in assembly.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::layout::ThreadEntry;

/// What the agent keeps for a thread. Atomics because a signal handler may come in between; no
/// other thread reads it.
#[derive(Debug)]
#[repr(C)]
pub struct Block {
    /// The thread's entry in the shared mapping; null: not registered, or not to be touched.
    pub entry: AtomicPtr<ThreadEntry>,
    /// The tick word that this thread compares with.
    pub tick: AtomicPtr<crate::layout::Tick>,
    /// Counts of allocations and bytes at which the thread captures, see `agent::counted`.
    pub next_allocation: AtomicU64,
    pub next_byte: AtomicU64,
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
    /// 1: the thread can be cancelled at any instruction.
    pub cancels_at_once: AtomicU32,
    /// Counted while the entry is taken away by a fork.
    pub pending_allocations: AtomicU64,
    pub pending_bytes: AtomicU64,
    pub pending_frees: AtomicU64,
    /// 1: a poll has returned since the last capture and was not captured itself.
    pub turned: AtomicU32,
    /// 1: the thread was switched away since its usage was last read, before a wait that is watched for switches of its own.
    pub switched: AtomicU32,
    /// When a hook first left its capture to a signal that is on its way, in cycles; 0: none does.
    pub held_since: AtomicU64,
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
    /// There was no memory for what it keeps to itself.
    pub const NO_MEMORY: u32 = 32;
    /// Any of them.
    pub const ANY: u32 = u32::MAX;
}

const _: () = assert!(size_of::<Block>() <= 128);

impl Block {
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
        ".size stackbeat_thread_block, 128",
        "stackbeat_thread_block:",
        ".zero 128",
        ".popsection",
    );

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn address() -> *const Block {
        let address: usize;
        // SAFETY: initial-exec access as the psABI gives it: the thread pointer is at fs:0, the GOT
        // holds the variable's offset from it. Both are constant in a thread.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr fs:[0]",
                "add {0}, qword ptr [rip + stackbeat_thread_block@GOTTPOFF]",
                out(reg) address,
                options(pure, nomem, nostack),
            );
        }
        core::ptr::with_exposed_provenance(address)
    }

    #[cfg(target_arch = "x86_64")]
    pub fn thread_pointer() -> usize {
        let pointer;
        // SAFETY: the psABI keeps the thread pointer at fs:0.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr fs:[0]",
                out(reg) pointer,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        pointer
    }

    #[cfg(target_arch = "aarch64")]
    pub fn thread_pointer() -> usize {
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

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub fn address() -> *const Block {
        let address: usize;
        // SAFETY: initial-exec access as the AArch64 ELF ABI gives it: tpidr_el0 plus the offset in
        // the GOT. Both are constant in a thread.
        unsafe {
            core::arch::asm!(
                "adrp {1}, :gottprel:stackbeat_thread_block",
                "ldr {1}, [{1}, :gottprel_lo12:stackbeat_thread_block]",
                "mrs {0}, tpidr_el0",
                "add {0}, {0}, {1}",
                out(reg) address,
                out(reg) _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        core::ptr::with_exposed_provenance(address)
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
mod imp {
    use super::Block;
    use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

    std::thread_local! {
        static BLOCK: Block = const {
            Block {
                entry: AtomicPtr::new(core::ptr::null_mut()),
                tick: AtomicPtr::new(core::ptr::null_mut()),
                next_allocation: AtomicU64::new(0),
                next_byte: AtomicU64::new(0),
                guard: AtomicUsize::new(0),
                scratch: AtomicPtr::new(core::ptr::null_mut()),
                saved_entry: AtomicPtr::new(core::ptr::null_mut()),
                flags: AtomicU32::new(0),
                entry_index: AtomicU32::new(0),
                vfork_pid: AtomicU32::new(0),
                cancels_at_once: AtomicU32::new(0),
                pending_allocations: AtomicU64::new(0),
                pending_bytes: AtomicU64::new(0),
                pending_frees: AtomicU64::new(0),
                turned: AtomicU32::new(0),
                switched: AtomicU32::new(0),
                held_since: AtomicU64::new(0),
            }
        };
    }

    #[inline(always)]
    pub fn address() -> *const Block {
        BLOCK.with(|block| block as *const Block)
    }

    pub fn thread_pointer() -> usize {
        0
    }
}

/// The calling thread's pointer to its own thread-locals; 0 where it is not known.
pub fn thread_pointer() -> usize {
    imp::thread_pointer()
}

/// The calling thread's block. Valid until the thread is gone; never hand it to another thread.
#[inline(always)]
pub fn block() -> &'static Block {
    // SAFETY: the address is that of this thread's zeroed (so valid) variable, which lives as long
    // as code can run in the thread.
    unsafe { &*imp::address() }
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
