//! How far apart ticks are, when what was asked for costs more than it may.
//!
//! A tick costs a wake-up of the ticker, and a signal for each running thread that passes no hook just
//! then: a tenth of a millisecond holds neither on many machines (a timer's interrupt alone is 20 µs on
//! some virtual ones). Intervals below a millisecond are therefore stretched, up to a millisecond, as
//! far as the budget wants it. Hooks and signals are stretched together: if signals alone became
//! fewer, functions that pass hooks would be met more often than their share.

/// What a capture costs a thread, ns: caches are cold after the time in between.
const CAPTURE_NS: u64 = 3_000;
/// What a signal costs the thread that it interrupts, besides the capture, ns: measured 1,400 to itself
/// and about 10,000 as seen by a thread on another processor.
const SIGNAL_NS: u64 = 8_000;
/// Intervals are not stretched beyond it, nor such as are longer, ns.
const LONGEST_NS: u64 = 1_000_000;
/// Wake-ups between two changes.
const WAKES: u32 = 64;

/// What was used up to some moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    pub wall_ns: u64,
    pub ticker_cpu_ns: u64,
    pub signals: u64,
}

/// The stretch in force, and what it is derived from.
#[derive(Debug)]
pub struct Pace {
    /// Part of the running threads' time that ticks and signals may take; 0: any.
    budget_percent: u32,
    stretch: f64,
    wakes: u32,
    /// Active threads, summed over the wake-ups.
    active: u64,
    before: Used,
}

impl Pace {
    pub fn new(budget_percent: u32, now: Used) -> Pace {
        Pace {
            budget_percent,
            stretch: 1.0,
            wakes: 0,
            active: 0,
            before: now,
        }
    }

    /// The interval in force for one that was asked for, ns.
    pub fn interval_ns(&self, asked_ns: u64) -> u64 {
        if asked_ns >= LONGEST_NS {
            return asked_ns;
        }
        ((asked_ns as f64 * self.stretch) as u64).clamp(asked_ns, LONGEST_NS)
    }

    /// The ticker woke up and met this many active threads. Now and then `used` is asked; true when
    /// the stretch may have changed. `shortest_ns`: the shortest interval asked for.
    pub fn woke(&mut self, active: usize, shortest_ns: u64, used: impl FnOnce() -> Used) -> bool {
        self.wakes += 1;
        self.active += active as u64;
        if self.wakes < WAKES || shortest_ns >= LONGEST_NS || self.budget_percent == 0 {
            return false;
        }
        let now = used();
        let wall_ns = now.wall_ns.saturating_sub(self.before.wall_ns);
        let cost_ns = now.ticker_cpu_ns.saturating_sub(self.before.ticker_cpu_ns)
            + SIGNAL_NS * now.signals.saturating_sub(self.before.signals)
            + CAPTURE_NS * self.active;
        let threads = (self.active as f64 / f64::from(self.wakes)).max(1.0);
        let share = cost_ns as f64 / (wall_ns as f64 * threads).max(1.0);
        let change = (share * 100.0 / f64::from(self.budget_percent)).clamp(0.5, 4.0);
        let most = LONGEST_NS as f64 / shortest_ns.max(1) as f64;
        self.stretch = (self.stretch * change).clamp(1.0, most);
        self.start_over(now);
        true
    }

    /// After a pause: what was used before it says nothing about the time after it.
    pub fn start_over(&mut self, now: Used) {
        (self.wakes, self.active, self.before) = (0, 0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a machine on which a tick costs `tick_ns`, and gives the interval that comes out.
    fn settled(asked_ns: u64, tick_ns: u64, signals: u64, active: usize) -> u64 {
        let mut used = Used::default();
        let mut pace = Pace::new(5, used);
        for _ in 0..2_000 {
            used.wall_ns += pace.interval_ns(asked_ns);
            used.ticker_cpu_ns += tick_ns;
            used.signals += signals;
            pace.woke(active, asked_ns, || used);
        }
        pace.interval_ns(asked_ns)
    }

    #[test]
    fn what_is_cheap_enough_is_kept() {
        assert_eq!(settled(100_000, 2_000, 0, 1), 100_000);
        assert_eq!(settled(100_000, 14_000, 0, 8), 100_000);
        assert_eq!(settled(1_000_000, 900_000, 1, 1), 1_000_000);
        assert_eq!(settled(4_000_000, 900_000, 1, 1), 4_000_000);
    }

    #[test]
    fn what_costs_too_much_is_stretched_to_the_budget_or_a_millisecond() {
        let interval = settled(100_000, 20_000, 0, 1);
        assert!((450_000..470_000).contains(&interval), "{interval}");
        let interval = settled(50_000, 20_000, 1, 1);
        assert!((610_000..630_000).contains(&interval), "{interval}");
        assert_eq!(settled(100_000, 90_000, 4, 1), 1_000_000);
    }
}
