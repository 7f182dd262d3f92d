//! What speaks for an explanation: what a function's change is made of, and which calls became more.

use std::collections::{HashMap, HashSet};

use stackbeat_model::metric::Metric;

use super::{CallChange, Part};
use crate::run::{Label, Leaf, NameId, RoleId};
use crate::run_table::{PerRun, RunTable};
use crate::stats::mean;

/// What a function's change is made of, by metric, callees included.
pub(super) fn parts(table: &RunTable, role: RoleId, name: NameId) -> Vec<Part> {
    let inside: HashSet<u32> = (0..table.tree.places().len() as u32)
        .filter(|place| {
            let mut labels = table.tree.labels(*place);
            let mut is_inside = false;
            labels.any(|label| {
                is_inside |= label == Label::Function(name);
                is_inside && label == Label::Group(role)
            })
        })
        .collect();
    let mut parts: Vec<Part> = Metric::ALL
        .into_iter()
        .filter_map(|metric| {
            let own = table.own_places(metric);
            let places = (0u32..).zip(&own);
            let within = places.filter(|(place, _)| inside.contains(place));
            let sum = table.sum(within.map(|(_, column)| column));
            let (baseline, candidate) = table.split(&sum);
            let part = Part {
                metric,
                baseline: mean(baseline),
                candidate: mean(candidate),
            };
            (part.baseline != 0.0 || part.candidate != 0.0).then_some(part)
        })
        .collect();
    // Times first, by how much they changed.
    parts.sort_by(|a, b| {
        let key = |p: &Part| {
            (
                p.metric as u8 >= Metric::Allocations as u8,
                -p.change().abs(),
            )
        };
        key(a)
            .partial_cmp(&key(b))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    parts
}

/// Callers within a function whose waiting calls became more or fewer.
pub(super) fn calls(table: &RunTable, role: RoleId, name: NameId) -> Vec<CallChange> {
    const SHOWN: usize = 3;
    let mut changes: HashMap<(NameId, NameId), PerRun> = HashMap::new();
    let columns = table.own_places(Metric::Calls);
    for (at, place) in table.tree.places().iter().enumerate() {
        let Label::Leaf(Leaf::Blocking(call)) = place.label else {
            continue;
        };
        let is_inside = {
            let mut labels = table.tree.labels(place.parent);
            let below = labels.by_ref().any(|l| l == Label::Function(name));
            below && labels.last() == Some(Label::Group(role))
        };
        let (true, Some((_, caller))) = (is_inside, table.function_of(at as u32)) else {
            continue;
        };
        let sum = changes
            .entry((caller, call))
            .or_insert_with(|| vec![0.0; table.runs.len()]);
        for (sum, more) in sum.iter_mut().zip(&columns[at]) {
            *sum += more;
        }
    }
    let mut list: Vec<CallChange> = changes
        .into_iter()
        .map(|((caller, call), column)| {
            let (baseline, candidate) = table.split(&column);
            CallChange {
                caller: table.names.text(caller).into(),
                call: table.names.text(call).into(),
                baseline: mean(baseline),
                candidate: mean(candidate),
            }
        })
        .filter(|c| (c.candidate - c.baseline).abs() >= 1.0_f64.max(0.05 * c.baseline))
        .collect();
    list.sort_by(|a, b| {
        let size = |c: &CallChange| (c.candidate - c.baseline).abs();
        size(b)
            .total_cmp(&size(a))
            .then_with(|| (&a.caller, &a.call).cmp(&(&b.caller, &b.call)))
    });
    list.truncate(SHOWN);
    list
}
