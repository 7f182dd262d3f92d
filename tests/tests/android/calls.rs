//! Calls of bionic's that hooks of the usual kind cannot stand in front of: `vfork` returns twice, `execl`
//! and `syscall` have any number of arguments. An app makes them, and says by its own clock what they did.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use stackbeat_core::probe::Probe;
use stackbeat_proto::columns::SampleRow;
use stackbeat_proto::v1::LongWait;
use stackbeat_proto::v1::packet::Body;
use stackbeat_tests::tool::text;
use stackbeat_tests::{info, scratch};
use tempfile::TempDir;

use crate::art::app::library;

use super::session::{self, CLOCK_NS, NEAR_NS, Session, begin_and_end};

const CHILDREN: i64 = 20;
const TURNS: usize = 20;
/// Of `children` alone.
const FRAMES: usize = 31;

fn long_waits(session: &Session) -> Vec<LongWait> {
    let waits = session::bodies(&session.path).filter_map(|body| match body {
        Body::LongWait(wait) => Some(wait),
        _ => None,
    });
    waits.collect()
}

/// The child is a child for libc, what it does is not its parent's, and the parent waits for it.
fn check_children(session: &Session) {
    let said = session.said("vfork ");
    let rows = session.waits(Probe::Vfork);
    for child in &said {
        assert_eq!(child[3..], [1, 1], "its own pid, its status: {said:?}");
    }
    assert_eq!(said.len() as i64, CHILDREN);
    // Each lies in the time that the program saw, and is as long.
    let found: Vec<_> = said
        .iter()
        .map(|child| {
            let mut waits = rows.iter().map(|row| begin_and_end(row));
            let wait = waits
                .find(|(begin, end)| begin + CLOCK_NS >= child[0] && *end <= child[1] + CLOCK_NS);
            wait.unwrap_or_else(|| panic!("{child:?} in {rows:?}"))
        })
        .collect();
    // Somebody else may take the processor at begin or end.
    let lengths = said.iter().zip(&found);
    let near = lengths.filter(|(child, wait)| child[1] - child[0] - (wait.1 - wait.0) < NEAR_NS);
    assert!(near.count() * 2 >= said.len(), "{found:?} of {said:?}");
    // Their stacks go through the hook, up to the program's begin.
    let depth = |row: &&SampleRow| session.trace.stack(row.node).len();
    assert!(rows.iter().any(|row| depth(row) > FRAMES));
    // The children's sleeps and writes are in no trace.
    assert_eq!(session.waits(Probe::Nanosleep).len(), 0);
}

/// Their waits have begin and end, and who woke them is known.
fn check_futexes(session: &Session) {
    let said = session.said("futex ");
    assert_eq!(said.len(), TURNS);
    let threads = &session.trace.threads;
    let main = session.main_thread();
    let waits: Vec<LongWait> = long_waits(session)
        .into_iter()
        .filter(|wait| threads[&wait.utid].name == "waits" && wait.probe == Probe::FutexWait as u32)
        .collect();
    // Now and then the word has changed before it waits.
    assert!(waits.len() * 2 >= TURNS, "{waits:?}");
    let known = waits.iter().filter(|wait| wait.waker_utid == main);
    assert!(known.count() * 10 >= waits.len() * 9, "{waits:?}");
    for (begin, end) in waits
        .iter()
        .map(|wait| (wait.begin_ns as i64, wait.end_ns as i64))
    {
        let is_inside = |said: &Vec<i64>| begin + NEAR_NS >= said[0] && end <= said[1] + NEAR_NS;
        assert!(said.iter().any(is_inside), "{begin} {end} {said:?}");
    }
}

fn compiled() -> TempDir {
    let scratch = scratch();
    session::compile(scratch.path(), "calls.cc", "calls", &["-w"]);
    scratch
}

#[test]
fn vfork_lists_and_raw_calls_do_what_they_do_and_are_recorded() {
    let scratch = compiled();
    let traces = scratch.path().join("traces");
    let sessions = Session::all(&scratch.path().join("calls"), &traces);
    assert_eq!(sessions.len(), 2);
    for (n, session) in sessions.iter().enumerate() {
        // The second one has no file for its records.
        let in_memory = session.trace.header.config.as_ref().map(|c| c.in_memory);
        assert_eq!(in_memory, Some(n == 1));
        let placed = session.line("bionic, by slots: ");
        for name in ["vfork", "execl", "execle", "execlp", "syscall"] {
            let mut names = placed.split([' ', ',']);
            assert!(names.any(|placed| placed == name), "{name}: {placed}");
        }
        assert_eq!(session.trace.lost_records(), 0);
        assert_eq!(session.said("lists "), [[9, 3, 42, 98, 1]]);
        assert_eq!(session.said("others "), [[1, 1, 1]]);
        check_children(session);
        check_futexes(session);
    }
    assert_eq!(files(&traces), 2, "nothing but the traces is left");
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("it is there").count()
}

#[test]
fn records_without_a_file_end_with_their_app() {
    let scratch = compiled();
    let traces = scratch.path().join("traces");
    let run = |what: &str| {
        let mut command = Command::new(scratch.path().join("calls"));
        let output = command.arg(library()).arg(&traces).arg(what).output();
        output.expect("the program runs")
    };
    let died = run("dies");
    assert_eq!(died.status.signal(), Some(libc::SIGKILL), "{died:?}");
    let said = text(&died.stdout);
    let trace = said.trim().strip_prefix("trace ").expect("a trace");
    assert_eq!(files(&traces), 1, "the trace alone");
    let saved = text(&run("save").stdout);
    assert_eq!(saved.trim(), "saved", "nothing is there to complete");
    // What was written by then can be read, and says why there is no more.
    let info = info(Path::new(trace));
    assert_eq!(info["config"]["in_memory"], true, "{info:#}");
    assert_eq!(info["recording"]["outcome"], "running", "{info:#}");
    assert!(info["counts"]["samples"].as_u64() > Some(50), "{info:#}");
}
