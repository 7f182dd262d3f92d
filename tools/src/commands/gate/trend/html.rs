//! A trend as one page: what changed, and a small chart of every metric. Charts are SVG made here; the page
//! has no script.

use std::fmt::Write;
use std::ops::Range;

use stackbeat_gate::trend::levels::Proof;
use stackbeat_gate::trend::{Finding, Line, What};

use super::view::{Series, Trend, kind, would_see};
use crate::commands::gate::html::{document, verdict};
use crate::commands::gate::view::{amount, change};
use crate::render::markup::escape;

/// A chart's size and the room around what is drawn.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 120.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 18.0;

/// The page.
pub(super) fn render(trend: &Trend) -> String {
    let mut body = verdict(trend.verdict(), &trend.headline());
    for series in &trend.series {
        let _ = write!(
            body,
            "<h2>{}</h2><p class=\"dim\">{}, {}<br>{}</p>",
            escape(&series.what),
            series.sizes(),
            escape(&trend.order_text()),
            escape(&series.machine)
        );
        for note in trend.notes(series) {
            let _ = write!(body, "<p class=\"warning\">{}</p>", escape(&note));
        }
        for finding in series.outcome.findings.iter().rev() {
            body.push_str(&one(trend, series, finding));
        }
        let lines = || series.outcome.lines.iter();
        charts(
            &mut body,
            trend,
            series,
            "Whole run",
            lines().filter(|l| l.what == What::Whole),
        );
        let inner = lines().filter(|l| l.what != What::Whole);
        charts(
            &mut body,
            trend,
            series,
            "Threads and functions that changed",
            inner,
        );
    }
    document(&format!("stackbeat trend {}", trend.folder), &body, "")
}

fn one(trend: &Trend, series: &Series, finding: &Finding) -> String {
    let class = match (finding.is_worse, finding.stands) {
        (true, true) if finding.deciding.is_some() => "worse",
        (true, _) => "past",
        (false, _) => "better",
    };
    let kind = kind(finding);
    let mut out = format!(
        "<section class=\"finding {class}\"><h3>{} <span>{kind}</span></h3><dl>",
        escape(&trend.commit_text(series, finding.commit))
    );
    let mut entries = |title: &str, texts: &[String]| {
        if !texts.is_empty() {
            let texts: Vec<String> = texts.iter().map(|t| escape(t)).collect();
            let _ = write!(out, "<dt>{title}</dt><dd>{}</dd>", texts.join("<br>"));
        }
    };
    let what: Vec<String> = finding
        .changes
        .iter()
        .map(|p| series.place_text(p))
        .collect();
    entries("what", &what);
    let parts: Vec<String> = finding.parts.iter().map(|p| series.part_text(p)).collect();
    entries("where", &parts);
    entries("range", trend.range_text(series, finding).as_slice());
    if let Some(command) = trend.gate_command(series, finding) {
        let _ = write!(
            out,
            "<dt>why</dt><dd><code>{}</code></dd>",
            escape(&command)
        );
    }
    out.push_str("</dl></section>");
    out
}

fn charts<'a>(
    out: &mut String,
    trend: &Trend,
    series: &Series,
    title: &str,
    lines: impl Iterator<Item = &'a Line>,
) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    let _ = write!(out, "<h3>{title}</h3><div class=\"charts\">");
    for line in lines {
        let last = line.levels.changes.last();
        let says = match last {
            Some(c) => format!("last change {}", change(c.relative)),
            None => would_see(line),
        };
        let _ = write!(
            out,
            "<figure><figcaption>{} <span>{}</span></figcaption>{}</figure>",
            escape(&series.line_text(line)),
            escape(&says),
            chart(trend, series, line)
        );
    }
    out.push_str("</div>");
}

/// Every run a dot, every level a line, every change a mark.
fn chart(trend: &Trend, series: &Series, line: &Line) -> String {
    let count = line.points.len();
    let values = || line.points.iter().flatten().copied();
    let (low, high) = (
        values().fold(f64::INFINITY, f64::min),
        values().fold(0.0, f64::max),
    );
    // A tenth of the level is the least height, so that noise looks like noise.
    let span = (high - low).max(0.1 * high).max(1.0);
    let middle = f64::midpoint(low, high);
    let (low, high) = ((middle - 0.55 * span).max(0.0), middle + 0.55 * span);
    let x = |at: usize| {
        let room = WIDTH - LEFT - RIGHT;
        LEFT + room * (at as f64 + 0.5) / count as f64
    };
    let y = |value: f64| {
        let room = HEIGHT - TOP - BOTTOM;
        TOP + room * (1.0 - (value - low) / (high - low).max(f64::MIN_POSITIVE))
    };
    let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    for value in [low, high] {
        let at = y(value);
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            amount(line.metric, value)
        );
    }
    for (at, anchor) in [(0, "start"), (count - 1, "end")] {
        let across = if at == 0 { LEFT } else { WIDTH - RIGHT };
        let _ = write!(
            out,
            "<text x=\"{across}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            HEIGHT - 4.0,
            escape(&shortened(&trend.commit(series, at).name))
        );
    }
    for c in &line.levels.changes {
        let class = match (c.proof, c.shift > 0.0) {
            (Proof::Suspected, _) => "maybe",
            (_, true) => "worse",
            (_, false) => "better",
        };
        let across = (x(c.at) + x(c.at - 1)) / 2.0;
        let _ = write!(
            out,
            "<line class=\"change {class}\" x1=\"{across:.1}\" x2=\"{across:.1}\" y1=\"{TOP}\" y2=\"{}\">\
             <title>{}: {}</title></line>",
            HEIGHT - BOTTOM,
            escape(&trend.commit_text(series, c.at)),
            change(c.relative)
        );
    }
    for range in levels(line) {
        let level = y(stackbeat_gate::stats::median(
            &line.points[range.clone()].concat(),
        ));
        let _ = write!(
            out,
            "<line class=\"level\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{level:.1}\" y2=\"{level:.1}\"/>",
            x(range.start) - 3.0,
            x(range.end - 1) + 3.0
        );
    }
    for (at, runs) in line.points.iter().enumerate() {
        for value in runs {
            let _ = write!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\"><title>{}: {}</title></circle>",
                x(at),
                y(*value),
                escape(&trend.commit_text(series, at)),
                amount(line.metric, *value)
            );
        }
    }
    out.push_str("</svg>");
    out
}

/// The commits of each level.
fn levels(line: &Line) -> Vec<Range<usize>> {
    let changes = line.levels.changes.iter().map(|c| c.at);
    let borders: Vec<usize> = [0]
        .into_iter()
        .chain(changes)
        .chain([line.points.len()])
        .collect();
    borders.windows(2).map(|w| w[0]..w[1]).collect()
}

/// Names of folders may be long.
fn shortened(name: &str) -> String {
    crate::table::shorten(name, 16)
}
