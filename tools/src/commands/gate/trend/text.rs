//! A trend for a terminal.

use std::fmt::Write;

use stackbeat_gate::trend::Finding;

use super::view::{Series, TOO_FEW, Trend, kind, smallest_seen, sparkline};
use crate::commands::gate::text::{begun_by, headline};
use crate::commands::gate::view::amount;
use crate::render::text::table_layout::{Layout, indented, sentences};
use crate::table::{Column, Table, shorten, text_width};
use crate::terminal::{Style, clean};

/// Widest sparkline.
const SPARKS: usize = 30;
/// Columns of what a line of a finding is about.
const TITLE: usize = 6;
/// On no terminal there are fewer columns for a line's text.
const LEAST: usize = 40;
/// Changes of one commit that are listed.
const SHOWN: usize = 6;

/// The whole text.
pub(super) fn render(trend: &Trend, width: Option<usize>, style: Style) -> String {
    let mut out = String::new();
    let layout = Layout::new(width, style, usize::MAX);
    headline(&mut out, &layout, trend.verdict(), &trend.headline());
    for series in &trend.series {
        out.push('\n');
        let title = format!(
            "{}: {}, {}",
            series.what,
            series.sizes(),
            trend.order_text()
        );
        sentences(&mut out, &layout, &clean(&title), Style::bold);
        sentences(&mut out, &layout, &clean(&series.machine), Style::dim);
        for note in trend.notes(series) {
            let text = format!("note: {note}");
            begun_by(&mut out, &layout, "note", &text, Style::warning);
        }
        for finding in series.outcome.findings.iter().rev() {
            out.push('\n');
            out.push_str(&finding_text(trend, series, finding, width, style));
        }
        out.push('\n');
        out.push_str(&lines(series, width, style));
    }
    out
}

fn finding_text(
    trend: &Trend,
    series: &Series,
    finding: &Finding,
    width: Option<usize>,
    style: Style,
) -> String {
    let mut out = String::new();
    let commit = clean(&trend.commit_text(series, finding.commit)).into_owned();
    let kind_text = kind(finding);
    let kind = match (finding.is_worse, finding.stands) {
        (true, true) if finding.deciding.is_some() => style.bad(kind_text),
        (true, true) => style.warning(kind_text),
        (true, false) => style.dim(kind_text),
        (false, _) => style.good(kind_text),
    };
    let room = |columns: usize| width.map_or(usize::MAX, |width| width.saturating_sub(columns));
    let of_commit = room("  : ".len() + text_width(kind_text)).max(LEAST);
    let commit = shorten(&commit, of_commit);
    let _ = writeln!(out, "  {}: {kind}", style.bold(&commit));
    let layout = Layout::new(Some(room(TITLE + 3).max(LEAST)), style, usize::MAX);
    let mut line = |title: &str, text: &str| {
        let mut lines = String::new();
        indented(&mut lines, &layout, 2, &clean(text), |_, line| {
            line.to_owned()
        });
        for (nth, line) in lines.lines().enumerate() {
            let title = if nth == 0 { title } else { "" };
            let _ = writeln!(out, "  {} {line}", style.dim(&format!("{title:<TITLE$}")));
        }
    };
    for (nth, place) in finding.changes.iter().take(SHOWN).enumerate() {
        line(
            if nth == 0 { "what" } else { "" },
            &series.place_text(place),
        );
    }
    if finding.changes.len() > SHOWN {
        line("", &format!("and {} more", finding.changes.len() - SHOWN));
    }
    for (nth, part) in finding.parts.iter().enumerate() {
        line(if nth == 0 { "where" } else { "" }, &series.part_text(part));
    }
    if let Some(range) = trend.range_text(series, finding) {
        line("range", &range);
    }
    if let Some(command) = trend.gate_command(series, finding) {
        let _ = writeln!(out, "  {} {}", style.dim("why   "), clean(&command));
    }
    out
}

fn lines(series: &Series, width: Option<usize>, style: Style) -> String {
    let mut table = Table::new(vec![
        Column::number("FIRST", 0),
        Column::number("LAST", 0),
        Column::number("CHANGES", 0),
        Column::text("TREND", 2),
        Column::text("WOULD BE SEEN", 1),
        Column::text("WHOLE RUN", 0),
    ]);
    for line in series.whole() {
        let medians = line.medians();
        let at = |value: Option<&f64>| amount(line.metric, value.copied().unwrap_or(0.0));
        table.row(vec![
            at(medians.first()),
            at(medians.last()),
            line.levels.changes.len().to_string(),
            sparkline(&medians, SPARKS),
            smallest_seen(line).unwrap_or_else(|| TOO_FEW.into()),
            line.metric.title().into(),
        ]);
    }
    table.render(width, style)
}
