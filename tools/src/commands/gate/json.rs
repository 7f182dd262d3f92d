//! The verdict as JSON (docs/json.md).

use serde_json::{Value, json};
use stackbeat_gate::compare::Comparison;
use stackbeat_gate::decide::{Confirmation, Finding, Row, Way};
use stackbeat_gate::explain::Part;
use stackbeat_gate::run::{RoleId, Side};
use stackbeat_gate::run_budget::Uncounted;

use super::view::Gate;

/// The whole object.
pub(super) fn render(gate: &Gate) -> Value {
    let outcome = &gate.outcome;
    let name = |id| gate.table.names.text(id);
    json!({
        "schema": "stackbeat.gate.v1",
        "verdict": outcome.verdict.name(),
        "headline": gate.headline(),
        "runs_needed": outcome.runs_needed,
        "obstacle": outcome.obstacle,
        "confirmation": outcome.confirmation.as_ref().map(confirmation),
        "suspicion": outcome.suspicion.as_ref().map(confirmation),
        "confidence": gate.confidence,
        "pairing": gate.pairing.name(),
        "baseline": runs(gate, Side::Baseline),
        "candidate": runs(gate, Side::Candidate),
        "findings": outcome.findings.iter().map(|f| finding(gate, f)).collect::<Vec<_>>(),
        "notices": outcome.notices.iter().map(|f| finding(gate, f)).collect::<Vec<_>>(),
        "whole": outcome.whole.iter().map(row).collect::<Vec<_>>(),
        "processes": outcome.processes.iter().map(|p| {
            with(row(&p.row), &[("process", json!(p.process))])
        }).collect::<Vec<_>>(),
        "roles": outcome.roles.iter().map(|r| {
            with(row(&r.row), &[("role", role(gate, r.role))])
        }).collect::<Vec<_>>(),
        "functions": outcome.functions.iter().map(|r| {
            with(row(&r.row), &[("role", role(gate, r.role)), ("function", json!(name(r.function)))])
        }).collect::<Vec<_>>(),
        "scopes": outcome.scopes.iter().map(|s| {
            let parts = s.system_calls.iter().map(part).collect();
            with(row(&s.row), &[
                ("scope", json!(s.name)),
                ("calls", json!([s.calls.0, s.calls.1])),
                ("system_calls", parts),
            ])
        }).collect::<Vec<_>>(),
        "functions_compared": outcome.family_size,
        "moved": outcome.moved.iter().map(|m| json!({
            "role": role(gate, m.role),
            "function": name(m.function),
            "metric": m.metric.name(),
            "shift": m.shift,
            "is_lighter_around": m.is_lighter_around,
        })).collect::<Vec<_>>(),
        "budgets": outcome.budgets.iter().map(|row| json!({
            "function": row.budget.function,
            "thread": row.budget.thread,
            "scope": row.budget.scope.as_ref().map(|s| &s.name),
            "per": row.budget.scope.as_ref().map(|s| s.per.name()),
            "metric": row.budget.metric.name(),
            "max": row.budget.max,
            "spent": (row.uncounted != Some(Uncounted::Shared)).then_some(row.spent),
            "is_exceeded": row.is_exceeded(),
            "is_uncounted": row.uncounted.is_some(),
        })).collect::<Vec<_>>(),
        "matches": gate.table.matches.iter().map(|m| json!({
            "name": m.name,
            "taken_for": m.taken_for,
            "because": m.form.describe(),
        })).collect::<Vec<_>>(),
        "warnings": gate.warnings(),
    })
}

fn confirmation(c: &Confirmation) -> Value {
    json!({
        "metric": c.metric.name(),
        "runs": c.runs,
        "relative": c.relative,
        "p": c.p,
        "is_confirmed": c.is_confirmed,
    })
}

fn with(mut object: Value, more: &[(&str, Value)]) -> Value {
    for (key, value) in more {
        object[key] = value.clone();
    }
    object
}

fn role(gate: &Gate, id: RoleId) -> Value {
    let role = &gate.table.names.roles()[id.0 as usize];
    json!({ "process": role.process, "thread": role.thread })
}

fn runs(gate: &Gate, side: Side) -> Value {
    let of_side = gate.table.runs.iter().filter(|r| r.side == side);
    let run = |run: &stackbeat_gate::run::Run| {
        let values = run
            .whole
            .present()
            .map(|(m, v)| (m.name().to_string(), json!(v)));
        json!({
            "trace": run.about.label,
            "command": run.about.command,
            "machine": run.about.machine,
            "started_unix_ns": run.about.started_unix_ns,
            "calibration_ns": run.about.calibration_ns,
            "records_lost": run.about.lost,
            "values": values.collect::<serde_json::Map<_, _>>(),
        })
    };
    of_side.map(run).collect()
}

/// Numbers that JSON does not have (infinite) become null.
fn comparison(c: &Comparison) -> Value {
    json!({
        "baseline_median": c.baseline_median,
        "candidate_median": c.candidate_median,
        "shift": c.shift,
        "relative": c.relative,
        "interval": [c.interval.low, c.interval.high],
        "p": c.p,
        "fence": c.noise_band,
        "smallest_seen": c.smallest_seen,
        "answer": c.answer.name(),
        "is_not_higher": c.is_not_higher,
        "runs_needed": c.runs_needed,
    })
}

fn row(row: &Row) -> Value {
    with(
        comparison(&row.comparison),
        &[
            ("metric", json!(row.metric.name())),
            ("adjusted_p", json!(row.adjusted_p)),
        ],
    )
}

fn part(part: &Part) -> Value {
    json!({ "metric": part.metric.name(), "baseline": part.baseline, "candidate": part.candidate })
}

fn finding(gate: &Gate, finding: &Finding) -> Value {
    let e = &finding.explanation;
    let name = |id: Option<_>| id.map(|id| gate.table.names.text(id));
    let source = e.function.and_then(|id| gate.sources.get(&id));
    with(
        row(&finding.row),
        &[
            (
                "found_by",
                json!(match finding.way {
                    Way::Whole => "whole",
                    Way::Function => "function",
                    Way::Role => "role",
                    Way::Suspected => "suspected",
                }),
            ),
            ("headline", json!(gate.finding_line(finding))),
            (
                "also",
                finding.also.iter().map(|m| json!(m.name())).collect(),
            ),
            ("role", e.role.map_or(Value::Null, |r| role(gate, r))),
            ("function", json!(name(e.function))),
            ("file", json!(source.map(|(file, _)| file))),
            ("line", json!(source.map(|(_, line)| line))),
            ("deepest", json!(name(e.deepest))),
            ("path", json!(e.path)),
            ("share", json!(e.share)),
            ("cause", json!(e.cause.name())),
            ("followed", json!(e.metric.name())),
            ("parts", e.parts.iter().map(part).collect()),
            (
                "calls",
                e.calls
                    .iter()
                    .map(|c| {
                        json!({
                            "caller": c.caller, "call": c.call,
                            "baseline": c.baseline, "candidate": c.candidate,
                        })
                    })
                    .collect(),
            ),
            (
                "waited_for",
                e.waited_for
                    .iter()
                    .map(|w| {
                        json!({
                            "how": w.tie.name(),
                            "role": w.party.map(|p| role(gate, p.role)),
                            "function": name(w.party.and_then(|p| p.function)),
                            "baseline_ns": w.baseline, "candidate_ns": w.candidate,
                        })
                    })
                    .collect(),
            ),
        ],
    )
}
