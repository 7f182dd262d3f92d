//! Who allocates, against a program whose functions allocate known amounts.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use stackbeat_tests::{Program, compile, python, report, run, scratch, stackbeat};

/// Each round, `many` makes 600 allocations of 16 bytes, `some` 300 of 100, `large` 100 of 4,000; `computes`
/// makes one, and takes nearly all the time.
const PROGRAM: &str = r#"
#include <stdint.h>
#include <stdlib.h>
static volatile uint64_t sink;
static void *volatile kept;
static __attribute__((noinline)) void take(int count, size_t bytes) {
    for (int i = 0; i < count; i++) { kept = malloc(bytes); free(kept); }
}
__attribute__((noinline)) void many(void) { take(600, 16); sink++; }
__attribute__((noinline)) void some(void) { take(300, 100); sink++; }
__attribute__((noinline)) void large(void) { take(100, 4000); sink++; }
__attribute__((noinline)) void computes(void) {
    for (int i = 0; i < 1000000; i++) sink += i;
    take(1, 1);
    sink++;
}
int main(void) {
    for (int i = 0; i < 200; i++) { many(); some(); large(); computes(); }
    return 0;
}
"#;

/// A function's share of an amount of the whole program, callees included.
fn share(report: &Value, function: &str, amount: &str) -> f64 {
    let all = report["totals"][amount].as_f64().expect("a number");
    let functions = report["functions"].as_array().expect("a list");
    let found = functions.iter().find(|f| f["name"] == function);
    found.map_or(0.0, |f| f["total"][amount].as_f64().expect("a number")) / all
}

/// A recording has at least 30 samples of each kind, because their mean distance grows by no more than a
/// quarter from one to the next. Bounds are at more than four times the error of so few. The last of these
/// would weigh most if it were left at that: without a budget the interval stays, and so does the distance
/// that it asks for.
#[test]
fn functions_get_what_they_allocate_however_long_they_run() {
    let folder = scratch();
    let binary = compile(folder.path(), "who.c", PROGRAM, &[]);
    let program = Program::new([binary.to_str().expect("UTF-8")]).options(&[
        "--interval",
        "100us",
        "--budget",
        "0",
    ]);
    let recorded = program.record(folder.path());
    let report = report(&recorded.trace);
    let totals = &report["totals"];
    assert!(
        totals["allocations"].as_u64() >= Some(200 * 1001),
        "{totals}"
    );

    let within = |function, amount, low, high| {
        let share = share(&report, function, amount);
        assert!(
            (low..=high).contains(&share),
            "{function}: {share} of {amount}"
        );
    };
    within("many", "allocations", 0.25, 0.95);
    within("some", "allocations", 0.02, 0.65);
    within("large", "allocations", 0.0, 0.35);
    within("computes", "allocations", 0.0, 0.1);
    within("large", "allocated_bytes", 0.65, 1.0);
    within("many", "allocated_bytes", 0.0, 0.25);
    within("computes", "allocated_bytes", 0.0, 0.1);
    // These samples are no evidence of time. Ticks that come late on a busy machine meet more hooks.
    within("computes", "cpu_ns", 0.7, 1.0);

    // Everybody's sum is the exact counter.
    within("main", "allocations", 0.99, 1.0);
    let mut command = Command::new(stackbeat());
    command.args(["info", "--check"]).arg(&recorded.trace);
    assert!(run(command).output.status.success());
}

/// What allocates in a program's own functions goes through wrappers and containers, which are not what a
/// reader looks for.
const WRAPPED: &str = r#"
#include <cstdlib>
#include <vector>
static void *volatile kept;
__attribute__((noinline)) void *xmalloc(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) abort();
    kept = memory;
    return memory;
}
__attribute__((noinline)) void wraps() { free(xmalloc(3000)); kept = nullptr; }
__attribute__((noinline)) void makes() { delete[] new char[2000]; kept = nullptr; }
__attribute__((noinline)) void grows() {
    std::vector<char> bytes;
    bytes.reserve(1000);
    kept = bytes.data();
    kept = nullptr;
}
int main() {
    for (int i = 0; i < 200000; i++) { wraps(); makes(); grows(); }
}
"#;

/// The functions that a report names by what they allocate, with their shares.
fn by_allocation(trace: &Path) -> Vec<(String, f64)> {
    let mut command = Command::new(stackbeat());
    command
        .args(["report", "--json", "--sort", "alloc"])
        .arg(trace);
    let report: Value = serde_json::from_slice(&run(command).output.stdout).expect("JSON");
    let all = report["totals"]["allocated_bytes"]
        .as_f64()
        .expect("a number");
    let functions = report["functions"].as_array().expect("a list");
    let row = |f: &Value| {
        let own = f["self"]["allocated_bytes"].as_f64().expect("a number");
        let name = f["name"].as_str().expect("a name");
        (name.to_owned(), own / all)
    };
    functions.iter().map(row).collect()
}

#[test]
fn not_the_allocator_but_who_calls_it_is_named() {
    let folder = scratch();
    let binary = compile(
        folder.path(),
        "wrapped.cpp",
        WRAPPED,
        &["-g", "-O0", "-fno-builtin"],
    );
    let options = ["--interval", "100us", "--budget", "0"];
    // One recording has some 30 samples of allocations, so one in thirty shows a sixth of them once or not at
    // all.
    let rows: Vec<(String, f64)> = (0..3)
        .flat_map(|_| {
            let program = Program::new([binary.to_str().expect("UTF-8")]).options(&options);
            by_allocation(&program.record(folder.path()).trace)
        })
        .collect();
    let share = |name: &str| {
        let of_name = rows.iter().filter(|(row, _)| row.starts_with(name));
        of_name.map(|(_, share)| share).sum::<f64>() / 3.0
    };
    // By their true amounts it is a half, a third and a sixth. Nothing else allocates.
    let shares = ["wraps", "makes", "grows"].map(share);
    let known = shares.iter().sum::<f64>();
    assert!(
        shares.iter().all(|share| *share > 0.02) && known > 0.97,
        "{shares:?} {rows:?}"
    );
}

#[test]
fn of_an_interpreted_program_the_function_that_allocates_is_named() {
    let folder = scratch();
    let script = folder.path().join("fills.py");
    let text = "
def fills():
    return bytearray(3000)

def lists():
    return [None] * 300

for _ in range(60000):
    fills()
    lists()
";
    std::fs::write(&script, text).expect("can be written");
    let options = ["--interval", "100us", "--budget", "0"];
    let python = python();
    let program = Program::new([&*python, script.to_str().expect("UTF-8")]);
    let recorded = program.options(&options).record(folder.path());
    let rows = by_allocation(&recorded.trace);
    let mut names: Vec<&str> = rows[..2].iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    assert_eq!(names, ["fills", "lists"], "{:?}", &rows[..5]);
    let known = rows[0].1 + rows[1].1;
    assert!(known > 0.9, "{:?}", &rows[..5]);
}
