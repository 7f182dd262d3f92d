//! What captures cost the thread that makes them. The collector keeps a declared budget with it
//! (`collector/src/session/pace.rs`), and the trace says it.
//!
//! A capture is clocked from its begin to its end by the cycle counter. A signal costs more than what its
//! handler does: the thread loses its processor from the moment when the signal arrives there. So that time
//! counts from when the sampler sent it, which is up to some microseconds too early.

use crate::cycles::Cycles;
use crate::platform;
use crate::shm::layout::{CLASSES, Control, ThreadEntry};
use crate::sync::Ordering;

/// A capture that took longer may have been off its processor in between, ns: the thread's CPU time tells. An
/// event of the kernel's clock comes about when its tick does, which ends the thread's turn.
const LONG_CAPTURE_NS: u64 = 50_000;
/// Where that is not known: one that took longer was off its processor, ns.
const LONGEST_CAPTURE_NS: u64 = 1_000_000;
/// Nothing is believed to take longer of the thread's CPU time, ns.
const LONGEST_USED_NS: u64 = 50_000_000;
/// A signal that took longer to arrive found its thread waiting for a processor, ns. What the signal itself
/// cost is not known then and taken to be this, ns.
const LONGEST_DELIVERY_NS: u64 = 150_000;
const USUAL_DELIVERY_NS: u64 = 12_000;

/// The sampler takes a processor away for that long itself, ns.
pub(super) const OF_SAMPLER_NS: u64 = 50_000;

/// Adds a capture; `overdue`: of a wait that is a record because of its length. `cpu_ns`: the thread's CPU
/// time at its begin, if it was read then. Gives the CPU time at its end, and at which the thread has
/// computed for as long, ns; 0, 0: it was not long.
pub(super) fn add_capture(
    control: &Control,
    entry: &ThreadEntry,
    took: Cycles,
    overdue: bool,
    cpu_ns: Option<u64>,
) -> [u64; 2] {
    let long = in_cycles(control, entry, LONG_CAPTURE_NS);
    let mut long_ns = [0; 2];
    let cycles = if took > long {
        let used_ns = match (cpu_ns, platform::thread_cpu_ns()) {
            (None, _) | (_, 0) => LONGEST_CAPTURE_NS,
            (Some(begin), now) => {
                let used_ns = now.saturating_sub(begin);
                long_ns = [now, now.saturating_add(used_ns.min(LONGEST_USED_NS))];
                used_ns
            }
        };
        in_cycles(control, entry, used_ns).clamp(long, took)
    } else {
        took
    };
    entry.spent_cycles.add_own(cycles);
    if overdue {
        entry.waits_cycles.add_own(cycles);
    }
    long_ns
}

/// Adds the way of the signal whose handler runs, and gives how long it was; 0 when it is none of the
/// sampler's.
pub(super) fn add_delivery(control: &Control, entry: &ThreadEntry, now: Cycles) -> Cycles {
    let sent = entry.sent_cycles.swap(Cycles(0), Ordering::Relaxed);
    if sent == Cycles(0) {
        return sent;
    }
    let took = now.saturating_sub(sent);
    let cycles = match took <= in_cycles(control, entry, LONGEST_DELIVERY_NS) {
        true => took,
        false => in_cycles(control, entry, USUAL_DELIVERY_NS),
    };
    entry.spent_cycles.add_own(cycles);
    took
}

/// Whether a thread waited for a processor when it was sent a signal that took so long, ns. `ran_ns`: CPU
/// time since then, or a little more: of a thread that runs the scheduler's count is older than the signal.
pub(super) fn was_without_processor(delivery_ns: u64, ran_ns: u64) -> bool {
    delivery_ns > OF_SAMPLER_NS && ran_ns < delivery_ns / 2
}

fn in_cycles(control: &Control, entry: &ThreadEntry, ns: u64) -> Cycles {
    let class = (entry.class.load(Ordering::Relaxed) as usize).min(CLASSES - 1);
    let of_interval = control.interval_cycles[class].load(Ordering::Relaxed);
    let interval_ns = u64::from(control.interval_ns[class].load(Ordering::Relaxed));
    let cycles = of_interval.saturating_mul(ns).0.checked_div(interval_ns);
    cycles.map_or(Cycles::MAX, Cycles)
}

#[cfg(test)]
mod tests {
    use super::was_without_processor;

    #[test]
    fn a_signal_that_comes_late_without_cpu_time_met_a_wait_for_a_processor() {
        // At work on another processor, when the signal came, and after a long way through the kernel.
        assert!(!was_without_processor(20_000, 20_000));
        assert!(!was_without_processor(3_000_000, 3_100_000));
        // The scheduler's count was brought up to date at just that moment.
        assert!(!was_without_processor(20_000, 0));
        // The thread had run until others got its processor, and went on when they were done.
        assert!(was_without_processor(3_000_000, 4_000));
        assert!(was_without_processor(200_000, 10_000));
    }
}
