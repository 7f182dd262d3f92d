//! The runs of a series, by commit.

use std::collections::BTreeMap;

use stackbeat_model::metric::Metric;

use crate::run::{self, NameId, Names, RoleId, Run};
use crate::run_table::Match;
use crate::trend::align;

/// Values by commit and run.
pub type Points = Vec<Vec<f64>>;

/// The runs of one program on one machine.
#[derive(Debug)]
pub struct History {
    /// By commit, oldest first, each by start and name; without places.
    pub runs: Vec<Vec<Run>>,
    /// Names and roles of all runs.
    pub names: Names,
    /// Names that were taken for the same function.
    pub matches: Vec<Match>,
    functions: BTreeMap<(RoleId, NameId, Metric), Points>,
}

impl History {
    /// Puts the runs in order. Each comes with the number of its commit; no commit below `commits` is
    /// without.
    pub fn new(mut runs: Vec<(usize, Run)>, names: Names, commits: usize) -> History {
        run::keep_comparable(runs.iter_mut().map(|(_, run)| run));
        runs.sort_by(|a, b| {
            let key = |(commit, run): &(usize, Run)| {
                (*commit, run.about.started_unix_ns, run.about.label.clone())
            };
            key(a).cmp(&key(b))
        });
        let (same, matches) = align::same_names(&names, &runs, commits);
        let mut by_commit: Vec<Vec<Run>> = vec![Vec::new(); commits];
        for (commit, run) in runs {
            by_commit[commit].push(run);
        }
        let empty: Points = by_commit.iter().map(|runs| vec![0.0; runs.len()]).collect();
        let mut functions: BTreeMap<_, Points> = BTreeMap::new();
        for (commit, runs) in by_commit.iter().enumerate() {
            for (at, run) in runs.iter().enumerate() {
                for (role, name, metric, value) in run.functions() {
                    let key = (role, same[name.0 as usize], metric);
                    let points = functions.entry(key).or_insert_with(|| empty.clone());
                    points[commit][at] += value as f64;
                }
            }
        }
        History {
            runs: by_commit,
            names,
            matches,
            functions,
        }
    }

    /// Number of commits.
    pub fn commits(&self) -> usize {
        self.runs.len()
    }

    fn points(&self, value: impl Fn(&Run) -> u64) -> Points {
        let of_commit = |runs: &Vec<Run>| runs.iter().map(|run| value(run) as f64).collect();
        self.runs.iter().map(of_commit).collect()
    }

    /// Whether all runs counted, to their end, what the metric is of.
    pub fn counts(&self, metric: Metric) -> bool {
        run::all_count(self.runs.iter().flatten(), metric)
    }

    /// A metric of the whole run; of what runs read and wrote, and of system calls, nothing, unless all of
    /// them know it.
    pub fn whole(&self, metric: Metric) -> Points {
        let may_be_unknown = metric.is_transfer() || metric.is_system_call();
        let is_known = !may_be_unknown || self.counts(metric);
        self.points(|run| match is_known {
            true => run.whole.get(metric),
            false => 0,
        })
    }

    /// Roles that occur, in the order of their numbers.
    pub fn roles(&self) -> Vec<RoleId> {
        (0..self.names.roles().len() as u32).map(RoleId).collect()
    }

    /// A metric summed over the threads of a role.
    pub fn role(&self, role: RoleId, metric: Metric) -> Points {
        self.points(|run| {
            let found = run.roles.iter().find(|(r, _)| *r == role);
            found.map_or(0, |(_, values)| values.get(metric))
        })
    }

    /// All functions themselves, callees not included, by metric.
    pub fn functions(&self) -> impl Iterator<Item = ((RoleId, NameId, Metric), &Points)> {
        self.functions.iter().map(|(key, points)| (*key, points))
    }
}
