//! Which signal interrupts a thread: the first, or where the thread blocks that, the second, if its process has one.

use std::collections::HashMap;

use stackbeat_core::ids::Utid;
use stackbeat_core::platform;
use stackbeat_core::shm::layout::{ProcessEntry, ThreadEntry};
use stackbeat_core::sync::Ordering;

use super::Running;
use crate::host::Signals;

/// So long what a thread blocks is taken to be what it was, ns, unless it calls something to change that. Handlers
/// and siglongjmp change it without.
const KNOWN_NS: u64 = 100_000_000;

/// The signals that a process has our handler for; 0: none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handled {
    pub first: u32,
    pub second: u32,
}

impl Handled {
    pub(super) fn of(process: &ProcessEntry) -> Handled {
        Handled {
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

/// The signal for a thread to which one is announced. Where it blocks all: the first, which waits until the thread fetches
/// it. `masks`: what is known of all of them.
pub(super) fn open_signal(
    masks: &mut HashMap<Utid, Mask>,
    by: &dyn Signals,
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
    let is_known =
        |mask: &&Mask| mask.calls == calls && now_ns.saturating_sub(mask.read_ns) < KNOWN_NS;
    let blocked = match masks.get(&utid).filter(is_known) {
        Some(mask) => mask.blocked,
        None => {
            let blocked = by.blocked(thread.pid, thread.tid).unwrap_or(0);
            let mask = Mask {
                blocked,
                read_ns: now_ns,
                calls,
            };
            masks.insert(utid, mask);
            blocked
        }
    };
    signals.open_to(blocked).unwrap_or(signals.first)
}
