//! Segments summed up: one call tree for the whole trace, and for every (thread, place in the tree)
//! what was spent there. Every table, the JSON and the page are views of this, so that their numbers
//! agree by construction.
//!
//! Memory follows the number of distinct stacks and threads, not the length of the recording.

use std::collections::HashMap;
use std::convert::Infallible;

use stackbeat_core::probe::Cause;
use stackbeat_model::call_tree::{self, CallTree};
pub(crate) use stackbeat_model::call_tree::{Leaf, ROOT};
use stackbeat_model::layers::{CountsFor, Layer};
use stackbeat_model::{FunctionIndex, Metrics, Segment, SegmentKind, Spent, ThreadIndex};

use super::waited_for::WaitedFor;

/// What a place stands for; nothing here tells groups of threads.
pub(crate) type Label = call_tree::Label<Infallible, FunctionIndex>;

/// The call tree of a whole trace.
pub(crate) type Tree = CallTree<Label>;

/// What was spent at one place by one thread, callees not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// All its time is of one kind: running, blocked or without evidence.
    pub spent: Spent,
    /// Segments summed up; for a blocking call the number of waits seen.
    pub count: u64,
    pub longest_ns: u64,
    /// When the longest began.
    pub longest_at_ns: u64,
    /// Of the time, that of waits which were not seen apart: they are in no count, and none is the longest.
    pub inferred_ns: u64,
}

impl Cell {
    /// Adds a part of what a segment spent.
    fn add_part(&mut self, segment: &Segment, part: &Spent) {
        self.spent.add(part);
        let time_ns = part.wall_ns;
        if segment.is_inferred {
            self.inferred_ns += time_ns;
            return;
        }
        self.count += 1;
        if time_ns > self.longest_ns || self.count == 1 {
            self.longest_ns = time_ns;
            self.longest_at_ns = segment.begin_ns;
        }
    }

    /// Adds another cell of the same or of a lower place.
    pub(crate) fn add(&mut self, other: &Cell) {
        self.spent.add(&other.spent);
        self.count += other.count;
        self.inferred_ns += other.inferred_ns;
        if other.longest_ns > self.longest_ns {
            self.longest_ns = other.longest_ns;
            self.longest_at_ns = other.longest_at_ns;
        }
    }
}

/// Number of causes, for arrays indexed by `Cause as usize`.
pub(crate) const CAUSES: usize = Cause::ALL.len();

/// One thread's time by kind. `running + blocked + gap` is its wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadTime {
    pub running_ns: u64,
    pub blocked_ns: [u64; CAUSES],
    pub gap_ns: u64,
    /// CPU time in stretches that no sample says anything about.
    pub gap_cpu_ns: u64,
    pub metrics: Metrics,
}

impl ThreadTime {
    pub(crate) fn all_blocked_ns(&self) -> u64 {
        self.blocked_ns.iter().copied().fold(0, u64::saturating_add)
    }

    /// Time on a processor, of time running: without that in which others had it.
    pub(crate) fn computing_ns(&self) -> u64 {
        self.running_ns.saturating_sub(self.metrics.runnable_ns)
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        self.running_ns + self.all_blocked_ns() + self.gap_ns
    }

    /// Adds a segment without its amounts.
    pub(crate) fn add_time(&mut self, segment: &Segment) {
        self.running_ns += segment.running_ns();
        self.gap_ns += segment.unseen_ns();
        if segment.kind == SegmentKind::Gap {
            self.gap_cpu_ns += segment.metrics.cpu_ns;
        }
        if let SegmentKind::Blocked(probe) = segment.kind {
            self.blocked_ns[probe.cause() as usize] += segment.blocked_ns();
        }
    }

    /// Adds another thread's.
    pub(crate) fn add(&mut self, other: &ThreadTime) {
        self.running_ns += other.running_ns;
        for (sum, more) in self.blocked_ns.iter_mut().zip(other.blocked_ns) {
            *sum += more;
        }
        self.gap_ns += other.gap_ns;
        self.gap_cpu_ns += other.gap_cpu_ns;
        self.metrics.add(&other.metrics);
    }

    /// What was added since it was `before`.
    pub(crate) fn since(&self, before: &ThreadTime) -> ThreadTime {
        let mut blocked_ns = self.blocked_ns;
        for (now, then) in blocked_ns.iter_mut().zip(before.blocked_ns) {
            *now = now.saturating_sub(then);
        }
        ThreadTime {
            running_ns: self.running_ns.saturating_sub(before.running_ns),
            blocked_ns,
            gap_ns: self.gap_ns.saturating_sub(before.gap_ns),
            gap_cpu_ns: self.gap_cpu_ns.saturating_sub(before.gap_cpu_ns),
            metrics: self.metrics.since(&before.metrics),
        }
    }

    /// Each time and amount as `change` makes it.
    pub(crate) fn map(&self, change: impl Fn(u64) -> u64) -> ThreadTime {
        ThreadTime {
            running_ns: change(self.running_ns),
            blocked_ns: self.blocked_ns.map(&change),
            gap_ns: change(self.gap_ns),
            gap_cpu_ns: change(self.gap_cpu_ns),
            metrics: self.metrics.map(change),
        }
    }
}

/// The whole trace, summed up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profile {
    pub tree: Tree,
    pub cells: HashMap<(ThreadIndex, u32), Cell>,
    /// By `ThreadIndex`.
    pub threads: Vec<ThreadTime>,
    /// By `ThreadIndex`: in whose cells this thread's segments are summed up; its own when there is none.
    /// Where many threads do the same work, few cells are met more often in the processor's caches.
    pub owners: Vec<ThreadIndex>,
    /// By place: for whose function amounts count.
    pub counts_for: CountsFor,
    pub waited_for: WaitedFor,
}

impl Profile {
    /// Adds a segment whose stack leads to `path` in this profile's tree. Returns the place it was added at:
    /// below `path` for blocking calls and gaps. What a running thread was off the CPU without evidence is
    /// added there as well.
    pub(crate) fn add(&mut self, segment: &Segment, path: u32) -> u32 {
        let place = match Leaf::of(segment) {
            Leaf::Code | Leaf::NoStack if path == ROOT => {
                self.tree.child(ROOT, Label::Leaf(Leaf::NoStack))
            }
            Leaf::Code | Leaf::NoStack => path,
            leaf => self.tree.child(path, Label::Leaf(leaf)),
        };
        let index = segment.thread.0 as usize;
        let owner = self.owners.get(index).copied().unwrap_or(segment.thread);
        let mut spent = Spent::default();
        spent.add_segment(segment);
        let mut unseen = Spent::default();
        if segment.kind == SegmentKind::Running {
            unseen.wall_ns = spent.gap_ns;
            unseen.gap_ns = spent.gap_ns;
            spent.wall_ns -= unseen.wall_ns;
            spent.gap_ns = 0;
        }
        let cell = self.cells.entry((owner, place)).or_default();
        cell.add_part(segment, &spent);
        if unseen.wall_ns != 0 {
            let gap = self.tree.child(path, Label::Leaf(Leaf::Gap));
            let cell = self.cells.entry((owner, gap)).or_default();
            cell.add_part(segment, &unseen);
        }
        if self.threads.len() <= index {
            self.threads.resize(index + 1, ThreadTime::default());
        }
        let thread = &mut self.threads[index];
        thread.add_time(segment);
        thread.metrics.add(&segment.metrics);
        place
    }

    /// The place that made a blocking call.
    pub(crate) fn caller_of(&self, blocking: u32) -> u32 {
        self.tree.places()[blocking as usize].parent
    }

    /// Says what each function is, when everything was added. What allocators allocated is from now on where
    /// they were called, so that each view of the cells names who allocates.
    pub(crate) fn set_layers(&mut self, layer: impl Fn(FunctionIndex) -> Layer) {
        self.counts_for = CountsFor::of(&self.tree, layer);
        let mut moved: Vec<((ThreadIndex, u32), Metrics)> = Vec::new();
        for ((thread, place), cell) in &mut self.cells {
            let to = self.counts_for.allocated[*place as usize];
            let metrics = &mut cell.spent.metrics;
            if to == *place || (metrics.allocations, metrics.allocated_bytes) == (0, 0) {
                continue;
            }
            let taken = Metrics {
                allocations: std::mem::take(&mut metrics.allocations),
                allocated_bytes: std::mem::take(&mut metrics.allocated_bytes),
                ..Metrics::default()
            };
            moved.push(((*thread, to), taken));
        }
        for (key, metrics) in moved {
            self.cells
                .entry(key)
                .or_default()
                .spent
                .metrics
                .add(&metrics);
        }
    }

    /// The place for whose function running time at a place counts.
    pub(crate) fn runs_for(&self, place: u32) -> u32 {
        let known = self.counts_for.running.get(place as usize).copied();
        known.unwrap_or(place)
    }

    /// The cells of the threads that `wanted` accepts, summed over threads, by place.
    pub(crate) fn by_place(&self, wanted: &dyn Fn(ThreadIndex) -> bool) -> HashMap<u32, Cell> {
        let mut sums: HashMap<u32, Cell> = HashMap::new();
        for ((thread, place), cell) in &self.cells {
            if wanted(*thread) {
                sums.entry(*place).or_default().add(cell);
            }
        }
        sums
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use stackbeat_core::probe::Probe;
    use stackbeat_model::{Evidence, StackIndex};

    use super::*;

    /// A segment of thread 0 with CPU time as long as it ran.
    pub(crate) fn segment(begin_ns: u64, end_ns: u64, kind: SegmentKind) -> Segment {
        let cpu_ns = match kind {
            SegmentKind::Running => end_ns - begin_ns,
            _ => 0,
        };
        Segment {
            thread: ThreadIndex(0),
            begin_ns,
            end_ns,
            stack: StackIndex::NONE,
            kind,
            metrics: Metrics {
                cpu_ns,
                samples: 1,
                ..Metrics::default()
            },
            evidence: Evidence {
                samples: 1,
                squares: u128::from(cpu_ns).pow(2),
            },
            arg: None,
            result: None,
            waker_tid: None,
            new_iteration: false,
            is_inferred: false,
        }
    }

    #[test]
    fn places_are_shared_and_time_is_kept_apart_by_kind() {
        let mut profile = Profile::default();
        let [main, work] = [FunctionIndex(0), FunctionIndex(1)];
        let path = profile.tree.path(&[main, work]);
        assert_eq!(profile.tree.path(&[main, work]), path);
        profile.add(&segment(0, 10, SegmentKind::Running), path);
        profile.add(
            &segment(10, 40, SegmentKind::Blocked(Probe::MutexLock.into())),
            path,
        );
        profile.add(
            &segment(40, 45, SegmentKind::Blocked(Probe::MutexLock.into())),
            path,
        );
        profile.add(&segment(45, 50, SegmentKind::Gap), ROOT);
        profile.add(&segment(50, 53, SegmentKind::Running), ROOT);
        let thread = profile.threads[0];
        assert_eq!(thread.wall_ns(), 53);
        assert_eq!(thread.running_ns, 13);
        assert_eq!(thread.blocked_ns[Cause::Lock as usize], 35);
        assert_eq!(thread.gap_ns, 5);
        let sums = profile.by_place(&|_| true);
        let lock = profile
            .tree
            .child(path, Label::Leaf(Leaf::Blocking(Probe::MutexLock.into())));
        assert_eq!((sums[&lock].count, sums[&lock].longest_ns), (2, 30));
        assert_eq!(sums[&path].spent.running_ns(), 10);
        assert_eq!(sums[&lock].spent.blocked_ns, 35);
        let outwards: Vec<_> = profile.tree.labels(lock).collect();
        assert_eq!(
            outwards,
            [
                Label::Leaf(Leaf::Blocking(Probe::MutexLock.into())),
                Label::Function(work),
                Label::Function(main)
            ]
        );
        assert!(profile.by_place(&|_| false).is_empty());
    }
}
