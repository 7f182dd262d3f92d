//! What captures cost that somebody asks for: a number a second, and a few at once.

use super::Capture;
use crate::agent::session;
use crate::cycles::Cycles;
use crate::shm::layout::drops;
use crate::sync::Ordering;

/// Forced captures that a rested thread may do at once.
const BURST: u64 = 16;

impl Capture<'_> {
    /// Pays for a forced capture. False: it is refused, and counted as lost.
    pub(super) fn pay(&mut self, now: Cycles, class: usize) -> bool {
        let is_paid = self.charge(now, class);
        if !is_paid && !self.request.spare {
            session::count(self.entry, drops::FORCED_OVER_BUDGET);
        }
        is_paid
    }

    /// False: the budget is spent.
    fn charge(&mut self, now: Cycles, class: usize) -> bool {
        let per_second = self.control.forced_per_second.load(Ordering::Relaxed) as u64;
        if per_second == 0 {
            return false;
        }
        let ns = self.control.interval_ns[class].load(Ordering::Relaxed) as u128;
        let cycles = self.control.interval_cycles[class]
            .load(Ordering::Relaxed)
            .0 as u128;
        if ns == 0 {
            return true;
        }
        let price = Cycles((1_000_000_000 * cycles / ns / per_second as u128) as u64);
        let due = self.scratch.forced_until.max(now);
        if due - now > price.saturating_mul(BURST) {
            return false;
        }
        self.scratch.forced_until = due.saturating_add(price);
        true
    }
}
