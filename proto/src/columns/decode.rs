//! From the columns of a batch to rows.

use super::wire::{Columns, Values, field, name, unzigzag};
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
        let n = times.count();
        let unit = self.unit;
        rows.clear();
        rows.reserve(n);
        let mut time = 0u64;
        for i in 0..n as u64 {
            time = time.wrapping_add(unzigzag(times.next().ok_or(ColumnError::Damaged)?));
            rows.push(SampleRow {
                record: self.first_record.wrapping_add(i),
                time_ns: time.wrapping_mul(unit),
                ..SampleRow::default()
            });
        }
        let rows = rows.as_mut_slice();
        let dense = |column: usize| Dense {
            values: self.column(column),
            field: column,
        };
        if self.cpu_is_off {
            rows.iter_mut().for_each(|row| row.cpu_ns = row.time_ns);
            dense(field::CPU).fill(rows, unzigzag, |row, off| {
                row.cpu_ns = (row.time_ns / unit).wrapping_sub(off).wrapping_mul(unit);
            })?;
        } else {
            dense(field::CPU).fill(rows, unzigzag, |row, cpu| {
                row.cpu_ns = cpu.wrapping_mul(unit);
            })?;
        }
        dense(field::NODE).fill(rows, unzigzag, |row, node| row.node = node as u32)?;
        dense(field::ALLOCATIONS).fill(rows, as_it_is, |row, total| row.allocations = total)?;
        dense(field::ALLOCATED_BYTES).fill(rows, as_it_is, |row, total| {
            row.allocated_bytes = total;
        })?;
        rows.iter_mut().for_each(|row| row.frees = row.allocations);
        dense(field::LIVE).fill(rows, unzigzag, |row, live| {
            row.frees = row.allocations.wrapping_sub(live);
        })?;
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
        })?;
        self.skips(rows)
    }

    fn kinds(&self, rows: &mut [SampleRow]) -> Result<(), ColumnError> {
        let mut runs = self.column(field::KIND_RUNS);
        let n = rows.len();
        let mut at = 0usize;
        while !runs.is_empty() {
            let run = runs.next().and_then(|count| Some((count, runs.next()?)));
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
                false => unzigzag(results.next().unwrap_or(0)),
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
                if let Some(delta) = values.next() {
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
            let step = positions.next().ok_or(ColumnError::Damaged)?;
            position = position.saturating_add(step as u32 as usize);
            if position >= n {
                return Err(ColumnError::Position {
                    column: "record_at",
                    rows: n,
                });
            }
            skip(&mut rows[done..=position], skipped);
            done = position + 1;
            skipped = skipped.wrapping_add(counts.next().ok_or(ColumnError::Damaged)?);
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
                set(row, values.next().ok_or(ColumnError::Damaged)?);
            }
            return Ok(());
        }
        let mut position = 0usize;
        while !positions.is_empty() {
            let step = positions.next().ok_or(ColumnError::Damaged)?;
            position = position.saturating_add(step as u32 as usize);
            let row = rows.get_mut(position).ok_or(ColumnError::Position {
                column: name(column),
                rows: n,
            })?;
            let value = values.next().ok_or_else(|| length(column, 0, n))?;
            set(row, value);
        }
        match values.is_empty() {
            true => Ok(()),
            false => Err(length(column, values.count(), 0)),
        }
    }
}

/// A column with one value a sample, one for all, or none.
struct Dense<'a> {
    values: Values<'a>,
    field: usize,
}

impl Dense<'_> {
    /// Hands the values, summed up, to `set`.
    #[inline(always)]
    fn fill(
        mut self,
        rows: &mut [SampleRow],
        delta: impl Fn(u64) -> u64,
        mut set: impl FnMut(&mut SampleRow, u64),
    ) -> Result<(), ColumnError> {
        if self.values.is_empty() {
            return Ok(());
        }
        let n = rows.len();
        let all = self.values;
        let wrong = || length(self.field, all.count(), n);
        let mut rows = rows.iter_mut();
        let mut sum = delta(self.values.next().ok_or(ColumnError::Damaged)?);
        let Some(first) = rows.next() else {
            return match self.values.is_empty() {
                true => Ok(()),
                false => Err(wrong()),
            };
        };
        set(first, sum);
        if self.values.is_empty() {
            rows.for_each(|row| set(row, sum));
            return Ok(());
        }
        for row in rows {
            sum = sum.wrapping_add(delta(self.values.next().ok_or_else(wrong)?));
            set(row, sum);
        }
        match self.values.is_empty() {
            true => Ok(()),
            false => Err(wrong()),
        }
    }
}

fn as_it_is(raw: u64) -> u64 {
    raw
}

fn length(column: usize, found: usize, rows: usize) -> ColumnError {
    ColumnError::Length {
        column: name(column),
        found,
        rows,
    }
}
