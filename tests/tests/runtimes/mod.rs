//! Runtimes of managed code that tell the agent of themselves by a library of their own: `toy_runtime.c`, in
//! whose stacks the names alone say whether a frame is another method's.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use stackbeat_core::probe::Probe;
use stackbeat_proto::v1::NodeKind;
use stackbeat_tests::c_programs::agent;
use stackbeat_tests::plain_reader::{Frame, Trace};
use stackbeat_tests::tool::{command_in, text};
use stackbeat_tests::{compile, scratch};

/// What a whole stack has, outermost first: the depth, how it runs, and the line.
const WHOLE: [(&str, NodeKind, u32); 6] = [
    ("d0", NodeKind::Managed, 10),
    ("d1", NodeKind::Managed, 10),
    ("d1i", NodeKind::ManagedInlined, 11),
    ("d2", NodeKind::ManagedInterpreted, 10),
    ("d3", NodeKind::ManagedInterpreted, 11),
    ("d4", NodeKind::Managed, 10),
];

/// Compiles the runtime, and a program that does nothing but call it.
fn program(folder: &Path) -> PathBuf {
    let library = compile(
        folder,
        "libtoy_runtime.c",
        include_str!("toy_runtime.c"),
        &["-shared", "-fPIC"],
    );
    compile(
        folder,
        "toy.c",
        "int toy_main(int, char **); int main(int c, char **a) { return toy_main(c, a); }",
        &["-pthread", library.to_str().expect("UTF-8")],
    )
}

fn record(folder: &Path, options: &[&str], mode: &str, preload: Option<&Path>) -> (Output, Trace) {
    let program = folder.join("toy");
    let program = program.to_str().expect("UTF-8");
    let mut arguments = vec!["record", "-q", "-f", "-o", "t.beat"];
    arguments.extend(options);
    arguments.extend(["--", program, mode, "1400"]);
    let mut command = command_in(folder, &arguments);
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().expect("stackbeat runs");
    (output, Trace::read(&folder.join("t.beat")))
}

fn is_managed(frame: &Frame) -> bool {
    matches!(
        frame.kind,
        NodeKind::Managed | NodeKind::ManagedInlined | NodeKind::ManagedInterpreted
    )
}

/// Checks each stack of the runtime's threads, and that there are enough of them. Gives how many were whole.
fn assert_stacks(trace: &Trace) -> usize {
    let mut whole = 0;
    let mut with_managed = 0;
    for (_, row) in trace.all_samples() {
        let frames = trace.frames(row.node);
        let managed: Vec<&Frame> = frames.iter().filter(|frame| is_managed(frame)).collect();
        let of_round = |frame: &Frame| {
            let (round, depth) = frame.name.rsplit_once('.').unwrap_or_default();
            (round.to_owned(), depth.to_owned())
        };
        for (frame, (depth, kind, line)) in managed.iter().zip(WHOLE) {
            let found = of_round(frame);
            assert_eq!(
                (found.1.as_str(), frame.kind, frame.line),
                (depth, kind, line),
                "{managed:?}"
            );
            assert_eq!(found.0, of_round(managed[0]).0, "{managed:?}");
        }
        assert!(managed.len() <= WHOLE.len(), "{managed:?}");
        with_managed += usize::from(!managed.is_empty());
        let is_in = |function: &str| frames.iter().any(|frame| frame.name == function);
        if is_in("toy_leaf") {
            assert_eq!(managed.len(), WHOLE.len(), "{frames:?}");
            whole += 1;
        }
        // Where the thread is in code of a method, or of what it calls, nothing of the way there is missing.
        if is_in("toy_interpret") || is_in("toy_native") {
            assert!(!managed.is_empty(), "{frames:?}");
        }
    }
    assert!(with_managed > 500, "{with_managed} stacks");
    whole
}

#[test]
fn each_frame_is_the_method_that_stands_there() {
    let folder = scratch();
    program(folder.path());
    for options in [&[][..], &["--interval", "100us"], &["--clock", "timer"]] {
        let (output, trace) = record(folder.path(), options, "end", None);
        assert_eq!(text(&output.stdout), "done, with an agent\n", "{output:?}");
        let whole = assert_stacks(&trace);
        assert!(whole > 300, "{options:?}: {whole} whole stacks");
        assert_eq!(trace.lost_records(), 0);
    }
}

/// What is known of methods does not die with the process.
#[test]
fn a_killed_process_has_all_names() {
    let folder = scratch();
    program(folder.path());
    let (output, trace) = record(folder.path(), &[], "kill", None);
    assert!(!output.status.success(), "{output:?}");
    assert!(assert_stacks(&trace) > 300);
}

/// Threads that wait are looked at from outside. Their stacks lead through generated code, too, as far as its
/// rules go: a thread that waits past all hooks has told nobody its frame pointer.
#[test]
fn stacks_of_threads_that_wait_lead_through_generated_code() {
    let folder = scratch();
    program(folder.path());
    let (_, trace) = record(folder.path(), &[], "blocked", None);
    let mut found = BTreeMap::new();
    for waits in &trace.waits {
        let frames = trace.frames(waits.node);
        let managed: Vec<_> = frames.iter().filter(|frame| is_managed(frame)).collect();
        let Some((thread, _)) = managed.last().and_then(|f| f.name.split_once('.')) else {
            continue;
        };
        let is_its_own = |frame: &&Frame| frame.name.starts_with(&format!("{thread}.g0."));
        assert!(managed.iter().all(is_its_own), "{managed:?}");
        let said = managed.iter().map(|frame| {
            let (_, depth) = frame.name.rsplit_once('.').unwrap_or_default();
            (depth.to_owned(), frame.kind, frame.line)
        });
        let said: Vec<_> = said.collect();
        let is_outside = waits.probe != Probe::Nanosleep as u32;
        let root = frames[0].name.clone();
        let before = found.insert(thread.to_owned(), (is_outside, said.clone(), root));
        assert!(
            before.is_none_or(|(_, before, _)| before == said),
            "{thread}"
        );
    }
    // Only the thread itself can ask its interpreter.
    let compiled: Vec<_> = (WHOLE.iter())
        .filter(|(_, kind, _)| *kind != NodeKind::ManagedInterpreted)
        .map(|(depth, kind, line)| ((*depth).to_owned(), *kind, *line))
        .collect();
    for thread in 0..8 {
        let (is_outside, frames, root) = found.get(&format!("t{thread}")).expect("waits");
        assert_eq!(*is_outside, thread % 2 == 0, "{found:?}");
        let has_fp = thread / 2 % 2 == 1;
        if has_fp && *is_outside {
            assert!(compiled.ends_with(frames), "{frames:?}");
        } else {
            assert_eq!((frames, root.as_str()), (&compiled, "clone3"), "{found:?}");
        }
    }
}

/// A wait that the runtime tells of, by a number in the place of an address, with who ended it.
#[test]
fn a_monitor_says_who_held_it() {
    let folder = scratch();
    program(folder.path());
    let (_, trace) = record(folder.path(), &[], "end", None);
    let rows = trace.all_samples();
    let waits: Vec<_> = rows
        .filter(|(_, row)| row.probe == Probe::MonitorEnter as u8 && row.duration_ns > 10_000_000)
        .collect();
    assert_eq!(waits.len(), 1);
    assert_eq!(waits[0].1.arg.map(|(object, _)| object), Some(4242));
    let json = stackbeat_tests::tool::json(folder.path(), &["report", "t.beat", "--json"]);
    let said = json.to_string();
    assert!(said.contains("leave_monitor"), "{said}");
}

/// An agent that comes to a running program is found by who asks again.
#[test]
fn an_attached_agent_is_told_too() {
    let folder = scratch();
    let mut child = Command::new(program(folder.path()))
        .args(["late", "3000"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut line = || said.next().expect("a line").expect("text");
    assert_eq!(line(), "waiting, without one");
    let pid = child.id().to_string();
    let attach = command_in(folder.path(), &["attach", "-q", "-f", "-o", "t.beat", &pid]).output();
    let attach = attach.expect("stackbeat runs");
    assert!(attach.status.success(), "{attach:?}");
    assert_eq!(line(), "done, with an agent");
    assert!(child.wait().expect("ours").success());
    assert!(assert_stacks(&Trace::read(&folder.path().join("t.beat"))) > 300);
}

/// Whatever libraries are loaded, a process has one agent and a thread one entry.
#[test]
fn a_second_agent_stays_off() {
    let folder = scratch();
    program(folder.path());
    let copy = folder.path().join("libsecond.so");
    std::fs::copy(agent(), &copy).expect("copied");
    let (output, trace) = record(folder.path(), &[], "end", Some(&copy));
    assert_eq!(text(&output.stdout), "done, with an agent\n", "{output:?}");
    assert!(assert_stacks(&trace) > 300);
    let mut tids = BTreeMap::<u32, u32>::new();
    for thread in trace.threads.values() {
        *tids.entry(thread.tid).or_default() += 1;
    }
    assert!(tids.values().all(|entries| *entries == 1), "{tids:?}");
}

/// Without an agent the runtime runs as ever.
#[test]
fn without_an_agent_there_is_nothing_to_tell() {
    let folder = scratch();
    let program = program(folder.path());
    let output = std::process::Command::new(program)
        .args(["end", "50"])
        .output()
        .expect("runs");
    assert_eq!(text(&output.stdout), "done, alone\n");
}
