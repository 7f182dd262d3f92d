//! The commands for live recordings, for a session inside the program.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use stackbeat_collector::session::control::client;
use stackbeat_collector::session::protocol::SessionStatus;
use stackbeat_core::probe::{Category, Probe};
use stackbeat_proto::columns::SampleRow;
use stackbeat_tests::plain_reader::Trace;
use stackbeat_tests::process_tree::send;
use stackbeat_tests::tool::{command, text};
use stackbeat_tests::tool_json::{array, number};
use stackbeat_tests::{Background, report, scratch, until};

use super::{build, running};

/// Runs a command to its end.
#[track_caller]
fn does(arguments: &[&str]) -> String {
    let output = command(arguments).output().expect("runs");
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    text(&output.stdout)
}

/// The program's process: the one that the session lives in.
fn session_of(recorder: &Child) -> Option<SessionStatus> {
    let all = client::list()
        .into_iter()
        .filter_map(|found| found.status.ok());
    let program = format!("/proc/{}/task/{0}/children", recorder.id());
    let children = std::fs::read_to_string(program).unwrap_or_default();
    let mut of_ours = all.filter(|s| children.split(' ').any(|c| c == s.program_pid.to_string()));
    of_ours.next()
}

#[test]
fn a_session_inside_is_steered_as_one_outside() {
    let folder = scratch();
    let program = build(folder.path());
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (trace, dump) = (at("whole.beat"), at("dump.beat"));
    let recorder = command(&[
        "record",
        "--in-process",
        "--start-disabled",
        "-o",
        &trace,
        "--",
    ])
    .args([&program, "forever"])
    .stdout(Stdio::null())
    .spawn()
    .expect("starts");
    let mut recorder = Background(recorder);
    let status = || session_of(&recorder.0);
    let pid = until("the session listens", || {
        status().map(|s| s.program_pid.to_string())
    });
    let now = || until("the session answers", &status);
    assert!(!now().capturing, "it was started disabled");
    assert_eq!(
        now().collector_pid.to_string(),
        pid,
        "its threads are the program's"
    );
    let is_capturing = |said: &str| {
        let status: Value = serde_json::from_str(said).expect("JSON");
        status["sessions"][0]["capturing"].clone()
    };

    does(&["start", &pid]);
    assert_eq!(is_capturing(&does(&["status", &pid, "--json"])), true);
    let before = now().samples;
    until("samples come", || {
        (now().samples > before + 50).then_some(())
    });
    does(&["set", &pid, "--interval", "2ms"]);
    assert_eq!(now().interval_ns, 2_000_000);
    does(&["mark", &pid, "half way"]);
    does(&["dump", &pid, "-o", &dump]);
    let dumped = report(dump.as_ref());
    assert!(running(&dumped, "computes") > 0.5);
    does(&["stop", &pid]);
    assert!(!now().capturing);

    std::thread::sleep(Duration::from_millis(500));

    // The program's end is the session's, and nobody listens any more.
    send("-TERM", pid.parse().expect("a number"));
    assert!(!recorder.0.wait().expect("ends").success());
    assert!(client::find(&pid).is_err());
    let whole = report(trace.as_ref());
    let marks = array(&whole, "events").filter(|e| e["kind"] == "mark" && e["text"] == "half way");
    assert_eq!(marks.count(), 1, "{}", whole["events"]);

    // From the stop on nothing was captured but begins and ends of threads. One may have been at it.
    let stops = array(&whole, "events").filter(|e| e["text"] == "capturing off");
    let stopped_ns = number(stops.last().expect("it was stopped"), "at_ns") + 100_000_000;
    let recorded = Trace::read(trace.as_ref());
    let began = recorded.header.start.expect("a time").monotonic_ns;
    let starts = recorded.threads.values().map(|thread| thread.start_ns);
    let start_ns = starts.fold(began, u64::min);
    let is_late = |row: &&SampleRow| row.time_ns - start_ns > stopped_ns;
    let late = recorded.samples.values().flatten().filter(is_late);
    let late = late.filter_map(|row| Probe::from_number(row.probe));
    let mut captured = late.filter(|probe| probe.category() != Category::Thread);
    assert_eq!(captured.next(), None);
}

/// What a phone carries all the time: the newest seconds are there when somebody asks, and when the program
/// is killed.
#[test]
fn a_ring_inside_has_the_newest_samples() {
    let folder = scratch();
    let program = build(folder.path());
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (trace, dump) = (at("ring.beat"), at("dump.beat"));
    let options = ["record", "--in-process", "--mode", "ring"];
    let recorder = command(&options)
        // Each dump costs much, which a budget would save.
        .args(["--buffer", "64KiB", "--interval", "1ms", "--budget", "0"])
        .args(["-o", &trace, "--", &program, "forever"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut recorder = Background(recorder);
    let status = until("the session listens", || session_of(&recorder.0));
    assert_eq!(status.mode, "ring");
    let pid = status.program_pid.to_string();
    let began = Instant::now();
    until("the ring has turned", || {
        let dumped = does(&["dump", &pid, "--force", "--json", "-o", &dump]);
        let dumped: Value = serde_json::from_str(&dumped).expect("JSON");
        let covered = Duration::from_nanos(number(&dumped, "covered_ns"));
        (covered + Duration::from_secs(2) < began.elapsed()).then_some(())
    });
    does(&["dump", &pid, "--force", "--last", "500ms", "-o", &dump]);
    let dumped = report(dump.as_ref());
    assert!(number(&dumped["recording"], "duration_ns") <= 510_000_000);
    assert!(running(&dumped, "computes") > 0.5);

    send("-KILL", pid.parse().expect("a number"));
    let mut said = String::new();
    let mut stderr = recorder.0.stderr.take().expect("is piped");
    stderr.read_to_string(&mut said).expect("text");
    assert!(!recorder.0.wait().expect("ends").success());
    // What a ring has overwritten is not lost.
    let words = said.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(" records overwritten by newer ones, none lost)"),
        "{said}"
    );
    assert!(words.contains(" records, none lost, "), "{said}");
    let left = report(trace.as_ref());
    let state = left["recording"]["state"].as_str().expect("text");
    assert!(state.contains("overwritten"), "{state}");
    assert!(running(&left, "computes") > 0.5);
}
