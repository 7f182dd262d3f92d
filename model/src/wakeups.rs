//! Long waits, and who ended them: the two halves of a wake-up, which two threads wrote down, put
//! together again.
//!
//! A half waits for the other in memory. Both were written within moments of each other, so what is kept
//! is bounded: a wait whose waker's half has not come until then goes out without its stack.

use std::collections::VecDeque;

use hashbrown::HashMap;
use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::probe::{Cause, Probe};
use stackbeat_proto::v1;

use super::{ProbeId, ProcessIndex, StackIndex, ThreadIndex, Trace};

/// Halves of each kind that are kept.
const KEPT: usize = 1 << 16;

/// A wait that was longer than the recording's threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongWait {
    /// The thread that waited.
    pub thread: ThreadIndex,
    /// When it began to wait.
    pub begin_ns: u64,
    /// When it went on.
    pub end_ns: u64,
    /// Where it waited.
    pub stack: StackIndex,
    /// The call that waited.
    pub probe: ProbeId,
    /// Address or descriptor, by probe.
    pub object: u64,
    /// The call's result.
    pub result: i64,
    /// Who held the lock when the wait began.
    pub owner: Option<ThreadIndex>,
    /// Who ended it.
    pub waker: Option<ThreadIndex>,
    /// Where and when the waker did so.
    pub wake: Option<Wake>,
}

impl LongWait {
    /// Its length in ns.
    pub fn wall_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    /// Whether the call got what it waited for: otherwise it timed out or failed, and nobody ended it.
    pub fn succeeded(&self) -> bool {
        match (self.probe.known(), self.probe.cause()) {
            (Some(Probe::BarrierWait), _) => true,
            // The result is an error's number.
            (Some(Probe::Spawn), _) => self.result == 0,
            (_, Cause::Lock | Cause::Wait | Cause::Join) => self.result == 0,
            (_, Cause::Poll) => self.result > 0,
            _ => self.result >= 0,
        }
    }
}

/// The moment after the call that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// When that was.
    pub time_ns: u64,
    /// What the waker did then; its own stack.
    pub stack: StackIndex,
}

/// A thread's utid and the number of its wake.
type Key = (u32, u32);

/// A child that has let its parent go on has loaded its program by then; one that appears later is another,
/// whose pid is the same.
const CHILD_APPEARS_NS: u64 = 10_000_000_000;

pub(super) struct Joiner<'a> {
    trace: &'a Trace,
    threads_of_tid: HashMap<(ProcessIndex, Tid), Vec<ThreadIndex>>,
    /// By start.
    processes_of_pid: HashMap<Pid, Vec<ProcessIndex>>,
    wakes: HashMap<Key, Wake>,
    /// Keys in the order in which they came; so below.
    wake_order: VecDeque<Key>,
    waits: HashMap<Key, Vec<LongWait>>,
    wait_order: VecDeque<Key>,
}

impl<'a> Joiner<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Joiner<'a> {
        let mut threads_of_tid: HashMap<_, Vec<_>> = HashMap::new();
        for (index, thread) in trace.threads().iter().enumerate() {
            let key = (thread.process, thread.tid);
            let same = threads_of_tid.entry(key).or_default();
            same.push(ThreadIndex(index as u32));
        }
        let mut processes_of_pid: HashMap<_, Vec<_>> = HashMap::new();
        for (index, process) in trace.processes().iter().enumerate() {
            let same = processes_of_pid.entry(process.pid).or_default();
            same.push(ProcessIndex(index as u32));
        }
        for same in processes_of_pid.values_mut() {
            same.sort_by_key(|index| trace.process(*index).start_ns);
        }
        Joiner {
            trace,
            threads_of_tid,
            processes_of_pid,
            wakes: HashMap::new(),
            wake_order: VecDeque::new(),
            waits: HashMap::new(),
            wait_order: VecDeque::new(),
        }
    }

    /// The thread with this tid at a moment, in the process of another.
    fn thread_of_tid(&self, beside: ThreadIndex, tid: Tid, at_ns: u64) -> Option<ThreadIndex> {
        let process = self.trace.thread(beside).process;
        let same = self.threads_of_tid.get(&(process, tid))?;
        same.iter().copied().find(|index| {
            let thread = self.trace.thread(*index);
            (thread.start_ns..=thread.end_ns).contains(&at_ns)
        })
    }

    /// Who ended a wait of `vfork` or `posix_spawn`: the child that it started, which becomes a process of
    /// its own when it has let its parent go on.
    fn started(&self, wait: &v1::LongWait) -> Option<ThreadIndex> {
        let probe = Probe::from_number(u8::try_from(wait.probe).ok()?);
        if !matches!(probe, Some(Probe::Vfork | Probe::Spawn)) || wait.object == 0 {
            return None;
        }
        let pid = Pid(u32::try_from(wait.object).ok()?);
        let same = self.processes_of_pid.get(&pid)?;
        let start_ns = |index: &ProcessIndex| self.trace.process(*index).start_ns;
        let first = same.partition_point(|index| start_ns(index) < wait.begin_ns);
        let child = same
            .get(first)
            .filter(|index| start_ns(index) <= wait.end_ns.saturating_add(CHILD_APPEARS_NS))?;
        self.threads_of_tid
            .get(&(*child, pid.main_thread()))?
            .first()
            .copied()
    }

    /// A wait was read; gives those that are complete or have waited for too long themselves.
    pub(crate) fn wait(&mut self, from: &v1::LongWait) -> Vec<LongWait> {
        let trace = self.trace;
        let Some(&thread) = trace.thread_of_utid.get(&from.utid) else {
            return Vec::new();
        };
        let key = (from.waker_utid, from.wake_number);
        let stack = trace.stacks.of_node(from.node, from.end_ns);
        let probe = ProbeId(u8::try_from(from.probe).unwrap_or(0));
        let wait = LongWait {
            thread,
            begin_ns: from.begin_ns.min(from.end_ns),
            end_ns: from.end_ns,
            stack,
            probe: trace.stacks.probe(probe, stack),
            object: from.object,
            result: from.result,
            owner: self.thread_of_tid(thread, Tid(from.owner_tid), from.begin_ns),
            waker: match trace.thread_of_utid.get(&from.waker_utid) {
                Some(waker) => Some(*waker),
                None => self.started(from),
            },
            wake: self.wakes.get(&key).copied(),
        };
        if from.waker_utid == 0 || wait.waker.is_none() || wait.wake.is_some() {
            return vec![wait];
        }
        self.waits.entry(key).or_default().push(wait);
        self.wait_order.push_back(key);
        let oldest = match self.wait_order.len() > KEPT {
            true => self.wait_order.pop_front(),
            false => None,
        };
        oldest
            .and_then(|key| self.waits.remove(&key))
            .unwrap_or_default()
    }

    /// A wake was read; gives the waits that it completes.
    pub(crate) fn wake(&mut self, from: &v1::Wake) -> Vec<LongWait> {
        let key = (from.utid, from.number);
        let wake = Wake {
            time_ns: from.time_ns,
            stack: self.trace.stacks.of_node(from.node, from.time_ns),
        };
        self.wakes.insert(key, wake);
        self.wake_order.push_back(key);
        if self.wake_order.len() > KEPT
            && let Some(oldest) = self.wake_order.pop_front()
        {
            self.wakes.remove(&oldest);
        }
        let mut complete = self.waits.remove(&key).unwrap_or_default();
        for wait in &mut complete {
            wait.wake = Some(wake);
        }
        complete
    }

    /// Nothing more is read: those whose other half is missing.
    pub(crate) fn finish(&mut self) -> Vec<LongWait> {
        let mut left: Vec<_> = std::mem::take(&mut self.waits)
            .into_values()
            .flatten()
            .collect();
        left.sort_by_key(|wait| (wait.end_ns, wait.thread));
        left
    }
}
