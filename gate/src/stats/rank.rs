//! Rank tests, exact by counting: no assumption on how times are distributed.
//!
//! All are one-sided: how likely are values of the candidate at least that much higher, when both sides
//! are drawn from one distribution?

use super::normal;

/// Up to so many values on both sides together, the exact distribution is counted.
const EXACT_LIMIT: usize = 60;

/// Ranks from 1, doubled so that the mean rank of ties is a whole number too.
fn doubled_ranks(values: &[f64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let value = values[order[from]];
        let count = order[from..]
            .iter()
            .take_while(|i| values[**i] == value)
            .count();
        // The mean of from+1 … from+count, doubled.
        let rank = (2 * from + count + 1) as u64;
        for i in &order[from..from + count] {
            ranks[*i] = rank;
        }
        from += count;
    }
    ranks
}

/// Wilcoxon's rank-sum test (Wilcoxon 1945, Mann and Whitney 1947), as a permutation test of the ranks
/// that occur, so it is exact with ties as well: P(rank sum of the candidate ≥ the observed one).
pub fn rank_sum(baseline: &[f64], candidate: &[f64]) -> f64 {
    rank_sum_tails(baseline, candidate).0
}

/// Both one-sided tests at once: P(rank sum of the candidate ≥ the observed one), and P(≤).
pub fn rank_sum_tails(baseline: &[f64], candidate: &[f64]) -> (f64, f64) {
    let (n, m) = (baseline.len(), candidate.len());
    if n == 0 || m == 0 {
        return (1.0, 1.0);
    }
    let all: Vec<f64> = baseline.iter().chain(candidate).copied().collect();
    let ranks = doubled_ranks(&all);
    let observed: u64 = ranks[n..].iter().sum();
    if n + m > EXACT_LIMIT {
        let mirrored: u64 = ranks[..n].iter().sum();
        return (
            rank_sum_normal(&ranks, n, m, observed),
            rank_sum_normal(&ranks, m, n, mirrored),
        );
    }
    // counts[k][s]: ways to choose k of the ranks so far with sum s.
    let highest: usize = ranks.iter().sum::<u64>() as usize;
    let mut counts = vec![vec![0f64; highest + 1]; m + 1];
    counts[0][0] = 1.0;
    let mut so_far = 0;
    for (seen, rank) in ranks.iter().map(|r| *r as usize).enumerate() {
        so_far += rank;
        for chosen in (1..=m.min(seen + 1)).rev() {
            let (fewer, more) = counts.split_at_mut(chosen);
            let taken = &fewer[chosen - 1][..=so_far - rank];
            for (sum, ways) in more[0][rank..=so_far].iter_mut().zip(taken) {
                *sum += ways;
            }
        }
    }
    let total: f64 = counts[m].iter().sum();
    let (at, observed) = (&counts[m], observed as usize);
    (
        at[observed..].iter().sum::<f64>() / total,
        at[..=observed].iter().sum::<f64>() / total,
    )
}

/// The normal approximation with correction for ties and continuity (Lehmann, Nonparametrics, 1.4).
fn rank_sum_normal(doubled: &[u64], n: usize, m: usize, observed: u64) -> f64 {
    let total = (n + m) as f64;
    let ranks: Vec<f64> = doubled.iter().map(|r| *r as f64 / 2.0).collect();
    let mean = (total + 1.0) / 2.0;
    let spread: f64 = ranks.iter().map(|r| (r - mean).powi(2)).sum();
    let variance = n as f64 * m as f64 / (total * (total - 1.0)) * spread;
    if variance <= 0.0 {
        return 1.0;
    }
    let excess = observed as f64 / 2.0 - m as f64 * mean - 0.5;
    1.0 - normal::cdf(excess / variance.sqrt())
}

/// Wilcoxon's signed-rank test for pairs, zeros left out: P(sum of the ranks of positive differences ≥
/// the observed one), each sign being as likely as the other.
pub fn signed_rank(differences: &[f64]) -> f64 {
    let moved: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    if moved.is_empty() {
        return 1.0;
    }
    let sizes: Vec<f64> = moved.iter().map(|d| d.abs()).collect();
    let ranks = doubled_ranks(&sizes);
    let positive = moved.iter().zip(&ranks).filter(|(d, _)| **d > 0.0);
    let observed: u64 = positive.map(|(_, r)| *r).sum();
    if moved.len() > EXACT_LIMIT {
        let squares: f64 = ranks.iter().map(|r| (*r as f64 / 2.0).powi(2)).sum();
        let mean = ranks.iter().sum::<u64>() as f64 / 4.0;
        let excess = observed as f64 / 2.0 - mean - 0.5;
        return 1.0 - normal::cdf(excess / (squares / 4.0).sqrt());
    }
    let highest = ranks.iter().sum::<u64>() as usize;
    let mut counts = vec![0f64; highest + 1];
    counts[0] = 1.0;
    for rank in ranks.iter().map(|r| *r as usize) {
        for sum in (rank..=highest).rev() {
            counts[sum] += counts[sum - rank];
        }
    }
    let total: f64 = counts.iter().sum();
    counts[observed as usize..].iter().sum::<f64>() / total
}

/// The smallest p that so many runs can give: 1 / C(n + m, m), or 2^-n for pairs.
pub fn smallest_p(n: usize, m: usize, paired: bool) -> f64 {
    if paired {
        return 0.5f64.powi(n.min(m) as i32);
    }
    (1..=m).fold(1.0, |p, i| p * i as f64 / (n + i) as f64)
}

/// Runs a side from which on a test can give a p of at most `alpha`.
pub fn fewest_runs(alpha: f64, paired: bool) -> usize {
    (1..1000)
        .find(|n| smallest_p(*n, *n, paired) <= alpha)
        .unwrap_or(1000)
}

#[cfg(test)]
#[allow(clippy::approx_constant)] // A measured value that happens to be 3.14.
mod tests {
    use super::*;
    use crate::random::Random;

    fn close(p: f64, expected: f64) {
        assert!((p - expected).abs() < 1e-9, "{p} is not {expected}");
    }

    #[test]
    fn rank_sum_of_published_data() {
        // Permeability of the amniotic membrane: Hollander and Wolfe (1973), p. 69; value from
        // scipy.stats.mannwhitneyu(alternative="greater", method="exact") 1.17.
        let term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let early = [1.15, 0.88, 0.90, 0.74, 1.21];
        close(rank_sum(&early, &term), 0.127_206_127_206_127_2);
        // The other tail is the test with the sides exchanged.
        let (higher, lower) = rank_sum_tails(&early, &term);
        close(higher, rank_sum(&early, &term));
        close(lower, rank_sum(&term, &early));
    }

    #[test]
    fn rank_sum_with_ties_is_the_permutation_test() {
        // scipy.stats.permutation_test of the sum of midranks, all exchanges.
        let p = rank_sum(&[1.0, 2.0, 2.0, 3.0, 5.0], &[2.0, 4.0, 4.0, 5.0, 6.0]);
        close(p, 0.091_269_841_269_841_26);
        close(rank_sum(&[1.0; 4], &[1.0; 4]), 1.0);
    }

    #[test]
    fn rank_sum_of_many_uses_the_normal_approximation() {
        let a: Vec<f64> = (0..40)
            .map(|i| 100.0 + f64::from(i * 37 % 41) * 0.5)
            .collect();
        let b: Vec<f64> = (0..40)
            .map(|i| 102.0 + f64::from(i * 29 % 43) * 0.5)
            .collect();
        // scipy.stats.mannwhitneyu(method="asymptotic").
        let p = rank_sum(&a, &b);
        assert!((p - 0.079_273_108).abs() < 1e-6, "{p}");
        close(rank_sum_tails(&a, &b).1, rank_sum(&b, &a));
    }

    #[test]
    fn signed_rank_of_published_data() {
        // Hollander and Wolfe (1973), p. 29: depression before and after; scipy.stats.wilcoxon.
        let before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
        let after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29];
        let differences: Vec<f64> = before.iter().zip(after).map(|(a, b)| a - b).collect();
        close(signed_rank(&differences), 0.019_531_25);
        // Darwin's plants, the example of scipy's documentation.
        let plants = [
            6.0, 8.0, 14.0, 16.0, 23.0, 24.0, 28.0, 29.0, 41.0, -48.0, 49.0, 56.0, 60.0, -67.0,
            75.0,
        ];
        close(signed_rank(&plants), 0.020_629_882_812_5);
        close(signed_rank(&[0.0, 0.0]), 1.0);
    }

    #[test]
    fn the_smallest_p_needs_so_many_runs() {
        close(smallest_p(5, 5, false), 1.0 / 252.0);
        close(smallest_p(10, 10, true), 1.0 / 1024.0);
        assert_eq!(fewest_runs(0.01, false), 5);
        assert_eq!(fewest_runs(0.01, true), 7);
        close(rank_sum(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.05);
    }

    #[test]
    fn noise_is_called_significant_as_seldom_as_promised() {
        let mut random = Random::new(7);
        let mut alarms = [0; 2];
        for _ in 0..4000 {
            // Skewed, with outliers, as times are.
            let mut draw =
                |n: usize| -> Vec<f64> { (0..n).map(|_| (random.normal() * 0.5).exp()).collect() };
            let (a, b) = (draw(7), draw(8));
            let d: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
            alarms[0] += usize::from(rank_sum(&a, &b) <= 0.05);
            alarms[1] += usize::from(signed_rank(&d) <= 0.05);
        }
        // 200 expected at most, deviation 14.
        assert!(alarms.iter().all(|n| (120..245).contains(n)), "{alarms:?}");
    }
}
