//! Each command to a live session, to servers under load: what it does at once, and what the trace says of
//! it.

use super::*;
use stackbeat_tests::tool_json::assert_adds_up;
use stackbeat_tests::{run, stackbeat, wait_until};
use std::process::Command;
use std::time::{Duration, Instant};

/// What a dump holds, and by how much more it may.
const WINDOW: Duration = Duration::from_millis(700);
const SLACK: Duration = Duration::from_millis(50);

/// Runs a command to the server's session.
#[track_caller]
fn steer(server: &Server, command: &str, arguments: &[&str]) {
    let mut steers = Command::new(stackbeat());
    steers.arg(command).arg(server.session()).args(arguments);
    let ended = run(steers);
    let said = ended.stderr();
    assert!(ended.output.status.success(), "{command}: {said}");
}

/// Samples that somebody asked for: begins and ends of threads are always kept, and not counted here.
fn captures(server: &Server) -> u64 {
    let status = server.status();
    status.samples.saturating_sub(2 * u64::from(status.threads))
}

/// Waits until what was under way has come in.
fn captures_at_rest(server: &Server) -> u64 {
    let mut last = captures(server);
    wait_until("no more samples come", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = captures(server);
        std::mem::replace(&mut last, now) >= now
    });
    last
}

fn wait_for_samples(server: &Server, more: u64) {
    let wanted = server.status().samples + more;
    wait_until("samples come", || server.status().samples >= wanted);
}

/// Start, stop, set, status, mark and dump, one after the other.
fn steered(kind: Kind) {
    let server = Server::recorded(kind, &[]);
    let load = server.load();
    load.rounds(1);
    wait_for_samples(&server, 20);
    steer(&server, "set", &["--interval", "300us"]);
    assert_eq!(server.status().interval_ns, 300_000);
    let mark = format!("{kind:?} is used");
    steer(&server, "mark", &[&mark]);
    let marked = Instant::now();

    steer(&server, "stop", &[]);
    assert!(!server.status().capturing);
    let stopped = captures_at_rest(&server);
    // Those that live now have not all ended yet.
    let ends = u64::from(server.status().live_threads);
    load.rounds(3);
    let now = captures(&server);
    assert!(
        now <= stopped + ends,
        "{now}, {stopped} when it was stopped"
    );
    steer(&server, "start", &[]);
    assert!(server.status().capturing);
    wait_for_samples(&server, 20);

    load.rounds(1);
    wait_until("the mark lies before the dump's window", || {
        marked.elapsed() > WINDOW + SLACK
    });
    let dump = server.path("dump.beat");
    let window = format!("{}ms", WINDOW.as_millis());
    steer(&server, "dump", &["--last", &window, "-o", &dump]);
    steer(&server, "set", &["--probes", "net,poll,io"]);
    let status = server.status();
    assert_eq!(status.probes, ["io", "net", "poll"]);
    assert!(status.capturing);
    steer(&server, "set", &["--mode", "ring", "--interval", "2ms"]);
    load.rounds(2);
    load.end();
    assert_eq!(server.status().mode, "ring");
    let ended = server.end();

    let trace = ended.trace();
    is_sound(&dump);
    is_sound(trace.to_str().expect("UTF-8"));
    let report = report(&trace);
    said_in_order(&report, &mark);
    // What the window of the dump holds, and nothing from before.
    let dumped = stackbeat_tests::report(Path::new(&dump));
    let duration = number(&dumped["recording"], "duration_ns");
    let duration = Duration::from_nanos(duration);
    assert!(duration <= WINDOW + SLACK, "{duration:?}");
    let captured: u64 = by_process(&dumped, "samples").values().sum();
    assert!(captured > 0, "{}", dumped["totals"]);
    assert!(!dumped["events"].to_string().contains(&mark));
}

/// Every thread's sums come out.
#[track_caller]
fn is_sound(trace: &str) {
    let mut info = Command::new(stackbeat());
    info.args(["info", "--json", "--check", trace]);
    let info: Value = serde_json::from_slice(&run(info).output.stdout).expect("JSON");
    assert_eq!(info["damage"], serde_json::json!([]));
    assert_adds_up(&info);
}

/// The trace tells what was asked for, in the order in which it was.
#[track_caller]
fn said_in_order(report: &Value, mark: &str) {
    let events: Vec<(&str, &str, i64)> = array(report, "events")
        .map(|e| {
            let text = |key: &str| e[key].as_str().unwrap_or_default();
            (text("kind"), text("text"), e["value"].as_i64().unwrap_or(0))
        })
        .collect();
    let mut rest = events.iter();
    let mut comes = |kind: &str, is_it: &dyn Fn(&str, i64) -> bool| {
        let found = rest.any(|(k, text, value)| *k == kind && is_it(text, *value));
        assert!(found, "{kind} is missing or out of order: {events:?}");
    };
    comes("interval", &|_, value| value == 300_000);
    comes("mark", &|text, _| text == mark);
    comes("setting", &|text, _| text == "capturing off");
    comes("setting", &|text, _| text == "capturing on");
    comes("setting", &|text, _| text == "probes io net poll");
    comes("setting", &|text, _| text == "mode ring");
    let times: Vec<u64> = array(report, "events")
        .map(|e| number(e, "at_ns"))
        .collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn nginx_is_steered() {
    steered(Kind::Nginx);
}

#[test]
fn postgres_is_steered() {
    steered(Kind::Postgres);
}

#[test]
fn a_service_on_tokio_is_steered() {
    steered(Kind::Tokio);
}
