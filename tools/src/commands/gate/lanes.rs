//! Two main threads one above the other on one axis of time, as SVG: what each of them did when.

use std::fmt::Write;

use stackbeat_core::probe::Cause;
use stackbeat_model::qualified_name;
use stackbeat_symbolize::short_names::fit;

use crate::render::markup::escape;
use crate::summary::call_tree::{Label, Leaf};
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
         <span class=\"key blocked\"></span> blocked <span class=\"key gap\"></span> no evidence</p>",
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
            for one in row {
                draw(&mut out, one, nth, length);
            }
        }
        axis(&mut out, length, ROW * rows.len() as f64);
        out.push_str("</svg>");
    }
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
    let stacks: Vec<Vec<Label>> = bars.iter().map(|bar| stack(report, bar.place)).collect();
    // Frames that are below all of it say nothing.
    let functions = || stacks.iter().filter(|s| s.len() > 1);
    let shared = functions().next().map_or(0, |first| {
        let same = |depth: usize| functions().all(|s| s.get(depth) == first.get(depth));
        (0..first.len())
            .take_while(|depth| same(*depth))
            .count()
            .saturating_sub(1)
    });
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

/// Labels from the outermost frame inwards.
fn stack(report: &Report, place: u32) -> Vec<Label> {
    let outwards = report.profile.tree.outwards(place);
    let mut labels: Vec<Label> = outwards.map(|(_, label)| label).collect();
    labels.reverse();
    labels
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
    use stackbeat_model::ThreadIndex;

    use super::*;
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
}
