//! Scopes that the program itself names: their time on both sides, and how often they were entered.

use std::collections::BTreeSet;

use super::{Judge, Row};
use crate::explain::Part;
use crate::metric::Metric;
use crate::run::ScopeSum;
use crate::stats::median;
use crate::table::Column;

/// All scopes of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeRow {
    pub name: String,
    /// Wall time of all of them in a run together.
    pub row: Row,
    /// How often they were entered in a run, medians of the baseline and of the candidate.
    pub calls: (f64, f64),
    /// System calls inside that became more or fewer, the largest change first.
    pub system_calls: Vec<Part>,
}

impl Judge<'_> {
    /// Scopes whose time in a run is worth a comparison, the largest change first. They are one family. By
    /// themselves they make no regression: a policy's budget does that.
    pub(super) fn scopes(&self) -> Vec<ScopeRow> {
        let runs = &self.table.runs;
        let names: BTreeSet<&str> = runs
            .iter()
            .flat_map(|run| run.scopes.iter().map(|s| s.name.as_str()))
            .collect();
        let column = |name: &str, of: &dyn Fn(&ScopeSum) -> u64| -> Column {
            let of_run = runs.iter().map(|run| {
                let found = run.scopes.iter().find(|s| s.name == name);
                found.map_or(0.0, |scope| of(scope) as f64)
            });
            of_run.collect()
        };
        let times: Vec<(&str, Column)> = names
            .into_iter()
            .map(|name| (name, column(name, &|s| s.total_ns)))
            .filter(|(_, times)| {
                let (baseline, candidate) = self.table.split(times);
                median(baseline).max(median(candidate)) >= self.floor(Metric::Wall)
            })
            .collect();
        let family: Vec<_> = times.iter().map(|(_, c)| (Metric::Wall, c)).collect();
        let adjusted = self.adjusted(&family);
        let mut rows: Vec<ScopeRow> = times
            .iter()
            .zip(adjusted)
            .map(|((name, times), p)| {
                let calls = column(name, &|s| s.count);
                let (baseline, candidate) = self.table.split(&calls);
                ScopeRow {
                    name: (*name).to_string(),
                    row: Row {
                        metric: Metric::Wall,
                        comparison: self.compare(times, Metric::Wall, false),
                        adjusted_p: Some(p),
                    },
                    calls: (median(baseline), median(candidate)),
                    system_calls: self.calls_inside(&|kind| {
                        column(name, &|scope| {
                            let found = scope.calls.iter().find(|(metric, _)| *metric == kind);
                            found.map_or(0, |(_, count)| *count)
                        })
                    }),
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            let size = |r: &ScopeRow| r.row.comparison.shift.abs();
            size(b).total_cmp(&size(a)).then(a.name.cmp(&b.name))
        });
        rows
    }

    /// Kinds of system calls of which there are more or fewer inside of a scope. They are known by samples, so that small
    /// changes say nothing.
    fn calls_inside(&self, of_kind: &dyn Fn(Metric) -> Column) -> Vec<Part> {
        const SHARE: f64 = 0.2;
        const CALLS: f64 = 16.0;
        if !self.table.knows_callers(Metric::CallsRead) {
            return Vec::new();
        }
        let parts = Metric::SYSTEM_CALLS.into_iter().map(|metric| {
            let column = of_kind(metric);
            let (baseline, candidate) = self.table.split(&column);
            Part {
                metric,
                baseline: median(baseline),
                candidate: median(candidate),
            }
        });
        let is_changed = |p: &Part| p.change().abs() >= CALLS.max(SHARE * p.baseline);
        let mut parts: Vec<Part> = parts.filter(is_changed).collect();
        parts.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()));
        parts
    }
}
