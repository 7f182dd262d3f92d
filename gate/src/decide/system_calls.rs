//! System calls by kind, and what they move: threads that make more of them, or move more, for certain.
//!
//! They are judged by role, not over the whole run: one thread that asks for its events again and again, as
//! often as time will have it, does not hide another that now opens a file each time.

use stackbeat_model::metric::Metric;

use super::{Judge, RoleRow, Row};
use crate::explain::change;
use crate::stats::median;

impl Judge<'_> {
    /// Roles whose threads make more calls of a kind, the largest change first; then those that read or write
    /// more.
    pub(super) fn system_calls(&self) -> Vec<RoleRow> {
        let kinds: Vec<Metric> = Metric::SYSTEM_CALLS
            .into_iter()
            .filter(|m| m.is_steady_call() && !self.rules.ignored_metrics.contains(m))
            .filter(|m| self.table.counts(*m))
            .collect();
        let mut rows = Vec::new();
        for role in self.table.roles() {
            for metric in &kinds {
                let column = self.table.role(role, *metric);
                let (baseline, candidate) = self.table.split(&column);
                if !are_other_counts(*metric, baseline, candidate) {
                    continue;
                }
                let row = Row {
                    metric: *metric,
                    comparison: self.compare_for(&column, *metric, true, true),
                    adjusted_p: None,
                };
                // What another role makes less of has moved.
                let whole = change(self.table, &self.table.whole(*metric));
                if row.is_worse(self.rules) && 2.0 * whole >= row.comparison.shift {
                    rows.push(RoleRow { role, row });
                }
            }
        }
        // More calls are the reason for more bytes.
        rows.sort_by(|a, b| {
            let is_bytes = |row: &RoleRow| row.row.metric.is_call_bytes();
            let shift = |row: &RoleRow| row.row.comparison.shift;
            (is_bytes(a).cmp(&is_bytes(b))).then(shift(b).total_cmp(&shift(a)))
        });
        rows
    }
}

/// Whether counts of system calls, or of their bytes, before and after a change are other numbers for
/// certain.
pub(crate) fn are_other_counts(metric: Metric, before: &[f64], after: &[f64]) -> bool {
    let least = match metric.is_call_bytes() {
        true => PLAIN_BYTES,
        false => PLAIN_CALLS,
    };
    is_certain(before, after) && is_plain(before, after, least)
}

/// What two runs a side find.
const PLAIN_CALLS: f64 = 50.0;
const PLAIN_BYTES: f64 = 65536.0;

/// Counts that are the same in two runs may vary all the same: then both sides have to be of one number each,
/// or there have to be more runs of the baseline.
fn is_certain(baseline: &[f64], candidate: &[f64]) -> bool {
    const ENOUGH: usize = 4;
    let is_constant = |side: &[f64]| side.iter().all(|v| *v == side[0]);
    baseline.len() > 1
        && candidate.len() > 1
        && is_constant(baseline)
        && (baseline.len() >= ENOUGH || is_constant(candidate))
}

/// A count that has two values, for which chance decides, is the same in both runs of each side, and higher
/// in the candidate, in one of sixteen gates. It varies by little, so two runs find only what is this much
/// more.
fn is_plain(baseline: &[f64], candidate: &[f64], least: f64) -> bool {
    const ENOUGH: usize = 3;
    const SHARE: f64 = 0.1;
    let before = median(baseline);
    let more = (median(candidate) - before).abs();
    baseline.len().min(candidate.len()) >= ENOUGH || more >= least.max(SHARE * before)
}
