//! A thread's private memory.

use super::tls::Block;
use crate::cycles::Cycles;
use crate::native::ThreadWalker;
use crate::shm::record_format::{NAME_BYTES, RecordBuffer};
use crate::unwind::{Registers, StackBounds};
use core::ops::Range;
use core::sync::atomic::Ordering;

/// Longest line with its newline. Kernels before 6.8 cut what is longer (TRACE_BUF_SIZE,
/// kernel/trace/trace.c); a pipe takes it as a whole (PIPE_BUF).
pub(super) const LINE_BYTES: usize = 1024;

/// Pointers that fit into what is lent to an exec.
pub(super) const LENT_WORDS: usize = 1024;

/// Memory for what an exec takes (`lent`), and how much of it the process with this pid uses.
#[repr(C)]
pub(super) struct Lent {
    pub pid: u32,
    pub used: usize,
    pub words: [u64; LENT_WORDS],
}

/// A thread's private memory: mapped zeroed at its first capture, never constructed.
#[repr(C)]
pub(super) struct Scratch {
    /// While the thread runs on its own stack: the signals that the program blocks, and where it left the
    /// program's.
    pub program_mask: u64,
    pub program_registers: Registers,
    /// Bounds of the thread's own stack; 0, 0: not known.
    pub stack_low: u64,
    pub stack_high: u64,
    /// The name last written down.
    pub name: [u8; NAME_BYTES],
    /// For which generation + 1 and root the walker's frames have their nodes.
    pub nodes_generation: u64,
    pub nodes_root: u64,
    /// How many frames of the walker's stood above the managed ones of the last capture, plus 1; 0: it had
    /// none. Nodes below those are looked up again.
    pub managed_from: usize,
    /// Budget of forced captures: from when on it is full again.
    pub forced_until: Cycles,
    /// Signals passed over since the last capture.
    pub passed_over: u32,
    /// The thread's CPU time at the end of a long capture, and when it has computed for as long, ns; 0, 0:
    /// the last one was not long.
    pub long_capture_ns: [u64; 2],
    /// See `agent::better_moment`.
    pub better_moment: super::better_moment::Left,
    pub usage: super::rusage::State,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub unseen_calls: super::unseen_calls::State,
    pub event_sampling: super::event_sampling::State,
    pub record: RecordBuffer,
    pub lent: Lent,
    /// Where the caller of libc's vfork goes on; 0: none is under way.
    pub vfork_caller: u64,
    /// A line for the trace_marker (`systrace`).
    pub line: [u8; LINE_BYTES],
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub frames: crate::unwind::Frames,
    /// The nodes of the last walk's frames, the outermost first.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub frame_nodes: [u32; crate::unwind::MAX_DEPTH],
    pub walker: ThreadWalker,
    pub managed: crate::managed::Thread,
}

impl Scratch {
    /// The part of the stack that a walk may read directly.
    pub(super) fn bounds(&self) -> StackBounds {
        // SAFETY: the bounds are those of the calling thread's own stack, which outlives the
        // capture. A walk reads only at or above its stack pointer, and looks whether that lies
        // inside first.
        unsafe { StackBounds::of_stack(self.stack_low, self.stack_high) }
    }
}

/// The calling thread's scratch memory.
///
/// # Safety
/// Only while holding the guard, and only one at a time.
pub(super) unsafe fn scratch(block: &Block) -> Option<&'static mut Scratch> {
    // SAFETY: the pointer is null or a mapping that `register` made for this thread and that stays
    // until `thread_exiting`; the guard makes the reference the only one.
    unsafe {
        block
            .scratch
            .load(Ordering::Relaxed)
            .cast::<Scratch>()
            .as_mut()
    }
}

/// Bounds of the calling thread's own stack, as far as they are known.
pub(super) fn own_bounds(block: &Block) -> Option<Range<usize>> {
    let scratch = block.scratch.load(Ordering::Relaxed).cast::<Scratch>();
    // SAFETY: null or this thread's memory; only two words are read, which change under the guard.
    (!scratch.is_null())
        .then(|| unsafe { (*scratch).stack_low as usize..(*scratch).stack_high as usize })
}
