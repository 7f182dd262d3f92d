//! Whether fresh runs show again what was found: runs that took no part in finding it.
//!
//! What is tested was chosen before these runs were made, and it is one thing only. So one plain test is
//! enough, nothing is adjusted, and its estimate is not too high because it was picked for being high.

use crate::decide::{Confirmation, Finding, Way};
use crate::rules::Pairing;
use crate::run::{Run, Side};
use crate::run_table::RunTable;
use crate::stats::{effect, median, rank};

/// Chance that fresh runs of equal programs confirm a finding. With the error rate of the search it makes
/// that of both: a false finding has to be made and confirmed.
pub const ALPHA: f64 = 0.05;

/// The finding to confirm: the first that stands by itself.
pub fn first_of(findings: &[Finding]) -> Option<&Finding> {
    findings.iter().find(|f| f.way != Way::Suspected)
}

/// Looks for a finding in the runs of the table that are fresh. `alpha` is what this look may spend of
/// [`ALPHA`]; runs in pairs are compared in pairs.
pub fn confirm(
    table: &RunTable,
    finding: &Finding,
    is_fresh: impl Fn(&Run) -> bool,
    alpha: f64,
    pairing: Pairing,
) -> Confirmation {
    let metric = finding.row.metric;
    let column = match (finding.changed, finding.explanation.role) {
        (None, Some(role)) if finding.way == Way::Role => table.role(role, metric),
        (None, _) => table.whole(metric),
        (Some((role, name)), _) => {
            let found = table.function(role, table.same(name), metric);
            found.map_or_else(|| vec![0.0; table.runs.len()], Clone::clone)
        }
    };
    let of = |side: Side| -> Vec<f64> {
        let runs = table.runs.iter().zip(&column);
        let runs = runs.filter(|(run, _)| run.side == side && is_fresh(run));
        runs.map(|(_, value)| *value).collect()
    };
    let (x, y) = (of(Side::Baseline), of(Side::Candidate));
    let differences: Vec<f64> = y.iter().zip(&x).map(|(y, x)| y - x).collect();
    let is_paired = pairing.is_paired() && x.len() == y.len();
    let shift = match is_paired {
        true if differences.is_empty() => 0.0,
        true => effect::paired_shift(&differences),
        false => effect::shift(&x, &y),
    };
    // Counts that were found exactly have to be apart again.
    let is_exact = finding.row.comparison.p.is_none();
    let highest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let p = (!is_exact).then(|| match is_paired {
        true => rank::signed_rank(&differences),
        false => rank::rank_sum(&x, &y),
    });
    Confirmation {
        metric,
        runs: x.len().min(y.len()),
        relative: effect::relative(shift, median(&x)),
        p,
        is_confirmed: !x.is_empty()
            && !y.is_empty()
            && match p {
                Some(p) => p <= alpha && shift > 0.0,
                None => y.iter().all(|count| *count > highest),
            },
    }
}

#[cfg(test)]
mod tests {
    use stackbeat_model::metric::{Metric, Values};

    use super::*;
    use crate::compare::{Question, compare};
    use crate::decide::Row;
    use crate::explain;
    use crate::random::Random;
    use crate::rules::Rules;
    use crate::run::{About, Builder, Names, Role};

    /// Runs of so many ms and allocations, baseline and candidate in turns.
    fn table(runs: &[(Side, f64, u64)]) -> RunTable {
        let mut names = Names::default();
        let role = names.role(Role {
            process: "shop".into(),
            thread: "main".into(),
            is_root: true,
        });
        let runs = runs
            .iter()
            .enumerate()
            .map(|(number, (side, ms, allocations))| {
                let about = About {
                    label: number.to_string(),
                    started_unix_ns: number as u64,
                    ..About::default()
                };
                let mut builder = Builder::new(*side, about);
                let mut values = Values::default();
                values.set(Metric::Allocations, *allocations);
                builder.thread(role, &values);
                builder.finish((ms * 1e6) as u64)
            });
        RunTable::new(runs.collect(), names)
    }

    fn finding(table: &RunTable, metric: Metric) -> Finding {
        let column = table.whole(metric);
        let (baseline, candidate) = table.split(&column);
        let question = Question::new(baseline, candidate, 1.0);
        Finding {
            way: Way::Whole,
            changed: None,
            row: Row {
                metric,
                comparison: compare(&question, &Rules::default()),
                adjusted_p: None,
            },
            also: Vec::new(),
            explanation: explain::explain(table, metric, Pairing::None),
        }
    }

    #[test]
    fn only_fresh_runs_speak() {
        let mut random = Random::new(3);
        let mut runs = Vec::new();
        let mut pairs = |factor: f64, more: u64, runs: &mut Vec<_>| {
            for _ in 0..6 {
                let mut ms = |factor: f64| 100.0 * factor * (1.0 + 0.01 * random.normal());
                runs.push((Side::Baseline, ms(1.0), 500));
                runs.push((Side::Candidate, ms(factor), 500 + more));
            }
        };
        // What was found in the first twelve runs is in the fresh ones of one table and not of the other.
        pairs(1.2, 5, &mut runs);
        let mut luck = runs.clone();
        pairs(1.2, 5, &mut runs);
        pairs(1.0, 0, &mut luck);
        for (runs, is_true) in [(runs, true), (luck, false)] {
            let table = table(&runs);
            let is_fresh = |run: &Run| run.about.started_unix_ns >= 12;
            for (metric, is_exact) in [(Metric::Wall, false), (Metric::Allocations, true)] {
                let mut finding = finding(&table, metric);
                if is_exact {
                    finding.row.comparison.p = None;
                }
                for pairing in [Pairing::None, Pairing::Together] {
                    let said = confirm(&table, &finding, is_fresh, ALPHA, pairing);
                    assert_eq!(said.is_confirmed, is_true, "{said:?}");
                    assert_eq!(said.runs, 6);
                }
            }
        }
    }

    #[test]
    fn equal_programs_are_seldom_confirmed() {
        let mut random = Random::new(4);
        let mut confirmed = [0; 2];
        for _ in 0..600 {
            let side = |at: usize| [Side::Baseline, Side::Candidate][at % 2];
            let run = |at| (side(at), 100.0 + random.normal(), 1);
            let runs: Vec<_> = (0..10).map(run).collect();
            let table = table(&runs);
            let finding = finding(&table, Metric::Wall);
            for (confirmed, pairing) in confirmed.iter_mut().zip([Pairing::None, Pairing::InTurns])
            {
                let said = confirm(&table, &finding, |_| true, ALPHA, pairing);
                *confirmed += usize::from(said.is_confirmed);
            }
        }
        // 30 would be five percent; their root is five.
        assert!(confirmed.iter().all(|n| *n <= 45), "{confirmed:?} of 600");
    }
}
