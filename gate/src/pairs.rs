//! Functions that were renamed: one that vanished and one that is new are the same when they stand in the
//! same place.
//!
//! Names say nothing here, so the place does: who calls the function, what it is made of (itself and its
//! callees, by their shares), and what it costs. Callers and callees are compared by the names found so far,
//! so a pair that is found helps to find the ones above and below it: this repeats until none is new. Where
//! callers or callees were renamed too, those that are missing on the other side are taken for each other,
//! for one pair at a time.
//!
//! A function whose file is the same on both sides (by its build id) was not renamed: one side did not sample
//! it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stackbeat_model::metric::{Metric, Unit};

use crate::comparable_names::Form;
use crate::run::{Label, NameId, Names, Place, ROOT, RoleId, Run, Side};

/// Least share of callers, and of the inside, that two functions must have in common.
const ALIKE: f64 = 0.6;
/// Most that one of them may cost as a multiple of the other.
const COSTLIER: f64 = 2.5;
/// Share of a side's whole cost below which nobody misses a function.
const LEAST: f64 = 0.002;
/// Most times that the search is repeated.
const ROUNDS: usize = 40;

/// What is known of a function on the one side that has it.
#[derive(Debug, Default)]
struct Portrait {
    /// With callees, over all runs.
    cost: f64,
    callers: BTreeMap<(RoleId, Label), f64>,
    /// Itself (as `Label::Root`) and its callees.
    inside: BTreeMap<Label, f64>,
}

impl Portrait {
    /// How alike two are: 0 not at all, 1 as far as can be seen the same.
    fn likeness(&self, other: &Portrait, of_costs: f64) -> f64 {
        let callers = overlap(&self.callers, &other.callers);
        let inside = overlap(&self.inside, &other.inside);
        let cost = of_costs.min(1.0 / of_costs);
        if callers < ALIKE || inside < ALIKE || cost < 1.0 / COSTLIER {
            return 0.0;
        }
        callers * inside * cost
    }
}

/// What two distributions have in common, 0 to 1.
fn overlap<K: Ord>(a: &BTreeMap<K, f64>, b: &BTreeMap<K, f64>) -> f64 {
    let sum = |of: &BTreeMap<K, f64>| of.values().sum::<f64>().max(f64::MIN_POSITIVE);
    let (of_a, of_b) = (sum(a), sum(b));
    let common = a.iter().filter_map(|(key, amount)| {
        let other = b.get(key)?;
        Some((amount / of_a).min(other / of_b))
    });
    common.sum()
}

/// Pairs names that are on one side only. `matched`: for each name the one that stands for it, as
/// `comparable_names::matched` gives it; pairs are added to it.
pub(crate) fn by_place(runs: &[Run], names: &Names, matched: &mut [(usize, Form)]) {
    for _ in 0..ROUNDS {
        let open = open(names, matched);
        if !open.values().any(|side| *side == Side::Baseline)
            || !open.values().any(|side| *side == Side::Candidate)
        {
            return;
        }
        let mut found = pairs(names, &open, &portraits(runs, matched, &open, false));
        if found.is_empty() {
            found = pairs(names, &open, &portraits(runs, matched, &open, true));
            found.truncate(1);
        }
        if found.is_empty() {
            return;
        }
        for (gone, new) in found {
            for (stands_for, form) in matched.iter_mut().filter(|(at, _)| *at == new) {
                (*stands_for, *form) = (gone, Form::Place);
            }
        }
    }
}

/// Names that nothing on the other side was found for, and that may have another one there.
fn open(names: &Names, matched: &[(usize, Form)]) -> HashMap<usize, Side> {
    let mut sides: HashMap<usize, u8> = HashMap::new();
    for (at, (same, _)) in matched.iter().enumerate() {
        *sides.entry(*same).or_default() |= names.names()[at].sides;
    }
    let only = |bits: u8| match bits {
        1 => Some(Side::Baseline),
        2 => Some(Side::Candidate),
        _ => None,
    };
    let open = sides
        .into_iter()
        .filter(|(at, _)| !names.is_in_same_builds(NameId(*at as u32)))
        .filter_map(|(at, bits)| Some((at, only(bits)?)));
    open.collect()
}

/// Pictures of the open names, and what the runs of each side cost, by `Side as usize`. `as_one`: open
/// callers and callees are not told apart.
fn portraits(
    runs: &[Run],
    matched: &[(usize, Form)],
    open: &HashMap<usize, Side>,
    as_one: bool,
) -> (HashMap<usize, Portrait>, [f64; 2]) {
    let mut found: HashMap<usize, Portrait> = HashMap::new();
    let mut whole = [0.0; 2];
    for run in runs {
        let places = run.places();
        let (own, total) = costs(run, &places);
        whole[run.side as usize] += total[ROOT as usize];
        let open_at = |at: u32| match places[at as usize].label {
            Label::Function(name) => {
                Some(matched[name.0 as usize].0).filter(|name| open.contains_key(name))
            }
            _ => None,
        };
        let label = |at: u32| match places[at as usize].label {
            Label::Function(_) if as_one && open_at(at).is_some() => Label::Small,
            Label::Function(name) => Label::Function(NameId(matched[name.0 as usize].0 as u32)),
            label => label,
        };
        let mut roles = vec![None; places.len()];
        for at in 1..places.len() as u32 {
            let parent = places[at as usize].parent;
            roles[at as usize] = match label(at) {
                Label::Group(role) => Some(role),
                _ => roles[parent as usize],
            };
            if let Some(caller) = open_at(parent) {
                let inside = &mut found.entry(caller).or_default().inside;
                *inside.entry(label(at)).or_default() += total[at as usize];
            }
            let (Some(name), Some(role)) = (open_at(at), roles[at as usize]) else {
                continue;
            };
            let portrait = found.entry(name).or_default();
            *portrait.inside.entry(Label::Root).or_default() += own[at as usize];
            // A call of itself is no caller, and is in the outer one's cost already.
            let is_recursion = outwards(&places, parent).any(|outer| open_at(outer) == Some(name));
            if !is_recursion {
                portrait.cost += total[at as usize];
                let caller = portrait.callers.entry((role, label(parent))).or_default();
                *caller += total[at as usize];
            }
        }
    }
    (found, whole)
}

fn outwards(places: &[Place], from: u32) -> impl Iterator<Item = u32> + '_ {
    std::iter::successors(Some(from), |at| Some(places[*at as usize].parent))
        .take_while(|at| *at != ROOT)
}

/// Time by place, of all kinds: without callees, and with them.
fn costs(run: &Run, places: &[Place]) -> (Vec<f64>, Vec<f64>) {
    let mut own = vec![0.0; places.len()];
    let is_time = |metric: Metric| metric.unit() == Unit::Nanoseconds && metric != Metric::Wall;
    for entry in run.entries().filter(|e| is_time(e.metric)) {
        own[entry.place as usize] += entry.value as f64;
    }
    let mut total = own.clone();
    for at in (1..total.len()).rev() {
        total[places[at].parent as usize] += total[at];
    }
    (own, total)
}

/// The pairs that are most alike first; each name in one.
fn pairs(
    names: &Names,
    open: &HashMap<usize, Side>,
    (portraits, whole): &(HashMap<usize, Portrait>, [f64; 2]),
) -> Vec<(usize, usize)> {
    let of_side = |side: Side| -> Vec<(usize, &Portrait)> {
        let least = LEAST * whole[side as usize];
        let mut all: Vec<_> = portraits
            .iter()
            .filter(|(name, portrait)| open[*name] == side && portrait.cost > least)
            .map(|(name, portrait)| (*name, portrait))
            .collect();
        all.sort_by_key(|(name, _)| *name);
        all
    };
    let new = of_side(Side::Candidate);
    let mut candidates: Vec<(f64, usize, usize)> = Vec::new();
    for (gone, before) in of_side(Side::Baseline) {
        for (new, after) in &new {
            if names.names()[gone].is_system != names.names()[*new].is_system {
                continue;
            }
            let share = |cost: f64, side: Side| cost / whole[side as usize];
            let of_costs = share(after.cost, Side::Candidate) / share(before.cost, Side::Baseline);
            let likeness = before.likeness(after, of_costs);
            if likeness > 0.0 {
                let words = common_words(&names.names()[gone].text, &names.names()[*new].text);
                candidates.push((likeness * (1.0 + words), gone, *new));
            }
        }
    }
    candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut taken = BTreeSet::new();
    let mut found = Vec::new();
    for (_, gone, new) in candidates {
        if !taken.contains(&gone) && !taken.contains(&new) {
            taken.extend([gone, new]);
            found.push((gone, new));
        }
    }
    found
}

/// Share of words that two names have in common: `parse_header` and `parse_head` have one of three.
fn common_words(a: &str, b: &str) -> f64 {
    let words = |name: &str| -> BTreeSet<String> {
        let mut words = BTreeSet::new();
        let mut word = String::new();
        for c in name.chars() {
            let is_edge = !c.is_alphanumeric() || c.is_uppercase();
            if is_edge && !word.is_empty() {
                words.insert(std::mem::take(&mut word));
            }
            word.extend(c.to_lowercase().filter(|c| c.is_alphanumeric()));
        }
        words.insert(word);
        words.remove("");
        words
    };
    let (a, b) = (words(a), words(b));
    let all = a.union(&b).count().max(1);
    a.intersection(&b).count() as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_names() {
        assert_eq!(common_words("parse_header", "parse_head"), 1.0 / 3.0);
        assert_eq!(common_words("shop::parseHeader", "shop::parse_header"), 1.0);
        assert_eq!(common_words("a", "b"), 0.0);
    }

    #[test]
    fn overlaps() {
        let of = |pairs: &[(u8, f64)]| pairs.iter().copied().collect::<BTreeMap<u8, f64>>();
        let a = of(&[(1, 30.0), (2, 10.0)]);
        assert!((overlap(&a, &of(&[(1, 3.0), (2, 1.0)])) - 1.0).abs() < 1e-12);
        assert!((overlap(&a, &of(&[(1, 1.0)])) - 0.75).abs() < 1e-12);
        assert_eq!(overlap(&a, &of(&[(3, 1.0)])), 0.0);
    }
}
