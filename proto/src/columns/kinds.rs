//! Kinds of samples: what kind of call a sample is of, and which values it has.

use super::raw_columns::{Columns, Values, field};
use super::{ColumnError, SampleRow};

/// As in the header of a record (`core::shm::record_format`): the probe, the flags from bit 8 on, whose low
/// ones say which words follow, and a bit for a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(pub u32);

impl Kind {
    pub(super) const ARG: u32 = 1 << 8;
    pub(super) const RUSAGE: u32 = 2 << 8;
    pub(super) const WAKER: u32 = 4 << 8;
    pub(super) const DURATION: u32 = 1 << 16;

    pub(super) fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }
}

/// Hands out the runs of a batch's kinds.
pub(super) fn runs(
    columns: &Columns<'_>,
    rows: &mut [SampleRow],
    mut each: impl FnMut(Kind, &mut [SampleRow]) -> Result<(), ColumnError>,
) -> Result<(), ColumnError> {
    let damaged = || ColumnError::Damaged;
    let mut kinds = Vec::new();
    let mut values: Values<'_> = columns.column(field::KINDS);
    while !values.is_empty() {
        kinds.push(Kind(values.take().ok_or_else(damaged)? as u32));
    }
    let mut steps = columns.column(field::KIND_STEPS);
    let n = rows.len();
    let wrong = ColumnError::Position {
        column: "kind_steps",
        rows: n,
    };
    if let ([kind], true) = (&kinds[..], steps.is_empty()) {
        return each(*kind, rows);
    }
    let mut rest = rows;
    while !steps.is_empty() {
        let step = steps.take().ok_or_else(damaged)?;
        let count = step / kinds.len() as u64 + 1;
        let kind = kinds[(step % kinds.len() as u64) as usize];
        let Some((run, more)) = usize::try_from(count)
            .ok()
            .and_then(|count| rest.split_at_mut_checked(count))
        else {
            return Err(wrong);
        };
        each(kind, run)?;
        rest = more;
    }
    match rest.is_empty() {
        true => Ok(()),
        false => Err(wrong),
    }
}
