//! Servers that start with the recording switched off, and are switched on and off many times under load:
//! nothing is captured before, and nothing stays behind.

use super::*;
use stackbeat_collector::session::control::client;
use stackbeat_collector::session::protocol::Request;
use stackbeat_tests::process_tree::{State, file_mappings, status};

/// Switches of each measured stretch.
const SWITCHES: usize = 150;
/// What the memory of a process may grow by while it answers requests, kB. A leak of 64 KiB a switch would be
/// 9,600.
const GROWTH_KB: u64 = 6_000;

struct Now {
    pid: u32,
    state: State,
    files: usize,
    private_kb: u64,
}

impl Now {
    fn of(pid: u32) -> Now {
        let private = status(pid, "RssAnon");
        let private = private.split(' ').next().and_then(|kb| kb.parse().ok());
        Now {
            pid,
            state: State::of(pid),
            files: file_mappings(pid).values().sum(),
            private_kb: private.unwrap_or(0),
        }
    }
}

fn switched(kind: Kind) {
    let server = Server::recorded(kind, &["--start-disabled"]);
    let session = server.status();
    assert!(!session.capturing);
    // What a server does once, it has done by then.
    let load = server.load();
    load.rounds(3);
    let disabled = server.status();
    // The begin and the end of each thread are kept always.
    assert!(
        disabled.samples <= 2 * u64::from(disabled.threads),
        "{disabled:?}"
    );
    let switch = |times: usize, load: &Load| {
        for time in 0..times {
            for request in [Request::Start {}, Request::Stop {}] {
                let reply = client::ask(&session.session, &request).expect("is done");
                let is_on = reply.session.expect("a status").capturing;
                assert_eq!(is_on, request == Request::Start {});
            }
            // Hooks meet some of the stretches.
            if time % 50 == 0 {
                client::ask(&session.session, &Request::Start {}).expect("is done");
                load.rounds(1);
                client::ask(&session.session, &Request::Stop {}).expect("is done");
            }
        }
    };
    switch(SWITCHES, &load);
    load.end();
    server.at_rest();
    let before: Vec<Now> = server.family().into_iter().map(Now::of).collect();
    let recorder = Now::of(session.collector_pid);
    let load = server.load();
    switch(SWITCHES, &load);
    load.end();
    server.at_rest();
    let after: Vec<Now> = server.family().into_iter().map(Now::of).collect();
    assert_eq!(after.len(), before.len(), "its processes");
    for (now, then) in after.iter().zip(&before) {
        let pid = now.pid;
        assert_eq!((pid, &now.state), (then.pid, &then.state));
        // The agent looks into a module's file when a stack first leads there.
        assert!(now.files <= then.files + 10, "{pid}: {} files", now.files);
        let (now, then) = (now.private_kb, then.private_kb);
        assert!(now <= then + GROWTH_KB, "{pid}: {now} kB, {then} before");
    }
    let now = Now::of(session.collector_pid);
    assert_eq!(now.state.threads, recorder.state.threads);
    let open = |now: &Now| now.state.descriptors.len();
    // It keeps one for each thread that it has met.
    assert!(open(&now) <= open(&recorder) + 30, "{:?}", now.state);
    assert!(server.status().samples > 0);
    let ended = server.end();
    let report = report(&ended.trace());
    let is_switch = |e: &&Value| {
        e["kind"] == "setting"
            && e["text"]
                .as_str()
                .is_some_and(|t| t.starts_with("capturing"))
    };
    let switches = array(&report, "events").filter(is_switch).count();
    let stretches = SWITCHES / 50;
    // It began switched off.
    assert_eq!(switches, 1 + 2 * 2 * (SWITCHES + stretches));
}

#[test]
fn redis_starts_disabled_and_is_switched() {
    switched(Kind::Redis);
}

#[test]
fn nginx_starts_disabled_and_is_switched() {
    switched(Kind::Nginx);
}

#[test]
fn postgres_starts_disabled_and_is_switched() {
    switched(Kind::Postgres);
}
