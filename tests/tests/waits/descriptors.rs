//! Waits for what others write, close or connect.

use stackbeat_tests::{Program, compile, report, scratch};

use super::{Through, contains, record_program};

/// Records one kind of wait, ended by another thread and by a child, and wants every one with the right
/// thread and the right stack.
fn every_writer_is_known(kind: &str, call: &str) {
    let recorded = record_program(Through::Descriptors, kind, &[]);
    recorded.wants(kind, call, "waker", "ends_it");
    let recorded = record_program(Through::Descriptors, kind, &["child"]);
    recorded.wants(kind, call, "waker", "ends_it");
}

#[test]
fn a_pipe() {
    every_writer_is_known("pipe", "read");
}

#[test]
fn a_pipe_while_the_programs_own_signals_arrive() {
    every_writer_is_known("alarmed-pipe", "read");
}

#[test]
fn the_end_of_a_pipe() {
    let closed = record_program(Through::Descriptors, "close", &[]);
    closed.wants("close", "read", "waker", "ends_it");
    let exited = record_program(Through::Descriptors, "child-exit", &[]);
    exited.wants("child-exit", "read", "ender", "child_ends_it");
}

#[test]
fn an_eventfd() {
    every_writer_is_known("event", "read");
    every_writer_is_known("epoll-event", "epoll_wait");
}

#[test]
fn one_of_several_descriptors() {
    every_writer_is_known("poll-one", "poll");
    every_writer_is_known("poll", "poll");
    every_writer_is_known("select", "select");
    every_writer_is_known("epoll-pipe", "epoll_wait");
    every_writer_is_known("epoll-two-sets", "epoll_wait");
}

#[test]
fn a_socketpair() {
    every_writer_is_known("socketpair", "recv");
    every_writer_is_known("epoll-socketpair", "epoll_wait");
}

#[test]
fn a_connection() {
    every_writer_is_known("tcp", "recv");
    every_writer_is_known("unix", "recv");
}

#[test]
fn a_new_connection() {
    every_writer_is_known("accept-tcp", "accept");
    every_writer_is_known("accept-unix", "accept");
}

/// libc makes the pipe and closes it past all hooks, and the next one has its number.
#[test]
fn the_pipes_of_popen() {
    let folder = scratch();
    let source = r#"
        #include <stdio.h>
        __attribute__((noinline)) static int waits_for_it(FILE *stream) {
            char line[100];
            return fgets(line, sizeof line, stream) ? *line : 0;
        }
        int main(void) {
            int sum = 0;
            for (int i = 0; i < 5; i++) {
                FILE *stream = popen("sleep 0.1; echo a", "r");
                sum += waits_for_it(stream);
                pclose(stream);
            }
            return sum != 5 * 'a';
        }"#;
    let program = compile(folder.path(), "popen.c", source, &[]);
    let recorded = Program::new([program.to_str().expect("UTF-8")]).record(folder.path());
    assert!(recorded.run.output.status.success());
    let report = report(&recorded.trace);
    let pairs = report["waits"]["pairs"].as_array().expect("pairs");
    let reads = pairs
        .iter()
        .filter(|pair| pair["call"] == "read" && contains(&pair["stack"], "waits_for_it"));
    let (mut all, mut known) = (0, 0);
    for pair in reads {
        let count = pair["count"].as_u64().expect("a count");
        all += count;
        known += count * u64::from(pair["waker_utid"] != 0);
    }
    assert_eq!((all, known), (5, 5), "{:#}", report["waits"]);
}
