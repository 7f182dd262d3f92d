//! From rows that became worse to findings: one for each cause, the one that people notice most first.
//!
//! Times come first: those of the whole run, then those of single functions. Counts come after them, and
//! only where no time finding has the same cause or function. So a count that grew does not
//! hide a time that it cannot be the reason for: what a count costs decides that ([`crate::explain::cause`]).

use stackbeat_model::metric::{Metric, Unit};

use super::{Finding, FunctionRow, Judge, Moved, RoleRow, Row, Way, key};
use crate::comparable_names::is_like;
use crate::compare::Answer;
use crate::explain::cause::Cause;
use crate::explain::{self, Explanation};
use crate::run_table::RunTable;

impl Judge<'_> {
    /// All findings, the first being the one to look at, and what is only a notice. `worse` are the costs of
    /// the whole run that are worse, `across` the functions that changed.
    pub(super) fn findings(
        &self,
        whole: &[Row],
        worse: &[Metric],
        across: &[FunctionRow],
        moved: &[Moved],
        calls: &[RoleRow],
    ) -> (Vec<Finding>, Vec<Finding>) {
        let row = |metric: &Metric| whole.iter().find(|r| r.metric == *metric);
        let (times, counts): (Vec<&Row>, Vec<&Row>) =
            worse.iter().filter_map(row).partition(|r| is_time(r));
        let mut findings = Vec::new();
        for row in first_felt(times) {
            take(&mut findings, self.found(row, Way::Whole), self.table);
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
        // What else runs on the machine takes the CPU away, too: that is checked when nothing of the program
        // is found.
        findings.sort_by_key(|finding| finding.explanation.cause == Cause::Scheduling);

        // Who reads and writes is known of system calls only, so these come before.
        let (transfers, counts): (Vec<&Row>, Vec<&Row>) =
            counts.into_iter().partition(|row| row.metric.is_transfer());
        let of_calls = calls.iter().map(|RoleRow { role, row }| {
            let explanation = explain::of_calls(self.table, row.metric, *role);
            finding(row, Way::Role, explanation)
        });
        let counted: Vec<Finding> = (counts.into_iter().map(|row| self.found(row, Way::Whole)))
            .chain(of_calls)
            .chain(transfers.into_iter().map(|row| self.found(row, Way::Whole)))
            .collect();
        let are_of_counts_only = findings.is_empty() && !counted.is_empty();
        let mut of_counts: Vec<Finding> = Vec::new();
        for count in counted {
            if let Some(count) = merge(&mut findings, count, self.table) {
                take(&mut of_counts, count, self.table);
            }
        }
        of_counts.retain(|finding| !self.is_ignored(finding));
        findings.extend(of_counts);
        let is_faster = (row(&Metric::Wall)).is_some_and(|r| r.comparison.answer == Answer::Lower);
        let (mut findings, mut notices): (Vec<Finding>, Vec<Finding>) = findings
            .into_iter()
            .partition(|finding| self.weighs(finding, is_faster));
        if are_of_counts_only {
            let behind = match findings.is_empty() {
                true => &mut notices,
                false => &mut findings,
            };
            if !behind.is_empty() {
                behind.extend(self.suspected(whole));
            }
        }
        (findings, notices)
    }

    /// Whether a finding makes a regression. Where the run became shorter, waiting for something else than
    /// before does not.
    fn weighs(&self, finding: &Finding, is_faster: bool) -> bool {
        let is_part = |metric: Metric| is_faster && metric.is_blocked();
        let mut metrics = finding.also.iter().chain([&finding.row.metric]);
        metrics.any(|metric| self.rules.decides(*metric) && !is_part(*metric))
    }

    /// Times that grew beside counts that are known to differ. Equal programs do not get here, so the error
    /// rate of the gate is not spent by them: each is tested by itself, without a least effect.
    fn suspected(&self, whole: &[Row]) -> Vec<Finding> {
        let is_likely = |row: &&Row| {
            let c = &row.comparison;
            let least = self.floor(row.metric).max(self.drift * c.baseline_median);
            is_time(row)
                && (self.is_cost(row.metric) || row.metric == Metric::Process)
                && c.answer != Answer::Same
                && c.shift >= least
                && c.p.is_some_and(|p| p <= self.rules.alpha)
        };
        let (costs, evidence): (Vec<&Row>, Vec<&Row>) =
            (whole.iter().filter(is_likely)).partition(|row| self.is_cost(row.metric));
        // Waiting for a child is what it costs; where that grew, it is seen there.
        let suspected = if costs.is_empty() { evidence } else { costs };
        let mut findings = Vec::new();
        for row in first_felt(suspected) {
            take(&mut findings, self.found(row, Way::Suspected), self.table);
        }
        for finding in &mut findings {
            // It may be noise: no function is suspected that certainly does less.
            if makes_fewer_calls(&finding.explanation) {
                let explanation = &mut finding.explanation;
                (explanation.function, explanation.deepest) = (None, None);
                explanation.path.clear();
                explanation.parts.clear();
                explanation.calls.clear();
            }
        }
        findings.retain(|finding| !self.is_ignored(finding));
        findings
    }

    fn found(&self, row: &Row, way: Way) -> Finding {
        let explanation = explain::explain(self.table, row.metric, self.rules.pairing);
        finding(row, way, explanation)
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

/// Whether the function that is named makes fewer system calls than before.
fn makes_fewer_calls(explanation: &Explanation) -> bool {
    const SHARE: f64 = 0.1;
    const LEAST: f64 = 16.0;
    let parts = explanation.parts.iter();
    let calls = parts.filter(|part| part.metric.is_steady_call() && !part.metric.is_call_bytes());
    let (before, after) = calls.fold((0.0, 0.0), |(before, after), part| {
        (before + part.baseline, after + part.candidate)
    });
    before - after >= LEAST.max(SHARE * before)
}

fn finding(row: &Row, way: Way, explanation: Explanation) -> Finding {
    Finding {
        way,
        changed: None,
        row: row.clone(),
        also: Vec::new(),
        explanation,
    }
}

/// Adds what became worse to the finding with the same cause, or as a new one.
fn take(findings: &mut Vec<Finding>, new: Finding, table: &RunTable) {
    let new = merge(findings, new, table);
    findings.extend(new);
}

/// Adds what became worse to the finding with the same cause; gives it back where there is none.
fn merge(findings: &mut [Finding], new: Finding, table: &RunTable) -> Option<Finding> {
    let Some(finding) = findings.iter_mut().find(|known| is_of(&new, known)) else {
        return Some(new);
    };
    finding.also.push(new.row.metric);
    if says_more(&new.explanation, &finding.explanation, table) {
        finding.explanation = new.explanation;
    }
    None
}

/// Whether what became worse has the cause of a finding that is known.
fn is_of(new: &Finding, finding: &Finding) -> bool {
    let (explanation, known) = (&new.explanation, &finding.explanation);
    let metric = new.row.metric;
    if metric.is_system_call() {
        // Time in such calls is seen where they are made, and so are their bytes.
        let moves = |metric: &Metric| metric.is_call_bytes() || metric.moves();
        let mut metrics = finding.also.iter().chain([&finding.row.metric]);
        let is_cause = match metric.is_call_bytes() {
            true => metrics.any(moves),
            false => known.cause == Cause::SystemCalls,
        } || Cause::of_time_in(metric) == Some(known.cause);
        return is_cause && known.role == explanation.role;
    }
    let same_cause = known.cause == explanation.cause
        || Cause::Transfers == explanation.cause && is_of_reads_or_writes(finding)
        || Cause::Allocation == known.cause && explanation.cause == Cause::PageFaults
        || Cause::Allocation == explanation.cause && known.cause == Cause::PageFaults
        || Cause::Transfers == explanation.cause && known.cause == Cause::Io;
    let same_function = known.function.is_some() && known.function == explanation.function;
    same_cause || same_function
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

/// Whether allocations lead to a function that a time, put down to allocation, did not lead to. Who allocates
/// is sampled by counting, so it is known where few samples of time leave the place in doubt.
fn says_more(allocations: &Explanation, known: &Explanation, table: &RunTable) -> bool {
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
