//! The verdict for a terminal.

use std::fmt::Write;

use stackbeat_gate::decide::Verdict;

use super::view::{self, Gate, amount, change};
use crate::table::{Column, Table, shorten};
use crate::terminal::{Style, clean};

/// The whole text.
pub(super) fn render(gate: &Gate, width: Option<usize>, style: Style) -> String {
    let mut out = String::new();
    let outcome = &gate.outcome;
    let verdict = view::verdict_text(outcome.verdict);
    let verdict = match outcome.verdict {
        Verdict::Regression => style.bad(verdict),
        Verdict::NoRegression => style.good(verdict),
        Verdict::CannotTell => style.warning(verdict),
    };
    let _ = writeln!(out, "{verdict}: {}", clean(&gate.headline()));
    for (number, (word, finding)) in gate.reported().enumerate() {
        out.push('\n');
        // The headline has the first finding.
        if number > 0 || !word.is_empty() {
            let (word, text) = (style.warning(word), gate.finding_line(finding));
            let _ = writeln!(out, "{word}{}", clean(&text));
        }
        let mut line = |title: &str, text: &str| {
            let text = shorten(
                &clean(text),
                width.map_or(usize::MAX, |w| w.saturating_sub(9).max(40)),
            );
            let _ = writeln!(out, "  {} {text}", style.dim(&format!("{title:<6}")));
        };
        line("where", &gate.place(finding));
        if let Some(function) = gate.function(finding) {
            line("", &function);
        }
        line("why", finding.explanation.cause.describe());
        for evidence in gate.evidence(finding) {
            line("", &evidence);
        }
        if let Some(also) = gate.also(finding) {
            line("also", &also);
        }
    }
    out.push('\n');
    out.push_str(&whole(gate, width, style));
    out.push_str(&processes(gate, width, style));
    out.push_str(&roles(gate, width, style));
    out.push_str(&scopes(gate, width, style));
    out.push_str(&functions(gate, width, style));
    for moved in &outcome.moved {
        let _ = writeln!(
            out,
            "moved, not more: {} of {} in {} (+{}), what is around it {}",
            moved.metric.title(),
            clean(gate.table.names.text(moved.function)),
            gate.role(moved.role),
            amount(moved.metric, moved.shift),
            match moved.is_lighter_around {
                true => "became lighter",
                false => "did not grow with it",
            }
        );
    }
    for line in gate.renamed() {
        let _ = writeln!(out, "{}", clean(&line));
    }
    for line in gate.budget_lines() {
        let _ = writeln!(out, "{}", style.bad(&clean(&line)));
    }
    for warning in gate.warnings() {
        let _ = writeln!(out, "{}: {}", style.warning("warning"), clean(&warning));
    }
    out
}

fn columns(last: &'static str) -> Vec<Column> {
    vec![
        Column::number("BASELINE", 0),
        Column::number("CANDIDATE", 0),
        Column::number("CHANGE", 0),
        Column::text("INTERVAL", 2),
        Column::number("P", 3),
        Column::text("ANSWER", 1),
        Column::text(last, 0),
    ]
}

fn cells(gate: &Gate, row: &stackbeat_gate::decide::Row, name: String) -> Vec<String> {
    let c = &row.comparison;
    vec![
        amount(row.metric, c.baseline_median),
        view::candidate(row),
        change(c.relative),
        gate.interval(c),
        view::p_of(row),
        view::answer(row),
        name,
    ]
}

fn whole(gate: &Gate, width: Option<usize>, style: Style) -> String {
    let mut table = Table::new(columns("WHOLE RUN"));
    for row in gate.rows() {
        table.row(cells(gate, row, row.metric.title().into()));
    }
    table.render(width, style)
}

fn processes(gate: &Gate, width: Option<usize>, style: Style) -> String {
    if gate.outcome.processes.is_empty() {
        return String::new();
    }
    let mut table = Table::new(columns("PROCESSES"));
    for row in &gate.outcome.processes {
        table.row(cells(
            gate,
            &row.row,
            clean(&view::process(row)).into_owned(),
        ));
    }
    format!("\n{}", table.render(width, style))
}

fn roles(gate: &Gate, width: Option<usize>, style: Style) -> String {
    if gate.outcome.roles.is_empty() {
        return String::new();
    }
    let mut table = Table::new(columns("THREADS"));
    for row in &gate.outcome.roles {
        let name = format!("{}: {}", row.row.metric.title(), gate.role(row.role));
        table.row(cells(gate, &row.row, name));
    }
    format!("\n{}", table.render(width, style))
}

fn scopes(gate: &Gate, width: Option<usize>, style: Style) -> String {
    const SHOWN: usize = 10;
    if gate.outcome.scopes.is_empty() {
        return String::new();
    }
    let mut table = Table::new(columns("SCOPES"));
    for scope in view::scopes(&gate.outcome).take(SHOWN) {
        table.row(cells(
            gate,
            &scope.row,
            clean(&view::scope(scope)).into_owned(),
        ));
    }
    format!("\n{}", table.render(width, style))
}

fn functions(gate: &Gate, width: Option<usize>, style: Style) -> String {
    const SHOWN: usize = 10;
    if gate.outcome.functions.is_empty() {
        return String::new();
    }
    let mut table = Table::new(columns("FUNCTIONS THEMSELVES"));
    for row in gate.outcome.functions.iter().take(SHOWN) {
        let name = gate.table.names.text(row.function);
        let name = format!("{}: {name}", row.row.metric.title());
        table.row(cells(gate, &row.row, name));
    }
    format!("\n{}", table.render(width, style))
}
