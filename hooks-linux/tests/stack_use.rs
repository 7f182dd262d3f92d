//! What hooks and signals take of the program's stack, by painting: each call runs on a stack of its own,
//! with and without the agent.

use stackbeat_tests::c_programs::{Session, compile, run};
use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::time::Duration;

/// The most that a hook may take beside what the call itself takes: coroutines have stacks of 4 KiB.
const MOST_BYTES: i64 = 512;
/// The same for calls that look for who ends a wait, a descriptor's first use, calls by `syscall`, and exec.
const MOST_BYTES_OF_SOME: i64 = 848;
const SOME: &str = "a_first_getc a_first_putc a_first_read a_first_write a_barrier a_connection a_contended_lock a_contended_mutex a_raw_poll a_raw_read a_raw_sleep a_failed_exec a_failed_list a_futex a_message a_pipe a_pipe_in_epoll a_pipe_in_poll \
    a_poll a_ppoll a_select a_socket a_timed_signal a_vector a_waiting_read a_woken_futex an_awaited_pipe an_epoll an_eventfd";

fn bytes(output: &Output) -> BTreeMap<String, i64> {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let rows = text.lines().map(|line| {
        let (name, bytes) = line.split_once(' ').expect("a name and a number");
        (name.to_owned(), bytes.parse().expect("a number"))
    });
    rows.collect()
}

/// The calls that take more than they may.
fn too_much(plain: &BTreeMap<String, i64>, hooked: &BTreeMap<String, i64>) -> Vec<String> {
    assert!(plain.len() > 50 && plain.len() == hooked.len());
    let more = hooked
        .iter()
        .map(|(name, bytes)| (name, bytes - plain[name]));
    let most = |name: &str| match SOME.split_whitespace().any(|some| some == name) {
        true => MOST_BYTES_OF_SOME,
        false => MOST_BYTES,
    };
    more.filter(|(name, more)| *more > most(name))
        .map(|(name, more)| format!("{name} {more}"))
        .collect()
}

#[test]
fn a_capture_takes_little_of_the_programs_stack_and_a_signal_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(folder.path(), "stack_use.c", &["-ldl", "-lrt"]);
    let plain = bytes(&run(&mut Command::new(&program)));

    let session = Session::new().capture_all();
    let hooked = bytes(&run(&mut session.command(&program)));
    assert!(session.samples().len() > 20, "every kind of hook captures");
    let more = too_much(&plain, &hooked);
    assert!(more.is_empty(), "hooks take too much stack: {more:?}");

    let session = Session::new()
        .tick(Duration::from_millis(1))
        .interrupt(Duration::from_micros(300));
    let interrupted = bytes(&run(&mut session.command(&program)));
    let sent = session.sent.load(std::sync::atomic::Ordering::Relaxed);
    assert!(sent > 100, "{sent} signals");
    let more = too_much(&plain, &interrupted);
    assert!(
        more.is_empty(),
        "signals take the program's stack: {more:?}"
    );
    let computing = "computing";
    assert_eq!(
        interrupted[computing], plain[computing],
        "a signal takes nothing"
    );
}
