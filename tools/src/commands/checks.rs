//! Checks of a machine or an app, and how they came out.

use std::fmt::Write;

use serde::Serialize;

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

/// Checks as lines below a title.
pub(crate) fn section(title: &str, checks: &[Check], style: Style) -> String {
    let mut out = format!("{}\n", style.bold(title));
    for check in checks {
        let mark = match check.status {
            Status::Ok => style.good("ok     "),
            Status::Limited => style.warning("limited"),
            Status::Failed => style.bad("FAILED "),
        };
        let _ = writeln!(out, "  {mark}  {}: {}", check.name, check.found);
        if !check.advice.is_empty() {
            let _ = writeln!(out, "           {}", style.dim(check.advice));
        }
    }
    out
}
