//! Walks of this process' own threads where all code keeps frame pointers.

use crate::native::own_modules;
use crate::platform;
use crate::unwind::{
    CodeMask, FramePointerWalker, Frames, Native, Registers, StackBounds, StackWalker, Start,
    WalkEnd,
};

/// Words of code that are read at once.
const WINDOW: usize = 32;

/// A thread's walker. The stack is read where it is, between the stack pointer and the end of the thread's
/// stack; code near an interrupted pc, and contexts of Swift's async functions, through the kernel, which
/// fails instead of faulting.
#[derive(Debug)]
#[repr(C)]
pub struct FrameWalker {
    walker: FramePointerWalker,
    window: [u64; WINDOW],
}

/// Code, or a context, that was read.
struct Window<'a> {
    start: u64,
    words: usize,
    content: &'a mut [u64; WINDOW],
}

impl Window<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        let at = address.wrapping_sub(self.start) / 8;
        if at >= self.words as u64 {
            self.fill(address);
        }
        let at = (address.wrapping_sub(self.start) / 8) as usize;
        self.content.get(..self.words)?.get(at).copied()
    }

    /// Reads the page's code around an address: what comes next, and a little of what is in front.
    #[cold]
    fn fill(&mut self, address: u64) {
        const IN_FRONT: u64 = 16;
        let page = address & !(platform::page_bytes() as u64 - 1);
        let start = address.saturating_sub(IN_FRONT).max(page);
        let end = page.saturating_add(platform::page_bytes() as u64);
        let bytes = (end.saturating_sub(start) as usize).min(8 * WINDOW);
        let mut buffer = [0u8; 8 * WINDOW];
        let process = platform::process_id();
        let read = buffer
            .get_mut(..bytes)
            .and_then(|buffer| platform::read_memory(process, start, buffer).ok());
        self.start = start;
        self.words = read.unwrap_or(0) / 8;
        for (place, word) in self.content.iter_mut().zip(buffer.chunks_exact(8)) {
            *place = word.try_into().map_or(0, u64::from_le_bytes);
        }
    }
}

// SAFETY: numbers, and a walker for which the same holds.
unsafe impl StackWalker for FrameWalker {
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
            skip: own_modules::own_code(),
        };
        let mut code = Window {
            start: 0,
            words: 0,
            content: &mut self.window,
        };
        let mut read = |address| match bounds.read(address) {
            None => code.word(address),
            word => word,
        };
        if cfg!(target_vendor = "apple") {
            self.walker.knows_swift();
        }
        let mask = CodeMask::native();
        self.walker
            .walk_stack::<Native>(&from, bounds.low, mask, &mut read, out)
    }
}
