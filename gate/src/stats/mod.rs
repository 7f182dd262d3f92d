//! The statistics of the gate. Formulas and their sources: docs/gate/method.md.
//!
//! Values are one number per run: the run is the unit, never the sample.

pub mod effect;
pub mod interval;
pub mod multiple_comparisons;
pub mod noise_band;
pub mod normal;
pub mod rank;
pub mod sequential;
pub mod student;

/// The median; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The quantile with linear interpolation between order statistics (Hyndman and Fan 1996, type 7, as R
/// and numpy have it); 0 of nothing.
pub fn quantile(values: &[f64], at: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else {
        return 0.0;
    };
    let place = at.clamp(0.0, 1.0) * last as f64;
    let mut chosen = values.to_vec();
    let (_, below, higher) = chosen.select_nth_unstable_by(place.floor() as usize, f64::total_cmp);
    let above = higher.iter().copied().min_by(f64::total_cmp);
    *below + (above.unwrap_or(*below) - *below) * (place - place.floor())
}

/// As `quantile`, of values in ascending order.
pub fn quantile_of_sorted(sorted: &[f64], at: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let place = at.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// The mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sample variance (division by n − 1); 0 of fewer than two values.
pub fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    squares / (values.len() - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_numpy() {
        // numpy.quantile([7, 15, 36, 39, 40, 41], [0.25, 0.5, 0.75, 0.9])
        let values = [41.0, 7.0, 39.0, 15.0, 40.0, 36.0];
        for (at, expected) in [(0.25, 20.25), (0.5, 37.5), (0.75, 39.75), (0.9, 40.5)] {
            assert!((quantile(&values, at) - expected).abs() < 1e-12, "{at}");
        }
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(variance(&[1.0, 2.0, 3.0, 4.0]), 5.0 / 3.0);
    }
}
