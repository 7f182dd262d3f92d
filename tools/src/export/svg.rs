//! A flame graph as one SVG file with its own script: hover, click to zoom, search, back. No file,
//! font or script from elsewhere. The root is on top: real stacks are deeper than a window is high.
//!
//! It shares no script with the pages' flame graph (`tools/src/render/html/flame.js`): that one draws on a
//! canvas in an HTML document and lays out the tree again for each zoom. An SVG has neither, and must be a
//! whole picture where scripts do not run. So the boxes are laid out here, and the script only scales them.

use std::collections::HashMap;
use std::io::{self, Write};
use std::rc::Rc;

use anyhow::Result;
use stackbeat_model::Trace;
use stackbeat_model::call_tree::{CallTree, Leaf, ROOT};
use stackbeat_model::metric::{Metric, Unit};
use stackbeat_symbolize::short_names::fit;

use super::drops;
use super::export_names::{self, Names};
use super::folded::path_of;
use super::profile::Profile;
use super::{Exported, Options, Selection, Weight};
use crate::render::html::NAMES_SCRIPT;
use crate::render::markup;
use crate::terminal::clean;
use crate::units;

/// Geometry, in SVG units.
const WIDTH: f64 = 1200.0;
const PAD: f64 = 10.0;
const ROW: f64 = 17.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 10.0;
/// Frames narrower than this are left out; their weight stays in their parents.
const NARROWEST: f64 = 0.1;

const SCRIPT: &str = include_str!("svg.js");

pub(super) fn write(
    trace: &Trace,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Exported> {
    let profile = Profile::collect(trace, selection)?;
    let graph = Graph::new(trace, &profile, options.weight);
    let mut boxes = graph.boxes();
    let scale = (WIDTH - 2.0 * PAD) / graph.total().max(1) as f64;
    boxes.retain(|placed| placed.total as f64 * scale >= NARROWEST);
    let depth = boxes.iter().map(|placed| placed.depth).max().unwrap_or(0) + 1;
    let height = TOP + depth as f64 * ROW + BOTTOM;
    document(trace, options, graph.total(), &boxes, height, out)?;
    Ok(profile.exported)
}

/// What colors a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    #[default]
    Frame,
    Thread,
    Blocking,
    Gap,
}

/// Names, each once, at their numbers.
struct Numbered {
    names: Vec<Rc<str>>,
    numbers: HashMap<Rc<str>, u32>,
}

impl Numbered {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        let name: Rc<str> = name.into();
        self.names.push(name.clone());
        let number = self.names.len() as u32 - 1;
        self.numbers.insert(name, number);
        number
    }
}

/// Stacks merged from the root: process, thread, frames, leaf.
struct Graph {
    names: Vec<Rc<str>>,
    /// By number of the name and kind.
    tree: CallTree<(u32, Kind)>,
    /// By place, callees included.
    totals: Vec<u64>,
}

impl Graph {
    fn new(trace: &Trace, profile: &Profile, weight: Weight) -> Graph {
        let names = Names::new();
        let mut numbered = Numbered {
            names: Vec::new(),
            numbers: HashMap::new(),
        };
        // The root has the first.
        numbered.number("all");
        let mut tree = CallTree::default();
        let mut totals = vec![0];
        let mut frames = Vec::new();
        let mut path: Vec<(u32, Kind)> = Vec::new();
        for entry in &profile.entries {
            let amount = entry.spent.get(weight.metric());
            if amount == 0 {
                continue;
            }
            path.clear();
            let process = trace.thread(entry.thread).process;
            let process = export_names::process_label(trace, process);
            path.push((numbered.number(&process), Kind::Thread));
            let thread = export_names::thread_label(trace, entry.thread);
            path.push((numbered.number(&thread), Kind::Thread));
            path_of(trace, &names, entry, &mut frames, |name| {
                path.push((numbered.number(name), Kind::Frame));
            });
            if let Some((_, kind)) = path.last_mut() {
                *kind = match entry.leaf {
                    Leaf::Code | Leaf::NoStack => Kind::Frame,
                    Leaf::Blocking(_) => Kind::Blocking,
                    Leaf::Gap => Kind::Gap,
                };
            }
            let below = |parent, label: &(u32, Kind)| tree.child(parent, *label);
            let place = path.iter().fold(ROOT, below);
            totals.resize(tree.places().len(), 0);
            totals[place as usize] += amount;
        }
        tree.include_callees(&mut totals, |sum, more| *sum += more);
        Graph {
            names: numbered.names,
            tree,
            totals,
        }
    }

    fn total(&self) -> u64 {
        self.totals[ROOT as usize]
    }

    /// One for each place, callers before callees, callees in order of their names.
    fn boxes(&self) -> Vec<Placed<'_>> {
        let places = self.tree.places();
        let mut callees = self.tree.callees();
        for list in &mut callees {
            list.sort_by_key(|place| {
                let (name, kind) = places[*place as usize].label;
                (&*self.names[name as usize], kind)
            });
        }
        let mut boxes = Vec::with_capacity(places.len());
        self.place(&callees, ROOT, 0, 0, &mut boxes);
        boxes
    }

    fn place<'a>(
        &'a self,
        callees: &[Vec<u32>],
        at: u32,
        depth: usize,
        left: u64,
        boxes: &mut Vec<Placed<'a>>,
    ) {
        let (name, kind) = self.tree.places()[at as usize].label;
        // Depths are bounded by the model's limit on frames, so is this recursion.
        boxes.push(Placed {
            name: &self.names[name as usize],
            kind,
            depth,
            left,
            total: self.totals[at as usize],
        });
        let mut left = left;
        for callee in &callees[at as usize] {
            self.place(callees, *callee, depth + 1, left, boxes);
            left += self.totals[*callee as usize];
        }
    }
}

struct Placed<'a> {
    name: &'a str,
    kind: Kind,
    depth: usize,
    /// Weight to the left of it and its own.
    left: u64,
    total: u64,
}

fn document(
    trace: &Trace,
    options: &Options,
    total: u64,
    boxes: &[Placed<'_>],
    height: f64,
    out: &mut dyn Write,
) -> io::Result<()> {
    let whole = total.max(1) as f64;
    let scale = (WIDTH - 2.0 * PAD) / whole;
    write!(
        out,
        r##"<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" data-width="{WIDTH}" data-pad="{PAD}" data-total="{total}" data-unit="{unit}">
<style>
text {{ font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1a1a1a; }}
#title {{ font: bold 16px system-ui, sans-serif; text-anchor: middle; }}
#sub, #details, #matched {{ font-size: 12px; fill: #444; }}
#matched {{ text-anchor: end; }}
.button {{ cursor: pointer; fill: #1f5fa8; }}
.hidden {{ display: none; }}
g.f {{ cursor: pointer; }}
g.f:hover rect {{ stroke: #000; stroke-width: 0.7; }}
g.f.parent rect {{ opacity: 0.45; }}
g.f.match rect {{ fill: #d642e8; }}
</style>
<rect width="100%" height="100%" fill="#fdfdf8"/>
<text id="title" x="{middle}" y="22">"##,
        total = total,
        unit = options.weight.unit(),
        middle = WIDTH / 2.0,
    )?;
    out.write_all(in_markup(&shortened(&export_names::title(trace, options), 110)).as_bytes())?;
    write!(out, r#"</text><text id="sub" x="{PAD}" y="42">"#)?;
    let what = format!(
        "{}: {}, {}{}",
        options.weight.name(),
        options.weight.description(),
        amount(options.weight.metric(), total),
        drops::suffix(trace)
    );
    out.write_all(in_markup(&what).as_bytes())?;
    write!(
        out,
        r#"</text>
<text id="back" class="button hidden" x="{PAD}" y="22">reset zoom</text>
<text id="search" class="button" x="{right}" y="22" text-anchor="end">search</text>
<text id="matched" x="{right}" y="42"></text>
<text id="details" x="{PAD}" y="{details}"> </text>
<g id="frames">
"#,
        right = WIDTH - PAD,
        details = TOP - 10.0,
    )?;
    for placed in boxes {
        let width = placed.total as f64 * scale;
        let (x, y) = (
            PAD + placed.left as f64 * scale,
            TOP + placed.depth as f64 * ROW,
        );
        write!(
            out,
            r#"<g class="f" data-x="{}" data-w="{}" data-d="{}"><title>"#,
            placed.left, placed.total, placed.depth
        )?;
        write!(
            out,
            "{} ({}, {:.2}%)",
            in_markup(placed.name),
            amount(options.weight.metric(), placed.total),
            placed.total as f64 * 100.0 / whole
        )?;
        write!(
            out,
            r#"</title><rect x="{x:.2}" y="{y:.1}" width="{width:.2}" height="{height:.1}" rx="1.5" fill="{color}"/><text x="{text_x:.2}" y="{text_y:.1}">"#,
            height = ROW - 1.0,
            color = color(placed.name, placed.kind),
            text_x = x + 3.0,
            text_y = y + 12.0,
        )?;
        // 7.3 units are a character's width in the font above.
        let fitting = ((width - 6.0) / 7.3).max(0.0) as usize;
        if fitting >= 3 {
            out.write_all(in_markup(&fit(placed.name, fitting)).as_bytes())?;
        }
        out.write_all(b"</text></g>\n")?;
    }
    write!(
        out,
        "</g>\n<script><![CDATA[\n{NAMES_SCRIPT}{SCRIPT}]]></script>\n</svg>\n"
    )
}

/// At most `fitting` characters, the last two dots when it was cut.
fn shortened(text: &str, fitting: usize) -> String {
    if text.chars().count() <= fitting {
        return text.to_owned();
    }
    let kept = fitting.saturating_sub(2);
    text.chars().take(kept).chain("..".chars()).collect()
}

/// Warm for code, by name so that a function looks the same everywhere; cool for waiting.
fn color(name: &str, kind: Kind) -> String {
    // FNV-1a: any spread will do.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let (a, b) = ((hash >> 8) % 50, (hash >> 24) % 130);
    match kind {
        Kind::Frame => format!("rgb({},{},{})", 205 + a, 80 + b, 60 + a / 2),
        Kind::Thread => format!("rgb({0},{0},{0})", 200 + a / 2),
        Kind::Blocking => format!("rgb({},{},{})", 90 + a, 140 + a, 190 + a),
        Kind::Gap => "rgb(235,235,235)".to_owned(),
    }
}

fn amount(metric: Metric, amount: u64) -> String {
    match metric.unit() {
        Unit::Nanoseconds => units::duration(amount),
        Unit::Bytes => units::bytes(amount),
        Unit::Count => amount.to_string(),
    }
}

/// A name in one line, as text content.
fn in_markup(text: &str) -> String {
    markup::escape(&clean(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_at_characters() {
        assert_eq!(shortened("übermäßig", 9), "übermäßig");
        assert_eq!(shortened("übermäßig", 5), "übe..");
    }
}
