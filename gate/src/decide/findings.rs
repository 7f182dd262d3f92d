//! From rows that became worse to findings: one for each cause, the one that people notice most first.
//!
//! Times come first: those of the whole run, then those of single functions. Counts come after them, and
//! only where no time finding has the same cause or function. So a count that grew by a percent does not
//! hide a time that it cannot be the reason for: what a count costs decides that ([`crate::cause`]).

use super::{Finding, FunctionRow, Judge, Moved, RoleRow, Row, Way, key};
use crate::cause::Cause;
use crate::compare::Answer;
use crate::explain::{self, Explanation};
use crate::metric::{Metric, Unit};
use crate::names::is_like;
use crate::table::Table;

/// Counts that grew by less are a small part of whatever changed ...
const SMALL: f64 = 0.01;
/// ... so that a time is suspected beside them which grew with this p, by itself: it is about what comes first, not about whether
/// anything is worse.
const SUSPECTED: f64 = 0.05;

impl Judge<'_> {
    /// All findings, the first being the one to look at. `worse` are the costs of the whole run that are
    /// worse, `across` the functions that changed.
    pub(super) fn findings(
        &self,
        whole: &[Row],
        worse: &[Metric],
        across: &[FunctionRow],
        moved: &[Moved],
        calls: &[RoleRow],
    ) -> Vec<Finding> {
        let row = |metric: &Metric| whole.iter().find(|r| r.metric == *metric);
        let (times, counts): (Vec<&Row>, Vec<&Row>) =
            worse.iter().filter_map(row).partition(|r| is_time(r));
        let mut findings = Vec::new();
        for row in first_felt(times) {
            self.take(&mut findings, row, Way::Whole);
        }
        for row in across.iter().filter(|r| r.row.is_worse(self.rules)) {
            let has_moved = moved
                .iter()
                .any(|m| (m.role, m.function, m.metric) == key(row));
            if !has_moved && !findings.iter().any(|f| self.explains(f, row)) {
                findings.push(self.finding_of_function(row));
            }
        }
        findings.retain(|finding| !self.is_ignored(finding));
        // What else runs on the machine takes the CPU away, too: that is looked at when nothing of the program is found.
        findings.sort_by_key(|finding| finding.explanation.cause == Cause::Scheduling);
        let mut of_counts = Vec::new();
        for row in &counts {
            self.take(&mut of_counts, row, Way::Whole);
        }
        of_counts.retain(|finding| !self.is_ignored(finding));
        if of_counts.is_empty() && calls.is_empty() {
            return findings;
        }
        if findings.is_empty() {
            let rows = (counts.iter().copied()).chain(calls.iter().map(|role| &role.row));
            let is_small = |row: &Row| row.comparison.relative < SMALL;
            let most = match rows.into_iter().all(is_small) {
                true => SUSPECTED,
                false => self.rules.alpha,
            };
            let (costs, evidence): (Vec<&Row>, Vec<&Row>) =
                (self.suspected(whole, most).into_iter()).partition(|row| self.is_cost(row.metric));
            // Waiting for a child is what it costs; where that grew, it is seen there.
            let suspected = if costs.is_empty() { evidence } else { costs };
            for row in first_felt(suspected) {
                self.take(&mut findings, row, Way::Suspected);
            }
            findings.retain(|finding| !self.is_ignored(finding));
        }
        // Who reads and writes is known of system calls only, so these come before.
        let (transfers, counts): (Vec<&Row>, Vec<&Row>) =
            counts.into_iter().partition(|row| row.metric.is_transfer());
        for row in counts {
            self.take(&mut findings, row, Way::Whole);
        }
        for RoleRow { role, row } in calls {
            let explanation = explain::of_calls(self.table, row.metric, *role);
            self.take_explained(&mut findings, row, Way::Role, explanation);
        }
        for row in transfers {
            self.take(&mut findings, row, Way::Whole);
        }
        findings.retain(|finding| !self.is_ignored(finding));
        findings
    }

    /// Times that grew beside counts that are known to differ. Equal programs do not get here, so the error
    /// rate of the gate is not spent by them: each is tested by itself, without a least effect, and has a p of at most `most`.
    fn suspected<'r>(&self, whole: &'r [Row], most: f64) -> Vec<&'r Row> {
        let is_likely = |row: &&Row| {
            let c = &row.comparison;
            let least = self.floor(row.metric).max(self.drift * c.baseline_median);
            is_time(row)
                && (self.is_cost(row.metric) || row.metric == Metric::Process)
                && c.answer != Answer::Same
                && c.shift >= least
                && c.p.is_some_and(|p| p <= most)
        };
        whole.iter().filter(is_likely).collect()
    }

    /// Adds what became worse to the finding with the same cause, or as a new one.
    fn take(&self, findings: &mut Vec<Finding>, row: &Row, way: Way) {
        let explanation = explain::explain(self.table, row.metric, self.rules.pairing);
        self.take_explained(findings, row, way, explanation);
    }

    fn take_explained(
        &self,
        findings: &mut Vec<Finding>,
        row: &Row,
        way: Way,
        explanation: Explanation,
    ) {
        let same = findings.iter_mut().find(|f| {
            let known = &f.explanation;
            if row.metric.is_system_call() {
                // Time in such calls is seen where they are made, and so are their bytes.
                let moves = |metric: &Metric| metric.is_call_bytes() || metric.moves();
                let mut metrics = f.also.iter().chain([&f.row.metric]);
                let is_cause = match row.metric.is_call_bytes() {
                    true => metrics.any(moves),
                    false => known.cause == Cause::SystemCalls,
                } || Cause::of_time_in(row.metric) == Some(known.cause);
                return is_cause && known.role == explanation.role;
            }
            let same_cause = known.cause == explanation.cause
                || Cause::Transfers == explanation.cause && is_of_reads_or_writes(f)
                || Cause::Allocation == known.cause && explanation.cause == Cause::PageFaults
                || Cause::Allocation == explanation.cause && known.cause == Cause::PageFaults
                || Cause::Transfers == explanation.cause && known.cause == Cause::Io;
            let same_function = known.function.is_some() && known.function == explanation.function;
            same_cause || same_function
        });
        let Some(finding) = same else {
            findings.push(Finding {
                way,
                changed: None,
                row: row.clone(),
                also: Vec::new(),
                explanation,
            });
            return;
        };
        finding.also.push(row.metric);
        if says_more(&explanation, &finding.explanation, self.table) {
            finding.explanation = explanation;
        }
    }

    fn explains(&self, finding: &Finding, row: &FunctionRow) -> bool {
        let name = self.table.names.text(row.function);
        finding.explanation.path.iter().any(|frame| frame == name)
            || finding.explanation.function == Some(row.function)
            // The whole is worse in this metric and the function is a part of it: one cause, not a list.
            || finding.row.metric == row.row.metric
            || finding.also.contains(&row.row.metric)
            || finding.row.metric == Metric::Wall && finding.explanation.metric == row.row.metric
    }

    fn finding_of_function(&self, row: &FunctionRow) -> Finding {
        let mut explanation = explain::explain_sum(self.table, row.row.metric, Some(row.role));
        let is_about_it =
            explanation.function == Some(row.function) || explanation.deepest == Some(row.function);
        if !is_about_it {
            explanation = explain::of_function(self.table, row.row.metric, row.role, row.function);
        }
        Finding {
            way: Way::Function,
            changed: Some((row.role, row.function)),
            row: row.row.clone(),
            also: Vec::new(),
            explanation,
        }
    }

    fn is_ignored(&self, finding: &Finding) -> bool {
        let explanation = &finding.explanation;
        let named = [explanation.function, explanation.deepest];
        named.into_iter().flatten().any(|name| {
            let text = self.table.names.text(name);
            let ignored = &self.rules.ignored_functions;
            ignored.iter().any(|p| is_like(text, p))
        })
    }
}

/// Whether system calls that read or write are a part of a finding.
fn is_of_reads_or_writes(finding: &Finding) -> bool {
    let mut metrics = finding.also.iter().chain([&finding.row.metric]);
    metrics.any(|metric| {
        matches!(
            metric,
            Metric::CallsRead
                | Metric::CallsWrite
                | Metric::CallsCopy
                | Metric::BytesRead
                | Metric::BytesWritten
        )
    })
}

fn is_time(row: &Row) -> bool {
    row.metric.unit() == Unit::Nanoseconds
}

/// Wall time first: what makes the run longer is what people notice. Then the largest.
fn first_felt(mut rows: Vec<&Row>) -> Vec<&Row> {
    rows.sort_by(|a, b| {
        let is_part = |row: &Row| row.metric != Metric::Wall;
        let size = |row: &Row| row.comparison.shift;
        (is_part(a).cmp(&is_part(b))).then(size(b).total_cmp(&size(a)))
    });
    rows
}

/// Whether allocations lead to a function that a time, put down to allocation, did not lead to. Who allocates is
/// sampled by counting, so it is known where few samples of time leave the place in doubt.
fn says_more(allocations: &Explanation, known: &Explanation, table: &Table) -> bool {
    let is_allocation = matches!(
        allocations.metric,
        Metric::Allocations | Metric::AllocatedBytes
    );
    let is_elsewhere = allocations.function.is_some_and(|function| {
        let name = table.names.text(function);
        !known.path.iter().any(|frame| frame == name)
    });
    is_allocation && known.cause == Cause::Allocation && is_elsewhere
}
