//! The second pass over a file: samples in, segments and slices out.

use hashbrown::HashMap;
use prost::Message;
use stackbeat_core::probe::Cause;
use stackbeat_proto::columns::Columns;
use stackbeat_proto::stream::{PacketReader, StreamError};
use stackbeat_proto::v1::{self, packet::Body};

use super::call_attribution::{self, AttributedCalls, Calls};
use super::sampled_events;
use super::segments::{Bursts, Segmenter};
use super::settings_in_force::Identity;
use super::slices::Slicer;
use super::wakeups::{Joiner, LongWait};
use super::{
    Metrics, ProbeId, ProcessIndex, SampleRow, Segment, SegmentKind, Slice, StackIndex,
    ThreadIndex, Trace, TraceError,
};

/// Receives what a trace's samples mean. Threads are interleaved, each thread's items come in order of time;
/// its events come before the segments that end after them, because they stand before the samples in the
/// file.
#[allow(unused_variables)]
pub trait Visitor {
    /// Before the thread's first segment.
    fn thread_begin(&mut self, trace: &Trace, thread: ThreadIndex) {}
    /// The thread's next segment.
    fn segment(&mut self, trace: &Trace, segment: &Segment);
    /// A slice that has ended, callees before callers. Only called when `wants_slices`.
    fn slice(&mut self, trace: &Trace, slice: &Slice) {}
    /// Whether [`Visitor::slice`] is called: slices cost time.
    fn wants_slices(&self) -> bool {
        false
    }
    /// A sample as the file has it.
    fn sample(&mut self, trace: &Trace, thread: ThreadIndex, row: &SampleRow, stack: StackIndex) {}
    /// System calls of a kind and a stack; what a thread makes of a kind comes in parts, in order of time.
    fn system_calls(&mut self, trace: &Trace, attributed: &AttributedCalls) {}
    /// A mark, a scope's end or another event of the file; without a thread one of a process or the session.
    fn event(
        &mut self,
        trace: &Trace,
        thread: Option<ThreadIndex>,
        event: &v1::Event,
        stack: StackIndex,
    ) {
    }
    /// Values of a counter: of a thread, a process, the machine or the session.
    fn counter(&mut self, trace: &Trace, counter: &Counter) {}
    /// A long wait. Waits come when both sides of them were read: not in order of time.
    fn long_wait(&mut self, trace: &Trace, wait: &LongWait) {}
    /// After the thread's last segment.
    fn thread_end(&mut self, trace: &Trace, thread: ThreadIndex, totals: &ThreadTotals) {}
}

/// A stretch of a counter's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// `None` with no thread either: the machine or the session.
    pub process: Option<ProcessIndex>,
    /// The thread whose counter it is; `None`: the whole process'.
    pub thread: Option<ThreadIndex>,
    /// The program's name for it, or one of `transfers` and the session's own.
    pub name: String,
    /// Unit of the values; empty for counters of the program itself.
    pub unit: String,
    /// Time in ns, value.
    pub values: Vec<(u64, i64)>,
}

/// The sums over a thread's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTotals {
    /// From its start to its end, ns.
    pub wall_ns: u64,
    /// In code: on a CPU, or ready to run, ns.
    pub running_ns: u64,
    /// Without evidence, ns.
    pub gap_ns: u64,
    /// By `Cause` number.
    pub blocked_ns: [u64; Cause::ALL.len()],
    /// CPU time, allocations and the other amounts.
    pub metrics: Metrics,
    /// CPU time that the thread had used before it came into this trace; not in `metrics`.
    pub cpu_before_start_ns: u64,
}

impl ThreadTotals {
    /// Blocked time of all causes.
    pub fn all_blocked_ns(&self) -> u64 {
        self.blocked_ns.iter().copied().fold(0, u64::saturating_add)
    }

    pub(super) fn add(&mut self, segment: &Segment) {
        let wall = segment.wall_ns();
        self.wall_ns += wall;
        self.running_ns += segment.running_ns();
        self.gap_ns += segment.unseen_ns();
        if let SegmentKind::Blocked(probe) = segment.kind {
            self.blocked_ns[probe.cause() as usize] += segment.blocked_ns();
        }
        self.metrics.add(&segment.metrics);
    }
}

struct ThreadState {
    segmenter: Segmenter,
    slicer: Option<Slicer>,
    totals: ThreadTotals,
    calls: Calls,
    batches_left: u64,
    /// Records of it that the batches so far hold, samples and others.
    stored: u64,
    /// Position in `Trace::iterations`.
    next_iteration: usize,
}

impl Trace {
    /// Streams the samples as segments, and as slices if the visitor wants them. Memory follows the
    /// threads that are alive at one time and the depth of their stacks. Damaged batches are left out;
    /// `open` has noted them.
    pub fn visit(&self, visitor: &mut dyn Visitor) -> Result<(), TraceError> {
        Visit {
            trace: self,
            wants_slices: visitor.wants_slices(),
            visitor,
            live: HashMap::new(),
            done: vec![false; self.threads.len()],
            rows: Vec::new(),
            bursts: Bursts::default(),
            wakeups: Joiner::new(self),
        }
        .run()
    }
}

struct Visit<'a> {
    trace: &'a Trace,
    visitor: &'a mut dyn Visitor,
    wants_slices: bool,
    live: HashMap<ThreadIndex, Box<ThreadState>>,
    done: Vec<bool>,
    rows: Vec<SampleRow>,
    bursts: Bursts,
    wakeups: Joiner<'a>,
}

impl Visit<'_> {
    fn run(mut self) -> Result<(), TraceError> {
        let mut reader = PacketReader::new(self.trace.input()?);
        while let Some(item) = reader.next_raw() {
            let raw = match item {
                Ok(raw) => raw,
                Err(StreamError::Io { source, .. }) => {
                    return Err(TraceError::Read {
                        path: self.trace.path.clone(),
                        source,
                    });
                }
                Err(_) => continue,
            };
            match raw.field() {
                // Samples, events, counters, long waits, wakes: the numbers of `Packet.body`.
                6 | 8 | 9 | 17 | 18 => {}
                _ => continue,
            }
            if let Some(batch) = raw.samples() {
                self.samples(batch);
                continue;
            }
            match raw.decode().map(|packet| packet.body) {
                Ok(Some(Body::Samples(batch))) => self.samples(&batch.encode_to_vec()),
                Ok(Some(Body::Event(event))) => {
                    let thread = self.trace.thread_of_utid.get(&event.utid).copied();
                    let stack = self.trace.stacks.of_node(event.node, event.time_ns);
                    self.visitor.event(self.trace, thread, &event, stack);
                }
                Ok(Some(Body::Counters(counters))) => self.counters(counters),
                Ok(Some(Body::LongWait(wait))) => {
                    for wait in self.wakeups.wait(&wait) {
                        self.visitor.long_wait(self.trace, &wait);
                    }
                }
                Ok(Some(Body::Wake(wake))) => {
                    for wait in self.wakeups.wake(&wake) {
                        self.visitor.long_wait(self.trace, &wait);
                    }
                }
                _ => {}
            }
        }
        for wait in self.wakeups.finish() {
            self.visitor.long_wait(self.trace, &wait);
        }
        for index in 0..self.trace.threads.len() as u32 {
            let thread = ThreadIndex(index);
            if !self.done[index as usize] {
                self.begin(thread);
                self.end(thread);
            }
        }
        Ok(())
    }

    fn begin(&mut self, index: ThreadIndex) {
        if self.live.contains_key(&index) {
            return;
        }
        let trace = self.trace;
        let thread = trace.thread(index);
        let state = ThreadState {
            segmenter: Segmenter::new(
                index,
                Identity {
                    utid: thread.utid,
                    upid: trace.process(thread.process).upid,
                    is_main: thread.is_main,
                },
                (thread.start_ns, thread.end_ns),
                thread.cpu_before_ns,
            ),
            slicer: self.wants_slices.then(|| Slicer::new(index)),
            totals: ThreadTotals::default(),
            calls: Calls::default(),
            batches_left: thread.batches,
            stored: 0,
            next_iteration: trace
                .iterations
                .partition_point(|iteration| *iteration < (index, 0)),
        };
        self.live.insert(index, Box::new(state));
        self.visitor.thread_begin(trace, index);
    }

    fn samples(&mut self, batch: &[u8]) {
        let trace = self.trace;
        let Some(batch) = Columns::of(batch) else {
            return;
        };
        let Some(&index) = trace.thread_of_utid.get(&batch.utid) else {
            return;
        };
        if self.done[index.0 as usize] {
            return;
        }
        self.begin(index);
        let decoded = batch.rows_into(&mut self.rows).is_ok();
        let Some(state) = self.live.get_mut(&index) else {
            return;
        };
        if decoded {
            if batch.by_suspension {
                // No records: none is missing between the one before and them.
                (self.rows.iter_mut()).for_each(|row| row.record = batch.first_record);
            } else {
                state.stored += self.rows.len() as u64 + u64::from(batch.other_records);
            }
            let stored = state.stored;
            let ThreadState {
                segmenter,
                slicer,
                totals,
                calls,
                next_iteration,
                ..
            } = &mut **state;
            let (visitor, bursts) = (&mut *self.visitor, &mut self.bursts);
            segmenter.is_complete = self.rows.last().is_some_and(|row| row.record < stored);
            for row in &mut self.rows {
                let stack = trace.stacks.of_node(row.node, row.time_ns);
                row.probe = trace.stacks.probe(ProbeId(row.probe), stack).0;
                if let Some(kind) = sampled_events::kind_of(ProbeId(row.probe)) {
                    visitor.sample(trace, index, row, stack);
                    segmenter.sampled_event(kind, row, stack);
                    continue;
                }
                if call_attribution::is_of_calls(row) {
                    visitor.sample(trace, index, row, stack);
                    segmenter.seen(row, stack);
                    if let Some(attributed) = calls.sample(index, row, stack) {
                        visitor.system_calls(trace, &attributed);
                    }
                    continue;
                }
                let mut iteration = None;
                while let Some(&(thread, at)) = trace.iterations.get(*next_iteration) {
                    if thread != index || at > row.time_ns {
                        break;
                    }
                    iteration = Some(at);
                    *next_iteration += 1;
                }
                visitor.sample(trace, index, row, stack);
                segmenter.sample(row, stack, iteration, trace, bursts, &mut |segment| {
                    deliver(trace, visitor, slicer, totals, segment);
                });
            }
        }
        state.batches_left = state.batches_left.saturating_sub(1);
        if state.batches_left == 0 {
            self.end(index);
        }
    }

    fn end(&mut self, index: ThreadIndex) {
        let Some(mut state) = self.live.remove(&index) else {
            return;
        };
        let trace = self.trace;
        let visitor = &mut *self.visitor;
        let ThreadState {
            segmenter,
            slicer,
            totals,
            calls,
            ..
        } = &mut *state;
        if let Some(totals) = &trace.thread(index).system_calls {
            for attributed in calls.rest(totals) {
                visitor.system_calls(trace, &attributed);
            }
        }
        let totals_at_end = trace.thread(index).totals.as_ref();
        segmenter.finish(totals_at_end, trace, &mut |segment| {
            deliver(trace, visitor, slicer, totals, segment);
        });
        totals.cpu_before_start_ns = segmenter.cpu_before_start_ns;
        if let Some(slicer) = slicer {
            slicer.finish(&trace.names, &mut |slice: &Slice| {
                visitor.slice(trace, slice)
            });
        }
        visitor.thread_end(trace, index, totals);
        self.done[index.0 as usize] = true;
    }

    fn counters(&mut self, batch: v1::CounterBatch) {
        let (mut time, mut value) = (0u64, 0i64);
        let process = self.trace.process_of_upid.get(&batch.upid).copied();
        // What the recorder read of a process that was just over says nothing of it.
        let end_ns = (process.map(|process| self.trace.process(process)))
            .filter(|process| process.ended)
            .map_or(u64::MAX, |process| process.end_ns);
        let counter = Counter {
            process,
            thread: self.trace.thread_of_utid.get(&batch.utid).copied(),
            values: batch
                .time
                .iter()
                .zip(&batch.value)
                .map(|(time_delta, value_delta)| {
                    time = time.wrapping_add(*time_delta as u64);
                    value = value.wrapping_add(*value_delta);
                    (time, value)
                })
                .filter(|(time, _)| *time <= end_ns)
                .collect(),
            name: batch.name,
            unit: batch.unit,
        };
        if !counter.values.is_empty() {
            self.visitor.counter(self.trace, &counter);
        }
    }
}

/// Hands one segment to everybody.
fn deliver(
    trace: &Trace,
    visitor: &mut dyn Visitor,
    slicer: &mut Option<Slicer>,
    totals: &mut ThreadTotals,
    segment: &Segment,
) {
    totals.add(segment);
    visitor.segment(trace, segment);
    if let Some(slicer) = slicer {
        slicer.segment(
            segment,
            &trace.stacks,
            &trace.names,
            &mut |slice: &Slice| {
                visitor.slice(trace, slice);
            },
        );
    }
}
