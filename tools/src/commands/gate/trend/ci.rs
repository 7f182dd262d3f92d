//! A trend as test cases: one for each metric of each series.

use stackbeat_gate::trend::levels::Proof;
use stackbeat_gate::trend::{Finding, Place, What};

use super::view::{Series, Trend, would_see};
use crate::commands::gate::ci::{Case, CaseResult, CiReport, Failure, source};

/// Each metric of the whole run, and what became worse in roles and functions only.
pub(super) fn report(trend: &Trend) -> CiReport {
    CiReport {
        tool: "stackbeat trend",
        verdict: trend.verdict(),
        headline: trend.headline(),
        cases: trend.series.iter().flat_map(|s| cases(trend, s)).collect(),
    }
}

fn cases(trend: &Trend, series: &Series) -> Vec<Case> {
    let findings = || series.outcome.regressions();
    let mut cases: Vec<Case> = findings()
        .filter_map(|finding| {
            let decision = finding.deciding?;
            let name = format!(
                "{}: {}",
                series.what,
                trend.commit_text(series, finding.commit)
            );
            let headline = format!(
                "{} since {}",
                series.place_text(&decision.place),
                trend.commit_text(series, finding.commit)
            );
            let result = match decision.proof {
                Proof::Suspected => CaseResult::Skipped(headline),
                _ => {
                    let failure = failure(trend, series, finding, decision.place, headline);
                    CaseResult::Failed(failure)
                }
            };
            Some(Case { name, result })
        })
        .collect();
    cases.extend(series.over_budget().into_iter().map(|line| Case {
        name: format!("{}: budget", series.what),
        result: CaseResult::Failed(Failure::over_budget(line)),
    }));
    let is_named = |at: usize| {
        let mut places = findings().flat_map(|f| &f.changes);
        places.any(|place| place.line == at)
    };
    let whole = series.outcome.lines.iter().enumerate();
    let quiet = whole.filter(|(at, line)| line.what == What::Whole && !is_named(*at));
    cases.extend(quiet.map(|(_, line)| Case {
        name: format!("{}: {}", series.what, line.metric.title()),
        result: match line.levels.is_known {
            true => CaseResult::Passed,
            false => CaseResult::Skipped(would_see(line)),
        },
    }));
    cases
}

fn failure(
    trend: &Trend,
    series: &Series,
    finding: &Finding,
    deciding: Place,
    headline: String,
) -> Failure {
    let others = finding.changes.iter().filter(|place| **place != deciding);
    let mut details: Vec<String> = others
        .map(|place| format!("also: {}", series.place_text(place)))
        .collect();
    details.extend(
        finding
            .parts
            .iter()
            .map(|p| format!("where: {}", series.part_text(p))),
    );
    details.extend(trend.range_text(series, finding));
    details.extend(
        trend
            .gate_command(series, finding)
            .map(|c| format!("why: {c}")),
    );
    let lines = finding
        .changes
        .iter()
        .map(|p| series.outcome.lines[p.line].what);
    let parts = finding.parts.iter().map(|p| p.what);
    let function = lines.chain(parts).find_map(|what| match what {
        What::Function(_, name) => Some(name),
        _ => None,
    });
    let metric = series.outcome.lines[deciding.line].metric;
    Failure {
        headline,
        details: details.join("\n"),
        rule: format!("slower-since/{}", metric.name()),
        function: function
            .map_or("", |name| series.history.names.text(name))
            .into(),
        source: function.and_then(|name| source(&series.sources, name)),
    }
}
