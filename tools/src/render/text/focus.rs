//! Callers and callees of a function as two trees.

use std::fmt::Write;

use anyhow::Result;
use stackbeat_model::ThreadIndex;

use crate::render::text::table_layout::{Layout, sentences};
use crate::render::text::tables;
use crate::summary::call_tree::ROOT;
use crate::summary::focus::{Calls, focus};
use crate::summary::labels::{function_text, label_text};
use crate::summary::load::Report;
use crate::summary::metadata::Metadata;
use crate::table::{line_with_name, shorten, shorten_name, text_width};
use crate::terminal::clean;
use crate::units::{bytes, duration, percent, share};

/// The text for `--function NAME`.
pub(crate) fn report(
    report: &Report,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    name: &str,
    layout: &Layout,
) -> Result<String> {
    let Report {
        metadata, profile, ..
    } = report;
    let focus = focus(metadata, profile, wanted, name)?;
    let mut out = tables::heading(metadata, profile, layout);
    let _ = writeln!(out);
    for function in focus.functions.iter().take(5) {
        let f = &metadata.functions[function.0 as usize];
        let line = match (f.file.as_str(), f.line) {
            ("", _) => String::new(),
            (file, 0) => format!("  {file}"),
            (file, line) => format!("  {file}:{line}"),
        };
        let text = clean(&function_text(metadata, function.0)).into_owned();
        let line = clean(&line);
        let room = layout.width.unwrap_or(usize::MAX);
        let text = shorten_name(&text, room);
        // A place that has no room beside the name stands below it.
        let (between, left) = match text_width(&text) + text_width(&line) > room {
            true => ("\n", room),
            false => ("", room - text_width(&text)),
        };
        let _ = writeln!(
            out,
            "{}{between}{}",
            layout.style.bold(&text),
            layout.style.dim(&shorten(&line, left))
        );
    }
    if focus.functions.len() > 5 {
        let _ = writeln!(out, "… and {} more functions", focus.functions.len() - 5);
    }
    let total = focus.callees.whole();
    let text = format!(
        "  itself, without what serves it, {}; total {} ({} of all threads' time), CPU {}, blocked {}, allocated {}",
        duration(focus.own.computing_ns()),
        duration(total.wall_ns),
        share(total.wall_ns, focus.whole_ns),
        duration(total.metrics.cpu_ns),
        duration(total.blocked_ns),
        bytes(total.metrics.allocated_bytes)
    );
    sentences(&mut out, layout, &text, |_, line| line.to_owned());
    for (title, calls) in [("Called by", &focus.callers), ("Calls", &focus.callees)] {
        let _ = writeln!(out, "\n{}", layout.style.bold(title));
        let mut lines = Vec::new();
        draw(metadata, calls, ROOT, "", &mut lines);
        let all = lines.len();
        for (before, name) in lines.into_iter().take(layout.top.saturating_mul(2)) {
            let room = layout.width.unwrap_or(usize::MAX);
            let line = line_with_name(&before, &name, room);
            let _ = writeln!(out, "{line}");
        }
        if all > layout.top.saturating_mul(2) {
            let _ = writeln!(out, "  … (--top 0 shows all)");
        }
    }
    out.push_str(&tables::drops(metadata, layout));
    Ok(out)
}

/// Each line: what stands before the name, and the name.
fn draw(
    metadata: &Metadata,
    calls: &Calls,
    place: u32,
    indent: &str,
    lines: &mut Vec<(String, String)>,
) {
    let children = calls.heaviest(place);
    let last = children.len().saturating_sub(1);
    for (i, (at, label, spent)) in children.iter().enumerate() {
        let (bend, below) = match (indent.is_empty() && children.len() == 1, i == last) {
            (true, _) => ("", " "),
            (_, true) => ("└ ", "  "),
            (_, false) => ("├ ", "│ "),
        };
        let before = format!(
            "  {:>9}  {:>7}  {indent}{bend}",
            duration(spent.wall_ns),
            percent(spent.wall_ns, calls.whole().wall_ns)
        );
        let name = clean(&label_text(metadata, *label)).into_owned();
        lines.push((before, name));
        draw(metadata, calls, *at, &format!("{indent}{below}"), lines);
    }
}
