//! Results compared with tools that know nothing of stackbeat: protoc, gdb, heaptrack, perf.

use stackbeat_core::probe::Cause;
use stackbeat_tests::{
    Program, compile, plain_reader, run, scratch, target_folder, verbatim, workspace,
};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn protoc_decodes_the_trace() {
    let folder = scratch();
    let recorded = Program::new(["ls", "-lR", "/etc"]).record(folder.path());
    let trace = recorded.decode();
    trace.assert_sound();
    let mut command = Command::new("protoc");
    command
        .arg("--decode=stackbeat.v1.Trace")
        .arg("-I")
        .arg(workspace().join("proto/proto"))
        .arg("stackbeat.proto")
        .stdin(std::fs::File::open(&recorded.trace).unwrap());
    let decoded = run(command);
    assert!(decoded.output.status.success(), "{}", decoded.stderr());
    let text = decoded.stdout();
    assert!(
        !text
            .lines()
            .any(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())),
        "unknown fields"
    );
    let count = |what: &str| {
        text.lines()
            .filter(|line| line.trim_start() == what)
            .count()
    };
    assert_eq!(count("footer {"), 1);
    assert_eq!(count("thread_end {"), trace.thread_ends.len());
    assert!(count("samples {") >= trace.samples.len());
}

/// Allocates an exactly known amount, in two threads, by every function of the family.
const ALLOCATOR: &str = r#"
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *half(void *argument) {
    for (int i = 0; i < 20000; i++) {
        char *a = malloc(100), *b = calloc(3, 7), *c = realloc(malloc(10), 50), *d;
        if (posix_memalign((void **)&d, 64, 128)) abort();
        void *e = aligned_alloc(32, 96), *f = strdup("0123456789");
        memset(a, 1, 100);
        free(a); free(b); free(c); free(d); free(e); free(f);
    }
    return argument;
}
int main(void) {
    pthread_t other;
    pthread_create(&other, 0, half, 0);
    half(0);
    pthread_join(other, 0);
    puts("done");
}
"#;

#[test]
fn allocation_totals_are_exact() {
    let folder = scratch();
    let program = compile(folder.path(), "allocator.c", ALLOCATOR, &["-fno-builtin"]);
    let program = program.to_str().unwrap();
    let recorded = Program::new([program]).record_and_compare(folder.path(), verbatim);
    let trace = recorded.decode();
    trace.assert_sound();
    let total = |field: fn(&stackbeat_proto::v1::ThreadEnd) -> u64| -> u64 {
        trace.thread_ends.values().map(field).sum()
    };
    // Seven calls a round: malloc, calloc, malloc, realloc, posix_memalign, aligned_alloc and the malloc
    // of strdup. (heaptrack does not see memalign.)
    let (rounds, calls) = (40_000u64, 7);
    let bytes = 100 + 21 + 10 + 50 + 128 + 96 + 11;
    // What the C library and the loader allocate besides: stdout's buffer, the thread's stack.
    let few = 200;
    let allocations = total(|end| end.allocations);
    assert!(
        (rounds * calls..rounds * calls + few).contains(&allocations),
        "{allocations}"
    );
    let allocated = total(|end| end.allocated_bytes);
    assert!(
        (rounds * bytes..rounds * bytes + 200_000).contains(&allocated),
        "{allocated}"
    );
    // A realloc frees the old block: whether that counts as a free is a matter of definition.
    let frees = total(|end| end.frees);
    assert!((rounds * 6..rounds * 7 + few).contains(&frees), "{frees}");

    let mut heaptrack = Command::new("heaptrack");
    heaptrack
        .arg("-o")
        .arg(folder.path().join("heap"))
        .arg(program);
    let heaptrack = run(heaptrack);
    let text = heaptrack.stdout() + &heaptrack.stderr();
    let theirs: u64 = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("allocations:"))
        .and_then(|rest| rest.trim().parse().ok())
        .unwrap_or_else(|| panic!("no total in heaptrack's output: {text}"));
    let difference = theirs.abs_diff(allocations);
    assert!(
        difference <= few,
        "heaptrack counts {theirs}, stackbeat {allocations}"
    );
}

/// Three functions that compute for known shares of the time, called by known ways.
const SHARES: &str = r#"
#include <stdio.h>
#define N __attribute__((noinline, noclone))
volatile unsigned long sink;
N void leaf(unsigned long rounds) { for (unsigned long i = 0; i < rounds; i++) sink += i * sink; }
N void half(unsigned long unit) { leaf(5 * unit); sink++; }
N void third(unsigned long unit) { leaf(3 * unit); sink++; }
N void fifth(unsigned long unit) { leaf(2 * unit); sink++; }
N void loop(unsigned long unit) { for (int i = 0; i < 200; i++) { half(unit); third(unit); fifth(unit); } sink++; }
int main(void) { loop(500000); puts("done"); return 0; }
"#;

/// Functions of SHARES with the share of the CPU time that each has by construction.
const EXPECTED: [(&str, f64); 4] = [("half", 0.5), ("third", 0.3), ("fifth", 0.2), ("leaf", 1.0)];

#[test]
fn shares_of_a_computing_program_are_true_and_agree_with_perf() {
    let folder = scratch();
    let program = compile(folder.path(), "shares.c", SHARES, &["-fomit-frame-pointer"]);
    let program = program.to_str().unwrap();
    let recorded = Program::new([program]).record_and_compare(folder.path(), verbatim);
    let trace = recorded.decode();
    trace.assert_sound();
    assert!(
        trace.sample_count() > 200,
        "{} samples",
        trace.sample_count()
    );
    // Four standard deviations of a share of so many samples: few on a busy machine.
    let samples = trace.sample_count() as f64;
    let chance = |share: f64| (4.0 * (share * (1.0 - share) / samples).sqrt()).max(0.05);
    let mut ours = BTreeMap::new();
    for (name, expected) in EXPECTED {
        let share = trace.cpu_share(|function| function == name);
        assert!(
            (share - expected).abs() < chance(expected),
            "{name}: {share} of {samples} samples, expected {expected}"
        );
        ours.insert(name, share);
    }

    // perf needs rights that not every machine gives.
    let data = folder.path().join("perf.data");
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-e",
        "cpu-clock",
        "-F",
        "999",
        "--call-graph",
        "dwarf",
        "-o",
    ]);
    perf.arg(&data).arg("--").arg(program);
    if !run(perf).output.status.success() {
        eprintln!("perf cannot record here: compared with the construction only");
        return;
    }
    let mut report = Command::new("perf");
    report.args([
        "report",
        "--children",
        "-g",
        "none",
        "--stdio",
        "-F",
        "overhead_children,sym",
        "-i",
    ]);
    report.arg(&data).stderr(Stdio::null());
    let text = run(report).stdout();
    for (name, share) in ours {
        let theirs = text
            .lines()
            .find(|line| line.trim_end().ends_with(&format!("] {name}")))
            .and_then(|line| line.trim_start().split('%').next()?.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{name} is not in perf's report: {text}"));
        assert!(
            (share - theirs / 100.0).abs() < chance(share),
            "{name}: stackbeat {share}, perf {theirs} %"
        );
    }
}

/// Blocks in a read with a known stack, after long enough for a sample. Not `qsort`: it jumps to
/// `qsort_r`, and gdb shows a frame for such a jump although none is on the stack.
const BLOCKED: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define N __attribute__((noinline, noclone))
volatile int sink;
N long innermost(int fd) { char c; long n = read(fd, &c, 1); sink++; return n; }
N long middle(int fd) { long n = innermost(fd); sink++; return n; }
N int by_qsort(const void *a, const void *b, void *_) { if (!sink) sink = middle(0) > 0; return *(int *)a - *(int *)b; }
N void outer(void) { int numbers[] = {2, 1}; qsort_r(numbers, 2, sizeof(int), by_qsort, 0); sink++; }
int main(void) { outer(); puts("done"); return 0; }
"#;

#[test]
fn the_stack_of_a_blocked_program_equals_that_of_gdb() {
    let folder = scratch();
    let program = compile(
        folder.path(),
        "blocked.c",
        BLOCKED,
        &["-fomit-frame-pointer"],
    );
    let trace_file = folder.path().join("trace.beat");
    let mut command = Program::new([program.to_str().unwrap()]).recorded_command(&trace_file);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let pid = child_of(child.id()).expect("the program runs");
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-batch", "-nx", "-ex", "bt", "-p", &pid.to_string()])
        .env_remove("DEBUGINFOD_URLS");
    let text = run(gdb).stdout();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());

    // "#3  0x000… in middle (fd=0) at …" or "#3  middle (…": the names, outermost first, without our own
    // library between the program and libc.
    let mut theirs: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|line| {
            line.split_once(' ')
                .map_or("", |(_, rest)| rest.trim_start())
        })
        .filter(|line| !line.contains("hooks-linux/") && !line.contains("libstackbeat"))
        .map(|line| {
            line.split_once(" in ")
                .filter(|(a, _)| a.starts_with("0x"))
                .map_or(line, |(_, rest)| rest)
        })
        .map(|line| line.split([' ', '(']).next().unwrap_or_default())
        // Of several names for one address gdb and we may show different ones.
        .map(|name| {
            name.trim_start_matches("__GI_")
                .trim_start_matches('_')
                .to_owned()
        })
        .collect();
    theirs.reverse();
    let from = theirs
        .iter()
        .position(|name| name == "main")
        .unwrap_or_else(|| panic!("gdb: {text}"));
    let until = theirs
        .iter()
        .position(|name| name == "innermost")
        .unwrap_or_else(|| panic!("gdb: {text}"));
    let theirs = &theirs[from..=until];

    let trace = plain_reader::Trace::read(&trace_file);
    trace.assert_sound();
    assert!(trace.blocked_in(Cause::Io, "innermost") > 400_000_000);
    let row = trace
        .all_samples()
        .map(|(_, row)| row)
        .max_by_key(|row| row.duration_ns)
        .expect("a sample");
    let ours = trace.stack(row.node);
    let from = ours
        .iter()
        .position(|name| name == "main")
        .unwrap_or_else(|| panic!("{ours:?}"));
    assert_eq!(&ours[from..], theirs, "gdb's text: {text}");
}

/// The program that a recorder started.
fn child_of(parent: u32) -> Option<u32> {
    let children =
        std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let mut all: Vec<u32> = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect();
    // Started by any of the recorder's threads.
    for task in std::fs::read_dir(format!("/proc/{parent}/task"))
        .ok()?
        .flatten()
    {
        let mut text = String::new();
        let file = std::fs::File::open(task.path().join("children"));
        if file
            .and_then(|mut file| file.read_to_string(&mut text))
            .is_ok()
        {
            all.extend(
                text.split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    // The recorder has a child of its own, which is its copy.
    let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = program(parent);
    all.into_iter()
        .find(|pid| program(*pid).is_some_and(|exe| Some(exe) != own))
}

fn build_example(name: &str) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args([
        "build",
        "--quiet",
        "--locked",
        "-p",
        "stackbeat-examples",
        "--bin",
        name,
    ]);
    build.current_dir(workspace());
    assert!(run(build).output.status.success());
    target_folder().join(name).to_str().unwrap().to_owned()
}

#[test]
fn the_rust_example_shows_what_its_head_says() {
    let folder = scratch();
    let kitchen = build_example("kitchen");
    let recorded = Program::new([kitchen.as_str(), "120"])
        .folder(folder.path())
        .record_and_compare(folder.path(), verbatim);
    let trace = recorded.decode();
    trace.assert_sound();
    assert_eq!(trace.lost_records(), 0);
    for name in ["chop_vegetables", "knead_dough"] {
        assert!(
            trace.cpu_share(|function| function.ends_with(name)) > 0.05,
            "{name}: {:?}",
            trace.cpu_by_function()
        );
    }
    for (cause, function) in [
        (Cause::Sleep, "walk_to_the_table"),
        (Cause::Io, "print_receipt"),
        (Cause::Join, "main"),
    ] {
        assert!(
            trace.blocked_in(cause, function) > 0,
            "{} in {function}",
            cause.name()
        );
    }
    // Rust's own locks and condition variables park by a raw futex call.
    let waiting = |function| {
        trace.blocked_in(Cause::Wait, function) + trace.blocked_in(Cause::Lock, function)
    };
    assert!(waiting("next_order") > 0 && waiting("take_ingredient") > 0);
    let names: Vec<&str> = trace
        .threads
        .values()
        .map(|thread| thread.name.as_str())
        .collect();
    for name in ["cook-0", "cook-3", "waiter", "accountant"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
}

#[test]
fn the_cpp_example_shows_what_its_head_says() {
    let folder = scratch();
    let source = std::fs::read_to_string(workspace().join("examples/cpp/press.cpp")).unwrap();
    let press = compile(folder.path(), "press.cpp", &source, &["-O2"]);
    let recorded = Program::new([press.to_str().unwrap()])
        .folder(folder.path())
        .record_and_compare(folder.path(), verbatim);
    let trace = recorded.decode();
    trace.assert_sound();
    assert_eq!(trace.lost_records(), 0);
    for name in ["typeset<Roman>", "typeset<Gothic>"] {
        assert!(
            trace.cpu_share(|function| function.contains(name)) > 0.03,
            "{name}: {:?}",
            trace.cpu_by_function()
        );
    }
    assert!(trace.blocked_in(Cause::Wait, "Queue<Page>::") > 0);
    assert!(trace.blocked_in(Cause::Lock, "TypeCase::borrow") > 0);
    assert!(trace.blocked_in(Cause::Io, "Binder::bind") > 0);
}
