//! Checks of a machine or an app, and how they came out.

use std::fmt::Write;

use serde::Serialize;

use crate::render::text::table_layout::{Layout, indented, sentences};
use crate::terminal::Style;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Ok,
    /// Works, but slower or with less in the trace.
    Limited,
    /// Recording does not work, or its results would be wrong.
    Failed,
}

/// One thing that was checked.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(super) name: &'static str,
    pub(super) status: Status,
    pub(super) found: String,
    /// What to do about it; empty when nothing is wrong.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) advice: &'static str,
}

impl Check {
    pub(crate) fn new(
        name: &'static str,
        status: Status,
        found: impl Into<String>,
        advice: &'static str,
    ) -> Check {
        Check {
            name,
            status,
            found: found.into(),
            advice: match status {
                Status::Ok => "",
                _ => advice,
            },
        }
    }

    /// How it came out.
    pub(crate) fn status(&self) -> Status {
        self.status
    }
}

/// Columns before what was found.
const MARK: usize = 11;

/// Checks as lines below a title. What they found goes on below where it is long.
pub(crate) fn section(title: &str, checks: &[Check], width: Option<usize>, style: Style) -> String {
    let mut out = String::new();
    let layout = |width| Layout::new(width, style, usize::MAX);
    sentences(&mut out, &layout(width), title, Style::bold);
    let layout = layout(width.map(|columns| columns.saturating_sub(MARK)));
    for check in checks {
        let mark = match check.status {
            Status::Ok => style.good("ok     "),
            Status::Limited => style.warning("limited"),
            Status::Failed => style.bad("FAILED "),
        };
        let mut text = String::new();
        let found = format!("{}: {}", check.name, check.found);
        indented(&mut text, &layout, 0, &found, |_, line| line.to_owned());
        if !check.advice.is_empty() {
            indented(&mut text, &layout, 0, check.advice, Style::dim);
        }
        for (i, line) in text.lines().enumerate() {
            match i {
                0 => _ = writeln!(out, "  {mark}  {line}"),
                _ => _ = writeln!(out, "{:MARK$}{line}", ""),
            }
        }
    }
    out
}
