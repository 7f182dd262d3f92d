//! What a reader of a verdict has to know besides.

use stackbeat_model::metric::Metric;

use super::Judge;
use crate::run::{Run, Side};
use crate::run_table::RunTable;
use crate::stats::{median, quantile};

/// Where less of wall times is a run's own, it is said.
const SHARED: f64 = 0.9;

impl Judge<'_> {
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let runs = &self.table.runs;
        for (side, count) in [
            (Side::Baseline, self.table.baseline_count),
            (Side::Candidate, self.table.candidate_count()),
        ] {
            let fewest = self.rules.fewest_runs();
            if count < fewest {
                warnings.push(format!(
                    "{count} {} runs: times cannot be told apart with fewer than {fewest}",
                    side.name()
                ));
            }
        }
        let differing = |what: &str, of: &dyn Fn(&Run) -> String| {
            let first = runs.first().map(of)?;
            let other = runs.iter().find(|r| of(r) != first)?;
            Some(format!("{what} differ: {first} and {}", of(other)))
        };
        // The program itself may be another: that is what is compared.
        warnings.extend(differing("arguments of the program", &|r| {
            let words = r.about.command.split_once(' ');
            words.map_or_else(String::new, |(_, arguments)| arguments.into())
        }));
        warnings.extend(self.other_amount_of_work());
        if self.own_share < SHARED {
            warnings.push(format!(
                "both runs of a pair shared a processor: {:.0} % of wall times are the other's turns, so changes look \
                 that much smaller there",
                100.0 * (1.0 - self.own_share)
            ));
        }
        warnings.extend(differing("machines", &|r| r.about.machine.clone()));
        warnings.extend(differing("intervals (ns)", &|r| {
            r.about.interval_ns.to_string()
        }));
        let lost: u64 = runs.iter().map(|r| r.about.lost).sum();
        let plural = if lost == 1 {
            "record was"
        } else {
            "records were"
        };
        warnings.extend(once(
            runs,
            &|r| r.about.lost > 0,
            &format!("{lost} {plural} lost"),
        ));
        let damage = runs.iter().find_map(|r| r.about.damage.first());
        warnings.extend(damage.and_then(|first| {
            let what = format!("{first}; what is left was compared");
            once(runs, &|r| !r.about.damage.is_empty(), &what)
        }));
        warnings.extend(once(
            runs,
            &|r| r.about.counts_end_early,
            "hooks that only count took too much of its budget, and those of allocation were withdrawn: \
             allocations are not compared in any run, and limits of them not judged; record with a higher \
             --budget or without",
        ));
        warnings.extend(once(
            runs,
            &|r| !r.about.complete,
            "the recording did not end regularly",
        ));
        for metric in &self.rules.required {
            let outliers = self.outliers(*metric);
            let texts: Vec<String> = outliers
                .iter()
                .map(|(label, value, middle)| {
                    format!("{label} ({:+.0} %)", 100.0 * (value / middle - 1.0))
                })
                .collect();
            if !texts.is_empty() {
                warnings.push(format!(
                    "far from their side's median in {}, and not left out: {}",
                    metric.title(),
                    texts.join(", ")
                ));
            }
        }
        if self.drift >= 0.01 {
            warnings.push(format!(
                "the calibration loop says that the machine itself changed by {:.1} % between the sides; \
                 smaller changes of times are not believed",
                100.0 * self.drift
            ));
        }
        warnings
    }

    /// Exact counts that all changed by the same factor: probably another input, and not other costs. Says
    /// what one unit of the work costs.
    fn other_amount_of_work(&self) -> Option<String> {
        // Less than this may be anything, and a count of a few is no measure of work.
        const LEAST_CHANGE: f64 = 0.02;
        const LEAST_COUNT: f64 = 100.0;
        // How far apart the changes may lie, as a share of the smallest.
        const ALIKE: f64 = 0.2;
        // How much more or less CPU time one unit of the work may take.
        const ALIKE_COST: f64 = 1.5;
        let factor = |metric: Metric| -> Option<f64> {
            let column = self.table.whole(metric);
            let (baseline, candidate) = self.table.split(&column);
            let before = median(baseline);
            (before >= LEAST_COUNT).then(|| median(candidate) / before)
        };
        let counted = [Metric::Allocations, Metric::AllocatedBytes, Metric::Frees];
        let factors: Vec<f64> = counted.into_iter().filter_map(factor).collect();
        let changes = || factors.iter().map(|f| f - 1.0);
        let least = changes().map(f64::abs).fold(f64::INFINITY, f64::min);
        let lowest = changes().fold(f64::INFINITY, f64::min);
        let highest = changes().fold(f64::NEG_INFINITY, f64::max);
        let is_work =
            factors.len() > 1 && least >= LEAST_CHANGE && highest - lowest <= ALIKE * least;
        let middle = 1.0 + (lowest + highest) / 2.0;
        if !is_work || middle <= 0.0 {
            return None;
        }
        // A program that allocates less for the same work takes more time for each allocation.
        let of_cpu = factor(Metric::Cpu)? / middle;
        if !(1.0 / ALIKE_COST..=ALIKE_COST).contains(&of_cpu) {
            return None;
        }
        let of_unit = |metric: Metric| -> Option<String> {
            let change = 100.0 * (factor(metric)? / middle - 1.0);
            Some(format!("{} {change:+.1} %", metric.title()))
        };
        let costs: Vec<String> = [Metric::Wall, Metric::Cpu]
            .into_iter()
            .filter_map(of_unit)
            .collect();
        Some(format!(
            "all exact counts changed by about {:+.1} %: probably {} work (another input, or the same work done {}), \
             not other costs; for each unit of it: {}",
            100.0 * (middle - 1.0),
            if middle > 1.0 { "more" } else { "less" },
            if middle > 1.0 {
                "more often"
            } else {
                "less often"
            },
            costs.join(", ")
        ))
    }

    /// Runs beyond Q3 + 3·IQR or below Q1 − 3·IQR of their side (Tukey's far-out values).
    fn outliers(&self, metric: Metric) -> Vec<(String, f64, f64)> {
        let column = self.table.whole(metric);
        let mut found = Vec::new();
        for side in [Side::Baseline, Side::Candidate] {
            let of_side: Vec<(usize, f64)> = (0..column.len())
                .filter(|at| self.table.runs[*at].side == side)
                .map(|at| (at, column[at]))
                .collect();
            let values: Vec<f64> = of_side.iter().map(|(_, v)| *v).collect();
            if values.len() < 4 {
                continue;
            }
            let (q1, q3) = (quantile(&values, 0.25), quantile(&values, 0.75));
            let middle = median(&values);
            let reach = (3.0 * (q3 - q1)).max(0.03 * middle);
            for (at, value) in of_side {
                if value > q3 + reach || value < q1 - reach {
                    found.push((self.table.runs[at].about.label.clone(), value, middle));
                }
            }
        }
        found
    }
}

/// What is to be said of some runs, once: `a.beat: 5 records were lost`, `3 runs, a.beat for example: …`.
fn once(runs: &[Run], is_one: &dyn Fn(&Run) -> bool, what: &str) -> Option<String> {
    let mut those = runs.iter().filter(|run| is_one(run));
    let first = &those.next()?.about.label;
    Some(match those.count() {
        0 => format!("{first}: {what}"),
        more => format!("{} runs, {first} for example: {what}", more + 1),
    })
}

/// How much slower or faster the calibration loop was on one side, relative; 0 when it was not run.
pub(super) fn drift(table: &RunTable) -> f64 {
    let of_side = |side| -> Vec<f64> {
        let runs = table.runs.iter().filter(|r| r.side == side);
        runs.filter_map(|r| r.about.calibration_ns)
            .map(|ns| ns as f64)
            .collect()
    };
    let (a, b) = (of_side(Side::Baseline), of_side(Side::Candidate));
    if a.is_empty() || b.is_empty() || median(&a) <= 0.0 {
        return 0.0;
    }
    (median(&b) / median(&a) - 1.0).abs()
}
