//! Hooks of Android's framework: stand-ins for its libraries, compiled from declarations as AOSP has them,
//! and a program that uses them as Android does. What they did by their own clock is what the trace says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stackbeat_core::probe::Probe;
use stackbeat_proto::columns::SampleRow;
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::Event;
use stackbeat_proto::v1::event::Kind;
use stackbeat_proto::v1::packet::Body;
use stackbeat_tests::plain_reader::Trace;
use stackbeat_tests::tool::text;
use stackbeat_tests::tool_json::array;
use stackbeat_tests::{report, scratch, workspace};

use crate::art::app::library;

/// The versions with a declaration of their own.
const VERSIONS: [u8; 6] = [9, 11, 12, 13, 14, 16];
/// As the program has them in each of its two sessions.
const SESSIONS: usize = 2;
const ITERATIONS: usize = 40;
const CALLS: usize = 20;
const VSYNCS: usize = ITERATIONS / 4;

/// Waits that are longer than the interval of an app's recording are all in the trace.
const LONG_NS: i64 = 5_000_000;

/// How well moments of the trace are known: cycles are converted.
const CLOCK_NS: i64 = 20_000;
/// What a hook takes beside the wait that it bounds.
const NEAR_NS: i64 = 1_000_000;

/// Compiles one part of the stand-ins.
fn compile(folder: &Path, version: u8, output: &str, options: &[&str]) {
    let compiled = Command::new("g++")
        .args(["-std=c++17", "-O2", "-fPIC", "-pthread", "-Wl,-z,now"])
        .arg(format!("-DVERSION={version}"))
        .arg("-o")
        .arg(folder.join(output))
        .arg(workspace().join("hooks-android/tests/framework.cc"))
        .args(options)
        .current_dir(folder)
        .output()
        .expect("g++ runs");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
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

fn run(program: &Path, traces: &Path) -> Vec<String> {
    let output: Output = Command::new(program)
        .arg(library())
        .arg(traces)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// One session: what the stand-ins say, and what the trace does.
struct Session {
    said: Vec<String>,
    path: PathBuf,
    trace: Trace,
    events: Vec<Event>,
}

impl Session {
    /// All of a run.
    fn all(said: &[String]) -> Vec<Session> {
        let begins = said.iter().enumerate();
        let begins = begins.filter_map(|(n, line)| Some((n, line.strip_prefix("trace ")?)));
        let begins: Vec<(usize, &str)> = begins.collect();
        let ends = begins.iter().skip(1).map(|(n, _)| *n).chain([said.len()]);
        let sessions = begins.iter().zip(ends);
        let sessions = sessions.map(|((begin, trace), end)| Session {
            said: said[*begin..end].to_vec(),
            path: PathBuf::from(trace),
            trace: Trace::read(Path::new(trace)),
            events: events(Path::new(trace)),
        });
        sessions.collect()
    }

    /// The numbers behind a word, for each line that begins so.
    fn said(&self, word: &str) -> Vec<Vec<i64>> {
        let lines = self.said.iter().filter_map(|line| line.strip_prefix(word));
        let numbers = lines.map(|line| line.split_whitespace().map(str::parse).collect());
        numbers.collect::<Result<_, _>>().expect("numbers")
    }

    /// Waits of the main thread that are in the trace as such, by their begins.
    fn waits(&self, probe: Probe) -> Vec<&SampleRow> {
        let rows = self.trace.all_samples();
        let is_wait = |(thread, row): &(u32, &SampleRow)| {
            let thread = &self.trace.threads[thread];
            let is_main = self.trace.processes[&thread.upid].pid == thread.tid;
            is_main && row.probe == probe as u8 && row.duration_ns > 0
        };
        let mut rows: Vec<_> = rows.filter(is_wait).map(|(_, row)| row).collect();
        rows.sort_by_key(|row| row.time_ns);
        rows
    }

    /// Moments and values of the events with this name.
    fn events(&self, kind: Kind, name: &str) -> Vec<(i64, i64)> {
        let events = self.events.iter();
        let mut found: Vec<(i64, i64)> = events
            .filter(|event| event.kind == kind as i32 && event.name == name)
            .map(|event| (event.time_ns as i64, event.value))
            .collect();
        found.sort_unstable();
        found
    }

    /// What the trace says of the hooks, as `doctor` does.
    fn line(&self, begin: &str) -> &str {
        let found = self.said.iter().find(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("{begin} in {:#?}", self.said))
    }
}

fn events(trace: &Path) -> Vec<Event> {
    let bytes = std::fs::read(trace).expect("the trace is there");
    let packets = PacketReader::new(std::io::Cursor::new(bytes));
    let bodies = packets.filter_map(|packet| packet.expect("a whole packet").1.body);
    let events = bodies.filter_map(|body| match body {
        Body::Event(event) => Some(event),
        _ => None,
    });
    events.collect()
}

fn begin_and_end(row: &SampleRow) -> (i64, i64) {
    let end = row.time_ns as i64;
    (end - row.duration_ns as i64, end)
}

/// Each moment is near its other one; somebody else may take the processor in between, now and then.
#[track_caller]
fn assert_near(what: &str, moments: impl Iterator<Item = (i64, i64)>) {
    let apart: Vec<i64> = moments.map(|(said, seen)| seen - said).collect();
    let far = apart.iter().filter(|ns| ns.abs() > NEAR_NS).count();
    assert!(far * 10 <= apart.len(), "{what}: {apart:?}");
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
    assert!(found.iter().all(|(_, wait)| wait.is_some()), "{found:?}");
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
    let report = report(&session.path);
    let all_ns: u64 = waits.iter().map(|wait| wait.duration_ns).sum();
    let binder = array(&report, "blocking_sites").filter(|site| site["cause"] == "binder");
    let binder_ns: u64 = binder
        .map(|site| site["total_ns"].as_u64().expect("a number"))
        .sum();
    assert!(
        binder_ns.abs_diff(all_ns) < NEAR_NS.unsigned_abs(),
        "{binder_ns} of {all_ns}"
    );
}

#[test]
fn loops_frames_and_calls_are_those_of_the_framework() {
    for version in VERSIONS {
        let scratch = scratch();
        let program = build(scratch.path(), version, &[]);
        let traces = scratch.path().join("traces");
        let sessions = Session::all(&run(&program, &traces));
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

#[test]
fn what_a_version_lacks_is_not_available_and_the_rest_works() {
    let scratch = scratch();
    // By another name, as in a version that nobody knows yet.
    let program = build(scratch.path(), 16, &["-DdispatchVsync=dispatchOther"]);
    let sessions = Session::all(&run(&program, &scratch.path().join("traces")));
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
