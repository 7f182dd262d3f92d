//! Events do not see the kernel, and hooks see some system calls only. A thread that computes for long where
//! neither looks has its samples further apart than its event's period: the strikes in between fell into the
//! kernel. The collector puts its process on another clock then.

use super::kernel_clock;
use super::session;
use crate::platform;
use crate::shm::layout::{Control, ThreadEntry};
use crate::sync::Ordering;

/// Less than this, ns, or than one part in so many of the thread's CPU time, is left alone: short calls have
/// strikes that are late.
const LEAST_NS: u64 = 10_000_000;
const PART: u64 = 8;
/// The event stands still after its first strike, so samples are far apart before the third.
const FIRST_STRIKES: u32 = 3;

/// What a thread knows of it.
#[derive(Debug, Default)]
pub(super) struct State {
    /// CPU time since its event strikes regularly, and the part of it that nothing has seen, ns.
    all_ns: u64,
    unseen_ns: u64,
    /// What it had computed in the kernel before, ns.
    kernel_before_ns: Option<u64>,
}

impl State {
    /// Forgets what another thread did.
    pub(super) fn reset(&mut self) {
        *self = State::default();
    }

    /// The thread's event has struck, and the thread has been captured. `before_ns`: its CPU time at the
    /// sample before.
    pub(super) fn event_strikes(&mut self, control: &Control, entry: &ThreadEntry, before_ns: u64) {
        if !control.has_timers() || entry.clock_strikes.load(Ordering::Relaxed) < FIRST_STRIKES {
            return;
        }
        let Some(kernel_before_ns) = self.kernel_before_ns else {
            self.kernel_before_ns = Some(platform::thread_kernel_ns());
            return;
        };
        let since_ns = (entry.cpu_ns.load(Ordering::Relaxed)).saturating_sub(before_ns);
        if !self.are_many(since_ns, control.sampling_interval_ns(entry).into()) {
            return;
        }
        // Strikes are late, too, where a hypervisor takes the processor away.
        let kernel_ns = platform::thread_kernel_ns().saturating_sub(kernel_before_ns);
        if kernel_ns >= self.unseen_ns / 2 {
            say(control);
        }
    }

    /// So much CPU time lies between two samples, where `period_ns` lies between two strikes.
    fn are_many(&mut self, since_ns: u64, period_ns: u64) -> bool {
        self.all_ns += since_ns;
        if since_ns > period_ns + period_ns / 2 {
            self.unseen_ns += since_ns - period_ns;
        }
        self.unseen_ns >= LEAST_NS && self.unseen_ns >= self.all_ns / PART
    }
}

/// Has the collector look at the calling thread's process.
#[cold]
fn say(control: &Control) {
    let process = session::mapping().and_then(|mapping| mapping.process(session::index()));
    if let Some(process) = process
        && process.has_unseen_calls.swap(1, Ordering::Relaxed) == 0
    {
        kernel_clock::call_if_asleep(control);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// After how many strikes there are many, if every `nth` comes that late.
    fn found_after(nth: u64, late_ns: u64) -> Option<u64> {
        let mut state = State::default();
        (1..=1_000).find(|i| {
            let since_ns = if i % nth == 0 { MS + late_ns } else { MS };
            state.are_many(since_ns, MS)
        })
    }

    #[test]
    fn what_computes_in_the_kernel_is_found_soon() {
        assert_eq!(found_after(1, MS), Some(10));
        assert_eq!(found_after(1, 9 * MS), Some(2));
        // A fifth of the time.
        assert_eq!(found_after(4, MS), Some(40));
    }

    #[test]
    fn what_hardly_does_is_left_alone() {
        assert_eq!(found_after(1, MS / 2), None);
        assert_eq!(found_after(8, MS), None);
        // A processor that was gone for once.
        assert_eq!(found_after(500, 9 * MS), None);
    }
}
