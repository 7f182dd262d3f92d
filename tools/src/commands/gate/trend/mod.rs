//! `stackbeat trend`: reads the traces of a series of commits and names those that changed something. One
//! series for each machine and program; the statistics are those of `stackbeat-gate` (docs/trend.md).

mod ci;
mod commits;
mod git;
mod html;
mod json;
mod markdown;
mod series;
#[cfg(test)]
mod tests;
mod text;
mod view;

use anyhow::Result;
use stackbeat_gate::rules::Rules;

use super::{check_files, exit_code, policy, write};
use crate::cli::{GateFormat, TrendArgs};
use crate::terminal;
use view::Trend;

/// Runs the command.
pub(crate) fn run(args: &TrendArgs) -> Result<u8> {
    let defaults = Rules {
        fail_on_counts: args.fail_on_counts,
        ..Rules::default()
    };
    let rules = policy::read(args.policy.as_deref(), defaults)?;
    check_files(&args.writing.output)?;
    let trend = series::read(args, &rules)?;
    write(args.writing.format, &args.writing.output, &|format| {
        render(&trend, format)
    })?;
    Ok(exit_code(trend.verdict()))
}

fn render(trend: &Trend, format: GateFormat) -> Result<String> {
    Ok(match format {
        GateFormat::Text => text::render(trend, terminal::width(), terminal::Style::stdout()),
        GateFormat::Markdown => markdown::render(trend),
        GateFormat::Json => terminal::json(&json::render(trend))?,
        GateFormat::Junit => super::ci::junit(&ci::report(trend)),
        GateFormat::Sarif => terminal::json(&super::ci::sarif(&ci::report(trend)))?,
        GateFormat::Github => super::ci::github(&ci::report(trend)),
        GateFormat::Html => html::render(trend),
    })
}
