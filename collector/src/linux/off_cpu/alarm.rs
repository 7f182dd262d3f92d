//! What dumps are written for by themselves: threads that wait for too long, iterations of event loops that take
//! too long.

use stackbeat_core::ids::{Pid, Utid};
use stackbeat_core::probe::{Cause, Probe};
use stackbeat_core::shm::layout::{ThreadEntry, entry_state};
use stackbeat_core::sync::Ordering;

use super::super::procfs;
use crate::session::options::Dumps;
use crate::session::orders::Reason;
use crate::session::shared::Shared;

/// Waits for events after which a thread counts as an event loop.
const LEAST_ITERATIONS: u32 = 3;

/// A wait that is in the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub probe: u8,
    /// Tells it from the thread's other waits.
    pub begin: u64,
    pub waited_ns: u64,
}

/// What was said about a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    utid: Utid,
    wait: u64,
    loop_iteration: u64,
}

/// Watches for what the user wants to be told of.
#[derive(Debug)]
pub(super) struct Alarms {
    block_ns: Option<u64>,
    causes: Vec<Cause>,
    slow_iteration_ns: Option<u64>,
    /// By entry.
    told: Vec<Told>,
    reasons: Vec<Reason>,
}

impl Alarms {
    /// Has hooks note slow iterations, if somebody wants to know.
    pub(super) fn new(rules: &Dumps, shared: &Shared) -> Alarms {
        if let Some(ns) = rules.slow_iteration_ns {
            let cycles = shared.ns_to_cycles(ns).max(1);
            let word = &shared.mapping.control().slow_iteration_cycles;
            word.store(cycles, Ordering::Relaxed);
        }
        Alarms {
            block_ns: rules.block_ns,
            causes: rules.causes.clone(),
            slow_iteration_ns: rules.slow_iteration_ns,
            told: Vec::new(),
            reasons: Vec::new(),
        }
    }

    /// How long a thread may wait before somebody wants to know.
    pub(super) fn block_ns(&self) -> u64 {
        self.block_ns.unwrap_or(u64::MAX)
    }

    /// Looks at the thread of an entry, which may be waiting. Gives when to look again at the latest, ns.
    pub(super) fn watch(
        &mut self,
        shared: &Shared,
        at: usize,
        entry: &ThreadEntry,
        waiting: Option<Waiting>,
        now: u64,
    ) -> Option<u64> {
        if (self.block_ns.is_none() && self.slow_iteration_ns.is_none())
            || entry.state.load(Ordering::Acquire) != entry_state::LIVE
        {
            return None;
        }
        let utid = entry.utid();
        if self.told.len() <= at {
            self.told.resize(at + 1, Told::default());
        }
        let mut told = self.told[at];
        if told.utid != utid {
            told = Told {
                utid,
                ..Told::default()
            };
        }
        let block = self.watch_wait(shared, entry, waiting, &mut told);
        let loop_iteration = self.watch_loop_iterations(shared, entry, &mut told, now);
        self.told[at] = told;
        block.into_iter().chain(loop_iteration).min()
    }

    fn watch_wait(
        &mut self,
        shared: &Shared,
        entry: &ThreadEntry,
        waiting: Option<Waiting>,
        told: &mut Told,
    ) -> Option<u64> {
        let (limit, waiting) = (self.block_ns?, waiting?);
        let probe = Probe::from_number(waiting.probe)?;
        if told.wait == waiting.begin || !self.causes.contains(&probe.cause()) {
            return None;
        }
        if waiting.waited_ns < limit {
            return Some(limit - waiting.waited_ns);
        }
        told.wait = waiting.begin;
        let what = format!("has waited {{}} in {}", probe.name());
        self.tell(shared, entry, &what, waiting.waited_ns);
        None
    }

    fn watch_loop_iterations(
        &mut self,
        shared: &Shared,
        entry: &ThreadEntry,
        told: &mut Told,
        now: u64,
    ) -> Option<u64> {
        let limit = self.slow_iteration_ns?;
        if entry.loop_iterations.load(Ordering::Relaxed) < LEAST_ITERATIONS {
            return None;
        }
        let over = entry.slow_iteration.load(Ordering::Relaxed);
        if over > told.loop_iteration {
            // It was over before it was noticed.
            told.loop_iteration = over;
            self.tell(shared, entry, "has taken more than {} for one turn", limit);
            return None;
        }
        let loop_iteration = entry.loop_iteration.load(Ordering::Relaxed);
        if loop_iteration == 0 || loop_iteration == told.loop_iteration {
            return None;
        }
        let taken_ns = shared.cycles_to_ns(now.saturating_sub(loop_iteration));
        if taken_ns <= limit {
            return Some(limit - taken_ns + 1);
        }
        told.loop_iteration = loop_iteration;
        self.tell(shared, entry, "has been {} in one turn", taken_ns);
        None
    }

    fn tell(&mut self, shared: &Shared, entry: &ThreadEntry, what: &str, ns: u64) {
        let process = entry.process.load(Ordering::Relaxed);
        let process = shared.mapping.process(process);
        let pid = process.map_or(Pid(0), |p| p.pid());
        let tid = entry.tid();
        let name = procfs::thread_name(pid, tid).unwrap_or_default();
        let time = format!("{:.3} s", ns as f64 / 1e9);
        self.reasons.push(Reason {
            text: format!("thread {tid} ({name}) {}", what.replace("{}", &time)),
            utid: entry.utid(),
            value_ns: ns,
            ..Reason::default()
        });
    }

    /// Wants dumps for what was noticed; what they are about has been told to the drain.
    pub(super) fn ring(&mut self, shared: &Shared) {
        for reason in self.reasons.drain(..) {
            shared.want_dump(reason);
        }
    }
}
