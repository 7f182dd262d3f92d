//! Suspends threads by ptrace, as systems without signals to threads do it by a call of their own: how
//! sampling by suspension runs, and is tested, on Linux (`STACKBEAT_SUSPEND=1`).
//!
//! Who traces a thread has to be the one that waits for it, and a parent sees its child stop. So a small
//! process of ours does it (`tracer`), and the two talk through a shared page.

mod tracer;

use std::collections::HashMap;
use std::io;

use stackbeat_core::ids::{Pid, Tid, Upid};
use stackbeat_core::platform;

use super::remote_unwind::{Process, Walker};
use crate::host::{Suspended, Suspension, ToWalk, Walked};
use tracer::Tracer;

/// Processes whose modules are kept.
const MOST_PROCESSES: usize = 256;

/// Suspends threads of other processes, and of this one.
#[derive(Debug)]
pub(crate) struct ByTracing {
    tracer: Tracer,
    walker: Walker,
    /// `None`: its memory may not be read.
    images: HashMap<Upid, Option<Process>>,
}

impl ByTracing {
    /// # Errors
    /// The process that traces cannot be started.
    pub(crate) fn start() -> io::Result<ByTracing> {
        Ok(ByTracing {
            tracer: Tracer::start()?,
            walker: Walker::default(),
            images: HashMap::new(),
        })
    }
}

impl Suspension for ByTracing {
    fn suspend(&mut self, pid: Pid, tid: Tid) -> Suspended {
        self.tracer.suspend(pid, tid)
    }

    fn read_stack(&mut self, pid: Pid, from: u64, into: &mut [u64]) -> usize {
        let bytes = size_of_val(into);
        // SAFETY: words are plain bytes, and any bytes are words.
        let into = unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), bytes) };
        platform::read_memory(pid.0, from, into).unwrap_or(0) / size_of::<u64>()
    }

    fn resume(&mut self) {
        self.tracer.resume();
    }

    fn walk(&mut self, taken: &ToWalk<'_>) -> Walked {
        if self.images.len() >= MOST_PROCESSES {
            self.images.clear();
        }
        let image = self
            .images
            .entry(taken.upid)
            .or_insert_with(|| Process::open(taken.pid, taken.epoch).ok());
        let Some(image) = image else {
            return Walked::default();
        };
        let stack = self.walker.walk_taken(image, taken);
        let modules = image.new_modules(taken.upid, taken.epoch);
        Walked { stack, modules }
    }
}
