//! The verdict as a comment on a pull request: what matters first, tables folded.

use std::fmt::Write;

use stackbeat_gate::decide::{Row, Verdict};

use super::view::{self, Gate, amount, change};
use crate::terminal;

/// GitHub refuses comments above 65,536 characters, GitLab above a million.
pub(super) const LONGEST: usize = 60_000;

/// The whole comment.
pub(super) fn render(gate: &Gate) -> String {
    let mut out = String::new();
    let outcome = &gate.outcome;
    let sign = sign(outcome.verdict);
    let verdict = view::verdict_text(outcome.verdict);
    let _ = writeln!(out, "### {sign} stackbeat: {verdict}\n");
    let _ = writeln!(out, "{}\n", escape(&gate.headline()));
    for (number, (word, finding)) in gate.reported().enumerate() {
        if number > 0 || !word.is_empty() {
            let _ = writeln!(out, "**{word}{}**\n", escape(&gate.finding_line(finding)));
        }
        let _ = writeln!(out, "- **where:** {}", escape(&gate.place(finding)));
        if let Some(function) = gate.function(finding) {
            let _ = writeln!(out, "- **function:** {}", escape(&function));
        }
        let mut why = finding.explanation.cause.describe().to_string();
        for evidence in gate.evidence(finding) {
            let _ = write!(why, "; {evidence}");
        }
        let _ = writeln!(out, "- **why:** {}", escape(&why));
        if let Some(also) = gate.also(finding) {
            let _ = writeln!(out, "- **also:** {}", escape(&also));
        }
        out.push('\n');
    }
    let rows: Vec<(String, &Row)> = gate
        .rows()
        .into_iter()
        .map(|row| (row.metric.title().to_string(), row))
        .collect();
    table(&mut out, gate, "The whole run", &rows);
    let processes = outcome.processes.iter();
    let rows: Vec<(String, &Row)> = processes.map(|p| (view::process(p), &p.row)).collect();
    table(&mut out, gate, "Processes", &rows);
    let rows: Vec<(String, &Row)> = outcome
        .roles
        .iter()
        .map(|r| {
            (
                format!("{}: {}", gate.role(r.role), r.row.metric.title()),
                &r.row,
            )
        })
        .collect();
    table(&mut out, gate, "Threads", &rows);
    let scopes = view::scopes(outcome).take(20);
    let rows: Vec<(String, &Row)> = scopes.map(|s| (view::scope(s), &s.row)).collect();
    table(&mut out, gate, "Scopes", &rows);
    let rows: Vec<(String, &Row)> = outcome
        .functions
        .iter()
        .take(20)
        .map(|r| {
            let name = gate.table.names.text(r.function);
            (format!("{name}: {}", r.row.metric.title()), &r.row)
        })
        .collect();
    table(&mut out, gate, "Functions themselves", &rows);
    for moved in &outcome.moved {
        let _ = writeln!(
            out,
            "- moved, not more: {} of {} (+{})",
            moved.metric.title(),
            escape(gate.table.names.text(moved.function)),
            amount(moved.metric, moved.shift)
        );
    }
    for line in gate.renamed() {
        let _ = writeln!(out, "- {}", escape(&line));
    }
    for line in gate.budget_lines() {
        let _ = writeln!(out, "- {}", escape(&line));
    }
    for warning in gate.warnings() {
        let _ = writeln!(out, "- ⚠️ {}", escape(&warning));
    }
    cut(out, LONGEST)
}

/// The verdict at a glance.
pub(super) fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Regression => "❌",
        Verdict::NoRegression => "✅",
        Verdict::CannotTell => "❔",
    }
}

/// At most so many bytes of a text.
pub(super) fn cut(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        let mut at = longest;
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        text.truncate(at);
        text.push_str("\n\n…\n");
    }
    text
}

fn table(out: &mut String, gate: &Gate, title: &str, rows: &[(String, &Row)]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "<details><summary>{title}</summary>\n");
    out.push_str("| | baseline | candidate | change | interval | p | answer |\n");
    out.push_str("|---|--:|--:|--:|---|--:|---|\n");
    for (name, row) in rows {
        let c = &row.comparison;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            escape(name),
            amount(row.metric, c.baseline_median),
            view::candidate(row),
            change(c.relative),
            gate.interval(c),
            escape(&view::p_of(row)),
            view::answer(row)
        );
    }
    out.push_str("\n</details>\n\n");
}

/// Names come from recorded programs: nothing in them may be markup.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '~' | '@' | '!' => {
                out.push('\\');
                out.push(c);
            }
            c if terminal::steers(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_markup() {
        assert_eq!(escape("a<b>|`x`\n@me"), "a&lt;b&gt;\\|\\`x\\` \\@me");
        assert_eq!(escape("a\u{1b}[2J\u{9b}\u{202e}b"), "a \\[2J  b");
    }
}
