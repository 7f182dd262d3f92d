//! CPU use, allocation and page faults over time, for threads and processes, from segments.
//!
//! Time is cut into equal buckets. A reading says the share of a CPU that was used in the bucket that
//! begins there, and totals up to that moment; readings that say nothing new are left out.

use std::collections::BTreeMap;
use std::io;

use super::identity::Identities;
use stackbeat_collector::model::{ProcessIndex, Segment, SegmentKind, ThreadIndex, Trace};

/// Shortest bucket: with samples each millisecond, ten of them.
const BUCKET_MIN_NS: u64 = 10_000_000;
/// Longest row of buckets; longer recordings get longer buckets.
const BUCKETS_MAX: u64 = 20_000;

/// Values at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reading {
    pub time_ns: u64,
    pub cpu_percent: f64,
    pub allocated_bytes: u64,
    pub faults: u64,
}

impl Reading {
    fn says_the_same(&self, other: &Reading) -> bool {
        self.cpu_percent == other.cpu_percent
            && self.allocated_bytes == other.allocated_bytes
            && self.faults == other.faults
    }
}

/// Takes a thread's readings in order of time.
pub(super) type Emit<'a> = dyn FnMut(ThreadIndex, &Reading) -> io::Result<()> + 'a;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    cpu_ns: u64,
    allocated_bytes: u64,
    faults: u64,
}

#[derive(Debug, Default)]
struct ThreadMeter {
    /// The bucket being filled.
    index: u64,
    bucket: Bucket,
    /// Up to the beginning of the bucket being filled.
    allocated_bytes: u64,
    faults: u64,
    end_ns: u64,
    last: Option<Reading>,
}

/// Meters for everything in a trace.
#[derive(Debug, Default)]
pub(super) struct Meters {
    origin_ns: u64,
    width_ns: u64,
    threads: Vec<ThreadMeter>,
    processes: Vec<BTreeMap<u64, Bucket>>,
}

impl Meters {
    pub fn new(trace: &Trace) -> Meters {
        let origin_ns = trace.start_ns();
        Meters {
            origin_ns,
            width_ns: (trace.end_ns().saturating_sub(origin_ns) / BUCKETS_MAX).max(BUCKET_MIN_NS),
            threads: Vec::new(),
            processes: vec![BTreeMap::new(); trace.processes().len()],
        }
    }

    /// Takes a thread's next segment; `emit` gets the readings of buckets that are complete.
    pub fn add(&mut self, trace: &Trace, segment: &Segment, emit: &mut Emit<'_>) -> io::Result<()> {
        let thread = segment.thread.0 as usize;
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, ThreadMeter::default);
        }
        let process = trace.thread(segment.thread).process;
        let first = self.bucket_of(segment.begin_ns);
        let last = self.bucket_of(segment.end_ns.max(segment.begin_ns + 1) - 1);
        self.reach(segment.thread, process, first, emit)?;
        let amounts = &segment.amounts;
        // CPU time is spread over the segment, except that a blocked thread used it on its way in
        // and out: it is booked where the call ended.
        let spread = !matches!(segment.kind, SegmentKind::Blocked(_));
        if spread && last > first && amounts.cpu_ns > 0 {
            let length_ns = u128::from(segment.end_ns - segment.begin_ns);
            let mut booked_ns = 0;
            for index in first..last {
                let edge_ns = self.origin_ns + (index + 1) * self.width_ns;
                let so_far =
                    u128::from(edge_ns - segment.begin_ns) * u128::from(amounts.cpu_ns) / length_ns;
                self.threads[thread].bucket.cpu_ns += so_far as u64 - booked_ns;
                booked_ns = so_far as u64;
                self.reach(segment.thread, process, index + 1, emit)?;
            }
            self.threads[thread].bucket.cpu_ns += amounts.cpu_ns - booked_ns;
        } else {
            self.reach(segment.thread, process, last, emit)?;
            self.threads[thread].bucket.cpu_ns += amounts.cpu_ns;
        }
        let meter = &mut self.threads[thread];
        meter.bucket.allocated_bytes += amounts.allocated_bytes;
        meter.bucket.faults += amounts.minor_faults + amounts.major_faults;
        meter.end_ns = segment.end_ns;
        Ok(())
    }

    /// The thread has ended: hands out its last readings, the very last with its totals.
    pub fn finish(
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
            allocated_bytes: meter.allocated_bytes,
            faults: meter.faults,
        };
        emit(thread, &reading)
    }

    /// The readings of each process, summed over its images and their threads. Complete when all threads are finished.
    pub fn processes(&self, identities: &Identities) -> Vec<(ProcessIndex, Vec<Reading>)> {
        let mut merged: BTreeMap<ProcessIndex, BTreeMap<u64, Bucket>> = BTreeMap::new();
        for (index, buckets) in self.processes.iter().enumerate() {
            let first = identities.process(ProcessIndex(index as u32));
            for (position, bucket) in buckets {
                let total = merged
                    .entry(first)
                    .or_default()
                    .entry(*position)
                    .or_default();
                total.cpu_ns += bucket.cpu_ns;
                total.allocated_bytes += bucket.allocated_bytes;
                total.faults += bucket.faults;
            }
        }
        merged
            .iter()
            .map(|(process, buckets)| (*process, self.readings(buckets)))
            .collect()
    }

    fn readings(&self, buckets: &BTreeMap<u64, Bucket>) -> Vec<Reading> {
        let mut readings: Vec<Reading> = Vec::new();
        let (mut allocated_bytes, mut faults) = (0, 0);
        let mut expected = None;
        for (index, bucket) in buckets {
            if let Some(expected) = expected.filter(|expected| expected != index) {
                readings.push(self.reading(expected, &Bucket::default(), allocated_bytes, faults));
            }
            readings.push(self.reading(*index, bucket, allocated_bytes, faults));
            allocated_bytes += bucket.allocated_bytes;
            faults += bucket.faults;
            expected = Some(index + 1);
        }
        readings.extend(
            expected.map(|end| self.reading(end, &Bucket::default(), allocated_bytes, faults)),
        );
        readings
    }

    fn bucket_of(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.origin_ns) / self.width_ns.max(1)
    }

    fn reading(&self, index: u64, bucket: &Bucket, allocated_bytes: u64, faults: u64) -> Reading {
        // A tenth of a percent is more than a millisecond's sampling can tell.
        let per_mille = bucket.cpu_ns * 1_000 / self.width_ns.max(1);
        Reading {
            time_ns: self.origin_ns + index * self.width_ns,
            cpu_percent: per_mille as f64 / 10.0,
            allocated_bytes,
            faults,
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
        let before = (meter.allocated_bytes, meter.faults);
        meter.allocated_bytes += bucket.allocated_bytes;
        meter.faults += bucket.faults;
        meter.index = index;
        meter.bucket = Bucket::default();
        let after = (meter.allocated_bytes, meter.faults);
        let total = self.processes[process.0 as usize]
            .entry(filled)
            .or_default();
        total.cpu_ns += bucket.cpu_ns;
        total.allocated_bytes += bucket.allocated_bytes;
        total.faults += bucket.faults;
        let mut readings = [
            Some(self.reading(filled, &bucket, before.0, before.1)),
            None,
        ];
        if index > filled + 1 {
            readings[1] = Some(self.reading(filled + 1, &Bucket::default(), after.0, after.1));
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
