//! `stackbeat attach` on servers while they answer: every process is recorded, and left as it was.
#![cfg(target_arch = "x86_64")]

use serde_json::Value;
use stackbeat_tests::process_tree::{
    Slots, State, Task, file_mappings, is_attached, is_hooked, slots, slots_left_changed, tasks,
};
use stackbeat_tests::servers::{Kind, Server};
use stackbeat_tests::tool_json::{array, number};
use stackbeat_tests::{Background, end_recorder, info, json_of, report, stackbeat, wait_until};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Attach sessions of one server.
const SESSIONS: usize = 2;

/// An attach session lasts at least that long: by then, all that wait have been seen to.
const STAY: Duration = Duration::from_secs(2);
/// How much later than the session a wait may be seen to begin that began before: whoever is stopped for a
/// session waits anew.
const LATE: Duration = Duration::from_millis(900);

/// What a process is before anybody comes.
struct Before {
    pid: u32,
    state: State,
    slots: Slots,
    files: BTreeMap<(String, u64), usize>,
}

/// Attaches to a server whose processes are these and stay; others may come and go.
fn attach_to(server: &Server, processes: &[u32]) {
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
    for session in 0..SESSIONS {
        let load = server.load();
        load.rounds(1);
        let trace = server.path("session.beat");
        let mut command = Command::new(stackbeat());
        command
            .args(["attach", "-f", "--json", "--children", "-o", &trace])
            .arg(server.pid().to_string())
            .stderr(Stdio::piped());
        let mut recorder = Background(command.spawn().expect("starts"));
        wait_until("an agent is in every process", || {
            let ended = recorder.0.try_wait().expect("is our child");
            assert!(ended.is_none(), "{ended:?}");
            processes.iter().all(|pid| is_attached(*pid))
        });
        let (began, all) = (Instant::now(), all_tasks(processes));
        load.rounds(4);
        std::thread::sleep(STAY.saturating_sub(began.elapsed()));
        let (stayed, later) = (began.elapsed(), all_tasks(processes));
        for pid in processes {
            assert!(is_hooked(*pid), "session {session}: no hook is in {pid}");
        }
        let summary = end_recorder(&mut recorder);
        let attached = number(&summary, "attached_descendants");
        assert!(attached >= processes.len() as u64 - 1, "{summary}");
        load.rounds(2);
        load.end();
        server.at_rest();
        for before in &before {
            let (pid, is) = (before.pid, State::of(before.pid));
            assert_eq!(is, before.state, "session {session}, {pid}");
            let changed = slots_left_changed(pid, &before.slots);
            assert!(changed.is_empty(), "session {session}, {pid}: {changed:x?}");
            assert!(
                !is_hooked(pid),
                "session {session}: a hook is left in {pid}"
            );
            files.entry(pid).or_default().push(file_mappings(pid));
        }
        every_process_is_recorded(Path::new(&trace), processes);
        let stay = all.into_iter().filter_map(|(thread, before)| {
            let after = later.get(&thread)?;
            let waits = before.call.is_some() && before == *after;
            Some((thread, before, waits))
        });
        every_thread_is_recorded(Path::new(&trace), stay, stayed);
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

/// The threads of these processes, by pid and tid.
fn all_tasks(processes: &[u32]) -> BTreeMap<(u32, u32), Task> {
    let of_process = |pid: &u32| {
        let pid = *pid;
        tasks(pid)
            .into_iter()
            .map(move |task| ((pid, task.tid), task))
    };
    processes.iter().flat_map(of_process).collect()
}

#[track_caller]
fn every_process_is_recorded(trace: &Path, processes: &[u32]) {
    assert_eq!(info(trace)["damage"], serde_json::json!([]));
    let report = report(trace);
    let known: Vec<u64> = array(&report, "processes")
        .map(|p| number(p, "pid"))
        .collect();
    assert!(processes.iter().all(|pid| known.contains(&u64::from(*pid))));
}

/// Threads that were there all the time have one row each. What is known of one is where it did something, or
/// that it waited (`waits`: in this call, since before): then for how long, and where.
#[track_caller]
fn every_thread_is_recorded(
    trace: &Path,
    threads: impl Iterator<Item = ((u32, u32), Task, bool)>,
    stayed: Duration,
) {
    let report = report(trace);
    let mut rows: BTreeMap<(u32, u32), Vec<&Value>> = BTreeMap::new();
    for row in array(&report, "threads") {
        let thread = (number(row, "pid") as u32, number(row, "tid") as u32);
        rows.entry(thread).or_default().push(row);
    }
    let twice: Vec<_> = rows.iter().filter(|(_, rows)| rows.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    for (thread, task, waits) in threads {
        let row = rows.get(&thread).and_then(|rows| rows.first());
        let row = row.unwrap_or_else(|| panic!("{thread:?} {task:?} has no row"));
        assert!(
            number(row, "samples") + number(row, "blocked_ns") > 0,
            "{task:?}: {row}"
        );
        if waits {
            let least = stayed.saturating_sub(LATE).as_nanos() as u64;
            assert!(number(row, "blocked_ns") > least, "{task:?}: {row}");
            assert_waits_there(trace, &task);
        }
    }
}

/// The longest wait of a thread names the call that it is in, which began before the session.
#[track_caller]
fn assert_waits_there(trace: &Path, task: &Task) {
    // Numbers of x86-64, and functions that wait in them.
    let functions: &[&str] = match task.call {
        Some(0) => &["read"],
        Some(7 | 271) => &["poll"],
        Some(23 | 270) => &["select"],
        Some(61 | 247) => &["wait"],
        Some(130) => &["sigsuspend", "sigwait"],
        Some(202) => &["pthread_cond", "futex_wait"],
        Some(230) => &["sleep"],
        Some(232 | 281) => &["epoll"],
        call => panic!("which call is {call:?} of {task:?}?"),
    };
    let (trace, tid) = (trace.to_str().expect("UTF-8"), task.tid.to_string());
    let report = json_of(&["report", "--json", "--top", "0", "--thread", &tid, trace]);
    let sites = array(&report, "blocking_sites");
    let longest = sites.max_by_key(|site| number(site, "longest_ns"));
    let longest = longest.unwrap_or_else(|| panic!("{task:?} waits nowhere"));
    // One that began anew during the attach is in a hook, which is no frame of its stack.
    let said = format!("{} {}", longest["call"], longest["stack"]);
    assert!(
        functions.iter().any(|function| said.contains(function)),
        "{task:?}: {longest}"
    );
}

#[test]
fn redis_is_attached_to() {
    let server = Server::alone(Kind::Redis);
    attach_to(&server, &server.family());
    server.end();
}

#[test]
fn nginx_is_attached_to() {
    let server = Server::alone(Kind::Nginx);
    let processes = server.family();
    assert_eq!(processes.len(), 3);
    attach_to(&server, &processes);
    server.end();
}

#[test]
fn a_service_on_tokio_is_attached_to() {
    let server = Server::alone(Kind::Tokio);
    attach_to(&server, &server.family());
    server.end();
}

/// The backends of `pgbench` come and go; the one of a client that stays is among those that are compared.
#[test]
fn postgres_is_attached_to() {
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
    attach_to(&server, &server.family());
    drop(stays);
    server.end();
}
