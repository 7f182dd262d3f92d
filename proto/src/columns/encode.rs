//! From rows to the columns of a batch.

use super::{PRESENCE_FLAGS, Rusage, SampleRow};
use crate::v1::SampleBatch;

/// The columns of `rows`, all of the thread `thread_uid`, in the order of their record numbers. Times
/// are rounded down to multiples of `unit` ns (0 means 1), see [`time_unit_ns`].
pub fn encode(thread_uid: u32, rows: &[SampleRow], unit: u32) -> SampleBatch {
    let unit = u64::from(unit.max(1));
    let mut batch = SampleBatch {
        thread_uid,
        first_record: rows.first().map_or(0, |row| row.record),
        time_unit_ns: unit as u32,
        ..SampleBatch::default()
    };
    batch.time = deltas(rows.iter().map(|row| row.time_ns / unit)).collect();
    let cpu: Vec<i64> = deltas(rows.iter().map(|row| row.cpu_ns / unit)).collect();
    let off: Vec<i64> = deltas(
        rows.iter()
            .map(|row| (row.time_ns / unit).wrapping_sub(row.cpu_ns / unit)),
    )
    .collect();
    batch.cpu_is_off = encoded_bytes(&off) < encoded_bytes(&cpu);
    batch.cpu = dense(if batch.cpu_is_off { off } else { cpu });
    batch.node = dense(deltas(rows.iter().map(|row| u64::from(row.node))).collect());
    batch.allocations = growing(rows.iter().map(|row| row.allocations));
    batch.allocated_bytes = growing(rows.iter().map(|row| row.allocated_bytes));
    batch.live = dense(
        deltas(
            rows.iter()
                .map(|row| row.allocations.wrapping_sub(row.frees)),
        )
        .collect(),
    );

    let mut last_arg = [0u64; 256];
    let mut duration_at = Positions::default();
    let mut arg_at = Positions::default();
    let mut rusage_at = Positions::default();
    let mut waker_at = Positions::default();
    let mut record_at = Positions::default();
    let mut rusage = Rusage::default();
    let mut run: Option<(u32, u32)> = None;
    for (i, row) in rows.iter().enumerate() {
        let kind = u32::from(row.probe) | u32::from(row.flags & !PRESENCE_FLAGS) << 8;
        match &mut run {
            Some((count, k)) if *k == kind => *count += 1,
            _ => {
                if let Some((count, k)) = run.replace((1, kind)) {
                    batch.kind_runs.extend([count, k]);
                }
            }
        }
        if row.duration_ns != 0 {
            duration_at.push(i);
            batch.duration.push(row.duration_ns);
        }
        if let Some((arg, result)) = row.arg {
            arg_at.push(i);
            let last = &mut last_arg[usize::from(row.probe)];
            batch.arg.push(arg.wrapping_sub(*last) as i64);
            *last = arg;
            batch.result.push(result);
        }
        if let Some(now) = row.rusage {
            rusage_at.push(i);
            let delta = |now: u64, then: u64| now.wrapping_sub(then) as i64;
            batch
                .minor_faults
                .push(delta(now.minor_faults, rusage.minor_faults));
            batch
                .major_faults
                .push(delta(now.major_faults, rusage.major_faults));
            batch
                .voluntary_switches
                .push(delta(now.voluntary_switches, rusage.voluntary_switches));
            batch
                .involuntary_switches
                .push(delta(now.involuntary_switches, rusage.involuntary_switches));
            rusage = now;
        }
        if let Some(tid) = row.waker_tid {
            waker_at.push(i);
            batch.waker_tid.push(tid);
        }
        if let Some(next) = rows.get(i + 1) {
            let skip = next.record.wrapping_sub(row.record).wrapping_sub(1);
            if skip != 0 {
                record_at.push(i);
                batch.record_skip.push(skip);
            }
        }
    }
    if let Some((count, kind)) = run {
        batch.kind_runs.extend([count, kind]);
    }
    if batch.result.iter().all(|result| *result == 0) {
        batch.result.clear();
    }
    // `minor_faults` always stays as it is, it carries the number of values.
    for column in [
        &mut batch.major_faults,
        &mut batch.voluntary_switches,
        &mut batch.involuntary_switches,
    ] {
        *column = dense(std::mem::take(column));
    }
    batch.duration_at = duration_at.finish(rows.len());
    batch.arg_at = arg_at.finish(rows.len());
    batch.rusage_at = rusage_at.finish(rows.len());
    batch.waker_at = waker_at.finish(rows.len());
    batch.record_at = record_at.finish(rows.len());
    batch
}

/// First value, then differences.
fn deltas(values: impl Iterator<Item = u64>) -> impl Iterator<Item = i64> {
    let mut last = 0u64;
    values.map(move |value| {
        let delta = value.wrapping_sub(last) as i64;
        last = value;
        delta
    })
}

/// The column of a total that only grows: differences without sign.
fn growing(values: impl Iterator<Item = u64>) -> Vec<u64> {
    dense(deltas(values).map(|delta| delta as u64).collect())
}

/// Shortens a delta-coded column whose value never changes.
fn dense<T: Copy + Default + PartialEq>(mut column: Vec<T>) -> Vec<T> {
    let zero = T::default();
    if column.len() > 1 && column[1..].iter().all(|delta| *delta == zero) {
        column.truncate(1);
    }
    if column == [zero] {
        column.clear();
    }
    column
}

fn encoded_bytes(column: &[i64]) -> usize {
    column
        .iter()
        .map(|v| prost::encoding::encoded_len_varint(((v << 1) ^ (v >> 63)) as u64))
        .sum()
}

/// Collects delta-coded positions.
#[derive(Default)]
struct Positions {
    at: Vec<u32>,
    last: usize,
}

impl Positions {
    fn push(&mut self, position: usize) {
        self.at.push((position - self.last) as u32);
        self.last = position;
    }

    /// Positions are left out when every row has a value.
    fn finish(self, rows: usize) -> Vec<u32> {
        if self.at.len() == rows {
            Vec::new()
        } else {
            self.at
        }
    }
}
