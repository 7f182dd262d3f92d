//! A series of commits: which of them changed what. The same metrics, roles, functions and thresholds as in
//! a gate; formulas and sources in docs/trend.md.
//!
//! Costs of the whole run are one family of series, roles and functions the other; each may use up half of
//! the error rate.

pub mod align;
pub mod divisive;
pub mod history;
pub mod levels;

use std::collections::BTreeMap;

use stackbeat_model::metric::{Metric, Unit};

use crate::comparable_names::is_like;
use crate::decide::Verdict;
use crate::decide::system_calls::are_other_counts;
use crate::rules::Rules;
use crate::run::{NameId, RoleId};
use crate::stats::median;
use history::History;
use levels::{Change, FEWEST, Levels, Proof, Question, levels};

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The whole run.
    Whole,
    /// The threads of a role.
    Role(RoleId),
    /// A function itself.
    Function(RoleId, NameId),
}

/// One metric over the commits.
#[derive(Clone, Debug)]
pub struct Line {
    /// Whose metric it is.
    pub what: What,
    /// What is measured.
    pub metric: Metric,
    /// The runs' values, by commit.
    pub points: Vec<Vec<f64>>,
    /// The levels that were found in it.
    pub levels: Levels,
}

impl Line {
    /// The median of each commit's runs.
    pub fn medians(&self) -> Vec<f64> {
        self.points.iter().map(|runs| median(runs)).collect()
    }

    /// Whether the newest level still has at least half of a change.
    fn stands(&self, change: &Change) -> bool {
        let newest = self.levels.changes.last().map_or(change.after, |c| c.after);
        (newest - change.before) / change.shift >= 0.5
    }
}

/// A change of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index in [`Outcome::lines`].
    pub line: usize,
    /// Index in the line's changes.
    pub change: usize,
}

/// How much of a change is in a role's threads or in a function itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The role or the function.
    pub what: What,
    /// What is measured.
    pub metric: Metric,
    /// Level before the commit, in the metric's unit.
    pub before: f64,
    /// Level from the commit on, in the metric's unit.
    pub after: f64,
    /// Of the change that it is a part of.
    pub share: f64,
}

/// What one commit changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Index of the commit in the series.
    pub commit: usize,
    /// The first is the one to name.
    pub changes: Vec<Place>,
    /// Something became worse.
    pub is_worse: bool,
    /// Some of that is there still at the end of the series.
    pub stands: bool,
    /// What makes it a regression: the first change that became worse, stands, and is of a time or of a count
    /// that decides.
    pub deciding: Option<Decision>,
    /// How the first change is known.
    pub proof: Proof,
    /// Where the first change sits, largest first.
    pub parts: Vec<Part>,
}

/// A change that makes a regression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The change.
    pub place: Place,
    /// How it is known.
    pub proof: Proof,
}

/// What a series says.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Whether something became worse that counts.
    pub verdict: Verdict,
    /// Costs of the whole run, then what changed of roles and functions.
    pub lines: Vec<Line>,
    /// Oldest commit first.
    pub findings: Vec<Finding>,
    /// What became worse before this commit is known, and counts no more.
    pub since: usize,
    /// Commits that are missing, at least, for an answer.
    pub commits_needed: Option<usize>,
    /// Series of roles and functions that were searched.
    pub family_size: usize,
}

impl Outcome {
    /// What became worse and counts, oldest commit first.
    pub fn regressions(&self) -> impl DoubleEndedIterator<Item = &Finding> {
        regressions(&self.findings, self.since)
    }
}

fn regressions(findings: &[Finding], since: usize) -> impl DoubleEndedIterator<Item = &Finding> {
    let counts = move |f: &&Finding| f.deciding.is_some() && f.commit >= since;
    findings.iter().filter(counts)
}

/// Judges a series. A regression counts from commit `since` on.
pub fn judge(history: &History, rules: &Rules, since: usize) -> Outcome {
    let judge = Judge {
        history,
        rules,
        wall_ns: median(&history.whole(Metric::Wall).concat()),
        cpu_ns: median(&history.whole(Metric::Cpu).concat()),
    };
    judge.run(since)
}

struct Judge<'a> {
    history: &'a History,
    rules: &'a Rules,
    wall_ns: f64,
    cpu_ns: f64,
}

impl Judge<'_> {
    fn run(&self, since: usize) -> Outcome {
        let costs = || Metric::ALL.into_iter().filter(|m| self.is_cost(*m));
        let whole = costs().map(|m| (What::Whole, m, self.history.whole(m)));
        let mut lines = self.lines(whole.collect());
        let whole_count = lines.len();
        let mut inner = Vec::new();
        for role in self.history.roles() {
            inner.extend(costs().map(|m| (What::Role(role), m, self.history.role(role, m))));
        }
        for ((role, name, metric), points) in self.history.functions() {
            let is_tested = Metric::OF_FUNCTIONS.contains(&metric) && self.is_cost(metric);
            if is_tested && !self.is_ignored(name) {
                inner.push((What::Function(role, name), metric, points.clone()));
            }
        }
        let inner = self.lines(inner);
        let family_size = inner.len();
        lines.extend(inner.into_iter().filter(|line| {
            let sure = |c: &Change| c.proof != Proof::Suspected;
            line.levels.changes.iter().any(sure)
        }));
        lines.extend(self.system_calls());
        let findings = self.findings(&lines, whole_count);
        let is_open = |metric: &Metric| {
            let line = lines[..whole_count].iter().find(|l| l.metric == *metric);
            line.is_some_and(|l| !l.levels.is_known)
        };
        let worse = || regressions(&findings, since).filter_map(|f| f.deciding);
        let verdict = if worse().any(|decision| decision.proof != Proof::Suspected) {
            Verdict::Regression
        } else if worse().next().is_some() || self.rules.required.iter().any(is_open) {
            Verdict::CannotTell
        } else {
            Verdict::NoRegression
        };
        let commits = self.history.commits();
        let missing = FEWEST.saturating_sub(commits).max(1);
        Outcome {
            verdict,
            commits_needed: (verdict == Verdict::CannotTell).then_some(missing),
            findings,
            since,
            lines,
            family_size,
        }
    }

    fn is_cost(&self, metric: Metric) -> bool {
        metric.is_cost() && !self.rules.ignored_metrics.contains(&metric)
    }

    fn is_ignored(&self, name: NameId) -> bool {
        let text = self.history.names.text(name);
        let mut ignored = self.rules.ignored_functions.iter();
        ignored.any(|pattern| is_like(text, pattern))
    }

    /// Analyses a family of series; those that never reach what matters are not of it.
    fn lines(&self, series: Vec<(What, Metric, Vec<Vec<f64>>)>) -> Vec<Line> {
        let floor = |metric| self.rules.floor(metric, self.wall_ns, self.cpu_ns);
        let matters = |(what, metric, points): &(What, Metric, Vec<Vec<f64>>)| {
            let highest = points.iter().map(|p| median(p)).fold(0.0, f64::max);
            // A cost of the whole run is shown even where it is small.
            highest >= floor(*metric) || *what == What::Whole && highest > 0.0
        };
        let members: Vec<_> = series.into_iter().filter(matters).collect();
        let family = members.len();
        members
            .into_iter()
            .map(|(what, metric, points)| {
                let question = Question {
                    points: &points,
                    is_exact: metric.is_exact() && !matches!(what, What::Function(..)),
                    floor: floor(metric),
                    family,
                };
                Line {
                    levels: levels(&question, self.rules),
                    what,
                    metric,
                    points,
                }
            })
            .collect()
    }

    /// System calls by kind, and their bytes, of the threads of a role that changed for certain: where they
    /// vary, time says more.
    fn system_calls(&self) -> Vec<Line> {
        let kinds: Vec<Metric> = Metric::SYSTEM_CALLS
            .into_iter()
            .filter(|m| m.is_steady_call() && !self.rules.ignored_metrics.contains(m))
            .filter(|m| self.history.counts(*m))
            .collect();
        let roles = self.history.roles().into_iter();
        let series = roles.flat_map(|role| kinds.iter().map(move |metric| (role, *metric)));
        series
            .filter_map(|(role, metric)| {
                let points = self.history.role(role, metric);
                let question = Question {
                    points: &points,
                    is_exact: true,
                    floor: self.rules.floor(metric, self.wall_ns, self.cpu_ns),
                    family: 1,
                };
                let levels = levels::exact(&question, self.rules)?;
                let mut line = Line {
                    what: What::Role(role),
                    metric,
                    levels,
                    points,
                };
                // Of the commits beside a change those that have its values: smaller steps are no changes.
                let points = &line.points;
                line.levels.changes.retain(|change| {
                    let has = |value: f64| move |runs: &&Vec<f64>| runs.iter().all(|v| *v == value);
                    let before = points[..change.at]
                        .iter()
                        .rev()
                        .take_while(has(change.before));
                    let after = points[change.at..].iter().take_while(has(change.after));
                    let of = |runs: Vec<&Vec<f64>>| {
                        runs.into_iter().flatten().copied().collect::<Vec<f64>>()
                    };
                    are_other_counts(metric, &of(before.collect()), &of(after.collect()))
                });
                (!line.levels.changes.is_empty()).then_some(line)
            })
            .collect()
    }

    /// Changes by commit. What changed in the whole run speaks for what is in it.
    fn findings(&self, lines: &[Line], whole_count: usize) -> Vec<Finding> {
        let mut by_commit: BTreeMap<usize, Vec<Place>> = BTreeMap::new();
        for (at, line) in lines.iter().enumerate() {
            for (nth, change) in line.levels.changes.iter().enumerate() {
                let place = Place {
                    line: at,
                    change: nth,
                };
                // Of hundreds of functions some newest value always lies apart.
                let is_part =
                    change.proof != Proof::Suspected && !self.has_moved(lines, line, change);
                if at < whole_count || is_part {
                    by_commit.entry(change.at).or_default().push(place);
                }
            }
        }
        let of = |place: &Place| &lines[place.line].levels.changes[place.change];
        let mut findings = Vec::new();
        for (commit, mut changes) in by_commit {
            let is_whole = |place: &Place| place.line < whole_count;
            // Sure ones before suspicions, the whole before its parts, wall before others, then by size.
            changes.sort_by(|a, b| {
                let key = |place: &Place| {
                    let line = &lines[place.line];
                    (
                        of(place).proof == Proof::Suspected,
                        of(place).shift < 0.0,
                        !is_whole(place),
                        line.metric != Metric::Wall,
                        line.metric.unit() != Unit::Nanoseconds,
                    )
                };
                let metric = |place: &Place| lines[place.line].metric;
                let size = |place: &Place| of(place).shift.abs();
                let by_size = match metric(a).unit() == metric(b).unit() {
                    true => size(b).total_cmp(&size(a)),
                    false => metric(a).cmp(&metric(b)),
                };
                key(a).cmp(&key(b)).then(by_size).then(a.line.cmp(&b.line))
            });
            let worse = || changes.iter().filter(|p| of(p).shift > 0.0);
            let mut standing = worse().filter(|p| lines[p.line].stands(of(p)));
            let deciding = standing
                .clone()
                .find(|p| self.rules.decides(lines[p.line].metric));
            let first = changes[0];
            findings.push(Finding {
                commit,
                is_worse: worse().next().is_some(),
                stands: standing.next().is_some(),
                deciding: deciding.map(|place| Decision {
                    place: *place,
                    proof: of(place).proof,
                }),
                proof: of(&first).proof,
                parts: self.parts(&lines[first.line], of(&first)),
                changes,
            });
        }
        findings
    }

    /// A function or role that became heavier while the rest became lighter by at least half of it.
    fn has_moved(&self, lines: &[Line], line: &Line, change: &Change) -> bool {
        let (before, after) = line.beside(change);
        let whole = self.history.whole(line.metric);
        let of = |range: std::ops::Range<usize>| -> f64 {
            let rest = range.flat_map(|at| {
                let pairs = whole[at].iter().zip(&line.points[at]);
                pairs.map(|(whole, part)| whole - part)
            });
            median(&rest.collect::<Vec<f64>>())
        };
        let rest = of(after) - of(before);
        // Wall time of threads adds up to more than the run's.
        let is_part = line.metric != Metric::Wall;
        let is_known = lines.iter().any(|l| {
            let same = l.what == What::Whole && l.metric == line.metric;
            same && l.levels.changes.iter().any(|c| c.at == change.at)
        });
        is_part && !is_known && rest * change.shift < 0.0 && rest.abs() >= 0.5 * change.shift.abs()
    }

    /// Roles and functions with a tenth of a change or more.
    fn parts(&self, line: &Line, change: &Change) -> Vec<Part> {
        const LEAST: f64 = 0.1;
        const SHOWN: usize = 3;
        if line.what != What::Whole {
            return Vec::new();
        }
        let (before, after) = line.beside(change);
        let part = |what: What, points: &[Vec<f64>]| {
            let of = |range: std::ops::Range<usize>| median(&points[range].concat());
            let (before, after) = (of(before.clone()), of(after.clone()));
            let share = (after - before) / change.shift;
            (share >= LEAST).then_some(Part {
                what,
                metric: line.metric,
                before,
                after,
                share,
            })
        };
        let largest = |mut parts: Vec<Part>| {
            parts.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.what.cmp(&b.what)));
            parts.truncate(SHOWN);
            parts
        };
        let roles = self.history.roles().into_iter();
        let roles = roles.filter_map(|role| {
            let points = self.history.role(role, line.metric);
            part(What::Role(role), &points)
        });
        let functions = self.history.functions();
        let functions = functions.filter_map(|((role, name, metric), points)| {
            let is_one = metric == line.metric;
            let what = What::Function(role, name);
            is_one.then(|| part(what, points)).flatten()
        });
        let (roles, functions) = (largest(roles.collect()), largest(functions.collect()));
        roles.into_iter().chain(functions).collect()
    }
}

impl Line {
    /// The commits of the levels before and after a change.
    pub fn beside(&self, change: &Change) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let places = || self.levels.changes.iter().map(|c| c.at);
        let from = places().filter(|at| *at < change.at).max().unwrap_or(0);
        let to = places().filter(|at| *at > change.at).min();
        (from..change.at, change.at..to.unwrap_or(self.points.len()))
    }
}

#[cfg(test)]
mod tests;
