//! A serialized `SampleBatch`, taken apart into its columns without decoding them: reading samples is
//! most of the work of reading a trace, and a `Vec` for each column of each batch would be most of that.

use std::borrow::Cow;
use std::ops::Range;

use prost::Message;

use crate::stream::take_varint;
use crate::v1::SampleBatch;

/// Numbers of the fields of `SampleBatch` that are columns.
pub(super) mod field {
    pub(crate) const TIME: usize = 4;
    pub(crate) const CPU: usize = 5;
    pub(crate) const NODE: usize = 7;
    pub(crate) const KIND_RUNS: usize = 8;
    pub(crate) const ALLOCATIONS: usize = 9;
    pub(crate) const ALLOCATED_BYTES: usize = 10;
    pub(crate) const LIVE: usize = 11;
    pub(crate) const DURATION_AT: usize = 12;
    pub(crate) const DURATION: usize = 13;
    pub(crate) const ARG_AT: usize = 14;
    pub(crate) const ARG: usize = 15;
    pub(crate) const RESULT: usize = 16;
    pub(crate) const RUSAGE_AT: usize = 17;
    pub(crate) const MINOR_FAULTS: usize = 18;
    pub(crate) const MAJOR_FAULTS: usize = 19;
    pub(crate) const VOLUNTARY_SWITCHES: usize = 20;
    pub(crate) const INVOLUNTARY_SWITCHES: usize = 21;
    pub(crate) const WAKER_AT: usize = 22;
    pub(crate) const WAKER_TID: usize = 23;
    pub(crate) const RECORD_AT: usize = 24;
    pub(crate) const RECORD_SKIP: usize = 25;
    pub(crate) const KINDS: usize = 28;
    pub(crate) const KIND_STEPS: usize = 29;
    pub(crate) const USAGE: usize = 30;
}

/// What a column is called in messages.
pub(super) fn name(column: usize) -> &'static str {
    match column {
        field::CPU => "cpu",
        field::NODE => "node",
        field::KIND_RUNS => "kind_runs",
        field::KINDS => "kinds",
        field::KIND_STEPS => "kind_steps",
        field::USAGE => "usage",
        field::ALLOCATIONS => "allocations",
        field::ALLOCATED_BYTES => "allocated_bytes",
        field::LIVE => "live",
        field::DURATION => "duration",
        field::ARG => "arg",
        field::RESULT => "result",
        field::MINOR_FAULTS..=field::INVOLUNTARY_SWITCHES => "faults and switches",
        field::WAKER_TID => "waker_tid",
        field::RECORD_SKIP => "record_skip",
        _ => "time",
    }
}

/// Numbers of fields below this are read, others skipped.
const FIELDS: usize = 32;

/// The columns of a batch, still encoded.
#[derive(Clone, Debug)]
pub struct Columns<'a> {
    /// The thread whose samples they are.
    pub utid: u32,
    /// Number of the first sample in the thread's sequence of records.
    pub first_record: u64,
    /// Records stored with these that are no samples.
    pub other_records: u32,
    /// Unit of times, at least 1 ns.
    pub(super) unit: u64,
    pub(super) cpu_is_off: bool,
    /// Added to each difference of times but the first.
    pub(super) time_step: u64,
    pub(super) counter_units: u32,
    /// The recorder has taken them: they are no records.
    pub by_suspension: bool,
    bytes: Cow<'a, [u8]>,
    /// By field number, where in `bytes` the column stands.
    columns: [Range<usize>; FIELDS],
}

impl<'a> Columns<'a> {
    /// Takes a serialized `SampleBatch` apart; `None` when it is none.
    pub fn of(batch: &'a [u8]) -> Option<Columns<'a>> {
        match take_apart(Cow::Borrowed(batch))? {
            Some(columns) => Some(columns),
            // Not the usual encoding, but perhaps the same message.
            None => Columns::of_batch(&SampleBatch::decode(batch).ok()?),
        }
    }

    /// The same of a decoded batch.
    pub(super) fn of_batch(batch: &SampleBatch) -> Option<Columns<'static>> {
        take_apart(Cow::Owned(batch.encode_to_vec())).flatten()
    }

    pub(super) fn column(&self, field: usize) -> Values<'_> {
        let Range { start, end } = self.columns[field].clone();
        Values {
            bytes: &self.bytes,
            at: start,
            end,
        }
    }
}

/// The columns of `bytes`; `Some(None)` if a column is not packed or comes in pieces.
#[allow(clippy::option_option)]
fn take_apart(bytes: Cow<'_, [u8]>) -> Option<Option<Columns<'_>>> {
    let mut utid = 0;
    let mut first_record = 0;
    let mut other_records = 0;
    let mut unit = 0;
    let mut cpu_is_off = false;
    let mut time_step = 0;
    let mut counter_units = 0;
    let mut by_suspension = false;
    let mut columns = [const { 0..0 }; FIELDS];
    let mut at = 0;
    while at < bytes.len() {
        let (tag, used) = take_varint(&bytes[at..])?;
        at += used;
        let number = usize::try_from(tag >> 3).ok()?;
        let length = match tag & 7 {
            0 => {
                let (value, used) = take_varint(&bytes[at..])?;
                match number {
                    1 => utid = value as u32,
                    2 => first_record = value,
                    3 => unit = value as u32,
                    6 => cpu_is_off = value != 0,
                    26 => other_records = value as u32,
                    27 => counter_units = value as u32,
                    31 => time_step = unzigzag(value),
                    33 => by_suspension = value != 0,
                    field::TIME..=field::RECORD_SKIP | field::KINDS..=field::USAGE => {
                        return Some(None);
                    }
                    _ => {}
                }
                used
            }
            1 => 8,
            2 => {
                let (length, used) = take_varint(&bytes[at..])?;
                at += used;
                let length = usize::try_from(length).ok()?;
                if let Some(column) = columns.get_mut(number) {
                    if column.start != column.end {
                        return Some(None);
                    }
                    *column = at..at.checked_add(length)?;
                }
                length
            }
            5 => 4,
            _ => return None,
        };
        at = at.checked_add(length).filter(|at| *at <= bytes.len())?;
    }
    Some(Some(Columns {
        utid,
        first_record,
        other_records,
        unit: u64::from(unit).max(1),
        cpu_is_off,
        time_step,
        counter_units,
        by_suspension,
        bytes,
        columns,
    }))
}

/// Walks over the varints of one column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    /// The whole batch: what stands behind the column may be loaded with it, but is not used.
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

/// The highest bits of eight bytes: set in those that are not a varint's last one.
const CONTINUES: u64 = 0x8080_8080_8080_8080;

impl Values<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// How many values are left: each ends with the one byte whose highest bit is not set.
    pub(super) fn count(&self) -> usize {
        self.bytes[self.at..self.end]
            .iter()
            .filter(|byte| **byte < 0x80)
            .count()
    }

    /// The next value; `None` behind the last one and where bytes are no varint.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<u64> {
        let word = self
            .bytes
            .get(self.at..self.at + 8)
            .and_then(|eight| Some(u64::from_le_bytes(eight.try_into().ok()?)));
        match word {
            // Up to eight bytes at once, without a branch for their number.
            Some(word) if !word & CONTINUES != 0 => {
                let bits = (!word & CONTINUES).trailing_zeros() + 1;
                self.at += bits as usize / 8;
                if self.at > self.end {
                    self.at = self.end;
                    return None;
                }
                Some(compact(word & (u64::MAX >> (64 - bits))))
            }
            _ => self.take_slowly(),
        }
    }

    #[cold]
    fn take_slowly(&mut self) -> Option<u64> {
        let rest = self.bytes.get(self.at..self.end)?;
        let taken = take_varint(rest);
        self.at += taken.map_or(rest.len(), |(_, used)| used);
        taken.map(|(value, _)| value)
    }
}

/// Puts the seven low bits of each byte together.
#[inline(always)]
fn compact(word: u64) -> u64 {
    let x = word & !CONTINUES;
    let x = (x & 0x007f_007f_007f_007f) | (x & 0x7f00_7f00_7f00_7f00) >> 1;
    let x = (x & 0x0000_3fff_0000_3fff) | (x & 0x3fff_0000_3fff_0000) >> 2;
    (x & 0x0fff_ffff) | (x & 0x0fff_ffff_0000_0000) >> 4
}

/// The number that a zigzag varint stands for, as bits to add.
#[inline(always)]
pub(super) fn unzigzag(raw: u64) -> u64 {
    (raw >> 1) ^ (raw & 1).wrapping_neg()
}

/// What a batch says before its columns are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The thread whose samples they are.
    pub utid: u32,
    /// Number of the first sample in the thread's sequence of records.
    pub first_record: u64,
    /// Number of samples.
    pub rows: u64,
    /// End time of the first sample.
    pub first_ns: u64,
    /// Highest end time of all samples.
    pub last_ns: u64,
}

/// The outline of a serialized `SampleBatch`, without decoding its other columns; `None` when it is
/// damaged.
pub fn outline(batch: &[u8]) -> Option<Outline> {
    let columns = Columns::of(batch)?;
    let mut outline = Outline {
        utid: columns.utid,
        first_record: columns.first_record,
        ..Outline::default()
    };
    let mut values = columns.column(field::TIME);
    let (mut time, mut last) = (0u64, 0u64);
    while !values.is_empty() {
        time = time.wrapping_add(unzigzag(values.take()?));
        if outline.rows == 0 {
            outline.first_ns = time.wrapping_mul(columns.unit);
        } else {
            time = time.wrapping_add(columns.time_step);
        }
        last = last.max(time);
        outline.rows += 1;
    }
    outline.last_ns = last.wrapping_mul(columns.unit);
    Some(outline)
}
