//! The words and numbers that all outputs of a trend share.

use std::collections::BTreeMap;
use std::path::PathBuf;

use stackbeat_gate::decide::Verdict;
use stackbeat_gate::run_budget::BudgetRow;
use stackbeat_gate::trend::history::History;
use stackbeat_gate::trend::levels::{Change, Proof};
use stackbeat_gate::trend::{Decision, Finding, Line, Outcome, Part, Place, What};
use stackbeat_model::metric::Metric;

use super::commits::{Commit, Order};
use crate::commands::gate::read_run::Sources;
use crate::commands::gate::view::{
    amount, change, idle_budgets, over_budget, p_value, size, uncounted_budgets,
};

/// All series of a folder.
#[derive(Debug)]
pub(super) struct Trend {
    pub folder: String,
    pub order: Order,
    pub commits: Vec<Commit>,
    pub series: Vec<Series>,
    pub since: Option<String>,
    pub required: Vec<Metric>,
    /// What the comparison of two commits is to be asked with, too.
    pub policy: Option<PathBuf>,
    pub fail_on_counts: bool,
}

/// The runs of one program on one machine.
#[derive(Debug)]
pub(super) struct Series {
    /// The label, or the program.
    pub what: String,
    pub machine: String,
    /// Places among all commits.
    pub commits: Vec<usize>,
    pub history: History,
    pub outcome: Outcome,
    /// Where functions are written.
    pub sources: Sources,
    /// Of findings' commits: how many commits lie after the one measured before, this one included.
    pub distances: BTreeMap<usize, usize>,
    /// What the newest commit spends of each budget of the policy; empty in a series that ended before.
    pub budgets: Vec<BudgetRow>,
}

impl Trend {
    /// The worst of the series. One that ended before the newest commit and was too short for an answer says
    /// nothing.
    pub(super) fn verdict(&self) -> Verdict {
        let of = |verdict| {
            let mut all = self.series.iter().filter(|s| self.counts(s));
            all.any(|s| s.verdict() == verdict)
        };
        match () {
            () if of(Verdict::Regression) => Verdict::Regression,
            () if of(Verdict::CannotTell) => Verdict::CannotTell,
            () => Verdict::NoRegression,
        }
    }

    /// Whether a series has a say in the verdict.
    pub(super) fn counts(&self, series: &Series) -> bool {
        let is_current = series.commits.last() == Some(&(self.commits.len() - 1));
        is_current || series.verdict() != Verdict::CannotTell
    }

    pub(super) fn commit(&self, series: &Series, nth: usize) -> &Commit {
        &self.commits[series.commits[nth]]
    }

    /// `3f2a1bc Render twice`.
    pub(super) fn commit_text(&self, series: &Series, nth: usize) -> String {
        let commit = self.commit(series, nth);
        format!("{} {}", commit.name, commit.subject)
            .trim()
            .to_string()
    }

    /// The answer in one line, without the verdict itself.
    pub(super) fn headline(&self) -> String {
        let verdict = self.verdict();
        let mut deciding = self
            .series
            .iter()
            .filter(|s| self.counts(s) && s.verdict() == verdict);
        let (Some(series), more) = (deciding.next(), deciding.count()) else {
            return String::new();
        };
        let of = match self.series.len() {
            1 => String::new(),
            _ => format!("{}: ", series.what),
        };
        let text = match verdict {
            Verdict::Regression => self.worst(series, false),
            Verdict::CannotTell => self.open(series),
            Verdict::NoRegression => {
                series.sameness(&self.required) + &self.counted(series).unwrap_or_default()
            }
        };
        let more = match more {
            0 => String::new(),
            _ if verdict == Verdict::NoRegression => format!("; as in {more} more series"),
            _ => format!("; {more} more series"),
        };
        format!("{of}{text}, {}{more}", series.sizes())
    }

    /// The newest regression that counts.
    fn worst(&self, series: &Series, suspected: bool) -> String {
        let newest = series.outcome.regressions().rev();
        let mut decisions = newest.filter_map(|f| Some((f.commit, f.deciding?)));
        let wanted =
            |(_, decision): &(usize, Decision)| (decision.proof == Proof::Suspected) == suspected;
        match decisions.find(wanted) {
            Some((commit, decision)) => format!(
                "{} since {}",
                series.place_text(&decision.place),
                self.commit_text(series, commit)
            ),
            None if suspected => String::new(),
            None => series.over_budget().into_iter().next().unwrap_or_default(),
        }
    }

    /// `, but allocations +30.0 % (…) since 3f2a1bc Render twice`: the newest counts that became more.
    fn counted(&self, series: &Series) -> Option<String> {
        let findings = series.outcome.findings.iter().rev();
        let mut findings = findings.filter(|f| f.commit >= series.outcome.since);
        let finding = findings.find(|f| f.is_worse && f.stands && f.deciding.is_none())?;
        let mut places = finding.changes.iter();
        let more = places.find(|place| series.change(place).shift > 0.0)?;
        let (what, commit) = (
            series.place_text(more),
            self.commit_text(series, finding.commit),
        );
        Some(format!(", but {what} since {commit}"))
    }

    fn open(&self, series: &Series) -> String {
        let needed = series.outcome.commits_needed.unwrap_or(1);
        let commits = match needed {
            1 => "one more commit".to_string(),
            n => format!("{n} more commits"),
        };
        match self.worst(series, true) {
            suspicion if suspicion.is_empty() => format!("{commits} at least would tell"),
            suspicion => format!("{suspicion}? {commits} at least would confirm it"),
        }
    }

    /// What is to be known of a series beside its lines.
    pub(super) fn notes(&self, series: &Series) -> Vec<String> {
        let mut notes = series.over_budget();
        notes.extend(idle_budgets(&series.budgets));
        notes.extend(uncounted_budgets(&series.budgets));
        if !self.counts(series) {
            notes.push(
                "ends before the newest commit and is too short for an answer: it does not count"
                    .to_string(),
            );
        }
        let same = |other: &&Series| other.what == series.what && other.machine != series.machine;
        let others = self.series.iter().filter(same).count();
        if others > 0 {
            notes.push(format!(
                "{others} more series of {} from other machines; they are kept apart",
                series.what
            ));
        }
        let runs = || series.history.runs.iter().flatten();
        let lost = runs().filter(|r| r.about.lost > 0).count();
        if lost > 0 {
            notes.push(format!("{lost} runs lost records"));
        }
        let damaged = runs().filter(|r| !r.about.damage.is_empty()).count();
        if damaged > 0 {
            notes.push(format!(
                "{damaged} traces are damaged; what is left was compared (`stackbeat info` says where)"
            ));
        }
        let open = runs().filter(|r| !r.about.complete).count();
        if open > 0 {
            notes.push(format!("{open} recordings did not end regularly"));
        }
        let mut intervals: Vec<u64> = runs().map(|r| r.about.interval_ns).collect();
        intervals.sort_unstable();
        intervals.dedup();
        if intervals.len() > 1 {
            notes.push(format!("intervals differ: {intervals:?} ns"));
        }
        notes
    }

    /// What ordered the commits.
    pub(super) fn order_text(&self) -> String {
        match &self.order {
            Order::Git(repository) => {
                format!("in the order of {}", repository.folder().display())
            }
            Order::Started => "in the order of their first runs".into(),
        }
    }

    /// Which commits may be the cause, when not all were measured.
    pub(super) fn range_text(&self, series: &Series, finding: &Finding) -> Option<String> {
        let distance = *series.distances.get(&finding.commit)?;
        (distance > 1).then(|| {
            format!(
                "one of {distance} commits after {}, which was measured before",
                self.commit_text(series, finding.commit - 1)
            )
        })
    }

    /// The command that compares the commits before and from a finding on.
    pub(super) fn gate_command(&self, series: &Series, finding: &Finding) -> Option<String> {
        let line = &series.outcome.lines[finding.changes.first()?.line];
        let change = series.change(finding.changes.first()?);
        let (before, after) = line.beside(change);
        // The nearest commits on both sides: what is farther has other changes too.
        let folder = |at: usize| {
            let runs = &series.history.runs[at];
            let group = &runs.first()?.about.group;
            let same = runs.iter().all(|r| r.about.group == *group);
            let all = series.history.runs.iter().flatten();
            let only = all.filter(|r| r.about.group == *group).count() == runs.len();
            (same && only).then(|| group.clone())
        };
        let quoted = |text: String| shlex::try_quote(&text).map(|t| t.into_owned()).ok();
        let mut command = format!(
            "stackbeat gate -b {} -c {}",
            quoted(folder(before.end - 1)?)?,
            quoted(folder(after.start)?)?
        );
        if let Some(policy) = &self.policy {
            command += " --policy ";
            command += &quoted(policy.display().to_string())?;
        }
        if self.fail_on_counts {
            command += " --fail-on-counts";
        }
        Some(command)
    }
}

impl Series {
    /// That of its commits, unless the newest spends more than a budget allows, or nobody knows whether it
    /// does.
    pub(super) fn verdict(&self) -> Verdict {
        if self.budgets.iter().any(BudgetRow::is_exceeded) {
            return Verdict::Regression;
        }
        let is_uncounted = self.budgets.iter().any(|row| row.uncounted.is_some());
        match self.outcome.verdict {
            Verdict::NoRegression if is_uncounted => Verdict::CannotTell,
            verdict => verdict,
        }
    }

    pub(super) fn over_budget(&self) -> Vec<String> {
        over_budget(&self.budgets)
    }

    /// `16 commits, 32 runs`.
    pub(super) fn sizes(&self) -> String {
        let runs = self.history.runs.iter().flatten().count();
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        format!(
            "{}, {}",
            plural(self.commits.len(), "commit"),
            plural(runs, "run")
        )
    }

    pub(super) fn change(&self, place: &Place) -> &Change {
        &self.outcome.lines[place.line].levels.changes[place.change]
    }

    /// Lines of the whole run.
    pub(super) fn whole(&self) -> impl Iterator<Item = &Line> {
        self.outcome.lines.iter().filter(|l| l.what == What::Whole)
    }

    pub(super) fn what_text(&self, what: What) -> String {
        let role = |role: stackbeat_gate::run::RoleId| {
            self.history.names.roles()[role.0 as usize].describe()
        };
        match what {
            What::Whole => "whole run".into(),
            What::Role(id) => role(id),
            What::Function(id, name) => {
                format!("{} in {}", self.history.names.text(name), role(id))
            }
        }
    }

    /// `CPU time of price in main thread of shop`.
    pub(super) fn line_text(&self, line: &Line) -> String {
        match line.what {
            What::Whole => line.metric.title().to_string(),
            what => format!("{} of {}", line.metric.title(), self.what_text(what)),
        }
    }

    /// `wall time +19.6 % (p = 0.0003)`.
    pub(super) fn place_text(&self, place: &Place) -> String {
        let line = &self.outcome.lines[place.line];
        format!("{} {}", self.line_text(line), self.size_text(place))
    }

    /// `+19.6 % (512 ms → 613 ms, p = 0.0003)`.
    pub(super) fn size_text(&self, place: &Place) -> String {
        let c = self.change(place);
        let metric = self.outcome.lines[place.line].metric;
        format!(
            "{} ({} → {}, {})",
            change(c.relative),
            amount(metric, c.before),
            amount(metric, c.after),
            sureness(c)
        )
    }

    /// `100 % in main thread of shop (512 ms → 613 ms)`.
    pub(super) fn part_text(&self, part: &Part) -> String {
        format!(
            "{:.0} % in {} ({} → {})",
            100.0 * part.share.min(1.0),
            self.what_text(part.what),
            amount(part.metric, part.before),
            amount(part.metric, part.after)
        )
    }

    /// What would have been seen in the required metrics.
    fn sameness(&self, required: &[Metric]) -> String {
        let lines = self.whole().filter(|l| required.contains(&l.metric));
        let texts = lines.map(|line| format!("{}: {}", line.metric.title(), would_see(line)));
        texts.collect::<Vec<_>>().join("; ")
    }
}

/// What became of a finding.
pub(super) fn kind(finding: &Finding) -> &'static str {
    match (finding.is_worse, finding.stands, finding.deciding) {
        (true, true, Some(_)) => "worse",
        (true, true, None) => "more counted",
        (true, false, _) => "worse, and repaired later",
        (false, ..) => "better",
    }
}

/// How sure a change is.
pub(super) fn sureness(change: &Change) -> String {
    let p = || p_value(change.p.unwrap_or(1.0));
    match change.proof {
        Proof::Exact => "counted exactly".into(),
        Proof::Confirmed if p().starts_with('<') => format!("p {}", p()),
        Proof::Confirmed => format!("p = {}", p()),
        Proof::Suspected => "not confirmed yet".into(),
    }
}

/// `3.2 % over 3 commits would be seen`.
pub(super) fn would_see(line: &Line) -> String {
    match smallest_seen(line) {
        Some(change) => format!("{change} would be seen"),
        None => TOO_FEW.into(),
    }
}

/// What is said of a line that is too short to see any change.
pub(super) const TOO_FEW: &str = "too few commits";

/// `3.2 % over 3 commits`: the smallest change that would be seen at the end of a line.
pub(super) fn smallest_seen(line: &Line) -> Option<String> {
    let (share, commits) = (line.levels.smallest_seen).filter(|(share, _)| share.is_finite())?;
    let level = line.medians().last().copied().unwrap_or(0.0);
    let size = size(line.metric, share, level);
    Some(match commits {
        1 => size,
        n => format!("{size} over {n} commits"),
    })
}

/// `▁▁▂▂█`: medians by commit; so many characters at most.
pub(super) fn sparkline(values: &[f64], width: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let width = width.min(values.len()).max(1);
    let columns = (0..width).map(|at| {
        let (from, to) = (at * values.len() / width, (at + 1) * values.len() / width);
        stackbeat_gate::stats::median(&values[from..to])
    });
    let columns: Vec<f64> = columns.collect();
    let low = columns.iter().copied().fold(f64::INFINITY, f64::min);
    let high = columns.iter().copied().fold(0.0, f64::max);
    // Less than a tenth of the level is drawn as less than all of the height.
    let span = (high - low).max(0.1 * high).max(f64::MIN_POSITIVE);
    let block = |value: f64| BLOCKS[((value - low) / span * 7.0).round().clamp(0.0, 7.0) as usize];
    columns.into_iter().map(block).collect()
}
