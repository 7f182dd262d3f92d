//! Counters and scopes of a trace, summed up; and counters that its samples give, beside those it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Serialize;
use stackbeat_core::system_call::SystemCall;
use stackbeat_model::{AttributedCalls, Counter, SampleRow, Segment, ThreadIndex, Trace};
use stackbeat_proto::v1::{Event, event};

use super::scope_sums::{Inside, ScopeSums};
use crate::meters::{Meters, Reading, Totals};
use crate::scopes::{Asynchronous, Open, Scope};
use crate::summary::call_bytes::CallBytes;

/// Values that a report keeps of one counter: more than a screen has pixels.
const MOST_POINTS: usize = 4096;

/// Shortest distance of values that come from samples: what the recorder's own have by default, ns.
const PERIOD_NS: u64 = 100_000_000;
/// What the recorder reads of each process when it reads counters.
const READ_BY_RECORDER: (&str, &str) = ("CPU", "%");

/// A rate that samples give: name, unit, what of it in one such unit, and what it counts.
type Rate = (&'static str, &'static str, u64, fn(&Totals) -> u64);

/// Of processes.
const PROCESS_RATES: [Rate; 4] = [
    ("voluntary switches", "/s", 1, |t| t.voluntary_switches),
    ("involuntary switches", "/s", 1, |t| t.involuntary_switches),
    LOCK_RATES[0],
    LOCK_RATES[1],
];
/// Of threads, beside their use of the CPU.
const THREAD_RATES: [Rate; 4] = [
    ("allocations", "/s", 1, |t| t.allocations),
    ("allocated", "bytes/s", 1, |t| t.allocated_bytes),
    LOCK_RATES[0],
    LOCK_RATES[1],
];
const LOCK_RATES: [Rate; 2] = [
    ("lock waits", "/s", 1, |t| t.lock_waits),
    ("lock wait time", "us/s", 1_000, |t| t.lock_wait_ns),
];

/// One counter of one process, or of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CounterRow {
    pub name: String,
    /// `%`, `bytes`, `/s`, `us/s` or empty.
    pub unit: String,
    /// 0: the machine, or the whole program.
    pub upid: u32,
    pub values: u64,
    pub min: i64,
    pub max: i64,
    pub last: i64,
    #[serde(skip)]
    pub last_ns: u64,
    /// Times since the recording's start, ns, and values; of a long row the highest of neighbours.
    #[serde(skip)]
    pub points: Vec<(u64, i64)>,
}

/// All scopes with one name, and all asynchronous work of this name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ScopeRow {
    pub name: String,
    pub count: u64,
    /// Scopes inside themselves count once for each.
    pub total_ns: u64,
    pub longest_ns: u64,
    /// Begin of the longest one, since the recording's start.
    pub longest_at_ns: u64,
    pub longest_utid: u32,
    /// What happened inside; where some of it is asynchronous work, it is not known.
    #[serde(skip)]
    pub inside: Option<Inside>,
    #[serde(skip)]
    pub has_asynchronous: bool,
    /// The system calls inside have the bytes that they moved.
    #[serde(skip)]
    pub knows_call_bytes: bool,
}

impl ScopeRow {
    /// What the system calls inside have moved, where that is known.
    pub(crate) fn call_bytes(&self) -> Option<CallBytes> {
        let inside = self.inside.filter(|_| self.knows_call_bytes)?;
        Some(CallBytes::of(&inside.system_calls))
    }

    /// In how many calls inside the thread slept, where that is known.
    pub(crate) fn wake_ups(&self) -> Option<u64> {
        let inside = self.inside.filter(|_| self.knows_call_bytes)?;
        Some(inside.system_calls.of(SystemCall::WakeUps))
    }
}

/// Collects both while a trace is read.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    counters: BTreeMap<(u32, String, String), CounterRow>,
    scopes: BTreeMap<String, ScopeRow>,
    open: Open,
    /// Of traces that have scopes.
    sums: Option<ScopeSums>,
    asynchronous: Asynchronous,
    meters: Option<Meters>,
    /// Of threads, with the reading before the next.
    threads: BTreeMap<ThreadIndex, (Reading, Vec<CounterRow>)>,
}

impl CounterRow {
    fn new(name: &str, unit: &str, upid: u32) -> CounterRow {
        CounterRow {
            name: name.to_owned(),
            unit: unit.to_owned(),
            upid,
            min: i64::MAX,
            max: i64::MIN,
            ..CounterRow::default()
        }
    }

    /// Times since the boot, ns.
    fn add_value(&mut self, at_ns: u64, value: i64) {
        self.values += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        if at_ns >= self.last_ns {
            (self.last_ns, self.last) = (at_ns, value);
        }
    }

    /// Batches of a counter need not come in order of time.
    fn add_point(&mut self, at_ns: u64, value: i64) {
        let at = self.points.partition_point(|(before, _)| *before <= at_ns);
        self.points.insert(at, (at_ns, value));
        if self.points.len() >= MOST_POINTS {
            let pairs = self.points.chunks(2);
            self.points = pairs
                .map(|pair| (pair[0].0, pair.iter().map(|(_, v)| *v).max().unwrap_or(0)))
                .collect();
        }
    }
}

impl Collected {
    pub(crate) fn new(trace: &Trace) -> Collected {
        Collected {
            sums: trace.has_scopes().then(|| ScopeSums::new(trace)),
            ..Collected::default()
        }
    }

    pub(crate) fn system_calls(&mut self, attributed: &AttributedCalls) {
        if let Some(sums) = &mut self.sums {
            sums.system_calls(attributed);
        }
    }

    pub(crate) fn sample(&mut self, thread: ThreadIndex, row: &SampleRow) {
        if let Some(sums) = &mut self.sums {
            sums.sample(thread, row);
        }
    }

    pub(crate) fn counter(&mut self, trace: &Trace, counter: &Counter) {
        let upid = counter.process.map_or(0, |p| trace.process(p).upid.0);
        let key = (upid, counter.name.clone(), counter.unit.clone());
        let row = self
            .counters
            .entry(key)
            .or_insert_with(|| CounterRow::new(&counter.name, &counter.unit, upid));
        for (at_ns, value) in &counter.values {
            row.add_value(*at_ns, *value);
            row.add_point(at_ns.saturating_sub(trace.start_ns()), *value);
        }
    }

    pub(crate) fn segment(&mut self, trace: &Trace, segment: &Segment) {
        if let Some(sums) = &mut self.sums {
            sums.segment(segment);
        }
        let meters = self.meters.get_or_insert_with(|| {
            let length_ns = trace.end_ns().saturating_sub(trace.start_ns());
            Meters::with_width(trace, PERIOD_NS.max(length_ns / MOST_POINTS as u64))
        });
        let threads = &mut self.threads;
        let width_ns = meters.width_ns();
        let emitted = meters.add(trace, segment, &mut |thread, reading| {
            thread_reading(trace, threads, thread, reading, width_ns);
            Ok(())
        });
        debug_assert!(emitted.is_ok());
    }

    pub(crate) fn thread_end(&mut self, trace: &Trace, thread: ThreadIndex) {
        if let Some(sums) = &mut self.sums {
            sums.thread_end(thread, trace.thread(thread).totals.as_ref());
        }
        let Some(meters) = &mut self.meters else {
            return;
        };
        let threads = &mut self.threads;
        let width_ns = meters.width_ns();
        let emitted = meters.finish(trace, thread, &mut |thread, reading| {
            thread_reading(trace, threads, thread, reading, width_ns);
            Ok(())
        });
        debug_assert!(emitted.is_ok());
    }

    /// What samples say of processes that the recorder read counters of.
    fn process_rates(&mut self, trace: &Trace) {
        let Some(meters) = &self.meters else { return };
        let is_read =
            |row: &&CounterRow| (row.name.as_str(), row.unit.as_str()) == READ_BY_RECORDER;
        let read: BTreeSet<u32> = self
            .counters
            .values()
            .filter(is_read)
            .map(|row| row.upid)
            .collect();
        self.threads.retain(|thread, _| {
            read.contains(&trace.process(trace.thread(*thread).process).upid.0)
        });
        for (process, readings) in meters.processes(|image| image) {
            let upid = trace.process(process).upid;
            if !read.contains(&upid.0) {
                continue;
            }
            for (name, unit, divisor, of) in PROCESS_RATES {
                let mut row = CounterRow::new(name, unit, upid.0);
                for pair in readings.windows(2) {
                    let amount = of(&pair[1].totals).saturating_sub(of(&pair[0].totals));
                    let value = per_second(amount, meters.width_ns()) / divisor as i64;
                    if row.values == 0 || row.last != value {
                        row.add_value(pair[0].time_ns, value);
                        let at_ns = pair[0].time_ns.saturating_sub(trace.start_ns());
                        row.add_point(at_ns, value);
                    }
                }
                if row.max > 0 {
                    let key = (upid.0, row.name.clone(), row.unit.clone());
                    // The program may have a counter of this name.
                    self.counters.entry(key).or_insert(row);
                }
            }
        }
    }

    pub(crate) fn event(&mut self, trace: &Trace, thread: Option<ThreadIndex>, event: &Event) {
        let Some(thread) = thread else { return };
        if self.asynchronous.add(trace, thread, event) {
            return;
        }
        match event.kind() {
            event::Kind::ScopeBegin => {
                self.open.begin(thread, &event.name, event.time_ns);
                if let Some(sums) = &mut self.sums {
                    sums.begin(thread, &event.name, event.time_ns);
                }
            }
            event::Kind::ScopeEnd => {
                if let Some(sums) = &mut self.sums {
                    sums.end(thread, event.time_ns);
                }
                if let Some(scope) = self.open.end(thread, event.time_ns) {
                    self.scope(trace, scope);
                }
            }
            _ => {}
        }
    }

    fn scope(&mut self, trace: &Trace, scope: Scope) {
        let time_ns = scope.begin_ns..scope.end_ns;
        self.named(trace, scope.thread, scope.name, time_ns);
    }

    /// Adds a scope, or asynchronous work, to the row of its name.
    fn named(
        &mut self,
        trace: &Trace,
        thread: ThreadIndex,
        name: String,
        time_ns: Range<u64>,
    ) -> &mut ScopeRow {
        let row = self.scopes.entry(name).or_default();
        let length_ns = time_ns.end - time_ns.start;
        row.count += 1;
        row.total_ns += length_ns;
        if length_ns >= row.longest_ns {
            row.longest_ns = length_ns;
            row.longest_at_ns = time_ns.start.saturating_sub(trace.start_ns());
            row.longest_utid = trace.thread(thread).utid.0;
        }
        row
    }

    /// Scopes by total time, counters by process and name, counters of threads.
    pub(crate) fn finish(
        mut self,
        trace: &Trace,
    ) -> (Vec<ScopeRow>, Vec<CounterRow>, ThreadCounters) {
        self.process_rates(trace);
        for scope in self.open.rest(|thread| trace.thread(thread).end_ns) {
            self.scope(trace, scope);
        }
        let asynchronous = std::mem::take(&mut self.asynchronous);
        for work in asynchronous.finish(|process| trace.process(process).end_ns) {
            let row = self.named(trace, work.thread, work.name, work.begin_ns..work.end_ns);
            row.has_asynchronous = true;
        }
        let knows_call_bytes = trace.threads().iter().all(|t| t.knows_call_bytes);
        for (name, inside) in self.sums.map(ScopeSums::finish).unwrap_or_default() {
            let scope = self.scopes.entry(name).or_default();
            scope.inside = Some(inside).filter(|_| !scope.has_asynchronous);
            scope.knows_call_bytes = knows_call_bytes;
        }
        let named = self.scopes.into_iter();
        let mut scopes: Vec<_> = named.map(|(name, row)| ScopeRow { name, ..row }).collect();
        scopes.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
        let counters = self.counters.into_values();
        let of_threads = self.threads.into_iter().map(|(thread, (_, rows))| {
            (thread, rows.into_iter().filter(|row| row.max > 0).collect())
        });
        (
            scopes,
            counters.filter(|row| row.values > 0).collect(),
            of_threads.collect(),
        )
    }
}

/// The counters of each thread, without points.
pub(crate) type ThreadCounters = BTreeMap<ThreadIndex, Vec<CounterRow>>;

/// Takes a thread's next reading. What its totals grew by, grew in the bucket that ends with the reading.
fn thread_reading(
    trace: &Trace,
    threads: &mut BTreeMap<ThreadIndex, (Reading, Vec<CounterRow>)>,
    thread: ThreadIndex,
    reading: &Reading,
    width_ns: u64,
) {
    let (last, rows) = threads.entry(thread).or_insert_with(|| {
        let upid = trace.process(trace.thread(thread).process).upid;
        let rates = THREAD_RATES.iter().map(|(name, unit, ..)| (*name, *unit));
        let all = std::iter::once(READ_BY_RECORDER).chain(rates);
        let rows = all.map(|(name, unit)| CounterRow::new(name, unit, upid.0));
        (*reading, rows.collect())
    });
    let rates = THREAD_RATES.iter().map(|(_, _, divisor, of)| {
        let amount = of(&reading.totals) - of(&last.totals);
        per_second(amount, width_ns) / *divisor as i64
    });
    let values = std::iter::once(reading.cpu_percent as i64).chain(rates);
    for (row, value) in rows.iter_mut().zip(values) {
        row.add_value(reading.time_ns, value);
    }
    *last = *reading;
}

fn per_second(amount: u64, width_ns: u64) -> i64 {
    (u128::from(amount) * 1_000_000_000 / u128::from(width_ns.max(1))) as i64
}
