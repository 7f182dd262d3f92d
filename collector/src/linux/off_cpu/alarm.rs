//! What dumps are written for by themselves: threads that wait for too long, iterations of event loops that
//! take too long.

use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Pid, Utid};
use stackbeat_core::probe::{Cause, Probe};
use stackbeat_core::shm::layout::{ThreadEntry, entry_state};
use stackbeat_core::sync::Ordering;

use super::super::procfs;
use crate::drain::seen_waits::Begin;
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
    pub begin: Begin,
    pub waited_ns: u64,
}

/// What of a thread was reported.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    utid: Utid,
    wait: Option<Begin>,
    loop_iteration: Cycles,
}

/// Watches for what the user wants dumps of.
#[derive(Debug)]
pub(super) struct Alarms {
    block_ns: Option<u64>,
    causes: Vec<Cause>,
    slow_iteration_ns: Option<u64>,
    /// By entry.
    reported: Vec<Reported>,
    reasons: Vec<Reason>,
}

impl Alarms {
    /// Has hooks note slow iterations, if a dump is wanted for these.
    pub(super) fn new(rules: &Dumps, shared: &Shared) -> Alarms {
        if let Some(ns) = rules.slow_iteration_ns {
            let cycles = shared.ns_to_cycles(ns).max(Cycles(1));
            let word = &shared.mapping.control().slow_iteration_cycles;
            word.store(cycles, Ordering::Relaxed);
        }
        Alarms {
            block_ns: rules.block_ns,
            causes: rules.causes.clone(),
            slow_iteration_ns: rules.slow_iteration_ns,
            reported: Vec::new(),
            reasons: Vec::new(),
        }
    }

    /// Whether a dump is wanted for anything.
    pub(super) fn is_any(&self) -> bool {
        self.block_ns.is_some() || self.slow_iteration_ns.is_some()
    }

    /// How long a thread may wait before a dump is wanted.
    pub(super) fn block_ns(&self) -> u64 {
        self.block_ns.unwrap_or(u64::MAX)
    }

    /// Checks the thread of an entry, which may be waiting. Gives when to check again at the latest, ns.
    pub(super) fn watch(
        &mut self,
        shared: &Shared,
        at: usize,
        entry: &ThreadEntry,
        waiting: Option<Waiting>,
        now: Cycles,
    ) -> Option<u64> {
        if (self.block_ns.is_none() && self.slow_iteration_ns.is_none())
            || entry.state.load(Ordering::Acquire) != entry_state::LIVE
        {
            return None;
        }
        let utid = entry.utid();
        if self.reported.len() <= at {
            self.reported.resize(at + 1, Reported::default());
        }
        let mut reported = self.reported[at];
        if reported.utid != utid {
            reported = Reported {
                utid,
                ..Reported::default()
            };
        }
        let block = self.watch_wait(shared, entry, waiting, &mut reported);
        let loop_iteration = self.watch_loop_iterations(shared, entry, &mut reported, now);
        self.reported[at] = reported;
        block.into_iter().chain(loop_iteration).min()
    }

    fn watch_wait(
        &mut self,
        shared: &Shared,
        entry: &ThreadEntry,
        waiting: Option<Waiting>,
        reported: &mut Reported,
    ) -> Option<u64> {
        let (limit, waiting) = (self.block_ns?, waiting?);
        let probe = Probe::from_number(waiting.probe)?;
        if reported.wait == Some(waiting.begin) || !self.causes.contains(&probe.cause()) {
            return None;
        }
        if waiting.waited_ns < limit {
            return Some(limit - waiting.waited_ns);
        }
        reported.wait = Some(waiting.begin);
        let what = format!("has waited {{}} in {}", probe.name());
        self.report(shared, entry, &what, waiting.waited_ns);
        None
    }

    fn watch_loop_iterations(
        &mut self,
        shared: &Shared,
        entry: &ThreadEntry,
        reported: &mut Reported,
        now: Cycles,
    ) -> Option<u64> {
        let limit = self.slow_iteration_ns?;
        if entry.loop_iterations.load(Ordering::Relaxed) < LEAST_ITERATIONS {
            return None;
        }
        let over = entry.slow_iteration.load(Ordering::Relaxed);
        if over > reported.loop_iteration {
            // It was over before it was noticed.
            reported.loop_iteration = over;
            self.report(
                shared,
                entry,
                "has taken more than {} for one iteration of its event loop",
                limit,
            );
            return None;
        }
        let loop_iteration = entry.loop_iteration.load(Ordering::Relaxed);
        if loop_iteration == Cycles(0) || loop_iteration == reported.loop_iteration {
            return None;
        }
        let taken_ns = shared.cycles_to_ns(now.saturating_sub(loop_iteration));
        if taken_ns <= limit {
            return Some(limit - taken_ns + 1);
        }
        reported.loop_iteration = loop_iteration;
        self.report(
            shared,
            entry,
            "has been {} in one iteration of its event loop",
            taken_ns,
        );
        None
    }

    fn report(&mut self, shared: &Shared, entry: &ThreadEntry, what: &str, ns: u64) {
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

    /// Wants dumps for what was noticed; the drain has got what they are about.
    pub(super) fn want_dumps(&mut self, shared: &Shared) {
        for reason in self.reasons.drain(..) {
            shared.want_dump(reason);
        }
    }
}
