//! Managed frames: methods, and the lines that positions stand for.

use super::super::synthetic::{
    self, Builder, LEAF_PC, MANAGED, MANAGED_AWAITING, MANAGED_INTERPRETED, Message, NATIVE,
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
    // The last one counts.
    b.method(1, "g", "g.py", 6, &[(0, 99)]);
    b.method(1, "f", "f.py", 5, lines);
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

/// An address of process 1 whose code was made of a method (0: of none that is known) from this time on.
fn made_of(address: u64, kind: u64, method: u64, from_ns: u64) -> Message {
    Message::default()
        .varint(1, 1)
        .varint(2, 1)
        .fixed64(3, address)
        .varint(4, kind)
        .varint(8, from_ns)
        .varint(9, method)
}

#[test]
fn code_that_was_made_of_a_method_is_a_managed_frame() {
    const CODE: u64 = 0x7000_0000_0010;
    let mut b = Builder::new(1_000_000, &["program"], 0);
    b.process(1, 1000, 0, 0, "/bin/program");
    let method = |number, runtime| {
        let method = Message::default().varint(1, number).varint(2, number);
        method.varint(3, 3).varint(4, 7).varint(5, runtime)
    };
    b.thread(1, 1, 1000, "program", 0);
    let texts = ["", "f", "g", "f.js"];
    let strings = texts
        .iter()
        .fold(Message::default(), |m, text| m.string(1, text));
    let methods = strings.message(2, &method(1, 3)).message(2, &method(2, 6));
    b.packet(24, &methods);
    let entries = [
        made_of(CODE, LEAF_PC, 1, 0),
        made_of(CODE, LEAF_PC, 0, 20),
        made_of(CODE, LEAF_PC, 2, 30),
        // One that no packet describes.
        made_of(CODE + 8, NATIVE, 9, 0),
    ];
    let symbols = |m: Message, entry| m.message(3, entry);
    b.packet(11, &entries.iter().fold(Message::default(), symbols));
    let node = b.mixed_stack(1, &[(CODE + 8, NATIVE), (CODE, LEAF_PC)]);
    let times = [(0, 10), (1, 25), (2, 35)];
    let row = |(record, time_ns)| SampleRow {
        record,
        node,
        time_ns,
        ..SampleRow::default()
    };
    b.samples(1, &times.map(row));
    let trace = open(b.finish(40, 3));
    let functions = trace.functions().iter();
    let of_js = functions.filter(|f| f.file == "f.js");
    let mut of_js: Vec<_> = of_js.map(|f| (&*f.name, &*f.module, f.line)).collect();
    of_js.sort_unstable();
    assert_eq!(of_js, [("f", "node", 7), ("g", "php", 7)]);
    assert!(of_js.iter().all(|(_, module, _)| is_runtime(module)));
    let is_there = |name: &str| trace.functions().iter().any(|f| f.name == name);
    assert!(is_there("[unknown method]") && is_there("[JIT program]"));
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
