//! One series: which of its commits changed its level, and how sure that is.

use crate::rules::Rules;
use crate::stats::{effect, median, normal, rank, student, variance};
use crate::trend::divisive::{self, Limits};

/// Commits without which nothing can be said of times: with fewer no rank test is sure enough, however clear
/// the change.
pub const FEWEST: usize = 10;
/// Of the rank test that confirms, corrected for all commits that were searched.
const CONFIRMED: f64 = 0.05;
/// Commits of a level of times: what one commit shows may be an evening's trouble.
const SHORTEST: usize = 3;
/// Power that the smallest change that would be seen refers to.
const POWER: f64 = 0.9;

/// How a change is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Counts that are equal in every run of a level.
    Exact,
    /// By both detectors.
    Confirmed,
    /// At the end of the series, with too few runs or commits to confirm it.
    Suspected,
}

impl Proof {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Proof::Exact => "exact",
            Proof::Confirmed => "confirmed",
            Proof::Suspected => "suspected",
        }
    }
}

/// A change of the level. `relative` is a share of the level before.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The first commit of the new level.
    pub at: usize,
    /// Median over the runs of the level before `at`.
    pub before: f64,
    /// Median over the runs of the level from `at` on.
    pub after: f64,
    /// Hodges–Lehmann.
    pub shift: f64,
    /// `shift` as a share of `before`.
    pub relative: f64,
    /// Of the t-test, corrected for all commits and series that were searched; `None` for exact counts.
    pub p: Option<f64>,
    /// Of the rank test of the commits, corrected for all commits.
    pub rank_p: Option<f64>,
    /// How the change is known.
    pub proof: Proof,
}

/// What is known of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Levels {
    /// In the order of the commits.
    pub changes: Vec<Change>,
    /// There were commits enough, or counts that are exact.
    pub is_known: bool,
    /// The relative change at the end that about nine of ten series would show, and the commits that it
    /// takes.
    pub smallest_seen: Option<(f64, usize)>,
}

/// What is tested.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The runs' values, by commit.
    pub points: &'a [Vec<f64>],
    /// A count that equal programs do not change.
    pub is_exact: bool,
    /// Least absolute change that matters.
    pub floor: f64,
    /// Series that share the error rate with this one, this one included.
    pub family: usize,
}

/// Finds the changes of a series.
pub fn levels(question: &Question<'_>, rules: &Rules) -> Levels {
    match question.is_exact.then(|| exact(question, rules)).flatten() {
        Some(levels) => levels,
        None => statistical(question, rules),
    }
}

/// The changes of counts that are the same in every run of a level; `None` when they vary.
pub(super) fn exact(question: &Question<'_>, rules: &Rules) -> Option<Levels> {
    // Value, first commit and number of runs of each level.
    let mut steps: Vec<(f64, usize, usize)> = Vec::new();
    for (at, runs) in question.points.iter().enumerate() {
        let value = *runs.first()?;
        if runs.iter().any(|v| *v != value) {
            return None;
        }
        match steps.last_mut() {
            Some(last) if last.0 == value => last.2 += runs.len(),
            _ => steps.push((value, at, runs.len())),
        }
    }
    let (newest, earlier) = steps.split_last()?;
    // A value that nothing repeats may be chance, except at the end, where it may yet be repeated.
    if earlier.iter().any(|(_, _, runs)| *runs < 2) {
        return None;
    }
    let is_known = newest.2 >= 2;
    let changes = steps.windows(2).filter_map(|w| {
        let ((before, _, _), (after, at, runs)) = (w[0], w[1]);
        let shift = after - before;
        let relative = effect::relative(shift, before);
        let matters = relative.abs() >= rules.min_exact && shift.abs() >= question.floor;
        matters.then_some(Change {
            at,
            before,
            after,
            shift,
            relative,
            p: None,
            rank_p: None,
            proof: if runs < 2 {
                Proof::Suspected
            } else {
                Proof::Exact
            },
        })
    });
    Some(Levels {
        changes: changes.collect(),
        is_known,
        smallest_seen: is_known.then_some((rules.min_exact, 1)),
    })
}

fn statistical(question: &Question<'_>, rules: &Rules) -> Levels {
    let points = question.points;
    if points.len() < FEWEST {
        return Levels::default();
    }
    // Runs of one commit were made together and share that day's conditions: the commit is the unit.
    let series: Vec<f64> = points.iter().map(|runs| median(runs)).collect();
    // The best of so many splits, of so many series (Bonferroni).
    let searched = ((points.len() - 1) * question.family.max(1)) as f64;
    let limits = Limits {
        p: rules.alpha_of_half() / searched,
        min_effect: rules.min_effect,
        floor: question.floor,
        shortest: SHORTEST,
    };
    let mut splits: Vec<usize> = divisive::splits(&series, &limits)
        .iter()
        .map(|s| s.at)
        .collect();
    let changes = loop {
        let changes: Vec<(Change, bool)> = (0..splits.len())
            .map(|nth| change(question, rules, &series, &splits, nth))
            .collect();
        // What is not confirmed is taken back, and its neighbours are judged again.
        let is_last = |nth: usize| nth + 1 == splits.len();
        let may_wait =
            |nth: usize| is_last(nth) && !can_confirm(points.len(), points.len() - splits[nth]);
        let failed = (0..changes.len()).find(|nth| !(changes[*nth].1 || may_wait(*nth)));
        match failed {
            Some(nth) => splits.remove(nth),
            None => break changes.into_iter().map(|(change, _)| change).collect(),
        };
    };
    Levels {
        smallest_seen: Some(smallest_seen(
            &series,
            &splits,
            &limits,
            question.floor,
            rules,
        )),
        changes,
        is_known: true,
    }
}

/// Whether the rank test could confirm a level of the newest `after` of so many commits.
fn can_confirm(commits: usize, after: usize) -> bool {
    let smallest = rank::smallest_p(commits - after, after, false);
    after >= SHORTEST && smallest * (commits - 1) as f64 <= CONFIRMED
}

/// The nth change, and whether it is confirmed.
fn change(
    question: &Question<'_>,
    rules: &Rules,
    series: &[f64],
    splits: &[usize],
    nth: usize,
) -> (Change, bool) {
    let from = nth.checked_sub(1).map_or(0, |before| splits[before]);
    let at = splits[nth];
    let to = splits.get(nth + 1).copied().unwrap_or(series.len());
    let (x, y) = (
        question.points[from..at].concat(),
        question.points[at..to].concat(),
    );
    let shift = effect::shift(&x, &y);
    let before = median(&x);
    let relative = effect::relative(shift, before);
    let splits_searched = (series.len() - 1) as f64;
    let searched = splits_searched * question.family.max(1) as f64;
    let (left, right) = (&series[from..at], &series[at..to]);
    let p = (student::test(left, right) * searched).min(1.0);
    let is_up = shift > 0.0;
    let to_right = shown_by(series, splits, nth, nth + 1, is_up);
    let to_left = shown_by(series, splits, nth + 1, nth, !is_up);
    let rank_p = (to_right.max(to_left) * splits_searched).min(1.0);
    let least = (rules.min_effect * before.abs()).max(question.floor);
    let is_large = p <= rules.alpha_of_half() && shift.abs() >= least;
    let is_confirmed = is_large && rank_p <= CONFIRMED && to - at >= SHORTEST;
    let change = Change {
        at,
        before,
        after: median(&y),
        shift,
        relative,
        p: Some(p),
        rank_p: Some(rank_p),
        proof: match is_confirmed {
            true => Proof::Confirmed,
            false => Proof::Suspected,
        },
    };
    (change, is_confirmed)
}

/// Rank test of a level against all other commits, which are moved onto another level: they show the noise,
/// and a level alone has few of them.
fn shown_by(series: &[f64], splits: &[usize], onto: usize, level: usize, is_up: bool) -> f64 {
    let borders: Vec<usize> = [&[0], splits, &[series.len()]].concat();
    let part = |nth: usize| &series[borders[nth]..borders[nth + 1]];
    let target = median(part(onto));
    let others = (0..=splits.len()).filter(|nth| *nth != level);
    let moved = others.flat_map(|nth| {
        let own = median(part(nth));
        part(nth).iter().map(move |value| value - own + target)
    });
    let moved: Vec<f64> = moved.collect();
    match is_up {
        true => rank::rank_sum(&moved, part(level)),
        false => rank::rank_sum(part(level), &moved),
    }
}

/// (t + z₀.₉)·s·√(1/(n−k) + 1/k) of the newest level, with s from the values around their levels, for the
/// fewest commits k that can be confirmed.
fn smallest_seen(
    series: &[f64],
    splits: &[usize],
    limits: &Limits,
    floor: f64,
    rules: &Rules,
) -> (f64, usize) {
    let borders: Vec<usize> = [&[0], splits, &[series.len()]].concat();
    let parts = || borders.windows(2).map(|w| &series[w[0]..w[1]]);
    let squares: f64 = parts()
        .map(|part| variance(part) * (part.len() - 1) as f64)
        .sum();
    let freedom = series.len() - parts().count();
    let after = (1..series.len()).find(|after| can_confirm(series.len(), *after));
    let after = after.unwrap_or(series.len() / 2);
    let before = series.len() - after;
    let spread = (squares / freedom.max(1) as f64).sqrt()
        * (1.0 / before as f64 + 1.0 / after as f64).sqrt();
    let t = normal::student_two_sided(limits.p, freedom) + normal::quantile(POWER);
    let level = parts().next_back().map_or(0.0, median);
    let least = (rules.min_effect * level).max(floor);
    (effect::relative(least.max(t * spread), level), after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn ask(points: &[Vec<f64>], is_exact: bool) -> Levels {
        let question = Question {
            points,
            is_exact,
            floor: 1.0,
            family: 1,
        };
        levels(&question, &Rules::default())
    }

    /// Commits with `runs` runs each around a level; one percent of noise between and within commits.
    fn commits(random: &mut Random, level: f64, count: usize, runs: usize) -> Vec<Vec<f64>> {
        let mut noise = || 1.0 + 0.01 * random.normal();
        let mut commit = || -> Vec<f64> {
            let day = noise();
            (0..runs).map(|_| level * day * noise()).collect()
        };
        (0..count).map(|_| commit()).collect()
    }

    #[test]
    fn a_step_is_found_with_the_figures_of_scipy() {
        let points: Vec<Vec<f64>> = [
            [1002.0, 1007.0, 996.0],
            [1011.0, 1003.0, 1009.0],
            [994.0, 991.0, 999.0],
            [1005.0, 998.0, 1001.0],
            [1000.0, 1008.0, 1004.0],
            [1013.0, 1006.0, 1010.0],
            [1081.0, 1074.0, 1090.0],
            [1068.0, 1077.0, 1079.0],
            [1085.0, 1080.0, 1071.0],
            [1076.0, 1070.0, 1088.0],
        ]
        .map(Vec::from)
        .into();
        let found = ask(&points, false);
        let [change] = &found.changes[..] else {
            panic!("{found:?}");
        };
        assert_eq!((change.at, change.proof), (6, Proof::Confirmed));
        assert_eq!((change.before, change.after), (1003.5, 1078.0));
        // The median of the runs' differences; of the commits' medians ttest_ind and mannwhitneyu
        // (alternative="greater", method="exact"), both times 9 splits: numpy 2, scipy 1.16.
        assert_eq!(change.shift, 75.0);
        let p = change.p.expect("a test");
        assert!(
            (p / (9.0 * 9.681_705_356_748_493e-9) - 1.0).abs() < 1e-9,
            "{p}"
        );
        let rank_p = change.rank_p.expect("a test");
        assert!((rank_p / (9.0 / 210.0) - 1.0).abs() < 1e-9, "{rank_p}");
        // (t.isf(0.005 / 9 / 2, 8) + norm.ppf(0.9)) times the pooled deviation, of the newest level.
        let question = Question {
            points: &points,
            is_exact: false,
            floor: 1.0,
            family: 1,
        };
        let rules = Rules {
            min_effect: 0.01,
            ..Rules::default()
        };
        let (seen, commits) = levels(&question, &rules).smallest_seen.expect("is known");
        assert!(
            (seen - 0.019_772_885).abs() < 1e-5 && commits == 4,
            "{seen}, {commits}"
        );
    }

    #[test]
    fn counts_are_compared_exactly_from_two_runs_on() {
        let twice =
            |values: &[f64]| -> Vec<Vec<f64>> { values.iter().map(|v| vec![*v; 2]).collect() };
        let found = ask(&twice(&[500.0, 500.0, 512.0, 490.0]), true);
        let changes: Vec<(usize, Proof, f64)> = found
            .changes
            .iter()
            .map(|c| (c.at, c.proof, c.shift))
            .collect();
        let expected = [(2, Proof::Exact, 12.0), (3, Proof::Exact, -22.0)];
        assert_eq!(changes, expected);
        assert!(found.is_known);
        // Two percent are the least that matters.
        assert_eq!(ask(&twice(&[5000.0, 5090.0]), true).changes, []);
        // One run at the end may be chance.
        let young = ask(&[vec![500.0; 2], vec![510.0]], true);
        assert_eq!(young.changes[0].proof, Proof::Suspected);
        assert!(!young.is_known);
        // Counts that vary are no exact ones.
        let loose = ask(&[vec![500.0, 501.0], vec![510.0, 510.0]], true);
        assert_eq!(loose, Levels::default());
    }

    #[test]
    fn a_change_at_the_newest_commit_is_a_suspicion_until_others_show_it() {
        let mut random = Random::new(3);
        let mut points = commits(&mut random, 1000.0, 20, 5);
        for more in 1..=3 {
            points.extend(commits(&mut random, 1200.0, 1, 5));
            let found = ask(&points, false);
            assert_eq!(found.changes.len(), 1);
            let proof = match more {
                3 => Proof::Confirmed,
                _ => Proof::Suspected,
            };
            assert_eq!((found.changes[0].at, found.changes[0].proof), (20, proof));
        }
        // It was an evening's trouble: the next commits are as before.
        points.truncate(21);
        points.extend(commits(&mut random, 1000.0, 2, 5));
        assert_eq!(ask(&points, false).changes, []);
    }

    #[test]
    fn each_step_of_a_staircase_is_found() {
        let mut random = Random::new(7);
        let points = [
            commits(&mut random, 1000.0, 10, 3),
            commits(&mut random, 1100.0, 4, 3),
            commits(&mut random, 2000.0, 4, 3),
        ];
        let found = ask(&points.concat(), false);
        let places: Vec<usize> = found.changes.iter().map(|c| c.at).collect();
        assert_eq!(places, [10, 14]);
        assert!(found.changes.iter().all(|c| c.proof == Proof::Confirmed));
    }

    #[test]
    fn too_few_commits_say_nothing_of_times() {
        let mut random = Random::new(4);
        let points = commits(&mut random, 1000.0, FEWEST - 1, 10);
        assert_eq!(ask(&points, false), Levels::default());
        let points = commits(&mut random, 1000.0, FEWEST, 1);
        assert!(ask(&points, false).is_known);
    }

    /// How many series the tests of error rates take: `STACKBEAT_TREND_SERIES`, for
    /// docs/measurements/trend.md, or `usual`.
    fn series(usual: usize) -> usize {
        let asked = std::env::var("STACKBEAT_TREND_SERIES");
        asked.map_or(usual, |n| n.parse().expect("a number"))
    }

    #[test]
    fn what_would_be_seen_is_seen() {
        let mut random = Random::new(5);
        let (mut missed, series) = (0, series(200));
        for _ in 0..series {
            let points = commits(&mut random, 1000.0, 20, 1);
            let (seen, after) = ask(&points, false).smallest_seen.expect("is known");
            let mut slower = points.clone();
            for runs in &mut slower[20 - after..] {
                runs[0] *= 1.0 + seen;
            }
            let found = ask(&slower, false);
            missed += usize::from(found.changes.is_empty());
        }
        println!("of {series} series with a change that would be seen {missed} do not show it");
        assert!(missed * 100 <= series * 15, "{missed} of {series}");
    }

    #[test]
    fn noise_is_seldom_called_a_change() {
        let mut random = Random::new(6);
        let rules = Rules::default();
        let (mut alarms, series) = ([0; 3], series(400));
        for _ in 0..series {
            for (kind, alarms) in alarms.iter_mut().enumerate() {
                let mut value = || match kind {
                    0 => 1000.0 * (1.0 + 0.04 * random.normal()),
                    // Skewed, as times are.
                    1 => 1000.0 + 100.0 * random.normal().exp(),
                    // Now and then a commit whose runs were disturbed.
                    _ => {
                        let disturbed = if random.below(12) == 0 { 1.3 } else { 1.0 };
                        1000.0 * disturbed * (1.0 + 0.02 * random.normal())
                    }
                };
                let points: Vec<Vec<f64>> = (0..40).map(|_| vec![value()]).collect();
                let question = Question {
                    points: &points,
                    is_exact: false,
                    floor: 1.0,
                    family: 1,
                };
                let found = levels(&question, &rules);
                let sure = |c: &&Change| c.proof == Proof::Confirmed;
                *alarms += usize::from(found.changes.iter().any(|c| sure(&c)));
            }
        }
        println!("of {series} series normal, skewed, with outliers {alarms:?} are called changed");
        // Half a percent is allowed: 2 of 400 each, and the deviation of that is 1.4.
        assert!(
            alarms.iter().all(|n| n * 400 <= 6 * series),
            "{alarms:?} of {series}"
        );
    }
}
