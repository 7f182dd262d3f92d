//! The words and numbers that all outputs share.

use stackbeat_gate::comparable_names::Form;
use stackbeat_gate::compare::{Answer, Comparison};
use stackbeat_gate::confirm;
use stackbeat_gate::decide::{
    Confirmation, Finding, Outcome, ProcessRow, Row, ScopeRow, Verdict, Way,
};
use stackbeat_gate::rules::{Budget, Pairing, Per};
use stackbeat_gate::run::{NameId, RoleId};
use stackbeat_gate::run_budget::BudgetRow;
use stackbeat_gate::run_table::RunTable;
use stackbeat_gate::wait_partners::{Tie, WaitedFor};
use stackbeat_model::metric::{Metric, Unit};

use super::read_run::Sources;
use crate::summary::labels::source_text;
use crate::units;

/// What a gate compared and found.
#[derive(Debug)]
pub(super) struct Gate {
    pub table: RunTable,
    pub outcome: Outcome,
    /// Where functions of the candidate are written.
    pub sources: Sources,
    /// Share of an interval, e.g. 0.95.
    pub confidence: f64,
    pub pairing: Pairing,
}

impl Gate {
    /// `10 against 10 runs`.
    pub(super) fn sizes(&self) -> String {
        format!(
            "{} against {} runs",
            self.table.baseline_count,
            self.table.candidate_count()
        )
    }

    pub(super) fn role(&self, role: RoleId) -> String {
        self.table.names.roles()[role.0 as usize].describe()
    }

    /// The answer in one line, without the verdict itself.
    pub(super) fn headline(&self) -> String {
        let outcome = &self.outcome;
        match outcome.verdict {
            Verdict::Regression => match outcome.findings.first() {
                Some(finding) => self.finding_line(finding) + &self.confirmed().unwrap_or_default(),
                None => self.budget_lines().first().cloned().unwrap_or_default(),
            },
            Verdict::NoRegression => {
                let seen: Vec<String> = outcome
                    .whole
                    .iter()
                    .filter(|r| matches!(r.metric, Metric::Wall | Metric::Cpu))
                    .map(|r| self.sameness(r))
                    .collect();
                let seen = seen.join("; ");
                match self.counted() {
                    None => format!("{seen}, {}", self.sizes()),
                    Some(counted) => {
                        let speed = self.speed();
                        format!("{speed}, but {counted} ({seen}), {}", self.sizes())
                    }
                }
            }
            Verdict::CannotTell if outcome.obstacle.is_some() => {
                let why = outcome.obstacle.clone().unwrap_or_default();
                format!("{why}; {}", self.sizes())
            }
            Verdict::CannotTell => {
                let open: Vec<String> = outcome
                    .whole
                    .iter()
                    .filter(|r| outcome.open.contains(&r.metric))
                    .map(|r| format!("{} {}", r.metric.title(), self.interval(&r.comparison)))
                    .collect();
                let needed = match outcome.runs_needed {
                    Some(needed) => format!("; about {needed} runs a side would tell"),
                    None => String::new(),
                };
                let counted = self.counted();
                let counted = counted.map_or_else(String::new, |c| format!("; {c} for certain"));
                format!("{}, {}{needed}{counted}", open.join("; "), self.sizes())
            }
        }
    }

    /// What the times of the whole run say in a word, where nothing is a regression.
    fn speed(&self) -> &'static str {
        let times = self.outcome.whole.iter();
        let mut times = times.filter(|r| matches!(r.metric, Metric::Wall | Metric::Cpu));
        match times.any(|r| r.comparison.answer == Answer::Lower) {
            true => "faster",
            false => "not slower",
        }
    }

    /// `read calls +21.0 % and bytes read +18.2 %`: the counts that are notices.
    fn counted(&self) -> Option<String> {
        const SHOWN: usize = 2;
        let counts = self.outcome.notices.iter();
        let counts = counts.filter(|notice| notice.way != Way::Suspected);
        let mut texts: Vec<String> = counts.map(|n| count_change(&n.row)).collect();
        // One kind may have become more in several roles.
        texts.dedup();
        let more = texts.len().saturating_sub(SHOWN);
        texts.truncate(SHOWN);
        if more > 0 {
            texts.push(format!("{more} more counts"));
        }
        let last = texts.pop()?;
        Some(match texts.is_empty() {
            true => last,
            false => format!("{} and {last}", texts.join(", ")),
        })
    }

    /// Findings and notices, each with the word that stands before it.
    pub(super) fn reported(&self) -> impl Iterator<Item = (&'static str, &Finding)> {
        let findings = self.outcome.findings.iter().map(|f| ("", f));
        findings.chain(self.outcome.notices.iter().map(|f| ("notice: ", f)))
    }

    /// `; 5 fresh pairs of runs confirm it: +7.1 %, p = 0.0040`.
    fn confirmed(&self) -> Option<String> {
        let confirmation = self.outcome.confirmation.as_ref()?;
        let first = confirm::first_of(&self.outcome.findings)?;
        let is_headline = self.outcome.findings.first() == Some(first);
        let what = match is_headline {
            true => "it".to_string(),
            false => format!("the change of {}", confirmation.metric.title()),
        };
        Some(format!(
            "; {} {what}: {}",
            fresh_pairs(confirmation, "confirm"),
            evidence_of(confirmation)
        ))
    }

    fn sameness(&self, row: &Row) -> String {
        let title = row.metric.title();
        match row.comparison.answer {
            Answer::Same => match seen(row) {
                Some(size) => format!("{title} the same (a change of {size} would have been seen)"),
                None => format!("{title} the same"),
            },
            Answer::Lower => format!("{title} {}", change(row.comparison.relative)),
            // Of a pair that shared a processor the wall time has the other's turns in it.
            Answer::Unknown if !row.comparison.is_not_higher => {
                format!(
                    "{title} itself not told ({})",
                    self.interval(&row.comparison)
                )
            }
            _ => format!("{title} not higher ({})", self.interval(&row.comparison)),
        }
    }

    /// What became worse, by how much, how sure.
    pub(super) fn finding_line(&self, finding: &Finding) -> String {
        let c = &finding.row.comparison;
        let of = match (finding.way, finding.explanation.function) {
            (Way::Function, Some(function)) => format!(" of {}", self.table.names.text(function)),
            (Way::Role, _) => {
                let role = finding.explanation.role;
                role.map_or_else(String::new, |role| format!(" of {}", self.role(role)))
            }
            _ => String::new(),
        };
        let how_sure = match (c.p, finding.row.adjusted_p) {
            (None, _) => "counted exactly".to_string(),
            (Some(p), adjusted) => {
                format!(
                    "{}, p = {}",
                    self.interval(c),
                    p_value(adjusted.unwrap_or(p).max(p))
                )
            }
        };
        let size = match c.relative.is_finite() {
            true => change(c.relative),
            false => format!("0 → {}", candidate(&finding.row)),
        };
        let grew_with = match (finding.way, &self.outcome.suspicion) {
            (Way::Suspected, Some(said)) => format!(
                ", beside counts that differ for certain; {} it: {}",
                fresh_pairs(said, "confirm"),
                evidence_of(said)
            ),
            (Way::Suspected, None) => ", suspected beside counts that differ for certain".into(),
            _ => String::new(),
        };
        format!(
            "{}{of} {size} ({how_sure}){grew_with}, {}",
            finding.row.metric.title(),
            self.sizes()
        )
    }

    /// `+6.9 … +9.3 %`.
    pub(super) fn interval(&self, c: &Comparison) -> String {
        if c.p.is_none() {
            return "exact".into();
        }
        if !(c.interval.low.is_finite() && c.interval.high.is_finite()) {
            return "new".into();
        }
        format!(
            "{:+.1} … {:+.1} %",
            // Estimates of noisy runs may lie below nothing.
            100.0 * c.interval.low.max(-1.0),
            100.0 * c.interval.high
        )
    }

    /// A path without what interprets the functions further in.
    fn without_interpreter<'p>(&self, path: &'p [String]) -> Vec<&'p str> {
        let names = self.table.names.names();
        let id = |name: &str| {
            let at = names.iter().position(|known| known.text == name)?;
            Some(NameId(at as u32))
        };
        let is_interpreted =
            |name: &String| id(name).is_some_and(|n| self.sources.is_interpreted(n));
        let interpreted = path.iter().rposition(is_interpreted);
        let is_shown = |(depth, name): &(usize, &String)| {
            interpreted.is_none_or(|at| *depth > at)
                || !id(name).is_some_and(|n| self.sources.is_of_interpreter(n))
        };
        let shown = path.iter().enumerate().filter(is_shown);
        shown.map(|(_, name)| name.as_str()).collect()
    }

    /// Where a finding sits: the role and the path.
    pub(super) fn place(&self, finding: &Finding) -> String {
        let e = &finding.explanation;
        let role = e
            .role
            .map_or_else(|| "whole run".to_string(), |r| self.role(r));
        const SHOWN: usize = 12;
        let mut path = self.without_interpreter(&e.path);
        if path.len() > SHOWN {
            path.splice(2..path.len() - (SHOWN - 3), ["…"]);
        }
        match path.is_empty() {
            true => role,
            false => format!("{role}: {}", path.join(" → ")),
        }
    }

    /// The function to look at and its share of the change.
    pub(super) fn function(&self, finding: &Finding) -> Option<String> {
        let e = &finding.explanation;
        let function = e.function?;
        let name = self.table.names.text(function);
        let place = self.sources.get(&function);
        let place = place.map(|(file, line)| format!(" ({})", source_text(file, *line)));
        Some(format!(
            "{name}{} has {:.0} % of the change{}",
            place.unwrap_or_default(),
            100.0 * e.share.clamp(0.0, 1.0),
            match e.deepest.filter(|d| Some(*d) != e.function) {
                Some(deepest) => format!(", in {}", self.table.names.text(deepest)),
                None => ", callees included".into(),
            }
        ))
    }

    /// Evidence, one line each: amounts in the function on both sides, calls that became more.
    pub(super) fn evidence(&self, finding: &Finding) -> Vec<String> {
        const SHOWN: usize = 5;
        let e = &finding.explanation;
        // What was followed comes first, then what grew with it.
        let followed = e.parts.iter().filter(|p| p.metric == e.metric);
        let others = e.parts.iter().filter(|p| p.metric != e.metric);
        let wall = e.parts.iter().find(|p| p.metric == Metric::Wall);
        let least_ns = 0.01 * wall.map_or(0.0, |p| p.candidate);
        let others = others.filter(|p| {
            let is_time = p.metric.unit() == Unit::Nanoseconds;
            // Counts are spread over functions by samples: only what grew in the whole run is evidence.
            let whole = self.outcome.whole.iter().find(|r| r.metric == p.metric);
            let grew = whole.is_some_and(|r| r.comparison.answer == Answer::Higher);
            p.metric != Metric::Wall
                && (is_time || grew)
                && p.change() >= 0.05 * p.baseline
                && p.change() >= if is_time { least_ns } else { 1.0 }
        });
        let mut lines: Vec<String> = followed
            .chain(others)
            .take(SHOWN)
            .map(|p| {
                format!(
                    "{} {} → {}",
                    p.metric.title(),
                    amount(p.metric, p.baseline),
                    amount(p.metric, p.candidate)
                )
            })
            .collect();
        lines.extend(e.calls.iter().map(|c| {
            format!(
                "{} in {}: {:.0} → {:.0} calls that waited",
                c.call, c.caller, c.baseline, c.candidate
            )
        }));
        lines.extend(e.waited_for.iter().map(|w| self.waited_for(w)));
        lines
    }

    /// `held by keeper of press in keep_keys: 1.20 ms → 57.0 ms of waits`.
    fn waited_for(&self, waited: &WaitedFor) -> String {
        let how = match waited.tie {
            Tie::Held => "held by ",
            Tie::Ended => "ended by ",
            Tie::Failed => "timed out or failed",
            Tie::NobodyKnown => {
                "ended by nobody who is known (another process, a timer, the kernel, or a way that traces do not follow)"
            }
        };
        let who = waited.party.map_or(String::new(), |party| {
            let role = self.role(party.role);
            match party.function {
                Some(function) => format!("{role} in {}", self.table.names.text(function)),
                None => role,
            }
        });
        format!(
            "{how}{who}: {} → {} of long waits",
            amount(Metric::Wall, waited.baseline),
            amount(Metric::Wall, waited.candidate)
        )
    }

    /// Budgets that were exceeded.
    pub(super) fn budget_lines(&self) -> Vec<String> {
        over_budget(&self.outcome.budgets)
    }

    /// Budgets that nothing was spent of because nothing has their names, those that cannot be judged, and
    /// what else is to be warned of.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = idle_budgets(&self.outcome.budgets);
        warnings.extend(uncounted_budgets(&self.outcome.budgets));
        warnings.extend(self.outcome.warnings.iter().cloned());
        warnings
    }

    /// Functions that have another name in each build and were taken for the same, and why.
    pub(super) fn renamed(&self) -> Vec<String> {
        const SHOWN: usize = 5;
        let renamed = || {
            let matches = self.table.matches.iter();
            matches.filter(|m| m.form == Form::Place)
        };
        let mut lines: Vec<String> = renamed()
            .take(SHOWN)
            .map(|m| {
                format!(
                    "renamed: {} was {} ({})",
                    m.name,
                    m.taken_for,
                    m.form.describe()
                )
            })
            .collect();
        if renamed().count() > SHOWN {
            lines.push(format!(
                "and {} more were renamed",
                renamed().count() - SHOWN
            ));
        }
        lines
    }

    /// Metrics that the same cause made worse.
    pub(super) fn also(&self, finding: &Finding) -> Option<String> {
        let also = finding.also.iter().filter_map(|metric| {
            let row = self.outcome.whole.iter().find(|r| r.metric == *metric)?;
            Some(format!(
                "{} {}",
                metric.title(),
                change(row.comparison.relative)
            ))
        });
        let also: Vec<String> = also.collect();
        (!also.is_empty()).then(|| also.join(", "))
    }

    /// Rows of the table of the whole run: costs that are worth a line, and what changed.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let wall = self.outcome.whole.iter().find(|r| r.metric == Metric::Wall);
        let wall_ns = wall.map_or(0.0, |r| r.comparison.baseline_median);
        let shown = |row: &&Row| {
            let c = &row.comparison;
            let least = match row.metric.unit() {
                Unit::Nanoseconds => 0.001 * wall_ns,
                _ => 1.0,
            };
            let matters = c.baseline_median.max(c.candidate_median) >= least;
            row.metric.is_cost() && matters || matches!(c.answer, Answer::Higher | Answer::Lower)
        };
        self.outcome.whole.iter().filter(shown).collect()
    }
}

/// `read calls +21.0 %`.
fn count_change(row: &Row) -> String {
    let title = row.metric.title();
    let title = match title.strip_prefix("system calls: ") {
        Some(kind) => format!("{kind} calls"),
        None => title.into(),
    };
    let c = &row.comparison;
    match c.relative.is_finite() {
        true => format!("{title} {}", change(c.relative)),
        false => format!("{title} 0 → {}", amount(row.metric, c.candidate_median)),
    }
}

/// A line for each budget that was exceeded.
pub(super) fn over_budget(budgets: &[BudgetRow]) -> Vec<String> {
    let exceeded = budgets.iter().filter(|row| row.is_exceeded());
    let line = |row: &BudgetRow| {
        let budget = &row.budget;
        format!(
            "over budget: {}{} is {}, at most {} is allowed",
            budget.metric.title(),
            budget_of(budget),
            amount(budget.metric, row.spent),
            amount(budget.metric, budget.max)
        )
    };
    exceeded.map(line).collect()
}

/// A line for each budget that nothing was spent of because nothing has its names.
pub(super) fn idle_budgets(budgets: &[BudgetRow]) -> Vec<String> {
    let idle = budgets.iter().filter(|row| row.is_idle);
    let line = |row: &BudgetRow| {
        format!(
            "the budget for {}{} holds nothing: no run has spent anything there; is the name right?",
            row.budget.metric.title(),
            budget_of(&row.budget)
        )
    };
    idle.map(line).collect()
}

/// A line for each budget of something that a run did not count, or not to its end.
pub(super) fn uncounted_budgets(budgets: &[BudgetRow]) -> Vec<String> {
    let line = |row: &BudgetRow| {
        Some(format!(
            "the budget for {}{} cannot be judged: {}",
            row.budget.metric.title(),
            budget_of(&row.budget),
            row.uncounted?.reason()
        ))
    };
    budgets.iter().filter_map(line).collect()
}

/// ` of function parse of thread worker-*`.
fn budget_of(budget: &Budget) -> String {
    let scope = budget.scope.as_ref().map(|scope| {
        let what = match scope.per {
            Per::Run => "all scopes",
            Per::Call => "one scope (mean)",
            Per::Longest => "the longest scope",
        };
        format!(" of {what} {}", scope.name)
    });
    let function = budget
        .function
        .as_ref()
        .map(|name| format!(" of function {name}"));
    let thread = budget
        .thread
        .as_ref()
        .map(|name| format!(" of thread {name}"));
    [scope, function, thread].into_iter().flatten().collect()
}

/// `5 fresh pairs of runs confirm`.
fn fresh_pairs(confirmation: &Confirmation, verb: &str) -> String {
    format!("{} fresh pairs of runs {verb}", confirmation.runs)
}

fn evidence_of(confirmation: &Confirmation) -> String {
    let p = confirmation
        .p
        .map_or("counted exactly".into(), |p| format!("p = {}", p_value(p)));
    format!("{}, {p}", change(confirmation.relative))
}

/// Why a regression that fresh runs did not show again is none.
#[cfg(target_os = "linux")]
pub(super) fn unconfirmed(finding_line: &str, confirmation: &Confirmation) -> String {
    format!(
        "{finding_line}, but {} that: {}; there may be a change too small for so many runs",
        fresh_pairs(confirmation, "did not show"),
        evidence_of(confirmation)
    )
}

/// `CPU time: nginx`.
pub(super) fn process(row: &ProcessRow) -> String {
    format!("{}: {}", row.row.metric.title(), row.process)
}

/// Scopes that are shown, the wall time of each before its other metrics.
pub(super) fn scopes(outcome: &Outcome) -> impl Iterator<Item = &ScopeRow> {
    outcome.scopes.iter().filter(|row| row.is_worth_a_line())
}

/// `parse header (2,000 calls)`, or `(2,000 → 2,500 calls; system calls: stat 20 → 2,020)`;
/// of all but the wall time `CPU time: parse header`.
pub(super) fn scope(row: &ScopeRow) -> String {
    const SHOWN: usize = 2;
    if row.row.metric != Metric::Wall {
        return format!("{}: {}", row.row.metric.title(), row.name);
    }
    let count = |calls: f64| units::count(calls.round().max(0.0) as u64);
    let (before, after) = (count(row.calls.0), count(row.calls.1));
    let entered = match before == after {
        true => before,
        false => format!("{before} → {after}"),
    };
    let parts = row.system_calls.iter().take(SHOWN).map(|p| {
        let title = p.metric.title();
        let metrics = [p.baseline, p.candidate].map(|value| amount(p.metric, value));
        format!("; {title} {} → {}", metrics[0], metrics[1])
    });
    let inside: String = parts.collect();
    format!("{} ({entered} calls{inside})", row.name)
}

/// The verdict for people.
pub(super) fn verdict_text(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NoRegression => "no regression",
        Verdict::Regression => "REGRESSION",
        Verdict::CannotTell => "cannot tell",
    }
}

/// An amount of a metric.
pub(super) fn amount(metric: Metric, value: f64) -> String {
    let rounded = value.round().max(0.0) as u64;
    match metric.unit() {
        Unit::Nanoseconds => units::duration(rounded),
        Unit::Bytes => units::bytes(rounded),
        Unit::Count => units::count(rounded),
    }
}

/// `+8.2 %`, or `new` when there was nothing before.
pub(super) fn change(relative: f64) -> String {
    if relative.is_finite() {
        format!("{:+.1} %", 100.0 * relative)
    } else {
        "new".into()
    }
}

/// A change as a share of a level; one that is no small part of it as an amount: of what is small, a large
/// share is little.
pub(super) fn size(metric: Metric, share: f64, level: f64) -> String {
    const SMALL: f64 = 0.1;
    match share <= SMALL {
        true => format!("{:.1} %", 100.0 * share),
        false => amount(metric, share * level),
    }
}

/// The smallest change that would have been seen.
fn seen(row: &Row) -> Option<String> {
    let c = &row.comparison;
    // Who would have seen no less than the whole has not looked.
    let is_known = c.smallest_seen < 1.0;
    is_known.then(|| size(row.metric, c.smallest_seen, c.baseline_median))
}

/// The candidate's amount beside the baseline's median and the change. The change is that of the typical run
/// and not of the medians, which noise may have moved the other way.
pub(super) fn candidate(row: &Row) -> String {
    let c = &row.comparison;
    let value = match c.p {
        Some(_) => c.baseline_median + c.shift,
        None => c.candidate_median,
    };
    amount(row.metric, value)
}

/// Small ones in full: a p of 0.00001 says something else than one of 0.001.
pub(super) fn p_value(p: f64) -> String {
    if p < 0.0001 {
        "<0.0001".into()
    } else {
        format!("{p:.4}")
    }
}

/// What stands in the column of p values. Only increases are adjusted for the family they are tested in.
pub(super) fn p_of(row: &Row) -> String {
    let adjusted = row.adjusted_p.filter(|_| row.comparison.shift > 0.0);
    match row.comparison.p {
        None => "exact".into(),
        Some(p) => p_value(adjusted.map_or(p, |a| a.max(p))),
    }
}

/// The answer for people.
pub(super) fn answer(row: &Row) -> String {
    let c = &row.comparison;
    match c.answer {
        Answer::Higher if row.metric.is_cost() => "worse".into(),
        Answer::Lower if row.metric.is_cost() => "better".into(),
        Answer::Same if c.interval.low > 0.0 || c.interval.high < 0.0 => {
            "same (too small to matter)".into()
        }
        Answer::Same => match seen(row) {
            Some(size) => format!("same (would see {size})"),
            None => "same".into(),
        },
        Answer::Unknown if c.is_not_higher => "not worse".into(),
        other => other.name().into(),
    }
}
