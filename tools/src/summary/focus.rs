//! One function: who calls it, and what it calls.

use anyhow::{Result, bail};
use stackbeat_model::{FunctionIndex, Spent, ThreadIndex};

use crate::summary::call_tree::{Label, Profile, ROOT, Tree};
use crate::summary::metadata::Metadata;

/// Branches below this share of the function's time are not shown.
const LEAST_SHARE: f64 = 0.005;

/// A tree of calls, and what was spent at and below each place.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    tree: Tree,
    spent: Vec<Spent>,
    /// Places below each.
    callees: Vec<Vec<u32>>,
}

impl Calls {
    /// Adds what was spent at the end of a chain of calls.
    fn add<'a>(&mut self, chain: impl Iterator<Item = &'a Label>, spent: &Spent) {
        let place = chain.fold(ROOT, |parent, label| self.tree.child(parent, *label));
        self.spent
            .resize(self.tree.places().len(), Spent::default());
        self.spent[place as usize].add(spent);
    }

    /// To be called when all is added.
    fn finish(&mut self) {
        self.spent
            .resize(self.tree.places().len(), Spent::default());
        self.tree.include_callees(&mut self.spent, Spent::add);
        self.callees = self.tree.callees();
    }

    pub(crate) fn whole(&self) -> &Spent {
        &self.spent[ROOT as usize]
    }

    /// The places below one that matter, heaviest first.
    pub(crate) fn heaviest(&self, place: u32) -> Vec<(u32, Label, &Spent)> {
        let least = (self.whole().wall_ns as f64 * LEAST_SHARE) as u64;
        let callees = self.callees[place as usize].iter();
        let mut callees: Vec<_> = callees
            .map(|at| {
                (
                    *at,
                    self.tree.places()[*at as usize].label,
                    &self.spent[*at as usize],
                )
            })
            .filter(|(_, _, spent)| spent.wall_ns > least)
            .collect();
        callees.sort_by_key(|(_, label, spent)| (std::cmp::Reverse(spent.wall_ns), *label));
        callees
    }
}

/// Both views of the functions that were asked for.
#[derive(Debug)]
pub(crate) struct Focus {
    pub functions: Vec<FunctionIndex>,
    pub(crate) own: Spent,
    pub(crate) callers: Calls,
    pub(crate) callees: Calls,
    pub(crate) whole_ns: u64,
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
        own: Spent::default(),
        callers: Calls::default(),
        callees: Calls::default(),
        whole_ns: 0,
    };
    let mut found = std::collections::HashSet::new();
    for (place, cell) in profile.by_place(wanted) {
        focus.whole_ns += cell.spent.wall_ns;
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
            focus.own.add(&cell.spent);
        }
        focus.callers.add(path[at..].iter(), &cell.spent);
        focus.callees.add(path[..=at].iter().rev(), &cell.spent);
    }
    focus.callers.finish();
    focus.callees.finish();
    focus
        .functions
        .retain(|f| found.contains(&Label::Function(*f)));
    if focus.functions.is_empty() {
        bail!("--function {name}: no function in what is shown has this in its name");
    }
    Ok(focus)
}
