//! What happened inside of scopes of the program: time, CPU time and the like by the thread's segments, allocations and system
//! calls by the samples that these caused.
//!
//! A thread's scopes and samples each come in order of time, but not among each other: what is known of both is put in
//! order here, and no more is kept.

use std::collections::{BTreeMap, HashMap, VecDeque};

use stackbeat_collector::model::{
    Amounts, CallsMade, ProbeId, SampleRow, Segment, ThreadIndex, Trace,
};
use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::{SystemCall, SystemCalls};
use stackbeat_proto::columns::time_unit_ns;

use super::profile::ThreadTime;

/// Sums of all scopes by name, while a trace is read.
#[derive(Debug, Default)]
pub struct ScopeSums {
    /// What is added to times of samples, ns. They are rounded down to a unit, and often what they tell of was done as soon as its scope
    /// began; before a scope can end there is at least the capture.
    later_ns: u64,
    threads: HashMap<ThreadIndex, Thread>,
    sums: BTreeMap<String, Inside>,
}

/// What happened inside of scopes, the scopes in them included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    pub time: ThreadTime,
    pub system_calls: SystemCalls,
}

/// Most segments that are kept of a thread whose scopes are not known so far; of more, neighbours become one. A thread that
/// had no scope yet seldom gets one.
const MOST_SEGMENTS: usize = 256;
const MOST_BEFORE_SCOPES: usize = 16;

#[derive(Debug, Default)]
struct Thread {
    /// Begins, with a name, and ends that are not settled.
    edges: VecDeque<(u64, Option<String>)>,
    segments: VecDeque<Stretch>,
    counts: VecDeque<(u64, Counter, u64)>,
    /// No edge, and no segment, comes before these times any more.
    edges_until_ns: u64,
    segments_until_ns: u64,
    /// What the thread did so far, and what it had done at the begin of each open scope.
    so_far: Inside,
    open: Vec<(String, Inside)>,
    /// The scopes around the last sample of each counter: what comes after it belongs to them, too.
    last: HashMap<Counter, Vec<String>>,
    settled_ns: u64,
    allocations: Allocations,
}

/// What samples count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Counter {
    Call(SystemCall),
    Allocations,
    Bytes,
}

/// Allocations and bytes of a thread that belong to a sample or a segment.
#[derive(Debug, Default)]
struct Allocations {
    given: Amounts,
    /// Times of the last samples that say who allocates, and of bytes. Until a thread has one, its segments say it.
    last: [Option<u64>; 2],
}

/// A segment, or neighbours that have become one.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    begin_ns: u64,
    end_ns: u64,
    time: ThreadTime,
}

impl ScopeSums {
    pub fn new(trace: &Trace) -> ScopeSums {
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

    pub fn system_calls(&mut self, made: &CallsMade) {
        let counter = Counter::Call(made.call);
        self.count(made.thread, made.time_ns, counter, made.count);
    }

    /// Takes a sample: of some is known how much was allocated since the last one.
    pub fn sample(&mut self, thread: ThreadIndex, row: &SampleRow) {
        let counter = match ProbeId(row.probe).known() {
            Some(Probe::CountedAllocation) => Counter::Allocations,
            Some(Probe::CountedByte) => Counter::Bytes,
            _ => return,
        };
        let of_thread = self.threads.entry(thread).or_default();
        of_thread.allocations.last[usize::from(counter == Counter::Bytes)] = Some(row.time_ns);
        let total = Amounts {
            allocations: row.allocations,
            allocated_bytes: row.allocated_bytes,
            ..Amounts::default()
        };
        self.allocated(thread, row.time_ns, counter, &total);
    }

    /// The thread has no more samples. `totals`: its exact counts, if they are known.
    pub fn thread_end(&mut self, thread: ThreadIndex, totals: Option<&Amounts>) {
        let of_thread = self.threads.entry(thread).or_default();
        of_thread.segments_until_ns = u64::MAX;
        let last = of_thread.allocations.last;
        if let Some(totals) = totals {
            // What came after the last sample belongs to its scopes.
            for (counter, at_ns) in [Counter::Allocations, Counter::Bytes].into_iter().zip(last) {
                if let Some(at_ns) = at_ns {
                    self.allocated(thread, at_ns, counter, totals);
                }
            }
        }
    }

    fn allocated(&mut self, thread: ThreadIndex, at_ns: u64, counter: Counter, total: &Amounts) {
        let of_thread = self.threads.entry(thread).or_default();
        let count = of_thread.allocations.take(counter, total);
        self.count(thread, at_ns, counter, count);
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

    pub fn segment(&mut self, segment: &Segment) {
        let of_thread = self.threads.entry(segment.thread).or_default();
        let mut stretch = Stretch::of(segment);
        of_thread.allocations.leave(&mut stretch.time.amounts);
        of_thread.segments.push_back(stretch);
        of_thread.segments_until_ns = of_thread.segments_until_ns.max(segment.end_ns);
        of_thread.settle(&mut self.sums);
        let most = match of_thread.edges_until_ns {
            0 => MOST_BEFORE_SCOPES,
            _ => MOST_SEGMENTS,
        };
        if of_thread.segments.len() > most {
            of_thread.join_neighbours();
        }
    }

    /// The sums of all scopes by name. Scopes that are open last as long as their threads.
    pub fn finish(mut self) -> BTreeMap<String, Inside> {
        for of_thread in self.threads.values_mut() {
            (of_thread.edges_until_ns, of_thread.segments_until_ns) = (u64::MAX, u64::MAX);
            of_thread.settle(&mut self.sums);
            of_thread.run_until(u64::MAX);
            while !of_thread.open.is_empty() {
                of_thread.end(&mut self.sums);
            }
        }
        self.sums
    }
}

impl Thread {
    /// Takes what nothing can come before any more, in order of time.
    fn settle(&mut self, sums: &mut BTreeMap<String, Inside>) {
        let until = self.edges_until_ns.min(self.segments_until_ns);
        self.settled_ns = self.settled_ns.max(until);
        loop {
            let edge_ns = self.edges.front().map_or(u64::MAX, |edge| edge.0);
            let count_ns = self.counts.front().map_or(u64::MAX, |count| count.0);
            if edge_ns.min(count_ns) >= until {
                self.run_until(until);
                return;
            }
            if count_ns < edge_ns {
                if let Some((_, counter, count)) = self.counts.pop_front() {
                    self.so_far.count(counter, count);
                    let names = self.open.iter().map(|(name, _)| name.clone());
                    self.last.insert(counter, names.collect());
                }
                continue;
            }
            self.run_until(edge_ns);
            match self.edges.pop_front() {
                Some((_, Some(name))) => self.open.push((name, self.so_far)),
                _ => self.end(sums),
            }
        }
    }

    /// Takes segments, or the part of one, up to this time.
    fn run_until(&mut self, until_ns: u64) {
        while let Some(stretch) = self.segments.front_mut() {
            if stretch.end_ns <= until_ns {
                self.so_far.time.add(&stretch.time);
                self.segments.pop_front();
            } else {
                if stretch.begin_ns < until_ns {
                    self.so_far.time.add(&stretch.split_off(until_ns));
                }
                return;
            }
        }
    }

    fn end(&mut self, sums: &mut BTreeMap<String, Inside>) {
        if let Some((name, before)) = self.open.pop() {
            sums.entry(name)
                .or_default()
                .add(&self.so_far.since(&before));
        }
    }

    /// Counts what came after the last sample of a counter.
    fn late(&mut self, counter: Counter, count: u64, sums: &mut BTreeMap<String, Inside>) {
        for name in self.last.get(&counter).into_iter().flatten() {
            sums.entry(name.clone()).or_default().count(counter, count);
        }
    }

    fn join_neighbours(&mut self) {
        let mut joined = VecDeque::with_capacity(self.segments.len());
        while let Some(mut stretch) = self.segments.pop_front() {
            if let Some(next) = self.segments.pop_front() {
                stretch.end_ns = next.end_ns;
                stretch.time.add(&next.time);
            }
            joined.push_back(stretch);
        }
        self.segments = joined;
    }
}

impl Allocations {
    /// What a counter has grown by since somebody got it.
    fn take(&mut self, counter: Counter, total: &Amounts) -> u64 {
        let (given, total) = match counter {
            Counter::Call(_) => return 0,
            Counter::Allocations => (&mut self.given.allocations, total.allocations),
            Counter::Bytes => (&mut self.given.allocated_bytes, total.allocated_bytes),
        };
        let before = std::mem::replace(given, total.max(*given));
        total.saturating_sub(before)
    }

    /// Leaves a segment what samples do not say.
    fn leave(&mut self, amounts: &mut Amounts) {
        if self.last.iter().any(Option::is_some) {
            (amounts.allocations, amounts.allocated_bytes) = (0, 0);
        } else {
            self.given.add(amounts);
        }
    }
}

impl Stretch {
    fn of(segment: &Segment) -> Stretch {
        let mut time = ThreadTime {
            amounts: segment.amounts,
            ..ThreadTime::default()
        };
        time.add_time(segment.kind, segment.wall_ns());
        Stretch {
            begin_ns: segment.begin_ns,
            end_ns: segment.end_ns,
            time,
        }
    }

    /// Takes away what was before a time inside of it. Shares of small counts are rounded up as often as they are large:
    /// scopes that begin or end in many segments have what they should have in the sum.
    fn split_off(&mut self, at_ns: u64) -> ThreadTime {
        let (part, whole) = (at_ns - self.begin_ns, self.end_ns - self.begin_ns);
        let rounding = spread(at_ns) % whole.max(1);
        let before = self.time.map(|amount| {
            let product = u128::from(amount) * u128::from(part) + u128::from(rounding);
            (product / u128::from(whole.max(1))) as u64
        });
        self.time = self.time.since(&before);
        self.begin_ns = at_ns;
        before
    }
}

/// Numbers evenly spread, whatever they are made of: the last step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn spread(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Inside {
    pub fn add(&mut self, other: &Inside) {
        self.time.add(&other.time);
        self.system_calls.add(&other.system_calls);
    }

    fn count(&mut self, counter: Counter, count: u64) {
        let amounts = &mut self.time.amounts;
        let sum = match counter {
            Counter::Call(call) => &mut self.system_calls.0[call as usize],
            Counter::Allocations => &mut amounts.allocations,
            Counter::Bytes => &mut amounts.allocated_bytes,
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
    use stackbeat_collector::model::{SegmentKind, StackIndex};

    use super::*;

    const THREAD: ThreadIndex = ThreadIndex(1);

    fn made(thread: ThreadIndex, time_ns: u64, call: SystemCall, count: u64) -> CallsMade {
        CallsMade {
            thread,
            stack: StackIndex::NONE,
            call,
            count,
            time_ns,
        }
    }

    fn segment(begin_ns: u64, end_ns: u64, kind: SegmentKind, amounts: Amounts) -> Segment {
        Segment {
            thread: THREAD,
            begin_ns,
            end_ns,
            stack: StackIndex::NONE,
            kind,
            amounts,
            arg: None,
            result: None,
            waker_tid: None,
            new_turn: false,
        }
    }

    fn running(begin_ns: u64, end_ns: u64, cpu_ns: u64) -> Segment {
        let amounts = Amounts {
            cpu_ns,
            ..Amounts::default()
        };
        segment(begin_ns, end_ns, SegmentKind::Running, amounts)
    }

    #[test]
    fn calls_belong_to_the_scopes_around_them_whichever_is_read_first() {
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
        let samples = |all: &mut ScopeSums| {
            for (at, call, count) in calls {
                all.system_calls(&made(a, at, call, count));
                all.system_calls(&made(b, at, call, 1));
                all.segment(&running(at - 5, at + 5, 10));
            }
        };
        let scopes = |all: &mut ScopeSums| {
            for (at, name) in edges {
                match name {
                    Some(name) => all.begin(a, name, at),
                    None => all.end(a, at),
                }
            }
        };
        for samples_come_first in [true, false] {
            let mut all = ScopeSums::default();
            if samples_come_first {
                samples(&mut all);
            }
            scopes(&mut all);
            if !samples_come_first {
                samples(&mut all);
            }
            // What came after the last sample is said at the end of the thread.
            all.begin(a, "later", 90);
            all.segment(&running(70, 100, 0));
            all.system_calls(&made(a, 65, stat, 3));
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
        all.segment(&segment(200, 300, sleep, Amounts::default()));
        all.segment(&segment(300, 500, SegmentKind::Gap, Amounts::default()));
        all.thread_end(THREAD, None);
        let sums = all.finish();
        let of = |name: &str| {
            let time = sums[name].time;
            let cpu_ns = time.amounts.cpu_ns;
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
            let amounts = Amounts {
                minor_faults: 1,
                ..Amounts::default()
            };
            let whole = segment(begin_ns, begin_ns + 1000, SegmentKind::Running, amounts);
            all.segment(&whole);
        }
        let faults = all.finish()["first"].time.amounts.minor_faults;
        assert!((2300..2700).contains(&faults), "{faults}");
    }

    #[test]
    fn who_allocates_is_said_by_samples_as_soon_as_there_are_any() {
        let row = |probe: Probe, time_ns, allocations, allocated_bytes| SampleRow {
            probe: probe as u8,
            time_ns,
            allocations,
            allocated_bytes,
            ..SampleRow::default()
        };
        let mut all = ScopeSums::default();
        let amounts = Amounts {
            allocations: 10,
            allocated_bytes: 100,
            ..Amounts::default()
        };
        let with = |begin_ns, end_ns| segment(begin_ns, end_ns, SegmentKind::Running, amounts);
        all.begin(THREAD, "first", 0);
        all.end(THREAD, 100);
        all.begin(THREAD, "second", 100);
        all.end(THREAD, 200);
        all.begin(THREAD, "third", 200);
        all.segment(&with(0, 100));
        all.sample(THREAD, &row(Probe::CountedAllocation, 150, 40, 400));
        all.segment(&with(100, 200));
        all.sample(THREAD, &row(Probe::CountedByte, 250, 60, 600));
        all.segment(&with(200, 300));
        let totals = Amounts {
            allocations: 70,
            allocated_bytes: 800,
            ..Amounts::default()
        };
        all.thread_end(THREAD, Some(&totals));
        let sums = all.finish();
        let of = |name: &str| {
            let amounts = sums[name].time.amounts;
            (amounts.allocations, amounts.allocated_bytes)
        };
        assert_eq!(of("first"), (10, 100));
        // What came after the last one of each kind belongs to that one's scope.
        assert_eq!(of("second"), (30 + 30, 0));
        assert_eq!(of("third"), (0, 500 + 200));
    }

    #[test]
    fn what_is_settled_is_not_kept() {
        let mut all = ScopeSums::default();
        for at in 0..1000 {
            all.begin(THREAD, "scope", 10 * at);
            all.end(THREAD, 10 * at + 5);
            all.system_calls(&made(THREAD, 10 * at + 2, SystemCall::Read, 1));
            all.segment(&running(10 * at, 10 * at + 10, 10));
            let kept = &all.threads[&THREAD];
            let length = kept.edges.len() + kept.counts.len() + kept.segments.len();
            assert!(length < 5, "{kept:?}");
        }
        let sums = all.finish();
        assert_eq!(sums["scope"].system_calls.sum(), 1000);
        assert_eq!(sums["scope"].time.amounts.cpu_ns, 5000);
    }

    #[test]
    fn segments_of_a_long_scope_become_few_and_their_sum_stays() {
        let mut all = ScopeSums::default();
        all.begin(THREAD, "long", 50);
        for at in 0..100_000 {
            all.segment(&running(100 * at, 100 * (at + 1), 60));
            assert!(all.threads[&THREAD].segments.len() <= MOST_SEGMENTS);
        }
        all.end(THREAD, 10_000_000);
        let inside = all.finish()["long"].time;
        assert_eq!(
            (inside.running_ns, inside.amounts.cpu_ns),
            (9_999_950, 5_999_970)
        );
    }
}
