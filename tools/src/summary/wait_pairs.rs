//! Who makes whom wait: long waits by the stack that waited and the stack that ended the wait.

use std::collections::HashMap;

use stackbeat_core::probe::Cause;
use stackbeat_model::{LongWait, ProbeId, ThreadIndex};

/// Different pairs that a report keeps; what comes later is summed up without stacks.
const MOST: usize = 100_000;

/// What one line sums up: the call, where it was made, and where the wait was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pair {
    pub(crate) probe: ProbeId,
    pub(crate) waiting: u32,
    /// `None`: the waker, or its stack, is not known.
    pub(crate) waking: Option<u32>,
    pub(crate) thread: ThreadIndex,
    pub(crate) waker: Option<ThreadIndex>,
    /// Who held the lock when the wait began.
    pub(crate) owner: Option<ThreadIndex>,
    /// Nobody ended it: it timed out or failed.
    pub(crate) failed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
    pub(crate) longest_ns: u64,
    pub(crate) longest_at_ns: u64,
}

/// Long waits that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitSum {
    pub probe: ProbeId,
    pub thread: ThreadIndex,
    /// Place of the waiting stack in the tree of the profile.
    pub waiting: u32,
    pub owner: Option<ThreadIndex>,
    pub waker: Option<ThreadIndex>,
    /// Place of the waker's stack.
    pub waking: Option<u32>,
    /// Nobody ended them: they timed out or failed.
    pub failed: bool,
    pub count: u64,
    pub total_ns: u64,
}

/// Collects long waits while a trace is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    pub(crate) sums: HashMap<Pair, Sum>,
    /// Time in waits for locks, by who waited and the lock's address.
    pub(crate) locks: HashMap<(ThreadIndex, u64), u64>,
}

impl Waits {
    /// Adds a wait. `waiting`, `waking`: places of the two stacks in the tree of the profile.
    pub(crate) fn add(&mut self, wait: &LongWait, waiting: u32, waking: Option<u32>) {
        let mut pair = Pair {
            probe: wait.probe,
            waiting,
            waking,
            thread: wait.thread,
            waker: wait.waker,
            owner: wait.owner,
            // A signal whose sender is known ends a wait, though the call fails.
            failed: !wait.succeeded() && wait.waker.is_none(),
        };
        if self.sums.len() >= MOST && !self.sums.contains_key(&pair) {
            (pair.waiting, pair.waking) = (crate::summary::call_tree::ROOT, None);
        }
        let lock = (wait.thread, wait.object);
        let has_room = self.locks.len() < MOST || self.locks.contains_key(&lock);
        if wait.probe.cause() == Cause::Lock && wait.object != 0 && has_room {
            let sum = self.locks.entry(lock).or_default();
            *sum = sum.saturating_add(wait.wall_ns());
        }
        let sum = self.sums.entry(pair).or_default();
        sum.count += 1;
        sum.total_ns += wait.wall_ns();
        if wait.wall_ns() >= sum.longest_ns {
            (sum.longest_ns, sum.longest_at_ns) = (wait.wall_ns(), wait.begin_ns);
        }
    }

    /// All of them, in no order.
    pub(crate) fn sums(&self) -> impl Iterator<Item = WaitSum> + '_ {
        self.sums.iter().map(|(pair, sum)| WaitSum {
            probe: pair.probe,
            thread: pair.thread,
            waiting: pair.waiting,
            owner: pair.owner,
            waker: pair.waker,
            waking: pair.waking,
            failed: pair.failed,
            count: sum.count,
            total_ns: sum.total_ns,
        })
    }
}
