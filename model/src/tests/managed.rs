//! Managed frames: methods, and the lines that positions stand for.

use super::super::synthetic::{
    self, Builder, MANAGED, MANAGED_AWAITING, MANAGED_INTERPRETED, Message, NATIVE,
};
use super::*;

/// The name, the line and more of each frame of a sample's stack, by sample.
#[derive(Default)]
struct Stacks(Vec<Vec<(String, u32, bool)>>);

impl Visitor for Stacks {
    fn segment(&mut self, _: &Trace, _: &Segment) {}

    fn sample(&mut self, trace: &Trace, _: ThreadIndex, _: &SampleRow, stack: StackIndex) {
        let frames = trace.stack_frames(stack);
        let frames = frames.iter().map(|frame| {
            let frame = trace.frame(*frame);
            let name = trace.function(frame.function).name.clone();
            (name, frame.line, frame.inlined)
        });
        self.0.push(frames.collect());
    }
}

fn stacks(trace: &Trace) -> Vec<Vec<(String, u32, bool)>> {
    let mut stacks = Stacks::default();
    trace.visit(&mut stacks).expect("readable");
    stacks.0
}

#[test]
fn methods_and_positions_become_functions_and_lines() {
    let trace = open(synthetic::managed());
    assert_eq!(trace.damage(), &[]);
    assert_eq!(conservation(&trace).expect("readable"), &[]);
    let mut seen = stacks(&trace);
    seen.dedup();
    let frame = |name: &str, line, inlined| (name.to_owned(), line, inlined);
    let outer = [
        frame("main", 22, false),
        frame("handle.<locals>.answer", 12, false),
        frame("handle_request", 71, false),
    ];
    let inner = [
        vec![frame("Page.render", 31, false)],
        vec![frame("Page.render", 33, false), frame("escape", 52, true)],
        vec![frame("[unknown method]", 0, false)],
        vec![frame("Page.render", 0, false)],
    ];
    let expected = inner.map(|inner| [outer.to_vec(), inner].concat());
    assert_eq!(seen, expected);
    let function = |name: &str| {
        let found = trace.functions().iter().find(|f| f.name == name);
        found.expect("there")
    };
    let render = function("Page.render");
    let place = (render.file.as_str(), render.line, render.module.as_str());
    assert_eq!(place, ("/srv/page.py", 30, "python"));
    assert_eq!(function("[unknown method]").module, "");
}

#[test]
fn what_waits_for_a_frame_is_marked_as_no_call() {
    let mut b = Builder::new(1_000_000, &["program"], 0);
    b.method(1, "main", "f.py", 5, &[(0, 5), (4, 6)]);
    b.method(2, "leaf", "f.py", 9, &[(0, 9)]);
    let stack = [
        (1 << 32 | 4, MANAGED_AWAITING),
        (2 << 32, MANAGED_INTERPRETED),
    ];
    let node = b.mixed_stack(1, &stack);
    let row = SampleRow {
        node,
        time_ns: 5,
        ..SampleRow::default()
    };
    b.samples(1, &[row]);
    let trace = open(b.finish(9, 1));
    let frame = |name: &str, line| (name.to_owned(), line, false);
    assert_eq!(
        stacks(&trace)[0],
        [frame("main [async]", 6), frame("leaf", 9)]
    );
}

/// The line that the position stands for, in a trace with this line table.
fn line_at(position: u64, lines: &[(u64, u64)]) -> u32 {
    let mut b = Builder::new(1_000_000, &["program"], 0);
    b.method(1, "f", "f.py", 5, lines);
    // The first one counts.
    b.method(1, "g", "g.py", 6, &[(0, 99)]);
    let node = b.mixed_stack(1, &[(1 << 32 | position, MANAGED)]);
    b.samples(
        1,
        &[SampleRow {
            node,
            time_ns: 5,
            ..SampleRow::default()
        }],
    );
    let trace = open(b.finish(9, 1));
    let stacks = stacks(&trace);
    assert_eq!(stacks[0][0].0, "f");
    stacks[0][0].1
}

#[test]
fn the_last_entry_at_or_before_a_position_says_the_line() {
    let lines = [(4, 10), (8, 8), (8, 11), (20, 0), (30, 12)];
    for (position, line) in [
        (0, 0),
        (3, 0),
        (4, 10),
        (7, 10),
        (8, 11),
        (19, 11),
        (20, 0),
        (31, 12),
    ] {
        assert_eq!(line_at(position, &lines), line, "{position}");
    }
    assert_eq!(line_at(u32::MAX.into(), &lines), 0);
    assert_eq!(line_at(u64::from(u32::MAX) - 1, &lines), 12);
    assert_eq!(line_at(7, &[]), 0);
}

#[test]
fn methods_that_make_no_sense_are_damage() {
    let mut b = Builder::new(1_000_000, &["program"], 0);
    let method = |number| Message::default().varint(1, number).varint(2, 1);
    let bodies = [
        method(0),
        method(1).varint(3, 7),
        method(2).packed(6, [1, 2]).signed(7, [1]),
        method(3).packed(6, [u32::MAX.into(), 1]).signed(7, [1, 1]),
    ];
    let with = |message: Message, body| message.message(2, body);
    let strings = || Message::default().string(1, "").string(1, "f");
    b.packet(24, &bodies.iter().fold(strings(), with));
    // Good, of a runtime that is not known here.
    b.packet(24, &with(strings(), &method(4).varint(5, 200)));
    let frames = [
        (0x1000, NATIVE),
        (1 << 32, MANAGED),
        (4 << 32, MANAGED_INTERPRETED),
    ];
    let node = b.mixed_stack(1, &frames);
    b.samples(
        1,
        &[SampleRow {
            node,
            time_ns: 5,
            ..SampleRow::default()
        }],
    );
    let trace = open(b.finish(9, 1));
    let damage: Vec<_> = trace.damage().iter().map(|d| d.what.as_str()).collect();
    assert_eq!(damage, ["4 methods make no sense"]);
    let names: Vec<_> = stacks(&trace)[0].iter().map(|f| f.0.clone()).collect();
    assert_eq!(names, ["0x1000", "[unknown method]", "f"]);
    let f = trace
        .functions()
        .iter()
        .find(|f| f.name == "f")
        .expect("there");
    assert_eq!(f.module, "managed");
}
