//! How much of a computation the fallback sampler shows, where nothing passes a hook.

use super::*;
use stackbeat_tests::plain_reader::Trace;
use std::time::{Duration, Instant};

use stackbeat_tests::{Program, compile, scratch, verbatim};

/// A stretch of CPU time without a sample that is longer than this counts as unseen. Samples come each
/// millisecond of CPU time, if the recorder gets a processor.
const GAP_NS: u64 = 100_000_000;

/// The share of the busiest thread's CPU time that lies between samples close to each other.
fn seen(trace: &Trace) -> f64 {
    let cpu = |utid: &u32| trace.samples[utid].last().map_or(0, |row| row.cpu_ns);
    let busiest = trace.samples.keys().max_by_key(|utid| cpu(utid));
    let busiest = busiest.expect("threads");
    let rows = &trace.samples[busiest];
    let mut seen_ns = 0;
    let mut last_ns = 0;
    for row in rows {
        let gap_ns = row.cpu_ns.saturating_sub(last_ns);
        seen_ns += if gap_ns <= GAP_NS { gap_ns } else { 0 };
        last_ns = row.cpu_ns;
    }
    assert!(last_ns > 10 * GAP_NS, "it computes for {last_ns} ns only");
    seen_ns as f64 / last_ns as f64
}

/// One call of a library that computes for seconds: only the sampler can look into it.
#[test]
fn python_in_one_long_call_is_seen_by_the_sampler_only() {
    let script = "
import time
rounds = 1_000_000
while True:
    begin = time.process_time()
    sum(range(rounds))
    if time.process_time() - begin > 0.3: break
    rounds *= 2
sum(range(5 * rounds))
";
    let record = |options: &[&str]| {
        let folder = scratch();
        let python = Program::new(["python3", "-c", script]).options(options);
        let recorded = python.record(folder.path());
        assert!(
            recorded.run.output.status.success(),
            "{}",
            recorded.run.stderr()
        );
        let trace = recorded.decode();
        trace.assert_sound();
        seen(&trace)
    };
    let (with, without) = (record(&[]), record(&["--no-interrupt"]));
    assert!(with >= 0.95, "{with} with the sampler");
    assert!(without < 0.5, "{without} without");
}

#[test]
fn a_query_of_sqlite_is_seen() {
    let folder = scratch();
    let sql = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 15000000)
        select sum(i * 7919 % 1000) from n;";
    let sqlite = Program::new(["sqlite3", ":memory:", sql]);
    let trace = sqlite.record(folder.path()).decode();
    let share = seen(&trace);
    assert!(share >= 0.95, "{share}");
}

/// A thread that blocks these signals and computes in one go, after it has found out how much takes long
/// enough.
const BLOCKER: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
static sigset_t blocked;
static double cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}
__attribute__((noinline)) static void compute(long rounds) {
    for (volatile long i = 0; i < rounds; i++) {}
}
static void *block(void *unused) {
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    long rounds = 1000000;
    for (;; rounds *= 2) {
        double begin = cpu();
        compute(rounds);
        if (cpu() - begin > 0.3) break;
    }
    compute(6 * rounds);
    return unused;
}
int main(int count, char **arguments) {
    (void)count;
    if (strcmp(arguments[1], "all") == 0) sigfillset(&blocked);
    else sigaddset(&blocked, SIGURG);
    sigset_t before, after;
    pthread_t thread;
    pthread_create(&thread, NULL, block, NULL);
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    sigprocmask(SIG_SETMASK, &before, &after);
    struct sigaction urgent, window;
    sigaction(SIGURG, NULL, &urgent);
    sigaction(SIGWINCH, NULL, &window);
    printf("%d %d %d %d\n", sigismember(&before, SIGURG), sigismember(&after, SIGURG),
           urgent.sa_handler == SIG_DFL, window.sa_handler == SIG_DFL);
}
"#;

#[test]
fn a_thread_that_blocks_the_first_signal_is_seen_by_the_second() {
    let folder = scratch();
    let program = compile(folder.path(), "blocker.c", BLOCKER, &[]);
    let program = program.to_str().expect("UTF-8");
    let share = |what| {
        let program = Program::new([program, what]);
        let recorded = program.record_and_compare(folder.path(), verbatim);
        let trace = recorded.decode();
        trace.assert_sound();
        seen(&trace)
    };
    let share_of_one = share("one");
    assert!(share_of_one >= 0.95, "{share_of_one}");
    // Nothing reaches one that blocks both; its CPU time is known.
    share("all");
}

/// A function that allocates now and then and one that does not, half of the time each.
const HALVES: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <time.h>
static volatile unsigned long sum;
static double cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}
__attribute__((noinline)) static void part(void) { for (int i = 0; i < 30000; i++) sum = sum * 31 + i; }
__attribute__((noinline)) static void allocates(double end) { while (cpu() < end) { part(); free(malloc(50)); } }
__attribute__((noinline)) static void computes(double end) { while (cpu() < end) part(); }
int main(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, 0);
    for (int i = 0; i < 3; i++) { allocates(cpu() + 0.3); computes(cpu() + 0.3); }
}
"#;

/// The time between two hooks far apart is nobody's where nothing interrupts the thread.
#[test]
fn a_thread_that_cannot_be_interrupted_has_no_time_made_up() {
    let folder = scratch();
    let program = compile(folder.path(), "halves.c", HALVES, &[]);
    let program = Program::new([program.to_str().expect("UTF-8")]).options(&["--clock", "tick"]);
    let recorded = program.record_and_compare(folder.path(), verbatim);
    let report = report(&recorded.trace);
    let all = number(&report["totals"], "cpu_ns") as f64;
    let mut functions = array(&report, "functions");
    let found = functions.find(|function| function["name"] == "allocates");
    let share = found.map_or(0.0, |found| number(&found["total"], "cpu_ns") as f64 / all);
    assert!((0.4..0.6).contains(&share), "{share}");
}

/// PostgreSQL's processes block SIGURG, and fetch it from a signalfd.
#[test]
fn a_query_of_postgres_is_seen() {
    let server = Server::recorded(Kind::Postgres, &[]);
    let host = server.address().host();
    let mut rounds = 8_000_000;
    loop {
        let sql = format!(
            "do $$ declare s bigint := 0; begin
                for i in 1..{rounds} loop s := s + i % 7; end loop; end $$"
        );
        let begin = Instant::now();
        let query = ["psql", "-h", &host, "-U", "postgres", "-c", &sql];
        server.address().tell(query);
        // On a busy machine it may have waited for most of the time.
        if begin.elapsed() > Duration::from_secs(3) && rounds >= 64_000_000 {
            break;
        }
        rounds *= 2;
    }
    let ended = server.end();
    let trace = Trace::read(&ended.trace());
    let share = seen(&trace);
    assert!(share >= 0.95, "{share}");
}
