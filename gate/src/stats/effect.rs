//! How large a difference is.

use super::median;

/// The Hodges–Lehmann shift (1963): the median of all differences candidate − baseline.
pub fn shift(baseline: &[f64], candidate: &[f64]) -> f64 {
    let differences: Vec<f64> = candidate
        .iter()
        .flat_map(|c| baseline.iter().map(move |b| c - b))
        .collect();
    median(&differences)
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
    fn something_from_nothing_is_infinite() {
        assert_eq!(relative(5.0, 0.0), f64::INFINITY);
        assert_eq!(relative(0.0, 0.0), 0.0);
        assert_eq!(relative(-5.0, 50.0), -0.1);
    }
}
