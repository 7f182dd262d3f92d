//! A thread that is asked to stop, and does not in time, is let go at once: it would stop later, for as long
//! as the recording lasts.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use stackbeat_tests::process_tree::{is_attached, is_traced};
use stackbeat_tests::{Background, compile, scratch};

use stackbeat_tests::tool::command_in;

/// One of its threads hardly gets a processor: its share is 3 to each 1024 of the processes beside it. It has
/// had some, so it stops after seconds.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
enum { PROCESSES = 24 };
static volatile long sums[2];
static volatile int is_ready;
static void share_a_processor(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
}
static void *starves(void *argument) {
    struct sched_param none = {0};
    share_a_processor();
    if (sched_setscheduler(0, SCHED_IDLE, &none)) _exit(3);
    for (is_ready = 1;; sums[0]++);
    return argument;
}
static void *computes(void *argument) {
    while (!is_ready);
    // By now the other one has had its share of the time to come.
    for (long i = 0; i < 100000000; i++) sums[1]++;
    if (write(1, "running\n", 8) != 8) _exit(2);
    for (;; sums[1]++);
    return argument;
}
int main(void) {
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            share_a_processor();
            for (;; sums[1]++);
        }
    }
    pthread_t thread;
    pthread_create(&thread, 0, starves, 0);
    pthread_create(&thread, 0, computes, 0);
    // In a call that is not interrupted, so that the others are.
    int ends[2];
    char bytes[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 2;
    recv(ends[0], bytes, 2, MSG_WAITALL);
}
"#;

#[test]
fn a_thread_that_does_not_stop_in_time_runs_on() {
    let folder = scratch();
    let program = compile(folder.path(), "starves.c", PROGRAM, &["-O1"]);
    let program = Command::new(program).stdout(Stdio::piped()).spawn();
    let mut program = Background(program.expect("starts"));
    let pid = program.0.id();
    let mut line = String::new();
    let mut said = BufReader::new(program.0.stdout.take().expect("is piped"));
    said.read_line(&mut line).expect("reads");
    let options = ["attach", "-q", "-f", "-o", "t.beat", "-d", "3s"];
    let mut recorder = command_in(folder.path(), &options);
    let recorder = recorder.arg(pid.to_string()).spawn();
    let mut recorder = Background(recorder.expect("starts"));
    let mut runs_free = false;
    let status = loop {
        if let Some(status) = recorder.0.try_wait().expect("is ours") {
            break status;
        }
        runs_free |= is_attached(pid) && !is_traced(pid);
        sleep(Duration::from_millis(20));
    };
    assert!(status.success() && runs_free, "{status}");
}
