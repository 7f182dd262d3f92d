//! The trace model: what a `.beat` file says, as threads whose time is cut into segments and slices.
//!
//! A trace is read twice: [`Trace::open`] reads everything but the samples (processes, threads,
//! modules, nodes, symbols, losses), [`Trace::visit`] streams the samples as segments and slices, so
//! that memory follows the number of distinct stacks and threads, not the length of the recording.
//! `docs/slices.md` says how samples become segments and slices.
//!
//! Everything here works on any platform, on files from anywhere: nothing in a file is trusted.

#![forbid(unsafe_code)]

mod call_attribution;
pub mod call_tree;
mod check;
mod first_pass;
mod inferred_waits;
pub mod layers;
mod lock_functions;
mod methods;
pub mod metric;
mod names;
mod program;
mod sampled_events;
mod segments;
mod settings_in_force;
mod slices;
mod spent;
mod stacks;
#[cfg(any(test, feature = "testing"))]
#[allow(missing_docs, reason = "for tests of this workspace only")]
pub mod synthetic;
#[cfg(test)]
mod tests;
mod trace;
pub mod transfers;
mod unrecorded;
mod variables;
mod visit;
mod wakeups;

use std::borrow::Cow;
use std::ops::AddAssign;

pub use lock_functions::waits_for_lock;
pub use methods::{is_runtime, qualified_name};
use stackbeat_core::probe::{Category, Cause, Probe};
pub use stackbeat_proto::columns::{Rusage, SampleRow};

pub use call_attribution::AttributedCalls;
pub use check::{Violation, conservation};
pub use names::GENERATED;
pub use program::{Module, Origin, Process, Thread};
pub use settings_in_force::{Settings, UNPATCHED};
pub use slices::{SliceSink, Slicer};
pub use spent::Spent;
pub use trace::{Damage, Deadlock, DeadlockMember, Drops, Trace, TraceError};
pub use unrecorded::{Reason, UnrecordedProgram, UnrecordedSums};
pub use visit::{Counter, ThreadTotals, Visitor};
pub use wakeups::{LongWait, Wake};

/// Index into `Trace::threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadIndex(pub u32);

/// Index into `Trace::processes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessIndex(pub u32);

impl ProcessIndex {
    /// No process is known.
    pub(crate) const UNKNOWN: ProcessIndex = ProcessIndex(u32::MAX);
}

/// Index into `Trace::frames`: one logical frame, that is a function at a line. Inlined functions are
/// frames of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameIndex(pub u32);

/// Index into `Trace::functions`. Two frames belong to the same function when this is equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionIndex(pub u32);

/// A stack: the chain of frames from a node of the CallstackTable to its root. `StackIndex::NONE`
/// stands for "no stack is known".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackIndex(pub u32);

impl StackIndex {
    /// No stack is known.
    pub const NONE: StackIndex = StackIndex(0);
}

/// The number of a probe as it stands in the file; newer versions may have probes that this one does
/// not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeId(pub u8);

impl ProbeId {
    /// The probe, when this version knows it.
    pub fn known(self) -> Option<Probe> {
        Probe::from_number(self.0)
    }

    /// The name shown to users; `probe 77` when it is not known.
    pub fn name(self) -> Cow<'static, str> {
        match self.known() {
            Some(probe) => Cow::Borrowed(probe.name()),
            None => Cow::Owned(format!("probe {}", self.0)),
        }
    }

    /// What a thread inside this call waits for. A call that is not known counts as
    /// `Cause::Unknown`.
    pub fn cause(self) -> Cause {
        self.known().map_or(Cause::Unknown, Probe::cause)
    }

    /// Its samples are evidence of who allocates or makes system calls, not of where time goes.
    pub fn is_sampled_event(self) -> bool {
        sampled_events::kind_of(self).is_some() || self == ProbeId::from(Probe::SampledCall)
    }

    /// The category, when the probe is known.
    pub fn category(self) -> Option<Category> {
        self.known().map(Probe::category)
    }
}

impl From<Probe> for ProbeId {
    fn from(probe: Probe) -> Self {
        ProbeId(probe as u8)
    }
}

/// A function as users see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// Demangled name, or `module+0xoffset` when no symbol is known.
    pub name: String,
    /// Path of the module, empty for code outside any (JIT).
    pub module: String,
    /// Source file, empty when unknown.
    pub file: String,
    /// Line of the definition, 0 unknown.
    pub line: u32,
}

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The function that it is in.
    pub function: FunctionIndex,
    /// Address in the process.
    pub address: u64,
    /// Line being executed, 0 unknown.
    pub line: u32,
    /// Stands inlined in the frame before it.
    pub inlined: bool,
    /// Stands for frames that are not known.
    pub truncated: bool,
}

/// What a thread did during a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// On its way through code: running or ready to run, and now and then in a wait too short for a gap.
    Running,
    /// Inside a blocking call, exactly from `begin_ns` to `end_ns`.
    Blocked(ProbeId),
    /// Longer than the evidence reaches: no sample says what the thread did.
    Gap,
}

impl SegmentKind {
    /// Why no progress was made, `Cause::None` when running.
    pub fn cause(self) -> Cause {
        match self {
            SegmentKind::Running => Cause::None,
            SegmentKind::Blocked(probe) => probe.cause(),
            SegmentKind::Gap => Cause::None,
        }
    }
}

/// Amounts that belong to a segment, a slice or a whole thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Time on a CPU, ns.
    pub cpu_ns: u64,
    /// Calls that allocate.
    pub allocations: u64,
    /// Bytes that these calls asked for.
    pub allocated_bytes: u64,
    /// Calls that free.
    pub frees: u64,
    /// Page faults that needed no I/O.
    pub minor_faults: u64,
    /// Page faults that waited for I/O.
    pub major_faults: u64,
    /// Switches because the thread waited.
    pub voluntary_switches: u64,
    /// Switches because the scheduler took the CPU away.
    pub involuntary_switches: u64,
    /// Of the time in code: ready to run, without a CPU, ns.
    pub runnable_ns: u64,
    /// Samples that are evidence for it.
    pub samples: u64,
}

impl Metrics {
    /// Adds `other` to each amount; sums stop at the highest number.
    pub fn add(&mut self, other: &Metrics) {
        each(self, other, u64::saturating_add);
    }

    /// What was added since they were `before`.
    pub fn since(mut self, before: &Metrics) -> Metrics {
        each(&mut self, before, u64::saturating_sub);
        self
    }

    /// Each of them as `change` makes it.
    pub fn map(mut self, change: impl Fn(u64) -> u64) -> Metrics {
        each(&mut self, &Metrics::default(), |amount, _| change(amount));
        self
    }
}

/// Combines each amount with the other's.
#[inline]
fn each(mine: &mut Metrics, other: &Metrics, combine: impl Fn(u64, u64) -> u64) {
    mine.cpu_ns = combine(mine.cpu_ns, other.cpu_ns);
    mine.allocations = combine(mine.allocations, other.allocations);
    mine.allocated_bytes = combine(mine.allocated_bytes, other.allocated_bytes);
    mine.frees = combine(mine.frees, other.frees);
    mine.minor_faults = combine(mine.minor_faults, other.minor_faults);
    mine.major_faults = combine(mine.major_faults, other.major_faults);
    mine.voluntary_switches = combine(mine.voluntary_switches, other.voluntary_switches);
    mine.involuntary_switches = combine(mine.involuntary_switches, other.involuntary_switches);
    mine.runnable_ns = combine(mine.runnable_ns, other.runnable_ns);
    mine.samples = combine(mine.samples, other.samples);
}

/// A stretch of one thread's time with one stack. The segments of a thread follow each other without
/// overlap or hole from the thread's start to its end, so their lengths sum to its wall time. A segment
/// may be empty when it only carries amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Whose time it is.
    pub thread: ThreadIndex,
    /// When it begins, on the trace's clock (CLOCK_MONOTONIC).
    pub begin_ns: u64,
    /// When it ends: where the thread's next segment begins.
    pub end_ns: u64,
    /// For a gap: what the stacks on its two sides have in common.
    pub stack: StackIndex,
    /// What the thread did.
    pub kind: SegmentKind,
    /// What it used meanwhile.
    pub metrics: Metrics,
    /// What its running time is known from.
    pub evidence: Evidence,
    /// Argument of the blocking call (fd or address), when known.
    pub arg: Option<u64>,
    /// Result of the blocking call, when known.
    pub result: Option<i64>,
    /// Thread that ended the wait, when known.
    pub waker_tid: Option<u32>,
    /// An event loop's iteration began with this segment: slices of equal stacks are different executions.
    pub new_iteration: bool,
    /// Time of waits that counts for none: a part of one that is counted where it was longest, or waits seen
    /// from outside, of which it is not known how many they were and how long each.
    pub is_inferred: bool,
}

/// What running time is known from. Each sample that speaks for running time weighs as much CPU time as it
/// stands for, wherever that lies: before and after a call, and in bursts that no tick met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Samples that stand for running time; each counts where it first does.
    pub samples: u64,
    /// Sum of the squares of the samples' weights, ns².
    pub squares: u128,
}

impl Evidence {
    /// A sample stands for so much more CPU time. `weight_ns`: what it stood for so far.
    pub(crate) fn of_more(weight_ns: &mut u64, more_ns: u64) -> Evidence {
        let before = u128::from(*weight_ns);
        *weight_ns = weight_ns.saturating_add(more_ns);
        let after = u128::from(*weight_ns);
        Evidence {
            samples: u64::from(before == 0 && after != 0),
            squares: after * after - before * before,
        }
    }
}

impl AddAssign for Evidence {
    fn add_assign(&mut self, other: Evidence) {
        self.samples = self.samples.saturating_add(other.samples);
        self.squares = self.squares.saturating_add(other.squares);
    }
}

impl Segment {
    /// Its length in ns.
    pub fn wall_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }

    /// Time in code: on the CPU, or ready to run; ns.
    pub fn running_ns(&self) -> u64 {
        match self.runs() {
            true => self.accounted_ns().min(self.wall_ns()),
            false => 0,
        }
    }

    fn accounted_ns(&self) -> u64 {
        (self.metrics.cpu_ns).saturating_add(self.metrics.runnable_ns)
    }

    /// Whether the thread was in code: also in a read or a write that could have waited and worked all its
    /// time, as one from the page cache. What one that waited used on its way to sleep and back is part of
    /// the wait. A sleep that is over before its thread is switched away is CPU time for the kernel, and a
    /// sleep.
    pub fn runs(&self) -> bool {
        match self.kind {
            SegmentKind::Running => true,
            SegmentKind::Blocked(probe) => {
                matches!(probe.cause(), Cause::Io | Cause::Net)
                    && self.wall_ns() > 0
                    && self.accounted_ns() >= self.wall_ns()
            }
            SegmentKind::Gap => false,
        }
    }

    /// Time in a call that waited; ns.
    pub fn blocked_ns(&self) -> u64 {
        match self.kind {
            SegmentKind::Blocked(_) if !self.runs() => self.wall_ns(),
            SegmentKind::Running | SegmentKind::Blocked(_) | SegmentKind::Gap => 0,
        }
    }

    /// Time without evidence: a gap, and what a thread was off the CPU on its way through code, in waits that
    /// no sample shows; ns.
    pub fn unseen_ns(&self) -> u64 {
        match self.kind {
            SegmentKind::Blocked(_) => 0,
            SegmentKind::Running | SegmentKind::Gap => self.wall_ns() - self.running_ns(),
        }
    }
}

/// A call of a function, reconstructed: `depth` 0 is the outermost frame. Blocking calls and gaps are
/// slices too, innermost ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The thread that made the call.
    pub thread: ThreadIndex,
    /// Number of slices around it.
    pub depth: u32,
    /// Where it was first seen. For a blocking call or a gap a frame that only names it.
    pub frame: FrameIndex,
    /// When it begins, on the trace's clock.
    pub begin_ns: u64,
    /// When it ends.
    pub end_ns: u64,
    /// With callees.
    pub total: Metrics,
    /// Without callees.
    pub own: Metrics,
    /// Time without callees, blocking calls and gaps, ns.
    pub self_ns: u64,
    /// Of the slice's time, blocked (with callees), ns.
    pub blocked_ns: u64,
    /// Of the slice's time, without evidence (with callees), ns.
    pub gap_ns: u64,
    /// The blocking call that this slice is, with its cause; `None` for functions.
    pub blocking: Option<ProbeId>,
    /// This slice is a stretch without evidence.
    pub gap: bool,
    /// Argument of the blocking call (descriptor or address), when known.
    pub arg: Option<u64>,
    /// Result of the blocking call, when known.
    pub result: Option<i64>,
    /// Kernel's number of the thread that ended the wait, when known.
    pub waker_tid: Option<u32>,
    /// Of a blocking call: see [`Segment::is_inferred`].
    pub is_inferred: bool,
}
