//! Who makes whom wait: long waits by the stack that waited and the stack that ended the wait.

use std::collections::HashMap;

use stackbeat_core::probe::Cause;
use stackbeat_model::{LongWait, ProbeId, ThreadIndex};

/// Different pairs that a report keeps; what comes later is summed up without stacks.
const MOST: usize = 100_000;
/// How many hands a lock may have gone through during a wait that is told apart by them.
const LONGEST_CHAIN: usize = 256;

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
    /// Waits for locks that somebody let go of and that do not say who held them.
    handed: Vec<Handed>,
    /// Waits for another thread, which may be for a lock of an interpreter's.
    for_threads: Vec<Handed>,
    /// The same of others: those whose holder is known, and what has no room above.
    held: HashMap<(ThreadIndex, ThreadIndex, Option<u32>), u64>,
}

/// A wait for a lock that ended when a thread let go of it.
#[derive(Clone, Copy, Debug)]
struct Handed {
    object: u64,
    thread: ThreadIndex,
    /// Place of the stack that waited.
    waiting: u32,
    begin_ns: u64,
    end_ns: u64,
    by: ThreadIndex,
    /// Place of its stack then.
    at: Option<u32>,
}

/// How long a thread waited for a lock while another one had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub waiting: ThreadIndex,
    pub by: ThreadIndex,
    /// Place of the stack in which that one let go of it.
    pub until: Option<u32>,
    pub ns: u64,
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
        self.add_holder(wait, waiting, waking);
        let sum = self.sums.entry(pair).or_default();
        sum.count += 1;
        sum.total_ns += wait.wall_ns();
        if wait.wall_ns() >= sum.longest_ns {
            (sum.longest_ns, sum.longest_at_ns) = (wait.wall_ns(), wait.begin_ns);
        }
    }

    fn add_holder(&mut self, wait: &LongWait, waiting: u32, waking: Option<u32>) {
        let Some(by) = wait.owner.or(wait.waker) else {
            return;
        };
        let waits = match wait.probe.cause() {
            Cause::Lock => &mut self.handed,
            Cause::Wait => &mut self.for_threads,
            _ => return,
        };
        if wait.owner.is_none() && wait.object != 0 && waits.len() < MOST {
            waits.push(Handed {
                object: wait.object,
                thread: wait.thread,
                waiting,
                begin_ns: wait.begin_ns,
                end_ns: wait.end_ns,
                by,
                at: waking,
            });
            return;
        }
        if wait.probe.cause() != Cause::Lock {
            return;
        }
        let sum = self.held.entry((wait.thread, by, waking)).or_default();
        *sum = sum.saturating_add(wait.wall_ns());
    }

    /// Who held locks while others waited for them, in order of their threads. Where a lock does not say who
    /// holds it, a thread that let go of it and had waited for it itself had it since then, and before that
    /// the one that let go of it at that moment. `is_for_lock`: whether the stack at a place, which waits for
    /// another thread, waits for a lock.
    pub(crate) fn held(&self, is_for_lock: &dyn Fn(u32) -> bool) -> Vec<Held> {
        let mut held = self.held.clone();
        let for_threads = self.for_threads.iter();
        let for_locks = for_threads.filter(|wait| is_for_lock(wait.waiting));
        let handed: Vec<&Handed> = self.handed.iter().chain(for_locks).collect();
        let mut waits_of: HashMap<(u64, ThreadIndex), Vec<&Handed>> = HashMap::new();
        for wait in &handed {
            let waits = waits_of.entry((wait.object, wait.thread)).or_default();
            waits.push(wait);
        }
        for waits in waits_of.values_mut() {
            waits.sort_by_key(|wait| wait.end_ns);
        }
        for wait in &handed {
            let mut add = |by, at, ns: u64| {
                let sum = held.entry((wait.thread, by, at)).or_default();
                *sum = sum.saturating_add(ns);
            };
            let (mut by, mut at, mut end_ns) = (wait.by, wait.at, wait.end_ns);
            for _ in 0..LONGEST_CHAIN {
                let got = waits_of.get(&(wait.object, by)).and_then(|waits| {
                    let before = waits.partition_point(|got| got.end_ns < end_ns);
                    waits[..before].last()
                });
                let Some(got) = got.filter(|got| got.end_ns > wait.begin_ns) else {
                    break;
                };
                add(by, at, end_ns - got.end_ns);
                (by, at, end_ns) = (got.by, got.at, got.end_ns);
            }
            add(by, at, end_ns.saturating_sub(wait.begin_ns));
        }
        let held = held.into_iter().map(|((waiting, by, until), ns)| Held {
            waiting,
            by,
            until,
            ns,
        });
        let mut held: Vec<_> = held.collect();
        held.sort_by_key(|held| (held.waiting, held.by, held.until));
        held
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

#[cfg(test)]
mod tests {
    use stackbeat_core::probe::Probe;
    use stackbeat_model::StackIndex;

    use super::*;

    /// 0 has the lock for 300; 1, 2 and 3 wait for it and have it for 10 each.
    #[test]
    fn who_is_handed_a_lock_did_not_hold_it_before() {
        let mut waits = Waits::default();
        for (thread, waker, end_ns) in [(3, 2, 320), (1, 0, 300), (2, 1, 310)] {
            let wait = LongWait {
                thread: ThreadIndex(thread),
                owner: None,
                probe: Probe::MutexLock.into(),
                begin_ns: 0,
                end_ns,
                stack: StackIndex::NONE,
                object: 1,
                result: 0,
                waker: Some(ThreadIndex(waker)),
                wake: None,
            };
            waits.add(&wait, crate::summary::call_tree::ROOT, Some(waker));
        }
        let held = waits.held(&|_| false);
        let by = |thread: u32| {
            let of = held.iter().filter(|held| held.by == ThreadIndex(thread));
            of.map(|held| (held.waiting.0, held.until, held.ns))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            by(0),
            [(1, Some(0), 300), (2, Some(0), 300), (3, Some(0), 300)]
        );
        assert_eq!(by(1), [(2, Some(1), 10), (3, Some(1), 10)]);
        assert_eq!(by(2), [(3, Some(2), 10)]);
        assert_eq!(by(3), []);
    }
}
