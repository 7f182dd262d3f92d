//! How far apart ticks are, when what was asked for costs more than it may.
//!
//! What the recording costs is measured ([`super::cost`]) and compared with the budget. What the ticks cause
//! (captures, signals, the ticker's own wake-ups) falls as the interval grows; what is left (draining,
//! counters, hooks that only count) has to be paid first. Hooks and signals are stretched together: if signals alone became
//! fewer, functions that pass hooks would be met more often than their share.
//!
//! One thread can be far dearer than the others (its stacks are deep, or change completely from tick to
//! tick). It then takes notice of one in so many ticks only, and the others keep their interval.
//!
//! Hooks that only count cost the same at any interval. Where they alone leave too little of a declared budget, they
//! have to go ([`Pace::withdraws`]).

use std::collections::HashMap;

use super::cost::{Cost, ThreadCost};

/// Part of the budget, in percent, that ticks may take whatever the rest costs.
const LEAST_PERCENT: u64 = 25;
/// The interval is left alone while the cost is nearer to the budget than this part.
const TOLERANCE: f64 = 0.1;
/// Hooks that only count are withdrawn when they take at least this part of the budget, in percent, and with the
/// recorder's other threads more than what ticks leave, for so much of the program's CPU time, ns: many programs
/// begin with a moment of much allocation.
const HOOKS_PERCENT: u64 = 40;
const HOOKS_NS: u64 = 400_000_000;
/// Most that an interval shrinks and grows by at one time.
const CHANGE: (f64, f64) = (0.5, 4.0);
/// A thread is far dearer than the others when captures take so many times the part of its time.
const DEAR: u64 = 4;
/// The rest must have run for this part of the dear thread's time, or there is nothing to compare with.
const COMPARABLE: u64 = 10;
/// What the recorder's other threads take may rise up to the second of these parts of the budget before they
/// work less often, and falls below the first before they work more often.
const BESIDES: (f64, f64) = (0.08, 0.25);
/// Most that they wait longer than usual.
const MOST_LEISURE: u32 = 4;
/// A thread takes notice of at least one in so many ticks.
const MOST_EVERY: u32 = 64;

/// A declared bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Part of the program's CPU time that the recording may cost, in percent.
    pub percent: f64,
    /// Intervals are stretched up to it; longer ones are kept, ns.
    pub longest_ns: u64,
    /// The user asked for it: it is kept at the price of exact counts.
    pub is_declared: bool,
}

/// What is in force, and what it is derived from.
#[derive(Debug)]
pub struct Pace {
    /// `None`: intervals are kept as asked for.
    budget: Option<Budget>,
    stretch: f64,
    /// How many times later than usual those looks may come that nobody waits for.
    leisure: u32,
    /// The program's CPU time since when hooks that only count take too much, ns.
    dear_hooks_ns: u64,
    /// By the uid of a dear thread: it takes notice of one in so many ticks.
    every: HashMap<u32, u32>,
}

impl Pace {
    pub fn new(budget: Option<Budget>) -> Pace {
        Pace {
            budget,
            stretch: 1.0,
            leisure: 1,
            dear_hooks_ns: 0,
            every: HashMap::new(),
        }
    }

    /// The interval in force for one that was asked for, ns.
    pub fn interval_ns(&self, asked_ns: u64) -> u64 {
        match self.budget {
            Some(budget) if asked_ns < budget.longest_ns => {
                ((asked_ns as f64 * self.stretch) as u64).clamp(asked_ns, budget.longest_ns)
            }
            _ => asked_ns,
        }
    }

    /// One in how many ticks a thread takes notice of.
    pub fn every(&self, thread_uid: u32) -> u32 {
        self.every.get(&thread_uid).copied().unwrap_or(1)
    }

    /// How many times later than usual looks may come that nobody waits for.
    pub fn leisure(&self) -> u32 {
        self.leisure
    }

    /// Whether the budget cannot be kept with hooks that only count.
    pub fn withdraws(&self) -> bool {
        self.dear_hooks_ns >= HOOKS_NS
    }

    /// Takes a stretch of the recording into account. `shortest_ns`: the shortest interval asked for.
    pub fn adjust(&mut self, cost: &Cost, shortest_ns: u64) {
        let Some(budget) = self.budget.filter(|b| shortest_ns < b.longest_ns) else {
            return;
        };
        let captures_ns = self.adjust_threads(budget, cost);
        let allowed_ns = (cost.program_ns as f64 * budget.percent / 100.0).max(1.0);
        let besides_ns = cost.besides_ns as f64;
        if besides_ns > allowed_ns * BESIDES.1 {
            self.leisure = (self.leisure * 2).min(MOST_LEISURE);
        } else if besides_ns < allowed_ns * BESIDES.0 {
            self.leisure = (self.leisure / 2).max(1);
        }
        let rest_ns = (cost.besides_ns + cost.hooks_ns) as f64;
        let is_dear = budget.is_declared
            && rest_ns > allowed_ns * (100 - LEAST_PERCENT) as f64 / 100.0
            && cost.hooks_ns as f64 > allowed_ns * HOOKS_PERCENT as f64 / 100.0;
        self.dear_hooks_ns = match is_dear {
            true => self.dear_hooks_ns + cost.program_ns,
            false => 0,
        };
        let left_ns = (allowed_ns - rest_ns).max(allowed_ns * LEAST_PERCENT as f64 / 100.0);
        let change = (captures_ns + cost.ticker_ns) as f64 / left_ns;
        if (change - 1.0).abs() < TOLERANCE {
            return;
        }
        let most = budget.longest_ns as f64 / shortest_ns.max(1) as f64;
        self.stretch = (self.stretch * change.clamp(CHANGE.0, CHANGE.1)).clamp(1.0, most);
    }

    /// Gives what the captures would have cost with what is in force from here on, ns.
    fn adjust_threads(&mut self, budget: Budget, cost: &Cost) -> u64 {
        let all_cpu_ns: u64 = cost.threads.iter().map(|t| t.cpu_ns).sum();
        let all_ns = cost.captures_ns();
        let mut then_ns = 0;
        for thread in &cost.threads {
            let every = self.every(thread.uid);
            let others = ThreadCost {
                cpu_ns: all_cpu_ns - thread.cpu_ns,
                capture_ns: all_ns - thread.capture_ns,
                ..ThreadCost::default()
            };
            let next = match judge(budget, thread, &others, every, self.stretch) {
                Verdict::Dear => (every * 2).min(MOST_EVERY),
                Verdict::Fits => every,
                Verdict::Cheap => (every / 2).max(1),
            };
            match next {
                1 => drop(self.every.remove(&thread.uid)),
                _ => drop(self.every.insert(thread.uid, next)),
            }
            then_ns += thread.capture_ns * u64::from(every) / u64::from(next);
        }
        then_ns
    }

    /// Forgets threads that have ended.
    pub fn retain(&mut self, lives: impl Fn(u32) -> bool) {
        self.every.retain(|uid, _| lives(*uid));
    }
}

enum Verdict {
    Dear,
    Fits,
    Cheap,
}

/// Whether a thread is far dearer than the others, and would be over the budget by itself without `stretch`: what was
/// stretched for its sake is not what the others have to bear.
fn judge(
    budget: Budget,
    thread: &ThreadCost,
    others: &ThreadCost,
    every: u32,
    stretch: f64,
) -> Verdict {
    let is_comparable = others.cpu_ns >= thread.cpu_ns / COMPARABLE && others.cpu_ns > 0;
    // capture/cpu of the one against the others', without a division.
    let own = u128::from(thread.capture_ns) * u128::from(others.cpu_ns);
    let theirs = u128::from(others.capture_ns) * u128::from(thread.cpu_ns.max(1));
    let unstretched_ns = thread.capture_ns as f64 * stretch;
    let is_over = unstretched_ns * 100.0 > budget.percent * thread.cpu_ns as f64;
    if is_comparable && is_over && own > theirs * u128::from(DEAR) {
        Verdict::Dear
    } else if every > 1 && (!is_comparable || own * 2 <= theirs) {
        Verdict::Cheap
    } else {
        Verdict::Fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on which a tick and each thread's capture cost so much.
    struct Machine {
        tick_ns: u64,
        capture_ns: Vec<u64>,
        besides_percent: u64,
    }

    impl Machine {
        /// A fifth of a second with a processor for each thread.
        fn run(&self, pace: &Pace, asked_ns: u64) -> Cost {
            let wall_ns = 200_000_000;
            let ticks = wall_ns / pace.interval_ns(asked_ns);
            let threads = self.capture_ns.iter().zip(1..).map(|(ns, uid)| ThreadCost {
                uid,
                entry: uid,
                cpu_ns: wall_ns,
                capture_ns: ns * ticks / u64::from(pace.every(uid)),
            });
            Cost {
                program_ns: wall_ns * self.capture_ns.len() as u64,
                ticker_ns: ticks * self.tick_ns,
                besides_ns: wall_ns * self.besides_percent / 100,
                hooks_ns: 0,
                threads: threads.collect(),
            }
        }

        fn settle(&self, pace: &mut Pace, asked_ns: u64) -> u64 {
            for _ in 0..40 {
                let cost = self.run(pace, asked_ns);
                pace.adjust(&cost, asked_ns);
            }
            pace.interval_ns(asked_ns)
        }

        fn share(&self, pace: &Pace, asked_ns: u64) -> f64 {
            let cost = self.run(pace, asked_ns);
            cost.total_ns() as f64 * 100.0 / cost.program_ns as f64
        }
    }

    fn within(percent: f64, longest_ns: u64) -> Pace {
        Pace::new(Some(Budget {
            percent,
            longest_ns,
            is_declared: true,
        }))
    }

    #[test]
    fn what_is_cheap_enough_is_kept_and_so_is_what_has_no_budget() {
        let cheap = Machine {
            tick_ns: 2_000,
            capture_ns: vec![2_000],
            besides_percent: 0,
        };
        assert_eq!(cheap.settle(&mut within(5.0, 1_000_000), 100_000), 100_000);
        let dear = Machine {
            tick_ns: 900_000,
            capture_ns: vec![3_000],
            besides_percent: 0,
        };
        assert_eq!(dear.settle(&mut Pace::new(None), 100_000), 100_000);
        assert_eq!(
            dear.settle(&mut within(5.0, 1_000_000), 4_000_000),
            4_000_000
        );
        assert_eq!(dear.settle(&mut within(5.0, 1_000_000), 100_000), 1_000_000);
    }

    #[test]
    fn the_interval_grows_until_the_budget_holds_and_shrinks_again() {
        let busy = Machine {
            tick_ns: 25_000,
            capture_ns: vec![15_000],
            besides_percent: 0,
        };
        let mut pace = within(1.0, 100_000_000);
        let interval_ns = busy.settle(&mut pace, 1_000_000);
        assert!(
            (3_600_000..4_500_000).contains(&interval_ns),
            "{interval_ns}"
        );
        let share = busy.share(&pace, 1_000_000);
        assert!((0.85..=1.12).contains(&share), "{share}");
        let idle = Machine {
            tick_ns: 1_000,
            capture_ns: vec![1_000],
            besides_percent: 0,
        };
        assert_eq!(idle.settle(&mut pace, 1_000_000), 1_000_000);
    }

    #[test]
    fn what_does_not_depend_on_the_interval_is_paid_first() {
        let machine = |besides_percent| Machine {
            tick_ns: 20_000,
            capture_ns: vec![20_000],
            besides_percent,
        };
        let mut pace = within(4.0, 100_000_000);
        machine(2).settle(&mut pace, 1_000_000);
        let share = machine(2).share(&pace, 1_000_000);
        assert!((3.7..=4.3).contains(&share), "{share}");
        // More than the budget: a quarter of it is left for captures.
        let interval_ns = machine(9).settle(&mut pace, 1_000_000);
        assert!(
            (3_600_000..4_500_000).contains(&interval_ns),
            "{interval_ns}"
        );
    }

    #[test]
    fn hooks_go_that_take_most_of_a_declared_budget_for_some_time() {
        let cost = |hooks_ns| Cost {
            program_ns: 200_000_000,
            besides_ns: 300_000,
            hooks_ns,
            ..Cost::default()
        };
        let mut pace = within(1.0, 100_000_000);
        // 2 ms a look are allowed.
        for _ in 0..40 {
            pace.adjust(&cost(1_100_000), 1_000_000);
        }
        assert!(!pace.withdraws());
        pace.adjust(&cost(1_300_000), 1_000_000);
        assert!(!pace.withdraws());
        pace.adjust(&cost(1_300_000), 1_000_000);
        assert!(pace.withdraws());
        // Not for a moment of much allocation.
        let mut pace = within(1.0, 100_000_000);
        for _ in 0..40 {
            pace.adjust(&cost(6_000_000), 1_000_000);
            pace.adjust(&cost(0), 1_000_000);
        }
        assert!(!pace.withdraws());
        // Nobody asked for that budget.
        let mut pace = Pace::new(Some(Budget {
            percent: 1.0,
            longest_ns: 100_000_000,
            is_declared: false,
        }));
        for _ in 0..40 {
            pace.adjust(&cost(6_000_000), 1_000_000);
        }
        assert!(!pace.withdraws());
    }

    #[test]
    fn a_dear_thread_is_found_after_intervals_were_stretched() {
        let alike = Machine {
            tick_ns: 2_000,
            capture_ns: vec![200_000; 3],
            besides_percent: 0,
        };
        let mut pace = within(2.0, 100_000_000);
        let before_ns = alike.settle(&mut pace, 1_000_000);
        let uneven = Machine {
            tick_ns: 2_000,
            capture_ns: vec![3_000, 30_000, 3_000],
            besides_percent: 0,
        };
        // At this interval it is within the budget by itself.
        let share = 30_000.0 * 100.0 / before_ns as f64;
        assert!(share < 2.0, "{share}");
        uneven.settle(&mut pace, 1_000_000);
        assert!(pace.every(2) > 1);
        assert_eq!(pace.interval_ns(1_000_000), 1_000_000);
    }

    #[test]
    fn one_dear_thread_is_slowed_and_the_others_keep_their_interval() {
        let machine = Machine {
            tick_ns: 2_000,
            capture_ns: vec![3_000, 3_000, 200_000, 3_000],
            besides_percent: 0,
        };
        let mut pace = within(1.0, 100_000_000);
        let interval_ns = machine.settle(&mut pace, 1_000_000);
        assert!(interval_ns < 2_000_000, "{interval_ns}");
        let every: Vec<u32> = (1..=4).map(|uid| pace.every(uid)).collect();
        assert!(
            every[2] >= 8 && [every[0], every[1], every[3]] == [1; 3],
            "{every:?}"
        );
        assert!(machine.share(&pace, 1_000_000) < 1.15);
        // The thread has become like the others.
        let even = Machine {
            tick_ns: 2_000,
            capture_ns: vec![3_000; 4],
            besides_percent: 0,
        };
        even.settle(&mut pace, 1_000_000);
        assert_eq!(pace.every(3), 1);
        // Alone there is nobody to be dearer than.
        let alone = Machine {
            tick_ns: 2_000,
            capture_ns: vec![200_000],
            besides_percent: 0,
        };
        let interval_ns = alone.settle(&mut pace, 1_000_000);
        assert!(
            interval_ns > 15_000_000 && pace.every(1) == 1,
            "{interval_ns}"
        );
    }
}
