//! `stackbeat gate`: compares the traces of two sets of runs and says whether the candidate is slower,
//! where and why. Reads one trace at a time; the statistics are those of `stackbeat-gate` (docs/gate.md).

pub mod ab;
mod ci;
pub mod diff;
mod html;
mod inputs;
mod json;
mod markdown;
mod policy;
pub mod summarize;
mod text;
mod view;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use stackbeat_gate::compare::Rules;
use stackbeat_gate::decide::{Verdict, judge};
use stackbeat_gate::run::Side;
use stackbeat_gate::table::Table;

use crate::cli::{GateArgs, GateFormat};
use crate::{EXIT_NEGATIVE, EXIT_UNKNOWN, terminal};
use summarize::{Reader, Sources};
use view::Gate;

/// Runs the command.
pub fn run(args: &GateArgs) -> Result<u8> {
    let mut rules = Rules {
        paired: args.paired,
        ..Rules::default()
    };
    if let Some(policy) = &args.policy {
        rules = policy::read(policy, rules)?;
    }
    let gate = compare(&args.baseline, &args.candidate, &rules)?;
    output(&gate, args.format, &args.output)?;
    Ok(exit_code(gate.outcome.verdict))
}

/// Reads both sides and judges them.
fn compare(baseline: &[String], candidate: &[String], rules: &Rules) -> Result<Gate> {
    let sides = [
        (Side::Baseline, inputs::traces("--baseline", baseline)?),
        (Side::Candidate, inputs::traces("--candidate", candidate)?),
    ];
    if rules.paired && sides[0].1.len() != sides[1].1.len() {
        bail!(
            "--paired: {} baseline and {} candidate runs make no pairs",
            sides[0].1.len(),
            sides[1].1.len()
        );
    }
    let (table, sources) = read(&sides)?;
    Ok(Gate {
        outcome: judge(&table, rules),
        table,
        sources,
        confidence: rules.confidence,
    })
}

/// Reads traces, one at a time, and aligns what stays of them.
fn read(sides: &[(Side, Vec<PathBuf>)]) -> Result<(Table, Sources)> {
    let mut reader = Reader::default();
    let mut runs = Vec::new();
    for (side, traces) in sides {
        for trace in traces {
            runs.push(reader.read(trace, *side)?);
        }
    }
    Ok((Table::new(runs, reader.names), reader.sources))
}

/// Prints the verdict, and writes it to files in the formats that their names say.
fn output(gate: &Gate, format: GateFormat, files: &[PathBuf]) -> Result<()> {
    for file in files {
        let format = GateFormat::of_file(file)?;
        let context = || format!("{}: cannot be written", file.display());
        fs::write(file, render(gate, format)?).with_context(context)?;
    }
    terminal::print(&render(gate, format)?)
}

fn render(gate: &Gate, format: GateFormat) -> Result<String> {
    Ok(match format {
        GateFormat::Text => text::render(gate, terminal::width(), terminal::Style::stdout()),
        GateFormat::Markdown => markdown::render(gate),
        GateFormat::Json => serde_json::to_string_pretty(&json::render(gate))? + "\n",
        GateFormat::Junit => ci::junit(gate),
        GateFormat::Sarif => serde_json::to_string_pretty(&ci::sarif(gate))? + "\n",
        GateFormat::Github => ci::github(gate),
        GateFormat::Html => html::render(gate),
    })
}

fn exit_code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::NoRegression => 0,
        Verdict::Regression => EXIT_NEGATIVE,
        Verdict::CannotTell => EXIT_UNKNOWN,
    }
}

#[cfg(test)]
mod tests;
