//! Real programs: of their long waits that somebody ended, most have who did.

use super::report;
use serde_json::Value;
use stackbeat_tests::servers::{self, as_postgres_user, open_to_all, with_postgres};
use stackbeat_tests::tool::{stackbeat, text};
use stackbeat_tests::{Program, example, python, run, scratch};
use std::path::Path;

/// Rounds of each kind of wait.
const ROUNDS: &str = "40";

/// Wants this share, in percent, of the waits in a trace to have their waker.
fn wants_wakers(trace: &Path, at_least: u64, percent: u64) {
    let waits = &report(trace)["waits"];
    let number = |key: &str| waits[key].as_u64().expect("a count");
    let (ended, known) = (number("count") - number("failed"), number("with_waker"));
    println!("{ended} waits that somebody ended, {known} with their waker");
    assert!(
        ended >= at_least && known * 100 >= ended * percent,
        "{ended} waits, {known} with their wakers; without: {:#?}",
        without_wakers(waits)
    );
}

fn without_wakers(waits: &Value) -> Vec<String> {
    let pairs = waits["pairs"].as_array().expect("pairs").iter();
    pairs
        .filter(|pair| pair["waker_utid"] == 0)
        .map(|pair| format!("{} {} {}", pair["count"], pair["call"], pair["stack"]))
        .collect()
}

#[test]
fn python_threads_and_processes() {
    let folder = scratch();
    let script = folder.path().join("service.py");
    std::fs::write(&script, include_str!("service.py")).expect("is written");
    let script = script.to_str().expect("UTF-8");
    let recorded = Program::new([&*python(), script, ROUNDS]).record(folder.path());
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
    let service = example("tokio_service");
    let service = service.to_str().expect("UTF-8");
    let recorded = Program::new([service, ROUNDS]).record(folder.path());
    assert!(
        recorded.run.output.status.success(),
        "{}",
        recorded.run.stderr()
    );
    wants_wakers(&recorded.trace, 80, 90);
}

/// A main thread that waits in an executor's `block_on` has nothing to do; one that blocks in its future has.
#[test]
fn a_main_thread_in_an_executor_is_idle_unless_its_future_blocks() {
    let folder = scratch();
    let service = example("tokio_service");
    let service = service.to_str().expect("UTF-8");
    let blocking = |arguments: &[&str]| {
        let recorded = Program::new([&[service], arguments].concat()).record(folder.path());
        assert!(
            recorded.run.output.status.success(),
            "{}",
            recorded.run.stderr()
        );
        let trace = recorded.trace.to_str().expect("UTF-8");
        let shown = stackbeat(
            folder.path(),
            &["report", "--thread", "tokio_service", trace],
        );
        let shown = text(&shown.stdout);
        let from = shown.find("Blocking calls").expect("a table");
        shown[from..].to_owned()
    };
    let parked = blocking(&[ROUNDS]);
    assert!(!parked.contains("block_on"), "{parked}");
    assert!(parked.contains(" idle in 1 thread (wait "), "{parked}");
    let blocked = blocking(&["block", ROUNDS]);
    assert!(blocked.contains("tokio_service::blocks"), "{blocked}");
}

/// Server and clients in one recording: `redis-cli` waits for the server, whose main thread waits for clients
/// and whose background threads wait for that.
#[test]
fn redis_and_its_clients() {
    let folder = scratch();
    let script = r#"
        redis-server --port 0 --unixsocket r.sock --save "" --appendonly yes --daemonize no >server.log &
        until redis-cli -s r.sock -e ping >ping.log 2>&1; do sleep 0.05; done
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
    // Each client is a new connection, whose other end the recorder asks the kernel for at its next tick: on
    // a busy machine a client may have its answer before that.
    wants_wakers(&recorded.trace, 20, 70);
}

/// Two workers behind a Unix socket, and a client that makes them wait between its requests.
#[test]
fn nginx_and_its_clients() {
    const CLIENT: &str = r#"
import socket, sys, time
for _ in range(60):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("n.sock")
        time.sleep(0.004)
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b""
        while part := s.recv(4096):
            answer += part
        assert answer.endswith(b"answer"), answer
"#;
    let folder = scratch();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text);
    file("nginx.conf", servers::NGINX).expect("is written");
    file("client.py", CLIENT).expect("is written");
    // Workers that take another user shall find the socket.
    open_to_all(folder.path());
    let script = r#"
        nginx -p "$PWD" -c nginx.conf 2>start.log &
        until test -S n.sock; do sleep 0.05; done
        "$PYTHON" client.py || exit 1
        kill -QUIT $!
        wait
    "#;
    let program = Program::new(["sh", "-c", script])
        .folder(folder.path())
        .variable("PYTHON", &python());
    let recorded = program.record(folder.path());
    assert!(
        recorded.run.output.status.success(),
        "{}",
        recorded.run.stderr()
    );
    wants_wakers(&recorded.trace, 60, 90);
}

/// The server with clients, its start and its end. Its processes wake each other by signals, which they read
/// from signalfds or handle. It does not run as root: there, the recorder runs as the user that the package
/// has made.
#[test]
fn postgres_and_its_clients() {
    let folder = scratch();
    open_to_all(folder.path());
    let script = r#"
        set -e
        initdb -D data -A trust -U postgres --no-sync >initdb.log
        postgres -D data -k "$PWD" -h "" >server.log 2>&1 &
        until pg_isready -q -h "$PWD"; do sleep 0.1; done
        pgbench -h "$PWD" -U postgres -i -q postgres >init.log 2>&1
        pgbench -h "$PWD" -U postgres -c 4 -j 2 -t 50 postgres >bench.log 2>&1
        kill -INT $!
        wait
    "#;
    let program = with_postgres(Program::new(["sh", "-c", script]), folder.path());
    let trace = folder.path().join("trace.beat");
    let recorded = run(as_postgres_user(
        program.recorded_command(&trace),
        folder.path(),
    ));
    assert!(
        recorded.output.status.success(),
        "{}{}",
        recorded.stderr(),
        std::fs::read_to_string(folder.path().join("server.log")).unwrap_or_default()
    );
    // On a slow machine pgbench waits for room in its socket, whose maker nobody knows.
    wants_wakers(&trace, 60, 75);
}
