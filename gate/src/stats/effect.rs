//! How large a difference is.

use super::median;
use crate::random::Random;

/// The Hodges–Lehmann shift (1963): the median of all differences candidate − baseline; 0 when a side is
/// empty.
pub fn shift(baseline: &[f64], candidate: &[f64]) -> f64 {
    let (mut baseline, mut candidate) = (baseline.to_vec(), candidate.to_vec());
    shift_sorting(&mut baseline, &mut candidate)
}

/// As `shift`; sorts both sides.
pub fn shift_sorting(baseline: &mut [f64], candidate: &mut [f64]) -> f64 {
    let Some(last) = (baseline.len() * candidate.len()).checked_sub(1) else {
        return 0.0;
    };
    baseline.sort_unstable_by(f64::total_cmp);
    candidate.sort_unstable_by(f64::total_cmp);
    let (below, above) = ordered_difference(baseline, candidate, last / 2);
    match last % 2 {
        0 => below,
        // As an interpolated quantile is computed.
        _ => below + (above - below) * 0.5,
    }
}

/// The difference candidate − baseline that stands at `rank` in ascending order, and the next one. The n·m
/// differences form a matrix with sorted rows and columns, of which only the bounds of what is still in
/// question are kept (Monahan, "Algorithm 616", ACM TOMS 10, 1984): O((n + m)·log(n·m)) on average. Both
/// sides are sorted.
fn ordered_difference(baseline: &[f64], candidate: &[f64], rank: usize) -> (f64, f64) {
    let (n, m) = (baseline.len(), candidate.len());
    // By run of the baseline: the candidate's runs whose differences are still in question.
    let mut bounds = vec![(0, m); n];
    let mut random = Random::new(0);
    let mut pivot = candidate[m / 2] - baseline[n / 2];
    loop {
        // Differences fall from row to row, so the counts of smaller ones rise.
        let (mut lower, mut up_to) = (0, 0);
        let (mut all_lower, mut all_up_to) = (0, 0);
        for x in baseline {
            while lower < m && candidate[lower] - x < pivot {
                lower += 1;
            }
            up_to = up_to.max(lower);
            while up_to < m && candidate[up_to] - x <= pivot {
                up_to += 1;
            }
            all_lower += lower;
            all_up_to += up_to;
        }
        if (all_lower..all_up_to).contains(&rank) {
            let next = match rank + 1 < all_up_to {
                true => pivot,
                false => next_difference(baseline, candidate, pivot),
            };
            return (pivot, next);
        }
        let is_below = rank < all_lower;
        let (mut edge, mut left) = (0, 0);
        for (x, (low, high)) in baseline.iter().zip(&mut bounds) {
            match is_below {
                true => {
                    while edge < m && candidate[edge] - x < pivot {
                        edge += 1;
                    }
                    *high = edge.min(*high);
                }
                false => {
                    while edge < m && candidate[edge] - x <= pivot {
                        edge += 1;
                    }
                    *low = edge.max(*low);
                }
            }
            left += *high - *low;
        }
        let mut chosen = random.below(left);
        for (x, (low, high)) in baseline.iter().zip(&bounds) {
            if chosen < high - low {
                pivot = candidate[low + chosen] - x;
                break;
            }
            chosen -= high - low;
        }
    }
}

/// The least difference above `pivot`, or `pivot` when it is the largest.
fn next_difference(baseline: &[f64], candidate: &[f64], pivot: f64) -> f64 {
    let mut up_to = 0;
    let mut next = f64::INFINITY;
    for x in baseline {
        while up_to < candidate.len() && candidate[up_to] - x <= pivot {
            up_to += 1;
        }
        if let Some(y) = candidate.get(up_to) {
            next = next.min(y - x);
        }
    }
    if next.is_finite() { next } else { pivot }
}

/// The Hodges–Lehmann estimate for pairs: the median of the Walsh averages (dᵢ + dⱼ) / 2, i ≤ j.
pub fn paired_shift(differences: &[f64]) -> f64 {
    let averages: Vec<f64> = (0..differences.len())
        .flat_map(|i| (i..differences.len()).map(move |j| (i, j)))
        .map(|(i, j)| (differences[i] + differences[j]) / 2.0)
        .collect();
    median(&averages)
}

/// The shift as a share of the baseline's median; infinite when something came from nothing.
pub fn relative(shift: f64, baseline_median: f64) -> f64 {
    if shift == 0.0 {
        0.0
    } else if baseline_median <= 0.0 {
        f64::INFINITY.copysign(shift)
    } else {
        shift / baseline_median
    }
}

#[cfg(test)]
#[allow(clippy::approx_constant)] // A measured value that happens to be 3.14.
mod tests {
    use super::*;

    #[test]
    fn shifts_of_published_data() {
        // Hollander and Wolfe (1973), pp. 33 and 75.
        let term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let early = [1.15, 0.88, 0.90, 0.74, 1.21];
        assert!((shift(&early, &term) - 0.305).abs() < 1e-12);
        let before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
        let after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29];
        let differences: Vec<f64> = before.iter().zip(after).map(|(a, b)| a - b).collect();
        assert!((paired_shift(&differences) - 0.46).abs() < 1e-12);
    }

    #[test]
    fn the_shift_is_the_median_of_all_differences() {
        let mut random = Random::new(9);
        for round in 0..600 {
            // Many ties, none, values of very different sizes, or a side that is constant.
            let mut draw = || -> Vec<f64> {
                let count = 1 + random.below(14);
                let one = |_| match round % 4 {
                    0 => random.below(5) as f64,
                    1 => 1e9 * random.unit(),
                    2 => (20.0 * random.normal()).exp(),
                    _ => f64::from(round),
                };
                (0..count).map(one).collect()
            };
            let (x, y) = (draw(), draw());
            let pairs = y.iter().flat_map(|y| x.iter().map(move |x| y - x));
            let differences: Vec<f64> = pairs.collect();
            assert_eq!(shift(&x, &y), median(&differences), "{x:?} {y:?}");
        }
        assert_eq!(shift(&[], &[1.0]), 0.0);
    }

    #[test]
    fn something_from_nothing_is_infinite() {
        assert_eq!(relative(5.0, 0.0), f64::INFINITY);
        assert_eq!(relative(0.0, 0.0), 0.0);
        assert_eq!(relative(-5.0, 50.0), -0.1);
    }
}
