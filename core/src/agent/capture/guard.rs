//! One capture at a time on a thread.

use core::sync::atomic::compiler_fence;

use crate::agent::thread;
use crate::sync::Ordering;
use crate::sys;
use crate::sys::tls::Block;

/// The re-entrancy guard: one capture at a time on a thread. Holds the stack pointer, so that one
/// left behind by a longjmp out of a signal handler is recognized.
pub(in crate::agent) struct Guard<'a> {
    block: &'a Block,
}

impl<'a> Guard<'a> {
    /// Enters unless the thread is inside already.
    #[inline(always)]
    pub fn enter(block: &'a Block) -> Option<Guard<'a>> {
        let here = 0u8;
        let sp = (&raw const here).addr();
        let held = block.guard.load(Ordering::Relaxed);
        if held != 0 && !Self::is_stale(block, held, sp) {
            return None;
        }
        block.guard.store(sp, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        Some(Guard { block })
    }

    /// The frame that took it has been left: the stack pointer is above it, on the same stack.
    #[cold]
    fn is_stale(block: &Block, held: usize, sp: usize) -> bool {
        // SAFETY: only the bounds are read, which change under the guard on this thread only.
        let Some(scratch) = (unsafe { thread::scratch(block) }) else {
            return false;
        };
        let own = scratch.stack_low as usize..scratch.stack_high as usize;
        own.contains(&held) && own.contains(&sp) && sp > held
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.block.guard.store(0, Ordering::Relaxed);
    }
}

/// Runs a capture in a thread that can be cancelled at any instruction: libc would unwind it, and a panic's `catch_unwind` ends
/// the process then. Nothing here may need a landing pad.
#[cold]
#[inline(never)]
pub(super) fn uncancelled(capture: impl FnOnce() -> u32) -> u32 {
    /// The signals by which libc cancels: 32 in glibc, 33 in musl (`SIGCANCEL` of their pthreadP.h and pthread_impl.h).
    const CANCELLATION: u64 = 0b11 << 31;

    let before = sys::blocked_signals();
    sys::block_signals(before | CANCELLATION);
    let node = capture();
    sys::block_signals(before);
    node
}
