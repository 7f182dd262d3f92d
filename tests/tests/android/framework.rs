//! Hooks of Android's framework: stand-ins for its libraries, compiled from declarations as AOSP has them,
//! and a program that uses them as Android does. What they did by their own clock is what the trace says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stackbeat_core::probe::Probe;
use stackbeat_core::shm::record_format::flags;
use stackbeat_proto::columns::SampleRow;
use stackbeat_proto::v1::event::Kind;
use stackbeat_tests::tool_json::array;
use stackbeat_tests::{report, scratch};

use super::session::{self, CLOCK_NS, NEAR_NS, Session, assert_near, begin_and_end};

/// The versions with a declaration of their own.
const VERSIONS: [u8; 6] = [9, 11, 12, 13, 14, 16];
/// As the program has them in each of its two sessions.
const SESSIONS: usize = 2;
const ITERATIONS: usize = 40;
const CALLS: usize = 20;
const VSYNCS: usize = ITERATIONS / 4;

/// Waits that are longer than the interval of an app's recording are all in the trace.
const LONG_NS: i64 = 5_000_000;

/// Compiles one part of the stand-ins.
fn compile(folder: &Path, version: u8, output: &str, options: &[&str]) {
    let version = format!("-DVERSION={version}");
    let options = [&[version.as_str()], options].concat();
    session::compile(folder, "framework.cc", output, &options);
}

/// The program, with its libraries.
fn build(folder: &Path, version: u8, options: &[&str]) -> PathBuf {
    let libraries = [
        ("libutils.so", "-DLIBUTILS"),
        ("libandroid_runtime.so", "-DLIBANDROID_RUNTIME"),
        ("libbinder.so", "-DLIBBINDER"),
    ];
    for (name, part) in libraries {
        let soname = format!("-Wl,-soname,{name}");
        let part = [part, "-shared", soname.as_str()];
        compile(folder, version, name, &[&part, options].concat());
    }
    let program = [
        "-DPROGRAM",
        "-rdynamic",
        "-Wl,-rpath,$ORIGIN",
        "./libutils.so",
        "./libandroid_runtime.so",
        "./libbinder.so",
        "-ldl",
    ];
    compile(folder, version, "program", &[&program, options].concat());
    folder.join("program")
}

fn check_loop(session: &Session, before: usize) {
    let iterations = session.said("iteration ");
    let begun = session.events(Kind::AsyncBegin, "message loop");
    let ended = session.events(Kind::AsyncEnd, "message loop");
    assert_eq!(iterations.len(), ITERATIONS);
    let numbers =
        |from: usize, count| (from as i64 + 1..=(from + count) as i64).collect::<Vec<_>>();
    let of = |events: &[(i64, i64)]| events.iter().map(|event| event.1).collect::<Vec<_>>();
    assert_eq!(of(&begun), numbers(before, ITERATIONS));
    // The loop has not come to the next wait when the session ends.
    assert_eq!(of(&ended), numbers(before, ITERATIONS - 1));
    for (place, events) in [&begun, &ended].into_iter().enumerate() {
        let moments = iterations.iter().map(|said| said[place]);
        assert_near(
            "iterations",
            moments.zip(events.iter().map(|event| event.0)),
        );
    }

    let polls = session.said("poll ");
    let waits = session.waits(Probe::EpollWait);
    assert_eq!(polls.len(), ITERATIONS);
    // Each lies in the one wait of the stand-in, and is as long.
    let found: Vec<(i64, Option<(i64, i64)>)> = polls
        .iter()
        .filter(|poll| poll[1] - poll[0] >= LONG_NS)
        .map(|poll| {
            let mut waits = waits.iter().map(|row| begin_and_end(row));
            let found = waits
                .find(|(begin, end)| begin + CLOCK_NS >= poll[0] && *end <= poll[1] + CLOCK_NS);
            (poll[1] - poll[0], found)
        })
        .collect();
    assert!(found.len() >= ITERATIONS / 2, "{polls:?}");
    let all = || {
        waits
            .iter()
            .map(|row| begin_and_end(row))
            .collect::<Vec<_>>()
    };
    // On a busy machine the budget may have waits be longer for a while before they are records.
    let left_out = found.iter().filter(|(_, wait)| wait.is_none()).count();
    assert!(left_out <= ITERATIONS / 10, "{polls:?} in {:?}", all());
    assert!(waits.len() <= ITERATIONS, "{waits:?}");
    let lengths = found
        .iter()
        .filter_map(|(said, wait)| Some((*said, wait.map(|(b, e)| e - b)?)));
    assert_near("polls", lengths);
}

fn check_vsyncs(session: &Session, version: u8) {
    let vsyncs = session.said("vsync ");
    assert_eq!(vsyncs.len(), VSYNCS);
    let said = |place: usize| vsyncs.iter().map(|vsync| vsync[place]).collect::<Vec<_>>();
    let marks = |name: &str| session.events(Kind::Mark, name);
    let values = |name: &str| marks(name).iter().map(|mark| mark.1).collect::<Vec<_>>();
    assert_eq!(values("vsync"), said(1));
    let known = |place, since| {
        if version >= since {
            said(place)
        } else {
            vec![]
        }
    };
    assert_eq!(values("vsync id"), known(2, 12));
    assert_eq!(values("expected presentation"), known(3, 13));
    let moments = marks("vsync").into_iter().map(|mark| mark.0);
    assert_near("vsyncs", said(0).into_iter().zip(moments));
    // Each comes in an iteration.
    let begun = session.events(Kind::AsyncBegin, "message loop");
    let ended: BTreeMap<i64, i64> = session
        .events(Kind::AsyncEnd, "message loop")
        .into_iter()
        .map(|(time, number)| (number, time))
        .collect();
    for (time, _) in marks("vsync") {
        let is_inside = |(begin, number): &&(i64, i64)| {
            *begin <= time && ended.get(number).is_none_or(|end| time <= *end)
        };
        assert_eq!(begun.iter().filter(is_inside).count(), 1, "{time}");
    }
}

fn check_calls(session: &Session) {
    let calls = session.said("call ");
    let waits = session.waits(Probe::BinderTransact);
    assert_eq!(calls.len(), CALLS);
    // Those that are one-way are not among them.
    let of_trace: Vec<(u64, i64)> = waits.iter().filter_map(|row| row.arg).collect();
    let said = calls.iter().map(|call| (call[2].cast_unsigned(), call[3]));
    assert_eq!(of_trace, said.collect::<Vec<_>>());
    for (call, wait) in calls.iter().zip(&waits) {
        let (begin, end) = begin_and_end(wait);
        assert!(
            begin <= call[0] + CLOCK_NS && end + CLOCK_NS >= call[1],
            "{call:?} {begin} {end}"
        );
    }
    let both = |place: usize, of: fn((i64, i64)) -> i64| {
        let seen = waits.iter().map(move |row| of(begin_and_end(row)));
        calls.iter().map(move |call| call[place]).zip(seen)
    };
    assert_near("begins", both(0, |wait| wait.0));
    assert_near("ends", both(1, |wait| wait.1));
    check_report(session, &waits);
}

/// The report's waits are those of the trace, but for what the thread runs inside of a call: where a tick
/// comes there, the time up to it is that of code that ran, or was ready to, and not all of it is a wait's.
fn check_report(session: &Session, waits: &[&SampleRow]) {
    let report = report(&session.path);
    let all_ns: u64 = waits.iter().map(|wait| wait.duration_ns).sum();
    let sure = waits.iter().map(|wait| match last_inside(session, wait) {
        Some(sample) => wait.time_ns - sample.time_ns,
        None => wait.duration_ns,
    });
    let sure_ns: u64 = sure.sum();
    let binder = array(&report, "blocking_sites").filter(|site| site["cause"] == "binder");
    let binder_ns: u64 = binder
        .map(|site| site["total_ns"].as_u64().expect("a number"))
        .sum();
    let near_ns = NEAR_NS.unsigned_abs();
    assert!(
        (sure_ns.saturating_sub(near_ns)..all_ns + near_ns).contains(&binder_ns),
        "{binder_ns} of {sure_ns} to {all_ns}"
    );
}

/// The last sample of the main thread inside of a wait of its.
fn last_inside<'a>(session: &'a Session, wait: &SampleRow) -> Option<&'a SampleRow> {
    let main = session.main_thread();
    let rows = session.trace.all_samples();
    let is_inside = |row: &&SampleRow| {
        row.flags & flags::INSIDE != 0
            && row.probe == Probe::Running as u8
            && row.time_ns < wait.time_ns
            && wait.time_ns - row.time_ns < wait.duration_ns
    };
    let inside = rows
        .filter(|(thread, _)| *thread == main)
        .map(|(_, row)| row);
    inside.filter(is_inside).max_by_key(|row| row.time_ns)
}

#[test]
fn loops_frames_and_calls_are_those_of_the_framework() {
    for version in VERSIONS {
        let scratch = scratch();
        let program = build(scratch.path(), version, &[]);
        let traces = scratch.path().join("traces");
        let sessions = Session::all(&program, &traces);
        assert_eq!(sessions.len(), SESSIONS);
        for (n, session) in sessions.iter().enumerate() {
            eprintln!("Android {version}, session {n}");
            session.line("framework: 3 of 3 hooks in place");
            let by_slots = session.line("framework, by slots: ");
            assert!(by_slots.contains("PollOnce") && by_slots.contains("Transact"));
            session.line("framework, by dobby: DispatchVsync");
            assert_eq!(session.trace.lost_records(), 0);
            check_loop(session, n * ITERATIONS);
            check_vsyncs(session, version);
            check_calls(session);
        }
    }
}

/// What is no wait of a call that waits.
#[test]
fn what_a_thread_computes_inside_of_a_call_is_none_of_its_wait() {
    let scratch = scratch();
    let program = build(scratch.path(), 14, &["-DCOMPUTES"]);
    for session in &Session::all(&program, &scratch.path().join("traces")) {
        let waits = session.waits(Probe::BinderTransact);
        let has_sample = |wait: &&&SampleRow| last_inside(session, wait).is_some();
        assert!(waits.iter().filter(has_sample).count() > 1, "{waits:?}");
        check_report(session, &waits);
    }
}

#[test]
fn what_a_version_lacks_is_not_available_and_the_rest_works() {
    let scratch = scratch();
    // By another name, as in a version that nobody knows yet.
    let program = build(scratch.path(), 16, &["-DdispatchVsync=dispatchOther"]);
    let sessions = Session::all(&program, &scratch.path().join("traces"));
    for (n, session) in sessions.iter().enumerate() {
        session.line("framework: 2 of 3 hooks in place");
        session.line(
            "framework, not available: DispatchVsync (this libandroid_runtime.so does not have it)",
        );
        assert_eq!(session.events(Kind::Mark, "vsync"), []);
        check_loop(session, n * ITERATIONS);
        check_calls(session);
    }
}
