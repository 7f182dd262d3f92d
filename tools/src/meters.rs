//! What threads and processes did over time, from segments: CPU use, allocation, page faults, switches and
//! waits for locks.
//!
//! Time is cut into equal buckets. A reading says the share of a CPU that was used in the bucket that
//! begins there, and totals up to that moment; readings that say nothing new are left out.

use std::collections::BTreeMap;
use std::io;

use stackbeat_core::probe::Cause;
use stackbeat_model::{ProcessIndex, Segment, ThreadIndex, Trace};

/// Shortest bucket: with samples each millisecond, ten of them.
const BUCKET_MIN_NS: u64 = 10_000_000;
/// Longest row of buckets; longer recordings get longer buckets.
const BUCKETS_MAX: u64 = 20_000;
/// Steps in which an export sees the time of one wait grow: a deadlock of an hour must not fill a file.
const WAIT_STEPS_MAX: u64 = 100;

/// Sums since the beginning, of what grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub allocations: u64,
    pub allocated_bytes: u64,
    /// Minor and major ones.
    pub faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// Waits for locks that the trace holds, booked where they ended.
    pub lock_waits: u64,
    /// Time in these, booked where it passed, ns.
    pub lock_wait_ns: u64,
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.allocations = self.allocations.saturating_add(other.allocations);
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
        self.faults = self.faults.saturating_add(other.faults);
        self.voluntary_switches = self
            .voluntary_switches
            .saturating_add(other.voluntary_switches);
        self.involuntary_switches = self
            .involuntary_switches
            .saturating_add(other.involuntary_switches);
        self.lock_waits = self.lock_waits.saturating_add(other.lock_waits);
        self.lock_wait_ns = self.lock_wait_ns.saturating_add(other.lock_wait_ns);
    }
}

/// Values at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    pub time_ns: u64,
    pub cpu_percent: f64,
    pub totals: Totals,
}

impl Reading {
    fn says_the_same(&self, other: &Reading) -> bool {
        self.cpu_percent == other.cpu_percent && self.totals == other.totals
    }
}

/// Takes a thread's readings in order of time.
pub(crate) type Emit<'a> = dyn FnMut(ThreadIndex, &Reading) -> io::Result<()> + 'a;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    cpu_ns: u64,
    totals: Totals,
}

impl Bucket {
    fn add(&mut self, other: &Bucket) {
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.totals.add(&other.totals);
    }
}

#[derive(Debug, Default)]
struct ThreadMeter {
    /// The bucket being filled.
    index: u64,
    bucket: Bucket,
    /// Up to the beginning of the bucket being filled.
    totals: Totals,
    end_ns: u64,
    last: Option<Reading>,
}

/// Meters for everything in a trace.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    origin_ns: u64,
    width_ns: u64,
    /// Of one wait.
    steps_max: u64,
    threads: Vec<ThreadMeter>,
    processes: Vec<BTreeMap<u64, Bucket>>,
    /// Of processes.
    ends_ns: Vec<u64>,
}

impl Meters {
    pub(crate) fn new(trace: &Trace) -> Meters {
        let length_ns = trace.end_ns().saturating_sub(trace.start_ns());
        Meters {
            steps_max: WAIT_STEPS_MAX,
            ..Meters::with_width(trace, (length_ns / BUCKETS_MAX).max(BUCKET_MIN_NS))
        }
    }

    /// With buckets of `width_ns`, each with the time in waits that passed in it.
    pub(crate) fn with_width(trace: &Trace, width_ns: u64) -> Meters {
        Meters {
            origin_ns: trace.start_ns(),
            width_ns,
            steps_max: u64::MAX,
            threads: Vec::new(),
            processes: vec![BTreeMap::new(); trace.processes().len()],
            ends_ns: trace.processes().iter().map(|p| p.end_ns).collect(),
        }
    }

    /// The length of a bucket.
    pub(crate) fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Takes a thread's next segment; `emit` gets the readings of buckets that are complete.
    pub(crate) fn add(
        &mut self,
        trace: &Trace,
        segment: &Segment,
        emit: &mut Emit<'_>,
    ) -> io::Result<()> {
        let thread = segment.thread.0 as usize;
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, ThreadMeter::default);
        }
        let process = trace.thread(segment.thread).process;
        let first = self.bucket_of(segment.begin_ns);
        let last = self.bucket_of(segment.end_ns.max(segment.begin_ns.saturating_add(1)) - 1);
        self.reach(segment.thread, process, first, emit)?;
        let metrics = &segment.metrics;
        // CPU time is spread over the segment, except that a blocked thread used it on its way in
        // and out: it is booked where the call ended.
        let spread_cpu_ns = match segment.blocked_ns() {
            0 => metrics.cpu_ns,
            _ => 0,
        };
        let length_ns = segment.end_ns.saturating_sub(segment.begin_ns);
        let is_lock_wait = segment.kind.cause() == Cause::Lock;
        let lock_wait_ns = if is_lock_wait { length_ns } else { 0 };
        let mut booked = (0, 0);
        if last > first && (spread_cpu_ns > 0 || lock_wait_ns > 0) {
            let stride = match is_lock_wait {
                true => (last - first).div_ceil(self.steps_max) as usize,
                false => 1,
            };
            for index in (first..last).step_by(stride) {
                self.reach(segment.thread, process, index, emit)?;
                let passed_ns = self.begins_ns(index + 1).saturating_sub(segment.begin_ns);
                let so_far = |ns: u64| {
                    (u128::from(passed_ns) * u128::from(ns) / u128::from(length_ns)) as u64
                };
                let reached = (so_far(spread_cpu_ns), so_far(lock_wait_ns));
                let bucket = &mut self.threads[thread].bucket;
                bucket.cpu_ns = bucket
                    .cpu_ns
                    .saturating_add(reached.0.saturating_sub(booked.0));
                bucket.totals.lock_wait_ns += reached.1.saturating_sub(booked.1);
                booked = reached;
                self.reach(segment.thread, process, index + 1, emit)?;
            }
        } else {
            self.reach(segment.thread, process, last, emit)?;
        }
        let meter = &mut self.threads[thread];
        meter.bucket.add(&Bucket {
            cpu_ns: metrics.cpu_ns.saturating_sub(booked.0),
            totals: Totals {
                allocations: metrics.allocations,
                allocated_bytes: metrics.allocated_bytes,
                faults: metrics.minor_faults.saturating_add(metrics.major_faults),
                voluntary_switches: metrics.voluntary_switches,
                involuntary_switches: metrics.involuntary_switches,
                lock_waits: u64::from(is_lock_wait && !segment.is_inferred),
                lock_wait_ns: lock_wait_ns.saturating_sub(booked.1),
            },
        });
        meter.end_ns = segment.end_ns;
        Ok(())
    }

    /// The thread has ended: hands out its last readings, the very last with its totals.
    pub(crate) fn finish(
        &mut self,
        trace: &Trace,
        thread: ThreadIndex,
        emit: &mut Emit<'_>,
    ) -> io::Result<()> {
        let Some(meter) = self.threads.get(thread.0 as usize) else {
            return Ok(());
        };
        let (end_ns, next) = (meter.end_ns, meter.index + 1);
        self.reach(thread, trace.thread(thread).process, next, emit)?;
        let meter = &mut self.threads[thread.0 as usize];
        let reading = Reading {
            time_ns: end_ns,
            cpu_percent: 0.0,
            totals: meter.totals,
        };
        emit(thread, &reading)
    }

    /// The readings of each process, summed over its threads and over the images for which `first_image`
    /// gives the same one. Complete when all threads are finished.
    pub(crate) fn processes(
        &self,
        first_image: impl Fn(ProcessIndex) -> ProcessIndex,
    ) -> Vec<(ProcessIndex, Vec<Reading>)> {
        let mut merged: BTreeMap<ProcessIndex, (u64, BTreeMap<u64, Bucket>)> = BTreeMap::new();
        for (index, buckets) in self.processes.iter().enumerate() {
            if buckets.is_empty() {
                continue;
            }
            let first = first_image(ProcessIndex(index as u32));
            let (end_ns, of_first) = merged.entry(first).or_default();
            *end_ns = self.ends_ns[index].max(*end_ns);
            for (position, bucket) in buckets {
                of_first.entry(*position).or_default().add(bucket);
            }
        }
        merged
            .iter()
            .map(|(process, (end_ns, buckets))| (*process, self.readings(buckets, *end_ns)))
            .collect()
    }

    fn readings(&self, buckets: &BTreeMap<u64, Bucket>, end_ns: u64) -> Vec<Reading> {
        let mut readings: Vec<Reading> = Vec::new();
        let mut totals = Totals::default();
        let mut expected = None;
        for (index, bucket) in buckets {
            if let Some(expected) = expected.filter(|expected| expected != index) {
                readings.push(self.reading(expected, &Bucket::default(), totals));
            }
            readings.push(self.reading(*index, bucket, totals));
            totals.add(&bucket.totals);
            expected = Some(index + 1);
        }
        let last = expected.map(|end| self.reading(end, &Bucket::default(), totals));
        if let (Some(mut last), Some(before)) = (last, readings.last_mut()) {
            // The last bucket ends with the process, and its use of the CPU is a share of what there is of
            // it.
            let end_ns = end_ns.clamp(before.time_ns + 1, last.time_ns.max(before.time_ns + 1));
            let length_ns = end_ns - before.time_ns;
            before.cpu_percent *= self.width_ns as f64 / length_ns as f64;
            last.time_ns = end_ns;
            readings.push(last);
        }
        readings
    }

    fn bucket_of(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.origin_ns) / self.width_ns.max(1)
    }

    /// When a bucket begins, ns. Damaged traces have times up to the last one that there is.
    fn begins_ns(&self, index: u64) -> u64 {
        self.origin_ns
            .saturating_add(index.saturating_mul(self.width_ns))
    }

    fn reading(&self, index: u64, bucket: &Bucket, totals: Totals) -> Reading {
        // A tenth of a percent is more than a millisecond's sampling can tell.
        let per_mille = u128::from(bucket.cpu_ns) * 1_000 / u128::from(self.width_ns.max(1));
        Reading {
            time_ns: self.begins_ns(index),
            cpu_percent: per_mille as f64 / 10.0,
            totals,
        }
    }

    /// Completes the thread's buckets before `index`.
    fn reach(
        &mut self,
        thread: ThreadIndex,
        process: ProcessIndex,
        index: u64,
        emit: &mut Emit<'_>,
    ) -> io::Result<()> {
        let meter = &mut self.threads[thread.0 as usize];
        if meter.last.is_none() && meter.end_ns == 0 {
            // Nothing before the thread's first segment.
            meter.index = meter.index.max(index);
        }
        if meter.index >= index {
            return Ok(());
        }
        let (filled, bucket) = (meter.index, meter.bucket);
        let before = meter.totals;
        meter.totals.add(&bucket.totals);
        meter.index = index;
        meter.bucket = Bucket::default();
        let after = meter.totals;
        let of_process = &mut self.processes[process.0 as usize];
        of_process.entry(filled).or_default().add(&bucket);
        let mut readings = [Some(self.reading(filled, &bucket, before)), None];
        if index > filled + 1 {
            readings[1] = Some(self.reading(filled + 1, &Bucket::default(), after));
        }
        for reading in readings.into_iter().flatten() {
            let last = &mut self.threads[thread.0 as usize].last;
            if last.is_none_or(|last| !last.says_the_same(&reading)) {
                *last = Some(reading);
                emit(thread, &reading)?;
            }
        }
        Ok(())
    }
}
