//! Which signal interrupts a thread: the first, or where the thread blocks that, the second, if its process
//! has one.

use std::collections::HashMap;

use stackbeat_core::ids::Utid;
use stackbeat_core::platform;
use stackbeat_core::shm::layout::{ProcessEntry, ThreadEntry};
use stackbeat_core::sync::Ordering;

use super::Running;
use crate::host::Signals;

/// So long what a thread blocks is taken to be what it was, ns, unless it calls something to change that.
/// Handlers and siglongjmp change it without.
const KNOWN_NS: u64 = 100_000_000;
/// The same of one that blocks all: mostly it is in a handler that is about to return, often ours.
const SHUT_NS: u64 = 2_000_000;

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

/// The signal for a thread to which one is announced; `None`: it blocks both. In our handler for the second
/// that is so for a moment, and the first would then pend for as long as the thread blocks it, and keep all
/// others away. `masks`: what is known of all threads.
pub(super) fn open_signal(
    masks: &mut HashMap<Utid, Mask>,
    by: &dyn Signals,
    entry: &ThreadEntry,
    thread: &Running,
    now_ns: u64,
) -> Option<u32> {
    let signals = thread.signals;
    if signals.second == 0 {
        return Some(signals.first);
    }
    let calls = entry.mask_calls.load(Ordering::Acquire);
    let utid = entry.utid();
    let is_known = |mask: &&Mask| {
        let known_ns = signals.open_to(mask.blocked).map_or(SHUT_NS, |_| KNOWN_NS);
        mask.calls == calls && now_ns.saturating_sub(mask.read_ns) < known_ns
    };
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
    signals.open_to(blocked)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ffi::CString;

    use stackbeat_core::ids::{Pid, Tid};
    use stackbeat_core::platform::Errno;
    use stackbeat_core::shm::layout::Capacity;
    use stackbeat_core::shm::mapping::Mapping;

    use super::*;

    /// A thread that blocks what it is told to.
    #[derive(Debug)]
    struct Blocks(Cell<u64>);

    impl Signals for Blocks {
        fn send(&self, _: Pid, _: Tid, _: u32) -> Result<(), Errno> {
            unreachable!("it is only looked at")
        }
        fn pending(&self, _: Pid, _: Tid) -> Option<u64> {
            None
        }
        fn blocked(&self, _: Pid, _: Tid) -> Option<u64> {
            Some(self.0.get())
        }
        fn barrier(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_thread_in_our_handler_for_the_second_signal_gets_the_second_afterwards() {
        let name = format!("/dev/shm/stackbeat-test-choice-{}", std::process::id());
        let name = CString::new(name).expect("no NUL");
        let capacity = Capacity {
            threads: 256,
            generation_nodes: 1 << 10,
            ..Capacity::default()
        };
        let mapping = Mapping::create(&name, capacity).expect("a mapping");
        let entry = mapping.thread(0).expect("an entry");
        let [first, second] = [23, 28];
        let thread = Running {
            entry: 0,
            pid: Pid(1),
            tid: Tid(1),
            run_ns: 0,
            signals: Handled { first, second },
        };
        let bit = platform::signal_bit;
        let (mut masks, by) = (HashMap::new(), Blocks(Cell::new(bit(first) | bit(second))));
        let mut choose = |now_ns| open_signal(&mut masks, &by, entry, &thread, now_ns);
        assert_eq!(choose(KNOWN_NS), None);
        by.0.set(bit(first));
        assert_eq!(choose(KNOWN_NS + SHUT_NS), Some(second));
        // In the handler once more: it is not looked at yet.
        by.0.set(bit(first) | bit(second));
        assert_eq!(choose(KNOWN_NS + 2 * SHUT_NS), Some(second));
        platform::remove(&name);
    }
}
