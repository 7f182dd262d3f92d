//! Who makes whom wait: programs whose wakers are known by construction. For how long: programs that measure
//! it.

mod deadlock;
mod descriptors;
mod measured;
mod no_waits;
mod real;
mod signal_waits;
mod tracepoints;
mod waits_for_children;

use serde_json::Value;
use stackbeat_tests::{Program, compile, report, scratch};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Waits of one run.
const ROUNDS: u64 = 40;

/// What a program of these tests waits for.
#[derive(Clone, Copy)]
enum Through {
    Locks,
    Descriptors,
    Signals,
}

impl Through {
    /// The program, compiled once.
    fn program(self) -> &'static Path {
        static PROGRAMS: [OnceLock<(tempfile::TempDir, PathBuf)>; 3] =
            [const { OnceLock::new() }; 3];
        let (name, kinds) = match self {
            Through::Locks => ("locks.c", include_str!("locks.c")),
            Through::Descriptors => ("descriptors.c", include_str!("descriptors.c")),
            Through::Signals => ("signals.c", include_str!("signals.c")),
        };
        let (_, program) = PROGRAMS[self as usize].get_or_init(|| {
            let folder = scratch();
            let source = [include_str!("head.c"), kinds, include_str!("rounds.c")].concat();
            let program = compile(folder.path(), name, &source, &[]);
            (folder, program)
        });
        program
    }
}

fn contains(stack: &Value, function: &str) -> bool {
    let stack = stack.as_array().expect("a stack");
    stack.iter().any(|name| name == function)
}

/// A recorded run.
struct Recorded {
    said: String,
    report: Value,
}

fn record(kind: &str) -> Recorded {
    record_program(Through::Locks, kind, &[])
}

fn record_program(through: Through, kind: &str, more: &[&str]) -> Recorded {
    let folder = scratch();
    let program = through.program().to_str().expect("UTF-8");
    let rounds = ROUNDS.to_string();
    let command = [&[program, kind, &rounds], more].concat();
    let recorded = Program::new(command).record(folder.path());
    let run = &recorded.run;
    assert!(run.output.status.success(), "{kind}: {}", run.stderr());
    Recorded {
        said: run.stdout(),
        report: report(&recorded.trace),
    }
}

impl Recorded {
    /// The first tid that the program said after this word.
    fn tid(&self, word: &str) -> u64 {
        let mut tids = self.said.lines();
        tids.find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
            .expect("was said")
    }

    /// The utids of the threads whose tids the program said after this word.
    fn utids(&self, word: &str) -> Vec<u64> {
        let tids: Vec<u64> = self
            .said
            .lines()
            .filter_map(|line| line.strip_prefix(word)?.trim().parse().ok())
            .collect();
        assert!(!tids.is_empty(), "no {word} in {}", self.said);
        let threads = self.report["threads"].as_array().expect("threads");
        let of_tid = threads.iter().filter(|thread| {
            let tid = thread["tid"].as_u64().expect("a tid");
            tids.contains(&tid)
        });
        of_tid
            .map(|thread| thread["utid"].as_u64().expect("a utid"))
            .collect()
    }

    /// Wants at least as many waits of the waiter in this call as there were rounds, of all of them 99 % with
    /// one of these threads as the one that ended them, in this function.
    fn wants(&self, kind: &str, call: &str, wakers: &str, function: &str) {
        let (waiter, wakers) = (self.utids("waiter"), self.utids(wakers));
        let (mut all, mut right) = (0, 0);
        for pair in self.pairs(call, waiter[0]) {
            let count = pair["count"].as_u64().expect("a count");
            let waker = pair["waker_utid"].as_u64().expect("a utid");
            all += count;
            if wakers.contains(&waker) && contains(&pair["waker_stack"], function) {
                right += count;
            }
        }
        assert!(
            all >= ROUNDS && right * 100 >= all * 99,
            "{kind}: {all} of {ROUNDS} waits, {right} with the right waker: {:#}",
            self.report["waits"]
        );
    }

    /// Waits of a thread in this call, made by the function that waits.
    fn pairs(&self, call: &str, thread: u64) -> impl Iterator<Item = &Value> {
        let pairs = self.report["waits"]["pairs"].as_array().expect("pairs");
        pairs.iter().filter(move |pair| {
            pair["utid"] == thread
                && pair["call"] == call
                && contains(&pair["stack"], "waits_for_it")
        })
    }
}

/// Records one kind of wait and wants every one of them with the right thread and the right stack.
fn every_waker_is_known(kind: &str, call: &str) -> Recorded {
    let recorded = record(kind);
    recorded.wants(kind, call, "waker", "ends_it");
    recorded
}

/// The same, and that the waker held the lock when the wait began.
fn every_owner_is_known(kind: &str, call: &str) {
    let recorded = every_waker_is_known(kind, call);
    let (waiter, waker) = (recorded.utids("waiter"), recorded.utids("waker"));
    for pair in recorded.pairs(call, waiter[0]) {
        assert_eq!(
            pair["owner_utids"],
            serde_json::json!(waker),
            "{kind}: {pair:#}"
        );
    }
}

#[test]
fn a_mutex() {
    every_owner_is_known("mutex", "pthread_mutex_lock");
}

#[test]
fn a_reader_writer_lock() {
    every_owner_is_known("write-behind-writer", "pthread_rwlock_wrlock");
    every_owner_is_known("read-behind-writer", "pthread_rwlock_rdlock");
    every_waker_is_known("write-behind-reader", "pthread_rwlock_wrlock");
}

#[test]
fn a_condition() {
    every_waker_is_known("signal", "pthread_cond_wait");
    every_waker_is_known("broadcast", "pthread_cond_wait");
}

#[test]
fn a_semaphore() {
    every_waker_is_known("semaphore", "sem_wait");
}

#[test]
fn a_barrier() {
    every_waker_is_known("barrier", "pthread_barrier_wait");
}

#[test]
fn a_raw_futex() {
    every_waker_is_known("futex", "futex wait");
}

#[test]
fn the_end_of_a_thread() {
    record("join").wants("join", "pthread_join", "ender", "start_thread");
}

#[test]
fn the_end_of_a_child() {
    record("child").wants("child", "wait", "ender", "child_ends_it");
    record("any-child").wants("any-child", "wait", "ender", "child_ends_it");
}

/// Signals of the sampling clock come at any instruction of the hooks around a wait, and a processor of a
/// virtual machine may be taken away while one begins.
#[test]
fn every_sleep_is_a_record_wherever_the_clock_interrupts() {
    let folder = scratch();
    let program = compile(folder.path(), "naps.c", include_str!("naps.c"), &[]);
    let program = program.to_str().expect("UTF-8");
    for clock in [&["--clock", "timer"][..], &["--in-process"]] {
        // None is left out to save its cost.
        let options = [clock, &["--budget", "0"]].concat();
        let recorded = Program::new([program, "2000"])
            .options(&options)
            .record(folder.path());
        assert_eq!(recorded.run.shell_status(), 0);
        let report = report(&recorded.trace);
        let sites = report["blocking_sites"].as_array().expect("an array");
        let sleeps = sites.iter().filter(|site| site["cause"] == "sleep");
        let sleeps: u64 = sleeps
            .map(|site| site["count"].as_u64().expect("a count"))
            .sum();
        assert_eq!(sleeps, 4 * 2000, "{clock:?}");
    }
}
