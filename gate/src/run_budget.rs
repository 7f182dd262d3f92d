//! Budgets: the most that a run of the candidate may spend, whatever the baseline spends.

use stackbeat_model::metric::Metric;

use crate::comparable_names::is_like;
use crate::explain;
use crate::rules::{Budget, Pairing, Per, Rules, Scoped};
use crate::run::RoleId;
use crate::run_table::{PerRun, RunTable};
use crate::stats::median;

/// What the candidate spends of a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetRow {
    /// What was allowed.
    pub budget: Budget,
    /// The median over the candidate's runs.
    pub spent: f64,
    /// Nothing in any run has the name that it asks for.
    pub is_idle: bool,
    /// A run did not count what the budget is for, or not to its end, and the part that is known does not
    /// exceed it.
    pub uncounted: Option<Uncounted>,
}

/// Why it is not known what a run spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncounted {
    /// Of asynchronous work only the time is known; nor is more known of scopes in a trace where they stand
    /// in no order.
    Scope,
    /// A run does not have the system calls of all threads.
    SystemCalls,
    /// A run does not have what it read and wrote.
    Transfers,
    /// The hooks of allocation were unpatched before the run's end.
    Allocations,
    /// The wall time contains time in which the pair's other run had the processor.
    Shared,
}

impl Uncounted {
    /// Why a metric is not known of a whole run.
    pub fn of(metric: Metric) -> Uncounted {
        match metric {
            metric if metric.is_system_call() => Uncounted::SystemCalls,
            metric if metric.is_transfer() => Uncounted::Transfers,
            _ => Uncounted::Allocations,
        }
    }

    /// As the end of a sentence.
    pub fn reason(self) -> &'static str {
        match self {
            Uncounted::Scope => "of asynchronous work only the time is known",
            Uncounted::SystemCalls => "a run does not know its system calls",
            Uncounted::Transfers => "a run does not know what it read and wrote",
            Uncounted::Allocations => "a run's hooks of allocation were withdrawn",
            Uncounted::Shared => {
                "both runs of a pair shared a processor, and it has the other's turns in it"
            }
        }
    }

    /// How that came about, and what to do.
    pub fn remedy(self) -> &'static str {
        match self {
            Uncounted::Scope => {
                "give the budget to a scope within one thread, with a name of its own"
            }
            Uncounted::SystemCalls => {
                "it was recorded by an older version, is a dump, or did not end regularly; record it again"
            }
            Uncounted::Transfers => {
                "it was recorded without counters or by an older version; record it again, without --counters off"
            }
            Uncounted::Allocations => "record with a higher --budget or without",
            Uncounted::Shared => "give a budget to CPU time, or record without --together",
        }
    }
}

impl BudgetRow {
    /// The median is above what was allowed.
    pub fn is_exceeded(&self) -> bool {
        self.spent > self.budget.max
    }
}

/// What is spent of each budget.
pub fn rows(table: &RunTable, rules: &Rules) -> Vec<BudgetRow> {
    let row = |budget: &Budget| {
        let column = spent(table, budget);
        let is_idle = column.is_none();
        let spent = column.map_or(0.0, |column| median(table.split(&column).1));
        let metric = budget.metric;
        let is_whole_or_threads = budget.scope.is_none() && budget.function.is_none();
        let scope = budget.scope.as_ref();
        let is_shared = rules.pairing == Pairing::Together && metric == Metric::Wall;
        let uncounted = if is_shared {
            Some(Uncounted::Shared)
        } else if scope.is_some_and(|scope| !knows_inside(table, scope, metric)) {
            Some(Uncounted::Scope)
        } else if !table.counts(metric) || !is_whole_or_threads && !table.knows_callers(metric) {
            Some(Uncounted::of(metric))
        } else {
            None
        };
        // What is known to be spent fails a budget even where the rest was not counted; but wall time of
        // pairs that shared a processor has the other run's turns in it, and so fails none.
        let spent = if is_shared { 0.0 } else { spent };
        BudgetRow {
            is_idle: is_idle && uncounted.is_none(),
            uncounted: uncounted.filter(|_| spent <= budget.max),
            spent,
            budget: budget.clone(),
        }
    };
    rules.budgets.iter().map(row).collect()
}

/// What each run spends; `None` when nothing has the names of the budget.
fn spent(table: &RunTable, budget: &Budget) -> Option<PerRun> {
    if let Some(scope) = &budget.scope {
        return of_scope(table, scope, budget.metric);
    }
    let is_meant = |role: RoleId| {
        let thread = &table.names.roles()[role.0 as usize].thread;
        budget
            .thread
            .as_ref()
            .is_none_or(|wanted| is_like(thread, wanted))
    };
    let columns: Vec<PerRun> = match &budget.function {
        None if budget.thread.is_none() => vec![table.whole(budget.metric)],
        None => {
            let roles = table.roles().into_iter().filter(|r| is_meant(*r));
            roles.map(|role| table.role(role, budget.metric)).collect()
        }
        Some(function) => {
            // Also one that has nothing of the metric: `allocations` at most 0 is no mistake.
            let is_it = |name| is_like(table.names.text(name), function);
            let is_known = table
                .functions()
                .any(|(role, name)| is_meant(role) && is_it(name));
            let totals = explain::totals_of_functions(table, budget.metric);
            let found = totals
                .into_iter()
                .filter(|((role, name), _)| is_meant(*role) && is_it(*name));
            let mut columns: Vec<PerRun> = found.map(|(_, column)| column).collect();
            if columns.is_empty() && is_known {
                columns.push(vec![0.0; table.runs.len()]);
            }
            columns
        }
    };
    columns.into_iter().reduce(|mut sum, more| {
        for (sum, more) in sum.iter_mut().zip(&more) {
            *sum += more;
        }
        sum
    })
}

/// Whether a metric of scopes is known in all runs that have them.
fn knows_inside(table: &RunTable, scope: &Scoped, metric: Metric) -> bool {
    let mut scopes = table.runs.iter().flat_map(|run| &run.scopes);
    metric == Metric::Wall || scopes.all(|one| one.knows_inside || !is_like(&one.name, &scope.name))
}

fn of_scope(table: &RunTable, scope: &Scoped, metric: Metric) -> Option<PerRun> {
    let mut is_known = false;
    let column = table.runs.iter().map(|run| {
        let found = run.scopes.iter().filter(|s| is_like(&s.name, &scope.name));
        let (mut count, mut total, mut longest) = (0_u64, 0_u64, 0);
        for one in found {
            is_known = true;
            count = one.count.saturating_add(count);
            total = one.values.get(metric).saturating_add(total);
            longest = one.longest_ns.max(longest);
        }
        match scope.per {
            Per::Run => total as f64,
            Per::Call => total as f64 / f64::from(u32::try_from(count).unwrap_or(u32::MAX).max(1)),
            Per::Longest => longest as f64,
        }
    });
    let column: PerRun = column.collect();
    is_known.then_some(column)
}

#[cfg(test)]
mod tests {
    use stackbeat_model::metric::Values;

    use super::*;
    use crate::run::{About, Builder, Names, ScopeSum, Side};

    #[test]
    fn what_was_not_counted_to_the_end_is_not_within_a_budget() {
        let row = |metric, counts_end_early| {
            let about = || About {
                counts_end_early,
                ..About::default()
            };
            let run = |side| Builder::new(side, about()).finish(1000);
            let runs = vec![run(Side::Baseline), run(Side::Candidate)];
            let budget = Budget {
                function: Some("parse".into()),
                metric,
                max: 0.0,
                ..Budget::default()
            };
            let rules = Rules {
                budgets: vec![budget],
                ..Rules::default()
            };
            let row = rows(&RunTable::new(runs, Names::default()), &rules).remove(0);
            assert!(!row.is_exceeded());
            (row.uncounted.is_some(), row.is_idle)
        };
        assert_eq!(row(Metric::Allocations, true), (true, false));
        assert_eq!(row(Metric::Allocations, false), (false, true));
        assert_eq!(row(Metric::Cpu, true), (false, true));
        // Without counters nobody knows what was read.
        assert_eq!(row(Metric::ReadBytes, false), (true, false));
        assert_eq!(row(Metric::CallsSync, false), (true, false));
    }

    fn row(per: Per, name: &str, metric: Metric) -> BudgetRow {
        let scopes = |factor: u64| {
            let scope = |name: &str, count, (wall, longest_ns), is_asynchronous: bool| {
                let mut values = Values::default();
                values.set(Metric::Wall, wall);
                if !is_asynchronous {
                    values.set(Metric::Allocations, 8 * factor);
                }
                ScopeSum {
                    name: name.into(),
                    count,
                    longest_ns,
                    values,
                    knows_inside: !is_asynchronous,
                }
            };
            vec![
                scope("parse header", 4, (100 * factor, 70 * factor), false),
                scope("store", 1, (5, 5), false),
                scope("download", 1, (5, 5), true),
            ]
        };
        let runs = [
            (Side::Baseline, 1),
            (Side::Candidate, 3),
            (Side::Candidate, 3),
        ];
        let runs = runs.map(|(side, factor)| {
            let mut builder = Builder::new(side, About::default());
            builder.scopes = scopes(factor);
            builder.finish(1000)
        });
        let table = RunTable::new(runs.into(), Names::default());
        let budget = Budget {
            scope: Some(Scoped {
                name: name.into(),
                per,
            }),
            metric,
            max: 210.0,
            ..Budget::default()
        };
        let rules = Rules {
            budgets: vec![budget],
            ..Rules::default()
        };
        rows(&table, &rules).remove(0)
    }

    #[test]
    fn scopes_are_summed_by_what_was_asked() {
        let wall = |per, name| row(per, name, Metric::Wall);
        let run = wall(Per::Run, "parse *");
        assert_eq!((run.spent, run.is_exceeded()), (300.0, true));
        let call = wall(Per::Call, "parse *");
        assert_eq!((call.spent, call.is_exceeded()), (75.0, false));
        assert_eq!(wall(Per::Longest, "parse header").spent, 210.0);
        assert_eq!(wall(Per::Run, "*").spent, 310.0);
        assert!(wall(Per::Run, "parse").is_idle);
        let allocations = |per, name| row(per, name, Metric::Allocations);
        assert_eq!(allocations(Per::Run, "parse *").spent, 24.0);
        assert_eq!(allocations(Per::Call, "parse *").spent, 6.0);
        assert_eq!(allocations(Per::Run, "parse *").uncounted, None);
        // What asynchronous work allocates is not known.
        assert_eq!(allocations(Per::Run, "*").uncounted, Some(Uncounted::Scope));
        assert_eq!(
            allocations(Per::Run, "download").uncounted,
            Some(Uncounted::Scope)
        );
        assert_eq!(wall(Per::Run, "download").uncounted, None);
    }

    #[test]
    fn sums_of_a_damaged_file_end_at_the_largest() {
        let scope = |name: &str| {
            let mut values = Values::default();
            values.set(Metric::Wall, u64::MAX);
            ScopeSum {
                name: name.into(),
                count: u64::MAX,
                longest_ns: u64::MAX,
                values,
                knows_inside: true,
            }
        };
        let mut builder = Builder::new(Side::Candidate, About::default());
        builder.scopes = vec![scope("parse a"), scope("parse b")];
        let table = RunTable::new(vec![builder.finish(1000)], Names::default());
        let of = |per| {
            let name = "parse *".into();
            of_scope(&table, &Scoped { name, per }, Metric::Wall)
        };
        assert_eq!(of(Per::Run), Some(vec![u64::MAX as f64]));
        let of_call = u64::MAX as f64 / f64::from(u32::MAX);
        assert_eq!(of(Per::Call), Some(vec![of_call]));
    }
}
