//! `stackbeat diff`: two traces, or two sets, side by side for a person. No verdict: `stackbeat gate` has
//! the statistics for that.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};
use stackbeat_gate::rules::Pairing;
use stackbeat_gate::run::{Role, Side};
use stackbeat_gate::run_table::RunTable;
use stackbeat_gate::stats::effect::relative;
use stackbeat_gate::stats::mean;
use stackbeat_model::metric::{Metric, Unit};

use super::view::{amount, change};
use super::{html, lanes};
use crate::cli::DiffArgs;
use crate::commands::report::write_text;
use crate::summary::load;
use crate::table::{Column, Table};
use crate::terminal::{self, Style};

/// Runs the command.
pub(crate) fn run(args: &DiffArgs) -> Result<u8> {
    let sides =
        |side: &str, input: &String| super::inputs::traces(side, std::slice::from_ref(input));
    let (a, b) = (sides("A", &args.a)?, sides("B", &args.b)?);
    for warning in a.warnings().chain(b.warnings()) {
        crate::terminal::warn(&warning);
    }
    let (a, b) = (a.traces, b.traces);
    let shown = [a[0].clone(), b[0].clone()];
    if let Some(output) = args
        .html
        .as_deref()
        .filter(|output| *output != Path::new("-"))
    {
        terminal::refuse_to_replace(output, args.force)?;
    }
    let (table, _) = super::read(&[(Side::Baseline, a), (Side::Candidate, b)])?;
    for run in &table.runs {
        for damage in &run.about.damage {
            crate::terminal::warn(&format!("{}: {damage}", run.about.label));
        }
    }
    if let Some(output) = &args.html {
        let title = format!("{} → {}", args.a, args.b);
        let [a, b] = shown;
        let of = |path: PathBuf| -> Result<_> {
            let report = load::load(&path, lanes::BAR_BUDGET)?;
            Ok((path.display().to_string(), report))
        };
        let page = html::page(
            &title,
            &lanes::render(&[of(a)?, of(b)?]),
            &table,
            Pairing::None,
        );
        write_text(&page, output)?;
        return Ok(0);
    }
    let most = |usual: usize| match args.top {
        Some(0) => usize::MAX,
        Some(lines) => lines,
        None => usual,
    };
    if args.json {
        terminal::print_json(&json(&table, most(usize::MAX)))?;
    } else {
        terminal::print(&text(
            &table,
            most(LINES),
            terminal::width(),
            Style::stdout(),
        ))?;
    }
    Ok(0)
}

/// Lines per table when nothing says how many.
const LINES: usize = 15;

/// A line: what, and the means of both sides.
struct Line {
    /// The thread's role or the function, and nothing for the whole run.
    of: String,
    /// What people read.
    name: String,
    metric: Metric,
    before: f64,
    after: f64,
}

impl Line {
    fn new(table: &RunTable, of: String, name: String, metric: Metric, column: &[f64]) -> Line {
        let (a, b) = table.split(column);
        Line {
            of,
            name,
            metric,
            before: mean(a),
            after: mean(b),
        }
    }

    fn size(&self) -> f64 {
        (self.after - self.before).abs()
    }
}

/// The costs of the whole run that there were.
fn whole(table: &RunTable) -> Vec<Line> {
    let all = Metric::ALL.into_iter().map(|metric| {
        let column = table.whole(metric);
        Line::new(table, String::new(), metric.title().into(), metric, &column)
    });
    all.filter(|l| l.before != 0.0 || l.after != 0.0).collect()
}

/// `main thread of shop`, `main thread of shop-old → shop-new` where the program's file has another name on
/// each side, `main thread of child sh` of the processes that it started.
fn role_text(table: &RunTable, role: &Role) -> String {
    let programs = |side: Side| {
        let runs = table.runs.iter().filter(move |run| run.side == side);
        runs.flat_map(|run| &run.about.programs)
    };
    let is_of = |side, program: &str| programs(side).any(|name| name == program);
    let mut of_candidate = programs(Side::Candidate);
    let renamed = of_candidate.find(|name| !is_of(Side::Baseline, name));
    let is_of_baseline = is_of(Side::Baseline, &role.process);
    let mut role = role.clone();
    if let Some(other) = renamed
        && is_of_baseline
        && !is_of(Side::Candidate, &role.process)
    {
        role.process = format!("{} → {other}", role.process);
    } else if role.thread == "main" && !role.is_root {
        role.process.insert_str(0, "child ");
    }
    role.describe()
}

fn threads(table: &RunTable) -> Vec<Line> {
    let mut threads = Vec::new();
    for role in table.roles() {
        for metric in [Metric::Wall, Metric::Cpu] {
            let known = &table.names.roles()[role.0 as usize];
            let of = known.describe();
            let name = format!("{}: {}", metric.title(), role_text(table, known));
            threads.push(Line::new(
                table,
                of,
                name,
                metric,
                &table.role(role, metric),
            ));
        }
    }
    threads
}

/// Functions by one of these metrics, without their callees.
fn functions(table: &RunTable, metrics: &[Metric]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (role, function) in table.functions() {
        for metric in metrics {
            if let Some(column) = table.function(role, function, *metric) {
                let of = table.names.text(function).to_string();
                let name = match metrics.len() {
                    1 => of.clone(),
                    _ => format!("{}: {of}", metric.title()),
                };
                lines.push(Line::new(table, of, name, *metric, column));
            }
        }
    }
    lines
}

const COMPUTES: [Metric; 1] = [Metric::Cpu];
const WAITS: [Metric; 5] = [
    Metric::Lock,
    Metric::Io,
    Metric::Net,
    Metric::Sleep,
    Metric::Wait,
];

/// The tables.
pub(super) fn text(table: &RunTable, top: usize, width: Option<usize>, style: Style) -> String {
    let mut out = render("WHOLE RUN", &whole(table), width, style);
    out.push('\n');
    out.push_str(&render(
        "THREADS",
        &largest(threads(table), top),
        width,
        style,
    ));
    for (title, metrics) in [
        ("FUNCTIONS THEMSELVES", &COMPUTES[..]),
        ("FUNCTIONS THAT WAIT", &WAITS),
    ] {
        let lines = functions(table, metrics);
        if !lines.is_empty() {
            out.push('\n');
            out.push_str(&render(title, &largest(lines, top), width, style));
        }
    }
    out
}

/// The same for scripts (docs/json.md).
fn json(table: &RunTable, top: usize) -> Value {
    let amounts = |line: Line| {
        json!({
            "of": line.of,
            "metric": line.metric.name(),
            "a": line.before,
            "b": line.after,
            "relative": relative(line.after - line.before, line.before),
        })
    };
    let list = |lines: Vec<Line>| lines.into_iter().map(amounts).collect::<Vec<_>>();
    let runs = |side: Side| {
        let of_side = table.runs.iter().filter(|run| run.side == side);
        of_side
            .map(|run| run.about.label.clone())
            .collect::<Vec<_>>()
    };
    json!({
        "schema": "stackbeat.diff.v1",
        "a": runs(Side::Baseline),
        "b": runs(Side::Candidate),
        "whole": list(whole(table)),
        "threads": list(largest(threads(table), top)),
        "functions": list(largest(functions(table, &COMPUTES), top)),
        "waits": list(largest(functions(table, &WAITS), top)),
    })
}

/// Those that changed most.
fn largest(mut lines: Vec<Line>, top: usize) -> Vec<Line> {
    lines.sort_by(|a, b| {
        b.size()
            .total_cmp(&a.size())
            .then_with(|| a.name.cmp(&b.name))
    });
    lines.truncate(top);
    lines
}

fn render(title: &'static str, lines: &[Line], width: Option<usize>, style: Style) -> String {
    let mut table = Table::new(vec![
        Column::number("A", 0),
        Column::number("B", 0),
        Column::number("DIFFERENCE", 0),
        Column::number("CHANGE", 1),
        Column::text(title, 0),
    ]);
    for line in lines {
        let sign = if line.after >= line.before { "+" } else { "-" };
        // Counts of one run are whole; means of several need not be.
        let least = if line.metric.unit() == Unit::Nanoseconds {
            1.0
        } else {
            0.5
        };
        let difference = match line.size() < least {
            true => "0".to_string(),
            false => format!("{sign}{}", amount(line.metric, line.size())),
        };
        table.row(vec![
            amount(line.metric, line.before),
            amount(line.metric, line.after),
            difference,
            change(relative(line.after - line.before, line.before)),
            line.name.clone(),
        ]);
    }
    table.render(width, style)
}
