//! One comparison: the runs of both sides by one metric, and one of three answers.

use crate::random::Random;
use crate::rules::Rules;
use crate::stats::interval::{self, Grouped, Interval};
use crate::stats::{effect, median, noise_band, normal, rank};

/// What is known after a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The candidate has more of it.
    Higher,
    /// The candidate has less of it.
    Lower,
    /// Equal up to the least change that matters.
    Same,
    /// Too few runs, or too noisy ones.
    Unknown,
}

impl Answer {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Answer::Higher => "higher",
            Answer::Lower => "lower",
            Answer::Same => "same",
            Answer::Unknown => "unknown",
        }
    }
}

/// One metric of both sides. Relative numbers are shares of the baseline's median.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Median of the baseline's runs, in the metric's unit.
    pub baseline_median: f64,
    /// Median of the candidate's runs, in the metric's unit.
    pub candidate_median: f64,
    /// Hodges–Lehmann.
    pub shift: f64,
    /// `shift` as a share of the baseline's median.
    pub relative: f64,
    /// Of `relative`.
    pub interval: Interval,
    /// Chance of a rank sum this high (or this low) between equal programs; `None` when counts were
    /// compared exactly.
    pub p: Option<f64>,
    /// The noise band, when there are runs enough for one.
    pub noise_band: Option<f64>,
    /// The smallest relative change that would have been called different in nine of ten gates.
    pub smallest_seen: f64,
    /// What follows from these numbers.
    pub answer: Answer,
    /// Even where the answer is unknown: an increase that matters is ruled out.
    pub is_not_higher: bool,
    /// Runs a side with which the answer would probably be known.
    pub runs_needed: Option<usize>,
}

/// What a comparison looks at.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Values of the baseline, one per run.
    pub baseline: &'a [f64],
    /// Values of the candidate, one per run.
    pub candidate: &'a [f64],
    /// The same values by group (baseline, candidate); `None`: runs are independent of each other.
    pub groups: Option<(Grouped, Grouped)>,
    /// Counts that equal programs do not change.
    pub is_exact: bool,
    /// Least absolute change that matters.
    pub floor: f64,
    /// Least relative change that matters, where it is not that of the rules.
    pub min_effect: Option<f64>,
    /// How far the machine itself seems to have changed, relative.
    pub drift: f64,
    /// Only a difference is of interest: what can be none is called unknown without an interval or a fence,
    /// which cost most of the time.
    pub only_differences: bool,
}

impl<'a> Question<'a> {
    /// Runs that may vary, without groups, of a machine that stayed the same; all is to be said about them.
    /// `floor` is the least absolute change that matters, in the unit of the values.
    pub fn new(baseline: &'a [f64], candidate: &'a [f64], floor: f64) -> Question<'a> {
        Question {
            baseline,
            candidate,
            groups: None,
            is_exact: false,
            floor,
            min_effect: None,
            drift: 0.0,
            only_differences: false,
        }
    }
}

/// Power that "smallest change that could have been seen" refers to.
const POWER: f64 = 0.9;
/// Nobody makes more runs than this.
const MOST_RUNS: f64 = 1000.0;

/// Compares two sides.
pub fn compare(question: &Question<'_>, rules: &Rules) -> Comparison {
    let (x, y) = (question.baseline, question.candidate);
    let middle = median(x);
    let mut result = Comparison {
        baseline_median: middle,
        candidate_median: median(y),
        shift: 0.0,
        relative: 0.0,
        interval: Interval::default(),
        p: None,
        noise_band: None,
        smallest_seen: f64::INFINITY,
        answer: Answer::Unknown,
        is_not_higher: false,
        runs_needed: None,
    };
    if x.is_empty() || y.is_empty() {
        return result;
    }
    if question.is_exact && is_constant(x) && is_apart(x[0], y) && x.len() > 1 && y.len() > 1 {
        exact(question, rules, &mut result);
        return result;
    }
    // Amounts, not shares: a baseline of nothing has no shares.
    let min_effect = question.min_effect.unwrap_or(rules.min_effect);
    let least = (min_effect * middle).max(question.floor);
    let is_paired = rules.pairing.is_paired() && x.len() == y.len();
    let differences: Vec<f64> = y.iter().zip(x).map(|(y, x)| y - x).collect();
    result.shift = match is_paired {
        true => effect::paired_shift(&differences),
        false => effect::shift(x, y),
    };
    result.relative = effect::relative(result.shift, middle);
    if question.only_differences && result.shift.abs() < least {
        return result;
    }
    let (higher, lower) = match is_paired {
        true => {
            let mirrored: Vec<f64> = differences.iter().map(|d| -d).collect();
            (
                rank::signed_rank(&differences),
                rank::signed_rank(&mirrored),
            )
        }
        false => rank::rank_sum_tails(x, y),
    };
    let p = higher.min(lower);
    result.p = Some(p);
    let is_significant = p <= rules.alpha_of_half();
    if question.only_differences && !is_significant {
        return result;
    }
    let mut random = Random::new(rules.seed);
    let runs = x.len().min(y.len());
    let absolute = if is_paired {
        interval::paired_shift(&differences, rules.confidence, rules.draws, &mut random)
    } else {
        let flat = (Grouped::flat(x), Grouped::flat(y));
        let (a, b) = question.groups.as_ref().unwrap_or(&flat);
        interval::shift(a, b, rules.confidence, rules.draws, &mut random)
    };
    let share = |amount: f64| effect::relative(amount, middle);
    result.interval = Interval {
        low: share(absolute.low),
        high: share(absolute.high),
        inner_low: share(absolute.inner_low),
        inner_high: share(absolute.inner_high),
        error: share(absolute.error),
    };
    result.noise_band = match is_paired {
        true => noise_band::of_pairs(&differences, middle, &mut random),
        false => noise_band::relative(x, y.len(), &mut random),
    };
    let noise_band = (result.noise_band.unwrap_or(0.0) + question.drift) * middle;
    let z = normal::quantile(1.0 - rules.alpha_of_half()) + normal::quantile(POWER);
    let enough = runs >= rules.fewest_runs();
    if enough {
        result.smallest_seen = share(least.max(noise_band).max(z * absolute.error));
        result.is_not_higher = absolute.inner_high < least;
    }
    let is_large = result.shift.abs() >= least.max(noise_band);
    result.answer = if is_significant && is_large && enough {
        match result.shift > 0.0 {
            true if absolute.low > 0.0 => Answer::Higher,
            false if absolute.high < 0.0 => Answer::Lower,
            _ => Answer::Unknown,
        }
    } else if enough && absolute.inner_low > -least && absolute.inner_high < least {
        Answer::Same
    } else {
        Answer::Unknown
    };
    if result.answer == Answer::Unknown {
        let size = result.shift.abs();
        result.runs_needed = Some(runs_needed(
            size, absolute, runs, least, noise_band, z, rules,
        ));
    }
    result
}

fn is_constant(values: &[f64]) -> bool {
    values.iter().all(|v| *v == values[0])
}

/// Whether a side is the other's constant, or lies on one side of it as a whole.
fn is_apart(constant: f64, values: &[f64]) -> bool {
    is_constant(values)
        || values.iter().all(|v| *v > constant)
        || values.iter().all(|v| *v < constant)
}

fn exact(question: &Question<'_>, rules: &Rules, result: &mut Comparison) {
    result.shift = result.candidate_median - result.baseline_median;
    result.relative = effect::relative(result.shift, result.baseline_median);
    let share =
        |value: f64| effect::relative(value - result.baseline_median, result.baseline_median);
    let all = || question.candidate.iter().map(|v| share(*v));
    let low = all().fold(f64::INFINITY, f64::min);
    let high = all().fold(f64::NEG_INFINITY, f64::max);
    result.interval = Interval {
        low,
        high,
        inner_low: low,
        inner_high: high,
        error: 0.0,
    };
    let floor = effect::relative(question.floor, result.baseline_median);
    result.smallest_seen = rules.min_exact.max(floor);
    result.answer =
        if result.relative.abs() < rules.min_exact || result.shift.abs() < question.floor {
            Answer::Same
        } else if result.shift > 0.0 {
            Answer::Higher
        } else {
            Answer::Lower
        };
    result.is_not_higher = result.answer != Answer::Higher;
}

/// Errors shrink with the root of the number of runs: how many make the answer clear?
fn runs_needed(
    size: f64,
    interval: Interval,
    runs: usize,
    least: f64,
    noise_band: f64,
    z: f64,
    rules: &Rules,
) -> usize {
    let factor = if size >= least {
        (z * interval.error / size).max(noise_band / size)
    } else {
        // "The same" would do, but close to the least effect no number of runs shows it. Then as many as find
        // the least effect in nine of ten gates.
        let half = (interval.inner_high - interval.inner_low) / 2.0;
        (half / (least - size)).min((z * interval.error).max(noise_band) / least)
    };
    let needed = runs as f64 * factor * factor;
    let needed = if needed.is_finite() {
        needed
    } else {
        MOST_RUNS
    };
    (needed.ceil().min(MOST_RUNS) as usize)
        .max(rules.fewest_runs())
        .max(runs + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Pairing;

    fn ask(baseline: &[f64], candidate: &[f64], is_exact: bool) -> Comparison {
        let question = Question {
            is_exact,
            ..Question::new(baseline, candidate, 1.0)
        };
        let comparison = compare(&question, &Rules::default());
        // Without the description of what did not change, the answer is the same where it is a difference.
        let brief = Question {
            only_differences: true,
            ..question
        };
        let brief = compare(&brief, &Rules::default());
        match comparison.answer {
            Answer::Higher | Answer::Lower => assert_eq!(brief, comparison),
            _ => assert!(matches!(brief.answer, Answer::Unknown | Answer::Same)),
        }
        comparison
    }

    /// Ten runs around `middle` with a spread of about one percent.
    fn runs(middle: f64, seed: u64, count: usize) -> Vec<f64> {
        let mut random = Random::new(seed);
        (0..count)
            .map(|_| middle * (1.0 + 0.01 * random.normal()))
            .collect()
    }

    #[test]
    fn three_answers() {
        let slower = ask(&runs(1000.0, 1, 10), &runs(1060.0, 2, 10), false);
        assert_eq!(slower.answer, Answer::Higher);
        assert!((0.04..0.08).contains(&slower.relative), "{slower:?}");
        let faster = ask(&runs(1000.0, 1, 10), &runs(940.0, 2, 10), false);
        assert_eq!(faster.answer, Answer::Lower);
        assert!(faster.is_not_higher);
        let same = ask(&runs(1000.0, 1, 10), &runs(1000.0, 2, 10), false);
        assert_eq!(same.answer, Answer::Same);
        assert!((0.03..0.05).contains(&same.smallest_seen), "{same:?}");
        let few = ask(&runs(1000.0, 1, 3), &runs(1200.0, 2, 3), false);
        assert_eq!(few.answer, Answer::Unknown);
        assert!(few.runs_needed.is_some_and(|n| (5..10).contains(&n)));
        assert_eq!(few.smallest_seen, f64::INFINITY);
    }

    /// Pairs whose runs share the machine's speed, which varies by 15 %, and differ by half a percent
    /// besides.
    fn pairs(slower: f64, seed: u64) -> (Vec<f64>, Vec<f64>) {
        let mut random = Random::new(seed);
        let pairs = (0..10).map(|_| {
            let speed = 1e9 * (0.15 * random.normal()).exp();
            let mut run = |middle: f64| speed * middle * (1.0 + 0.004 * random.normal());
            (run(1.0), run(slower))
        });
        pairs.unzip()
    }

    #[test]
    fn pairs_show_what_the_machine_hides() {
        let paired = Rules {
            pairing: Pairing::Together,
            ..Rules::default()
        };
        for seed in 0..20 {
            let (x, y) = pairs(1.05, seed);
            let question = Question::new(&x, &y, 1e6);
            let found = compare(&question, &paired);
            assert_eq!(found.answer, Answer::Higher, "{found:?}");
            assert!((0.03..0.07).contains(&found.relative), "{found:?}");
            assert_eq!(
                compare(&question, &Rules::default()).answer,
                Answer::Unknown
            );
            let (x, y) = pairs(1.0, seed);
            let same = compare(&Question::new(&x, &y, 1e6), &paired);
            assert_eq!(same.answer, Answer::Same, "{same:?}");
        }
    }

    #[test]
    fn noise_asks_for_more_runs() {
        let loud = |middle: f64, seed| -> Vec<f64> {
            let mut random = Random::new(seed);
            (0..8)
                .map(|_| middle * (1.0 + 0.08 * random.normal()))
                .collect()
        };
        let unclear = ask(&loud(1000.0, 1), &loud(1005.0, 2), false);
        assert_eq!(unclear.answer, Answer::Unknown);
        assert!(unclear.runs_needed.is_some_and(|n| n > 20), "{unclear:?}");
        assert!(unclear.smallest_seen > 0.08);
    }

    #[test]
    fn a_change_close_to_the_least_effect_asks_for_no_more_runs_than_find_it() {
        let x = runs(1000.0, 1, 10);
        let y: Vec<f64> = x.iter().map(|v| v + 28.0).collect();
        let close = ask(&x, &y, false);
        assert_eq!(close.answer, Answer::Unknown, "{close:?}");
        let needed = close.runs_needed.expect("is said");
        assert!((11..=30).contains(&needed), "{close:?}");
        // With so many runs the least effect is found in nine of ten.
        let found = (0..40).filter(|seed| {
            let (x, y) = (
                runs(1000.0, 2 * seed, needed),
                runs(1036.0, 2 * seed + 1, needed),
            );
            ask(&x, &y, false).answer == Answer::Higher
        });
        assert!(found.count() >= 30);
    }

    #[test]
    fn equal_counts_are_compared_exactly_with_two_runs() {
        let more = ask(&[1000.0; 2], &[1040.0; 2], true);
        assert_eq!((more.answer, more.p), (Answer::Higher, None));
        assert_eq!(ask(&[1000.0; 2], &[1000.0; 2], true).answer, Answer::Same);
        // Not equal in every run of the baseline: no exact comparison.
        assert_eq!(
            ask(&[1000.0, 1001.0], &[1040.0; 2], true).answer,
            Answer::Unknown
        );
        // Below the least change that matters.
        assert_eq!(ask(&[1e6; 2], &[1e6 + 4.0; 2], true).answer, Answer::Same);
        // What lies below the floor is not said to be seen.
        let question = Question {
            is_exact: true,
            ..Question::new(&[10.0; 2], &[14.0; 2], 100.0)
        };
        let small = compare(&question, &Rules::default());
        assert_eq!((small.answer, small.smallest_seen), (Answer::Same, 10.0));
    }

    #[test]
    fn something_new_is_higher() {
        let new = ask(&[0.0; 6], &[50.0, 51.0, 49.0, 52.0, 50.0, 48.0], false);
        assert_eq!(new.answer, Answer::Higher);
        assert_eq!(new.relative, f64::INFINITY);
        // Too little to matter.
        let tiny = ask(&[0.0; 6], &[0.1; 6], false);
        assert_ne!(tiny.answer, Answer::Higher);
    }

    #[test]
    fn equal_programs_are_seldom_called_different() {
        let mut random = Random::new(21);
        let rules = Rules {
            draws: 300,
            ..Rules::default()
        };
        let mut alarms = 0;
        for _ in 0..1500 {
            // Two percent of noise and now and then an outlier.
            let mut draw = || -> Vec<f64> {
                let one = |_| {
                    let outlier = if random.below(12) == 0 { 1.3 } else { 1.0 };
                    1e9 * outlier * (1.0 + 0.02 * random.normal())
                };
                (0..8).map(one).collect()
            };
            let (x, y) = (draw(), draw());
            let question = Question::new(&x, &y, 1e6);
            alarms += usize::from(compare(&question, &rules).answer == Answer::Higher);
        }
        // 7.5 would be half a percent.
        assert!(alarms <= 8, "{alarms} of 1500");
    }
}
