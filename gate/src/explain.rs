//! Where a change sits, and why: the deepest function that explains it, the path to it, and what it is
//! made of.

pub mod cause;
mod change_evidence;
mod place;
mod wall;

use std::collections::HashMap;

use stackbeat_model::metric::Metric;

use crate::comparable_names;
use crate::rules::Pairing;
use crate::run::{Label, NameId, ROOT, RoleId};
use crate::run_table::{PerRun, RunTable};
use crate::stats::mean;
use crate::wait_partners::{self, WaitedFor};
use cause::Cause;
use change_evidence::{calls, parts};
use place::{Places, follow, heaviest_place, most_specific};

/// Means of a metric on both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// What was measured.
    pub metric: Metric,
    /// Mean of the baseline's runs, in the metric's unit.
    pub baseline: f64,
    /// Mean of the candidate's runs, in the metric's unit.
    pub candidate: f64,
}

impl Part {
    /// Positive: more in the candidate.
    pub fn change(&self) -> f64 {
        self.candidate - self.baseline
    }
}

/// Calls that waited, by caller: how often on each side (means).
#[derive(Clone, Debug, PartialEq)]
pub struct CallChange {
    /// The function that makes the call.
    pub caller: String,
    /// The call that waits.
    pub call: String,
    /// Calls a run in the baseline.
    pub baseline: f64,
    /// Calls a run in the candidate.
    pub candidate: f64,
}

/// Where and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What was followed: the component of wall time that grew, or the metric itself.
    pub metric: Metric,
    /// The threads in which the change is; `None`: it is known of the whole run only.
    pub role: Option<RoleId>,
    /// The deepest function of the program itself that explains the change.
    pub function: Option<NameId>,
    /// The deepest of all, which may be one of libc.
    pub deepest: Option<NameId>,
    /// From the thread's first function to the deepest frame that has most of the change.
    pub path: Vec<String>,
    /// Share of the change that `function` has, callees included.
    pub share: f64,
    /// What kind of change it is.
    pub cause: Cause,
    /// What the change of `function` is made of, callees included; the largest first.
    pub parts: Vec<Part>,
    /// Calls that waited more or less often than before.
    pub calls: Vec<CallChange>,
    /// Whom was waited for longer, when it was followed into waits.
    pub waited_for: Vec<WaitedFor>,
}

/// The change of a column's mean.
pub fn change(table: &RunTable, column: &[f64]) -> f64 {
    let (baseline, candidate) = table.split(column);
    mean(candidate) - mean(baseline)
}

/// Explains a change of a metric of the whole run.
pub fn explain(table: &RunTable, metric: Metric, pairing: Pairing) -> Explanation {
    match metric {
        Metric::Wall => wall::explain(table, pairing),
        metric => explain_sum(table, metric, None),
    }
}

/// Explains a change of a metric that is a sum over places.
pub fn explain_sum(table: &RunTable, metric: Metric, role: Option<RoleId>) -> Explanation {
    let columns = evidence(table, metric);
    let changes: Vec<f64> = columns.iter().map(|c| change(table, c)).collect();
    let places = Places {
        table,
        columns: &columns,
        changes: &changes,
    };
    let start = match role {
        Some(role) => place_of_role(table, role).unwrap_or(ROOT),
        None => ROOT,
    };
    let whole = changes[start as usize];
    let totals = totals(table, &columns, start);
    let deepest = most_specific(&places, &totals, whole);
    describe(table, metric, role, &changes, &totals, start, deepest)
}

/// Explains the change of one function.
pub fn of_function(
    table: &RunTable,
    metric: Metric,
    role: RoleId,
    function: NameId,
) -> Explanation {
    let columns = evidence(table, metric);
    let changes: Vec<f64> = columns.iter().map(|c| change(table, c)).collect();
    let start = place_of_role(table, role).unwrap_or(ROOT);
    let totals = totals(table, &columns, start);
    let deepest = Some((role, function));
    describe(table, metric, Some(role), &changes, &totals, start, deepest)
}

/// Explains a change of a count that is known of threads only: the role is all there is to say.
pub fn of_role(table: &RunTable, metric: Metric, role: RoleId) -> Explanation {
    let column = table.role(role, metric);
    let (baseline, candidate) = table.split(&column);
    Explanation {
        metric,
        role: Some(role),
        function: None,
        deepest: None,
        path: Vec::new(),
        share: 0.0,
        cause: Cause::of(metric),
        parts: vec![Part {
            metric,
            baseline: mean(baseline),
            candidate: mean(candidate),
        }],
        calls: Vec::new(),
        waited_for: Vec::new(),
    }
}

/// Explains a change of system calls of a kind: by who makes them, where that is known of all but a part of
/// what changed.
pub fn of_calls(table: &RunTable, metric: Metric, role: RoleId) -> Explanation {
    const UNKNOWN: f64 = 0.5;
    let by_role = of_role(table, metric, role);
    let Some(place) = place_of_role(table, role) else {
        return by_role;
    };
    let exact = table.role(role, metric);
    let seen = table.places(metric).swap_remove(place as usize);
    let unknown: PerRun = exact
        .iter()
        .zip(seen)
        .map(|(all, seen)| all - seen)
        .collect();
    let (baseline, candidate) = table.split(&unknown);
    if mean(baseline).max(mean(candidate)) > UNKNOWN * change(table, &exact) {
        return by_role;
    }
    let found = explain_sum(table, metric, Some(role));
    match found.function {
        Some(_) => found,
        None => by_role,
    }
}

/// A metric of all places, callees included. No sample says who frees; it is taken to be who allocates.
fn evidence(table: &RunTable, metric: Metric) -> Vec<PerRun> {
    let columns = table.places(metric);
    if metric != Metric::Frees {
        return columns;
    }
    let frees = &columns[ROOT as usize];
    let allocations = table.places(Metric::Allocations);
    let all = &allocations[ROOT as usize];
    let shared = |column: &PerRun| -> PerRun {
        let runs = column.iter().zip(all).zip(frees);
        runs.map(|((part, all), frees)| part / all.max(1.0) * frees)
            .collect()
    };
    let places = allocations.iter().enumerate();
    places
        .map(|(place, column)| match place as u32 {
            ROOT => frees.clone(),
            _ => shared(column),
        })
        .collect()
}

/// Puts together what is known of a function that explains the change below `start`.
fn describe(
    table: &RunTable,
    metric: Metric,
    role: Option<RoleId>,
    changes: &[f64],
    totals: &HashMap<(RoleId, NameId), PerRun>,
    start: u32,
    deepest: Option<(RoleId, NameId)>,
) -> Explanation {
    let whole = changes[start as usize];
    let mut result = Explanation {
        metric,
        role,
        function: None,
        deepest: None,
        path: Vec::new(),
        share: 0.0,
        cause: Cause::of(metric),
        parts: Vec::new(),
        calls: Vec::new(),
        waited_for: wait_partners::waited_for(table, metric, role),
    };
    let from = match deepest {
        Some((role, name)) => heaviest_place(table, changes, role, name),
        None => None,
    };
    let end = match metric.is_transfer() {
        // No place has any of it.
        true => start,
        false => follow(table, changes, from.unwrap_or(start)),
    };
    let on_path: Vec<Label> = table.tree.labels(end).collect();
    result.path = on_path
        .iter()
        .rev()
        .skip(1)
        .map(|l| table.label(*l))
        .collect();
    if let Some(Label::Group(role)) = on_path.last() {
        result.role = Some(*role);
    }
    result.deepest = deepest.map(|(_, name)| name);
    // libc and the loader do what they are asked for: name who asks. Where a file has no names, an exported
    // function further out, or else further in, says more than an address.
    let is_own = |label: Label, is_named: bool| match label {
        Label::Function(id) => {
            let name = &table.names.names()[id.0 as usize];
            let fits = !is_named || comparable_names::module_of_address(&name.text).is_none();
            (fits && !name.is_system).then_some(id)
        }
        _ => None,
    };
    let outwards = |is_named: bool| {
        let mut labels = table.tree.labels(from?);
        labels.find_map(|label| is_own(label, is_named))
    };
    let inwards = || {
        let depth = table.tree.labels(from?).count();
        let below = on_path.len().saturating_sub(depth);
        let mut labels = on_path[..below].iter().rev();
        labels.find_map(|label| is_own(*label, true))
    };
    result.function = outwards(true)
        .or_else(inwards)
        .or_else(|| outwards(false))
        .or(result.deepest);
    // What the cause has to account for.
    let mut grown = whole;
    if let (Some(role), Some(name)) = (result.role, result.function) {
        let of_function = totals.iter().filter(|((_, n), _)| *n == name);
        let of_function: f64 = of_function.map(|(_, total)| change(table, total)).sum();
        if of_function > 0.0 {
            grown = of_function;
        }
        result.share = of_function / whole.max(f64::MIN_POSITIVE);
        result.parts = parts(table, role, name);
        result.calls = calls(table, role, name);
    }
    result.cause = match metric {
        metric if cause::starts_threads(table, metric, whole) => Cause::Threads,
        Metric::Cpu => {
            let of_call = cause::of_call(table, end, grown);
            of_call.unwrap_or_else(|| cause::of_cpu(table, &result, grown))
        }
        metric => Cause::of(metric),
    };
    result
}

fn place_of_role(table: &RunTable, role: RoleId) -> Option<u32> {
    let places = table.tree.places();
    let found = places.iter().position(|p| p.label == Label::Group(role));
    found.map(|at| at as u32)
}

/// A metric by function, callees included, recursion counted once.
pub fn totals_of_functions(table: &RunTable, metric: Metric) -> HashMap<(RoleId, NameId), PerRun> {
    totals(table, &table.places(metric), ROOT)
}

/// One function of these totals, summed over the roles that call it.
pub fn over_all_roles(
    table: &RunTable,
    totals: &HashMap<(RoleId, NameId), PerRun>,
    name: NameId,
) -> PerRun {
    let of_name = totals.iter().filter(|((_, n), _)| *n == name);
    table.sum(of_name.map(|(_, column)| column))
}

/// Inclusive columns by function, recursion counted once.
fn totals(table: &RunTable, columns: &[PerRun], start: u32) -> HashMap<(RoleId, NameId), PerRun> {
    let places = table.tree.places();
    let mut totals: HashMap<(RoleId, NameId), PerRun> = HashMap::new();
    let mut above: Vec<Option<(RoleId, bool)>> = vec![None; places.len()];
    for (at, place) in places.iter().enumerate() {
        let is_inside = at as u32 == start
            || above[place.parent as usize].is_some_and(|(_, inside)| inside && at != 0);
        above[at] = match place.label {
            Label::Group(role) => Some((role, is_inside || start == ROOT)),
            _ => above[place.parent as usize],
        };
        let (Label::Function(name), Some((role, true))) = (place.label, above[at]) else {
            continue;
        };
        let outer = table.tree.labels(place.parent);
        if outer
            .into_iter()
            .any(|label| label == Label::Function(name))
        {
            continue;
        }
        let sum = totals
            .entry((role, name))
            .or_insert_with(|| vec![0.0; table.runs.len()]);
        for (sum, more) in sum.iter_mut().zip(&columns[at]) {
            *sum += more;
        }
    }
    totals
}

/// A function and its callers, from the inside out, where it changed most.
pub fn callers(table: &RunTable, metric: Metric, role: RoleId, name: NameId) -> Vec<NameId> {
    let columns = table.own_places(metric);
    let changes: Vec<f64> = columns.iter().map(|c| change(table, c)).collect();
    let Some(place) = heaviest_place(table, &changes, role, name) else {
        return Vec::new();
    };
    let functions = table.tree.labels(place).filter_map(|label| match label {
        Label::Function(name) => Some(name),
        _ => None,
    });
    functions.collect()
}
