//! Which function a change is narrowed down to, and the path that goes on from it. What merely moved between
//! the callees of one caller counts for none of them.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::change;
use crate::run::{Label, NameId, RoleId};
use crate::run_table::{PerRun, RunTable};
use crate::stats::{mean, rank};

/// A function explains a change when it has at least this share of it, callees included.
const EXPLAINS: f64 = 0.7;
/// A function that has less of it, but this much, is named when it is made of little else.
const IS_PART: f64 = 0.4;
/// How much more of its cost has to be change, for the share that it has: share times (change / cost) is so
/// many times as high.
const NARROWER: f64 = 2.0;
/// Chance of its growth, or of a loss beside it, between equal programs.
const LEAST_P: f64 = 0.005;
/// A path goes on into the callee that has at least this share of its caller's change.
const GOES_ON: f64 = 0.6;
/// Scores that differ by less are the same: a sample at the begin of a thread or two.
const THE_SAME: f64 = 1.1;

type Key = (RoleId, NameId);

/// A function that may be named.
struct Candidate {
    key: Key,
    /// Callees included, mean of the candidate's runs.
    cost: f64,
    /// Without what it only took over from what is beside it.
    change: f64,
    is_sure: bool,
}

impl Candidate {
    fn new(places: &Places<'_>, key: Key, column: &PerRun) -> Candidate {
        let table = places.table;
        let (baseline, candidate) = table.split(column);
        Candidate {
            key,
            cost: mean(candidate),
            change: change(table, column) - places.taken_over(key),
            is_sure: rank::rank_sum(baseline, candidate) <= LEAST_P,
        }
    }

    /// The share of the change that it has, times the share of its cost that the change is: high for a
    /// function that has much of the change and little besides (recall and precision of "this function is the
    /// change").
    fn score(&self) -> f64 {
        self.change * self.change / self.cost.max(f64::MIN_POSITIVE)
    }
}

/// A metric by place, callees included.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub table: &'a RunTable,
    pub columns: &'a [PerRun],
    /// How much each changed.
    pub changes: &'a [f64],
}

impl Places<'_> {
    /// How much the rest of a place became lighter, beside this part of it; 0 when it may not have.
    fn lost_beside(&self, place: u32, part: &PerRun) -> f64 {
        let all = &self.columns[place as usize];
        let rest: PerRun = all.iter().zip(part).map(|(all, part)| all - part).collect();
        let (baseline, candidate) = self.table.split(&rest);
        match rank::rank_sum_tails(baseline, candidate).1 <= LEAST_P {
            true => -change(self.table, &rest).min(0.0),
            false => 0.0,
        }
    }

    fn callers(&self, place: u32) -> impl Iterator<Item = u32> + '_ {
        let places = self.table.tree.places();
        let above = |at: &u32| Some(places[*at as usize].parent);
        let chain = std::iter::successors(above(&place), above);
        chain.take_while(|at| matches!(places[*at as usize].label, Label::Function(_)))
    }

    /// What a function has of a metric that something else below one of its callers had before: calls that
    /// now take another way, work that was inlined into it. It is no growth.
    fn taken_over(&self, (role, name): Key) -> f64 {
        let Some(heaviest) = heaviest_place(self.table, self.changes, role, name) else {
            return 0.0;
        };
        let is_it =
            |at: &u32| self.table.tree.places()[*at as usize].label == Label::Function(name);
        let all = 0..self.columns.len() as u32;
        let outermost: Vec<u32> = all
            .filter(|at| is_it(at) && !self.callers(*at).any(|caller| is_it(&caller)))
            .collect();
        let lost = self
            .callers(heaviest)
            .filter(|at| !is_it(at))
            .map(|caller| {
                let inside = outermost.iter();
                let inside = inside.filter(|at| self.callers(**at).any(|above| above == caller));
                let part = self.table.sum(inside.map(|at| &self.columns[*at as usize]));
                self.lost_beside(caller, &part)
            });
        lost.fold(0.0, f64::max)
    }
}

/// Of the functions that have most of the change, the one that has most of it and the least other cost:
/// ancestors of it have the change too, and more besides, callees a part of it. Among those that are alike in
/// that, the deepest. Where the noise of all the rest looks like a part of the change, one below it that is
/// hardly anything but change.
pub(super) fn most_specific(
    places: &Places<'_>,
    totals: &HashMap<Key, PerRun>,
    whole: f64,
) -> Option<Key> {
    let Places { table, changes, .. } = *places;
    if whole <= 0.0 {
        return None;
    }
    let is_part = |change: f64| change >= IS_PART * whole;
    let candidates: Vec<Candidate> = totals
        .iter()
        .filter(|(_, column)| is_part(change(table, column)))
        .map(|(key, column)| Candidate::new(places, *key, column))
        .filter(|c| is_part(c.change))
        .collect();
    // Threads of several roles may do the same; then it is in the one where it grew most.
    let over_roles: Vec<Candidate> = over_roles(table, totals)
        .into_iter()
        .filter(|(_, (_, column))| is_part(change(table, column)))
        .map(|(name, (role, column))| Candidate::new(places, (role, name), &column))
        .filter(|c| is_part(c.change))
        .collect();
    let explains = |c: &Candidate| c.change >= EXPLAINS * whole;
    let (mut most, mut parts): (Vec<_>, Vec<_>) = candidates.into_iter().partition(explains);
    if most.is_empty() {
        let (of_all, rest) = over_roles.into_iter().partition(explains);
        most = of_all;
        parts.extend(rest);
    } else {
        parts.extend(over_roles);
    }
    let depth = |(role, name): Key| {
        let place = heaviest_place(table, changes, role, name);
        place.map_or(0, |place| table.tree.labels(place).count())
    };
    let deepest = |alike: Vec<Candidate>| {
        let chosen = |c: &Candidate| (depth(c.key), Reverse(c.key));
        alike.into_iter().max_by_key(chosen)
    };
    let best = |candidates: Vec<Candidate>| {
        let highest = candidates.iter().map(Candidate::score).fold(0.0, f64::max);
        let alike = candidates.into_iter();
        deepest(alike.filter(|c| THE_SAME * c.score() >= highest).collect())
    };
    let named = best(most);
    let is_below = |key: Key| {
        named.as_ref().is_none_or(|named| {
            heaviest_place(table, changes, key.0, key.1).is_some_and(|place| {
                let mut labels = table.tree.labels(place);
                labels.any(|label| label == Label::Function(named.key.1))
            })
        })
    };
    let least = named.as_ref().map_or(0.0, |c| NARROWER * c.score());
    let narrower = parts.into_iter();
    let narrower = narrower.filter(|c| c.is_sure && c.score() >= least && is_below(c.key));
    best(narrower.collect()).or(named).map(|c| c.key)
}

/// Functions summed over roles, each with the role in which it grew most.
fn over_roles(
    table: &RunTable,
    totals: &HashMap<Key, PerRun>,
) -> HashMap<NameId, (RoleId, PerRun)> {
    let mut keys: Vec<_> = totals.keys().collect();
    keys.sort_by(|a, b| {
        let grown = |key| change(table, &totals[key]);
        grown(*b).total_cmp(&grown(*a)).then(a.cmp(b))
    });
    let mut sums: HashMap<NameId, (RoleId, PerRun)> = HashMap::new();
    for (role, name) in keys {
        let (_, sum) = sums
            .entry(*name)
            .or_insert_with(|| (*role, vec![0.0; table.runs.len()]));
        for (sum, more) in sum.iter_mut().zip(&totals[&(*role, *name)]) {
            *sum += more;
        }
    }
    sums
}

/// Where a function changed most.
pub(super) fn heaviest_place(
    table: &RunTable,
    changes: &[f64],
    role: RoleId,
    name: NameId,
) -> Option<u32> {
    let places = table.tree.places();
    (0..places.len())
        .filter(|at| places[*at].label == Label::Function(name))
        .filter(|at| table.tree.labels(*at as u32).last() == Some(Label::Group(role)))
        .max_by(|a, b| changes[*a].total_cmp(&changes[*b]).then(b.cmp(a)))
        .map(|at| at as u32)
}

/// Goes on into the callee that has most of the change, as long as there is one.
pub(super) fn follow(table: &RunTable, changes: &[f64], start: u32) -> u32 {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (at, place) in table.tree.places().iter().enumerate().skip(1) {
        if place.label != Label::Small {
            children.entry(place.parent).or_default().push(at as u32);
        }
    }
    let mut at = start;
    loop {
        let below = children.get(&at).into_iter().flatten();
        let best = below.max_by(|a, b| changes[**a as usize].total_cmp(&changes[**b as usize]));
        match best {
            Some(next) if changes[*next as usize] >= GOES_ON * changes[at as usize] => at = *next,
            _ => return at,
        }
        if changes[at as usize] <= 0.0 {
            return at;
        }
    }
}
