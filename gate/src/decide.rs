//! The verdict over all comparisons of a gate.
//!
//! Two ways lead to a finding, each with half of the error rate. Down the hierarchy: the whole run's
//! metrics are one family; only where one of them changed are thread roles looked at, and only within a
//! role that changed its functions. That way few comparisons compete, so few runs are enough. And across:
//! all functions at once, with the permutation maximum over the family; that way a function is found
//! whose change drowns in the noise of the whole.

use crate::budget::{self, BudgetRow};
use crate::cause::Cause;
use crate::compare::{Answer, Comparison, Question, Rules, compare};
use crate::explain::{self, Explanation, change};
use crate::metric::{Metric, Unit};
use crate::names::is_like;
use crate::random::Random;
use crate::run::{NameId, RoleId, Run, Side};
use crate::stats::family::{self, Exchange, Member};
use crate::stats::{median, quantile};
use crate::table::{Column, Table};

/// The whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    NoRegression,
    Regression,
    /// Too few runs, or too noisy ones.
    CannotTell,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::NoRegression => "no-regression",
            Verdict::Regression => "regression",
            Verdict::CannotTell => "cannot-tell",
        }
    }
}

/// A metric of the whole run or of a role.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub metric: Metric,
    pub comparison: Comparison,
    /// P of an increase, adjusted for the family it was tested in; `None` when it was not tested.
    pub adjusted_p: Option<f64>,
}

impl Row {
    /// Higher, and so with the error rate of the family kept.
    fn is_worse(&self, rules: &Rules) -> bool {
        self.comparison.answer == Answer::Higher
            && (self.comparison.p.is_none()
                || self.adjusted_p.is_some_and(|p| p <= rules.alpha_of_half()))
    }
}

/// A metric of a role's threads.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleRow {
    pub role: RoleId,
    pub row: Row,
}

/// A metric of a function itself.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionRow {
    pub role: RoleId,
    pub function: NameId,
    pub row: Row,
}

/// How a finding was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The whole run changed.
    Whole,
    /// A function changed, in the family of all functions.
    Function,
}

/// Something that became worse.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub way: Way,
    pub row: Row,
    /// Other metrics of the whole run that the same cause made worse.
    pub also: Vec<Metric>,
    pub explanation: Explanation,
}

/// A function that became heavier while what is around it became lighter.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    pub role: RoleId,
    pub function: NameId,
    pub metric: Metric,
    pub shift: f64,
}

/// What a gate says.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    pub whole: Vec<Row>,
    pub roles: Vec<RoleRow>,
    /// Functions that changed in either direction, the largest change first.
    pub functions: Vec<FunctionRow>,
    /// The first is the one to look at.
    pub findings: Vec<Finding>,
    pub moved: Vec<Moved>,
    pub budgets: Vec<BudgetRow>,
    pub warnings: Vec<String>,
    /// Runs a side with which everything would probably be known.
    pub runs_needed: Option<usize>,
    /// Functions that were compared at once.
    pub family_size: usize,
}

/// Judges a table.
pub fn judge(table: &Table, rules: &Rules) -> Outcome {
    let judge = Judge {
        table,
        rules,
        wall_ns: median(table.split(&table.whole(Metric::Wall)).0),
        cpu_ns: median(table.split(&table.whole(Metric::Cpu)).0),
        drift: drift(table),
    };
    judge.run()
}

struct Judge<'a> {
    table: &'a Table,
    rules: &'a Rules,
    wall_ns: f64,
    cpu_ns: f64,
    drift: f64,
}

impl Judge<'_> {
    fn run(&self) -> Outcome {
        let whole = self.whole();
        let worse: Vec<Metric> = whole
            .iter()
            .filter(|row| self.is_cost(row.metric) && row.is_worse(self.rules))
            .map(|row| row.metric)
            .collect();
        let roles = self.roles(&worse);
        let (across, moved, family_size) = self.functions();
        let mut findings = self.findings_of_whole(&whole, &worse);
        for row in across.iter().filter(|r| r.row.is_worse(self.rules)) {
            if moved
                .iter()
                .any(|m| (m.role, m.function, m.metric) == key(row))
            {
                continue;
            }
            let is_explained = findings.iter().any(|f| self.explains(f, row));
            if !is_explained {
                findings.push(self.finding_of_function(row));
            }
        }
        findings.retain(|finding| !self.is_ignored(finding));
        let budgets = budget::rows(self.table, self.rules);
        let is_exceeded = budgets.iter().any(BudgetRow::is_exceeded);
        let required = |metric| self.rules.required.contains(&metric);
        let required = whole.iter().filter(|r| required(r.metric));
        let open: Vec<&Row> = required
            .filter(|r| r.comparison.answer == Answer::Unknown && !r.comparison.is_not_higher)
            .collect();
        let verdict = if !findings.is_empty() || is_exceeded {
            Verdict::Regression
        } else if open.is_empty() {
            Verdict::NoRegression
        } else {
            Verdict::CannotTell
        };
        Outcome {
            verdict,
            runs_needed: open.iter().filter_map(|r| r.comparison.runs_needed).max(),
            roles,
            functions: across,
            findings,
            moved,
            budgets,
            warnings: self.warnings(),
            family_size,
            whole,
        }
    }

    fn is_cost(&self, metric: Metric) -> bool {
        metric.is_cost() && !self.rules.ignored_metrics.contains(&metric)
    }

    fn is_ignored(&self, finding: &Finding) -> bool {
        let explanation = &finding.explanation;
        let named = [explanation.function, explanation.deepest];
        named.into_iter().flatten().any(|name| {
            let text = self.table.names.text(name);
            self.rules
                .ignored_functions
                .iter()
                .any(|p| is_like(text, p))
        })
    }

    /// Least absolute change that matters.
    fn floor(&self, metric: Metric) -> f64 {
        self.rules.floor(metric, self.wall_ns, self.cpu_ns)
    }

    fn compare(&self, column: &[f64], metric: Metric, is_exact: bool) -> Comparison {
        let (baseline, candidate) = self.table.split(column);
        let is_time = metric.unit() == Unit::Nanoseconds;
        let question = Question {
            baseline,
            candidate,
            groups: Some((
                self.table.grouped(column, Side::Baseline),
                self.table.grouped(column, Side::Candidate),
            )),
            is_exact,
            floor: self.floor(metric),
            drift: if is_time { self.drift } else { 0.0 },
        };
        compare(&question, self.rules)
    }

    /// P of an increase of each column, adjusted over all of them.
    fn adjusted(&self, columns: &[(Metric, &Column)]) -> Vec<f64> {
        let members: Vec<Member> = columns
            .iter()
            .map(|(metric, column)| {
                let (baseline, candidate) = self.table.split(column);
                let least = self.rules.min_effect * median(baseline);
                Member {
                    baseline: baseline.to_vec(),
                    candidate: candidate.to_vec(),
                    // An effect that just matters, measured without noise, has t = 5.
                    least_error: 0.2 * least.max(self.floor(*metric)),
                }
            })
            .collect();
        let paired = self.rules.paired && self.table.baseline_count == self.table.candidate_count();
        let exchange = if paired {
            Exchange::Pairs
        } else {
            Exchange::Runs
        };
        family::adjusted(&members, exchange, &mut Random::new(self.rules.seed))
    }

    fn whole(&self) -> Vec<Row> {
        let columns: Vec<(Metric, Column)> = Metric::ALL
            .into_iter()
            .map(|metric| (metric, self.table.whole(metric)))
            .filter(|(_, column)| column.iter().any(|v| *v > 0.0))
            .collect();
        let mut rows: Vec<Row> = columns
            .iter()
            .map(|(metric, column)| Row {
                metric: *metric,
                comparison: self.compare(column, *metric, metric.is_exact()),
                adjusted_p: None,
            })
            .collect();
        let tested: Vec<usize> = (0..rows.len())
            .filter(|at| self.is_cost(rows[*at].metric) && rows[*at].comparison.p.is_some())
            .collect();
        let family: Vec<_> = tested
            .iter()
            .map(|at| (columns[*at].0, &columns[*at].1))
            .collect();
        for (at, p) in tested.iter().zip(self.adjusted(&family)) {
            rows[*at].adjusted_p = Some(p);
        }
        rows
    }

    /// Roles, by the metrics that the whole run is worse in.
    fn roles(&self, worse: &[Metric]) -> Vec<RoleRow> {
        let mut rows = Vec::new();
        for metric in worse {
            let columns: Vec<(RoleId, Column)> = self
                .table
                .roles()
                .into_iter()
                .map(|role| (role, self.table.role(role, *metric)))
                .filter(|(_, column)| median(column) >= self.floor(*metric))
                .collect();
            let family: Vec<_> = columns
                .iter()
                .map(|(_, column)| (*metric, column))
                .collect();
            let adjusted = self.adjusted(&family);
            for ((role, column), p) in columns.iter().zip(adjusted) {
                rows.push(RoleRow {
                    role: *role,
                    row: Row {
                        metric: *metric,
                        comparison: self.compare(column, *metric, metric.is_exact()),
                        adjusted_p: Some(p),
                    },
                });
            }
        }
        rows
    }

    /// All functions at once.
    fn functions(&self) -> (Vec<FunctionRow>, Vec<Moved>, usize) {
        let mut members: Vec<(RoleId, NameId, Metric, &Column)> = Vec::new();
        for (role, name) in self.table.functions() {
            for metric in Metric::OF_FUNCTIONS
                .into_iter()
                .filter(|m| self.is_cost(*m))
            {
                let Some(column) = self.table.function(role, name, metric) else {
                    continue;
                };
                let (baseline, candidate) = self.table.split(column);
                if median(baseline).max(median(candidate)) >= self.floor(metric) {
                    members.push((role, name, metric, column));
                }
            }
        }
        let family: Vec<_> = members
            .iter()
            .map(|(_, _, metric, column)| (*metric, *column))
            .collect();
        let adjusted = self.adjusted(&family);
        let mut rows = Vec::new();
        let mut moved = Vec::new();
        for ((role, function, metric, column), p) in members.iter().zip(adjusted) {
            let row = FunctionRow {
                role: *role,
                function: *function,
                row: Row {
                    metric: *metric,
                    comparison: self.compare(column, *metric, false),
                    adjusted_p: Some(p),
                },
            };
            if row.row.is_worse(self.rules) && self.has_moved((*role, *function), column, *metric) {
                moved.push(Moved {
                    role: *role,
                    function: *function,
                    metric: *metric,
                    shift: row.row.comparison.shift,
                });
            }
            if matches!(row.row.comparison.answer, Answer::Higher | Answer::Lower) {
                rows.push(row);
            }
        }
        rows.sort_by(|a, b| {
            let size = |r: &FunctionRow| r.row.comparison.shift.abs();
            size(b).total_cmp(&size(a)).then(key(a).cmp(&key(b)))
        });
        (rows, moved, members.len())
    }

    /// Whether what this function became heavier by came from elsewhere: from its callees, from what else its
    /// callers call, from another role's threads. The function with its callees is looked at, its callers, its
    /// role and the whole: the smaller what is around it, the less its noise hides.
    fn has_moved(
        &self,
        (role, function): (RoleId, NameId),
        column: &[f64],
        metric: Metric,
    ) -> bool {
        let totals = explain::totals_of_functions(self.table, metric);
        let callers = explain::callers(self.table, metric, role, function);
        let around = callers
            .iter()
            .filter_map(|name| totals.get(&(role, *name)).cloned())
            .chain([self.table.role(role, metric), self.table.whole(metric)]);
        let shift = change(self.table, column);
        around
            .into_iter()
            .any(|all| self.has_moved_within(&all, column, shift, metric))
    }

    /// Whether the rest of `all` became lighter by about what this part became heavier, or all of it did not grow by
    /// even half of that. Which of two neighbours a sample falls on may change from build to build, and then one of
    /// them grows and what is around both does not.
    fn has_moved_within(&self, all: &[f64], part: &[f64], shift: f64, metric: Metric) -> bool {
        let rest: Vec<f64> = all.iter().zip(part).map(|(all, part)| all - part).collect();
        let of_rest = self.compare(&rest, metric, false);
        let of_all = self.compare(all, metric, false);
        let lighter = of_rest.interval.high < 0.0 && of_rest.shift <= -0.5 * shift;
        lighter || of_all.shift < 0.5 * shift
    }

    /// One finding for what took longer, and one for counts that it does not explain.
    fn findings_of_whole(&self, rows: &[Row], worse: &[Metric]) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        let row = |metric: Metric| rows.iter().find(|r| r.metric == metric).cloned();
        // Wall first: what makes the run longer is what people notice. Then the largest.
        let mut order: Vec<Metric> = worse.to_vec();
        order.sort_by(|a, b| {
            let key = |m: Metric| {
                let size = row(m).map_or(0.0, |r| r.comparison.shift);
                let is_time = m.unit() == Unit::Nanoseconds;
                (
                    m != Metric::Wall,
                    !is_time,
                    if is_time { -size } else { f64::from(m as u8) },
                )
            };
            key(*a)
                .partial_cmp(&key(*b))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        for metric in order {
            let Some(row) = row(metric) else { continue };
            let explanation = explain::explain(self.table, metric);
            let same = findings.iter_mut().find(|f| {
                let known = &f.explanation;
                let same_cause = known.cause == explanation.cause
                    || Cause::Allocation == known.cause && explanation.cause == Cause::PageFaults
                    || Cause::Allocation == explanation.cause && known.cause == Cause::PageFaults;
                let same_function =
                    known.function.is_some() && known.function == explanation.function;
                same_cause || same_function
            });
            match same {
                Some(finding) => {
                    finding.also.push(metric);
                    if says_more(&explanation, &finding.explanation, self.table) {
                        finding.explanation = explanation;
                    }
                }
                None => findings.push(Finding {
                    way: Way::Whole,
                    row,
                    also: Vec::new(),
                    explanation,
                }),
            }
        }
        findings
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
            row: row.row.clone(),
            also: Vec::new(),
            explanation,
        }
    }

    fn warnings(&self) -> Vec<String> {
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
        warnings.extend(differing("machines", &|r| r.about.machine.clone()));
        warnings.extend(differing("intervals (ns)", &|r| {
            r.about.interval_ns.to_string()
        }));
        for run in runs.iter().filter(|r| r.about.lost > 0) {
            warnings.push(format!(
                "{}: {} records were lost",
                run.about.label, run.about.lost
            ));
        }
        for run in runs.iter().filter(|r| !r.about.complete) {
            warnings.push(format!(
                "{}: the recording did not end regularly",
                run.about.label
            ));
        }
        for metric in &self.rules.required {
            for (label, value, middle) in self.outliers(*metric) {
                warnings.push(format!(
                    "{label}: an outlier in {} ({:+.0} % of its side's median); it was not left out",
                    metric.title(),
                    100.0 * (value / middle - 1.0)
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

fn key(row: &FunctionRow) -> (RoleId, NameId, Metric) {
    (row.role, row.function, row.row.metric)
}

/// How much slower or faster the calibration loop was on one side, relative; 0 when it was not run.
fn drift(table: &Table) -> f64 {
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

#[cfg(test)]
mod tests;
