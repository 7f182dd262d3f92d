//! Samples as columns: between the rows that a collector drains or a reader hands out and the
//! delta-coded columns of `SampleBatch`.

use crate::stream::take_varint;
use crate::v1::SampleBatch;

/// The low bits of a record's flags (`core::record::flags::HAS_*`) say which words follow; in columns
/// the presence of a value says it.
const PRESENCE_FLAGS: u8 = 7;

/// Faults and switches of a thread so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rusage {
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
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
    pub cpu_ns: u64,
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
    /// Node id, 0: no stack.
    pub node: u32,
    pub probe: u8,
    /// `core::record::flags` without the `HAS_*` bits.
    pub flags: u8,
    /// Argument and result.
    pub arg: Option<(u64, i64)>,
    pub rusage: Option<Rusage>,
    pub waker_tid: Option<u32>,
}

/// Why a batch cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    #[error("column {column} has {found} values for {rows} samples")]
    Length {
        column: &'static str,
        found: usize,
        rows: usize,
    },
    #[error("column {column} names positions beyond the {rows} samples")]
    Position { column: &'static str, rows: usize },
}

/// What a batch says before its columns are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    pub thread_uid: u32,
    pub first_record: u64,
    pub rows: u64,
    /// End time of the first sample and the highest of all.
    pub first_ns: u64,
    pub last_ns: u64,
}

/// The outline of a serialized `SampleBatch`, without decoding its other columns; `None` when it is
/// damaged.
pub fn outline(mut batch: &[u8]) -> Option<Outline> {
    let mut outline = Outline::default();
    let mut unit = 1u64;
    let mut time = 0u64;
    let mut last = 0u64;
    let mut add = |outline: &mut Outline, raw: u64| {
        let delta = (raw >> 1) ^ (raw & 1).wrapping_neg();
        time = time.wrapping_add(delta);
        if outline.rows == 0 {
            outline.first_ns = time;
        }
        last = last.max(time);
        outline.rows += 1;
    };
    while !batch.is_empty() {
        let (tag, used) = take_varint(batch)?;
        batch = &batch[used..];
        match tag & 7 {
            0 => {
                let (value, used) = take_varint(batch)?;
                batch = &batch[used..];
                match tag >> 3 {
                    1 => outline.thread_uid = value as u32,
                    2 => outline.first_record = value,
                    3 => unit = u64::from(value as u32).max(1),
                    4 => add(&mut outline, value),
                    _ => {}
                }
            }
            1 => batch = batch.get(8..)?,
            2 => {
                let (length, used) = take_varint(batch)?;
                let end = used.checked_add(usize::try_from(length).ok()?)?;
                let mut content = batch.get(used..end)?;
                batch = &batch[end..];
                while tag >> 3 == 4 && !content.is_empty() {
                    let (value, used) = take_varint(content)?;
                    content = &content[used..];
                    add(&mut outline, value);
                }
            }
            5 => batch = batch.get(4..)?,
            _ => return None,
        }
    }
    outline.first_ns = outline.first_ns.wrapping_mul(unit);
    outline.last_ns = last.wrapping_mul(unit);
    Some(outline)
}

/// The unit for times that keeps deltas of up to two intervals within two bytes: a power of two, in ns.
pub fn time_unit_ns(interval_ns: u64) -> u32 {
    // Two bytes of a zigzag varint reach to ±8191.
    (interval_ns / 4096 + 1)
        .checked_next_power_of_two()
        .map_or(1 << 20, |unit| unit.min(1 << 20) as u32)
}

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

/// The rows of a batch.
pub fn decode(batch: &SampleBatch) -> Result<Vec<SampleRow>, ColumnError> {
    let mut rows = Vec::new();
    decode_into(batch, &mut rows)?;
    Ok(rows)
}

/// As [`decode`], into a vector that is used again and again.
pub fn decode_into(batch: &SampleBatch, rows: &mut Vec<SampleRow>) -> Result<(), ColumnError> {
    let n = batch.time.len();
    let unit = u64::from(batch.time_unit_ns.max(1));
    rows.clear();
    rows.reserve(n);
    let mut time = 0u64;
    for (i, delta) in batch.time.iter().enumerate() {
        time = time.wrapping_add(*delta as u64);
        rows.push(SampleRow {
            record: batch.first_record.wrapping_add(i as u64),
            time_ns: time.wrapping_mul(unit),
            ..SampleRow::default()
        });
    }
    let rows = rows.as_mut_slice();
    if batch.cpu_is_off {
        fill(rows, "cpu", &batch.cpu, |row, off| {
            row.cpu_ns = (row.time_ns / unit).wrapping_sub(off).wrapping_mul(unit);
        })?;
        if batch.cpu.is_empty() {
            rows.iter_mut().for_each(|row| row.cpu_ns = row.time_ns);
        }
    } else {
        fill(rows, "cpu", &batch.cpu, |row, cpu| {
            row.cpu_ns = cpu.wrapping_mul(unit);
        })?;
    }
    fill(rows, "node", &batch.node, |row, node| {
        row.node = node as u32;
    })?;
    fill(rows, "allocations", &batch.allocations, |row, value| {
        row.allocations = value;
    })?;
    fill(rows, "allocated_bytes", &batch.allocated_bytes, |row, v| {
        row.allocated_bytes = v;
    })?;
    rows.iter_mut().for_each(|row| row.frees = row.allocations);
    fill(rows, "live", &batch.live, |row, live| {
        row.frees = row.allocations.wrapping_sub(live);
    })?;
    let mut at = 0usize;
    for run in batch.kind_runs.chunks(2) {
        let end = at.saturating_add(run[0] as usize);
        let (Some(part), [_, kind]) = (rows.get_mut(at..end), run) else {
            return Err(ColumnError::Position {
                column: "kind_runs",
                rows: n,
            });
        };
        for row in part {
            row.probe = *kind as u8;
            row.flags = (*kind >> 8) as u8 & !PRESENCE_FLAGS;
        }
        at = end;
    }
    if at != n {
        return Err(ColumnError::Length {
            column: "kind_runs",
            found: at,
            rows: n,
        });
    }
    sparse(
        rows,
        "duration",
        &batch.duration_at,
        batch.duration.len(),
        |row, i| row.duration_ns = batch.duration[i],
    )?;
    if !batch.result.is_empty() && batch.result.len() != batch.arg.len() {
        return Err(ColumnError::Length {
            column: "result",
            found: batch.result.len(),
            rows: batch.arg.len(),
        });
    }
    let mut last_arg = [0u64; 256];
    sparse(rows, "arg", &batch.arg_at, batch.arg.len(), |row, i| {
        let last = &mut last_arg[usize::from(row.probe)];
        *last = last.wrapping_add(batch.arg[i] as u64);
        row.arg = Some((*last, batch.result.get(i).copied().unwrap_or(0)));
    })?;
    let usages = [
        &batch.minor_faults,
        &batch.major_faults,
        &batch.voluntary_switches,
        &batch.involuntary_switches,
    ];
    let count = batch.minor_faults.len();
    for (column, name) in usages.iter().zip([
        "minor_faults",
        "major_faults",
        "voluntary_switches",
        "involuntary_switches",
    ]) {
        if column.len() > 1 && column.len() != count {
            return Err(ColumnError::Length {
                column: name,
                found: column.len(),
                rows: count,
            });
        }
    }
    let mut usage = [0u64; 4];
    sparse(rows, "rusage", &batch.rusage_at, count, |row, i| {
        for (total, column) in usage.iter_mut().zip(usages) {
            *total = total.wrapping_add(column.get(i).copied().unwrap_or(0) as u64);
        }
        row.rusage = Some(Rusage {
            minor_faults: usage[0],
            major_faults: usage[1],
            voluntary_switches: usage[2],
            involuntary_switches: usage[3],
        });
    })?;
    sparse(
        rows,
        "waker_tid",
        &batch.waker_at,
        batch.waker_tid.len(),
        |row, i| row.waker_tid = Some(batch.waker_tid[i]),
    )?;
    skips(batch, rows)
}

/// Moves record numbers on where others stand between two samples.
fn skips(batch: &SampleBatch, rows: &mut [SampleRow]) -> Result<(), ColumnError> {
    if batch.record_skip.is_empty() {
        return Ok(());
    }
    let mut skip_after = Vec::with_capacity(batch.record_skip.len());
    let mut position = 0usize;
    // Dense skips are never written: the last sample has none.
    if batch.record_at.len() != batch.record_skip.len() {
        return Err(ColumnError::Length {
            column: "record_skip",
            found: batch.record_skip.len(),
            rows: batch.record_at.len(),
        });
    }
    for (step, skip) in batch.record_at.iter().zip(&batch.record_skip) {
        position = position.saturating_add(*step as usize);
        if position >= rows.len() {
            return Err(ColumnError::Position {
                column: "record_at",
                rows: rows.len(),
            });
        }
        skip_after.push((position, *skip));
    }
    let mut skipped = 0u64;
    let mut next = skip_after.into_iter().peekable();
    for (i, row) in rows.iter_mut().enumerate() {
        row.record = row.record.wrapping_add(skipped);
        while let Some((_, skip)) = next.next_if(|(at, _)| *at == i) {
            skipped = skipped.wrapping_add(skip);
        }
    }
    Ok(())
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

/// A difference as the bits to add, with or without sign.
trait Delta {
    fn bits(self) -> u64;
}

impl Delta for i64 {
    #[inline]
    fn bits(self) -> u64 {
        self as u64
    }
}

impl Delta for u64 {
    #[inline]
    fn bits(self) -> u64 {
        self
    }
}

fn encoded_bytes(column: &[i64]) -> usize {
    column
        .iter()
        .map(|v| prost::encoding::encoded_len_varint(((v << 1) ^ (v >> 63)) as u64))
        .sum()
}

/// Hands a dense column's values, summed up, to `set`.
#[inline]
fn fill<T: Copy + Delta>(
    rows: &mut [SampleRow],
    column: &'static str,
    values: &[T],
    mut set: impl FnMut(&mut SampleRow, u64),
) -> Result<(), ColumnError> {
    match values {
        [] => {}
        [constant] => rows.iter_mut().for_each(|row| set(row, constant.bits())),
        _ if values.len() == rows.len() => {
            let mut sum = 0u64;
            for (row, delta) in rows.iter_mut().zip(values) {
                sum = sum.wrapping_add(delta.bits());
                set(row, sum);
            }
        }
        _ => {
            return Err(ColumnError::Length {
                column,
                found: values.len(),
                rows: rows.len(),
            });
        }
    }
    Ok(())
}

/// Hands the index of each of `count` values to `set`, with its row.
fn sparse(
    rows: &mut [SampleRow],
    column: &'static str,
    at: &[u32],
    count: usize,
    mut set: impl FnMut(&mut SampleRow, usize),
) -> Result<(), ColumnError> {
    let n = rows.len();
    if at.is_empty() {
        if count != 0 && count != n {
            return Err(ColumnError::Length {
                column,
                found: count,
                rows: n,
            });
        }
        for (i, row) in rows.iter_mut().take(count).enumerate() {
            set(row, i);
        }
        return Ok(());
    }
    if at.len() != count {
        return Err(ColumnError::Length {
            column,
            found: count,
            rows: at.len(),
        });
    }
    let mut position = 0usize;
    for (i, step) in at.iter().enumerate() {
        position = position.saturating_add(*step as usize);
        let row = rows
            .get_mut(position)
            .ok_or(ColumnError::Position { column, rows: n })?;
        set(row, i);
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    /// xorshift64*: enough for tests, and the same every time.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit.max(1)
        }

        fn chance(&mut self, percent: u64) -> bool {
            self.below(100) < percent
        }

        /// Small, large and extreme values.
        fn any(&mut self) -> u64 {
            match self.below(4) {
                0 => self.below(3),
                1 => self.below(1 << 20),
                2 => u64::MAX - self.below(3),
                _ => self.below(u64::MAX),
            }
        }
    }

    fn row(random: &mut Random, record: u64, optional: u64) -> SampleRow {
        SampleRow {
            record,
            time_ns: random.any(),
            duration_ns: if random.chance(optional) {
                random.any()
            } else {
                0
            },
            cpu_ns: random.any(),
            allocations: random.any(),
            allocated_bytes: random.any(),
            frees: random.any(),
            node: random.any() as u32,
            probe: random.below(5) as u8,
            flags: (random.below(32) << 3) as u8,
            arg: random
                .chance(optional)
                .then(|| (random.any(), random.any() as i64)),
            rusage: random.chance(optional).then(|| Rusage {
                minor_faults: random.any(),
                major_faults: random.any(),
                voluntary_switches: random.any(),
                involuntary_switches: random.any(),
            }),
            waker_tid: random.chance(optional).then(|| random.any() as u32),
        }
    }

    #[test]
    fn any_rows_come_back() {
        let mut random = Random(88);
        for round in 0..3000u64 {
            let optional = [0, 30, 100][(round % 3) as usize];
            let mut record = random.any();
            let rows: Vec<SampleRow> = (0..random.below(20))
                .map(|_| {
                    let skip = if random.chance(10) { random.any() } else { 0 };
                    record = record.wrapping_add(1).wrapping_add(skip);
                    row(&mut random, record, optional)
                })
                .collect();
            let bytes = encode(9, &rows, 1).encode_to_vec();
            let batch = SampleBatch::decode(&bytes[..]).expect("own encoding");
            let expected = Outline {
                thread_uid: 9,
                first_record: rows.first().map_or(0, |row| row.record),
                rows: rows.len() as u64,
                first_ns: rows.first().map_or(0, |row| row.time_ns),
                last_ns: rows.iter().map(|row| row.time_ns).max().unwrap_or(0),
            };
            assert_eq!(outline(&bytes), Some(expected));
            assert_eq!(decode(&batch).expect("own columns"), rows);
        }
    }

    #[test]
    fn rows_without_change_come_back() {
        let mut random = Random(3);
        for optional in [0, 100] {
            let one = row(&mut random, 0, optional);
            let usage = one.rusage.map(|_| Rusage::default());
            let rows: Vec<SampleRow> = (0..9)
                .map(|record| SampleRow {
                    record,
                    rusage: usage,
                    ..one
                })
                .collect();
            assert_eq!(decode(&encode(1, &rows, 1)).expect("own columns"), rows);
        }
    }

    #[test]
    fn a_unit_rounds_times_down_and_nothing_else() {
        let mut random = Random(4);
        let rows: Vec<SampleRow> = (0..50)
            .map(|record| SampleRow {
                time_ns: 1 << 50 | random.below(1 << 40),
                cpu_ns: random.below(1 << 40),
                ..row(&mut random, record, 50)
            })
            .collect();
        let unit = time_unit_ns(1_000_000);
        assert_eq!(unit, 256);
        let back = decode(&encode(1, &rows, unit)).expect("own columns");
        for (row, back) in rows.iter().zip(back) {
            let expected = SampleRow {
                time_ns: row.time_ns / 256 * 256,
                cpu_ns: row.cpu_ns / 256 * 256,
                ..*row
            };
            assert_eq!(back, expected);
        }
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let rows: Vec<SampleRow> = (0..4)
            .map(|record| row(&mut Random(7 + record), record, 100))
            .collect();
        let good = encode(1, &rows, 1);
        type Damage = fn(&mut SampleBatch);
        let damages: [Damage; 8] = [
            |b| b.node.push(1),
            |b| b.kind_runs[0] = u32::MAX,
            |b| b.kind_runs.clear(),
            |b| b.duration_at = vec![0, u32::MAX, u32::MAX, 1],
            |b| b.arg_at = vec![1],
            |b| b.result.push(1),
            |b| b.record_skip.push(1),
            |b| b.major_faults = vec![1, 1],
        ];
        for (i, damage) in damages.iter().enumerate() {
            let mut bad = good.clone();
            damage(&mut bad);
            assert!(decode(&bad).is_err(), "damage {i}");
        }
    }

    #[test]
    fn a_usual_sample_takes_at_most_twelve_bytes() {
        let mut random = Random(5);
        let (mut time, mut cpu, mut allocations, mut bytes, mut live) = (1 << 50, 0, 0, 0, 0u64);
        let mut total = 0;
        for batch in 0..20u64 {
            let rows: Vec<SampleRow> = (0..110)
                .map(|i| {
                    let step = 1_000_000 + random.below(60_000);
                    time += step;
                    cpu += step - random.below(20_000);
                    allocations += random.below(300);
                    bytes += random.below(30_000);
                    live += random.below(30);
                    SampleRow {
                        record: batch * 110 + i,
                        time_ns: time,
                        cpu_ns: cpu,
                        allocations,
                        allocated_bytes: bytes,
                        frees: allocations.saturating_sub(live),
                        node: random.below(3000) as u32,
                        probe: if random.chance(20) { 14 } else { 10 },
                        ..SampleRow::default()
                    }
                })
                .collect();
            total += encode(1, &rows, time_unit_ns(1_000_000)).encoded_len();
        }
        assert!(
            total <= 12 * 20 * 110,
            "{} bytes a sample",
            total as f64 / 2200.0
        );
    }
}
