//! Amounts shared out: nothing is invented, nothing forgotten.

use stackbeat_core::shm::record_format::flags;

use crate::{Metrics, SampleRow, each};

/// `amount × part / whole`, rounded down; all of it when `whole` is 0.
#[inline]
pub(super) fn share(amount: u64, part: u64, whole: u64) -> u64 {
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
pub(super) fn difference(now: &Metrics, then: &Metrics) -> Metrics {
    let mut difference = *now;
    each(&mut difference, then, u64::saturating_sub);
    difference.samples = 0;
    difference
}

/// Takes out of `metrics` the share of a stretch in which nobody looked.
pub(super) fn take_share(metrics: &mut Metrics, part: u64, whole: u64) -> Metrics {
    let mut taken = Metrics::default();
    each(&mut taken, metrics, |_, amount| share(amount, part, whole));
    taken.samples = 0;
    *metrics = difference(metrics, &taken);
    taken
}

/// Takes out of `delta` what belongs to the inside of a call of `wall` ns that may wait, after
/// `between` ns without a sample. `works`: it surely did not wait.
pub(super) fn split_off_call(
    delta: &mut Metrics,
    row: &SampleRow,
    works: bool,
    between: u64,
    wall: u64,
) -> Metrics {
    // A call that waited used hardly any CPU; one that did not may have worked all the time.
    let cpu = if row.flags & flags::BLOCKED != 0 && !works {
        delta.cpu_ns.saturating_sub(between).min(wall)
    } else {
        share(delta.cpu_ns, wall, between.saturating_add(wall))
            .max(delta.cpu_ns.saturating_sub(between))
            .min(wall)
            .min(delta.cpu_ns)
    };
    delta.cpu_ns -= cpu;
    Metrics {
        cpu_ns: cpu,
        runnable_ns: if works { wall - cpu } else { 0 },
        voluntary_switches: std::mem::take(&mut delta.voluntary_switches),
        ..Metrics::default()
    }
}
