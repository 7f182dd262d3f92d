//! Faults and switches, of which most samples have few new ones: one control value holds them all.
//!
//! ```text
//!   bit 0      new major faults follow
//!   bits 1..3  new voluntary switches: 0 to 2, or 3: they follow
//!   bits 3..5  the same of involuntary ones
//!   bits 5..   new minor faults; all bits set: they follow
//! ```
//!
//! What follows comes in this order.

use super::raw_columns::Values;
use super::{ColumnError, Rusage};

const MAJOR: Part = Part { shift: 0, most: 1 };
const VOLUNTARY: Part = Part { shift: 1, most: 3 };
const INVOLUNTARY: Part = Part { shift: 3, most: 3 };
const MINOR: Part = Part {
    shift: 5,
    most: u64::MAX >> 5,
};

/// Bits of a control value: amounts below `most` stand there, `most` says that the amount follows.
struct Part {
    shift: u32,
    most: u64,
}

impl Part {
    fn write(&self, amount: u64, to: &mut Vec<u64>, control: &mut u64) {
        if amount >= self.most {
            to.push(amount);
        }
        *control |= amount.min(self.most) << self.shift;
    }

    #[inline]
    fn read(&self, control: u64, more: &mut Values<'_>) -> Result<u64, ColumnError> {
        match control >> self.shift & self.most {
            amount if amount == self.most => more.take().ok_or(ColumnError::Damaged),
            amount => Ok(amount),
        }
    }
}

/// Appends what has changed from `then` to `now`.
pub(super) fn write(now: &Rusage, then: &Rusage, to: &mut Vec<u64>) {
    let mut control = 0;
    let at = to.len();
    to.push(control);
    for (part, now, then) in [
        (MAJOR, now.major_faults, then.major_faults),
        (VOLUNTARY, now.voluntary_switches, then.voluntary_switches),
        (
            INVOLUNTARY,
            now.involuntary_switches,
            then.involuntary_switches,
        ),
        (MINOR, now.minor_faults, then.minor_faults),
    ] {
        part.write(now.wrapping_sub(then), to, &mut control);
    }
    to[at] = control;
}

/// Adds the next change.
pub(super) fn read(values: &mut Values<'_>, total: &mut Rusage) -> Result<(), ColumnError> {
    let control = values.take().ok_or(ColumnError::Damaged)?;
    for (part, total) in [
        (MAJOR, &mut total.major_faults),
        (VOLUNTARY, &mut total.voluntary_switches),
        (INVOLUNTARY, &mut total.involuntary_switches),
        (MINOR, &mut total.minor_faults),
    ] {
        *total = total.wrapping_add(part.read(control, values)?);
    }
    Ok(())
}
