//! On how many samples a figure stands.

use std::path::Path;

use serde_json::Value;
use stackbeat_tests::{Program, compile, verbatim};

use stackbeat_tests::tool::{command_in, heading, json, stackbeat, text};

/// Computes in two functions, three times as long in one; makes a few calls that are hooked in a third.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static long used_ms(void) {
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}
static __attribute__((noinline)) void spin(long rounds) {
  for (volatile long i = 0; i < rounds * 1000; i++) {}
}
__attribute__((noinline)) void much(long rounds) { spin(rounds * 3); __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void little(long rounds) { spin(rounds); __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void hooked(void) { free(malloc(100)); __asm__ volatile("" ::: "memory"); }
int main(int count, char **argument) {
  for (long end = atol(argument[1]); used_ms() < end;) { much(9000); little(9000); hooked(); }
  return 0;
}
"#;

fn record(at: &Path, options: &[&str], ms: &str) -> Value {
    let program = compile(at, "works.c", PROGRAM, &[]);
    let mut words = vec!["record", "-f", "-o", "t.beat"];
    words.extend(options);
    words.extend(["--", program.to_str().expect("text"), ms]);
    let output = stackbeat(at, &words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    json(at, &["report", "t.beat", "--json"])
}

fn function<'a>(report: &'a Value, name: &str) -> &'a Value {
    let functions = report["functions"].as_array().expect("a list");
    let found = functions.iter().find(|f| f["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {functions:?}"))
}

#[test]
fn without_interruption_hooks_get_no_time_that_nobody_saw() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let report = record(at, &["--no-interrupt"], "1500");
    let totals = &report["totals"];
    let number = |value: &Value| value.as_u64().expect("a number") as f64;
    // Hooks come each 40 ms or more, and speak for 2 ms.
    let (gap, cpu) = (
        number(&totals["no_evidence_cpu_ns"]),
        number(&totals["cpu_ns"]),
    );
    assert!(gap > 0.5 * cpu, "{totals}");
    for f in report["functions"].as_array().expect("a list") {
        let share = &f["running_share"]["share"];
        assert!(share.as_f64().is_none_or(|share| share < 0.4), "{f}");
    }
    let report = text(&stackbeat(at, &["report", "t.beat"]).stdout);
    let heading = heading(&report);
    let said = heading
        .lines()
        .find(|line| line.starts_with("no evidence for"));
    assert!(
        said.is_some_and(|line| line.contains("--no-interrupt")),
        "{report}"
    );
    assert!(report.contains("(no evidence)"), "{report}");
}

#[test]
fn shares_have_their_intervals() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let report = record(at, &["--interval", "1ms"], "400");
    let spin = function(&report, "spin");
    let share = &spin["running_share"];
    let [share, low, high] = ["share", "low", "high"].map(|n| share[n].as_f64().expect("a number"));
    assert!(0.0 < low && low <= share && share <= high, "{spin}");
    assert!(spin["self"]["running_samples"].as_u64() > Some(0), "{spin}");
    // A machine that is busy makes other columns wider, and a narrow screen has no room for this one then.
    let mut command = command_in(at, &["report", "t.beat"]);
    let shown = text(&command.env("COLUMNS", "140").output().expect("runs").stdout);
    let table = shown.split("Functions by").nth(1).expect("a table");
    assert!(
        table.contains("INTERVAL") && table.contains(" … "),
        "{shown}"
    );
}

/// Short calls are where most ticks are noticed: what is computed around them stands on those samples.
const CALLS: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
static __attribute__((noinline)) void spin(long rounds) { for (volatile long i = 0; i < rounds; i++) {} }
__attribute__((noinline)) void first(int file) { spin(2000); if (write(file, "x", 1) != 1) abort(); }
__attribute__((noinline)) void second(int file) { spin(1000); if (write(file, "y", 1) != 1) abort(); }
int main(int count, char **argument) {
  int file = open("/dev/null", O_WRONLY);
  for (long i = atol(argument[1]); i > 0; i--) { first(file); second(file); }
  return 0;
}
"#;

#[test]
fn an_interval_and_the_number_of_samples_agree() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let program = compile(at, "calls.c", CALLS, &[]);
    let program = program.to_str().expect("text");
    for options in [&["--no-interrupt"][..], &[]] {
        let mut words = vec!["record", "-f", "-o", "t.beat"];
        words.extend(options);
        words.extend(["--", program, "100000"]);
        let output = stackbeat(at, &words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = json(at, &["report", "t.beat", "--json"]);
        let functions = report["functions"].as_array().expect("a list");
        let sum = |of: &str| {
            let own = functions.iter().filter_map(|f| f["self"][of].as_u64());
            own.sum::<u64>()
        };
        let (samples, cpu_ns) = (sum("running_samples"), sum("cpu_ns"));
        let mut shown = 0;
        for f in functions {
            let [Some(share), Some(low), Some(high)] =
                ["share", "low", "high"].map(|end| f["running_share"][end].as_f64())
            else {
                continue;
            };
            let least = 2.0 * 1.96 * (share * (1.0 - share) / samples as f64).sqrt();
            if share > 0.1 {
                shown += 1;
                assert!(high - low > 0.9 * least, "{samples} samples: {f}");
                // Waits for a processor are part of the share, and have no such samples.
                let [own, own_ns] = ["running_samples", "cpu_ns"]
                    .map(|of| f["self"][of].as_u64().expect("a number") as f64);
                let by_cpu = own_ns / cpu_ns as f64 * samples as f64;
                assert!(own > 0.3 * by_cpu - 3.0, "{samples} samples: {f}");
            }
        }
        assert!(shown > 0, "{report}");
    }
}

#[test]
fn the_begin_and_the_end_of_short_processes_say_nothing_of_their_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let program = compile(at, "works.c", PROGRAM, &[]);
    let command = format!("for i in $(seq 40); do {} 8; done", program.display());
    let words = [
        "record",
        "-o",
        "t.beat",
        "--interval",
        "4s",
        "--",
        "sh",
        "-c",
        &command,
    ];
    let output = stackbeat(at, &words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(at, &["report", "t.beat", "--json"]);
    for name in ["call_init", "_dl_call_fini"] {
        let functions = report["functions"].as_array().expect("a list");
        let shares = functions
            .iter()
            .filter(|f| f["name"] == name)
            .filter_map(|f| f["running_share"]["share"].as_f64());
        let share = shares.sum::<f64>();
        assert!(share < 0.25, "{name}: {share}");
    }
    let totals = &report["totals"];
    let number = |name: &str| totals[name].as_f64().expect("a number");
    assert!(
        number("no_evidence_cpu_ns") > 0.4 * number("cpu_ns"),
        "{totals}"
    );
}

/// Turns faults into jumps, as runtimes do, with an alternate stack and without the mask of before; then
/// computes between calls that are hooked.
const JUMPS: &str = r#"
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static jmp_buf before;
static void on_fault(int signal) {
  sigset_t own;
  sigemptyset(&own);
  sigaddset(&own, signal);
  pthread_sigmask(SIG_UNBLOCK, &own, NULL);
  _longjmp(before, 1);
}
__attribute__((noinline)) static int caught(int *place) {
  if (_setjmp(before)) return 1;
  *(volatile int *)place = 1;
  return 0;
}
static long used_ms(void) {
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}
__attribute__((noinline)) void work(void) {
  for (volatile long i = 0; i < 2000000; i++) {}
  __asm__ volatile("" ::: "memory");
}
int main(int count, char **argument) {
  static char stack[65536];
  stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
  sigaltstack(&alternate, NULL);
  sigaction(SIGSEGV, &action, NULL);
  sigset_t kept, now;
  if (count > 2) {
    sigemptyset(&kept);
    sigaddset(&kept, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &kept, NULL);
  }
  int faults = 0;
  for (long end = atol(argument[1]); used_ms() < end; work()) {
    if (faults < 3) faults += caught(NULL);
    free(malloc(100));
  }
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  printf("%d faults, blocked:", faults);
  for (int signal = 1; signal < 65; signal++) {
    if (sigismember(&now, signal) == 1) printf(" %d", signal);
  }
  puts("");
  return 0;
}
"#;

#[test]
fn a_thread_that_leaves_a_handler_by_a_jump_is_interrupted_as_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let program = compile(at, "jumps.c", JUMPS, &[]);
    let program = program.to_str().expect("UTF-8");
    for (more, blocked) in [(&[][..], ""), (&["blocks"], " 28")] {
        let command = [&[program, "600"], more].concat();
        // What it blocks itself stays blocked.
        let recorded = Program::new(command).record_and_compare(at, verbatim);
        assert_eq!(
            recorded.run.stdout(),
            format!("3 faults, blocked:{blocked}\n")
        );
        let share = recorded.decode().cpu_share(|name| name == "work");
        assert!(share > 0.8, "{share}");
    }
}
