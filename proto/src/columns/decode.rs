//! From the columns of a batch to rows.

use super::counter_units::Units;
use super::kinds::{self, Kind};
use super::raw_columns::{Columns, Values, field, name, unzigzag};
use super::usage;
use super::{ColumnError, PRESENCE_FLAGS, Rusage, SampleRow};
use crate::v1::SampleBatch;

/// The rows of a batch.
pub fn decode(batch: &SampleBatch) -> Result<Vec<SampleRow>, ColumnError> {
    let mut rows = Vec::new();
    Columns::of_batch(batch)
        .ok_or(ColumnError::Damaged)?
        .rows_into(&mut rows)?;
    Ok(rows)
}

impl Columns<'_> {
    /// Replaces the content of `rows` by the rows of the batch.
    pub fn rows_into(&self, rows: &mut Vec<SampleRow>) -> Result<(), ColumnError> {
        let mut times = self.column(field::TIME);
        let unit = self.unit;
        rows.clear();
        rows.reserve(times.count());
        let units = Units::from_bits(self.counter_units);
        let signed = |column, unit| Total::new(self.column(column), unzigzag, unit);
        let growing = |column, unit| Total::new(self.column(column), |delta| delta, unit);
        let mut cpu = signed(field::CPU, 0)?;
        let mut node = signed(field::NODE, 0)?;
        let mut allocations = growing(field::ALLOCATIONS, units.allocations)?;
        let mut allocated_bytes = growing(field::ALLOCATED_BYTES, units.allocated_bytes)?;
        let mut live = signed(field::LIVE, units.live)?;
        let (mut time, mut record) = (0u64.wrapping_sub(self.time_step), self.first_record);
        // Side by side, because each value has to wait for the end of the one before it in its column.
        while !times.is_empty() {
            let step = unzigzag(times.take().ok_or(ColumnError::Damaged)?);
            time = time.wrapping_add(step).wrapping_add(self.time_step);
            let cpu = match self.cpu_is_off {
                true => time.wrapping_sub(cpu.next()),
                false => cpu.next(),
            };
            let allocations = allocations.next();
            rows.push(SampleRow {
                record,
                time_ns: time.wrapping_mul(unit),
                cpu_ns: cpu.wrapping_mul(unit),
                node: node.next() as u32,
                allocations,
                allocated_bytes: allocated_bytes.next(),
                frees: units.frees(allocations, live.next()),
                ..SampleRow::default()
            });
            record = record.wrapping_add(1);
        }
        let n = rows.len();
        cpu.finish(field::CPU, n)?;
        node.finish(field::NODE, n)?;
        allocations.finish(field::ALLOCATIONS, n)?;
        allocated_bytes.finish(field::ALLOCATED_BYTES, n)?;
        live.finish(field::LIVE, n)?;
        let rows = rows.as_mut_slice();
        if self.column(field::KINDS).is_empty() {
            self.by_position(rows)?;
        } else {
            self.by_kind(rows)?;
        }
        self.skips(rows)
    }

    /// Reads the values that only some samples have, where their kinds say which.
    fn by_kind(&self, rows: &mut [SampleRow]) -> Result<(), ColumnError> {
        let mut durations = self.column(field::DURATION);
        let mut args = self.column(field::ARG);
        let mut results = self.column(field::RESULT);
        let no_results = results.is_empty();
        let mut usages = self.column(field::USAGE);
        let mut wakers = self.column(field::WAKER_TID);
        let mut last_arg = [0u64; 256];
        let mut usage = Rusage::default();
        let next = |values: &mut Values<'_>| values.take().ok_or(ColumnError::Damaged);
        kinds::runs(self, rows, |kind, rows| {
            for row in rows {
                row.probe = kind.0 as u8;
                row.flags = (kind.0 >> 8) as u8 & !PRESENCE_FLAGS;
                if kind.has(Kind::DURATION) {
                    row.duration_ns = next(&mut durations)?;
                }
                if kind.has(Kind::ARG) {
                    let last = &mut last_arg[usize::from(row.probe)];
                    *last = last.wrapping_add(unzigzag(next(&mut args)?));
                    let result = match no_results {
                        true => 0,
                        false => unzigzag(next(&mut results)?),
                    };
                    row.arg = Some((*last, result as i64));
                }
                if kind.has(Kind::RUSAGE) {
                    usage::read(&mut usages, &mut usage)?;
                    row.rusage = Some(usage);
                }
                if kind.has(Kind::WAKER) {
                    row.waker_tid = Some(next(&mut wakers)? as u32);
                }
            }
            Ok(())
        })?;
        for (values, column) in [
            (durations, field::DURATION),
            (args, field::ARG),
            (results, field::RESULT),
            (usages, field::USAGE),
            (wakers, field::WAKER_TID),
        ] {
            if !values.is_empty() {
                return Err(length(column, values.count(), 0));
            }
        }
        Ok(())
    }

    /// The same where columns of positions say which samples they are.
    fn by_position(&self, rows: &mut [SampleRow]) -> Result<(), ColumnError> {
        self.kinds(rows)?;
        self.sparse(
            rows,
            field::DURATION_AT,
            field::DURATION,
            |row, duration| {
                row.duration_ns = duration;
            },
        )?;
        self.args(rows)?;
        self.usage(rows)?;
        self.sparse(rows, field::WAKER_AT, field::WAKER_TID, |row, tid| {
            row.waker_tid = Some(tid as u32);
        })
    }

    fn kinds(&self, rows: &mut [SampleRow]) -> Result<(), ColumnError> {
        let mut runs = self.column(field::KIND_RUNS);
        let n = rows.len();
        let mut at = 0usize;
        while !runs.is_empty() {
            let run = runs.take().and_then(|count| Some((count, runs.take()?)));
            let (count, kind) = run.ok_or(ColumnError::Damaged)?;
            let end = at.saturating_add(count as u32 as usize);
            let part = rows.get_mut(at..end).ok_or(ColumnError::Position {
                column: "kind_runs",
                rows: n,
            })?;
            for row in part {
                row.probe = kind as u8;
                row.flags = (kind >> 8) as u8 & !PRESENCE_FLAGS;
            }
            at = end;
        }
        if at != n {
            return Err(length(field::KIND_RUNS, at, n));
        }
        Ok(())
    }

    fn args(&self, rows: &mut [SampleRow]) -> Result<(), ColumnError> {
        let mut results = self.column(field::RESULT);
        let no_results = results.is_empty();
        let (found, args) = (results.count(), self.column(field::ARG).count());
        if !no_results && found != args {
            return Err(length(field::RESULT, found, args));
        }
        let mut last_arg = [0u64; 256];
        self.sparse(rows, field::ARG_AT, field::ARG, |row, delta| {
            let last = &mut last_arg[usize::from(row.probe)];
            *last = last.wrapping_add(unzigzag(delta));
            let result = match no_results {
                true => 0,
                false => unzigzag(results.take().unwrap_or(0)),
            };
            row.arg = Some((*last, result as i64));
        })
    }

    fn usage(&self, rows: &mut [SampleRow]) -> Result<(), ColumnError> {
        let count = self.column(field::MINOR_FAULTS).count();
        let mut others = [
            field::MAJOR_FAULTS,
            field::VOLUNTARY_SWITCHES,
            field::INVOLUNTARY_SWITCHES,
        ]
        .map(|column| (self.column(column), 0u64));
        for (values, _) in &others {
            let found = values.count();
            if found > 1 && found != count {
                return Err(length(field::MAJOR_FAULTS, found, count));
            }
        }
        let mut minor_faults = 0u64;
        self.sparse(rows, field::RUSAGE_AT, field::MINOR_FAULTS, |row, delta| {
            minor_faults = minor_faults.wrapping_add(unzigzag(delta));
            for (values, total) in &mut others {
                if let Some(delta) = values.take() {
                    *total = total.wrapping_add(unzigzag(delta));
                }
            }
            row.rusage = Some(Rusage {
                minor_faults,
                major_faults: others[0].1,
                voluntary_switches: others[1].1,
                involuntary_switches: others[2].1,
            });
        })
    }

    /// Moves record numbers on where others stand between two samples.
    fn skips(&self, rows: &mut [SampleRow]) -> Result<(), ColumnError> {
        let mut positions = self.column(field::RECORD_AT);
        let mut counts = self.column(field::RECORD_SKIP);
        let (found, n) = (counts.count(), rows.len());
        // Dense skips are never written: the last sample has none.
        if positions.count() != found {
            return Err(length(field::RECORD_SKIP, found, positions.count()));
        }
        let (mut position, mut done, mut skipped) = (0usize, 0usize, 0u64);
        let skip = |rows: &mut [SampleRow], skipped: u64| {
            for row in rows {
                row.record = row.record.wrapping_add(skipped);
            }
        };
        while !positions.is_empty() {
            let step = positions.take().ok_or(ColumnError::Damaged)?;
            position = position.saturating_add(step as u32 as usize);
            if position >= n {
                return Err(ColumnError::Position {
                    column: "record_at",
                    rows: n,
                });
            }
            skip(&mut rows[done..=position], skipped);
            done = position + 1;
            skipped = skipped.wrapping_add(counts.take().ok_or(ColumnError::Damaged)?);
        }
        skip(&mut rows[done..], skipped);
        Ok(())
    }

    /// Hands each value of a sparse column to `set`, with its row.
    #[inline]
    fn sparse(
        &self,
        rows: &mut [SampleRow],
        at: usize,
        column: usize,
        mut set: impl FnMut(&mut SampleRow, u64),
    ) -> Result<(), ColumnError> {
        let (mut positions, mut values) = (self.column(at), self.column(column));
        let n = rows.len();
        if positions.is_empty() {
            let found = values.count();
            if found != 0 && found != n {
                return Err(length(column, found, n));
            }
            for row in rows.iter_mut().take(found) {
                set(row, values.take().ok_or(ColumnError::Damaged)?);
            }
            return Ok(());
        }
        let mut position = 0usize;
        while !positions.is_empty() {
            let step = positions.take().ok_or(ColumnError::Damaged)?;
            position = position.saturating_add(step as u32 as usize);
            let row = rows.get_mut(position).ok_or(ColumnError::Position {
                column: name(column),
                rows: n,
            })?;
            let value = values.take().ok_or_else(|| length(column, 0, n))?;
            set(row, value);
        }
        match values.is_empty() {
            true => Ok(()),
            false => Err(length(column, values.count(), 0)),
        }
    }
}

/// A column with one value a sample, one for all, or none: the sum of its differences so far.
struct Total<'a, D> {
    values: Values<'a>,
    delta: D,
    /// Bits that differences are shifted by.
    unit: u32,
    sum: u64,
    /// `sum` is the next sample's already: the first one's, or that of all.
    ready: bool,
    constant: bool,
    short: bool,
}

impl<'a, D: Fn(u64) -> u64> Total<'a, D> {
    fn new(mut values: Values<'a>, delta: D, unit: u32) -> Result<Total<'a, D>, ColumnError> {
        let sum = match values.is_empty() {
            true => 0,
            false => delta(values.take().ok_or(ColumnError::Damaged)?),
        };
        Ok(Total {
            constant: values.is_empty(),
            values,
            delta,
            unit,
            sum,
            ready: true,
            short: false,
        })
    }

    #[inline(always)]
    fn next(&mut self) -> u64 {
        if self.constant || std::mem::take(&mut self.ready) {
            return self.sum;
        }
        match self.values.take() {
            Some(raw) => self.sum = self.sum.wrapping_add((self.delta)(raw) << self.unit),
            None => self.short = true,
        }
        self.sum
    }

    /// After `rows` values: whether these were all that there were.
    fn finish(self, column: usize, rows: usize) -> Result<(), ColumnError> {
        let left = self.values.count();
        match self.short || left != 0 {
            true => Err(length(column, rows + left - usize::from(self.short), rows)),
            false => Ok(()),
        }
    }
}

fn length(column: usize, found: usize, rows: usize) -> ColumnError {
    ColumnError::Length {
        column: name(column),
        found,
        rows,
    }
}
