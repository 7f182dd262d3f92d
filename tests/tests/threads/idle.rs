//! Thousands of waiting threads: what they cost the recorder does not grow with their number, by count, and
//! one that begins to compute without passing a hook is met all the same.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;

use stackbeat_tests::compile;
use stackbeat_tests::tool_json::figure;

use stackbeat_tests::tool::{json, stackbeat, text};

const WAITING: u64 = 2_000;

/// So many threads wait for a condition, so many outside of any hook (a system call that is not libc's). Then
/// `main` works for some rounds between short sleeps, or a thread that slept outside of hooks computes
/// without any, for four seconds of its CPU time.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t end = PTHREAD_COND_INITIALIZER;
volatile long sum;
static long raw(long number, long a, long b) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(0) : "rcx", "r11", "memory");
    return result;
}
static void raw_sleep(long s, long ns) {
    struct timespec time = { s, ns };
    raw(SYS_nanosleep, (long)&time, 0);
}
static void *in_hook(void *unused) {
    pthread_mutex_lock(&lock);
    for (;;) pthread_cond_wait(&end, &lock);
    return unused;
}
static void *outside(void *unused) {
    for (;;) raw_sleep(1000, 0);
    return unused;
}
__attribute__((noinline)) static void computes(void) {
    struct timespec used;
    do {
        for (int i = 0; i < 1000000; i++) sum++;
        raw(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, (long)&used);
    } while (used.tv_sec < 4);
}
static void *late(void *unused) {
    raw_sleep(2, 0);
    computes();
    raw(SYS_exit_group, 0, 0);
    return unused;
}
int main(int count, char **arguments) {
    pthread_attr_t small;
    pthread_t thread;
    long in_hooks = atol(arguments[1]), outsiders = atol(arguments[2]), rounds = atol(arguments[3]);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (long i = 0; i < in_hooks; i++) if (pthread_create(&thread, &small, in_hook, 0)) _exit(9);
    for (long i = 0; i < outsiders; i++) if (pthread_create(&thread, &small, outside, 0)) _exit(9);
    if (!rounds) {
        if (pthread_create(&thread, &small, late, 0)) _exit(9);
        for (;;) raw_sleep(1000, 0);
    }
    for (long i = 0; i < rounds; i++) {
        for (int j = 0; j < 10000; j++) free(malloc(100));
        usleep(1000);
    }
    _exit(0);
}
"#;

fn record(folder: &Path, waiting: u64, outside: u64, rounds: u64) {
    let [waiting, outside, rounds] = [waiting, outside, rounds].map(|n| n.to_string());
    let program = ["--", "./p", &waiting, &outside, &rounds];
    let options = ["record", "-q", "--force", "-o", "t.beat"];
    let recorded = stackbeat(folder, &[&options[..], &program].concat());
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
}

#[test]
fn a_thread_that_waits_is_looked_at_a_few_times_however_long_it_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", PROGRAM, &[]);
    record(at, WAITING, 0, 2_000);
    let info = json(at, &["info", "t.beat", "--json"]);
    let [looked, ticks, drains] =
        ["entries_polled", "ticks", "drains"].map(|name| figure(&info, name));
    // Its beginning, its first capture and its wait, each told at most twice to five parts of the recorder;
    // and of those that are active, a few with each tick and each pass.
    let few = WAITING * 3 * 2 * 5 + 8 * (ticks + drains) + 10_000;
    assert!(
        looked <= few,
        "{looked} looks, {ticks} ticks, {drains} passes"
    );
}

/// All others wait in hooks, or a number of them outside, where each may be the one that computes.
#[test]
fn one_of_thousands_that_computes_without_a_hook_is_met() {
    for outside in [0, 200] {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        compile(at, "p.c", PROGRAM, &[]);
        record(at, WAITING, outside, 0);
        let report = json(at, &["report", "t.beat", "--json"]);
        let functions = report["functions"].as_array().expect("functions");
        let computes = functions.iter().find(|f| f["name"] == "computes");
        let cpu_ns = computes.and_then(|f| f["total"]["cpu_ns"].as_u64());
        assert!(
            cpu_ns > Some(200_000_000),
            "{cpu_ns:?} ns of four seconds, {outside} threads wait outside of hooks"
        );
    }
}
