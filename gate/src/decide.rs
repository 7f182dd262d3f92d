//! The verdict over all comparisons of a gate.
//!
//! Two ways lead to a finding, each with half of the error rate. Down the hierarchy: the whole run's
//! metrics are one family; only where one of them changed are thread roles compared, and only within a
//! role that changed its functions. That way few comparisons compete, so few runs are enough. And across:
//! all functions at once, with the permutation maximum over the family; that way a function is found
//! whose change drowns in the noise of the whole.

mod confirmation;
mod findings;
mod parts;
mod scopes;
pub(crate) mod system_calls;
mod warnings;

pub use confirmation::Confirmation;
pub use parts::{ProcessRow, RoleRow};
pub use scopes::ScopeRow;

use stackbeat_model::metric::{Metric, Unit};

use crate::compare::{Answer, Comparison, Question, compare};
use crate::explain::{self, Explanation, change};
use crate::random::Random;
use crate::rules::{Pairing, Rules};
use crate::run::{NameId, RoleId, Side};
use crate::run_budget::{self, BudgetRow, Uncounted};
use crate::run_table::{PerRun, RunTable};
use crate::stats::median;
use crate::stats::multiple_comparisons::{self, Exchange, Member};

/// The whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing that decides became worse.
    NoRegression,
    /// At least one finding decides.
    Regression,
    /// Too few runs, or too noisy ones.
    CannotTell,
}

impl Verdict {
    /// The name in JSON.
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
    /// What was compared.
    pub metric: Metric,
    /// Both sides and the answer.
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

/// A metric of a function itself.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionRow {
    /// The threads that ran the function.
    pub role: RoleId,
    /// The function.
    pub function: NameId,
    /// What its own metric did.
    pub row: Row,
}

/// How a finding was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The whole run changed.
    Whole,
    /// A function changed, in the family of all functions.
    Function,
    /// A count of a role's threads changed, for certain; the row is the role's.
    Role,
    /// Counts prove that the programs differ, and this time of the whole run grew with them: by less than the
    /// least effect, or not beyond the noise band. It is no regression by itself, and stands behind the
    /// counts.
    Suspected,
}

/// Something that became worse.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// By which way it was found.
    pub way: Way,
    /// The function whose own metric the row is; `None`: it is the whole run's, or a role's.
    pub changed: Option<(RoleId, NameId)>,
    /// The metric, and by how much it changed.
    pub row: Row,
    /// Other metrics of the whole run that the same cause made worse.
    pub also: Vec<Metric>,
    /// Where and why it became worse.
    pub explanation: Explanation,
}

impl Outcome {
    /// The first suspicion.
    pub fn suspected(&self) -> Option<&Finding> {
        let mut all = self.findings.iter().chain(&self.notices);
        all.find(|finding| finding.way == Way::Suspected)
    }

    /// Takes in what fresh runs say of the first suspicion: it comes first where they show it, and is
    /// dropped, as those that were not tested, where they do not.
    pub fn settle(&mut self, said: Confirmation) {
        let is_confirmed = said.is_confirmed;
        for list in [&mut self.findings, &mut self.notices] {
            let first = list.iter().find(|f| f.way == Way::Suspected).cloned();
            list.retain(|finding| finding.way != Way::Suspected);
            if let Some(first) = first.filter(|_| is_confirmed) {
                list.insert(0, first);
            }
        }
        self.suspicion = Some(said);
    }
}

impl Finding {
    /// Whether it makes a regression, by itself or by what it made worse besides.
    pub fn decides(&self, rules: &Rules) -> bool {
        let mut metrics = self.also.iter().chain([&self.row.metric]);
        self.way != Way::Suspected && metrics.any(|metric| rules.decides(*metric))
    }
}

/// A function that became heavier while what is around it did not.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// The threads that ran the function.
    pub role: RoleId,
    /// The function.
    pub function: NameId,
    /// What became heavier.
    pub metric: Metric,
    /// By how much, in the metric's unit a run.
    pub shift: f64,
    /// What is around it became lighter by about as much; otherwise it only did not grow with it.
    pub is_lighter_around: bool,
}

/// What a gate says.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Whether the gate passes.
    pub verdict: Verdict,
    /// The metrics of the whole run.
    pub whole: Vec<Row>,
    /// Of programs of several processes, where these are more than a role.
    pub processes: Vec<ProcessRow>,
    /// The metrics of the threads by role.
    pub roles: Vec<RoleRow>,
    /// Functions that changed in either direction, the largest change first.
    pub functions: Vec<FunctionRow>,
    /// Scopes of the program, the largest change first.
    pub scopes: Vec<ScopeRow>,
    /// What makes a regression; the first is the one to look at.
    pub findings: Vec<Finding>,
    /// What became more and makes none: counts, and times that are suspected beside them.
    pub notices: Vec<Finding>,
    /// Functions whose cost only moved there from others.
    pub moved: Vec<Moved>,
    /// What the candidate spends of each budget.
    pub budgets: Vec<BudgetRow>,
    /// What makes the answer less sure, a sentence each.
    pub warnings: Vec<String>,
    /// Required metrics of the whole run of which an increase is neither known nor ruled out.
    pub open: Vec<Metric>,
    /// Runs a side with which everything would probably be known.
    pub runs_needed: Option<usize>,
    /// Why it cannot be told, where more runs are not the answer.
    pub obstacle: Option<String>,
    /// What fresh runs said about the first finding.
    pub confirmation: Option<Confirmation>,
    /// What they said about the first suspicion.
    pub suspicion: Option<Confirmation>,
    /// Functions that were compared at once.
    pub family_size: usize,
}

/// Runs shorter than so many times the least absolute change of a time are never passed: "the same" would
/// mean that less than ten percent more, at best, were seen.
const SHORT: f64 = 10.0;
/// Where the least effect of 3 % begins to count, and not the absolute floor.
const LONG_ENOUGH: f64 = 100.0;

/// Judges a table.
pub fn judge(table: &RunTable, rules: &Rules) -> Outcome {
    let judge = Judge {
        table,
        rules,
        wall_ns: median(table.split(&table.whole(Metric::Wall)).0),
        cpu_ns: median(table.split(&table.whole(Metric::Cpu)).0),
        drift: warnings::drift(table),
        own_share: own_share(table, rules),
    };
    judge.run()
}

struct Judge<'a> {
    table: &'a RunTable,
    rules: &'a Rules,
    wall_ns: f64,
    cpu_ns: f64,
    drift: f64,
    /// The part of wall times that is a run's own.
    own_share: f64,
}

/// The part of wall times that is a run's own: of two that share a processor, without the time that the main
/// thread was ready to run, which is the other's turn. At least half.
fn own_share(table: &RunTable, rules: &Rules) -> f64 {
    if rules.pairing != Pairing::Together {
        return 1.0;
    }
    let of_baseline = |column: &[f64]| median(table.split(column).0);
    let is_root = |role: &RoleId| table.names.roles()[role.0 as usize].is_root;
    let main = table.roles().into_iter().filter(is_root);
    let ready: f64 = main
        .map(|role| of_baseline(&table.role(role, Metric::Ready)))
        .sum();
    let wall = of_baseline(&table.whole(Metric::Wall));
    (1.0 - ready / wall.max(1.0)).clamp(0.5, 1.0)
}

impl Judge<'_> {
    fn run(&self) -> Outcome {
        let whole = self.whole();
        let worse: Vec<Metric> = whole
            .iter()
            .filter(|row| self.is_cost(row.metric) && row.is_worse(self.rules))
            .map(|row| row.metric)
            .collect();
        let mut roles = self.roles(&worse);
        let (across, moved, family_size) = self.functions();
        let calls = self.system_calls();
        let (findings, notices) = self.findings(&whole, &worse, &across, &moved, &calls);
        roles.extend(calls);
        let budgets = run_budget::rows(self.table, self.rules);
        let is_exceeded = budgets.iter().any(BudgetRow::is_exceeded);
        let required = |metric| self.rules.required.contains(&metric);
        let required = whole.iter().filter(|r| required(r.metric));
        let open: Vec<&Row> = required
            .filter(|r| is_open(&r.comparison))
            .filter(|r| r.metric != Metric::Wall || !self.knows_own_time(&whole))
            .collect();
        let obstacle = if self.is_too_short() {
            Some(self.too_short())
        } else {
            self.uncounted(&budgets)
        };
        let verdict = if !findings.is_empty() || is_exceeded {
            Verdict::Regression
        } else if open.is_empty() && obstacle.is_none() {
            Verdict::NoRegression
        } else {
            Verdict::CannotTell
        };
        Outcome {
            verdict,
            open: open.iter().map(|r| r.metric).collect(),
            runs_needed: open.iter().filter_map(|r| r.comparison.runs_needed).max(),
            obstacle: obstacle.filter(|_| verdict == Verdict::CannotTell),
            confirmation: None,
            suspicion: None,
            scopes: self.scopes(),
            processes: self.processes(&worse),
            roles,
            functions: across,
            findings,
            notices,
            moved: self.shown(moved),
            budgets,
            warnings: self.warnings(),
            family_size,
            whole,
        }
    }

    /// Whether all that a run of a pair that shared a processor takes itself is known: then its wall time,
    /// which has the other's turns in it, need not be. It is CPU time, and what the main thread waits in
    /// calls; waits that are too short to be seen have to be few.
    fn knows_own_time(&self, whole: &[Row]) -> bool {
        /// Of the run, were each of them as long as the interval.
        const UNSEEN: f64 = 0.1;
        let knows_cpu = whole
            .iter()
            .any(|row| row.metric == Metric::Cpu && !is_open(&row.comparison));
        if self.rules.pairing != Pairing::Together || !knows_cpu {
            return false;
        }
        let mains: Vec<RoleId> = (self.table.roles().into_iter())
            .filter(|role| self.table.names.roles()[role.0 as usize].is_root)
            .collect();
        let of_main = |metric| {
            let columns: Vec<PerRun> = mains.iter().map(|r| self.table.role(*r, metric)).collect();
            self.table.sum(columns.iter())
        };
        let is_known = |metric: Metric| {
            let column = of_main(metric);
            column.iter().all(|ns| *ns == 0.0) || {
                let comparison = self.compare(&column, metric, false);
                comparison.answer != Answer::Higher && !is_open(&comparison)
            }
        };
        let switches = of_main(Metric::VoluntarySwitches);
        let (before, after) = self.table.split(&switches);
        let intervals = self.table.runs.iter().map(|r| r.about.interval_ns);
        let longest = intervals.max().unwrap_or(0) as f64;
        let unseen = median(before).max(median(after)) * longest;
        let mut waits = Metric::ALL.into_iter().filter(|metric| metric.is_blocked());
        unseen <= UNSEEN * self.wall_ns && waits.all(is_known)
    }

    /// Whether a run is over before a change that matters could be told from none. Counts can always be told.
    fn is_too_short(&self) -> bool {
        let is_time = |metric: &Metric| metric.unit() == Unit::Nanoseconds;
        self.rules.required.iter().any(is_time) && self.wall_ns < SHORT * self.rules.floor_ns
    }

    fn too_short(&self) -> String {
        let ms = |ns: f64| ns / 1e6;
        format!(
            "a run takes {:.1} ms, and changes below {} ms are not told apart: repeat the work inside of the program \
             until a run takes {:.0} ms or more, or lower `floor` in a policy",
            ms(self.wall_ns),
            ms(self.rules.floor_ns),
            ms(LONG_ENOUGH * self.rules.floor_ns),
        )
    }

    /// Says so where something was asked that only counts could answer which some run lacks.
    fn uncounted(&self, budgets: &[BudgetRow]) -> Option<String> {
        let is_missing = |metric: &&Metric| !self.table.counts(**metric);
        let required = self.rules.required.iter().find(is_missing);
        let required = required.map(|metric| (*metric, Uncounted::of(*metric)));
        let of_budget = |row: &BudgetRow| Some((row.budget.metric, row.uncounted?));
        let (metric, why) = required.or_else(|| budgets.iter().find_map(of_budget))?;
        Some(format!(
            "{} cannot be judged: {}; {}",
            metric.title(),
            why.reason(),
            why.remedy()
        ))
    }

    fn is_cost(&self, metric: Metric) -> bool {
        metric.is_cost() && !self.rules.ignored_metrics.contains(&metric)
    }

    /// Least absolute change that matters.
    fn floor(&self, metric: Metric) -> f64 {
        self.rules.floor(metric, self.wall_ns, self.cpu_ns)
    }

    /// Least relative change of a metric that matters.
    fn min_effect(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Wall => self.rules.min_effect * self.own_share,
            _ => self.rules.min_effect,
        }
    }

    fn compare(&self, column: &[f64], metric: Metric, is_exact: bool) -> Comparison {
        self.compare_for(column, metric, is_exact, false)
    }

    fn compare_for(
        &self,
        column: &[f64],
        metric: Metric,
        is_exact: bool,
        only_differences: bool,
    ) -> Comparison {
        let (baseline, candidate) = self.table.split(column);
        let is_time = metric.unit() == Unit::Nanoseconds;
        let question = Question {
            groups: Some((
                self.table.grouped(column, Side::Baseline),
                self.table.grouped(column, Side::Candidate),
            )),
            is_exact,
            min_effect: Some(self.min_effect(metric)),
            drift: if is_time { self.drift } else { 0.0 },
            only_differences,
            ..Question::new(baseline, candidate, self.floor(metric))
        };
        compare(&question, self.rules)
    }

    /// P of an increase of each column, adjusted over all of them.
    fn adjusted(&self, columns: &[(Metric, &PerRun)]) -> Vec<f64> {
        let members: Vec<Member> = columns
            .iter()
            .map(|(metric, column)| {
                let (baseline, candidate) = self.table.split(column);
                let least = self.min_effect(*metric) * median(baseline);
                Member {
                    baseline: baseline.to_vec(),
                    candidate: candidate.to_vec(),
                    // An effect that just matters, measured without noise, has t = 5.
                    least_error: 0.2 * least.max(self.floor(*metric)),
                }
            })
            .collect();
        let are_equal = self.table.baseline_count == self.table.candidate_count();
        let exchange = match self.rules.pairing.is_paired() && are_equal {
            true => Exchange::Pairs,
            false => Exchange::Runs,
        };
        multiple_comparisons::adjusted(&members, exchange, &mut Random::new(self.rules.seed))
    }

    fn whole(&self) -> Vec<Row> {
        let columns: Vec<(Metric, PerRun)> = Metric::ALL
            .into_iter()
            .map(|metric| (metric, self.table.whole(metric)))
            .filter(|(_, column)| column.iter().any(|v| *v > 0.0))
            .collect();
        let mut rows: Vec<Row> = columns
            .iter()
            .map(|(metric, column)| Row {
                metric: *metric,
                // Of system calls only what is certain is more than evidence: that they are the same is said
                // where it is asked.
                comparison: self.compare_for(
                    column,
                    *metric,
                    metric.is_exact(),
                    metric.is_system_call() && !self.rules.required.contains(metric),
                ),
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
            let row = &mut rows[*at];
            row.adjusted_p = Some(p);
            // By itself it would be higher; among so many that are tested it may be chance.
            if row.comparison.answer == Answer::Higher && !row.is_worse(self.rules) {
                row.comparison.answer = Answer::Unknown;
                let runs = self.table.baseline_count.min(self.table.candidate_count());
                row.comparison.runs_needed = Some(runs + runs.div_ceil(4));
            }
        }
        rows
    }

    /// All functions at once.
    fn functions(&self) -> (Vec<FunctionRow>, Vec<Moved>, usize) {
        let mut members: Vec<(RoleId, NameId, Metric, &PerRun)> = Vec::new();
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
                    // Thousands of functions, most of which did not change.
                    comparison: self.compare_for(column, *metric, false, true),
                    adjusted_p: Some(p),
                },
            };
            if row.row.is_worse(self.rules)
                && let Some(is_lighter_around) = self.has_moved((*role, *function), column, *metric)
            {
                moved.push(Moved {
                    role: *role,
                    function: *function,
                    metric: *metric,
                    shift: row.row.comparison.shift,
                    is_lighter_around,
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
    /// callers call, from another role's threads. The function with its callees is compared, its callers,
    /// both also over the threads of all roles, the function itself over them, its role and the whole: the
    /// smaller what is around it, the less its noise hides. Gives whether the rest became lighter somewhere.
    fn has_moved(
        &self,
        (role, function): (RoleId, NameId),
        column: &[f64],
        metric: Metric,
    ) -> Option<bool> {
        let totals = explain::totals_of_functions(self.table, metric);
        let callers = explain::callers(self.table, metric, role, function);
        // Of each function what its role's threads do, and what all threads do.
        let of_role = callers
            .iter()
            .filter_map(|name| totals.get(&(role, *name)).cloned());
        let of_all = callers
            .iter()
            .map(|name| explain::over_all_roles(self.table, &totals, *name));
        let around = of_role.chain(of_all).chain([
            self.itself_over_all_roles(function, metric),
            self.table.role(role, metric),
            self.table.whole(metric),
        ]);
        let shift = change(self.table, column);
        let moved = around.filter_map(|all| self.has_moved_within(&all, column, shift, metric));
        moved.max()
    }

    /// A metric of a function itself, on whatever threads: what it calls may vary by more than that.
    fn itself_over_all_roles(&self, function: NameId, metric: Metric) -> PerRun {
        let roles = self.table.roles().into_iter();
        let columns = roles.filter_map(|role| self.table.function(role, function, metric));
        self.table.sum(columns)
    }

    /// Those that are worth telling: where the whole run grew by half of it, that nothing around it grew says
    /// too little.
    fn shown(&self, moved: Vec<Moved>) -> Vec<Moved> {
        let grew = |m: &Moved| {
            let whole = self.compare(&self.table.whole(m.metric), m.metric, false);
            whole.interval.low > 0.0 && whole.shift >= 0.5 * m.shift
        };
        let is_worth = |m: &Moved| m.is_lighter_around || !grew(m);
        moved.into_iter().filter(is_worth).collect()
    }

    /// Whether the rest of `all` became lighter by about what this part became heavier, or all of it did not
    /// grow by even half of that. Which of two neighbours a sample falls on may change from build to build,
    /// and then one of them grows and what is around both does not.
    fn has_moved_within(
        &self,
        all: &[f64],
        part: &[f64],
        shift: f64,
        metric: Metric,
    ) -> Option<bool> {
        let rest: Vec<f64> = all.iter().zip(part).map(|(all, part)| all - part).collect();
        let of_rest = self.compare(&rest, metric, false);
        let of_all = self.compare(all, metric, false);
        let lighter = of_rest.interval.high < 0.0 && of_rest.shift <= -0.5 * shift;
        (lighter || of_all.shift < 0.5 * shift).then_some(lighter)
    }
}

/// Whether an increase is neither known nor ruled out.
fn is_open(comparison: &Comparison) -> bool {
    comparison.answer == Answer::Unknown && !comparison.is_not_higher
}

fn key(row: &FunctionRow) -> (RoleId, NameId, Metric) {
    (row.role, row.function, row.row.metric)
}

#[cfg(test)]
mod tests;
