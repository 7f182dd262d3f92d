//! Where a series changes its level: E-divisive with Student's t-test.
//!
//! Matteson and James (arXiv 1306.4933) split a series where the energy distance between the parts is
//! largest, and go on within the parts. Hunter, now Apache Otava (Fleming et al., arXiv 2301.03034), made
//! that deterministic and cheap: a t-test in place of permutations, windows of fixed length, and weak splits
//! first, of which the weakest are taken back until all are strong.

use crate::stats::{mean, student};

/// Values analysed together, as in Otava. Half of them are new in each step.
const WINDOW: usize = 50;
/// How much weaker than asked for a split may be at first.
const WEAK: f64 = 10.0;

/// A split of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// The first value of the new level.
    pub at: usize,
    /// Of a t-test between the levels on both sides, not corrected for having searched.
    pub p: f64,
}

/// What a split must have to stay.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest p value of a split's t-test.
    pub p: f64,
    /// Least change of the mean, as a share of the level before.
    pub min_effect: f64,
    /// Least absolute change of the mean.
    pub floor: f64,
    /// Fewest values of a level; the last one may be shorter, it is not over.
    pub shortest: usize,
}

/// The splits of a series, in order.
pub fn splits(series: &[f64], limits: &Limits) -> Vec<Split> {
    let mut strong: Vec<usize> = weak(series, (WEAK * limits.p).min(0.5));
    while let Some(weakest) = weakest(series, &strong, limits) {
        strong.remove(weakest);
    }
    let p = |nth| p_of(series, &strong, nth);
    (0..strong.len())
        .map(|nth| Split {
            at: strong[nth],
            p: p(nth),
        })
        .collect()
}

/// The levels beside a split.
fn sides<'a>(series: &'a [f64], splits: &[usize], nth: usize) -> (&'a [f64], &'a [f64]) {
    let from = nth.checked_sub(1).map_or(0, |before| splits[before]);
    let to = splits.get(nth + 1).copied().unwrap_or(series.len());
    (&series[from..splits[nth]], &series[splits[nth]..to])
}

fn p_of(series: &[f64], splits: &[usize], nth: usize) -> f64 {
    let (left, right) = sides(series, splits, nth);
    student::test(left, right)
}

/// The split to take back: one beside a level that is too short, else the one with the highest p when that is
/// too high, else the one with the smallest change when that is too small.
fn weakest(series: &[f64], splits: &[usize], limits: &Limits) -> Option<usize> {
    let is_short = |nth: &usize| {
        let (left, right) = sides(series, splits, *nth);
        let ends = splits[*nth] + right.len() == series.len();
        left.len() < limits.shortest || right.len() < limits.shortest && !ends
    };
    let all = || 0..splits.len();
    let least = |value: &dyn Fn(usize) -> f64| all().min_by(|a, b| value(*a).total_cmp(&value(*b)));
    let p = |nth| p_of(series, splits, nth);
    // By how much a change exceeds what it must have.
    let size = |nth| {
        let (left, right) = sides(series, splits, nth);
        let (before, after) = (mean(left), mean(right));
        let wanted = (limits.min_effect * before.abs()).max(limits.floor);
        match wanted > 0.0 {
            true => (after - before).abs() / wanted,
            false => f64::INFINITY,
        }
    };
    let short = all()
        .filter(is_short)
        .max_by(|a, b| p(*a).total_cmp(&p(*b)));
    short
        .or_else(|| least(&|nth| -p(nth)).filter(|nth| p(*nth) >= limits.p))
        .or_else(|| least(&size).filter(|nth| size(*nth) < 1.0))
}

/// Splits with a p below `limit`, by overlapping windows.
fn weak(series: &[f64], limit: f64) -> Vec<usize> {
    let mut found = Vec::new();
    let mut start = 0;
    while start < series.len() {
        let end = (start + WINDOW).min(series.len());
        let inside = of_window(&series[start..end], limit);
        let last = inside.last().map_or(0, |at| start + at);
        found.extend(inside.into_iter().map(|at| start + at));
        start = last.max(start + WINDOW / 2);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Splits of one window: the most distant parts first, until they do not differ significantly. What is tested
/// is X against Y up to where it was most distant, not up to the part's end as in Otava: a level that came
/// back would hide the change to it.
fn of_window(window: &[f64], limit: f64) -> Vec<usize> {
    let mut splits: Vec<usize> = Vec::new();
    loop {
        let borders: Vec<usize> = [&[0], &splits[..], &[window.len()]].concat();
        let parts = borders.windows(2).filter_map(|w| {
            let found = most_distant(&window[w[0]..w[1]])?;
            Some((w[0], found))
        });
        // Of equal ones the first.
        let best = parts.reduce(|a, b| if b.1.distance > a.1.distance { b } else { a });
        let Some((from, best)) = best else { break };
        let (at, end) = (from + best.at, from + best.end);
        if student::test(&window[from..at], &window[at..end]) >= limit {
            break;
        }
        splits.insert(splits.partition_point(|s| *s < at), at);
    }
    splits
}

/// Two neighbouring parts.
#[derive(Clone, Copy, Debug)]
struct Parts {
    /// The first value of the second.
    at: usize,
    /// One beyond the last of the second.
    end: usize,
    distance: f64,
}

/// The split of a part with the largest distance between X, all before it, and Y, what follows (up to any
/// end):
///
///   Q = 2/(n+m)·Σ|xᵢ − yⱼ| − 2m/((n+m)(n−1))·Σ|xᵢ − xₖ| − 2n/((n+m)(m−1))·Σ|yⱼ − yₖ|
///
/// that is nm/(n+m) times the energy distance (arXiv 1306.4933, with α = 1).
fn most_distant(part: &[f64]) -> Option<Parts> {
    let length = part.len();
    // below[k][j]: distances of value k to the first j values.
    let below: Vec<Vec<f64>> = (0..length)
        .map(|k| {
            let mut sums = vec![0.0; k + 1];
            for j in 0..k {
                sums[j + 1] = sums[j] + (part[k] - part[j]).abs();
            }
            sums
        })
        .collect();
    let mut best: Option<Parts> = None;
    let mut within_x = 0.0;
    for at in 1..length {
        within_x += below[at - 1][at - 1];
        let (mut between, mut within_y) = (0.0, 0.0);
        let n = at as f64;
        for (last, sums) in below.iter().enumerate().skip(at) {
            between += sums[at];
            within_y += sums[last] - sums[at];
            let m = (last + 1 - at) as f64;
            let mut distance = 2.0 / (n + m) * between;
            if at > 1 {
                distance -= 2.0 * m / ((n + m) * (n - 1.0)) * within_x;
            }
            if last > at {
                distance -= 2.0 * n / ((n + m) * (m - 1.0)) * within_y;
            }
            if best.is_none_or(|best| distance > best.distance) {
                best = Some(Parts {
                    at,
                    end: last + 1,
                    distance,
                });
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Levels with whole-numbered noise of ± 10, so that other implementations can be given the same values.
    pub(crate) fn series(seed: u64, levels: &[(f64, usize)]) -> Vec<f64> {
        let mut random = Random::new(seed);
        let mut values = Vec::new();
        for (level, count) in levels {
            values.extend((0..*count).map(|_| level + random.below(21) as f64 - 10.0));
        }
        values
    }

    fn limits(p: f64) -> Limits {
        Limits {
            p,
            min_effect: 0.0,
            floor: 0.0,
            shortest: 1,
        }
    }

    #[test]
    fn splits_are_those_of_otava() {
        // Places: otava.analysis.compute_change_points(window_len=50, max_pvalue=0.001), apache-otava 0.8.0.
        // Its p comes from deviations divided by n, not n − 1; here it is scipy.stats.ttest_ind of the same
        // levels.
        type Case = (u64, &'static [(f64, usize)], &'static [(usize, f64)]);
        let cases: [Case; 7] = [
            (1, &[(1000.0, 30)], &[]),
            (
                2,
                &[(1000.0, 20), (1030.0, 20)],
                &[(20, 2.707_055_327_278_339e-19)],
            ),
            (
                4,
                &[(500.0, 60), (520.0, 30), (505.0, 50)],
                &[
                    (60, 5.613_174_084_504_397e-22),
                    (90, 9.437_384_583_455_455e-15),
                ],
            ),
            (
                5,
                &[(1000.0, 25), (1060.0, 3)],
                &[(25, 2.779_136_229_243_780_7e-14)],
            ),
            (
                6,
                &[(1000.0, 40), (1012.0, 40)],
                &[(40, 1.663_197_853_112_213_3e-12)],
            ),
            // One value that lies apart is no level.
            (7, &[(1000.0, 18), (1100.0, 1), (1000.0, 18)], &[]),
            (
                8,
                &[(1000.0, 33), (1040.0, 22), (1055.0, 28), (990.0, 41)],
                &[
                    (33, 5.728_399_405_664_329_6e-31),
                    (56, 3.472_454_379_517_241e-13),
                    (83, 3.047_550_040_305_055e-50),
                ],
            ),
        ];
        for (seed, levels, expected) in cases {
            let limits = Limits {
                shortest: 2,
                ..limits(0.001)
            };
            let found = splits(&series(seed, levels), &limits);
            let places: Vec<usize> = found.iter().map(|s| s.at).collect();
            let wanted: Vec<usize> = expected.iter().map(|(at, _)| *at).collect();
            assert_eq!(places, wanted, "{levels:?}");
            for (split, (_, p)) in found.iter().zip(expected) {
                assert!((split.p / p - 1.0).abs() < 1e-6, "{levels:?}: {split:?}");
            }
        }
    }

    #[test]
    fn the_distance_is_that_of_otava() {
        // PairDistanceCalculator.get_candidate_change_point of the whole series, apache-otava 0.8.0.
        let values = series(3, &[(1000.0, 12), (1025.0, 7), (1000.0, 15)]);
        let found = most_distant(&values).expect("long enough");
        assert_eq!((found.at, found.end), (12, 19));
        assert!((found.distance - 144.191_387_559_808_62).abs() < 1e-9);
    }

    #[test]
    fn a_level_that_came_back_is_found() {
        let values = series(3, &[(1000.0, 12), (1025.0, 7), (1000.0, 15)]);
        let places: Vec<usize> = splits(&values, &limits(0.001))
            .iter()
            .map(|s| s.at)
            .collect();
        assert_eq!(places, [12, 19]);
    }

    #[test]
    fn small_changes_and_short_levels_are_taken_back() {
        let values = series(2, &[(1000.0, 20), (1030.0, 20)]);
        let with = |min_effect: f64, floor: f64| {
            let limits = Limits {
                min_effect,
                floor,
                ..limits(0.001)
            };
            splits(&values, &limits).len()
        };
        assert_eq!((with(0.02, 0.0), with(0.05, 0.0)), (1, 0));
        assert_eq!((with(0.0, 20.0), with(0.0, 50.0)), (1, 0));
        let spike = series(7, &[(1000.0, 18), (1300.0, 1), (1000.0, 18)]);
        let shortest = |shortest| {
            let limits = Limits {
                shortest,
                ..limits(0.001)
            };
            splits(&spike, &limits).len()
        };
        assert_eq!((shortest(1), shortest(2)), (2, 0));
        // The last level is not over yet.
        let start = series(9, &[(1000.0, 18), (1300.0, 1)]);
        let limits = Limits {
            shortest: 2,
            ..limits(0.001)
        };
        assert_eq!(splits(&start, &limits).len(), 1);
    }

    #[test]
    fn series_of_nothing_and_of_one_value_have_none() {
        assert_eq!(splits(&[], &limits(0.01)), []);
        assert_eq!(splits(&[1.0], &limits(0.01)), []);
        assert_eq!(splits(&[1.0; 30], &limits(0.01)), []);
    }
}
