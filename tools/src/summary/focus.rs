//! One function: who calls it, and what it calls.

use std::collections::HashMap;

use anyhow::{Result, bail};
use stackbeat_model::{FunctionIndex, ThreadIndex};

use crate::summary::call_tree::{Label, Profile};
use crate::summary::functions::Weights;
use crate::summary::metadata::Metadata;

/// Branches below this share of the function's time are not shown.
const LEAST_SHARE: f64 = 0.005;

/// A tree of calls with what was spent below each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Branch {
    pub(crate) weights: Weights,
    children: HashMap<Label, Branch>,
}

/// Both views of the functions that were asked for.
#[derive(Debug)]
pub(crate) struct Focus {
    pub functions: Vec<FunctionIndex>,
    pub(crate) own: Weights,
    pub(crate) callers: Branch,
    pub(crate) callees: Branch,
    pub(crate) whole_ns: u64,
}

/// Children that matter, heaviest first.
pub(crate) fn heaviest(branch: &Branch, whole_ns: u64) -> Vec<(Label, &Branch)> {
    let least = (whole_ns as f64 * LEAST_SHARE) as u64;
    let mut children: Vec<_> = branch
        .children
        .iter()
        .filter(|(_, b)| b.weights.spent.wall_ns > least)
        .map(|(label, b)| (*label, b))
        .collect();
    children.sort_by_key(|(label, b)| (std::cmp::Reverse(b.weights.spent.wall_ns), *label));
    children
}

/// Finds the functions with this name, or else with this in their name, and sums their calls up.
pub(crate) fn focus(
    metadata: &Metadata,
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    name: &str,
) -> Result<Focus> {
    let all = metadata.functions.iter().enumerate();
    let pick = |test: &dyn Fn(&str) -> bool| -> Vec<FunctionIndex> {
        all.clone()
            .filter(|(_, f)| test(&f.name))
            .map(|(i, _)| FunctionIndex(i as u32))
            .collect()
    };
    let mut functions = pick(&|n| n == name);
    if functions.is_empty() {
        let lower = name.to_lowercase();
        functions = pick(&|n| n.to_lowercase().contains(&lower));
    }
    let mut focus = Focus {
        functions,
        own: Weights::default(),
        callers: Branch::default(),
        callees: Branch::default(),
        whole_ns: 0,
    };
    let mut found = std::collections::HashSet::new();
    for (place, cell) in profile.by_place(wanted) {
        focus.whole_ns += cell.time_ns;
        let leaf = profile.tree.places()[place as usize].label;
        let path: Vec<Label> = profile.tree.labels(place).collect();
        let is_focus = |l: &Label| match l {
            Label::Function(f) => focus.functions.contains(f),
            _ => false,
        };
        // Recursion counts once, from the outermost call.
        let Some(at) = path.iter().rposition(is_focus) else {
            continue;
        };
        found.extend(path.iter().filter(|l| is_focus(l)).copied());
        let innermost = path.iter().find(|l| matches!(l, Label::Function(_)));
        if innermost.is_some_and(is_focus) {
            focus.own.add_cell(leaf, &cell);
        }
        let add = |branch: &mut Branch, labels: &mut dyn Iterator<Item = &Label>| {
            let mut branch = branch;
            branch.weights.add_cell(leaf, &cell);
            for label in labels {
                branch = branch.children.entry(*label).or_default();
                branch.weights.add_cell(leaf, &cell);
            }
        };
        add(&mut focus.callers, &mut path[at..].iter());
        add(&mut focus.callees, &mut path[..=at].iter().rev());
    }
    focus
        .functions
        .retain(|f| found.contains(&Label::Function(*f)));
    if focus.functions.is_empty() {
        bail!("--function {name}: no function in what is shown has this in its name");
    }
    Ok(focus)
}
