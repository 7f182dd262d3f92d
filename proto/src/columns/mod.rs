//! Samples as columns: between the rows that a collector drains or a reader hands out and the
//! delta-coded columns of `SampleBatch`.

mod counter_units;
mod decode;
mod encode;
mod kinds;
mod raw_columns;
#[cfg(test)]
mod tests;
mod usage;

pub use decode::decode;
pub use encode::encode;
pub use raw_columns::{Columns, Outline, outline};

/// The low bits of a record's flags (`core::shm::record_format::flags::HAS_*`) say which words follow; in
/// columns the presence of a value says it.
const PRESENCE_FLAGS: u8 = 7;

/// Faults and switches of a thread so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rusage {
    /// Page faults that needed no I/O.
    pub minor_faults: u64,
    /// Page faults that waited for I/O.
    pub major_faults: u64,
    /// Switches because the thread waited.
    pub voluntary_switches: u64,
    /// Switches because the scheduler took the processor away.
    pub involuntary_switches: u64,
}

/// One sample. Counters are totals of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRow {
    /// Number in the thread's sequence of records.
    pub record: u64,
    /// End of the call, or moment of the sample.
    pub time_ns: u64,
    /// From begin to end; 0 for a point.
    pub duration_ns: u64,
    /// CPU time at the end, ns.
    pub cpu_ns: u64,
    /// Calls that allocate.
    pub allocations: u64,
    /// Bytes that these calls asked for.
    pub allocated_bytes: u64,
    /// Calls that free.
    pub frees: u64,
    /// Node id, 0: no stack.
    pub node: u32,
    /// Number of the kind of call, `core::probe::Probe`.
    pub probe: u8,
    /// `core::shm::record_format::flags` without the `HAS_*` bits.
    pub flags: u8,
    /// Argument and result.
    pub arg: Option<(u64, i64)>,
    /// Faults and switches, where they were read.
    pub rusage: Option<Rusage>,
    /// Kernel's number of the thread that ended the wait, where it is known.
    pub waker_tid: Option<u32>,
}

/// Why a batch cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// Not a serialized `SampleBatch`.
    #[error("a column is cut off, or the batch is none")]
    Damaged,
    /// A column has not one value for each sample that it is about.
    #[error("column {column} has {found} values for {rows} samples")]
    Length {
        /// Name of the column.
        column: &'static str,
        /// Values that it has.
        found: usize,
        /// Samples that it is about.
        rows: usize,
    },
    /// A column of positions leads beyond the samples.
    #[error("column {column} names positions beyond the {rows} samples")]
    Position {
        /// Name of the column.
        column: &'static str,
        /// Samples of the batch.
        rows: usize,
    },
}

/// The unit for times: a power of two in ns, about a thousandth of the interval, so that the differences
/// to it take one byte as long as samples come within a sixteenth of it.
pub fn time_unit_ns(interval_ns: u64) -> u32 {
    (interval_ns / 1024 + 1)
        .checked_next_power_of_two()
        .map_or(1 << 20, |unit| unit.min(1 << 20) as u32)
}
