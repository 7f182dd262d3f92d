//! Deadlocks: seen while the program hangs, and in its trace.

use super::{contains, report};
use serde_json::Value;
use stackbeat_tests::{Background, Program, compile, run, scratch, stackbeat, wait_until};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Numbers behind a word that stands first in a line.
fn numbers(text: &str, word: &str) -> BTreeSet<u64> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(word));
    lines.map(|n| n.trim().parse().expect("a number")).collect()
}

/// What `status --locks` says; `None` while the session is not there.
fn locks(recorder: u32) -> Option<Value> {
    let mut command = Command::new(stackbeat());
    command.args(["status", "--json", "--locks", &recorder.to_string()]);
    let answer = run(command);
    let is_there = answer.output.status.success();
    is_there.then(|| serde_json::from_str(&answer.stdout()).expect("JSON"))
}

fn tids(cycle: &Value) -> BTreeSet<u64> {
    let tids = cycle.as_array().expect("tids").iter();
    tids.map(|tid| tid.as_u64().expect("a tid")).collect()
}

fn a_circle_of(members: u64) {
    let folder = scratch();
    let program = compile(folder.path(), "deadlock.c", include_str!("deadlock.c"), &[]);
    let program = program.to_str().expect("UTF-8");
    let (trace, said) = (folder.path().join("t.beat"), folder.path().join("said"));
    let output = std::fs::File::create(&said).expect("a file");
    let command = Program::new([program, &members.to_string()]);
    let mut recorder = command.recorded_command(&trace);
    recorder.stdout(output).stderr(Stdio::null());
    let mut recorder = Background(recorder.spawn().expect("starts"));
    let said = || std::fs::read_to_string(&said).expect("a file");
    let mut now = Value::Null;
    let expected = || (numbers(&said(), "member"), numbers(&said(), "bystander"));
    wait_until("all threads wait for locks", || {
        now = locks(recorder.0.id()).unwrap_or_default();
        now["waits"]
            .as_array()
            .is_some_and(|waits| waits.len() as u64 == members + 1)
    });
    let (in_circle, bystander) = expected();
    assert_eq!((in_circle.len() as u64, bystander.len()), (members, 1));
    let deadlocks = now["deadlocks"].as_array().expect("deadlocks");
    assert_eq!(deadlocks.len(), 1, "{now:#}");
    assert_eq!(tids(&deadlocks[0]), in_circle, "{now:#}");
    for wait in now["waits"].as_array().expect("waits") {
        let tid = wait["tid"].as_u64().expect("a tid");
        let function = match in_circle.contains(&tid) {
            true => "wants_the_next",
            false => "bystander",
        };
        assert!(contains(&wait["stack"], function), "{wait:#}");
    }
    // The recorder puts it into the trace by itself. What the trace holds meanwhile is read from a dump.
    let dump = folder.path().join("dump.beat");
    wait_until("the deadlock is in the trace", || {
        let mut command = Command::new(stackbeat());
        command
            .args(["dump", "--force", &recorder.0.id().to_string(), "-o"])
            .arg(&dump);
        let taken = run(command);
        assert!(taken.output.status.success(), "{}", taken.stderr());
        let report = report(&dump);
        let threads = &report["deadlocks"][0]["threads"];
        threads.as_array().is_some_and(|threads| {
            threads
                .iter()
                .all(|t| contains(&t["stack"], "wants_the_next"))
        })
    });
    let pid = now["waits"][0]["pid"].as_i64().expect("a pid");
    // SAFETY: sends a signal.
    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    recorder.0.wait().expect("ends");
    let report = report(&trace);
    let deadlocks = report["deadlocks"].as_array().expect("deadlocks");
    assert_eq!(deadlocks.len(), 1, "{deadlocks:#?}");
    // The first one is at the begin of the array.
    let locks = deadlocks[0]["threads"].as_array().expect("threads");
    let locks = locks.iter().map(|thread| thread["waited_for"].as_str());
    let locks: BTreeSet<&str> = locks.map(|lock| lock.expect("a name")).collect();
    assert_eq!(locks.len() as u64, members, "{deadlocks:#?}");
    assert_eq!(locks.first(), Some(&"locks"), "{deadlocks:#?}");
    assert!(locks.contains("locks+0x28"), "{deadlocks:#?}");
    let utids: BTreeSet<u64> = deadlocks[0]["threads"]
        .as_array()
        .expect("threads")
        .iter()
        .map(|thread| thread["utid"].as_u64().expect("a utid"))
        .collect();
    let threads = report["threads"].as_array().expect("threads").iter();
    let expected: BTreeSet<u64> = threads
        .filter(|thread| in_circle.contains(&thread["tid"].as_u64().expect("a tid")))
        .map(|thread| thread["utid"].as_u64().expect("a utid"))
        .collect();
    assert_eq!(utids, expected);
}

#[test]
fn two_threads_that_wait_for_each_other() {
    a_circle_of(2);
}

#[test]
fn three_in_a_circle() {
    a_circle_of(3);
}
