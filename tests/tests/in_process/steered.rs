//! The commands for live recordings, for a session inside the program.

use std::process::{Child, Stdio};

use serde_json::Value;
use stackbeat_collector::session::control::client;
use stackbeat_collector::session::protocol::SessionStatus;
use stackbeat_tests::process_tree::send;
use stackbeat_tests::tool::{command, text};
use stackbeat_tests::tool_json::array;
use stackbeat_tests::{report, scratch, until};

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
    let mut recorder = command(&[
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
    let status = || session_of(&recorder);
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
    assert!(running(&dumped, "computes") > 0.8);
    does(&["stop", &pid]);
    assert!(!now().capturing);

    // Nothing is captured from here on.
    let settled = until("all that was captured is stored", || {
        let before = now().samples;
        std::thread::sleep(std::time::Duration::from_millis(1500));
        (now().samples == before).then_some(before)
    });
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(now().samples, settled);

    // The program's end is the session's, and nobody listens any more.
    send("-TERM", pid.parse().expect("a number"));
    assert!(!recorder.wait().expect("ends").success());
    assert!(client::find(&pid).is_err());
    let whole = report(trace.as_ref());
    let marks = array(&whole, "events").filter(|e| e["kind"] == "mark" && e["text"] == "half way");
    assert_eq!(marks.count(), 1, "{}", whole["events"]);
}
