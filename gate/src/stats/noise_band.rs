//! The noise band: how large a difference do equal programs show?
//!
//! rustc-perf calls a change significant when it exceeds Q3 + 3·IQR of the changes between earlier
//! commits that changed nothing. Here the baseline is compared with itself: it is split into halves in
//! many ways, and the noise band is Q3 + 3·IQR of the shifts between the halves, relative to the median.

use super::{effect, median, quantile};
use crate::random::Random;

/// Splits to look at when there are more.
const SPLITS: usize = 400;

/// The noise band as a share of the baseline's median, for a comparison of `n` against `m` runs. The spread
/// of a shift between groups of h and k runs goes with √(1/h + 1/k), so halves are scaled to n and m. `None`
/// with fewer than four runs: halves of one run say nothing about a median.
pub fn relative(baseline: &[f64], m: usize, random: &mut Random) -> Option<f64> {
    let n = baseline.len();
    let middle = median(baseline);
    if n < 4 || m == 0 || middle <= 0.0 {
        return None;
    }
    let half = n / 2;
    let rest = n - half;
    let mut runs = baseline.to_vec();
    let changes: Vec<f64> = (0..SPLITS)
        .map(|_| {
            random.shuffle(&mut runs);
            (effect::shift(&runs[..half], &runs[half..]) / middle).abs()
        })
        .collect();
    let (q1, q3) = (quantile(&changes, 0.25), quantile(&changes, 0.75));
    let spread = |a: usize, b: usize| (1.0 / a as f64 + 1.0 / b as f64).sqrt();
    Some((q3 + 3.0 * (q3 - q1)) * spread(n, m) / spread(half, rest))
}

/// The noise band of pairs, likewise as a share of the baseline's median `middle`. What the runs of one pair
/// have in common is no noise, so the baseline's own spread says nothing; the differences around their shift
/// do. Equal programs are as likely to differ one way as the other: the signs are drawn. `None` with fewer
/// than four pairs.
pub fn of_pairs(differences: &[f64], middle: f64, random: &mut Random) -> Option<f64> {
    if differences.len() < 4 || middle <= 0.0 {
        return None;
    }
    let shift = effect::paired_shift(differences);
    let mut noise: Vec<f64> = differences.iter().map(|d| d - shift).collect();
    let changes: Vec<f64> = (0..SPLITS)
        .map(|_| {
            for d in &mut noise {
                *d = if random.below(2) == 0 { *d } else { -*d };
            }
            (effect::paired_shift(&noise) / middle).abs()
        })
        .collect();
    let (q1, q3) = (quantile(&changes, 0.25), quantile(&changes, 0.75));
    Some(q3 + 3.0 * (q3 - q1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_band_follows_the_noise() {
        let mut random = Random::new(5);
        let mut noise_bands = |deviation: f64, n: usize| {
            let of_noise: Vec<f64> = (0..60)
                .map(|_| {
                    let runs: Vec<f64> = (0..n)
                        .map(|_| 100.0 + deviation * random.normal())
                        .collect();
                    relative(&runs, n, &mut random).expect("enough runs")
                })
                .collect();
            median(&of_noise)
        };
        // For normal noise of 1 % and ten runs a side, halves differ by σ·√(2/10) = 0.45 %; Q3 + 3·IQR of
        // its absolute value is 3.64 of that: 1.6 %.
        let (quiet, loud) = (noise_bands(1.0, 10), noise_bands(4.0, 10));
        assert!((0.011..0.021).contains(&quiet), "{quiet}");
        assert!((3.0..5.0).contains(&(loud / quiet)), "{loud}");
        assert!(noise_bands(1.0, 40) < 0.6 * quiet);
    }

    #[test]
    fn the_noise_band_of_pairs_is_of_their_differences() {
        let mut random = Random::new(6);
        let mut noise_band = |shift: f64| {
            let differences: Vec<f64> = (0..10).map(|_| shift + random.normal()).collect();
            of_pairs(&differences, 100.0, &mut random).expect("enough pairs")
        };
        let mut of = |shift: f64| median(&(0..60).map(|_| noise_band(shift)).collect::<Vec<f64>>());
        // The shift of ten differences has a deviation of 1 / √10, that is 0.32 %, times 3.64; whatever the
        // shift is.
        let (equal, slower) = (of(0.0), of(50.0));
        assert!((0.008..0.016).contains(&equal), "{equal}");
        assert!((0.008..0.016).contains(&slower), "{slower}");
        assert_eq!(of_pairs(&[1.0; 3], 100.0, &mut Random::new(1)), None);
    }

    #[test]
    fn three_runs_have_none() {
        assert_eq!(relative(&[1.0, 2.0, 3.0], 3, &mut Random::new(1)), None);
        assert_eq!(relative(&[7.0; 6], 6, &mut Random::new(1)), Some(0.0));
    }
}
