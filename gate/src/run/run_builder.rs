//! Collects a run, and keeps of its call tree what matters.

mod place_calls;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use stackbeat_model::metric::{Metric, OF_PLACES, Values};

use super::{
    About, Entry, Label, METRIC_BITS, NameId, RoleId, Run, ScopeSum, Side, Tree, code,
    packed_entries,
};
use crate::packed::{Metrics, Packed};
use crate::run::wait_sums::{WaitKey, WaitSum};

/// Shares of the whole below which a function or place is not kept. No change that small is reported.
const KEPT_SHARE: f64 = 0.0002;
/// Most places kept of one run.
const PLACES: usize = 20_000;
/// Most sums of long waits kept of one run: the longest.
const WAITS: usize = 2_000;

/// Collects a run.
#[derive(Debug)]
pub struct Builder {
    side: Side,
    about: About,
    /// Places so far; whoever collects adds more.
    pub tree: Tree,
    /// Scopes so far; whoever collects adds more.
    pub scopes: Vec<ScopeSum>,
    waits: BTreeMap<WaitKey, WaitSum>,
    cells: HashMap<u32, Values<OF_PLACES>>,
    /// System calls by place and kind.
    calls: BTreeMap<(u32, Metric), u64>,
    roles: HashMap<RoleId, Values>,
    whole: Values,
}

impl Builder {
    /// A run without any amounts.
    pub fn new(side: Side, about: About) -> Builder {
        Builder {
            side,
            about,
            tree: Tree::default(),
            scopes: Vec::new(),
            waits: BTreeMap::new(),
            cells: HashMap::new(),
            calls: BTreeMap::new(),
            roles: HashMap::new(),
            whole: Values::default(),
        }
    }

    /// Adds what was spent at a place itself.
    pub fn add(&mut self, place: u32, values: &Values) {
        self.cells.entry(place).or_default().add(values);
    }

    /// Adds a thread's sums, exact counters where there are any.
    pub fn thread(&mut self, role: RoleId, values: &Values) {
        let mut values = *values;
        values.set(Metric::Threads, 1);
        self.roles.entry(role).or_default().add(&values);
        self.whole.add(&values);
    }

    /// Adds long waits.
    pub fn wait(&mut self, key: WaitKey, count: u64, total_ns: u64) {
        let sum = self.waits.entry(key).or_insert(WaitSum {
            key,
            count: 0,
            total_ns: 0,
        });
        sum.count = sum.count.saturating_add(count);
        sum.total_ns = sum.total_ns.saturating_add(total_ns);
    }

    /// Sets an amount that is known of the whole run only.
    pub fn whole(&mut self, metric: Metric, value: u64) {
        self.whole.set(metric, value);
    }

    /// The finished run. `wall_ns` is the time from its begin to its end.
    pub fn finish(mut self, wall_ns: u64) -> Run {
        self.whole.set(Metric::Wall, wall_ns);
        let functions = self.functions();
        let (places, entries) = self.kept_places();
        let mut roles: Vec<_> = self.roles.into_iter().collect();
        roles.sort_by_key(|(role, _)| *role);
        let mut waits: Vec<_> = self.waits.into_values().collect();
        if waits.len() > WAITS {
            waits.sort_by_key(|wait| (Reverse(wait.total_ns), wait.key));
            waits.truncate(WAITS);
            waits.sort_by_key(|wait| wait.key);
        }
        Run {
            side: self.side,
            about: self.about,
            whole: self.whole,
            roles,
            functions,
            scopes: self.scopes,
            waits,
            places,
            entries,
        }
    }

    /// Amounts that matter, by metric: sums over all cells times the kept share.
    fn least(&self) -> [f64; OF_PLACES] {
        let mut sums = Values::<OF_PLACES>::default();
        for cell in self.cells.values() {
            sums.add(cell);
        }
        sums.0.map(|sum| (sum as f64 * KEPT_SHARE).max(1.0))
    }

    fn functions(&self) -> Metrics {
        let mut sums: HashMap<(RoleId, NameId), Values<OF_PLACES>> = HashMap::new();
        for (place, cell) in &self.cells {
            let mut innermost = None;
            for label in self.tree.labels(*place) {
                match label {
                    Label::Function(name) => innermost = innermost.or(Some(name)),
                    Label::Group(role) => {
                        if let Some(name) = innermost {
                            sums.entry((role, name)).or_default().add(cell);
                        }
                    }
                    _ => {}
                }
            }
        }
        let least = self.least();
        let kept = sums.iter().flat_map(|((role, name), values)| {
            let present = values
                .present()
                .filter(|(m, v)| *v as f64 >= least[*m as usize]);
            let function = u64::from(role.0) << 32 | u64::from(name.0);
            present.map(move |(metric, value)| (function << METRIC_BITS | metric as u64, value))
        });
        Metrics::new(kept.collect())
    }

    /// The tree without what matters by no measure, that being summed up below its nearest kept caller.
    fn kept_places(&self) -> (Packed, Metrics) {
        let places = self.tree.places();
        let mut inclusive = vec![Values::<OF_PLACES>::default(); places.len()];
        for (place, cell) in &self.cells {
            inclusive[*place as usize].add(cell);
        }
        self.tree.include_callees(&mut inclusive, Values::add);
        let least = self.least();
        let weight = |values: &Values<OF_PLACES>| {
            let shares = values.0.iter().zip(least);
            shares
                .map(|(v, least)| *v as f64 / least)
                .fold(0.0, f64::max)
        };
        let mut weights: Vec<f64> = inclusive.iter().map(weight).collect();
        for (weight, of_calls) in weights.iter_mut().zip(self.weights_of_calls()) {
            *weight = weight.max(of_calls);
        }
        let mut sorted = weights.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let limit = sorted.get(PLACES).map_or(1.0, |w| w.max(1.0));
        let (tree, moved) = self.tree.pruned(|place| weights[place] >= limit);
        let mut cells: HashMap<u32, Values<OF_PLACES>> = HashMap::new();
        for (place, cell) in &self.cells {
            cells.entry(moved[*place as usize]).or_default().add(cell);
        }
        let entries = cells.iter().flat_map(|(place, values)| {
            values.present().map(|(metric, value)| Entry {
                place: *place,
                metric,
                value,
            })
        });
        let calls = self.calls.iter().map(|((place, metric), count)| Entry {
            place: moved[*place as usize],
            metric: *metric,
            value: *count,
        });
        let entries = entries.chain(calls);
        // Callers stand a little before: steps up are small numbers.
        let numbers = tree.places().iter().enumerate();
        let numbers = numbers.flat_map(|(at, p)| [at as u64 - u64::from(p.parent), code(p.label)]);
        (Packed::new(numbers), packed_entries(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Leaf, Names, ROOT, Role};

    #[test]
    fn a_summary_keeps_sums_and_drops_what_is_small() {
        let mut names = Names::default();
        let role = names.role(Role {
            process: "shop".into(),
            thread: "worker-*".into(),
            is_root: false,
        });
        let mut builder = Builder::new(Side::Baseline, About::default());
        let top = builder.tree.child(ROOT, Label::Group(role));
        let main = names.function("main", false, Side::Baseline);
        let at_main = builder.tree.child(top, Label::Function(main));
        let cpu = |ns| {
            let mut values = Values::default();
            values.set(Metric::Cpu, ns);
            values
        };
        builder.add(at_main, &cpu(1_000_000));
        for i in 0..1000 {
            let name = names.function(&format!("tiny_{i}"), false, Side::Baseline);
            let place = builder.tree.child(at_main, Label::Function(name));
            builder.add(place, &cpu(10));
        }
        let heavy = names.function("heavy.constprop.0", false, Side::Baseline);
        let place = builder.tree.child(at_main, Label::Function(heavy));
        builder.add(place, &cpu(5_000));
        let wait = names.function("read", true, Side::Baseline);
        let call = builder.tree.child(place, Label::Leaf(Leaf::Blocking(wait)));
        let mut io = Values::default();
        io.set(Metric::Io, 70);
        builder.add(call, &io);
        let run = builder.finish(77);
        assert_eq!(run.whole.get(Metric::Wall), 77);
        // Root, role, main, heavy, read, small.
        let labels: Vec<Label> = run.places().iter().map(|p| p.label).collect();
        assert_eq!(labels.len(), 6);
        assert_eq!(
            labels[..3],
            [Label::Root, Label::Group(role), Label::Function(main)]
        );
        let at = |label| labels.iter().position(|l| *l == label).expect("is kept");
        let of_call = run.places()[at(Label::Leaf(Leaf::Blocking(wait)))];
        assert_eq!(of_call.parent as usize, at(Label::Function(heavy)));
        let sum: u64 = run.entries().map(|e| e.value).sum();
        assert_eq!(sum, 1_000_000 + 10_000 + 5_000 + 70);
        assert_eq!(names.text(heavy), "heavy");
        // A call that waits is its caller's own.
        assert!(run.functions().any(|f| f == (role, heavy, Metric::Io, 70)));
        assert_eq!(run.functions().count(), 3);
    }
}
