//! A wait that is longer than the interval is a record, whoever took the tick: a program counts and measures
//! its own waits, in every kind of call that hooks know, and the trace has as many, of that length.

use stackbeat_model::conservation;
use stackbeat_tests::plain_reader::Trace;
use stackbeat_tests::tool_json::{array, number};
use stackbeat_tests::{Program, Recorded, compile, has_kernel_clock, report, scratch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How long each wait lasts at least, ms: longer than what makes the ticker park.
const MS: u64 = 25;
const ROUNDS: u64 = 3;
/// Threads that wait in each kind of call, and wake together.
const THREADS: u64 = 3;

fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = PROGRAM.get_or_init(|| {
        let folder = scratch();
        let program = compile(folder.path(), "kinds.c", include_str!("kinds.c"), &["-lrt"]);
        (folder, program)
    });
    program
}

/// Records waits of these kinds; without any, of all.
fn record(folder: &Path, kinds: &[&str], options: &[&str]) -> Recorded {
    record_waits_of(MS, folder, kinds, options)
}

fn record_waits_of(ms: u64, folder: &Path, kinds: &[&str], options: &[&str]) -> Recorded {
    let program = program().to_str().expect("UTF-8");
    let numbers = [ms, ROUNDS, THREADS].map(|n| n.to_string());
    let mut command = vec![program];
    command.extend(numbers.iter().map(String::as_str));
    command.extend(kinds);
    let recorded = Program::new(command).options(options).record(folder);
    let run = &recorded.run;
    assert!(run.output.status.success(), "{}", run.stderr());
    recorded
}

/// What waits last at least, ns. Where the program sets a deadline before its call, it may lose the processor
/// in between.
const LEAST_NS: u64 = 5_000_000;

/// By function: long waits, and their sum, ns.
fn long_waits(trace: &Trace) -> BTreeMap<String, (u64, u64)> {
    let mut waits = BTreeMap::new();
    for (_, row) in trace.all_samples() {
        if row.duration_ns >= LEAST_NS {
            let stack = trace.stack(row.node);
            let kind = stack.iter().find_map(|name| name.strip_prefix("w_"));
            let (count, sum_ns) = waits.entry(kind.unwrap_or("").to_owned()).or_default();
            *count += 1;
            *sum_ns += row.duration_ns;
        }
    }
    waits
}

/// Wants every wait that the program says it has made.
fn wants_all(recorded: &Recorded) {
    let said = recorded.run.stdout();
    let trace = recorded.decode();
    assert_eq!(trace.lost_records(), 0);
    let found = long_waits(&trace);
    let mut missing = Vec::new();
    for line in said.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [kind, count, sum_ns] = words[..] else {
            eprintln!("not here: {line}");
            continue;
        };
        let numbers = [count, sum_ns].map(|word| word.parse::<u64>().expect("a number"));
        let (seen, seen_ns) = found.get(kind).copied().unwrap_or_default();
        // The program's clock runs a little longer than the hook's: from before the call until after it.
        if seen < numbers[0] || seen_ns > numbers[1] {
            missing.push(format!("{line}; in the trace {seen}, {seen_ns} ns"));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(said.lines().count() > 0);
}

#[test]
fn every_wait_longer_than_the_interval_is_a_record() {
    let folder = scratch();
    wants_all(&record(folder.path(), &[], &[]));
}

#[test]
fn every_wait_in_liburing_is_a_record() {
    let folder = scratch();
    let source = include_str!("uring.c");
    let program = compile(folder.path(), "uring.c", source, &["-luring"]);
    let numbers = [MS, ROUNDS, THREADS].map(|n| n.to_string());
    let command = [vec![program.display().to_string()], numbers.to_vec()].concat();
    let recorded = Program::new(command.iter().map(String::as_str)).record(folder.path());
    let run = &recorded.run;
    assert!(run.output.status.success(), "{}", run.stderr());
    wants_all(&recorded);
}

#[test]
fn hooks_alone_record_every_long_wait() {
    let folder = scratch();
    let kinds = ["nanosleep", "read", "cond_timedwait", "futex", "open_fifo"];
    wants_all(&record(folder.path(), &kinds, &["--no-interrupt"]));
}

#[test]
fn a_small_budget_leaves_no_wait_out() {
    let folder = scratch();
    // Shorter than the interval with which a budget begins.
    let recorded = record_waits_of(8, folder.path(), &[], &["--budget", "1%"]);
    wants_all(&recorded);
}

#[test]
fn the_kernels_clock_leaves_no_wait_out() {
    let folder = scratch();
    if has_kernel_clock() {
        wants_all(&record(folder.path(), &[], &["--clock", "kernel"]));
    }
}

/// A budget that nothing fits into.
#[test]
fn what_a_budget_leaves_out_is_counted_and_not_running() {
    let folder = scratch();
    let options = ["--budget", "0.001%"];
    let recorded = record(folder.path(), &["nanosleep", "read"], &options);
    let report = report(&recorded.trace);
    let waits_ns = 2 * THREADS * ROUNDS * MS * 1_000_000;
    let totals = &report["totals"];
    let waited = number(totals, "blocked_ns") + number(totals, "no_evidence_ns");
    assert!(waited >= waits_ns, "{totals:#}");
    let sum = |rows: &str, name: &str, key: &str, value: &str| -> u64 {
        array(&report, rows)
            .filter(|row| row[name] == value)
            .map(|row| number(row, key))
            .sum()
    };
    let records = sum("blocking_sites", "call", "count", "nanosleep")
        + sum("blocking_sites", "call", "count", "read");
    let left_out = sum("drops", "cause", "count", "wait_left_out");
    assert!(
        records + left_out >= 2 * THREADS * ROUNDS,
        "{records} and {left_out}: {:#}",
        report["drops"]
    );
    let trace = stackbeat_model::Trace::open(&recorded.trace).expect("reads");
    let violations = conservation(&trace).expect("reads");
    assert!(
        !violations.iter().any(|v| v.what.contains("running")),
        "{violations:?}"
    );
}

/// Threads wait, each in its own call, when the program ends, or starts another one, long before anybody
/// looks at them.
const CUT_OFF: &str = r#"
#include <poll.h>
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int ends[2];
static void *polls(void *unused) { poll(0, 0, -1); return unused; }
static void *reads(void *unused) { char byte; return read(ends[0], &byte, 1) ? unused : 0; }
static void *waits(void *unused) {
    pthread_mutex_lock(&mutex);
    pthread_cond_wait(&condition, &mutex);
    return unused;
}
int main(int argc, char **argv) {
    pthread_t thread;
    if (pipe(ends)) return 1;
    pthread_create(&thread, 0, polls, 0);
    pthread_create(&thread, 0, reads, 0);
    pthread_create(&thread, 0, waits, 0);
    usleep(60000);
    if (argc > 1) execl("/bin/true", "true", (char *)0);
    return 0;
}
"#;

#[test]
fn a_wait_that_the_programs_end_cuts_off_is_a_record() {
    let folder = scratch();
    let program = compile(folder.path(), "cut_off.c", CUT_OFF, &[]);
    let program = program.to_str().expect("UTF-8");
    for command in [&[program][..], &[program, "exec"]] {
        let recorded = Program::new(command.iter().copied()).record(folder.path());
        let report = report(&recorded.trace);
        for call in ["poll", "read", "pthread_cond_wait"] {
            let sites = array(&report, "blocking_sites");
            let mut own = sites.filter(|site| site["call"] == call);
            let site = own.next().unwrap_or_else(|| panic!("{call}: {report:#}"));
            assert_eq!(own.next(), None, "{call}");
            assert_eq!(number(site, "count"), 1, "{call}");
            assert!(number(site, "total_ns") > 50_000_000, "{call}: {site}");
        }
    }
}
