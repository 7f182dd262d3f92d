//! Records: what a thread writes into its sub-buffer.
//!
//! A record is a run of 64-bit words, first word the header:
//!
//! ```text
//!   word 0   bits 0..8 kind | 8..16 words | 16..24 probe | 24..32 flags | 32..64 node id
//!
//!   SAMPLE   word 1  end of the call or moment of the sample, in cycles
//!            word 2  cycles from begin to end; 0 for a point
//!            word 3  thread CPU time at the end, ns
//!            word 4  allocations of the thread so far
//!            word 5  bytes allocated by the thread so far
//!            word 6  frees of the thread so far
//!            HAS_ARG:    +2 words: argument (fd, address or size, by probe), result (i64)
//!            HAS_RUSAGE: +2 words: minor faults | major faults << 32, voluntary | involuntary << 32 switches
//!            HAS_WAKER:  +1 word:  tid of the thread that ended the wait
//!
//!   MODULE   word 1 start | word 2 end | word 3 bias | word 4 epoch | word 5 path bytes | build id bytes << 32
//!            then the path and the build id, each padded to whole words
//!   MODULE_GONE  word 1 start | word 2 first epoch without it
//!   NAME     node field: 1, it is the program's own name, which a runtime knows; 0, it is the system's
//!            then the thread's name, NUL padded
//!   TEXT     node field: TextKind | word 1 bytes | word 2 offset of this part | the bytes, padded to whole words
//!   MARK     word 1 cycles | word 2 value (i64) | word 3 bytes of the name | the name, padded; probe field:
//!            a number of `proto::v1::event::Kind`, or `event_kind::COUNTER`
//!   WAIT     node field: the waiter's stack | word 1 begin, cycles | word 2 end, cycles | word 3 what was waited for
//!            word 4 tid that held it at the begin | tid that ended the wait << 32, 0: not known
//!            word 5 utid of the thread that ended it | number of its WAKE << 32 | word 6 the call's result (i64)
//!   WAKE     node field: the stack | word 1 cycles | word 2 what was waited for | word 3 number
//! ```
//!
//! Every record counts one in the thread's sequence of records, whatever its kind.

use crate::address::Bias;
use crate::cycles::Cycles;
use crate::ids::{Tid, Utid};

/// Kind of a record (bits 0..8 of its header word).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// See [`Sample`].
    Sample = 1,
    /// A module was loaded.
    Module = 2,
    /// A module was unloaded.
    ModuleGone = 3,
    /// The thread's name.
    Name = 4,
    /// A part of a text about the process, see [`TextKind`].
    Text = 5,
    /// An event that the program wrote, see [`event_kind`].
    Mark = 6,
    /// See [`Waited`].
    Wait = 7,
    /// See [`Woke`].
    Wake = 8,
}

impl RecordKind {
    /// The kind with this number, if there is one.
    pub const fn from_number(number: u8) -> Option<RecordKind> {
        match number {
            1 => Some(RecordKind::Sample),
            2 => Some(RecordKind::Module),
            3 => Some(RecordKind::ModuleGone),
            4 => Some(RecordKind::Name),
            5 => Some(RecordKind::Text),
            6 => Some(RecordKind::Mark),
            7 => Some(RecordKind::Wait),
            8 => Some(RecordKind::Wake),
            _ => None,
        }
    }
}

/// What a TEXT record carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TextKind {
    /// Path of the process' executable.
    Executable = 1,
    /// The command line, each argument ended by a NUL.
    CommandLine = 2,
    /// A capability or its absence, e.g. `malloc: active`.
    Capability = 3,
    /// The path given to exec: what a link is called, not its target.
    StartedAs = 4,
}

/// Bits 24..32 of a sample's header word.
pub mod flags {
    /// Two words follow: argument and result.
    pub const HAS_ARG: u8 = 1;
    /// Two words follow: faults and switches.
    pub const HAS_RUSAGE: u8 = 2;
    /// One word follows: who ended the wait.
    pub const HAS_WAKER: u8 = 4;
    /// The capture bypassed the throttle, came well behind its tick, or the scheduler chose its moment: it
    /// says nothing of the time around it.
    pub const FORCED: u8 = 8;
    /// The call was about to wait (a lock was taken, a wait began): its duration is blocked time.
    pub const BLOCKED: u8 = 16;
    /// The stack lost its leaf end: the CallstackTable was full.
    pub const STACK_CUT: u8 = 32;
    /// An event loop began an iteration (a poll returned) since the thread's record before this one, without
    /// a record of its own: equal stacks on both sides are different executions.
    pub const LOOP_ITERATION: u8 = 64;
    /// Inside of a wait that goes on: in a signal's handler, or in what the waiting function calls.
    pub const INSIDE: u8 = 128;
}

/// Most words one record can have (its length is eight bits).
pub const MAX_RECORD_WORDS: usize = 255;

/// Header word of a record. `words` counts the header too.
pub const fn header(kind: RecordKind, words: u8, probe: u8, flags: u8, node: u32) -> u64 {
    kind as u64
        | (words as u64) << 8
        | (probe as u64) << 16
        | (flags as u64) << 24
        | (node as u64) << 32
}

/// What a capture writes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Number of the `Probe`.
    pub probe: u8,
    /// Those of [`flags`] that say nothing about which words follow.
    pub flags: u8,
    /// Node of the stack; 0: there is none.
    pub node: u32,
    /// End of the call, or the sample's moment.
    pub end_cycles: Cycles,
    /// Cycles from the call's begin to its end; 0 for a point.
    pub duration_cycles: Cycles,
    /// The thread's CPU time at the end, ns.
    pub cpu_ns: u64,
    /// Allocations of the thread so far.
    pub allocations: u64,
    /// Bytes allocated by the thread so far.
    pub allocated_bytes: u64,
    /// Frees of the thread so far.
    pub frees: u64,
    /// Argument and result.
    pub arg: Option<(u64, i64)>,
    /// Faults and switches of the thread so far; `None`: not read.
    pub usage: Option<crate::platform::Usage>,
    /// Thread that ended the wait; `None`: not known.
    pub waker_tid: Option<Tid>,
}

/// Memory that a record is put together in.
pub type RecordBuffer = [u64; MAX_RECORD_WORDS];

/// Puts words behind each other; what does not fit is left out.
struct Words<'a> {
    to: &'a mut RecordBuffer,
    len: usize,
}

impl Words<'_> {
    fn push(&mut self, word: u64) {
        if let Some(place) = self.to.get_mut(self.len) {
            *place = word;
            self.len += 1;
        }
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.push(u64::from_le_bytes(word));
        }
    }

    fn finish(self, kind: RecordKind, probe: u8, flags: u8, node: u32) -> usize {
        if let Some(first) = self.to.first_mut() {
            *first = header(kind, self.len as u8, probe, flags, node);
        }
        self.len
    }
}

fn words(to: &mut RecordBuffer) -> Words<'_> {
    Words { to, len: 1 }
}

/// Writes a SAMPLE; gives its length in words.
pub fn write_sample(s: &Sample, to: &mut RecordBuffer) -> usize {
    let mut w = words(to);
    let mut bits = s.flags & !(flags::HAS_ARG | flags::HAS_RUSAGE | flags::HAS_WAKER);
    for word in [
        s.end_cycles.0,
        s.duration_cycles.0,
        s.cpu_ns,
        s.allocations,
        s.allocated_bytes,
        s.frees,
    ] {
        w.push(word);
    }
    if let Some((arg, result)) = s.arg {
        bits |= flags::HAS_ARG;
        w.push(arg);
        w.push(result as u64);
    }
    if let Some(u) = s.usage {
        bits |= flags::HAS_RUSAGE;
        let half = |n: u64| n & 0xffff_ffff;
        w.push(half(u.minor_faults) | half(u.major_faults) << 32);
        w.push(half(u.voluntary_switches) | half(u.involuntary_switches) << 32);
    }
    if let Some(tid) = s.waker_tid {
        bits |= flags::HAS_WAKER;
        w.push(tid.0 as u64);
    }
    w.finish(RecordKind::Sample, s.probe, bits, s.node)
}

/// Reads a SAMPLE: its header word and the words behind it. `None` when they do not fit each other; they
/// may come from memory that others write to.
pub fn read_sample(header: u64, body: &[u64]) -> Option<Sample> {
    let bits = (header >> 24) as u8;
    let (fixed, mut more) = body.split_at_checked(6)?;
    let mut take = |bit: u8, count: usize| match bits & bit {
        0 => Some(None),
        _ => {
            let (taken, rest) = more.split_at_checked(count)?;
            more = rest;
            Some(Some(taken))
        }
    };
    let halves = |word: u64| (word & 0xffff_ffff, word >> 32);
    let arg = take(flags::HAS_ARG, 2)?.map(|w| (w[0], w[1] as i64));
    let usage = take(flags::HAS_RUSAGE, 2)?.map(|w| {
        let ((minor_faults, major_faults), (voluntary_switches, involuntary_switches)) =
            (halves(w[0]), halves(w[1]));
        crate::platform::Usage {
            minor_faults,
            major_faults,
            voluntary_switches,
            involuntary_switches,
        }
    });
    let waker_tid = take(flags::HAS_WAKER, 1)?.map(|w| Tid(w[0] as u32));
    Some(Sample {
        probe: (header >> 16) as u8,
        flags: bits & !(flags::HAS_ARG | flags::HAS_RUSAGE | flags::HAS_WAKER),
        node: (header >> 32) as u32,
        end_cycles: Cycles(fixed[0]),
        duration_cycles: Cycles(fixed[1]),
        cpu_ns: fixed[2],
        allocations: fixed[3],
        allocated_bytes: fixed[4],
        frees: fixed[5],
        arg,
        usage,
        waker_tid,
    })
}

/// Most bytes of a thread's name.
pub const NAME_BYTES: usize = 48;

/// Writes a NAME; longer ones are cut. `of_runtime`: not the system's.
pub fn write_name(name: &[u8], of_runtime: bool, to: &mut RecordBuffer) -> usize {
    let mut w = words(to);
    w.push_bytes(name.get(..NAME_BYTES).unwrap_or(name));
    w.push(0);
    w.finish(RecordKind::Name, 0, 0, u32::from(of_runtime))
}

/// Most bytes of text that one TEXT record holds.
pub const TEXT_PART_BYTES: usize = (MAX_RECORD_WORDS - 3) * 8;

/// Writes a part of a text; longer ones are cut at `TEXT_PART_BYTES`.
pub fn write_text(kind: TextKind, offset: usize, part: &[u8], to: &mut RecordBuffer) -> usize {
    let part = part.get(..TEXT_PART_BYTES).unwrap_or(part);
    let mut w = words(to);
    w.push(part.len() as u64);
    w.push(offset as u64);
    w.push_bytes(part);
    w.finish(RecordKind::Text, 0, 0, kind as u32)
}

/// A wait over the threshold, as the waiting thread writes it down at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Number of the `Probe`.
    pub probe: u8,
    /// Node of the waiting thread's stack.
    pub node: u32,
    /// When the wait began.
    pub begin_cycles: Cycles,
    /// When the wait ended.
    pub end_cycles: Cycles,
    /// What was waited for: an address, or what stands for a descriptor (`shm::waiters::Object`).
    pub object: u64,
    /// 0: not known; so the other three.
    pub owner_tid: Tid,
    /// Thread that ended the wait.
    pub waker_tid: Tid,
    /// Our number of that thread.
    pub waker_utid: Utid,
    /// Number of its [`Woke`] record.
    pub wake_number: u32,
    /// What the call returned.
    pub result: i64,
}

/// Writes a WAIT; gives its length in words.
pub fn write_wait(wait: &Waited, to: &mut RecordBuffer) -> usize {
    let mut w = words(to);
    for word in [
        wait.begin_cycles.0,
        wait.end_cycles.0,
        wait.object,
        wait.owner_tid.0 as u64 | (wait.waker_tid.0 as u64) << 32,
        wait.waker_utid.0 as u64 | (wait.wake_number as u64) << 32,
        wait.result as u64,
    ] {
        w.push(word);
    }
    w.finish(RecordKind::Wait, wait.probe, 0, wait.node)
}

/// Reads a WAIT: its header word and the words behind it.
pub fn read_wait(header: u64, body: &[u64]) -> Option<Waited> {
    let &[begin, end, object, tids, wake, result] = body else {
        return None;
    };
    Some(Waited {
        probe: (header >> 16) as u8,
        node: (header >> 32) as u32,
        begin_cycles: Cycles(begin),
        end_cycles: Cycles(end),
        object,
        owner_tid: Tid(tids as u32),
        waker_tid: Tid((tids >> 32) as u32),
        waker_utid: Utid(wake as u32),
        wake_number: (wake >> 32) as u32,
        result: result as i64,
    })
}

/// A wait of another thread that the writer has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woke {
    /// Node of the stack that ended the wait.
    pub node: u32,
    /// When that was.
    pub cycles: Cycles,
    /// What was waited for, as in [`Waited`].
    pub object: u64,
    /// Counted by thread; what [`Waited`] refers to.
    pub number: u32,
}

/// Writes a WAKE; gives its length in words.
pub fn write_wake(wake: &Woke, to: &mut RecordBuffer) -> usize {
    let mut w = words(to);
    w.push(wake.cycles.0);
    w.push(wake.object);
    w.push(wake.number as u64);
    w.finish(RecordKind::Wake, 0, 0, wake.node)
}

/// Reads a WAKE: its header word and the words behind it.
pub fn read_wake(header: u64, body: &[u64]) -> Option<Woke> {
    let &[cycles, object, number] = body else {
        return None;
    };
    Some(Woke {
        node: (header >> 32) as u32,
        cycles: Cycles(cycles),
        object,
        number: number as u32,
    })
}

/// Kinds of events that programs write: numbers of `proto::v1::event::Kind`.
pub mod event_kind {
    /// A moment with a name.
    pub const MARK: u8 = 0;
    /// A scope begins in this thread.
    pub const SCOPE_BEGIN: u8 = 1;
    /// The innermost scope of this thread ends.
    pub const SCOPE_END: u8 = 2;
    /// A flow between threads begins; the value is its number.
    pub const FLOW_BEGIN: u8 = 7;
    /// A flow passes here.
    pub const FLOW_STEP: u8 = 8;
    /// A flow ends here.
    pub const FLOW_END: u8 = 9;
    /// None of those: the value of a counter of the process.
    pub const COUNTER: u8 = 10;
    /// A scope begins that may end in another thread; the value is its number.
    pub const ASYNC_BEGIN: u8 = 11;
    /// That scope ends.
    pub const ASYNC_END: u8 = 12;
}

/// Longest name of an event, bytes.
pub const EVENT_NAME_BYTES: usize = 1024;

/// Writes a MARK; a longer name is cut at `EVENT_NAME_BYTES`.
pub fn write_mark(
    kind: u8,
    cycles: Cycles,
    value: i64,
    name: &[u8],
    to: &mut RecordBuffer,
) -> usize {
    let name = name.get(..EVENT_NAME_BYTES).unwrap_or(name);
    let mut w = words(to);
    w.push(cycles.0);
    w.push(value as u64);
    w.push(name.len() as u64);
    w.push_bytes(name);
    w.finish(RecordKind::Mark, kind, 0, 0)
}

/// Writes a MODULE; a path too long for one record loses its front (names are at the end).
pub fn write_module(
    range: (u64, u64),
    bias: Bias,
    epoch: u32,
    path: &[u8],
    build_id: &[u8],
    to: &mut RecordBuffer,
) -> usize {
    const PATH_BYTES: usize = (MAX_RECORD_WORDS - 6 - 8) * 8;
    let build_id = build_id.get(..64).unwrap_or(build_id);
    let path = path
        .get(path.len().saturating_sub(PATH_BYTES)..)
        .unwrap_or(path);
    let mut w = words(to);
    for word in [
        range.0,
        range.1,
        bias.0,
        epoch as u64,
        path.len() as u64 | (build_id.len() as u64) << 32,
    ] {
        w.push(word);
    }
    w.push_bytes(path);
    w.push_bytes(build_id);
    w.finish(RecordKind::Module, 0, 0, 0)
}

/// Writes a MODULE_GONE.
pub fn write_module_gone(start: u64, first_epoch_without: u32, to: &mut RecordBuffer) -> usize {
    let mut w = words(to);
    w.push(start);
    w.push(first_epoch_without as u64);
    w.finish(RecordKind::ModuleGone, 0, 0, 0)
}
