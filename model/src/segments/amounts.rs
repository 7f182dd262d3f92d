//! Amounts shared out: nothing is invented, nothing forgotten.

use stackbeat_core::shm::record::flags;

use crate::{Amounts, SampleRow, each};

/// `amount × part / whole`, rounded down; all of it when `whole` is 0.
#[inline]
pub fn share(amount: u64, part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return amount;
    }
    let part = part.min(whole);
    match amount.checked_mul(part) {
        Some(product) => product / whole,
        None => (u128::from(amount) * u128::from(part) / u128::from(whole)) as u64,
    }
}

/// What was added to `then`; no samples.
pub fn difference(now: &Amounts, then: &Amounts) -> Amounts {
    let mut difference = *now;
    each(&mut difference, then, u64::saturating_sub);
    difference.samples = 0;
    difference
}

/// Takes out of `amounts` the share of a stretch in which nobody looked.
pub fn take_share(amounts: &mut Amounts, part: u64, whole: u64) -> Amounts {
    let mut taken = Amounts::default();
    each(&mut taken, amounts, |_, amount| share(amount, part, whole));
    taken.samples = 0;
    *amounts = difference(amounts, &taken);
    taken
}

/// Takes out of `delta` what belongs to the inside of a blocking call of `wall` ns, after
/// `between` ns without a sample.
pub fn split_off_call(delta: &mut Amounts, row: &SampleRow, between: u64, wall: u64) -> Amounts {
    // A call that waited used hardly any CPU; one that did not may have worked all the time.
    let cpu = if row.flags & flags::BLOCKED != 0 {
        delta.cpu_ns.saturating_sub(between).min(wall)
    } else {
        share(delta.cpu_ns, wall, between.saturating_add(wall))
            .max(delta.cpu_ns.saturating_sub(between))
            .min(wall)
            .min(delta.cpu_ns)
    };
    delta.cpu_ns -= cpu;
    Amounts {
        cpu_ns: cpu,
        voluntary_switches: std::mem::take(&mut delta.voluntary_switches),
        ..Amounts::default()
    }
}
