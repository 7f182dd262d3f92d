//! Scopes that the program itself names: what happened inside of them on both sides, and how often they were
//! entered.

use std::collections::{BTreeMap, BTreeSet};

use stackbeat_model::metric::Metric;

use super::{Judge, Row};
use crate::compare::Answer;
use crate::explain::Part;
use crate::run::ScopeSum;
use crate::run_table::PerRun;
use crate::stats::median;

/// What scopes are compared by.
const COMPARED: [Metric; 9] = [
    Metric::Wall,
    Metric::Cpu,
    Metric::Lock,
    Metric::Io,
    Metric::Net,
    Metric::Sleep,
    Metric::Allocations,
    Metric::AllocatedBytes,
    Metric::MinorFaults,
];

/// A metric of all scopes of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeRow {
    /// The program's name for the scopes.
    pub name: String,
    /// Of all of them in a run together.
    pub row: Row,
    /// How often they were entered in a run, medians of the baseline and of the candidate.
    pub calls: (f64, f64),
    /// With the wall time: system calls inside that became more or fewer, the largest change first; then what
    /// they moved.
    pub system_calls: Vec<Part>,
}

impl ScopeRow {
    /// Whether it is worth a line: the wall time always, all else where it is different.
    pub fn is_worth_a_line(&self) -> bool {
        let answer = self.row.comparison.answer;
        self.row.metric == Metric::Wall || matches!(answer, Answer::Higher | Answer::Lower)
    }
}

impl Judge<'_> {
    /// Scopes whose time in a run is worth a comparison, that with the largest change of wall time first. All
    /// their metrics are one family. By themselves they make no regression: a policy's budget does that.
    pub(super) fn scopes(&self) -> Vec<ScopeRow> {
        let runs = &self.table.runs;
        let names: BTreeSet<&str> = runs
            .iter()
            .flat_map(|run| run.scopes.iter().map(|s| s.name.as_str()))
            .collect();
        let column = |name: &str, of: &dyn Fn(&ScopeSum) -> u64| -> PerRun {
            let of_run = runs.iter().map(|run| {
                let found = run.scopes.iter().find(|s| s.name == name);
                found.map_or(0.0, |scope| of(scope) as f64)
            });
            of_run.collect()
        };
        let of = |name: &str, metric| column(name, &|scope| scope.values.get(metric));
        let is_worth = |metric, column: &PerRun| {
            let (baseline, candidate) = self.table.split(column);
            median(baseline).max(median(candidate)) >= self.floor(metric)
        };
        let members: Vec<(&str, Metric, PerRun)> = names
            .iter()
            .filter(|name| is_worth(Metric::Wall, &of(name, Metric::Wall)))
            .flat_map(|name| COMPARED.map(|metric| (*name, metric, of(name, metric))))
            .filter(|(_, metric, column)| is_worth(*metric, column))
            .collect();
        let family: Vec<_> = members.iter().map(|(_, m, c)| (*m, c)).collect();
        let adjusted = self.adjusted(&family);
        let mut rows: Vec<ScopeRow> = members
            .iter()
            .zip(adjusted)
            .map(|((name, metric, of_scope), p)| {
                let calls = column(name, &|s| s.count);
                let (baseline, candidate) = self.table.split(&calls);
                ScopeRow {
                    name: (*name).to_string(),
                    row: Row {
                        metric: *metric,
                        comparison: self.compare(of_scope, *metric, false),
                        adjusted_p: Some(p),
                    },
                    calls: (median(baseline), median(candidate)),
                    system_calls: match metric {
                        Metric::Wall => self.calls_inside(&|kind| of(name, kind)),
                        _ => Vec::new(),
                    },
                }
            })
            .collect();
        let of_wall = |row: &&ScopeRow| row.row.metric == Metric::Wall;
        let changes: BTreeMap<String, f64> = (rows.iter().filter(of_wall))
            .map(|row| (row.name.clone(), row.row.comparison.shift.abs()))
            .collect();
        rows.sort_by(|a, b| {
            let change = |row: &ScopeRow| changes.get(&row.name).copied().unwrap_or_default();
            let by_change = change(b).total_cmp(&change(a));
            by_change
                .then_with(|| a.name.cmp(&b.name))
                .then(a.row.metric.cmp(&b.row.metric))
        });
        rows
    }

    /// Kinds of system calls of which there are more or fewer inside of a scope. They are known by samples,
    /// so that small changes say nothing.
    fn calls_inside(&self, of_kind: &dyn Fn(Metric) -> PerRun) -> Vec<Part> {
        const SHARE: f64 = 0.2;
        const CALLS: f64 = 16.0;
        const BYTES: f64 = 16384.0;
        let known = Metric::SYSTEM_CALLS.into_iter();
        let known = known.filter(|metric| self.table.knows_callers(*metric));
        let parts = known.map(|metric| {
            let column = of_kind(metric);
            let (baseline, candidate) = self.table.split(&column);
            Part {
                metric,
                baseline: median(baseline),
                candidate: median(candidate),
            }
        });
        let least = |p: &Part| match p.metric.is_call_bytes() {
            true => BYTES,
            false => CALLS,
        };
        let is_changed = |p: &Part| p.change().abs() >= least(p).max(SHARE * p.baseline);
        let mut parts: Vec<Part> = parts.filter(is_changed).collect();
        parts.sort_by(|a, b| {
            let is_bytes = |p: &Part| p.metric.is_call_bytes();
            let size = |p: &Part| p.change().abs();
            (is_bytes(a).cmp(&is_bytes(b))).then(size(b).total_cmp(&size(a)))
        });
        parts
    }
}
