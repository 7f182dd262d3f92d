//! The trace model: what a `.beat` file says, as threads whose time is cut into segments and slices.
//!
//! A trace is read twice: `Trace::open` reads everything but the samples (processes, threads, modules,
//! nodes, symbols, losses), `Trace::visit` streams the samples as segments, so that memory follows the
//! number of distinct stacks and threads, not the length of the recording.

use stackbeat_core::probe::{Cause, Probe};

/// Index into `Trace::threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadIndex(pub u32);

/// Index into `Trace::processes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessIndex(pub u32);

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

/// A function as users see it.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// On its way through code: running, or ready to run.
    Running,
    /// Inside a blocking call, exactly from `begin_ns` to `end_ns`.
    Blocked(Probe),
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
pub struct Amounts {
    pub cpu_ns: u64,
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// Samples that are evidence for it.
    pub samples: u64,
}

/// A stretch of one thread's time with one stack. The segments of a thread follow each other without
/// overlap or hole from the thread's start to its end, so their lengths sum to its wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub thread: ThreadIndex,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub stack: StackIndex,
    pub kind: SegmentKind,
    pub amounts: Amounts,
    /// Argument of the blocking call (fd or address), when known.
    pub arg: Option<u64>,
    /// Result of the blocking call, when known.
    pub result: Option<i64>,
    /// Thread that ended the wait, when known.
    pub waker_tid: Option<u32>,
    /// An event loop's turn began with this segment: slices of equal stacks are different executions.
    pub new_turn: bool,
}

/// A call of a function, reconstructed: `depth` 0 is the outermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    pub thread: ThreadIndex,
    pub depth: u32,
    pub frame: FrameIndex,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// With callees.
    pub total: Amounts,
    /// Without callees.
    pub own: Amounts,
    /// Time without callees, ns.
    pub self_ns: u64,
    /// Of the slice's time, blocked (with callees), ns.
    pub blocked_ns: u64,
    /// The blocking call that this slice is, with its cause; `None` for functions.
    pub blocking: Option<Probe>,
}
