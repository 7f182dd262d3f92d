//! Two main threads one above the other on one axis of time, as SVG: what each of them did when.

use std::collections::HashMap;
use std::fmt::Write;

use stackbeat_core::probe::Cause;
use stackbeat_model::layers::Layer;
use stackbeat_model::qualified_name;
use stackbeat_symbolize::short_names::fit;

use crate::render::markup::escape;
use crate::summary::call_tree::{Label, Leaf};
use crate::summary::libraries::is_managed;
use crate::summary::load::Report;
use crate::summary::timeline::Bar;
use crate::units;

/// Bars of a trace that are kept; what is shorter than a pixel cannot be seen anyway.
pub(super) const BAR_BUDGET: usize = 20_000;
const WIDTH: f64 = 1160.0;
const ROW: f64 = 17.0;
/// Rows of frames below the row of states.
const DEPTH: usize = 12;
/// Narrowest box.
const LEAST: f64 = 0.4;

/// A box of a row: from, to, what it is called and its class.
struct Box {
    begin_ns: u64,
    end_ns: u64,
    text: String,
    class: &'static str,
}

/// The lanes of two traces, given with their names.
pub(super) fn render(traces: &[(String, Report); 2]) -> String {
    let length = traces
        .iter()
        .map(|(_, r)| r.metadata.recording.duration_ns)
        .max();
    let length = length.unwrap_or(0).max(1);
    let mut out = String::from(
        "<h2>Main threads</h2><p class=\"dim\">Both on one axis of time. <span class=\"key running\"></span> running \
         <span class=\"key blocked\"></span> blocked <span class=\"key gap\"></span> no evidence</p><div class=\"scroll\">",
    );
    for (name, report) in traces {
        let rows = rows(report);
        let height = ROW * rows.len() as f64 + 16.0;
        let duration = report.metadata.recording.duration_ns;
        let _ = write!(
            out,
            "<h3>{} <span>{}</span></h3><svg class=\"lanes\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">",
            escape(name),
            units::duration(duration)
        );
        for (nth, row) in rows.iter().enumerate() {
            out.push_str("<g>");
            for one in row {
                draw(&mut out, one, nth, length);
            }
            out.push_str("</g>");
        }
        axis(&mut out, length, ROW * rows.len() as f64);
        out.push_str("</svg>");
    }
    out.push_str("</div>");
    out
}

fn draw(out: &mut String, one: &Box, row: usize, length: u64) {
    let x = |ns: u64| ns as f64 / length as f64 * WIDTH;
    let (left, width) = (x(one.begin_ns), x(one.end_ns - one.begin_ns));
    if width < LEAST {
        return;
    }
    let y = ROW * row as f64;
    let title = format!(
        "{}: {}",
        one.text,
        units::duration(one.end_ns - one.begin_ns)
    );
    let _ = write!(
        out,
        "<rect class=\"{}\" x=\"{left:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\"><title>{}</title></rect>",
        one.class,
        ROW - 1.0,
        escape(&title)
    );
    // About six and a half units a letter.
    let letters = (width / 6.5) as usize;
    if letters >= 4 {
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{}\">{}</text>",
            left + 2.0,
            y + 12.0,
            escape(&fit(&one.text, letters))
        );
    }
}

fn axis(out: &mut String, length: u64, y: f64) {
    for part in 0..=4 {
        let (across, anchor) = match part {
            0 => (0.0, "start"),
            4 => (WIDTH, "end"),
            part => (WIDTH * f64::from(part) / 4.0, "middle"),
        };
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{across}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            y + 12.0,
            units::duration((length as f64 * f64::from(part) / 4.0) as u64)
        );
    }
}

/// The row of states and the rows of frames of a trace's main thread: the first process' longest.
fn rows(report: &Report) -> Vec<Vec<Box>> {
    let metadata = &report.metadata;
    let root = metadata.processes.first().map_or(0, |p| p.pid);
    let mains = metadata
        .threads
        .iter()
        .enumerate()
        .filter(|(_, t)| t.is_main && t.pid == root);
    let main = mains.max_by_key(|(_, t)| t.end_ns.saturating_sub(t.begin_ns));
    let bars = main.and_then(|(at, _)| report.timeline.threads().get(at));
    let bars = bars.map_or(&[][..], Vec::as_slice);
    let stacks = stacks(report, bars);
    let shared = outer_frames(bars, &stacks);
    let deepest = stacks.iter().map(Vec::len).max().unwrap_or(0);
    let depths = shared..deepest.min(shared + DEPTH);
    let mut rows: Vec<Vec<Box>> = (0..=depths.len()).map(|_| Vec::new()).collect();
    let since = |ns: u64| ns.saturating_sub(metadata.recording.start_ns);
    for (bar, stack) in bars.iter().zip(&stacks) {
        let class = class(stack.last().copied());
        add(
            &mut rows[0],
            bar,
            since,
            state(stack.last().copied()),
            class,
        );
        for (row, depth) in depths.clone().enumerate() {
            if let Some(label) = stack.get(depth) {
                add(
                    &mut rows[row + 1],
                    bar,
                    since,
                    name(report, *label),
                    class_of_frame(*label),
                );
            }
        }
    }
    rows
}

/// Adds a bar to a row, or makes the last box longer that goes on in it.
fn add(
    row: &mut Vec<Box>,
    bar: &Bar,
    since: impl Fn(u64) -> u64,
    text: String,
    class: &'static str,
) {
    let (begin_ns, end_ns) = (since(bar.begin_ns), since(bar.end_ns));
    match row.last_mut() {
        Some(last) if last.end_ns == begin_ns && last.text == text && last.class == class => {
            last.end_ns = end_ns;
        }
        _ => row.push(Box {
            begin_ns,
            end_ns,
            text,
            class,
        }),
    }
}

/// The bars' labels from the outermost frame inwards, without what interprets the functions further in.
fn stacks(report: &Report, bars: &[Bar]) -> Vec<Vec<Label>> {
    let layer = report.metadata.layers();
    let interprets =
        |label: Label| matches!(label, Label::Function(f) if layer(f) == Layer::Interpreter);
    let is_interpreted = |label: &Label| match label {
        Label::Function(f) => is_managed(&report.metadata.functions[f.0 as usize]),
        _ => false,
    };
    let stack = |bar: &Bar| {
        let outwards = report.profile.tree.outwards(bar.place);
        let mut labels: Vec<Label> = outwards.map(|(_, label)| label).collect();
        labels.reverse();
        let interpreted = labels.iter().rposition(is_interpreted);
        let frames = labels.into_iter().enumerate();
        let shown = frames.filter(|(depth, label)| {
            interpreted.is_none_or(|at| *depth > at) || !interprets(*label)
        });
        shown.map(|(_, label)| label).collect()
    };
    bars.iter().map(stack).collect()
}

/// Part of a thread's time in which it is in a frame that says nothing about when: as in the report's page.
const ALWAYS: f64 = 0.99;

/// How many outermost frames a thread is in nearly all the time, but the last of them.
fn outer_frames(bars: &[Bar], stacks: &[Vec<Label>]) -> usize {
    let frames = || bars.iter().zip(stacks).filter(|(_, stack)| stack.len() > 1);
    let length = |bar: &Bar| (bar.end_ns - bar.begin_ns) as f64;
    let all: f64 = frames().map(|(bar, _)| length(bar)).sum();
    let mut outer: Vec<Label> = Vec::new();
    loop {
        let mut sums: HashMap<Label, f64> = HashMap::new();
        for (bar, stack) in frames().filter(|(_, stack)| stack.starts_with(&outer)) {
            if let Some(label @ Label::Function(_)) = stack.get(outer.len()) {
                *sums.entry(*label).or_default() += length(bar);
            }
        }
        match sums.into_iter().find(|(_, ns)| *ns >= ALWAYS * all) {
            Some((label, _)) => outer.push(label),
            None => return outer.len().saturating_sub(1),
        }
    }
}

fn class(label: Option<Label>) -> &'static str {
    match label {
        Some(Label::Leaf(Leaf::Blocking(_))) => "blocked",
        Some(Label::Leaf(Leaf::Gap)) | None => "gap",
        _ => "running",
    }
}

fn class_of_frame(label: Label) -> &'static str {
    match label {
        Label::Function(_) => "frame",
        label => class(Some(label)),
    }
}

fn state(label: Option<Label>) -> String {
    match label {
        Some(Label::Leaf(Leaf::Blocking(probe))) => match probe.cause() {
            Cause::None => "blocked".into(),
            cause => format!("blocked: {}", cause.name()),
        },
        label if class(label) == "gap" => "no evidence".into(),
        _ => "running".into(),
    }
}

fn name(report: &Report, label: Label) -> String {
    match label {
        Label::Function(f) => {
            let f = &report.metadata.functions[f.0 as usize];
            qualified_name(&f.name, &f.module, &f.file).into_owned()
        }
        Label::Leaf(Leaf::Blocking(probe)) => probe.name().into_owned(),
        Label::Leaf(Leaf::Gap) => "no evidence".into(),
        Label::Leaf(Leaf::Code | Leaf::NoStack) => "no stack".into(),
        Label::Root | Label::Small => "…".into(),
        Label::Group(none) => match none {},
    }
}

#[cfg(test)]
mod tests {
    use stackbeat_model::{FunctionIndex, ThreadIndex};

    use super::*;
    use crate::summary::metadata::FunctionName;
    use crate::summary::timeline::Timeline;
    use crate::testing;

    #[test]
    fn both_lanes_have_states_and_frames_on_one_axis() {
        let lane = |length: u64| {
            let mut report = testing::report();
            let places = report.profile.tree.places();
            let is_function = |label: Label| matches!(label, Label::Function(_));
            let place = (places.iter())
                .rposition(|place| is_function(place.label))
                .expect("has functions") as u32;
            let start = report.metadata.recording.start_ns;
            report.timeline = Timeline::new(100);
            let bar = Bar {
                begin_ns: start,
                end_ns: start + length,
                place,
                place_ns: length,
                cpu_ns: length,
                allocated_bytes: 0,
                common: None,
            };
            let main = report
                .metadata
                .threads
                .iter()
                .position(|t| t.is_main)
                .expect("a main thread");
            report.timeline.push(ThreadIndex(main as u32), bar);
            report.metadata.recording.duration_ns = length;
            (format!("{length}<evil>"), report)
        };
        let markup = render(&[lane(1_000_000), lane(4_000_000)]);
        assert!(!markup.contains("<evil"), "{markup}");
        assert_eq!(markup.matches("<svg").count(), 2);
        // The state, as wide as its share of the longer one.
        for width in ["290.0", "1160.0"] {
            let state = format!("<rect class=\"running\" x=\"0.0\" y=\"0\" width=\"{width}\"");
            assert!(markup.contains(&state), "{width}: {markup}");
            let frame = format!("<rect class=\"frame\" x=\"0.0\" y=\"17\" width=\"{width}\"");
            assert!(markup.contains(&frame), "{width}: {markup}");
        }
    }
    /// A lane has twelve rows: they begin where something happens, and an interpreter's frames take none.
    #[test]
    fn lanes_begin_where_something_happens() {
        let mut report = testing::report();
        let python = "/usr/bin/python3.11";
        let functions = [
            ("_start", "/srv/embed", ""),
            ("main", "/srv/embed", ""),
            ("_PyEval_Vector", python, ""),
            ("load", "python", "/srv/shop.py"),
            ("price", "python", "/srv/shop.py"),
            ("_dl_relocate", "/srv/embed", ""),
        ];
        let before = report.metadata.functions.len() as u32;
        let named = functions.map(|(name, module, file)| FunctionName {
            name: name.to_owned(),
            module: module.to_owned(),
            file: file.to_owned(),
            line: 3,
        });
        report.metadata.functions.extend(named);
        let mut place = |stack: &[u32]| {
            let stack: Vec<_> = stack.iter().map(|f| FunctionIndex(before + f)).collect();
            report.profile.tree.path(&stack)
        };
        let places = [
            (5_000, place(&[5, 5])),
            (500_000, place(&[0, 1, 2, 3])),
            (495_000, place(&[0, 1, 2, 4, 2, 3])),
        ];
        let main = (report.metadata.threads.iter()).position(|t| t.is_main);
        let main = ThreadIndex(main.expect("a main thread") as u32);
        report.timeline = Timeline::new(100);
        let mut begin_ns = report.metadata.recording.start_ns;
        for (ns, place) in places {
            let bar = Bar {
                begin_ns,
                end_ns: begin_ns + ns,
                place,
                place_ns: ns,
                cpu_ns: ns,
                allocated_bytes: 0,
                common: None,
            };
            report.timeline.push(main, bar);
            begin_ns += ns;
        }
        report.metadata.recording.duration_ns = 1_000_000;
        let rows = rows(&report);
        let names = |row: usize| -> Vec<&str> {
            let frames = rows.get(row).map_or(&[][..], Vec::as_slice);
            frames.iter().map(|one| one.text.as_str()).collect()
        };
        assert_eq!(names(1), ["_dl_relocate", "main"]);
        assert_eq!(names(2), ["shop.load", "shop.price"]);
        assert_eq!(names(3), ["shop.load"]);
        assert_eq!(rows.len(), 4);
    }
}
