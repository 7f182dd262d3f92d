//! What happened inside of scopes of the program: time, CPU time and the like by the thread's segments,
//! allocations and system calls by the samples that these caused.
//!
//! A thread's begins and ends of scopes come before the segments that end after them ([`Visitor`]), so scopes
//! are settled up to the end of the last segment, and only what came since is kept.
//!
//! [`Visitor`]: stackbeat_model::Visitor

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::{SystemCall, SystemCalls};
use stackbeat_model::{AttributedCalls, Metrics, ProbeId, SampleRow, Segment, ThreadIndex, Trace};
use stackbeat_proto::columns::time_unit_ns;

use crate::summary::call_tree::ThreadTime;

/// Sums of all scopes by name, while a trace is read.
#[derive(Debug, Default)]
pub(crate) struct ScopeSums {
    /// What is added to times of samples, ns. They are rounded down to a unit, and often what they tell of
    /// was done as soon as its scope began; before a scope can end there is at least the capture.
    later_ns: u64,
    threads: HashMap<ThreadIndex, Thread>,
    sums: Sums,
}

/// By the numbers of names.
#[derive(Debug, Default)]
struct Sums {
    names: HashMap<String, usize>,
    inside: Vec<Inside>,
    /// Scopes began or ended before a segment that had come already: what is inside is not known.
    is_disordered: bool,
}

/// What happened inside of scopes, the scopes in them included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inside {
    pub time: ThreadTime,
    pub system_calls: SystemCalls,
}

#[derive(Debug, Default)]
struct Thread {
    /// Begins, with the number of a name, and ends that are not settled; and what samples counted.
    edges: VecDeque<(u64, Option<usize>)>,
    counts: VecDeque<(u64, Counter, u64)>,
    /// Up to here all is settled.
    settled_ns: u64,
    /// What the thread did so far, and what it had done at the begin of each open scope.
    so_far: Inside,
    open: Vec<(usize, Inside)>,
    /// The scopes that are open now, where somebody asked, and those around the last sample of each counter:
    /// what comes after it belongs to them, too.
    around: Option<Rc<[usize]>>,
    last: HashMap<Counter, Rc<[usize]>>,
    /// Allocations and bytes that belong to a sample or a segment. Of each, samples say who allocates; until
    /// a thread has one, its segments do.
    given: Metrics,
    by_samples: [bool; 2],
}

/// What samples count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Counter {
    Call(SystemCall),
    Allocations,
    Bytes,
}

impl ScopeSums {
    pub(crate) fn new(trace: &Trace) -> ScopeSums {
        let config = trace.config();
        // 0: the same as of other threads.
        let main_ns = Some(config.main_interval_ns).filter(|ns| *ns > 0);
        let unit =
            time_unit_ns(main_ns.map_or(config.interval_ns, |ns| ns.min(config.interval_ns)));
        ScopeSums {
            later_ns: u64::from(unit) * 7 / 8,
            ..ScopeSums::default()
        }
    }

    pub(crate) fn begin(&mut self, thread: ThreadIndex, name: &str, at_ns: u64) {
        let number = self.sums.number(name);
        self.edge(thread, at_ns, Some(number));
    }

    pub(crate) fn end(&mut self, thread: ThreadIndex, at_ns: u64) {
        self.edge(thread, at_ns, None);
    }

    fn edge(&mut self, thread: ThreadIndex, at_ns: u64, begins: Option<usize>) {
        let of_thread = self.threads.entry(thread).or_default();
        self.sums.is_disordered |= at_ns < of_thread.settled_ns;
        of_thread.edges.push_back((at_ns, begins));
    }

    pub(crate) fn system_calls(&mut self, attributed: &AttributedCalls) {
        let counter = Counter::Call(attributed.call);
        self.count(
            attributed.thread,
            attributed.time_ns,
            counter,
            attributed.count,
        );
    }

    /// Takes a sample: of some is known how much was allocated since the last one.
    pub(crate) fn sample(&mut self, thread: ThreadIndex, row: &SampleRow) {
        let (counter, total) = match ProbeId(row.probe).known() {
            Some(Probe::SampledAllocation) => (Counter::Allocations, row.allocations),
            Some(Probe::SampledByte) => (Counter::Bytes, row.allocated_bytes),
            _ => return,
        };
        let of_thread = self.threads.entry(thread).or_default();
        let count = of_thread.allocated(counter, total);
        self.count(thread, row.time_ns, counter, count);
    }

    fn count(&mut self, thread: ThreadIndex, at_ns: u64, counter: Counter, count: u64) {
        let at_ns = at_ns.saturating_add(self.later_ns);
        let of_thread = self.threads.entry(thread).or_default();
        if at_ns < of_thread.settled_ns {
            of_thread.late(counter, count, &mut self.sums);
            return;
        }
        let at = (of_thread.counts).partition_point(|(before, ..)| *before <= at_ns);
        of_thread.counts.insert(at, (at_ns, counter, count));
    }

    pub(crate) fn segment(&mut self, segment: &Segment) {
        let of_thread = self.threads.entry(segment.thread).or_default();
        of_thread.segment(segment, &mut self.sums);
    }

    /// The thread has no more samples. `totals`: its exact counts, if they are known.
    pub(crate) fn thread_end(&mut self, thread: ThreadIndex, totals: Option<&Metrics>) {
        let Some(of_thread) = self.threads.get_mut(&thread) else {
            return;
        };
        of_thread.settle(u64::MAX, &mut self.sums);
        // What came after the last sample belongs to its scopes.
        for counter in [Counter::Allocations, Counter::Bytes] {
            if let Some(totals) = totals
                && of_thread.last.contains_key(&counter)
            {
                let total = match counter {
                    Counter::Bytes => totals.allocated_bytes,
                    _ => totals.allocations,
                };
                let count = of_thread.allocated(counter, total);
                of_thread.late(counter, count, &mut self.sums);
            }
        }
        while !of_thread.open.is_empty() {
            of_thread.end(&mut self.sums);
        }
        self.threads.remove(&thread);
    }

    /// The sums of all scopes by name; none where they are not known. Scopes that are open last as long as
    /// their threads.
    pub(crate) fn finish(mut self) -> BTreeMap<String, Inside> {
        let threads: Vec<ThreadIndex> = self.threads.keys().copied().collect();
        for thread in threads {
            self.thread_end(thread, None);
        }
        let Sums { names, inside, .. } = self.sums;
        let names = names.into_iter().filter(|_| !self.sums.is_disordered);
        names.map(|(name, number)| (name, inside[number])).collect()
    }
}

impl Sums {
    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        self.inside.push(Inside::default());
        self.names.insert(name.to_owned(), self.inside.len() - 1);
        self.inside.len() - 1
    }
}

impl Thread {
    /// Takes a segment, with the edges and the counts in it.
    fn segment(&mut self, segment: &Segment, sums: &mut Sums) {
        let mut time = ThreadTime {
            metrics: segment.metrics,
            ..ThreadTime::default()
        };
        time.add_time(segment);
        self.leave_to_samples(&mut time.metrics);
        let mut begin_ns = segment.begin_ns;
        while let Some((at_ns, _)) = self.edges.front().copied()
            && at_ns < segment.end_ns
        {
            if at_ns > begin_ns {
                let before = split_off(&mut time, begin_ns, at_ns, segment.end_ns);
                self.so_far.time.add(&before);
                begin_ns = at_ns;
            }
            self.settle(at_ns.saturating_add(1), sums);
        }
        self.so_far.time.add(&time);
        self.settle(segment.end_ns, sums);
    }

    /// Takes edges and counts before a time, in their order.
    fn settle(&mut self, until_ns: u64, sums: &mut Sums) {
        self.settled_ns = self.settled_ns.max(until_ns);
        loop {
            let edge_ns = self.edges.front().map_or(u64::MAX, |edge| edge.0);
            let count_ns = self.counts.front().map_or(u64::MAX, |count| count.0);
            if edge_ns.min(count_ns) >= until_ns {
                return;
            }
            if count_ns < edge_ns {
                if let Some((_, counter, count)) = self.counts.pop_front() {
                    self.so_far.count(counter, count);
                    let around = self.around();
                    self.last.insert(counter, around);
                }
            } else {
                match self.edges.pop_front() {
                    Some((_, Some(name))) => {
                        self.around = None;
                        self.open.push((name, self.so_far));
                    }
                    _ => self.end(sums),
                }
            }
        }
    }

    fn around(&mut self) -> Rc<[usize]> {
        let open = &self.open;
        let around = self
            .around
            .get_or_insert_with(|| open.iter().map(|(name, _)| *name).collect());
        Rc::clone(around)
    }

    fn end(&mut self, sums: &mut Sums) {
        self.around = None;
        if let Some((name, before)) = self.open.pop() {
            sums.inside[name].add(&self.so_far.since(&before));
        }
    }

    /// Counts what came after the last sample of a counter.
    fn late(&mut self, counter: Counter, count: u64, sums: &mut Sums) {
        if let Some(around) = self.last.get(&counter) {
            for name in around.iter() {
                sums.inside[*name].count(counter, count);
            }
        }
    }

    /// What a counter has grown by since somebody got it; from now on samples say who does.
    fn allocated(&mut self, counter: Counter, total: u64) -> u64 {
        let given = match counter {
            Counter::Bytes => {
                self.by_samples[1] = true;
                &mut self.given.allocated_bytes
            }
            _ => {
                self.by_samples[0] = true;
                &mut self.given.allocations
            }
        };
        let before = std::mem::replace(given, total.max(*given));
        total.saturating_sub(before)
    }

    /// Leaves a segment what samples do not say.
    fn leave_to_samples(&mut self, metrics: &mut Metrics) {
        let counters = [
            (&mut metrics.allocations, &mut self.given.allocations),
            (
                &mut metrics.allocated_bytes,
                &mut self.given.allocated_bytes,
            ),
        ];
        for ((amount, given), by_samples) in counters.into_iter().zip(self.by_samples) {
            match by_samples {
                true => *amount = 0,
                false => *given = given.saturating_add(*amount),
            }
        }
    }
}

/// Takes what was before a time inside of a segment away from it. Shares of small counts are rounded up as
/// often as they are large: scopes that begin or end in many segments have what they should have in the sum.
fn split_off(time: &mut ThreadTime, begin_ns: u64, at_ns: u64, end_ns: u64) -> ThreadTime {
    let (part, whole) = (at_ns - begin_ns, end_ns - begin_ns);
    let rounding = spread(at_ns) % whole;
    let before = time.map(|amount| {
        let product = u128::from(amount) * u128::from(part) + u128::from(rounding);
        (product / u128::from(whole)) as u64
    });
    *time = time.since(&before);
    before
}

/// Numbers evenly spread, whatever they are made of: the last step of SplitMix64 (Steele, Lea and Flood,
/// OOPSLA 2014).
fn spread(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Inside {
    fn add(&mut self, other: &Inside) {
        self.time.add(&other.time);
        self.system_calls.add(&other.system_calls);
    }

    fn count(&mut self, counter: Counter, count: u64) {
        let metrics = &mut self.time.metrics;
        let sum = match counter {
            Counter::Call(call) => &mut self.system_calls.0[call as usize],
            Counter::Allocations => &mut metrics.allocations,
            Counter::Bytes => &mut metrics.allocated_bytes,
        };
        *sum = sum.saturating_add(count);
    }

    fn since(&self, before: &Inside) -> Inside {
        let mut since = Inside {
            time: self.time.since(&before.time),
            system_calls: self.system_calls,
        };
        for (now, then) in since.system_calls.0.iter_mut().zip(before.system_calls.0) {
            *now = now.saturating_sub(then);
        }
        since
    }
}

#[cfg(test)]
mod tests {
    use stackbeat_model::{Evidence, SegmentKind, StackIndex};

    use super::*;

    const THREAD: ThreadIndex = ThreadIndex(1);

    fn attributed(
        thread: ThreadIndex,
        time_ns: u64,
        call: SystemCall,
        count: u64,
    ) -> AttributedCalls {
        AttributedCalls {
            thread,
            stack: StackIndex::NONE,
            call,
            count,
            time_ns,
        }
    }

    fn segment(begin_ns: u64, end_ns: u64, kind: SegmentKind, metrics: Metrics) -> Segment {
        Segment {
            thread: THREAD,
            begin_ns,
            end_ns,
            stack: StackIndex::NONE,
            kind,
            metrics,
            evidence: Evidence::default(),
            arg: None,
            result: None,
            waker_tid: None,
            new_iteration: false,
            is_inferred: false,
        }
    }

    fn running(begin_ns: u64, end_ns: u64, cpu_ns: u64) -> Segment {
        let metrics = Metrics {
            cpu_ns,
            ..Metrics::default()
        };
        segment(begin_ns, end_ns, SegmentKind::Running, metrics)
    }

    #[test]
    fn calls_belong_to_the_scopes_around_them() {
        let (a, b) = (THREAD, ThreadIndex(2));
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
        let mut all = ScopeSums::default();
        for (at, name) in edges {
            match name {
                Some(name) => all.begin(a, name, at),
                None => all.end(a, at),
            }
        }
        for (at, call, count) in calls {
            all.system_calls(&attributed(a, at, call, count));
            all.system_calls(&attributed(b, at, call, 1));
            all.segment(&running(at - 5, at + 5, 10));
        }
        // What came after the last sample is said at the end of the thread.
        all.begin(a, "later", 90);
        all.segment(&running(70, 100, 0));
        all.system_calls(&attributed(a, 65, stat, 3));
        all.thread_end(a, None);
        let found: Vec<_> = all
            .finish()
            .into_iter()
            .map(|(name, inside)| {
                let calls = inside.system_calls.0;
                (name, calls[read as usize], calls[stat as usize])
            })
            .collect();
        let expected = [
            ("inner", 30, 0),
            ("later", 0, 0),
            ("open", 0, 5),
            ("outer", 30, 7),
        ];
        assert_eq!(found, expected.map(|(name, r, s)| (name.to_owned(), r, s)));
    }

    #[test]
    fn what_comes_in_no_order_is_not_known() {
        let mut all = ScopeSums::default();
        all.begin(THREAD, "scope", 10);
        all.segment(&running(0, 50, 10));
        all.end(THREAD, 40);
        assert_eq!(all.finish(), BTreeMap::new());
    }

    #[test]
    fn scopes_have_their_part_of_segments() {
        let mut all = ScopeSums::default();
        let sleep = SegmentKind::Blocked(Probe::Nanosleep.into());
        all.begin(THREAD, "outer", 100);
        all.segment(&running(0, 200, 200));
        all.begin(THREAD, "inner", 250);
        all.end(THREAD, 350);
        all.end(THREAD, 400);
        all.segment(&segment(200, 300, sleep, Metrics::default()));
        all.segment(&segment(300, 500, SegmentKind::Gap, Metrics::default()));
        all.thread_end(THREAD, None);
        let sums = all.finish();
        let of = |name: &str| {
            let time = sums[name].time;
            let cpu_ns = time.metrics.cpu_ns;
            let blocked_ns = time.all_blocked_ns();
            (time.running_ns, cpu_ns, blocked_ns, time.gap_ns)
        };
        assert_eq!(of("outer"), (100, 100, 100, 100));
        assert_eq!(of("inner"), (0, 0, 50, 50));
        let sleeps = sums["inner"].time.blocked_ns[Probe::Nanosleep.cause() as usize];
        assert_eq!(sleeps, 50);
    }

    #[test]
    fn small_counts_of_a_segment_are_spread_over_its_scopes() {
        let mut all = ScopeSums::default();
        for at in 0..10_000 {
            let begin_ns = 1000 * at;
            all.begin(THREAD, "first", begin_ns);
            all.end(THREAD, begin_ns + 250);
            let metrics = Metrics {
                minor_faults: 1,
                ..Metrics::default()
            };
            let whole = segment(begin_ns, begin_ns + 1000, SegmentKind::Running, metrics);
            all.segment(&whole);
        }
        let faults = all.finish()["first"].time.metrics.minor_faults;
        assert!((2300..2700).contains(&faults), "{faults}");
    }

    fn row(probe: Probe, time_ns: u64, allocations: u64, allocated_bytes: u64) -> SampleRow {
        SampleRow {
            probe: probe as u8,
            time_ns,
            allocations,
            allocated_bytes,
            ..SampleRow::default()
        }
    }

    /// A segment of 100 ns in which there were ten allocations of ten bytes.
    fn allocating(begin_ns: u64) -> Segment {
        let metrics = Metrics {
            allocations: 10,
            allocated_bytes: 100,
            ..Metrics::default()
        };
        segment(begin_ns, begin_ns + 100, SegmentKind::Running, metrics)
    }

    fn allocations(sums: &BTreeMap<String, Inside>, name: &str) -> (u64, u64) {
        let metrics = sums[name].time.metrics;
        (metrics.allocations, metrics.allocated_bytes)
    }

    #[test]
    fn who_allocates_is_said_by_samples_as_soon_as_there_are_any() {
        let mut all = ScopeSums::default();
        all.begin(THREAD, "first", 0);
        all.end(THREAD, 100);
        all.begin(THREAD, "second", 100);
        all.end(THREAD, 200);
        all.begin(THREAD, "third", 200);
        all.segment(&allocating(0));
        all.sample(THREAD, &row(Probe::SampledAllocation, 150, 40, 400));
        all.segment(&allocating(100));
        all.sample(THREAD, &row(Probe::SampledByte, 250, 60, 600));
        all.segment(&allocating(200));
        let totals = Metrics {
            allocations: 70,
            allocated_bytes: 800,
            ..Metrics::default()
        };
        all.thread_end(THREAD, Some(&totals));
        let sums = all.finish();
        assert_eq!(allocations(&sums, "first"), (10, 100));
        // What came after the last sample of each kind belongs to that one's scope; nobody has said of the
        // bytes of the second segment who has them but the segment itself.
        assert_eq!(allocations(&sums, "second"), (30 + 30, 100));
        assert_eq!(allocations(&sums, "third"), (0, 400 + 200));
    }

    /// Few large blocks meet a sample of bytes, and none of allocations.
    #[test]
    fn samples_of_bytes_do_not_take_allocations_away() {
        let mut all = ScopeSums::default();
        all.begin(THREAD, "load", 0);
        all.sample(THREAD, &row(Probe::SampledByte, 50, 1, 300_000));
        all.segment(&allocating(0));
        all.sample(THREAD, &row(Probe::SampledByte, 150, 2, 600_000));
        all.segment(&allocating(100));
        all.thread_end(THREAD, None);
        assert_eq!(allocations(&all.finish(), "load"), (20, 600_000));
    }

    #[test]
    fn what_is_settled_is_not_kept() {
        let mut all = ScopeSums::default();
        all.begin(THREAD, "long", 0);
        for at in 0..1000 {
            all.begin(THREAD, "scope", 10 * at);
            all.end(THREAD, 10 * at + 5);
            all.system_calls(&attributed(THREAD, 10 * at + 2, SystemCall::Read, 1));
            all.segment(&running(10 * at, 10 * at + 10, 10));
            let kept = &all.threads[&THREAD];
            assert!(kept.edges.len() + kept.counts.len() < 3, "{kept:?}");
        }
        all.thread_end(THREAD, None);
        assert!(all.threads.is_empty());
        let sums = all.finish();
        for (name, cpu_ns) in [("scope", 5000), ("long", 10_000)] {
            assert_eq!(sums[name].system_calls.sum(), 1000);
            assert_eq!(sums[name].time.metrics.cpu_ns, cpu_ns);
        }
    }

    /// Scopes that never end do not take ever longer.
    #[test]
    fn many_open_scopes_are_no_trouble() {
        const OPEN: u64 = 20_000;
        let mut all = ScopeSums::default();
        for at in 0..OPEN {
            all.begin(THREAD, "left open", 10 * at);
            all.system_calls(&attributed(THREAD, 10 * at + 2, SystemCall::Read, 1));
            all.segment(&running(10 * at, 10 * at + 10, 10));
        }
        let calls = all.finish()["left open"].system_calls.sum();
        assert_eq!(calls, OPEN * (OPEN + 1) / 2);
    }
}
