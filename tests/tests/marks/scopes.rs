//! What happens inside of the program's own scopes: in the report, and in a budget of the gate.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use stackbeat_tests::compile;

use stackbeat_tests::tool::{command_in, json, stackbeat};

/// Rounds of four scopes, most shorter than the interval: one computes by the thread's own clock, one
/// allocates, one sleeps, one does nothing.
const PROGRAM: &str = r#"
#include "stackbeat.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static long cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}
static volatile unsigned long sink;
int main(int argc, char **argv) {
    int blocks = atoi(argv[1]), turns = argc > 2 ? atoi(argv[2]) : 200;
    void **kept = calloc(blocks, sizeof *kept);
    for (int turn = 0; turn < turns; turn++) {
        stackbeat_scope_begin("turn");
        stackbeat_scope_begin("computes");
        for (long until = cpu_ns() + 600000; cpu_ns() < until;)
            for (int i = 0; i < 1000; i++) sink += i;
        stackbeat_scope_end();
        stackbeat_scope_begin("allocates");
        for (int i = 0; i < blocks; i++) kept[i] = malloc(48);
        for (int i = 0; i < blocks; i++) free(kept[i]);
        stackbeat_scope_end();
        stackbeat_scope_begin("sleeps");
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, 0);
        stackbeat_scope_end();
        stackbeat_scope_end();
        if (turn == 300 && write(1, "middle\n", 7) != 7) return 1;
        stackbeat_async_begin("both", turn);
        stackbeat_scope_begin("both");
        stackbeat_scope_end();
        stackbeat_async_end("both", turn);
    }
    return 0;
}
"#;

fn record(at: &Path, trace: &str, blocks: &str) {
    let recorded = stackbeat(at, &["record", "-q", "-o", trace, "--", "./p", blocks]);
    assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
}

#[test]
fn scopes_know_what_happened_inside_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", PROGRAM, &[]);
    record(at, "t.beat", "100");
    let report = json(at, &["report", "t.beat", "--json"]);
    let of = |name: &str, field: &str| {
        let scopes = report["scopes"].as_array().expect("scopes");
        let scope = scopes.iter().find(|scope| scope["name"] == name);
        let scope = scope.unwrap_or_else(|| panic!("{name} is there: {scopes:?}"));
        let value = scope.pointer(field).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("{name} has {field}: {scope}"))
    };
    // 120 ms of CPU time by the program's own clock.
    let computes = of("computes", "/cpu_ns");
    assert!((90_000_000..160_000_000).contains(&computes), "{computes}");
    for other in ["allocates", "sleeps"] {
        let cpu_ns = of(other, "/cpu_ns");
        assert!(cpu_ns < computes / 4, "{other}: {cpu_ns} of {computes}");
    }
    let sleeps = of("sleeps", "/blocked_by_cause_ns/sleep");
    assert!(sleeps >= 380_000_000, "{sleeps}");
    for other in ["computes", "allocates"] {
        let asleep = of(other, "/blocked_by_cause_ns/sleep");
        assert!(asleep < sleeps / 20, "{other}: {asleep} of {sleeps}");
    }
    // Calls are in the scope that makes them, even if it began just before.
    assert!(of("sleeps", "/system_calls/sleep") >= 190);
    // All but that of the list itself.
    let allocates = of("allocates", "/allocations");
    assert!((19_000..=20_010).contains(&allocates), "{allocates}");
    for other in ["computes", "sleeps"] {
        let allocations = of(other, "/allocations");
        assert!(allocations < 200, "{other}: {allocations}");
    }
    let bytes = of("allocates", "/allocated_bytes");
    assert!((48 * 19_000..48 * 21_000).contains(&bytes), "{bytes}");
    let turns = [
        ("/cpu_ns", computes),
        ("/allocations", allocates),
        ("/blocked_by_cause_ns/sleep", sleeps),
    ];
    for (field, inner) in turns {
        assert!(of("turn", field) >= inner, "{field}");
    }
    // The time inside is that of the scopes themselves.
    for name in ["turn", "computes", "sleeps"] {
        let (wall, total) = (of(name, "/wall_ns"), of(name, "/total_ns"));
        assert!(
            wall.abs_diff(total) < 1000 + total / 1000,
            "{name}: {wall} of {total}"
        );
    }
    // Asynchronous work has the name, too.
    let scopes = report["scopes"].as_array().expect("scopes");
    let both = scopes.iter().find(|scope| scope["name"] == "both");
    let both = both.expect("is there");
    assert_eq!((&both["count"], both.get("cpu_ns")), (&400.into(), None));
    let text = stackbeat(at, &["report", "t.beat", "--section", "scopes"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let line = text.lines().find(|line| line.contains(" allocates"));
    assert!(
        line.is_some_and(|line| line.contains("KiB") || line.contains("MiB")),
        "{text}"
    );
}

/// In a dump, too, the scopes stand in the right order.
#[test]
fn dumps_know_what_happened_inside_of_scopes() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", PROGRAM, &[]);
    let arguments = [
        "record", "-q", "--mode", "ring", "-o", "t.beat", "--", "./p", "100", "700",
    ];
    let mut recorder = command_in(at, &arguments);
    let mut recorder = recorder.stdout(Stdio::piped()).spawn().expect("runs");
    let session = recorder.id().to_string();
    let (mut line, said) = (String::new(), recorder.stdout.take().expect("is piped"));
    BufReader::new(said).read_line(&mut line).expect("reads");
    assert_eq!(line, "middle\n");
    let dumped = stackbeat(at, &["dump", &session, "-o", "d.beat"]);
    let status = recorder.wait().expect("ends");
    assert!(dumped.status.success(), "{dumped:?}");
    assert!(status.success(), "{status}");
    let report = json(at, &["report", "d.beat", "--json"]);
    let scopes = report["scopes"].as_array().expect("scopes");
    let of = |name: &str, field: &str| {
        let scope = scopes.iter().find(|scope| scope["name"] == name);
        scope.and_then(|scope| scope[field].as_u64()).expect(field)
    };
    let (computes, sleeps) = ("computes", "sleeps");
    assert!(
        of(computes, "blocked_ns") < of(computes, "total_ns") / 10,
        "{scopes:?}"
    );
    assert!(
        of(sleeps, "blocked_ns") > of(sleeps, "total_ns") / 2,
        "{scopes:?}"
    );
    assert!(
        of(sleeps, "cpu_ns") < of(computes, "cpu_ns") / 4,
        "{scopes:?}"
    );
}

#[test]
fn budgets_of_scopes_are_of_any_metric() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", PROGRAM, &[]);
    for (trace, blocks) in [("a.beat", "100"), ("b.beat", "100"), ("c.beat", "200")] {
        record(at, trace, blocks);
    }
    let policy = "[[budget]]\nscope = \"allocates\"\nper = \"call\"\nmetric = \"allocations\"\nmax = 150\n\
                  [[budget]]\nscope = \"computes\"\nmetric = \"cpu\"\nmax = \"10s\"\n";
    fs::write(at.join("policy.toml"), policy).expect("writes");
    let gate = |candidate: &str| {
        let arguments = [
            "gate",
            "-b",
            "a.beat",
            "-c",
            candidate,
            "--policy",
            "policy.toml",
            "--format",
            "json",
        ];
        let output = stackbeat(at, &arguments);
        let gate: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let budgets = gate["budgets"].as_array().expect("budgets").clone();
        (output.status.code(), budgets)
    };
    let (status, budgets) = gate("c.beat");
    assert_eq!(status, Some(1));
    let spent = |row: &Value| row["spent"].as_f64().expect("a number");
    assert!((190.0..210.0).contains(&spent(&budgets[0])), "{budgets:?}");
    let exceeded = |row: &Value| row["is_exceeded"] == true;
    assert!(
        exceeded(&budgets[0]) && !exceeded(&budgets[1]),
        "{budgets:?}"
    );
    assert!(spent(&budgets[1]) > 90e6, "{budgets:?}");
    let (_, budgets) = gate("b.beat");
    assert!(!budgets.iter().any(exceeded), "{budgets:?}");
}
