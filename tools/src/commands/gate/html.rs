//! One page for a browser: the verdict, its tables and a differential flame graph. It asks the network for
//! nothing and forbids itself to.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::{Value, json};
use stackbeat_gate::decide::{Row, Verdict};
use stackbeat_gate::rules::Pairing;
use stackbeat_gate::run::{Label, ROOT};
use stackbeat_gate::run_table::{PerRun, RunTable};
use stackbeat_gate::stats::{mean, rank};
use stackbeat_model::metric::{Metric, Unit};

use super::read_run::Sources;
use super::view::{self, Gate, amount, change};
use crate::render::html::{AROUND, FLAME_SCRIPTS, FLAME_STYLE, fill};
use crate::render::markup::escape;
use crate::terminal::clean;

const TEMPLATE: &str = include_str!("page.html");
const SEARCH: &str = include_str!("search.html");
const GRAPH: &str = include_str!("graph.html");
const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");

/// What widths may stand for.
const WEIGHTS: [Metric; 8] = [
    Metric::Wall,
    Metric::Cpu,
    Metric::Lock,
    Metric::Io,
    Metric::Net,
    Metric::Sleep,
    Metric::Allocations,
    Metric::AllocatedBytes,
];
/// Places below this share of every weight are not drawn; their weight stays in their callers.
const DRAWN_SHARE: f64 = 0.001;

/// The page of a gate.
pub(super) fn render(gate: &Gate) -> String {
    let mut body = verdict(gate.outcome.verdict, &gate.headline());
    for (number, (word, finding)) in gate.reported().enumerate() {
        if number > 0 || !word.is_empty() {
            let _ = write!(
                body,
                "<h2>{word}{}</h2>",
                escape(&gate.finding_line(finding))
            );
        }
        body.push_str("<dl>");
        let mut entry = |title: &str, text: &str| {
            let _ = write!(body, "<dt>{title}</dt><dd>{}</dd>", escape(text));
        };
        entry("where", &gate.place(finding));
        if let Some(function) = gate.function(finding) {
            entry("", &function);
        }
        entry("why", finding.explanation.cause.describe());
        for evidence in gate.evidence(finding) {
            entry("", &evidence);
        }
        if let Some(also) = gate.also(finding) {
            entry("also", &also);
        }
        body.push_str("</dl>");
    }
    for line in gate.renamed() {
        let _ = write!(body, "<p>{}</p>", escape(&line));
    }
    for line in gate.budget_lines() {
        let _ = write!(body, "<p class=\"warning\">{}</p>", escape(&line));
    }
    for warning in &gate.warnings() {
        let _ = write!(body, "<p class=\"warning\">{}</p>", escape(warning));
    }
    let metric = |row: &Row| row.metric.title();
    let rows = gate.rows().into_iter();
    let rows = rows.map(|r| line(gate, Of::Run, metric(r).to_string(), r));
    table(&mut body, "Whole run", HEADS, rows);
    let rows = gate.outcome.processes.iter();
    let rows = rows.map(|p| {
        let name = view::process(p);
        line(gate, Of::Named(name.clone()), name, &p.row)
    });
    table(&mut body, "Processes", HEADS, rows);
    let rows = gate.outcome.roles.iter();
    let rows = rows.map(|r| {
        let name = gate.role(r.role);
        let title = format!("{}: {name}", metric(&r.row));
        line(gate, Of::Named(name), title, &r.row)
    });
    table(&mut body, "Threads", HEADS, rows);
    let rows = view::scopes(&gate.outcome).take(ROWS);
    let rows = rows.map(|s| {
        let name = view::scope(s);
        line(gate, Of::Named(name.clone()), name, &s.row)
    });
    table(&mut body, "Scopes", HEADS, rows);
    let rows = gate.outcome.functions.iter().take(ROWS);
    let rows = rows.map(|r| {
        let name = clean(gate.table.names.text(r.function));
        let title = format!("{}: {name}", metric(&r.row));
        line(gate, Of::Function(name.into()), title, &r.row)
    });
    table(&mut body, "Functions themselves", HEADS, rows);
    page(
        "stackbeat gate",
        &body,
        &gate.table,
        &gate.sources,
        gate.pairing,
    )
}

/// A page with a search, `body`, which is markup, and a differential flame graph.
pub(super) fn page(
    title: &str,
    body: &str,
    table: &RunTable,
    sources: &Sources,
    pairing: Pairing,
) -> String {
    // `<` would end the script in which the data stands.
    let data = graph(table, sources, pairing)
        .to_string()
        .replace('<', "\\u003c");
    let scripts = FLAME_SCRIPTS.concat();
    let script = format!(
        "<script>\n(() => {{\n\"use strict\";\nconst DATA = {data};\n{scripts}{SCRIPT}}})();\n</script>"
    );
    let graph = fill(GRAPH, &[("{{around}}", AROUND.to_owned())]);
    document(title, &[SEARCH, body, &graph].concat(), &script)
}

/// A page of markup and scripts.
pub(super) fn document(title: &str, body: &str, scripts: &str) -> String {
    let parts = [
        ("{{title}}", escape(title)),
        ("{{style}}", [STYLE, FLAME_STYLE].concat()),
        ("{{heading}}", escape(title)),
        ("{{body}}", body.to_string()),
        ("{{scripts}}", scripts.to_string()),
    ];
    fill(TEMPLATE, &parts)
}

/// The class that gives a verdict its colour.
pub(super) fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Regression => "worse",
        Verdict::NoRegression => "better",
        Verdict::CannotTell => "unknown",
    }
}

/// The verdict as the head of a page.
pub(super) fn verdict(verdict: Verdict, headline: &str) -> String {
    format!(
        "<p class=\"verdict {}\"><b>{}</b> {}</p>",
        class(verdict),
        view::verdict_text(verdict),
        escape(headline)
    )
}

/// Lines of a table of scopes or functions.
pub(super) const ROWS: usize = 50;
/// Columns behind the first one of a gate's tables.
const HEADS: &[&str] = &["baseline", "candidate", "change", "interval", "p", "answer"];

/// What a line of a table is about, for the page's search.
pub(super) enum Of {
    /// The whole run, whatever is searched.
    Run,
    /// Something with a name.
    Named(String),
    /// A function: its line leads to its callers and callees.
    Function(String),
}

/// A line of a table.
pub(super) struct HtmlRow {
    pub of: Of,
    /// Its colour.
    pub class: String,
    /// The first column and those behind it.
    pub title: String,
    pub cells: Vec<String>,
}

fn line(gate: &Gate, of: Of, title: String, row: &Row) -> HtmlRow {
    let c = &row.comparison;
    let answer = view::answer(row);
    HtmlRow {
        of,
        class: answer.split(' ').next().unwrap_or("").to_owned(),
        title,
        cells: vec![
            amount(row.metric, c.baseline_median),
            view::candidate(row),
            change(c.relative),
            gate.interval(c),
            view::p_of(row),
            answer,
        ],
    }
}

/// A table, unless it has no lines.
pub(super) fn table(
    out: &mut String,
    title: &str,
    heads: &[&str],
    rows: impl Iterator<Item = HtmlRow>,
) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    let _ = write!(
        out,
        "<div class=\"table\"><table class=\"of-{}\"><thead><tr><th>{title}</th>",
        heads.len()
    );
    for head in heads {
        let _ = write!(out, "<th>{head}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        let name = match &row.of {
            Of::Run => String::new(),
            Of::Named(name) => format!(" data-name=\"{}\"", escape(name)),
            Of::Function(name) => format!(" data-name=\"{}\" data-function", escape(name)),
        };
        let _ = write!(
            out,
            "<tr class=\"{}\"{name}><td>{}</td>",
            row.class,
            escape(&row.title)
        );
        for cell in &row.cells {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

/// Chance that an amount of equal programs gets a colour; where no number of runs could show it, the sides
/// have to be apart.
const CHANCE: f64 = 0.01;

/// Whether the runs of both sides differ by more than chance would have it.
fn differs(table: &RunTable, column: &[f64], pairing: Pairing) -> bool {
    let (x, y) = table.split(column);
    let is_paired = pairing.is_paired() && x.len() == y.len();
    let most = rank::smallest_p(x.len(), y.len(), is_paired).max(CHANCE);
    let (higher, lower) = match is_paired {
        true => {
            let differences: Vec<f64> = y.iter().zip(x).map(|(y, x)| y - x).collect();
            let mirrored: Vec<f64> = differences.iter().map(|d| -d).collect();
            (
                rank::signed_rank(&differences),
                rank::signed_rank(&mirrored),
            )
        }
        false => rank::rank_sum_tails(x, y),
    };
    higher.min(lower) <= most
}

/// What a label is, in the words of the page's script.
fn kind(sources: &Sources, label: Label) -> u8 {
    match label {
        Label::Function(name) if sources.is_interpreted(name) => 3,
        Label::Function(name) if sources.is_of_interpreter(name) => 2,
        Label::Function(_) => 1,
        _ => 0,
    }
}

/// The tree with means of both sides by weight, and whether they differ; labels apart, as many places share
/// one.
fn graph(table: &RunTable, sources: &Sources, pairing: Pairing) -> Value {
    let places = table.tree.places();
    let weights: Vec<Metric> = WEIGHTS
        .into_iter()
        .filter(|m| {
            table
                .runs
                .iter()
                .any(|r| r.entries().any(|e| e.metric == *m))
        })
        .collect();
    let columns: Vec<Vec<PerRun>> = weights.iter().map(|m| table.places(*m)).collect();
    // By weight and place: both means.
    let both = |column: &PerRun| {
        let (a, b) = table.split(column);
        [mean(a), mean(b)]
    };
    let means: Vec<Vec<[f64; 2]>> = columns
        .iter()
        .map(|places| places.iter().map(both).collect())
        .collect();
    let is_drawn = |place: usize| {
        means.iter().any(|of_metric| {
            let whole = of_metric[ROOT as usize];
            let least = DRAWN_SHARE * whole[0].max(whole[1]);
            of_metric[place][0].max(of_metric[place][1]) > least
        })
    };
    let mut numbers = vec![0usize; places.len()];
    let mut nodes = Vec::new();
    let mut labels = Vec::new();
    let mut numbers_of_labels = HashMap::new();
    for (at, place) in places.iter().enumerate() {
        if place.label == Label::Small || at != 0 && !is_drawn(at) {
            continue;
        }
        numbers[at] = nodes.len();
        let values = means.iter().zip(&columns).map(|(means, columns)| {
            let [before, after] = means[at].map(f64::round);
            let differs = before != after && differs(table, &columns[at], pairing);
            json!([before, after, u8::from(differs)])
        });
        let values: Vec<Value> = values.collect();
        let label = *numbers_of_labels.entry(place.label).or_insert_with(|| {
            labels.push(json!([
                clean(&table.label(place.label)),
                kind(sources, place.label)
            ]));
            labels.len() - 1
        });
        nodes.push(json!([numbers[place.parent as usize], label, values]));
    }
    let unit = |metric: &Metric| match metric.unit() {
        Unit::Nanoseconds => "ns",
        Unit::Bytes => "bytes",
        Unit::Count => "",
    };
    json!({
        "weights": weights.iter().map(|m| json!([m.title(), unit(m)])).collect::<Vec<_>>(),
        "labels": labels,
        "nodes": nodes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_by_more_than_chance_gets_a_colour() {
        let gate = super::super::tests::gate(1.5);
        let graph = graph(&gate.table, &gate.sources, Pairing::None);
        let nodes = graph["nodes"].as_array().expect("a list");
        let labels = graph["labels"].as_array().expect("a list");
        let of = |name: &str| {
            let label = labels.iter().position(|label| label[0] == name);
            let found = nodes.iter().find(|node| json!(label) == node[1]);
            found.map(|node| (&node[2][0], node[2][0][2] == 1))
        };
        let (price, is_coloured) = of("shop::price").expect("is drawn");
        assert!(is_coloured, "{price}");
        // It varies by a percent, as all others do.
        let (parse, is_coloured) = of("shop::parse_order").expect("is drawn");
        assert!(!is_coloured && parse[0] != parse[1], "{parse}");
    }
}
