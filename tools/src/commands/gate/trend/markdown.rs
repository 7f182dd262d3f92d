//! A trend as a comment or a page of a wiki.

use std::fmt::Write;

use stackbeat_gate::trend::Finding;

use super::view::{Series, Trend, kind, sparkline, would_see};
use crate::commands::gate::markdown::{LONGEST, cut, escape, sign};
use crate::commands::gate::view::{amount, verdict_text};

/// The whole text.
pub(super) fn render(trend: &Trend) -> String {
    let verdict = trend.verdict();
    let mut out = format!(
        "### {} stackbeat trend: {}\n\n{}\n\n",
        sign(verdict),
        verdict_text(verdict),
        escape(&trend.headline())
    );
    for series in &trend.series {
        let _ = writeln!(
            out,
            "#### {}\n\n{}, {}; {}\n",
            escape(&series.what),
            series.sizes(),
            escape(&trend.order_text()),
            escape(&series.machine)
        );
        for note in trend.notes(series) {
            let _ = writeln!(out, "- ⚠️ {}", escape(&note));
        }
        for finding in series.outcome.findings.iter().rev() {
            one(&mut out, trend, series, finding);
        }
        lines(&mut out, series);
    }
    cut(out, LONGEST)
}

fn one(out: &mut String, trend: &Trend, series: &Series, finding: &Finding) {
    let sign = match (finding.is_worse, finding.stands) {
        (true, true) if finding.deciding.is_some() => "🔺 ",
        (true, _) => "",
        (false, _) => "🔽 ",
    };
    let kind = format!("{sign}{}", kind(finding));
    let commit = escape(&trend.commit_text(series, finding.commit));
    let _ = writeln!(out, "**{commit}** {kind}\n");
    for place in &finding.changes {
        let _ = writeln!(out, "- {}", escape(&series.place_text(place)));
    }
    for part in &finding.parts {
        let _ = writeln!(out, "- where: {}", escape(&series.part_text(part)));
    }
    if let Some(range) = trend.range_text(series, finding) {
        let _ = writeln!(out, "- {}", escape(&range));
    }
    if let Some(command) = trend.gate_command(series, finding) {
        let _ = writeln!(out, "- why: `{}`", command.replace('`', "'"));
    }
    out.push('\n');
}

fn lines(out: &mut String, series: &Series) {
    out.push_str("<details><summary>The whole run</summary>\n\n");
    out.push_str("| | first | last | changes | trend | at the end |\n");
    out.push_str("|---|--:|--:|--:|---|---|\n");
    for line in series.whole() {
        let medians = line.medians();
        let at = |value: Option<&f64>| amount(line.metric, value.copied().unwrap_or(0.0));
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            escape(line.metric.title()),
            at(medians.first()),
            at(medians.last()),
            line.levels.changes.len(),
            sparkline(&medians, 30),
            would_see(line)
        );
    }
    out.push_str("\n</details>\n\n");
}
