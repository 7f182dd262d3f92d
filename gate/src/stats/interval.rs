//! Bootstrap intervals of a shift.
//!
//! Runs that were made together (one build, one machine, one evening) resemble each other. So groups are
//! drawn first and runs within them second, as Kalibera and Jones do ("Rigorous benchmarking in
//! reasonable time", ISMM 2013); with one group this is the ordinary bootstrap.

use super::effect;
use super::{normal, quantile_of_sorted, variance};
use crate::random::Random;

/// The values of one side, by group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grouped {
    /// Each group's values.
    pub groups: Vec<Vec<f64>>,
}

impl Grouped {
    /// One group of all.
    pub fn flat(values: &[f64]) -> Grouped {
        Grouped {
            groups: vec![values.to_vec()],
        }
    }

    fn draw(&self, random: &mut Random, out: &mut Vec<f64>) {
        out.clear();
        for _ in 0..self.groups.len() {
            let group = &self.groups[random.below(self.groups.len())];
            for _ in 0..group.len() {
                out.push(group[random.below(group.len())]);
            }
        }
    }
}

/// An interval and the standard error that goes with it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Bounds that are each right with the confidence of the whole interval, for claims of equivalence: the
    /// interval of confidence 1 − 2α (two one-sided tests, Schuirmann 1987).
    pub inner_low: f64,
    /// The upper of these bounds.
    pub inner_high: f64,
    /// Standard error of the shift.
    pub error: f64,
}

/// The percentile interval of the Hodges–Lehmann shift (Efron 1979).
pub fn shift(
    baseline: &Grouped,
    candidate: &Grouped,
    confidence: f64,
    draws: usize,
    random: &mut Random,
) -> Interval {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let shifts = (0..draws).map(|_| {
        baseline.draw(random, &mut a);
        candidate.draw(random, &mut b);
        effect::shift_sorting(&mut a, &mut b)
    });
    let runs = |side: &Grouped| side.groups.iter().map(Vec::len).sum::<usize>();
    let fewest = runs(baseline).min(runs(candidate));
    percentiles(shifts.collect(), confidence, fewest)
}

/// The same for pairs: pairs are drawn.
pub fn paired_shift(
    differences: &[f64],
    confidence: f64,
    draws: usize,
    random: &mut Random,
) -> Interval {
    let mut drawn = Vec::new();
    let pairs = Grouped::flat(differences);
    let shifts = (0..draws).map(|_| {
        pairs.draw(random, &mut drawn);
        effect::paired_shift(&drawn)
    });
    percentiles(shifts.collect(), confidence, differences.len())
}

/// Percentiles of few values are too narrow; they are taken further out, at Φ(−t·√(n/(n−1)))
/// (Hesterberg, "What teachers should know about the bootstrap", 2015, 3.3).
fn percentiles(mut shifts: Vec<f64>, confidence: f64, runs: usize) -> Interval {
    let error = variance(&shifts).sqrt();
    shifts.sort_by(f64::total_cmp);
    let wider = (runs as f64 / (runs.max(2) - 1) as f64).sqrt();
    let tail = |error: f64| {
        let t = normal::student_two_sided(error, runs.max(2) - 1);
        normal::cdf(-t * wider)
    };
    let (outer, inner) = (tail(1.0 - confidence), tail(2.0 * (1.0 - confidence)));
    Interval {
        low: quantile_of_sorted(&shifts, outer),
        high: quantile_of_sorted(&shifts, 1.0 - outer),
        inner_low: quantile_of_sorted(&shifts, inner),
        inner_high: quantile_of_sorted(&shifts, 1.0 - inner),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_covers_as_often_as_it_says() {
        let mut random = Random::new(11);
        let mut covered = 0;
        for _ in 0..400 {
            let mut draw = |shift: f64| -> Vec<f64> {
                (0..10).map(|_| 100.0 + shift + random.normal()).collect()
            };
            let (a, b) = (draw(0.0), draw(3.0));
            let interval = shift(
                &Grouped::flat(&a),
                &Grouped::flat(&b),
                0.95,
                400,
                &mut random,
            );
            covered += usize::from((interval.low..=interval.high).contains(&3.0));
        }
        assert!((370..=396).contains(&covered), "{covered} of 400");
    }

    #[test]
    fn groups_that_differ_widen_the_interval() {
        let values: Vec<f64> = (0..20)
            .map(|i| f64::from(i / 5) * 10.0 + f64::from(i % 5))
            .collect();
        let grouped = Grouped {
            groups: values.chunks(5).map(<[f64]>::to_vec).collect(),
        };
        let flat = Grouped::flat(&values);
        let width = |side: &Grouped| {
            let i = shift(side, side, 0.95, 2000, &mut Random::new(3));
            i.high - i.low
        };
        assert!(width(&grouped) > 1.5 * width(&flat));
    }
}
