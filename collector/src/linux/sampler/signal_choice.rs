//! Which signal interrupts a thread: the first, or where the thread blocks that, the second, if its process has one.

use stackbeat_core::platform;
use stackbeat_core::shm::layout::{ProcessEntry, ThreadEntry};
use stackbeat_core::sync::Ordering;

use super::{Running, Sampler};
use crate::linux::procfs;

/// So long what a thread blocks is taken to be what it was, ns, unless it calls something to change that. Handlers
/// and siglongjmp change it without.
const KNOWN_NS: u64 = 100_000_000;

/// The signals that a process has our handler for; 0: none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signals {
    pub first: u32,
    pub second: u32,
}

impl Signals {
    pub(super) fn of(process: &ProcessEntry) -> Signals {
        Signals {
            first: process.signal.load(Ordering::Acquire),
            second: process.second_signal.load(Ordering::Relaxed),
        }
    }

    /// As a set; signal 1 is bit 0.
    pub(super) fn set(self) -> u64 {
        platform::signal_bit(self.first) | platform::signal_bit(self.second)
    }

    /// The one that a thread which blocks these takes at once.
    pub(super) fn open_to(self, blocked: u64) -> Option<u32> {
        let mut signals = [self.first, self.second].into_iter();
        signals.find(|signal| *signal != 0 && blocked & platform::signal_bit(*signal) == 0)
    }
}

/// What a thread blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mask {
    blocked: u64,
    /// When that was read, ns, and what its count of calls was then.
    read_ns: u64,
    calls: u32,
}

impl Sampler {
    /// The signal for a thread to which one is announced. Where it blocks all: the first, which waits until the
    /// thread fetches it.
    pub(super) fn open_signal(
        &mut self,
        entry: &ThreadEntry,
        thread: &Running,
        now_ns: u64,
    ) -> u32 {
        let signals = thread.signals;
        if signals.second == 0 {
            return signals.first;
        }
        let calls = entry.mask_calls.load(Ordering::Acquire);
        let utid = entry.utid();
        let known = self
            .masks
            .get(&utid)
            .filter(|mask| mask.calls == calls && now_ns.saturating_sub(mask.read_ns) < KNOWN_NS);
        let mask = match known {
            Some(mask) => *mask,
            None => {
                let mask = Mask {
                    blocked: procfs::blocked_signals(thread.pid, thread.tid).unwrap_or(0),
                    read_ns: now_ns,
                    calls,
                };
                self.masks.insert(utid, mask);
                mask
            }
        };
        signals.open_to(mask.blocked).unwrap_or(signals.first)
    }
}
