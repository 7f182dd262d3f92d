//! What is encoded is decoded again, and damaged columns are errors.

use prost::Message;

use super::*;
use crate::v1::SampleBatch;

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
            utid: 9,
            first_record: rows.first().map_or(0, |row| row.record),
            rows: rows.len() as u64,
            first_ns: rows.first().map_or(0, |row| row.time_ns),
            last_ns: rows.iter().map(|row| row.time_ns).max().unwrap_or(0),
        };
        assert_eq!(outline(&bytes), Some(expected));
        // Numbers that are no columns, of this version or a later one, do not disturb.
        let batch = SampleBatch {
            other_records: 7,
            ..batch
        };
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
fn a_unit_rounds_times_down() {
    let mut random = Random(4);
    let rows: Vec<SampleRow> = (0..50)
        .map(|record| SampleRow {
            time_ns: 1 << 50 | random.below(1 << 40),
            cpu_ns: random.below(1 << 40),
            allocations: 5,
            allocated_bytes: 5,
            frees: 4,
            ..row(&mut random, record, 50)
        })
        .collect();
    let unit = time_unit_ns(1_000_000);
    assert_eq!(unit, 1024);
    let back = decode(&encode(1, &rows, unit)).expect("own columns");
    for (row, back) in rows.iter().zip(back) {
        let expected = SampleRow {
            time_ns: row.time_ns / 1024 * 1024,
            cpu_ns: row.cpu_ns / 1024 * 1024,
            ..*row
        };
        assert_eq!(back, expected);
    }
}

#[test]
fn counters_that_run_fast_are_rounded_and_never_up() {
    let mut random = Random(6);
    for pace in [1, 20, 1000, 1 << 20] {
        let (mut allocations, mut allocated_bytes, mut frees) = (0, 0, 0);
        let rows: Vec<SampleRow> = (0..100)
            .map(|record| {
                allocations += pace / 2 + random.below(pace);
                allocated_bytes += 100 * pace + random.below(pace);
                frees += random.below(allocations - frees + 1);
                SampleRow {
                    record,
                    time_ns: record << 20,
                    allocations,
                    allocated_bytes,
                    frees,
                    ..SampleRow::default()
                }
            })
            .collect();
        let back = decode(&encode(1, &rows, 1024)).expect("own columns");
        for (row, back) in rows.iter().zip(back) {
            for (exact, rounded, step) in [
                (row.allocations, back.allocations, pace),
                (row.allocated_bytes, back.allocated_bytes, 100 * pace),
                (row.frees, back.frees, 3 * pace),
            ] {
                assert!(rounded <= exact);
                assert!(exact - rounded <= step / 16, "{exact} {rounded} {pace}");
            }
        }
    }
}

#[test]
fn columns_that_do_not_fit_are_refused() {
    let rows: Vec<SampleRow> = (0..4)
        .map(|record| row(&mut Random(7 + record), record, 100))
        .collect();
    let by_kind = encode(1, &rows, 1);
    assert!(by_kind.kinds.len() > 1);
    let by_position = SampleBatch {
        time: vec![9, 1, 1, 1],
        kind_runs: vec![4, 10],
        duration: vec![1; 4],
        arg: vec![1; 4],
        minor_faults: vec![1; 4],
        ..SampleBatch::default()
    };
    type Damage = fn(&mut SampleBatch);
    let refused = |good: &SampleBatch, damages: &[Damage]| {
        decode(good).expect("nothing is wrong yet");
        for (i, damage) in damages.iter().enumerate() {
            let mut bad = good.clone();
            damage(&mut bad);
            assert!(decode(&bad).is_err(), "damage {i}");
        }
    };
    let for_both: [Damage; 4] = [
        |b| b.node = vec![1; 5],
        |b| b.result.push(1),
        |b| b.record_skip.push(1),
        |b| b.allocations = vec![1; 3],
    ];
    refused(&by_kind, &for_both);
    refused(&by_position, &for_both);
    refused(
        &by_kind,
        &[
            |b| b.kinds.clear(),
            |b| b.kind_steps.clear(),
            |b| b.kind_steps.push(0),
            |b| b.kind_steps[0] = u64::MAX,
            |b| b.duration.push(1),
            |b| b.arg.clear(),
            |b| b.usage.truncate(1),
            |b| b.usage.push(0),
            |b| b.waker_tid.clear(),
        ],
    );
    refused(
        &by_position,
        &[
            |b| b.kind_runs[0] = u32::MAX,
            |b| b.kind_runs.clear(),
            |b| b.duration_at = vec![0, u32::MAX, u32::MAX, 1],
            |b| b.arg_at = vec![1],
            |b| b.major_faults = vec![1, 1],
        ],
    );
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
