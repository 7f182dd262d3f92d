//! How far apart ticks are, when what was asked for costs more than it may.
//!
//! What the recording costs is measured ([`super::cost`]) and compared with the budget. What the ticks cause
//! (captures, signals, the ticker's own wake-ups) falls as the interval grows; what is left (draining,
//! counters, hooks that only count) has to be paid first. Hooks and signals are stretched together: if
//! signals alone became fewer, functions that pass hooks would be met more often than their share.
//!
//! Waits are records from the interval on that was asked for, as long as these records take no more than a
//! quarter of the budget of a processor, whatever the rest costs: few programs wait that often. Where they
//! take more, the length from which on they are records grows, up to the interval in force.
//!
//! One thread can be far more costly than the others (its stacks are deep, or change completely from tick to
//! tick). It then takes notice of one in so many ticks only, and the others keep their interval.
//!
//! A declared budget holds from the first moment on: it begins with intervals that fit wherever a tick is
//! costly, with the recorder's other threads at their rarest, and an account of what was spent beyond it is
//! paid back over the next seconds.
//!
//! Hooks that only count cost the same at any interval. Where they alone leave too little of a declared
//! budget, they have to go ([`Pace::has_to_unpatch`]).

use std::collections::HashMap;

use stackbeat_core::ids::Utid;

use super::cost::{Cost, ThreadCost};
use super::options::Budget;

/// Part of the budget, in percent, that ticks may take whatever the rest costs, and while more was spent than
/// allowed.
const LEAST_PERCENT: u64 = 25;
const LEAST_IN_DEBT_PERCENT: u64 = 10;
/// What a tick may cost at worst, captures included, ns: a declared budget begins with intervals for that,
/// because nothing has been measured yet. A virtual machine with costly interrupts took 190 in the first
/// seconds of python.
const WORST_TICK_NS: f64 = 200_000.0;
/// What was spent beyond the budget is paid back within so much of the program's CPU time, ns.
const PAYBACK_NS: f64 = 2_000_000_000.0;
/// Of so much CPU time of the program, ns, the allowance may at most be saved up, and be owed: what lies long
/// back is no reason to record a program too often, or hardly at all.
const SAVED_NS: f64 = 500_000_000.0;
const OWED_NS: f64 = 10_000_000_000.0;
/// Part of the budget that records of waits may take, in percent, whatever the rest costs. Who only waits
/// counts as if it used a processor.
const WAITS_PERCENT: u64 = 25;
/// The interval is left alone while the cost is nearer to the budget than this part.
const TOLERANCE: f64 = 0.1;
/// Hooks that only count are unpatched when they take at least this part of the budget, in percent, and with
/// the recorder's other threads more than what ticks leave, for so much of the program's CPU time, ns: many
/// programs begin with a moment of much allocation. Where they are so many times the budget, they have so
/// much less time, down to the last.
const HOOKS_PERCENT: u64 = 40;
const HOOKS_NS: f64 = 400_000_000.0;
const HOOKS_TIMES: f64 = 4.0;
/// Most that an interval shrinks and grows by at one time.
const CHANGE: (f64, f64) = (0.5, 4.0);
/// A thread is far more costly than the others when captures take so many times the part of its time.
const COSTLY: u64 = 4;
/// The rest must have run for this part of the costly thread's time, or there is nothing to compare with.
const COMPARABLE: u64 = 10;
/// What the recorder's other threads take may rise up to the second of these parts of the budget before they
/// work less often, and falls below the first before they work more often.
const BESIDES: (f64, f64) = (0.08, 0.25);
/// Most that they wait longer than usual, without a declared budget and with one.
const MOST_LEISURE: [u32; 2] = [4, 8];
/// A thread takes notice of at least one in so many ticks.
const MOST_EVERY: u32 = 64;

/// What is in force, and what it is derived from.
#[derive(Debug)]
pub(super) struct Pace {
    /// `None`: intervals are kept as asked for.
    budget: Option<Budget>,
    stretch: f64,
    /// How many times as long as was asked for a wait has to be for a record of its own; at most `stretch`.
    waits_stretch: f64,
    /// How many times later than usual those polls may come that nobody waits for.
    leisure: u32,
    /// The program's CPU time since when hooks that only count take too much, ns, times how much too much.
    costly_hooks_ns: f64,
    /// What was spent of a declared budget beyond what was allowed so far, ns; negative: saved.
    owed_ns: f64,
    /// By the utid of a costly thread: it takes notice of one in so many ticks.
    every: HashMap<Utid, u32>,
}

impl Pace {
    /// `asked_ns`: the shortest interval asked for.
    pub(super) fn new(budget: Option<Budget>, asked_ns: u64) -> Pace {
        let declared = budget.filter(|b| b.is_declared && asked_ns < b.longest_ns);
        let stretch = declared.map_or(1.0, |budget| {
            let fits_ns = WORST_TICK_NS * 100.0 / budget.percent;
            (fits_ns / asked_ns as f64).clamp(1.0, most(budget, asked_ns))
        });
        Pace {
            budget,
            stretch,
            waits_stretch: 1.0,
            leisure: declared.map_or(1, |_| MOST_LEISURE[1]),
            costly_hooks_ns: 0.0,
            owed_ns: 0.0,
            every: HashMap::new(),
        }
    }

    /// So much was spent on the program before there was anything to measure it by, ns.
    pub(super) fn owe(&mut self, ns: u64) {
        self.owed_ns += ns as f64;
    }

    /// The interval in force for one that was asked for, ns.
    pub(super) fn interval_ns(&self, asked_ns: u64) -> u64 {
        match self.budget {
            Some(budget) if asked_ns < budget.longest_ns => {
                ((asked_ns as f64 * self.stretch) as u64).clamp(asked_ns, budget.longest_ns)
            }
            _ => asked_ns,
        }
    }

    /// The length from which on a wait is a record, for an interval that was asked for, ns.
    pub(super) fn wait_ns(&self, asked_ns: u64) -> u64 {
        let ns = (asked_ns as f64 * self.waits_stretch) as u64;
        ns.clamp(asked_ns, self.interval_ns(asked_ns))
    }

    /// One in how many ticks a thread takes notice of.
    pub(super) fn every(&self, utid: Utid) -> u32 {
        self.every.get(&utid).copied().unwrap_or(1)
    }

    /// How many times later than usual polls may come that nobody waits for.
    pub(super) fn leisure(&self) -> u32 {
        self.leisure
    }

    /// Whether the budget cannot be kept with hooks that only count.
    pub(super) fn has_to_unpatch(&self) -> bool {
        self.costly_hooks_ns >= HOOKS_NS
    }

    /// Takes a stretch of the recording into account. `shortest_ns`: the shortest interval asked for.
    pub(super) fn adjust(&mut self, cost: &Cost, shortest_ns: u64) {
        let Some(budget) = self.budget.filter(|b| shortest_ns < b.longest_ns) else {
            return;
        };
        let ticks_ns = self.adjust_threads(budget, cost) + cost.ticker_ns;
        let allowed_ns = (cost.program_ns as f64 * budget.percent / 100.0).max(1.0);
        let besides_ns = cost.besides_ns as f64;
        if besides_ns > allowed_ns * BESIDES.1 {
            let most = MOST_LEISURE[usize::from(budget.is_declared)];
            self.leisure = (self.leisure * 2).min(most);
        } else if besides_ns < allowed_ns * BESIDES.0 {
            self.leisure = (self.leisure / 2).max(1);
        }
        let rest_ns = (cost.besides_ns + cost.hooks_ns) as f64;
        let is_costly = budget.is_declared
            && rest_ns > allowed_ns * (100 - LEAST_PERCENT) as f64 / 100.0
            && cost.hooks_ns as f64 > allowed_ns * HOOKS_PERCENT as f64 / 100.0;
        let times = (cost.hooks_ns as f64 / allowed_ns).clamp(1.0, HOOKS_TIMES);
        self.costly_hooks_ns = match is_costly {
            true => self.costly_hooks_ns + cost.program_ns as f64 * times,
            false => 0.0,
        };
        let waits_ns = cost.waits_ns() as f64;
        let of_ns = cost.program_ns.max(cost.wall_ns) as f64;
        let waits_allowed_ns =
            (of_ns * budget.percent / 100.0 * WAITS_PERCENT as f64 / 100.0).max(1.0);
        // Waits within their part are owed by nobody.
        let spent_ns = cost.total_ns() as f64 - waits_ns.min(waits_allowed_ns);
        let (due_ns, least_percent) = self.settle(budget, cost, spent_ns, allowed_ns);
        let least_ns = allowed_ns * least_percent as f64 / 100.0;
        let left_ns = (allowed_ns - rest_ns - due_ns - waits_ns).max(least_ns);
        let most = most(budget, shortest_ns);
        self.waits_stretch = stretched(self.waits_stretch, waits_ns / waits_allowed_ns, most);
        let stretch = stretched(self.stretch, ticks_ns as f64 / left_ns, most);
        // A wait over the interval in force is a record.
        self.stretch = stretch.max(self.waits_stretch);
    }

    /// Keeps the account of a declared budget. Gives what the next stretch has to pay back, ns (negative: may
    /// use besides), and the part of the budget that ticks have in any case, in percent.
    fn settle(
        &mut self,
        budget: Budget,
        cost: &Cost,
        spent_ns: f64,
        allowed_ns: f64,
    ) -> (f64, u64) {
        if !budget.is_declared {
            return (0.0, LEAST_PERCENT);
        }
        let allowance_ns = |of_ns: f64| of_ns * budget.percent / 100.0;
        self.owed_ns = (self.owed_ns + spent_ns - allowed_ns)
            .clamp(-allowance_ns(SAVED_NS), allowance_ns(OWED_NS));
        let due_ns = self.owed_ns * cost.program_ns as f64 / PAYBACK_NS;
        match self.owed_ns > 0.0 {
            true => (due_ns, LEAST_IN_DEBT_PERCENT),
            false => (due_ns, LEAST_PERCENT),
        }
    }

    /// Gives what the captures at ticks would have cost with what is in force from here on, ns.
    fn adjust_threads(&mut self, budget: Budget, cost: &Cost) -> u64 {
        let at_ticks = |thread: &ThreadCost| ThreadCost {
            capture_ns: thread.capture_ns.saturating_sub(thread.waits_ns),
            ..*thread
        };
        let all_cpu_ns: u64 = cost.threads.iter().map(|t| t.cpu_ns).sum();
        let all_ns: u64 = (cost.threads.iter().map(at_ticks))
            .map(|t| t.capture_ns)
            .sum();
        let mut then_ns = 0;
        for thread in cost.threads.iter().map(at_ticks) {
            let every = self.every(thread.utid);
            let others = ThreadCost {
                cpu_ns: all_cpu_ns - thread.cpu_ns,
                capture_ns: all_ns - thread.capture_ns,
                ..ThreadCost::default()
            };
            let next = match judge(budget, &thread, &others, every, self.stretch) {
                Verdict::Costly => (every * 2).min(MOST_EVERY),
                Verdict::Fits => every,
                Verdict::Cheap => (every / 2).max(1),
            };
            match next {
                1 => drop(self.every.remove(&thread.utid)),
                _ => drop(self.every.insert(thread.utid, next)),
            }
            then_ns += thread.capture_ns * u64::from(every) / u64::from(next);
        }
        then_ns
    }

    /// Forgets threads that have ended.
    pub(super) fn retain(&mut self, lives: impl Fn(Utid) -> bool) {
        self.every.retain(|utid, _| lives(*utid));
    }
}

/// What becomes of a stretch whose part of the budget was used so many times.
fn stretched(stretch: f64, times: f64, most: f64) -> f64 {
    let change = match (times - 1.0).abs() < TOLERANCE {
        true => 1.0,
        false => times.clamp(CHANGE.0, CHANGE.1),
    };
    (stretch * change).clamp(1.0, most)
}

/// Most that intervals are stretched.
fn most(budget: Budget, shortest_ns: u64) -> f64 {
    budget.longest_ns as f64 / shortest_ns.max(1) as f64
}

enum Verdict {
    Costly,
    Fits,
    Cheap,
}

/// Whether a thread is far more costly than the others, and would be over the budget by itself without
/// `stretch`: what was stretched for its sake is not what the others have to bear.
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
    if is_comparable && is_over && own > theirs * u128::from(COSTLY) {
        Verdict::Costly
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
    #[derive(Clone)]
    struct Machine {
        tick_ns: u64,
        capture_ns: Vec<u64>,
        besides_percent: u64,
        /// Waits of 2 ms in a second, in each thread, and what the record of one costs.
        waits: u64,
        wait_ns: u64,
    }

    const NO_WAITS: Machine = Machine {
        tick_ns: 0,
        capture_ns: Vec::new(),
        besides_percent: 0,
        waits: 0,
        wait_ns: 0,
    };

    impl Machine {
        /// A fifth of a second with a processor for each thread.
        fn run(&self, pace: &Pace, asked_ns: u64) -> Cost {
            let wall_ns = 200_000_000;
            let ticks = wall_ns / pace.interval_ns(asked_ns);
            let waits_ns = match pace.wait_ns(asked_ns) <= 2_000_000 {
                true => self.waits * self.wait_ns * wall_ns / 1_000_000_000,
                false => 0,
            };
            let threads = self
                .capture_ns
                .iter()
                .zip(1..)
                .map(|(ns, number)| ThreadCost {
                    utid: Utid(number),
                    entry: number,
                    cpu_ns: wall_ns,
                    capture_ns: ns * ticks / u64::from(pace.every(Utid(number))) + waits_ns,
                    waits_ns,
                });
            Cost {
                wall_ns,
                program_ns: wall_ns * self.capture_ns.len() as u64,
                inferred_ns: 0,
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

    const ASKED_NS: u64 = 1_000_000;

    fn within(percent: f64, longest_ns: u64) -> Pace {
        let budget = Budget {
            percent,
            longest_ns,
            is_declared: true,
        };
        Pace::new(Some(budget), ASKED_NS)
    }

    #[test]
    fn a_declared_budget_begins_with_intervals_that_fit_anywhere() {
        assert_eq!(within(1.0, 100_000_000).interval_ns(ASKED_NS), 20_000_000);
        assert_eq!(within(0.01, 100_000_000).interval_ns(ASKED_NS), 100_000_000);
        assert_eq!(within(50.0, 100_000_000).interval_ns(ASKED_NS), ASKED_NS);
        let usual = Budget {
            percent: 1.0,
            longest_ns: 1_000_000,
            is_declared: false,
        };
        assert_eq!(
            Pace::new(Some(usual), 100_000).interval_ns(100_000),
            100_000
        );
        assert_eq!(Pace::new(None, 100_000).interval_ns(100_000), 100_000);
    }

    #[test]
    fn what_was_spent_beyond_the_budget_is_paid_back_and_no_more_than_that() {
        let machine = Machine {
            tick_ns: 20_000,
            capture_ns: vec![20_000],
            besides_percent: 0,
            ..NO_WAITS
        };
        let mut pace = within(1.0, 100_000_000);
        // A start of 20 ms: what two seconds allow.
        pace.owe(20_000_000);
        let (mut spent_ns, mut allowed_ns) = (20_000_000.0, 0.0);
        let mut longest_ns = 0;
        for _ in 0..50 {
            let cost = machine.run(&pace, ASKED_NS);
            spent_ns += cost.total_ns() as f64;
            allowed_ns += cost.program_ns as f64 / 100.0;
            pace.adjust(&cost, ASKED_NS);
            longest_ns = longest_ns.max(pace.interval_ns(ASKED_NS));
        }
        let part: f64 = spent_ns / allowed_ns;
        assert!((0.9..1.1).contains(&part), "{part}");
        assert!(longest_ns > 8_000_000, "{longest_ns}");
        let interval_ns = pace.interval_ns(ASKED_NS);
        assert!(
            (3_200_000..4_800_000).contains(&interval_ns),
            "{interval_ns}"
        );
    }

    #[test]
    fn savings_and_debts_have_an_end() {
        let busy = Machine {
            tick_ns: 20_000,
            capture_ns: vec![20_000],
            besides_percent: 0,
            ..NO_WAITS
        };
        let idle = Machine {
            tick_ns: 1,
            capture_ns: vec![1],
            besides_percent: 0,
            ..NO_WAITS
        };
        let costly = Machine {
            besides_percent: 50,
            ..busy.clone()
        };
        // An hour of either, and then a minute of the ordinary.
        for before in [idle, costly] {
            let mut pace = within(1.0, 100_000_000);
            for _ in 0..18_000 {
                pace.adjust(&before.run(&pace, ASKED_NS), ASKED_NS);
            }
            let interval_ns = pace.interval_ns(ASKED_NS);
            assert!(
                [ASKED_NS, 40_000_000].contains(&interval_ns),
                "{interval_ns}"
            );
            for _ in 0..300 {
                pace.adjust(&busy.run(&pace, ASKED_NS), ASKED_NS);
            }
            let share = busy.share(&pace, ASKED_NS);
            assert!((0.85..1.15).contains(&share), "{share}");
        }
    }

    #[test]
    fn what_is_cheap_enough_is_kept_and_so_is_what_has_no_budget() {
        let cheap = Machine {
            tick_ns: 2_000,
            capture_ns: vec![2_000],
            besides_percent: 0,
            ..NO_WAITS
        };
        assert_eq!(cheap.settle(&mut within(5.0, 1_000_000), 100_000), 100_000);
        let costly = Machine {
            tick_ns: 900_000,
            capture_ns: vec![3_000],
            besides_percent: 0,
            ..NO_WAITS
        };
        assert_eq!(
            costly.settle(&mut Pace::new(None, 100_000), 100_000),
            100_000
        );
        assert_eq!(
            costly.settle(&mut within(5.0, 1_000_000), 4_000_000),
            4_000_000
        );
        assert_eq!(
            costly.settle(&mut within(5.0, 1_000_000), 100_000),
            1_000_000
        );
    }

    #[test]
    fn waits_are_records_as_asked_unless_they_take_too_much_of_the_budget() {
        let costly = Machine {
            tick_ns: 20_000,
            capture_ns: vec![20_000; 2],
            besides_percent: 50,
            waits: 400,
            wait_ns: 4_000,
        };
        let mut pace = within(1.0, 100_000_000);
        costly.settle(&mut pace, ASKED_NS);
        assert!(pace.interval_ns(ASKED_NS) > 20_000_000);
        assert_eq!(pace.wait_ns(ASKED_NS), ASKED_NS);

        let too_often = Machine {
            waits: 20_000,
            besides_percent: 0,
            ..costly.clone()
        };
        let mut longest_ns = 0;
        for _ in 0..40 {
            pace.adjust(&too_often.run(&pace, ASKED_NS), ASKED_NS);
            longest_ns = longest_ns.max(pace.wait_ns(ASKED_NS));
        }
        assert!(longest_ns > 2_000_000, "{longest_ns}");
        costly.settle(&mut pace, ASKED_NS);
        assert_eq!(pace.wait_ns(ASKED_NS), ASKED_NS);

        // Ticks that cost next to nothing do not keep waits from growing longer.
        let cheap_ticks = Machine {
            tick_ns: 200,
            capture_ns: vec![500],
            ..too_often
        };
        let mut pace = within(1.0, 100_000_000);
        let (mut spent_ns, mut of_ns) = (0, 0);
        for _ in 0..200 {
            let cost = cheap_ticks.run(&pace, ASKED_NS);
            (spent_ns, of_ns) = (spent_ns + cost.total_ns(), of_ns + cost.program_ns);
            pace.adjust(&cost, ASKED_NS);
            assert!(pace.wait_ns(ASKED_NS) <= pace.interval_ns(ASKED_NS));
        }
        let share = spent_ns as f64 * 100.0 / of_ns as f64;
        assert!(share < 4.0, "{share}");
    }

    #[test]
    fn the_interval_grows_until_the_budget_holds_and_shrinks_again() {
        let busy = Machine {
            tick_ns: 25_000,
            capture_ns: vec![15_000],
            besides_percent: 0,
            ..NO_WAITS
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
            ..NO_WAITS
        };
        assert_eq!(idle.settle(&mut pace, 1_000_000), 1_000_000);
    }

    #[test]
    fn what_does_not_depend_on_the_interval_is_paid_first() {
        let machine = |besides_percent| Machine {
            tick_ns: 20_000,
            capture_ns: vec![20_000],
            besides_percent,
            ..NO_WAITS
        };
        let mut pace = within(4.0, 100_000_000);
        machine(2).settle(&mut pace, 1_000_000);
        let share = machine(2).share(&pace, 1_000_000);
        assert!((3.7..=4.3).contains(&share), "{share}");
        // More than the budget: a tenth of it is left for captures.
        let interval_ns = machine(9).settle(&mut pace, 1_000_000);
        assert!(
            (9_000_000..11_200_000).contains(&interval_ns),
            "{interval_ns}"
        );
        // A quarter where nobody declared it, so that nothing is owed.
        let usual = Budget {
            percent: 4.0,
            longest_ns: 100_000_000,
            is_declared: false,
        };
        let mut pace = Pace::new(Some(usual), 1_000_000);
        let interval_ns = machine(9).settle(&mut pace, 1_000_000);
        assert!(
            (3_600_000..4_500_000).contains(&interval_ns),
            "{interval_ns}"
        );
    }

    #[test]
    fn with_a_declared_budget_other_threads_begin_at_their_rarest() {
        let mut pace = within(1.0, 100_000_000);
        assert_eq!(pace.leisure(), MOST_LEISURE[1]);
        assert_eq!(Pace::new(None, 1_000_000).leisure(), 1);
        // Where they take next to nothing, they soon work as usual.
        let idle = Cost {
            program_ns: 200_000_000,
            ..Cost::default()
        };
        for _ in 0..3 {
            pace.adjust(&idle, 1_000_000);
        }
        assert_eq!(pace.leisure(), 1);
    }

    #[test]
    fn hooks_go_that_take_most_of_a_declared_budget_for_some_time() {
        let stretch = |program_ns, hooks_ns| Cost {
            program_ns,
            besides_ns: 300_000,
            hooks_ns,
            ..Cost::default()
        };
        let cost = |hooks_ns| stretch(200_000_000, hooks_ns);
        let mut pace = within(1.0, 100_000_000);
        // 2 ms a poll are allowed.
        for _ in 0..40 {
            pace.adjust(&cost(1_100_000), 1_000_000);
        }
        assert!(!pace.has_to_unpatch());
        pace.adjust(&cost(1_300_000), 1_000_000);
        assert!(!pace.has_to_unpatch());
        pace.adjust(&cost(1_300_000), 1_000_000);
        assert!(pace.has_to_unpatch());
        // Sooner where they are far beyond it: five times, for a tenth of a second.
        let mut pace = within(1.0, 100_000_000);
        pace.adjust(&stretch(50_000_000, 2_500_000), 1_000_000);
        assert!(!pace.has_to_unpatch());
        pace.adjust(&stretch(50_000_000, 2_500_000), 1_000_000);
        assert!(pace.has_to_unpatch());
        // Not for a moment of much allocation.
        let mut pace = within(1.0, 100_000_000);
        for _ in 0..40 {
            pace.adjust(&stretch(50_000_000, 2_500_000), 1_000_000);
            pace.adjust(&cost(0), 1_000_000);
        }
        assert!(!pace.has_to_unpatch());
        // Nobody asked for that budget.
        let usual = Budget {
            percent: 1.0,
            longest_ns: 100_000_000,
            is_declared: false,
        };
        let mut pace = Pace::new(Some(usual), 1_000_000);
        for _ in 0..40 {
            pace.adjust(&cost(6_000_000), 1_000_000);
        }
        assert!(!pace.has_to_unpatch());
    }

    #[test]
    fn a_costly_thread_is_found_after_intervals_were_stretched() {
        let alike = Machine {
            tick_ns: 2_000,
            capture_ns: vec![200_000; 3],
            besides_percent: 0,
            ..NO_WAITS
        };
        let mut pace = within(2.0, 100_000_000);
        let before_ns = alike.settle(&mut pace, 1_000_000);
        let uneven = Machine {
            tick_ns: 2_000,
            capture_ns: vec![3_000, 30_000, 3_000],
            besides_percent: 0,
            ..NO_WAITS
        };
        // At this interval it is within the budget by itself.
        let share = 30_000.0 * 100.0 / before_ns as f64;
        assert!(share < 2.0, "{share}");
        uneven.settle(&mut pace, 1_000_000);
        assert!(pace.every(Utid(2)) > 1);
        assert_eq!(pace.interval_ns(1_000_000), 1_000_000);
    }

    #[test]
    fn one_costly_thread_is_slowed_and_the_others_keep_their_interval() {
        let machine = Machine {
            tick_ns: 2_000,
            capture_ns: vec![3_000, 3_000, 200_000, 3_000],
            besides_percent: 0,
            ..NO_WAITS
        };
        let mut pace = within(1.0, 100_000_000);
        let interval_ns = machine.settle(&mut pace, 1_000_000);
        assert!(interval_ns < 2_000_000, "{interval_ns}");
        let every: Vec<u32> = (1..=4).map(|n| pace.every(Utid(n))).collect();
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
            ..NO_WAITS
        };
        even.settle(&mut pace, 1_000_000);
        assert_eq!(pace.every(Utid(3)), 1);
        // Alone there is nobody to be more costly than.
        let alone = Machine {
            tick_ns: 2_000,
            capture_ns: vec![200_000],
            besides_percent: 0,
            ..NO_WAITS
        };
        let interval_ns = alone.settle(&mut pace, 1_000_000);
        assert!(
            interval_ns > 15_000_000 && pace.every(Utid(1)) == 1,
            "{interval_ns}"
        );
    }
}
