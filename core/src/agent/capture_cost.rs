//! What captures cost the thread that makes them. The collector keeps a declared budget with it
//! (`collector/src/session/pace.rs`), and the trace says it.
//!
//! A capture is clocked from its begin to its end by the cycle counter. A signal costs more than what its
//! handler does: the thread loses its processor from the moment when the signal arrives there. So that time
//! counts from when the sampler sent it, which is up to some microseconds too early.

use crate::shm::layout::{CLASSES, Control, ThreadEntry};
use crate::sync::{Ordering, add_own};

/// A capture that took longer was off the processor in between, ns.
const LONGEST_CAPTURE_NS: u64 = 1_000_000;
/// The same for one at the end of a wait. Where processors are scarce a thread often loses its own there, and its waits would seem
/// too costly for a budget.
const LONGEST_OF_WAIT_NS: u64 = 100_000;
/// A signal that took longer to arrive found its thread waiting for a processor, ns. What the signal itself
/// cost is not known then and taken to be this, ns.
const LONGEST_DELIVERY_NS: u64 = 150_000;
const USUAL_DELIVERY_NS: u64 = 12_000;

/// Adds a capture; `overdue`: of a wait that is a record because of its length.
pub(super) fn add_capture(control: &Control, entry: &ThreadEntry, cycles: u64, overdue: bool) {
    let cycles = cycles.min(in_cycles(control, entry, LONGEST_CAPTURE_NS));
    add_own(&entry.spent_cycles, cycles);
    if overdue {
        let most = in_cycles(control, entry, LONGEST_OF_WAIT_NS);
        add_own(&entry.waits_cycles, cycles.min(most));
    }
}

/// Adds the way of the signal whose handler runs; nothing when it is none of the sampler's.
pub(super) fn add_delivery(control: &Control, entry: &ThreadEntry, now: u64) {
    let sent = entry.sent_cycles.swap(0, Ordering::Relaxed);
    if sent == 0 {
        return;
    }
    let took = now.saturating_sub(sent);
    let cycles = match took <= in_cycles(control, entry, LONGEST_DELIVERY_NS) {
        true => took,
        false => in_cycles(control, entry, USUAL_DELIVERY_NS),
    };
    add_own(&entry.spent_cycles, cycles);
}

fn in_cycles(control: &Control, entry: &ThreadEntry, ns: u64) -> u64 {
    let class = (entry.class.load(Ordering::Relaxed) as usize).min(CLASSES - 1);
    let of_interval = control.interval_cycles[class].load(Ordering::Relaxed);
    let interval_ns = u64::from(control.interval_ns[class].load(Ordering::Relaxed));
    let cycles = of_interval.saturating_mul(ns).checked_div(interval_ns);
    cycles.unwrap_or(u64::MAX)
}
