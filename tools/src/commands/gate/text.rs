//! The verdict for a terminal.

use std::fmt::Write;

use stackbeat_gate::decide::Verdict;

use super::view::{self, Gate, amount, change};
use crate::render::text::table_layout::{Layout, sentences};
use crate::table::{Column, Table, shorten};
use crate::terminal::{Style, clean};

/// The whole text.
pub(super) fn render(gate: &Gate, width: Option<usize>, style: Style) -> String {
    let mut out = String::new();
    let outcome = &gate.outcome;
    let layout = Layout::new(width, style, usize::MAX);
    headline(&mut out, &layout, outcome.verdict, &gate.headline());
    for (number, (word, finding)) in gate.reported().enumerate() {
        out.push('\n');
        // The headline has the first finding.
        if number > 0 || !word.is_empty() {
            let text = format!("{word}{}", gate.finding_line(finding));
            begun_by(&mut out, &layout, word, &text, Style::warning);
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
        let text = format!(
            "moved, not more: {} of {} in {} (+{}), what is around it {}",
            moved.metric.title(),
            gate.table.names.text(moved.function),
            gate.role(moved.role),
            amount(moved.metric, moved.shift),
            match moved.is_lighter_around {
                true => "became lighter",
                false => "did not grow with it",
            }
        );
        sentences(&mut out, &layout, &clean(&text), |_, line| line.to_owned());
    }
    for line in gate.renamed() {
        sentences(&mut out, &layout, &clean(&line), |_, line| line.to_owned());
    }
    for line in gate.budget_lines() {
        sentences(&mut out, &layout, &clean(&line), Style::bad);
    }
    for warning in gate.warnings() {
        let text = format!("warning: {warning}");
        begun_by(&mut out, &layout, "warning", &text, Style::warning);
    }
    out
}

/// The verdict, and what it is about.
pub(super) fn headline(out: &mut String, layout: &Layout, verdict: Verdict, text: &str) {
    let word = view::verdict_text(verdict);
    let style = match verdict {
        Verdict::Regression => Style::bad,
        Verdict::NoRegression => Style::good,
        Verdict::CannotTell => Style::warning,
    };
    begun_by(out, layout, word, &format!("{word}: {text}"), style);
}

/// Sentences that begin with a word that has a style.
pub(super) fn begun_by(
    out: &mut String,
    layout: &Layout,
    word: &str,
    text: &str,
    style: impl Fn(Style, &str) -> String,
) {
    sentences(out, layout, &clean(text), |s, line| {
        match line.strip_prefix(word) {
            Some(rest) => style(s, word) + rest,
            None => line.to_owned(),
        }
    });
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
