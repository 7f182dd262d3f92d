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
//!   NAME     word 1..3 the thread's name, 16 bytes, NUL padded
//!   TEXT     node field: TextKind | word 1 bytes | word 2 offset of this part | the bytes, padded to whole words
//!   MARK     word 1 cycles | word 2 value (i64) | word 3 bytes of the name | the name, padded; probe field: MarkKind
//! ```
//!
//! Every record counts one in the thread's sequence of records, whatever its kind.

/// Kind of a record (bits 0..8 of its header word).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    Sample = 1,
    Module = 2,
    ModuleGone = 3,
    Name = 4,
    Text = 5,
    Mark = 6,
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
}

/// Bits 24..32 of a sample's header word.
pub mod flags {
    /// Two words follow: argument and result.
    pub const HAS_ARG: u8 = 1;
    /// Two words follow: faults and switches.
    pub const HAS_RUSAGE: u8 = 2;
    /// One word follows: who ended the wait.
    pub const HAS_WAKER: u8 = 4;
    /// The capture bypassed the throttle.
    pub const FORCED: u8 = 8;
    /// The call was about to wait (a lock was taken, a wait began): its duration is blocked time.
    pub const BLOCKED: u8 = 16;
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
