//! One capture at a time on a thread.

use core::sync::atomic::compiler_fence;

use crate::agent::tls::Block;
use crate::agent::{own_stack, scratch};
use crate::sync::Ordering;

/// The re-entrancy guard: one capture at a time on a thread. Holds the stack pointer, so that one
/// left behind by a longjmp out of a signal handler is recognized.
pub(in crate::agent) struct Guard<'a> {
    block: &'a Block,
}

impl<'a> Guard<'a> {
    /// Enters unless the thread is inside already.
    #[inline(always)]
    pub(crate) fn enter(block: &'a Block) -> Option<Guard<'a>> {
        let sp = own_stack::program_sp(block);
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
        scratch::own_bounds(block)
            .is_some_and(|own| own.contains(&held) && own.contains(&sp) && sp > held)
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.block.guard.store(0, Ordering::Relaxed);
    }
}
