//! The collector's signals never disturb a call: no EINTR, no short count, no early return, in any kind
//! of blocking call, with every thread interrupted thousands of times a second.

use stackbeat_tests::c_programs::{Session, assert_same, compile, run};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn signals_disturb_no_call() {
    nothing_is_disturbed(&[]);
}

#[test]
fn signals_disturb_no_call_of_threads_that_block_the_first() {
    nothing_is_disturbed(&["-DBLOCKS_FIRST"]);
}

/// Runs the program, compiled with these flags, without us and interrupted.
fn nothing_is_disturbed(flags: &[&str]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(folder.path(), "storm.c", flags);
    let plain = run(&mut Command::new(&program));
    let session = Session::new()
        .tick(Duration::from_micros(200))
        .interrupt(Duration::from_micros(50));
    // A loaded machine leaves the sender little time: then the program runs again.
    let enough = 1000;
    for _ in 0..20 {
        let hooked = run(&mut session.command(&program));
        assert_same("storm.c", &plain, &hooked);
        if session.sent.load(Ordering::Relaxed) > enough {
            return;
        }
    }
    let sent = session.sent.load(Ordering::Relaxed);
    panic!("only {sent} signals were sent");
}
