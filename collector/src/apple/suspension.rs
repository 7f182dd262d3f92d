//! Threads are suspended for a moment, because they cannot be sent a signal that would not be seen by the
//! program.

use std::sync::Arc;

use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::native::own_modules;
use stackbeat_core::shm::layout::node_kind;
use stackbeat_core::unwind::{CodeMask, FramePointerWalker, Frames, Native, Start, WalkEnd};

use super::mach::Port;
use super::threads::Threads;
use super::window::{self, Refused};
use crate::host::{Stack, Suspended, Suspension, ToWalk, Walked};

/// Suspends threads of this process.
pub(super) struct ByMach {
    threads: Arc<Threads>,
    /// The thread that is suspended, or is about to be.
    whom: Option<Port>,
    walker: Box<FramePointerWalker>,
    frames: Box<Frames>,
}

impl std::fmt::Debug for ByMach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByMach").field("whom", &self.whom).finish()
    }
}

impl ByMach {
    pub(super) fn new(threads: Arc<Threads>) -> ByMach {
        ByMach {
            threads,
            whom: None,
            walker: Box::new(FramePointerWalker::new()),
            frames: Box::new(Frames::new(0)),
        }
    }
}

impl Suspension for ByMach {
    fn prepare(&mut self, _: Pid, tid: Tid) {
        self.whom = self.threads.port(tid);
    }

    fn suspend(&mut self, _: Pid, _: Tid) -> Suspended {
        let Some(thread) = self.whom else {
            return Suspended::Gone;
        };
        let cpu = window::info(thread).map(|info| info.user_ns + info.system_ns);
        match cpu.and_then(|cpu_ns| Ok((window::suspend(thread)?, cpu_ns))) {
            Ok((registers, cpu_ns)) => Suspended::Yes { registers, cpu_ns },
            Err(Refused::NotNow) => Suspended::NotNow,
            Err(Refused::Gone) => Suspended::Gone,
        }
    }

    fn read_stack(&mut self, _: Pid, from: u64, into: &mut [u64]) -> usize {
        window::read(from, into)
    }

    unsafe fn read_own_stack(&mut self, _: Pid, from: u64, into: &mut [u64]) -> usize {
        // SAFETY: by contract; a thread is suspended only when its registers could be read, which waits until
        // it has stopped.
        unsafe { window::read_stopped(from, into) }
    }

    fn resume(&mut self) {
        if let Some(thread) = self.whom {
            window::resume(thread);
        }
    }

    fn walk(&mut self, taken: &ToWalk<'_>) -> Walked {
        let low = taken.registers.sp & !7;
        let high = match taken.high {
            // Nothing is known of that stack but what was taken of it.
            0 => low + size_of_val(taken.words) as u64,
            high => high,
        };
        let from = Start {
            registers: taken.registers,
            exact: true,
            high,
            skip: own_modules::own_code(),
        };
        let mut read = |address: u64| {
            let index = address.checked_sub(low).map(|offset| (offset / 8) as usize);
            let word = index.and_then(|index| taken.words.get(index).copied());
            // Code, a context of an async function, or what was not taken of the stack.
            word.or_else(|| {
                let mut word = [0; 1];
                let is_stack = (low..high).contains(&address);
                (!is_stack && window::read(address, &mut word) == 1).then_some(word[0])
            })
        };
        self.frames.clear(taken.depth);
        // What is kept of walks before is another thread's.
        *self.walker = FramePointerWalker::new();
        self.walker.knows_swift();
        let mask = CodeMask::native();
        let end = self
            .walker
            .walk_stack::<Native>(&from, low, mask, &mut read, &mut self.frames);
        let kind = |index| match index {
            0 => node_kind::LEAF_PC,
            index if self.frames.is_awaiting(index) => node_kind::AWAITING,
            _ => node_kind::NATIVE,
        };
        let leaf_first = self.frames.addresses().iter().enumerate();
        let mut frames: Vec<(u64, u32)> = leaf_first
            .map(|(index, address)| (*address, kind(index)))
            .collect();
        frames.reverse();
        Walked {
            stack: Stack {
                frames,
                is_whole: end == WalkEnd::Root,
            },
            // Images are told by the hooks.
            modules: Vec::new(),
        }
    }
}
