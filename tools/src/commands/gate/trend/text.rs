//! A trend for a terminal.

use std::fmt::Write;

use stackbeat_gate::trend::Finding;

use super::view::{Series, Trend, kind, sparkline, would_see};
use crate::commands::gate::text::{begun_by, headline};
use crate::commands::gate::view::amount;
use crate::render::text::table_layout::{Layout, sentences};
use crate::table::{Column, Table, shorten};
use crate::terminal::{Style, clean};

/// Widest sparkline.
const SPARKS: usize = 30;
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
    let kind = match (finding.is_worse, finding.stands) {
        (true, true) if finding.deciding.is_some() => style.bad(kind(finding)),
        (true, true) => style.warning(kind(finding)),
        (true, false) => style.dim(kind(finding)),
        (false, _) => style.good(kind(finding)),
    };
    let _ = writeln!(out, "  {} {kind}", style.bold(&commit));
    let room = width.map_or(usize::MAX, |w| w.saturating_sub(9).max(40));
    let mut line = |title: &str, text: &str| {
        let text = shorten(&clean(text), room);
        let _ = writeln!(out, "  {} {text}", style.dim(&format!("{title:<6}")));
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
        Column::text("AT THE END", 1),
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
            would_see(line),
            line.metric.title().into(),
        ]);
    }
    table.render(width, style)
}
