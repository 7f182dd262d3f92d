//! Waits that signals end.

use super::{Through, record_program};

fn the_sender_is_known(kind: &str, call: &str) {
    let recorded = record_program(Through::Signals, kind, &[]);
    recorded.wants(kind, call, "waker", "ends_it");
}

/// The same for one of another process.
fn every_sender_is_known(kind: &str, call: &str) {
    the_sender_is_known(kind, call);
    let recorded = record_program(Through::Signals, kind, &["child"]);
    recorded.wants(kind, call, "waker", "ends_it");
}

#[test]
fn a_wait_for_a_signal() {
    every_sender_is_known("sigwait", "sigwait");
    every_sender_is_known("sigwait-thread", "sigwait");
    the_sender_is_known("sigwait-pthread", "sigwait");
    the_sender_is_known("sigwait-raw", "sigwait");
    every_sender_is_known("sigwaitinfo", "sigwait");
    the_sender_is_known("sigtimedwait", "sigwait");
}

#[test]
fn a_wait_for_a_handler() {
    every_sender_is_known("pause", "sigwait");
    every_sender_is_known("sigsuspend", "sigwait");
}

#[test]
fn an_interrupted_wait() {
    every_sender_is_known("sleep", "nanosleep");
    the_sender_is_known("sleep-pthread", "nanosleep");
    the_sender_is_known("clock-sleep", "nanosleep");
    the_sender_is_known("sleep-whole", "nanosleep");
    the_sender_is_known("sleep-last", "nanosleep");
    the_sender_is_known("thrd-sleep", "nanosleep");
    every_sender_is_known("read", "read");
    every_sender_is_known("poll", "poll");
}

#[test]
fn a_pipe_that_a_handler_writes_to() {
    every_sender_is_known("self-pipe", "read");
}

#[test]
fn a_descriptor_of_signals() {
    every_sender_is_known("signalfd", "read");
    every_sender_is_known("poll-signalfd", "poll");
    every_sender_is_known("epoll-signalfd", "epoll_wait");
}
