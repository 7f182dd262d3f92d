//! Conservation: what the segments and slices of a thread add up to must be what the thread really
//! spent. Nothing that is invented or forgotten on the way from samples to slices passes it.

use std::fmt;

use super::{
    ProbeId, SampleRow, Segment, SegmentKind, Slice, StackIndex, Thread, ThreadIndex, ThreadTotals,
    Trace, TraceError, Visitor, call_attribution, sampled_events,
};

/// A sum that does not come out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The thread whose sums they are.
    pub thread: ThreadIndex,
    /// Name of the sum.
    pub what: &'static str,
    /// What it has to be, e.g. by the file's exact counters; in ns or as a number.
    pub expected: u64,
    /// What it is.
    pub found: u64,
    /// Difference that is allowed.
    pub bound: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "thread {}: {}: expected {}, found {} (allowed difference {})",
            self.thread.0, self.what, self.expected, self.found, self.bound
        )
    }
}

/// Checks, for every thread of a trace:
/// - its segments follow each other from its start to its end, exactly;
/// - running + blocked + gaps = wall, and the slices' self, blocked and gap times sum to the same,
///   exactly, where stacks are known;
/// - CPU, allocations, frees and bytes in segments and in slices = the thread's exact counters, exactly;
/// - each sample that stands for time is in one segment;
/// - running time is at most CPU time and time ready to run;
/// - CPU time of running segments is at most their wall time, within `CPU_SLACK_NS` (the two clocks are
///   read one after the other, and interrupts between them count as the thread's CPU time).
pub fn conservation(trace: &Trace) -> Result<Vec<Violation>, TraceError> {
    let mut check = Check {
        threads: vec![Sums::default(); trace.threads().len()],
        violations: Vec::new(),
    };
    trace.visit(&mut check)?;
    Ok(check.violations)
}

/// Two clocks read one after the other may disagree by so much.
const CPU_SLACK_NS: u64 = 100_000;

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    started: bool,
    at_ns: u64,
    /// Samples that stand for time.
    samples: u64,
    without_stack: ThreadTotals,
    slices: ThreadTotals,
    ended: bool,
}

struct Check {
    threads: Vec<Sums>,
    violations: Vec<Violation>,
}

impl Check {
    fn expect(
        &mut self,
        thread: ThreadIndex,
        what: &'static str,
        expected: u64,
        found: u64,
        bound: u64,
    ) {
        if expected.abs_diff(found) > bound {
            self.violations.push(Violation {
                thread,
                what,
                expected,
                found,
                bound,
            });
        }
    }

    /// The thread's exact counters at its end against the sums.
    fn counters(&mut self, index: ThreadIndex, thread: &Thread, totals: &ThreadTotals) {
        let Some(exact) = &thread.totals else { return };
        let found = &totals.metrics;
        let cpu = found.cpu_ns + totals.cpu_before_start_ns;
        self.expect(index, "cpu time", exact.cpu_ns, cpu, 0);
        self.expect(
            index,
            "allocations",
            exact.allocations,
            found.allocations,
            0,
        );
        self.expect(
            index,
            "allocated bytes",
            exact.allocated_bytes,
            found.allocated_bytes,
            0,
        );
        self.expect(index, "frees", exact.frees, found.frees, 0);
    }
}

impl Visitor for Check {
    fn wants_slices(&self) -> bool {
        true
    }

    fn segment(&mut self, trace: &Trace, segment: &Segment) {
        let index = segment.thread;
        let sums = &mut self.threads[index.0 as usize];
        let at = if sums.started {
            sums.at_ns
        } else {
            trace.thread(index).start_ns
        };
        sums.started = true;
        sums.at_ns = segment.end_ns;
        let no_frames = trace.stacks.level(segment.stack) == 0;
        if no_frames && segment.runs() {
            sums.without_stack.add(segment);
        }
        self.expect(index, "begin of a segment", at, segment.begin_ns, 0);
        if segment.end_ns < segment.begin_ns {
            self.expect(
                index,
                "end of a segment",
                segment.begin_ns,
                segment.end_ns,
                0,
            );
        }
        if segment.kind == SegmentKind::Running {
            let wall = segment.wall_ns();
            if segment.metrics.cpu_ns > wall.saturating_add(CPU_SLACK_NS) {
                let cpu = segment.metrics.cpu_ns;
                self.expect(index, "cpu time of a segment", wall, cpu, CPU_SLACK_NS);
            }
        }
    }

    fn sample(&mut self, _trace: &Trace, index: ThreadIndex, row: &SampleRow, _stack: StackIndex) {
        let is_of_time = sampled_events::kind_of(ProbeId(row.probe)).is_none()
            && !call_attribution::is_of_calls(row);
        self.threads[index.0 as usize].samples += u64::from(is_of_time);
    }

    fn slice(&mut self, _trace: &Trace, slice: &Slice) {
        let sums = &mut self.threads[slice.thread.0 as usize].slices;
        sums.running_ns += slice.self_ns;
        if slice.depth == 0 {
            sums.gap_ns += slice.gap_ns;
        }
        if let Some(probe) = slice.blocking {
            sums.blocked_ns[probe.cause() as usize] += slice.blocked_ns;
        }
        sums.metrics.add(&slice.own);
        let length = slice.end_ns.saturating_sub(slice.begin_ns);
        let parts = slice.self_ns + slice.blocked_ns + slice.gap_ns;
        if slice.end_ns < slice.begin_ns || parts > length {
            self.expect(slice.thread, "length of a slice", length, parts, 0);
        }
    }

    fn thread_end(&mut self, trace: &Trace, index: ThreadIndex, totals: &ThreadTotals) {
        let sums = self.threads[index.0 as usize];
        self.threads[index.0 as usize].ended = true;
        let thread = trace.thread(index);
        let wall = thread.end_ns - thread.start_ns;
        self.expect(index, "ends of a thread", 0, u64::from(sums.ended), 0);
        self.expect(index, "wall time", wall, totals.wall_ns, 0);
        let parts = totals.running_ns + totals.gap_ns + totals.all_blocked_ns();
        self.expect(index, "running + blocked + gaps", totals.wall_ns, parts, 0);
        let bare = &sums.without_stack;
        let running = sums.slices.running_ns + bare.running_ns;
        self.expect(index, "self times", totals.running_ns, running, 0);
        let blocked = sums.slices.all_blocked_ns();
        self.expect(index, "blocked slices", totals.all_blocked_ns(), blocked, 0);
        let gap = sums.slices.gap_ns + bare.gap_ns;
        self.expect(index, "slices without evidence", totals.gap_ns, gap, 0);
        let metrics = &totals.metrics;
        let accounted = metrics.cpu_ns.saturating_add(metrics.runnable_ns);
        if totals.running_ns > accounted {
            let what = "running time within cpu and runnable time";
            self.expect(index, what, accounted, totals.running_ns, 0);
        }
        let mut metrics = sums.slices.metrics;
        metrics.add(&bare.metrics);
        let pairs = [
            ("samples of time", sums.samples, totals.metrics.samples),
            ("cpu time in slices", totals.metrics.cpu_ns, metrics.cpu_ns),
            (
                "allocations in slices",
                totals.metrics.allocations,
                metrics.allocations,
            ),
            ("samples in slices", totals.metrics.samples, metrics.samples),
        ];
        for (what, expected, found) in pairs {
            self.expect(index, what, expected, found, 0);
        }
        self.counters(index, thread, totals);
    }
}
