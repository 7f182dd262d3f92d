//! From rows to the columns of a batch.

use super::counter_units::{Units, live, rounded_down, rounded_up};
use super::kinds::Kind;
use super::{PRESENCE_FLAGS, Rusage, SampleRow, usage};
use crate::v1::SampleBatch;

/// The columns of `rows`, all of the thread `utid`, in the order of their record numbers. Times
/// are rounded down to multiples of `unit` ns, see [`super::time_unit_ns`], and counters to units that
/// follow their pace; with a unit of 1 (or 0) everything is exact.
pub fn encode(utid: u32, rows: &[SampleRow], unit: u32) -> SampleBatch {
    let unit = u64::from(unit.max(1));
    let mut batch = SampleBatch {
        utid,
        first_record: rows.first().map_or(0, |row| row.record),
        time_unit_ns: unit as u32,
        ..SampleBatch::default()
    };
    batch.time = deltas(rows.iter().map(|row| row.time_ns / unit)).collect();
    batch.time_step = take_step(&mut batch.time);
    let cpu: Vec<i64> = deltas(rows.iter().map(|row| row.cpu_ns / unit)).collect();
    let off: Vec<i64> = deltas(
        rows.iter()
            .map(|row| (row.time_ns / unit).wrapping_sub(row.cpu_ns / unit)),
    )
    .collect();
    batch.cpu_is_off = encoded_bytes(&off) < encoded_bytes(&cpu);
    batch.cpu = dense(if batch.cpu_is_off { off } else { cpu });
    batch.node = dense(deltas(rows.iter().map(|row| u64::from(row.node))).collect());

    let units = match unit {
        1 => Units::default(),
        _ => Units::of(rows),
    };
    batch.counter_units = units.to_bits();
    batch.allocations = growing(rounded_down(
        rows.iter().map(|row| row.allocations),
        units.allocations,
    ));
    batch.allocated_bytes = growing(rounded_down(
        rows.iter().map(|row| row.allocated_bytes),
        units.allocated_bytes,
    ));
    batch.live = dense(deltas(rounded_up(rows.iter().map(live), units.live)).collect());

    let mut last_arg = [0u64; 256];
    let mut rusage = Rusage::default();
    let mut last_skip = 0usize;
    for (i, row) in rows.iter().enumerate() {
        if row.duration_ns != 0 {
            batch.duration.push(row.duration_ns);
        }
        if let Some((arg, result)) = row.arg {
            let last = &mut last_arg[usize::from(row.probe)];
            batch.arg.push(arg.wrapping_sub(*last) as i64);
            *last = arg;
            batch.result.push(result);
        }
        if let Some(now) = row.rusage {
            usage::write(&now, &rusage, &mut batch.usage);
            rusage = now;
        }
        batch.waker_tid.extend(row.waker_tid);
        if let Some(next) = rows.get(i + 1) {
            let skip = next.record.wrapping_sub(row.record).wrapping_sub(1);
            if skip != 0 {
                batch.record_at.push((i - last_skip) as u32);
                batch.record_skip.push(skip);
                last_skip = i;
            }
        }
    }
    if batch.result.iter().all(|result| *result == 0) {
        batch.result.clear();
    }
    kinds(rows, &mut batch);
    batch
}

/// Writes the kinds that occur, and the runs in which they do.
fn kinds(rows: &[SampleRow], batch: &mut SampleBatch) {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for row in rows {
        let kind = Kind::of(row).0;
        let index = match batch.kinds.iter().position(|known| *known == kind) {
            Some(index) => index,
            None => {
                batch.kinds.push(kind);
                batch.kinds.len() - 1
            }
        };
        match runs.last_mut() {
            Some((count, last)) if *last == index as u64 => *count += 1,
            _ => runs.push((1, index as u64)),
        }
    }
    if batch.kinds.len() > 1 {
        let kinds = batch.kinds.len() as u64;
        let run = |(count, index)| (count - 1) * kinds + index;
        batch.kind_steps = runs.into_iter().map(run).collect();
    }
}

impl Kind {
    fn of(row: &SampleRow) -> Kind {
        let mut bits = u32::from(row.probe) | u32::from(row.flags & !PRESENCE_FLAGS) << 8;
        for (present, bit) in [
            (row.arg.is_some(), Kind::ARG),
            (row.rusage.is_some(), Kind::RUSAGE),
            (row.waker_tid.is_some(), Kind::WAKER),
            (row.duration_ns != 0, Kind::DURATION),
        ] {
            bits |= if present { bit } else { 0 };
        }
        Kind(bits)
    }
}

/// The step that samples usually take, taken out of all differences but the first; 0 when that does not
/// shorten them.
fn take_step(time: &mut [i64]) -> i64 {
    let Some(differences) = time.get_mut(1..).filter(|rest| !rest.is_empty()) else {
        return 0;
    };
    let mut sorted = differences.to_vec();
    let (_, step, _) = sorted.select_nth_unstable(differences.len() / 2);
    let step = *step;
    for difference in &mut sorted {
        *difference = difference.wrapping_sub(step);
    }
    if encoded_bytes(&sorted) >= encoded_bytes(differences) {
        return 0;
    }
    for difference in differences {
        *difference = difference.wrapping_sub(step);
    }
    step
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
