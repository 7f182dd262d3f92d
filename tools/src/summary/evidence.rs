//! On how many samples a figure stands, and how far it may be off.
//!
//! A function's share of the computing is a proportion found by sampling. Samples stand for different amounts
//! of CPU time, so their number alone says too much: one that stands for most of the time is worth one. With
//! amounts w of all samples, Kish's effective number is (Σw)² / Σw²; the interval of the share is Wilson's
//! with that number. How long a thread waited for a processor around a sample changes neither the share nor
//! w.

use stackbeat_model::Spent;

/// 97.5 % quantile of the normal distribution: intervals are of 95 %.
const Z: f64 = 1.959_963_985;

/// How many samples of equal weight would say as much of the time on a processor.
pub(crate) fn effective_samples(spent: &Spent) -> f64 {
    match spent.evidence.squares {
        0 => 0.0,
        squares => (spent.computing_ns() as f64).powi(2) / squares as f64,
    }
}

/// Low and high end of a share that was found to be `part` of `whole` by so many samples of equal weight;
/// `None` without any.
pub(crate) fn interval(part: u64, whole: u64, samples: f64) -> Option<(f64, f64)> {
    if whole == 0 || samples <= 0.0 {
        return None;
    }
    let share = (part as f64 / whole as f64).min(1.0);
    let squared = Z * Z / samples;
    let middle = (share + squared / 2.0) / (1.0 + squared);
    let half =
        Z / (1.0 + squared) * (share * (1.0 - share) / samples + squared / (4.0 * samples)).sqrt();
    // Rounding must not put the share outside.
    Some((
        (middle - half).clamp(0.0, share),
        (middle + half).clamp(share, 1.0),
    ))
}

#[cfg(test)]
mod tests {
    use stackbeat_model::{Evidence, Metrics};

    use super::*;

    #[test]
    fn few_samples_have_wide_intervals() {
        // Wilson's interval, by R's `prop.test(…, correct = FALSE)`.
        for (part, samples, low, high) in [
            (8, 8.0, 0.6756, 1.0),
            (4, 8.0, 0.2152, 0.7848),
            (4000, 8000.0, 0.4890, 0.5110),
            (0, 8.0, 0.0, 0.3244),
        ] {
            let (found_low, found_high) =
                interval(part, samples as u64, samples).expect("is known");
            assert!((found_low - low).abs() < 1e-4, "{part}: {found_low}");
            assert!((found_high - high).abs() < 1e-4, "{part}: {found_high}");
        }
        assert_eq!(interval(1, 1, 0.0), None);
    }

    #[test]
    fn a_sample_that_stands_for_nearly_all_is_worth_one() {
        let mut spent = Spent::default();
        for (samples, wall_ns) in [(10, 10), (1, 990)] {
            spent.add(&Spent {
                wall_ns,
                evidence: Evidence {
                    samples,
                    squares: u128::from(wall_ns * wall_ns / samples),
                },
                ..Spent::default()
            });
        }
        let effective = effective_samples(&spent);
        assert!((1.0..1.1).contains(&effective), "{effective}");
    }

    #[test]
    fn waits_for_a_processor_make_no_sample_worth_less() {
        let mut spent = Spent::default();
        // Ten samples of 1 ms on a processor; after one of them others had it for a second.
        for runnable_ns in [0, 0, 0, 0, 1_000_000_000, 0, 0, 0, 0, 0] {
            let metrics = Metrics {
                cpu_ns: 1_000_000,
                runnable_ns,
                ..Metrics::default()
            };
            spent.add(&Spent {
                wall_ns: metrics.cpu_ns + runnable_ns,
                metrics,
                evidence: Evidence {
                    samples: 1,
                    squares: u128::from(metrics.cpu_ns).pow(2),
                },
                ..Spent::default()
            });
        }
        assert!((effective_samples(&spent) - 10.0).abs() < 1e-9);
    }
}
