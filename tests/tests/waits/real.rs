//! Real programs: of their long waits that somebody ended, most have who did.

use super::report;
use serde_json::Value;
use stackbeat_tests::{Program, run, scratch, target_folder};
use std::path::Path;
use std::process::Command;

/// Rounds of each kind of wait.
const ROUNDS: &str = "40";

/// Wants this share, in percent, of the waits in a trace to have their waker.
fn wants_wakers(trace: &Path, at_least: u64, percent: u64) {
    let waits = &report(trace)["waits"];
    let number = |key: &str| waits[key].as_u64().expect("a count");
    let (ended, known) = (number("count") - number("in_vain"), number("with_waker"));
    assert!(
        ended >= at_least && known * 100 >= ended * percent,
        "{ended} waits, {known} with their wakers; without: {:#?}",
        without_wakers(waits)
    );
}

fn without_wakers(waits: &Value) -> Vec<String> {
    let pairs = waits["pairs"].as_array().expect("pairs").iter();
    pairs
        .filter(|pair| pair["waker_uid"] == 0)
        .map(|pair| format!("{} {} {}", pair["count"], pair["call"], pair["stack"]))
        .collect()
}

#[test]
fn python_threads_and_processes() {
    let folder = scratch();
    let script = folder.path().join("service.py");
    std::fs::write(&script, include_str!("service.py")).expect("is written");
    let script = script.to_str().expect("UTF-8");
    // Not by a name that may be a shell script.
    let mut find = Command::new("python3");
    find.args(["-c", "import sys; print(sys.executable)"]);
    let python = run(find).stdout();
    let recorded = Program::new([python.trim(), script, ROUNDS]).record(folder.path());
    assert!(
        recorded.run.output.status.success(),
        "{}",
        recorded.run.stderr()
    );
    wants_wakers(&recorded.trace, 120, 90);
}

#[test]
fn a_service_on_tokio() {
    let folder = scratch();
    let service = target_folder().join("examples/tokio_service");
    let service = service.to_str().expect("UTF-8");
    let recorded = Program::new([service, ROUNDS]).record(folder.path());
    assert!(
        recorded.run.output.status.success(),
        "{}",
        recorded.run.stderr()
    );
    wants_wakers(&recorded.trace, 80, 90);
}

/// Server and clients in one recording: `redis-cli` waits for the server, whose main thread waits for clients and
/// whose background threads wait for that.
#[test]
fn redis_and_its_clients() {
    let folder = scratch();
    let script = r#"
        redis-server --port 0 --unixsocket r.sock --save "" --appendonly yes --daemonize no >server.log &
        until redis-cli -s r.sock ping >ping.log 2>&1; do sleep 0.05; done
        redis-benchmark -s r.sock -q -n 2000 -c 4 -t set,get,lpush >benchmark.log
        for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            redis-cli -s r.sock set key $i >set.log
        done
        redis-cli -s r.sock shutdown nosave
        wait
    "#;
    let program = Program::new(["sh", "-c", script]).folder(folder.path());
    let recorded = program.record(folder.path());
    assert!(
        recorded.run.output.status.success(),
        "{}",
        recorded.run.stderr()
    );
    wants_wakers(&recorded.trace, 20, 85);
}
