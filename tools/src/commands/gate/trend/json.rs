//! A trend as JSON (docs/json.md).

use serde_json::{Value, json};
use stackbeat_gate::trend::levels::Change;
use stackbeat_gate::trend::{Finding, Line, What};

use super::commits::Order;
use super::view::{Series, Trend};

/// The whole object.
pub(super) fn render(trend: &Trend) -> Value {
    let commits = trend.commits.iter().map(|c| {
        json!({
            "name": c.name,
            "hash": c.hash,
            "subject": c.subject,
            "time_unix": c.time_unix,
        })
    });
    json!({
        "schema": "stackbeat.trend.v1",
        "verdict": trend.verdict().name(),
        "headline": trend.headline(),
        "order": match trend.order {
            Order::Git(_) => "git",
            Order::Started => "time",
        },
        "since": trend.since,
        "commits": commits.collect::<Vec<_>>(),
        "series": trend.series.iter().map(|s| series(trend, s)).collect::<Vec<_>>(),
    })
}

fn series(trend: &Trend, series: &Series) -> Value {
    let outcome = &series.outcome;
    let traces = series.history.runs.iter().map(|runs| {
        let labels = runs.iter().map(|r| json!(r.about.label));
        Value::Array(labels.collect())
    });
    json!({
        "what": series.what,
        "machine": series.machine,
        "counts": trend.counts(series),
        "verdict": series.verdict().name(),
        "over_budget": series.over_budget(),
        "commits_needed": outcome.commits_needed,
        "commits": series.commits,
        "traces": traces.collect::<Vec<_>>(),
        "findings": outcome.findings.iter().map(|f| finding(trend, series, f)).collect::<Vec<_>>(),
        "lines": outcome.lines.iter().map(|l| line(series, l)).collect::<Vec<_>>(),
        "inner_series": outcome.family_size,
        "matches": series.history.matches.iter().map(|m| json!({
            "name": m.name,
            "taken_for": m.taken_for,
            "because": m.form.describe(),
        })).collect::<Vec<_>>(),
        "notes": trend.notes(series),
    })
}

/// Role and function of a line or part; null where it is the whole run.
fn what(series: &Series, what: What) -> Value {
    let names = &series.history.names;
    let role = |id: stackbeat_gate::run::RoleId| {
        let role = &names.roles()[id.0 as usize];
        json!({ "process": role.process, "thread": role.thread })
    };
    match what {
        What::Whole => json!({ "role": null, "function": null }),
        What::Role(id) => json!({ "role": role(id), "function": null }),
        What::Function(id, name) => json!({ "role": role(id), "function": names.text(name) }),
    }
}

fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

fn finding(trend: &Trend, series: &Series, finding: &Finding) -> Value {
    let changes = finding.changes.iter().map(|place| {
        json!({ "line": place.line, "change": place.change, "text": series.place_text(place) })
    });
    let parts = finding.parts.iter().map(|part| {
        with(
            what(series, part.what),
            json!({
                "metric": part.metric.name(),
                "before": part.before,
                "after": part.after,
                "share": part.share,
            }),
        )
    });
    json!({
        "commit": series.commits[finding.commit],
        "name": trend.commit(series, finding.commit).name,
        "commits_since_measured": series.distances.get(&finding.commit),
        "is_worse": finding.is_worse,
        "stands": finding.stands,
        "decides": finding.deciding.is_some(),
        "proof": finding.proof.name(),
        "changes": changes.collect::<Vec<_>>(),
        "parts": parts.collect::<Vec<_>>(),
        "gate": trend.gate_command(series, finding),
    })
}

fn line(series: &Series, line: &Line) -> Value {
    let change = |c: &Change| {
        json!({
            "commit": series.commits[c.at],
            "before": c.before,
            "after": c.after,
            "shift": c.shift,
            "relative": c.relative,
            "p": c.p,
            "rank_p": c.rank_p,
            "proof": c.proof.name(),
        })
    };
    let seen = line.levels.smallest_seen;
    with(
        what(series, line.what),
        json!({
            "metric": line.metric.name(),
            "values": line.points,
            "changes": line.levels.changes.iter().map(change).collect::<Vec<_>>(),
            "is_known": line.levels.is_known,
            "smallest_seen": seen.map(|(share, _)| share),
            "smallest_seen_commits": seen.map(|(_, commits)| commits),
        }),
    )
}
