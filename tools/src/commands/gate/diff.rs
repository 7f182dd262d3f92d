//! `stackbeat diff`: two traces, or two sets, side by side for a person. No verdict: `stackbeat gate` has
//! the statistics for that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};
use stackbeat_gate::rules::Pairing;
use stackbeat_gate::run::{Label, NameId, Role, RoleId, Side};
use stackbeat_gate::run_table::{PerRun, RunTable};
use stackbeat_gate::stats::effect::relative;
use stackbeat_gate::stats::mean;
use stackbeat_model::metric::{Metric, Unit};

use super::html::{HtmlRow, Of};
use super::read_run::Sources;
use super::view::{amount, change};
use super::{html, lanes};
use crate::cli::DiffArgs;
use crate::commands::report::{COLUMNS, write_text};
use crate::render::markup::escape;
use crate::render::text::table_layout::{Layout, sentences};
use crate::summary::labels::source_text;
use crate::summary::load;
use crate::table::{Column, Table, shorten_name};
use crate::terminal::{self, Style, clean};

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
    let most = |usual: usize| match args.top {
        Some(0) => usize::MAX,
        Some(lines) => lines,
        None => usual,
    };
    let (table, sources) = super::read(&[(Side::Baseline, a), (Side::Candidate, b)])?;
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
        let body = [
            markup(&table, &sources, most(html::ROWS)),
            lanes::render(&[of(a)?, of(b)?]),
        ];
        let body = body.concat();
        let page = html::page(&title, &body, &table, &sources, Pairing::None);
        write_text(&page, output)?;
        return Ok(0);
    }
    if args.json {
        terminal::print_json(&json(&table, most(usize::MAX)))?;
    } else {
        let shown = Shown {
            top: most(LINES),
            width: terminal::width().unwrap_or(COLUMNS),
            style: Style::stdout(),
        };
        terminal::print(&text(&table, &sources, &shown))?;
    }
    Ok(0)
}

/// Columns of the page's tables: sides are called as in its flame graph.
const HEADS: &[&str] = &["baseline", "candidate", "difference", "change"];
/// Lines per table when nothing says how many.
const LINES: usize = 15;
/// Room for a name in the first sentence.
const NAME: usize = 48;
/// Functions named in it, each with at least this part of the difference.
const NAMED: usize = 3;
const WORTH: f64 = 0.1;
/// Waits whose change is this part of the wall time's have to do with it.
const PART_OF_WALL: f64 = 0.25;
/// A thread that computes this part of its time does something now and then.
const ACTIVE: f64 = 0.02;
/// Those that are looked at. Waits for events and for other threads last as long as the program.
const CAUSES_OF_CHANGES: [Metric; 4] = [Metric::Lock, Metric::Io, Metric::Net, Metric::Sleep];

/// How the tables are shown.
pub(super) struct Shown {
    /// Lines per table.
    pub top: usize,
    pub width: usize,
    pub style: Style,
}

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

    /// Whether the sides differ by what is shown.
    fn has_changed(&self) -> bool {
        // Counts of one run are whole; means of several need not be.
        let least = match self.metric.unit() {
            Unit::Nanoseconds => 1.0,
            _ => 0.5,
        };
        self.size() >= least
    }

    /// Both amounts, and how they differ.
    fn cells(&self) -> [String; 4] {
        [
            amount(self.metric, self.before),
            amount(self.metric, self.after),
            self.difference(),
            change(relative(self.after - self.before, self.before)),
        ]
    }

    /// `+3.10 ms`.
    fn difference(&self) -> String {
        let sign = if self.after >= self.before { "+" } else { "-" };
        match self.has_changed() {
            true => format!("{sign}{}", amount(self.metric, self.size())),
            false => "0".to_owned(),
        }
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

/// Functions by one of these metrics, without their callees, of all threads together.
fn functions(table: &RunTable, metrics: &[Metric]) -> Vec<Line> {
    let mut columns: BTreeMap<(NameId, Metric), Vec<&PerRun>> = BTreeMap::new();
    for (role, function) in table.functions() {
        for metric in metrics {
            if let Some(column) = table.function(role, function, *metric) {
                columns.entry((function, *metric)).or_default().push(column);
            }
        }
    }
    let line = |((function, metric), columns): ((NameId, Metric), Vec<&PerRun>)| {
        let of = table.names.text(function).to_string();
        let name = match metrics.len() {
            1 => of.clone(),
            _ => format!("{}: {of}", metric.title()),
        };
        Line::new(table, of, name, metric, &table.sum(columns.into_iter()))
    };
    columns.into_iter().map(line).collect()
}

const COMPUTES: [Metric; 1] = [Metric::Cpu];
const WAITS: [Metric; 5] = [
    Metric::Lock,
    Metric::Io,
    Metric::Net,
    Metric::Sleep,
    Metric::Wait,
];

/// By function of the program's own: a metric of it and of what libraries did for it, on both sides.
fn own_code(table: &RunTable, sources: &Sources, metric: Metric) -> BTreeMap<NameId, (f64, f64)> {
    let own = |place: u32| {
        let mut functions = table.tree.labels(place).filter_map(|label| match label {
            Label::Function(name) => Some(name),
            _ => None,
        });
        functions.find(|name| !sources.is_library(*name))
    };
    let mut sums: BTreeMap<NameId, (f64, f64)> = BTreeMap::new();
    for (place, column) in (0..).zip(table.own_places(metric)) {
        if let Some(function) = own(place) {
            let (a, b) = table.split(&column);
            let sum = sums.entry(table.same(function)).or_default();
            *sum = (sum.0 + mean(a), sum.1 + mean(b));
        }
    }
    sums
}

/// A metric's change over all runs' threads, ns. Threads that do little but sleep do so for as long as the
/// program runs.
fn change_of(table: &RunTable, metric: Metric) -> f64 {
    let change = |column: &PerRun| {
        let (before, after) = table.split(column);
        mean(after) - mean(before)
    };
    if metric != Metric::Sleep {
        return change(&table.whole(metric));
    }
    let is_active = |role: &RoleId| {
        let sum = |metric| table.role(*role, metric).iter().sum::<f64>();
        sum(Metric::Cpu) >= ACTIVE * sum(Metric::Wall)
    };
    let roles = table.roles().into_iter().filter(is_active);
    roles.map(|role| change(&table.role(role, metric))).sum()
}

/// `, of it +310 ms in renderPage at shop.js:6`, for the functions of the program's own that have a part of a
/// metric's change.
fn by_function(table: &RunTable, sources: &Sources, metric: Metric, changed_ns: f64) -> String {
    let mut functions: Vec<(f64, NameId)> = own_code(table, sources, metric)
        .into_iter()
        .map(|(function, (a, b))| (b - a, function))
        .filter(|(ns, _)| ns * changed_ns > 0.0 && ns.abs() >= WORTH * changed_ns.abs())
        .collect();
    functions.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()).then(a.1.cmp(&b.1)));
    let functions = functions.into_iter().take(NAMED).map(|(ns, function)| {
        let sign = if ns < 0.0 { "-" } else { "+" };
        let name = shorten_name(table.names.text(function), NAME);
        let place = match sources.get(&function) {
            Some((file, line)) => format!(" at {}", source_text(file, *line)),
            None => String::new(),
        };
        format!("{sign}{} in {name}{place}", amount(metric, ns.abs()))
    });
    let functions: Vec<String> = functions.collect();
    match functions.is_empty() {
        true => String::new(),
        false => format!(", of it {}", functions.join(", ")),
    }
}

/// What changed, in a sentence: `wall time +447 ms (+18.2 %), CPU time +385 ms (+15.8 %), of it +310 ms in
/// renderPage at shop.js:6`, and waits that have a part in it: `blocked: lock +2.31 s (+310 %), of it …`.
fn sentence(table: &RunTable, sources: &Sources) -> String {
    let part = |metric: Metric| {
        let line = Line::new(
            table,
            String::new(),
            String::new(),
            metric,
            &table.whole(metric),
        );
        let change = change(relative(line.after - line.before, line.before));
        format!(
            "{} {} ({})",
            metric.title(),
            line.difference(),
            change.trim()
        )
    };
    let wall_ns = change_of(table, Metric::Wall);
    let cpu_ns = change_of(table, Metric::Cpu);
    let mut waits: Vec<(f64, Metric)> = CAUSES_OF_CHANGES
        .map(|metric| (change_of(table, metric), metric))
        .into_iter()
        .filter(|(ns, _)| ns * wall_ns > 0.0 && ns.abs() >= PART_OF_WALL * wall_ns.abs())
        .collect();
    waits.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    waits.truncate(2);
    let mut parts = vec![part(Metric::Wall)];
    // Where waits are what has changed, it is of no interest where the CPU's part is.
    let is_by_cpu = waits.is_empty() || cpu_ns.abs() >= PART_OF_WALL * wall_ns.abs();
    let functions = match is_by_cpu {
        true => by_function(table, sources, Metric::Cpu, cpu_ns),
        false => String::new(),
    };
    parts.push(part(Metric::Cpu) + &functions);
    let of_waits = waits.into_iter();
    parts.extend(
        of_waits.map(|(ns, metric)| part(metric) + &by_function(table, sources, metric, ns)),
    );
    let between = if parts.len() > 2 { "; " } else { ", " };
    let wall = parts.remove(0);
    format!("{wall}, {}", parts.join(between))
}

/// The sentence and the tables.
pub(super) fn text(table: &RunTable, sources: &Sources, shown: &Shown) -> String {
    let Shown { top, width, style } = *shown;
    let width = Some(width);
    let mut out = String::new();
    let layout = Layout::new(width, style, top);
    sentences(
        &mut out,
        &layout,
        &clean(&sentence(table, sources)),
        Style::bold,
    );
    out.push('\n');
    let is_all = top == usize::MAX;
    let (mut changed, same): (Vec<Line>, Vec<Line>) = whole(table)
        .into_iter()
        .partition(|line| is_all || line.has_changed());
    let left_out = changed.len().saturating_sub(top);
    changed.truncate(top);
    if !changed.is_empty() {
        out.push_str(&render("WHOLE RUN", &changed, width, style));
    }
    let others = [(left_out, "with"), (same.len(), "without")].into_iter();
    let others = others.filter(|(count, _)| *count > 0);
    let others = others.map(|(count, has)| format!("{count} {has} a difference"));
    let others: Vec<String> = others.collect();
    if !others.is_empty() {
        let others = others.join(", ");
        out.push_str(&format!("  … and {others} (--top 0 shows all)\n"));
    }
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

/// The same for a browser.
pub(super) fn markup(table: &RunTable, sources: &Sources, top: usize) -> String {
    let sentence = escape(&clean(&sentence(table, sources)));
    let mut out = format!("<p class=\"sentence\">{sentence}</p>");
    let row = |of, line: &Line| HtmlRow {
        of,
        class: String::new(),
        title: clean(&line.name).into(),
        cells: line.cells().into(),
    };
    let mut add = |title, lines: &[Line], of: &dyn Fn(&Line) -> Of| {
        let rows = lines.iter().map(|line| row(of(line), line));
        html::table(&mut out, title, HEADS, rows);
    };
    let name = |line: &Line| clean(&line.of).into();
    let mut changed = whole(table);
    changed.retain(|line| top == usize::MAX || line.has_changed());
    add("Whole run", &changed, &|_| Of::Run);
    add("Threads", &largest(threads(table), top), &|line| {
        Of::Named(name(line))
    });
    for (title, metrics) in [
        ("Functions themselves", &COMPUTES[..]),
        ("Functions that wait", &WAITS),
    ] {
        let lines = largest(functions(table, metrics), top);
        add(title, &lines, &|line| Of::Function(name(line)));
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
        let mut row = line.cells().to_vec();
        row.push(line.name.clone());
        table.row(row);
    }
    table.render(width, style)
}
