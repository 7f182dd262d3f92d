//! System calls inside of scopes of the program, by the samples that the calls caused.
//!
//! A thread's scopes and samples each come in order of time, but not among each other: what is known of both is put in
//! order here, and no more is kept.

use std::collections::{BTreeMap, HashMap, VecDeque};

use stackbeat_collector::model::{CallsMade, ThreadIndex};
use stackbeat_core::system_call::{SystemCall, SystemCalls};

/// Sums of all scopes by name, while a trace is read.
#[derive(Debug, Default)]
pub struct ScopeCalls {
    threads: HashMap<ThreadIndex, Thread>,
    sums: BTreeMap<String, SystemCalls>,
}

#[derive(Debug, Default)]
struct Thread {
    /// Begins, with a name, and ends that are not settled.
    edges: VecDeque<(u64, Option<String>)>,
    calls: VecDeque<(u64, SystemCall, u64)>,
    /// No edge, and no sample, comes before these times any more.
    edges_until_ns: u64,
    samples_until_ns: u64,
    /// What the thread has made so far, and what it had at the begin of each open scope.
    made: SystemCalls,
    open: Vec<(String, SystemCalls)>,
    /// The scopes around the last sample of each kind: what comes after it belongs to them, too.
    last: HashMap<SystemCall, Vec<String>>,
    settled_ns: u64,
}

impl ScopeCalls {
    pub fn begin(&mut self, thread: ThreadIndex, name: &str, at_ns: u64) {
        self.edge(thread, at_ns, Some(name.to_owned()));
    }

    pub fn end(&mut self, thread: ThreadIndex, at_ns: u64) {
        self.edge(thread, at_ns, None);
    }

    fn edge(&mut self, thread: ThreadIndex, at_ns: u64, name: Option<String>) {
        let of_thread = self.threads.entry(thread).or_default();
        of_thread.edges.push_back((at_ns, name));
        of_thread.edges_until_ns = of_thread.edges_until_ns.max(at_ns);
        of_thread.settle(&mut self.sums);
    }

    pub fn made(&mut self, made: &CallsMade) {
        let of_thread = self.threads.entry(made.thread).or_default();
        if made.time_ns < of_thread.settled_ns {
            for name in of_thread.last.get(&made.call).into_iter().flatten() {
                let calls = self.sums.entry(name.clone()).or_default();
                calls.0[made.call as usize] += made.count;
            }
            return;
        }
        let at = (of_thread.calls).partition_point(|(before, ..)| *before <= made.time_ns);
        let calls = (made.time_ns, made.call, made.count);
        of_thread.calls.insert(at, calls);
    }

    /// The thread was sampled at this time.
    pub fn sample(&mut self, thread: ThreadIndex, at_ns: u64) {
        if let Some(of_thread) = self.threads.get_mut(&thread) {
            of_thread.samples_until_ns = of_thread.samples_until_ns.max(at_ns);
            of_thread.settle(&mut self.sums);
        }
    }

    /// The calls of all scopes by name, of those that have any. Scopes that are open last as long as their threads.
    pub fn finish(mut self) -> BTreeMap<String, SystemCalls> {
        for of_thread in self.threads.values_mut() {
            (of_thread.edges_until_ns, of_thread.samples_until_ns) = (u64::MAX, u64::MAX);
            of_thread.settle(&mut self.sums);
            while !of_thread.open.is_empty() {
                of_thread.end(&mut self.sums);
            }
        }
        self.sums.retain(|_, calls| calls.sum() > 0);
        self.sums
    }
}

impl Thread {
    /// Takes what nothing can come before any more, in order of time.
    fn settle(&mut self, sums: &mut BTreeMap<String, SystemCalls>) {
        let until = self.edges_until_ns.min(self.samples_until_ns);
        self.settled_ns = self.settled_ns.max(until);
        loop {
            let edge_ns = self.edges.front().map_or(u64::MAX, |edge| edge.0);
            let call_ns = self.calls.front().map_or(u64::MAX, |call| call.0);
            if edge_ns.min(call_ns) >= until {
                return;
            }
            if call_ns < edge_ns {
                if let Some((_, call, count)) = self.calls.pop_front() {
                    let made = &mut self.made.0[call as usize];
                    *made = made.saturating_add(count);
                    let names = self.open.iter().map(|(name, _)| name.clone());
                    self.last.insert(call, names.collect());
                }
            } else {
                match self.edges.pop_front() {
                    Some((_, Some(name))) => self.open.push((name, self.made)),
                    _ => self.end(sums),
                }
            }
        }
    }

    fn end(&mut self, sums: &mut BTreeMap<String, SystemCalls>) {
        let Some((name, before)) = self.open.pop() else {
            return;
        };
        let mut inside = self.made;
        for (now, then) in inside.0.iter_mut().zip(before.0) {
            *now = now.saturating_sub(then);
        }
        sums.entry(name).or_default().add(&inside);
    }
}

#[cfg(test)]
mod tests {
    use stackbeat_collector::model::StackIndex;

    use super::*;

    fn made(thread: ThreadIndex, time_ns: u64, call: SystemCall, count: u64) -> CallsMade {
        CallsMade {
            thread,
            stack: StackIndex::NONE,
            call,
            count,
            time_ns,
        }
    }

    #[test]
    fn calls_belong_to_the_scopes_around_them_whichever_is_read_first() {
        let (a, b) = (ThreadIndex(1), ThreadIndex(2));
        let (read, stat) = (SystemCall::Read, SystemCall::Stat);
        let calls = [
            (5, read, 100),
            (15, stat, 7),
            (25, read, 30),
            (45, read, 1000),
            (65, stat, 2),
        ];
        let edges = [
            (10, Some("outer")),
            (20, Some("inner")),
            (30, None),
            (40, None),
            (60, Some("open")),
        ];
        let samples = |all: &mut ScopeCalls| {
            for (at, call, count) in calls {
                all.made(&made(a, at, call, count));
                all.made(&made(b, at, call, 1));
                all.sample(a, at);
            }
        };
        let scopes = |all: &mut ScopeCalls| {
            for (at, name) in edges {
                match name {
                    Some(name) => all.begin(a, name, at),
                    None => all.end(a, at),
                }
            }
        };
        for samples_come_first in [true, false] {
            let mut all = ScopeCalls::default();
            if samples_come_first {
                samples(&mut all);
            }
            scopes(&mut all);
            if !samples_come_first {
                samples(&mut all);
            }
            // What came after the last sample is said at the end of the thread.
            all.begin(a, "later", 90);
            all.sample(a, 100);
            all.made(&made(a, 65, stat, 3));
            let found: Vec<_> = all
                .finish()
                .into_iter()
                .map(|(name, calls)| (name, calls.0[read as usize], calls.0[stat as usize]))
                .collect();
            let expected = [("inner", 30, 0), ("open", 0, 5), ("outer", 30, 7)];
            assert_eq!(found, expected.map(|(name, r, s)| (name.to_owned(), r, s)));
        }
    }

    #[test]
    fn what_is_settled_is_not_kept() {
        let thread = ThreadIndex(1);
        let mut all = ScopeCalls::default();
        for at in 0..1000 {
            all.begin(thread, "scope", 10 * at);
            all.end(thread, 10 * at + 5);
            all.made(&made(thread, 10 * at + 2, SystemCall::Read, 1));
            all.sample(thread, 10 * at + 2);
            let kept = &all.threads[&thread];
            assert!(kept.edges.len() + kept.calls.len() < 5, "{kept:?}");
        }
        assert_eq!(all.finish()["scope"].sum(), 1000);
    }
}
