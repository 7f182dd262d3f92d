//! One function: who calls it, and what it calls.

use std::collections::HashMap;
use std::fmt::Write;

use anyhow::{Result, bail};
use serde::Serialize;
use stackbeat_model::{FunctionIndex, ThreadIndex};

use super::tables::{self, Layout, function_text, label_text};
use crate::summary::call_tree::{Label, Profile};
use crate::summary::facts::Facts;
use crate::summary::functions::Weights;
use crate::summary::load::Report;
use crate::terminal::clean;
use crate::units::{bytes, duration, percent};

/// Branches below this share of the function's time are not shown.
const LEAST_SHARE: f64 = 0.005;

/// A tree of calls with what was spent below each.
#[derive(Clone, Debug, Default)]
struct Branch {
    weights: Weights,
    children: HashMap<Label, Branch>,
}

/// Both views of the functions that were asked for.
#[derive(Debug)]
pub struct Focus {
    pub functions: Vec<FunctionIndex>,
    own: Weights,
    callers: Branch,
    callees: Branch,
    whole_ns: u64,
}

/// A tree as JSON.
#[derive(Debug, Serialize)]
pub struct JsonBranch {
    name: String,
    wall_ns: u64,
    blocked_ns: u64,
    cpu_ns: u64,
    allocated_bytes: u64,
    samples: u64,
    children: Vec<JsonBranch>,
}

/// The text for `--function NAME`.
pub fn report(
    report: &Report,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    name: &str,
    layout: &Layout,
) -> Result<String> {
    let Report { facts, profile, .. } = report;
    let focus = focus(facts, profile, wanted, name)?;
    let mut out = tables::heading(facts, profile, layout);
    let _ = writeln!(out);
    for function in focus.functions.iter().take(5) {
        let f = &facts.functions[function.0 as usize];
        let line = match (f.file.as_str(), f.line) {
            ("", _) => String::new(),
            (file, 0) => format!("  {file}"),
            (file, line) => format!("  {file}:{line}"),
        };
        let text = clean(&function_text(facts, function.0)).into_owned();
        let _ = writeln!(
            out,
            "{}{}",
            layout.style.bold(&text),
            layout.style.dim(&line)
        );
    }
    if focus.functions.len() > 5 {
        let _ = writeln!(out, "… and {} more functions", focus.functions.len() - 5);
    }
    let total = focus.callees.weights;
    let _ = writeln!(
        out,
        "  self {}, total {} ({} of all threads' time), CPU {}, blocked {}, allocated {}",
        duration(focus.own.running_ns()),
        duration(total.wall_ns),
        percent(total.wall_ns, focus.whole_ns),
        duration(total.cpu_ns),
        duration(total.blocked_ns),
        bytes(total.allocated_bytes)
    );
    for (title, branch) in [("Called by", &focus.callers), ("Calls", &focus.callees)] {
        let _ = writeln!(out, "\n{}", layout.style.bold(title));
        let mut lines = Vec::new();
        draw(facts, branch, branch.weights.wall_ns, "", &mut lines);
        let all = lines.len();
        for line in lines.into_iter().take(layout.top.saturating_mul(2)) {
            let room = layout.width.unwrap_or(usize::MAX);
            let _ = writeln!(out, "{}", crate::table::shorten(&line, room));
        }
        if all > layout.top.saturating_mul(2) {
            let _ = writeln!(out, "  … (--top 0 shows all)");
        }
    }
    out.push_str(&tables::losses(facts, layout));
    Ok(out)
}

fn draw(facts: &Facts, branch: &Branch, whole_ns: u64, indent: &str, lines: &mut Vec<String>) {
    let children = heaviest(branch, whole_ns);
    let last = children.len().saturating_sub(1);
    for (i, (label, child)) in children.iter().enumerate() {
        let (bend, below) = match (indent.is_empty() && children.len() == 1, i == last) {
            (true, _) => ("", " "),
            (_, true) => ("└ ", "  "),
            (_, false) => ("├ ", "│ "),
        };
        lines.push(format!(
            "  {:>9}  {:>7}  {indent}{bend}{}",
            duration(child.weights.wall_ns),
            percent(child.weights.wall_ns, whole_ns),
            clean(&label_text(facts, *label))
        ));
        draw(facts, child, whole_ns, &format!("{indent}{below}"), lines);
    }
}

/// Children that matter, heaviest first.
fn heaviest(branch: &Branch, whole_ns: u64) -> Vec<(Label, &Branch)> {
    let least = (whole_ns as f64 * LEAST_SHARE) as u64;
    let mut children: Vec<_> = branch
        .children
        .iter()
        .filter(|(_, b)| b.weights.wall_ns > least)
        .map(|(label, b)| (*label, b))
        .collect();
    children.sort_by_key(|(label, b)| (std::cmp::Reverse(b.weights.wall_ns), *label));
    children
}

/// Finds the functions with this name, or else with this in their name, and sums their calls up.
pub fn focus(
    facts: &Facts,
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    name: &str,
) -> Result<Focus> {
    let all = facts.functions.iter().enumerate();
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
        let path: Vec<Label> = profile.tree.outwards(place).map(|(_, l)| l).collect();
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

impl Focus {
    /// The two trees for JSON: callers, callees.
    pub fn json(&self, facts: &Facts) -> (Vec<JsonBranch>, Vec<JsonBranch>) {
        let whole = self.callees.weights.wall_ns;
        (
            json_children(facts, &self.callers, whole),
            json_children(facts, &self.callees, whole),
        )
    }
}

fn json_children(facts: &Facts, branch: &Branch, whole_ns: u64) -> Vec<JsonBranch> {
    heaviest(branch, whole_ns)
        .into_iter()
        .map(|(label, b)| JsonBranch {
            name: label_text(facts, label),
            wall_ns: b.weights.wall_ns,
            blocked_ns: b.weights.blocked_ns,
            cpu_ns: b.weights.cpu_ns,
            allocated_bytes: b.weights.allocated_bytes,
            samples: b.weights.samples,
            children: json_children(facts, b, whole_ns),
        })
        .collect()
}
