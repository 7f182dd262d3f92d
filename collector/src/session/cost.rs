//! What the recording costs, in stretches of a fraction of a second: its own processor time, and what its
//! captures take away from the program's threads, beside the processor time of the program.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Upid, Utid};
use stackbeat_core::platform;
use stackbeat_core::shm::layout::ThreadEntry;

use super::activity::Part;
use super::clocks::own_cpu;
use super::kept::Kept;
use super::shared::Shared;

/// What a hook of an allocation costs that only counts, ns. In a loop of nothing else it is 1
/// (`benches/hooks` in `core`); between a program's own work its code and its jumps are further away (python
/// with `PYTHONMALLOC=malloc`: 1.9; `benches/overhead.py --tools stackbeat-counting`).
const HOOK_NS: u64 = 2;
/// A program that does next to nothing counts as if it used this part of a processor: the recording may cost
/// it something all the same.
const LEAST_LOAD: u64 = 10;

/// What a thread cost, and used, in a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadCost {
    pub utid: Utid,
    pub entry: u32,
    pub cpu_ns: u64,
    /// Captures, signals included.
    pub capture_ns: u64,
    /// Those of waits that were records because of their length.
    pub waits_ns: u64,
}

/// Most that a thread can have used in one stretch, ns: the counts of a thread are the program's to write.
const MOST_NS: u64 = 3_600_000_000_000;

/// A stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// How long it lasted.
    pub wall_ns: u64,
    /// Processor time of the program, what was taken away from it included.
    pub program_ns: u64,
    /// Of it what was not read but inferred, because processes came and went.
    pub inferred_ns: u64,
    /// The ticker's thread.
    pub ticker_ns: u64,
    /// The recorder's other threads.
    pub besides_ns: u64,
    /// Hooks that captured nothing; an estimate.
    pub hooks_ns: u64,
    /// Threads that ran.
    pub threads: Vec<ThreadCost>,
}

impl Cost {
    pub(super) fn captures_ns(&self) -> u64 {
        self.threads.iter().map(|t| t.capture_ns).sum()
    }

    /// Those of waits that were records because of their length.
    pub(super) fn waits_ns(&self) -> u64 {
        self.threads.iter().map(|t| t.waits_ns).sum()
    }

    /// All of it.
    pub(super) fn total_ns(&self) -> u64 {
        self.captures_ns() + self.ticker_ns + self.besides_ns + self.hooks_ns
    }
}

/// Totals of a thread at the last poll.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    cpu_ns: u64,
    spent_cycles: Cycles,
    waits_cycles: Cycles,
    hooks: u64,
}

/// Reads the totals now and then.
#[derive(Debug, Default)]
pub(super) struct Costs {
    threads: Kept<Seen>,
    processes: HashMap<Upid, u64>,
    wall_ns: u64,
    ticker_ns: u64,
    recorder_ns: u64,
}

impl Costs {
    /// `recorder_ns`: CPU time that this process had used when the session began.
    pub(super) fn new(recorder_ns: u64) -> Costs {
        Costs {
            recorder_ns,
            ..Costs::default()
        }
    }

    /// What came together since the last poll. `processes`: the live ones, by upid, and their CPU time, ns.
    /// `active`: threads that were active, on average.
    pub(super) fn poll(
        &mut self,
        shared: &Shared,
        processes: impl Iterator<Item = (Upid, u64)>,
        now_ns: u64,
        active: f64,
    ) -> Cost {
        let ticker_ns = platform::thread_cpu_ns();
        let recorder_ns = own_cpu().as_nanos() as u64;
        let wall_ns = now_ns.saturating_sub(self.wall_ns);
        let ticker = ticker_ns.saturating_sub(self.ticker_ns);
        let mut cost = Cost {
            wall_ns,
            ticker_ns: ticker,
            besides_ns: recorder_ns
                .saturating_sub(self.recorder_ns)
                .saturating_sub(ticker),
            ..Cost::default()
        };
        (self.wall_ns, self.ticker_ns, self.recorder_ns) = (now_ns, ticker_ns, recorder_ns);
        self.poll_threads(shared, &mut cost, now_ns);
        let (used_ns, is_complete) = self.poll_processes(processes, wall_ns);
        cost.program_ns = used_ns.max(wall_ns / LEAST_LOAD);
        if !is_complete {
            // Processes that came and went in between.
            let inferred_ns = (wall_ns as f64 * active) as u64;
            cost.inferred_ns = inferred_ns.saturating_sub(cost.program_ns);
            cost.program_ns = cost.program_ns.max(inferred_ns);
        }
        cost
    }

    /// Whether the thread lived at the last poll.
    pub(super) fn has(&self, utid: Utid) -> bool {
        self.threads.has(utid)
    }

    fn poll_threads(&mut self, shared: &Shared, cost: &mut Cost, now_ns: u64) {
        let poll = |index, entry: &ThreadEntry, utid, before: Option<&Seen>| {
            let seen = Seen {
                cpu_ns: entry.cpu_ns.load(Ordering::Relaxed),
                spent_cycles: entry.spent_cycles.load(Ordering::Relaxed),
                waits_cycles: entry.waits_cycles.load(Ordering::Relaxed),
                hooks: (entry.allocations.load(Ordering::Relaxed))
                    .wrapping_add(entry.frees.load(Ordering::Relaxed)),
            };
            let before = before.copied().unwrap_or_default();
            let cycles = seen.spent_cycles.saturating_sub(before.spent_cycles);
            let waits = seen.waits_cycles.saturating_sub(before.waits_cycles);
            let hooks = seen.hooks.saturating_sub(before.hooks);
            cost.hooks_ns += hooks.saturating_mul(HOOK_NS).min(MOST_NS);
            if cycles > Cycles(0) {
                let capture_ns = shared.cycles_to_ns(cycles).min(MOST_NS);
                cost.threads.push(ThreadCost {
                    utid,
                    entry: index,
                    cpu_ns: seen.cpu_ns.saturating_sub(before.cpu_ns).min(MOST_NS),
                    capture_ns,
                    waits_ns: shared.cycles_to_ns(waits).min(capture_ns),
                });
            }
            seen
        };
        self.threads.poll(shared, Part::Costs, now_ns, poll);
    }

    /// CPU time that the live processes used in this time, ns, and whether they are the same as before. One
    /// that is new here may be old itself, by attach or exec: it has used no more than the processors give.
    fn poll_processes(
        &mut self,
        processes: impl Iterator<Item = (Upid, u64)>,
        wall_ns: u64,
    ) -> (u64, bool) {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let most_ns = wall_ns.saturating_mul(cpus);
        let mut used_ns = 0;
        let mut known = 0;
        let before = std::mem::take(&mut self.processes);
        for (upid, cpu_ns) in processes {
            known += usize::from(before.contains_key(&upid));
            used_ns += match before.get(&upid) {
                Some(before_ns) => cpu_ns.saturating_sub(*before_ns),
                None => cpu_ns.min(most_ns),
            };
            self.processes.insert(upid, cpu_ns);
        }
        let is_complete = known == before.len() && known == self.processes.len();
        (used_ns, is_complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_used_before_is_no_part_of_a_recording() {
        const MS: u64 = 1_000_000;
        let mut costs = Costs::default();
        let (first, is_complete) = costs.poll_processes([(Upid(1), 100_000 * MS)].into_iter(), MS);
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        assert_eq!((first, is_complete), (cpus * MS, false));
        let both = [(Upid(1), 100_005 * MS), (Upid(2), MS)];
        let (next, _) = costs.poll_processes(both.into_iter(), 10 * MS);
        assert_eq!(next, 6 * MS);
    }
}
