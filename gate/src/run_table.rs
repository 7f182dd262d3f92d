//! All runs side by side: for every role, function and place one number per run.

use std::collections::{BTreeMap, HashMap};

use stackbeat_model::metric::{Metric, OF_PLACES};

use crate::comparable_names::{self, Form};
use crate::pairs;
use crate::run::{self, Label, Leaf, NameId, Names, ROOT, RoleId, Run, Side, Tree};
use crate::stats::interval::Grouped;

/// Two names that were taken for the same function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The name in the candidate or the baseline that the other side lacks.
    pub name: String,
    /// The name that it is counted under.
    pub taken_for: String,
    /// How far both had to be reduced to be equal.
    pub form: Form,
}

/// One number per run, baseline first.
pub type PerRun = Vec<f64>;

/// The aligned runs.
#[derive(Debug)]
pub struct RunTable {
    /// Baseline first, each side by start and name. Their entries are those of `tree`.
    pub runs: Vec<Run>,
    /// Runs of the baseline; those behind it are of the candidate.
    pub baseline_count: usize,
    /// Names and roles of all runs.
    pub names: Names,
    /// Names that differ between the sides and were taken for the same function.
    pub matches: Vec<Match>,
    /// The call trees of all runs put into one; entries of `runs` count in its places.
    pub tree: Tree,
    stands_for: Vec<NameId>,
    functions: BTreeMap<(RoleId, NameId), [Option<PerRun>; OF_PLACES]>,
}

impl RunTable {
    /// Whether all runs counted, to their end, what the metric is of.
    pub fn counts(&self, metric: Metric) -> bool {
        run::all_count(self.runs.iter(), metric)
    }

    /// Whether it is known of all runs which functions have the metric.
    pub fn knows_callers(&self, metric: Metric) -> bool {
        let mut runs = self.runs.iter().map(|run| &run.about);
        match metric {
            Metric::WakeUps => self.counts(metric),
            metric if metric.is_call_bytes() => runs.all(|run| run.knows_call_bytes),
            metric if metric.is_system_call() => runs.all(|run| run.knows_callers),
            _ => true,
        }
    }

    /// Aligns the runs: sorts them, matches their names and puts their call trees into one.
    pub fn new(mut runs: Vec<Run>, names: Names) -> RunTable {
        run::keep_comparable(runs.iter_mut());
        runs.sort_by(|a, b| {
            let key = |r: &Run| (r.side, r.about.started_unix_ns, r.about.label.clone());
            key(a).cmp(&key(b))
        });
        let texts: Vec<String> = names.names().iter().map(|n| n.text.clone()).collect();
        let sides: Vec<u8> = names.names().iter().map(|n| n.sides).collect();
        let mut matched = comparable_names::matched(&texts, &sides);
        pairs::by_place(&runs, &names, &mut matched);
        let matches = matched
            .iter()
            .enumerate()
            .filter(|(at, (same, _))| at != same)
            .map(|(at, (same, form))| Match {
                name: texts[at].clone(),
                taken_for: texts[*same].clone(),
                form: *form,
            })
            .collect();
        let stands_for = matched.iter().map(|(at, _)| NameId(*at as u32)).collect();
        let mut table = RunTable {
            baseline_count: runs.iter().filter(|r| r.side == Side::Baseline).count(),
            runs,
            names,
            matches,
            tree: Tree::default(),
            stands_for,
            functions: BTreeMap::new(),
        };
        table.align_places();
        table.align_functions();
        table
    }

    /// The name that another one was taken for: itself, mostly.
    pub fn same(&self, name: NameId) -> NameId {
        self.stands_for[name.0 as usize]
    }

    fn align_places(&mut self) {
        for at in 0..self.runs.len() {
            let places = self.runs[at].places();
            let mut moved = vec![ROOT; places.len()];
            for (old, place) in places.iter().enumerate().skip(1) {
                let label = match place.label {
                    Label::Function(name) => Label::Function(self.same(name)),
                    label => label,
                };
                moved[old] = self.tree.child(moved[place.parent as usize], label);
            }
            self.runs[at].move_entries(&moved);
        }
    }

    fn align_functions(&mut self) {
        let count = self.runs.len();
        for (at, run) in self.runs.iter_mut().enumerate() {
            for (role, name, metric, value) in run.functions() {
                let key = (role, self.stands_for[name.0 as usize]);
                let columns = self.functions.entry(key).or_default();
                let column = columns[metric as usize].get_or_insert_with(|| vec![0.0; count]);
                column[at] += value as f64;
            }
            run.forget_functions();
        }
    }

    /// Runs of the candidate.
    pub fn candidate_count(&self) -> usize {
        self.runs.len() - self.baseline_count
    }

    /// A metric of the whole run; of what runs read and wrote, and of system calls, nothing, unless all of
    /// them know it.
    pub fn whole(&self, metric: Metric) -> PerRun {
        let may_be_unknown = metric.is_transfer() || metric.is_system_call();
        if may_be_unknown && !self.counts(metric) {
            return vec![0.0; self.runs.len()];
        }
        self.runs
            .iter()
            .map(|r| r.whole.get(metric) as f64)
            .collect()
    }

    /// Roles that occur, in the order of their numbers.
    pub fn roles(&self) -> Vec<RoleId> {
        (0..self.names.roles().len() as u32).map(RoleId).collect()
    }

    /// The sum of columns, run by run.
    pub fn sum<'c>(&self, columns: impl Iterator<Item = &'c PerRun>) -> PerRun {
        let mut sum = vec![0.0; self.runs.len()];
        for column in columns {
            for (sum, more) in sum.iter_mut().zip(column) {
                *sum += more;
            }
        }
        sum
    }

    /// A metric summed over the threads of a role.
    pub fn role(&self, role: RoleId, metric: Metric) -> PerRun {
        let of_run = |run: &Run| {
            let found = run.roles.iter().find(|(r, _)| *r == role);
            found.map_or(0.0, |(_, values)| values.get(metric) as f64)
        };
        self.runs.iter().map(of_run).collect()
    }

    /// Functions themselves, callees not included.
    pub fn functions(&self) -> impl Iterator<Item = (RoleId, NameId)> + '_ {
        self.functions.keys().copied()
    }

    /// A metric of a function itself; `None` when there is none of it in any run.
    pub fn function(&self, role: RoleId, name: NameId, metric: Metric) -> Option<&PerRun> {
        let columns = self.functions.get(&(role, name))?;
        columns.get(metric as usize)?.as_ref()
    }

    /// A metric of all places, callees included, by place.
    pub fn places(&self, metric: Metric) -> Vec<PerRun> {
        let mut columns = self.own_places(metric);
        let places = self.tree.places();
        for place in (1..places.len()).rev() {
            let below = std::mem::take(&mut columns[place]);
            let above = &mut columns[places[place].parent as usize];
            for (sum, more) in above.iter_mut().zip(&below) {
                *sum += more;
            }
            columns[place] = below;
        }
        columns
    }

    /// A metric of all places, callees not included, by place.
    pub fn own_places(&self, metric: Metric) -> Vec<PerRun> {
        let mut columns = vec![vec![0.0; self.runs.len()]; self.tree.places().len()];
        for (at, run) in self.runs.iter().enumerate() {
            for entry in run.entries().filter(|e| e.metric == metric) {
                columns[entry.place as usize][at] += entry.value as f64;
            }
        }
        columns
    }

    /// The two sides of a column.
    pub fn split<'a>(&self, column: &'a [f64]) -> (&'a [f64], &'a [f64]) {
        column.split_at(self.baseline_count)
    }

    /// One side of a column, by the groups of its runs.
    pub fn grouped(&self, column: &[f64], side: Side) -> Grouped {
        let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (run, value) in self.runs.iter().zip(column).filter(|(r, _)| r.side == side) {
            groups.entry(&run.about.group).or_default().push(*value);
        }
        Grouped {
            groups: groups.into_values().collect(),
        }
    }

    /// What a label is called.
    pub fn label(&self, label: Label) -> String {
        match label {
            Label::Root => "whole run".into(),
            Label::Group(role) => self.names.roles()[role.0 as usize].describe(),
            Label::Function(name) | Label::Leaf(Leaf::Blocking(name)) => {
                self.names.text(name).into()
            }
            Label::Leaf(Leaf::Code | Leaf::Gap | Leaf::NoStack) => "[no evidence]".into(),
            Label::Small => "[small]".into(),
        }
    }

    /// Which function a place belongs to: its own, or its caller's for calls that wait.
    pub fn function_of(&self, place: u32) -> Option<(RoleId, NameId)> {
        let mut function = None;
        for label in self.tree.labels(place) {
            match label {
                Label::Function(name) => function = function.or(Some(name)),
                Label::Group(role) => return function.map(|name| (role, name)),
                _ => {}
            }
        }
        None
    }

    /// Functions by the sum of a metric over all runs, for notes on how alike two sides are.
    pub fn shares(&self, metric: Metric, side: Side) -> HashMap<NameId, f64> {
        let mut sums: HashMap<NameId, f64> = HashMap::new();
        for ((_, name), columns) in &self.functions {
            if let Some(column) = &columns[metric as usize] {
                let (baseline, candidate) = self.split(column);
                let values = match side {
                    Side::Baseline => baseline,
                    Side::Candidate => candidate,
                };
                *sums.entry(*name).or_default() += values.iter().sum::<f64>();
            }
        }
        sums
    }
}
