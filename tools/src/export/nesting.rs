//! Slices as they begin and end, for formats that show calls in time: the model's rule (see
//! `docs/slices.md`), with leaves told like other slices and with errors.

use std::io;

use stackbeat_core::probe::Cause;
use stackbeat_model::call_tree::Leaf;
use stackbeat_model::{
    FrameIndex, Segment, Slice, SliceSink, Slicer, StackIndex, ThreadIndex, Trace,
};

/// What a slice stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Level {
    Frame(FrameIndex),
    /// A wait, a stretch without evidence, or one where the thread was in code that is not known.
    Leaf(Leaf),
}

/// A slice that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed<'a> {
    pub level: Level,
    /// Time in code without callees; of a wait or a gap, all of it.
    pub self_ns: u64,
    pub slice: &'a Slice,
}

/// Takes slices in an order that nests: see [`SliceSink`].
pub(super) trait Slices {
    fn open(&mut self, level: Level, begin_ns: u64) -> io::Result<()>;
    fn close(&mut self, closed: &Closed<'_>) -> io::Result<()>;
}

/// The slices of one thread.
#[derive(Debug)]
pub(super) struct Nesting {
    slicer: Slicer,
}

impl Nesting {
    pub(super) fn new(thread: ThreadIndex) -> Nesting {
        Nesting {
            slicer: Slicer::new(thread),
        }
    }

    /// Takes the thread's next segment.
    pub(super) fn advance(
        &mut self,
        trace: &Trace,
        segment: &Segment,
        slices: &mut impl Slices,
    ) -> io::Result<()> {
        let mut adapter = Adapter {
            slices,
            result: Ok(()),
        };
        self.slicer.advance(trace, segment, &mut adapter);
        if segment.runs() && segment.stack == StackIndex::NONE {
            adapter.leaf(Level::Leaf(Leaf::NoStack), &unknown(segment));
        }
        adapter.result
    }

    /// Ends what is open where the last segment ended.
    pub(super) fn finish(&mut self, trace: &Trace, slices: &mut impl Slices) -> io::Result<()> {
        let mut adapter = Adapter {
            slices,
            result: Ok(()),
        };
        self.slicer.end(trace, &mut adapter);
        adapter.result
    }
}

/// The slice of a segment without a stack.
fn unknown(segment: &Segment) -> Slice {
    Slice {
        thread: segment.thread,
        depth: 0,
        frame: FrameIndex(0),
        begin_ns: segment.begin_ns,
        end_ns: segment.end_ns,
        total: segment.metrics,
        own: segment.metrics,
        self_ns: segment.running_ns(),
        blocked_ns: 0,
        gap_ns: segment.unseen_ns(),
        blocking: None,
        gap: false,
        arg: None,
        result: None,
        waker_tid: None,
        is_inferred: false,
    }
}

struct Adapter<'a, S> {
    slices: &'a mut S,
    result: io::Result<()>,
}

impl<S: Slices> Adapter<'_, S> {
    fn leaf(&mut self, level: Level, slice: &Slice) {
        if self.result.is_ok() {
            self.result = self.slices.open(level, slice.begin_ns);
        }
        let self_ns = match level {
            Level::Leaf(Leaf::NoStack) => slice.self_ns,
            _ => slice.end_ns - slice.begin_ns,
        };
        self.closed(level, self_ns, slice);
    }

    fn closed(&mut self, level: Level, self_ns: u64, slice: &Slice) {
        if self.result.is_ok() {
            let closed = Closed {
                level,
                self_ns,
                slice,
            };
            self.result = self.slices.close(&closed);
        }
    }
}

impl<S: Slices> SliceSink for Adapter<'_, S> {
    fn open(&mut self, _: u32, frame: FrameIndex, begin_ns: u64) {
        if self.result.is_ok() {
            self.result = self.slices.open(Level::Frame(frame), begin_ns);
        }
    }

    fn close(&mut self, slice: &Slice) {
        match slice.blocking {
            Some(probe) => self.leaf(Level::Leaf(Leaf::Blocking(probe)), slice),
            None if slice.gap => self.leaf(Level::Leaf(Leaf::Gap), slice),
            None => self.closed(Level::Frame(slice.frame), slice.self_ns, slice),
        }
    }
}

/// The names of the amounts that [`Closed::arguments`] hands out, in its order.
pub(super) const ARGUMENT_NAMES: [&str; 20] = [
    "count",
    "self_ns",
    "self_cpu_ns",
    "cpu_ns",
    "blocked_ns",
    "gap_ns",
    "self_allocations",
    "self_allocated_bytes",
    "allocations",
    "allocated_bytes",
    "frees",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
    "runnable_ns",
    "argument",
    "result",
    "woken_by",
    "inferred",
];

impl Closed<'_> {
    /// Hands out what a closed slice is worth saying about, by position in [`ARGUMENT_NAMES`]: the
    /// number of its samples and its self time always, other amounts when they are not 0.
    pub(super) fn numbered_arguments(
        &self,
        mut each: impl FnMut(usize, i64) -> io::Result<()>,
    ) -> io::Result<()> {
        let (own, total) = (&self.slice.own, &self.slice.total);
        each(0, total.samples as i64)?;
        each(1, self.self_ns as i64)?;
        for (position, amount) in [
            own.cpu_ns,
            total.cpu_ns,
            self.slice.blocked_ns,
            self.slice.gap_ns,
            own.allocations,
            own.allocated_bytes,
            total.allocations,
            total.allocated_bytes,
            total.frees,
            total.minor_faults,
            total.major_faults,
            total.voluntary_switches,
            total.involuntary_switches,
            total.runnable_ns,
        ]
        .into_iter()
        .enumerate()
        {
            if amount != 0 {
                each(2 + position, amount as i64)?;
            }
        }
        for (position, value) in [
            self.slice.arg.map(|argument| argument as i64),
            self.slice.result,
            self.slice.waker_tid.map(i64::from),
            self.slice.is_inferred.then_some(1),
        ]
        .into_iter()
        .enumerate()
        {
            if let Some(value) = value {
                each(16 + position, value)?;
            }
        }
        Ok(())
    }

    /// What the variable is called that it waited for.
    pub(super) fn waited_for<'t>(&self, trace: &'t Trace) -> Option<&'t str> {
        let Level::Leaf(Leaf::Blocking(probe)) = self.level else {
            return None;
        };
        matches!(probe.cause(), Cause::Lock | Cause::Wait).then_some(())?;
        let process = trace.thread(self.slice.thread).process;
        Some(trace.variable(process, self.slice.arg?)?)
    }

    /// Like [`Closed::numbered_arguments`], by name.
    pub(super) fn arguments(
        &self,
        mut each: impl FnMut(&'static str, i64) -> io::Result<()>,
    ) -> io::Result<()> {
        self.numbered_arguments(|position, value| each(ARGUMENT_NAMES[position], value))
    }
}
