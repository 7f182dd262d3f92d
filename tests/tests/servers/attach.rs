//! `stackbeat attach` on servers while they answer: every process is recorded, and left as it was.
#![cfg(target_arch = "x86_64")]

use super::*;
use stackbeat_tests::processes::{
    Slots, State, file_mappings, is_attached, is_hooked, slots, slots_left_changed,
};
use stackbeat_tests::{Background, run, stackbeat, wait_until};
use std::process::{Command, Stdio};

/// Visits of one server.
const VISITS: usize = 2;

/// What a process is before anybody comes.
struct Before {
    pid: u32,
    state: State,
    slots: Slots,
    files: BTreeMap<(String, u64), usize>,
}

/// Visits a server whose processes are these and stay; others may come and go. So many of these may wait in one call
/// all the time, which nothing tells of when it began before.
fn visited(server: &Server, processes: &[u32], waiting: usize) {
    let load = server.load();
    // What a server does once, it has done by then.
    load.rounds(2);
    load.end();
    server.at_rest();
    let before = processes.iter().map(|pid| Before {
        pid: *pid,
        state: State::of(*pid),
        slots: slots(*pid),
        files: file_mappings(*pid),
    });
    let before: Vec<Before> = before.collect();
    let mut files: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for visit in 0..VISITS {
        let load = server.load();
        load.rounds(1);
        let trace = server.path("visit.beat");
        let mut command = Command::new(stackbeat());
        command
            .args(["attach", "-f", "--json", "--children", "-o", &trace])
            .arg(server.pid().to_string())
            .stderr(Stdio::piped());
        let mut recorder = Background(command.spawn().expect("starts"));
        wait_until("every process is visited", || {
            let ended = recorder.0.try_wait().expect("is our child");
            assert!(ended.is_none(), "{ended:?}");
            processes.iter().all(|pid| is_attached(*pid))
        });
        load.rounds(4);
        for pid in processes {
            assert!(is_hooked(*pid), "visit {visit}: no hook is in {pid}");
        }
        let summary = ended(&mut recorder);
        let visited = number(&summary, "attached_descendants");
        assert!(visited >= processes.len() as u64 - 1, "{summary}");
        load.rounds(2);
        load.end();
        server.at_rest();
        for before in &before {
            let (pid, is) = (before.pid, State::of(before.pid));
            assert_eq!(is, before.state, "visit {visit}, {pid}");
            let changed = slots_left_changed(pid, &before.slots);
            assert!(changed.is_empty(), "visit {visit}, {pid}: {changed:x?}");
            assert!(!is_hooked(pid), "visit {visit}: a hook is left in {pid}");
            files.entry(pid).or_default().push(file_mappings(pid));
        }
        every_process_is_recorded(Path::new(&trace), processes, waiting);
    }
    // The library stays, and what it reads of others when it first meets them, but once.
    for before in &before {
        let after = &files[&before.pid];
        for (place, count) in after.last().into_iter().flatten() {
            let at_first = after.first().and_then(|first| first.get(place));
            let without = before.files.get(place).copied().unwrap_or(0);
            let most = at_first.copied().unwrap_or(0).max(without + 1);
            assert!(*count <= most, "{}: {place:x?} {count} times", before.pid);
        }
    }
}

/// Ends a recorder by Ctrl-C; gives its summary.
#[track_caller]
fn ended(recorder: &mut Background) -> Value {
    let mut interrupt = Command::new("kill");
    interrupt.args(["-INT", &recorder.0.id().to_string()]);
    assert!(run(interrupt).output.status.success());
    let mut said = String::new();
    let stderr = recorder.0.stderr.as_mut().expect("is piped");
    std::io::Read::read_to_string(stderr, &mut said).expect("reads");
    let status = recorder.0.wait().expect("ends");
    assert!(status.success(), "{status}: {said}");
    serde_json::from_str(said.lines().last().unwrap_or_default()).expect("JSON")
}

/// Those that did something have samples; what waited in one call all the time is at least known to be there.
#[track_caller]
fn every_process_is_recorded(trace: &Path, processes: &[u32], waiting: usize) {
    let trace_path = trace.to_str().expect("UTF-8");
    let info = json_of(&["info", "--json", trace_path]);
    assert_eq!(info["damage"], serde_json::json!([]));
    let report = report(trace);
    let samples = by_process(&report, "samples");
    let known: Vec<u64> = array(&report, "processes")
        .map(|p| number(p, "pid"))
        .collect();
    assert!(processes.iter().all(|pid| known.contains(&u64::from(*pid))));
    let missing = processes
        .iter()
        .filter(|pid| samples.get(pid).is_none_or(|n| *n == 0));
    let missing: Vec<_> = missing.collect();
    assert!(missing.len() <= waiting, "{missing:?}: {samples:?}");
}

#[test]
fn redis_is_visited() {
    let server = Server::alone(Kind::Redis);
    visited(&server, &server.family(), 0);
    server.end();
}

#[test]
fn nginx_is_visited() {
    let server = Server::alone(Kind::Nginx);
    let processes = server.family();
    assert_eq!(processes.len(), 3);
    // The master waits for signals.
    visited(&server, &processes, 1);
    server.end();
}

#[test]
fn a_service_on_tokio_is_visited() {
    let server = Server::alone(Kind::Tokio);
    visited(&server, &server.family(), 0);
    server.end();
}

/// The backends of `pgbench` come and go; the one of a client that stays is among those that are compared.
#[test]
fn postgres_is_visited() {
    let server = Server::alone(Kind::Postgres);
    let host = server.address().host();
    server.at_rest();
    let before = server.family().len();
    let mut stays = server
        .address()
        .client(["psql", "-h", &host, "-U", "postgres"]);
    stays.stdin(Stdio::piped());
    let stays = Background(stays.spawn().expect("psql starts"));
    wait_until("its backend is there", || server.family().len() > before);
    // The checkpointer, whoever starts replication, the backend that stays and a writer have little to do.
    visited(&server, &server.family(), 4);
    drop(stays);
    server.end();
}
