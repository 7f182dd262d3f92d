//! Units of the counters of allocations.
//!
//! What a thread allocates between two samples is shared out over both sides of the interval, so that its
//! last bits say nothing: where a thread allocates hundreds of times a sample, totals are rounded to powers
//! of two, one or two percent of what usually comes with a sample. The first total of a batch is exact, and
//! the others are never rounded up: totals do not fall from batch to batch, errors do not add up, and what is
//! missing in the end comes from the thread's exact totals.

use super::SampleRow;

/// Bits of what usually comes with a sample that are kept: with a varint's seven, twice the usual and
/// more still takes one byte.
const KEPT_BITS: u32 = 6;
const LARGEST: u32 = 40;

/// Low bits that are left out of each counter's growth since the first sample of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Units {
    pub allocations: u32,
    pub allocated_bytes: u32,
    pub live: u32,
}

impl Units {
    /// Those that fit the pace of these samples.
    pub(super) fn of(rows: &[SampleRow]) -> Units {
        Units {
            allocations: usual(rows, |row| row.allocations),
            allocated_bytes: usual(rows, |row| row.allocated_bytes),
            live: usual(rows, live),
        }
    }

    pub(super) fn to_bits(self) -> u32 {
        self.allocations | self.allocated_bytes << 8 | self.live << 16
    }

    pub(super) fn from_bits(bits: u32) -> Units {
        Units {
            allocations: bits & 63,
            allocated_bytes: bits >> 8 & 63,
            live: bits >> 16 & 63,
        }
    }

    /// Frees, given what is left of the other two. No higher than they are.
    #[inline(always)]
    pub(super) fn frees(&self, allocations: u64, live: u64) -> u64 {
        if self.allocations | self.live != 0 && live as i64 >= 0 {
            allocations.saturating_sub(live)
        } else {
            allocations.wrapping_sub(live)
        }
    }
}

/// Allocations that were not freed; below 0 where others' are.
pub(super) fn live(row: &SampleRow) -> u64 {
    row.allocations.wrapping_sub(row.frees)
}

/// The first total, then its growth since in units of `1 << unit`, rounded down.
pub(super) fn rounded_down(
    totals: impl Iterator<Item = u64>,
    unit: u32,
) -> impl Iterator<Item = u64> {
    from_first(totals, move |growth| growth >> unit)
}

/// The same, rounded up: what is taken off a total comes out no higher than it is.
pub(super) fn rounded_up(
    totals: impl Iterator<Item = u64>,
    unit: u32,
) -> impl Iterator<Item = u64> {
    let up = (1i64 << unit) - 1;
    from_first(totals, move |growth| {
        ((growth as i64).saturating_add(up) >> unit) as u64
    })
}

fn from_first(
    totals: impl Iterator<Item = u64>,
    round: impl Fn(u64) -> u64,
) -> impl Iterator<Item = u64> {
    let mut first = None;
    totals.map(move |total| match first {
        None => *first.insert(total),
        Some(first) => first.wrapping_add(round(total.wrapping_sub(first))),
    })
}

/// The unit for a counter, by the median of its steps.
fn usual(rows: &[SampleRow], counter: impl Fn(&SampleRow) -> u64) -> u32 {
    let mut steps: Vec<u64> = rows
        .windows(2)
        .map(|pair| {
            let step = counter(&pair[1]).wrapping_sub(counter(&pair[0])) as i64;
            step.unsigned_abs()
        })
        .collect();
    let middle = steps.len() / 2;
    if steps.is_empty() {
        return 0;
    }
    let (_, step, _) = steps.select_nth_unstable(middle);
    (u64::BITS - step.leading_zeros())
        .saturating_sub(KEPT_BITS)
        .min(LARGEST)
}
