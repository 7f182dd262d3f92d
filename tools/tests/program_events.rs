//! What a program says about itself, from `stackbeat.h` and from the Rust crate, through a real recording into
//! every view; and the counters that the recorder reads.

#[allow(dead_code, reason = "the tests of exports use the rest")]
#[path = "exports/tools.rs"]
mod tools;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const STACKBEAT: &str = env!("CARGO_BIN_EXE_stackbeat");

/// Two threads hand work over; scopes nest; one is never ended, one end has no begin.
const PROGRAM: &str = r#"
#include "stackbeat.h"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <time.h>
static void pause_ms(long ms) {
    struct timespec t = {0, ms * 1000000L};
    nanosleep(&t, 0);
}
static void *worker(void *argument) {
    stackbeat_flow_end("job", 42);
    stackbeat_scope_begin("left open");
    pause_ms(20);
    return argument;
}
int main(void) {
    pthread_t thread;
    stackbeat_scope_end();
    stackbeat_mark("start \"quoted\" <b>");
    for (int i = 0; i < 5; i++) {
        stackbeat_scope_begin("outer");
        stackbeat_counter("queue", i * 10);
        stackbeat_scope_begin("inner");
        pause_ms(10);
        stackbeat_scope_end();
        pause_ms(10);
        stackbeat_scope_end();
    }
    stackbeat_mark_value("answer", 42);
    stackbeat_flow_begin("job", 42);
    pthread_create(&thread, 0, worker, 0);
    pthread_join(thread, 0);
    stackbeat_capture();
    printf("%s\n", stackbeat_is_active() ? "seen" : "alone");
    return 3;
}
"#;

fn stackbeat(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(STACKBEAT)
        .args(arguments)
        .current_dir(folder)
        .env_remove("STACKBEAT_AGENT")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

#[track_caller]
fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = stackbeat(folder, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn named<'a>(rows: &'a Value, name: &str) -> &'a Value {
    let rows = rows.as_array().expect("rows");
    // The highest, where several processes have one of this name.
    rows.iter()
        .filter(|row| row["name"] == name)
        .max_by_key(|row| row["max"].as_i64())
        .unwrap_or_else(|| panic!("{name} is there: {rows:?}"))
}

#[test]
fn marks_scopes_counters_and_flows_of_a_c_program_reach_every_view() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    fs::write(at.join("p.c"), PROGRAM).expect("writes");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/include");
    let compiled = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-pthread", "-o", "p", "p.c", "-I"])
        .arg(include)
        .current_dir(at)
        .status();
    assert!(compiled.expect("gcc runs").success());
    let alone = Command::new(at.join("p")).output().expect("runs");
    assert_eq!(alone.status.code(), Some(3));
    assert_eq!(alone.stdout, b"alone\n");

    let recorded = stackbeat(at, &["record", "-q", "-o", "t.beat", "--", "./p"]);
    assert_eq!(recorded.status.code(), Some(3));
    assert_eq!(recorded.stdout, b"seen\n");
    let report = json(at, &["report", "t.beat", "--json"]);
    let scopes = &report["scopes"];
    let (outer, inner) = (named(scopes, "outer"), named(scopes, "inner"));
    let ns = |row: &Value, field: &str| row[field].as_u64().expect("a number");
    assert_eq!((ns(outer, "count"), ns(inner, "count")), (5, 5));
    assert!(
        (100_000_000..400_000_000).contains(&ns(outer, "total_ns")),
        "{outer}"
    );
    assert!(
        (50_000_000..200_000_000).contains(&ns(inner, "total_ns")),
        "{inner}"
    );
    // Lasts until its thread ends.
    assert!(ns(named(scopes, "left open"), "total_ns") >= 19_000_000);
    assert_eq!(
        scopes.as_array().map(Vec::len),
        Some(3),
        "no end without a begin"
    );
    let queue = named(&report["counters"], "queue");
    assert_eq!(
        (&queue["min"], &queue["max"], &queue["last"]),
        (&0.into(), &40.into(), &40.into())
    );
    assert_eq!(queue["values"], 5);
    let marks: Vec<(&str, i64)> = report["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|e| {
            (
                e["text"].as_str().expect("text"),
                e["value"].as_i64().expect("value"),
            )
        })
        .collect();
    assert_eq!(marks, [("start \"quoted\" <b>", 0), ("answer", 42)]);
    // The capture that the program asked for stands in its function.
    let folded = stackbeat(at, &["export", "t.beat", "--to", "folded", "-o", "-"]);
    assert!(String::from_utf8_lossy(&folded.stdout).contains("main"));
    let text = String::from_utf8_lossy(&stackbeat(at, &["report", "t.beat"]).stdout).into_owned();
    assert!(
        text.contains("Scopes of the program") && text.contains("queue"),
        "{text}"
    );

    let chrome = stackbeat(at, &["export", "t.beat", "--to", "chrome", "-o", "-"]);
    let chrome: Value = serde_json::from_slice(&chrome.stdout).expect("JSON");
    let events = chrome["traceEvents"].as_array().expect("events");
    let phases = |phase: &str, name: &str| {
        events
            .iter()
            .filter(|e| e["ph"] == phase && e["name"] == name)
            .count()
    };
    assert_eq!((phases("b", "outer"), phases("e", "outer")), (5, 5));
    assert_eq!(
        (phases("s", "job"), phases("f", "job"), phases("C", "queue")),
        (1, 1, 5)
    );
    assert_eq!(phases("i", "answer"), 1);
    let firefox = stackbeat(at, &["export", "t.beat", "--to", "firefox", "-o", "-"]);
    let firefox: Value = serde_json::from_slice(&firefox.stdout).expect("JSON");
    let of_main = &firefox["threads"][0]["markers"];
    let kinds = of_main["data"].as_array().expect("data");
    let scopes = kinds
        .iter()
        .enumerate()
        .filter(|(_, d)| d["kind"] == "scope");
    let lengths: Vec<f64> = scopes
        .map(|(i, _)| {
            let at = |column: &str| of_main[column][i].as_f64().expect("a time");
            at("endTime") - at("startTime")
        })
        .collect();
    assert_eq!(lengths.len(), 10);
    assert!(lengths.iter().all(|ms| *ms >= 9.9), "{lengths:?}");
    let perfetto = stackbeat(
        at,
        &["export", "t.beat", "--to", "perfetto", "-o", "t.pftrace"],
    );
    assert!(perfetto.status.success());
    let rows = tools::trace_processor(
        &at.join("t.pftrace"),
        &[
            "select s.name, count(*) as n, min(s.dur) as least, max(s.depth) as depth \
             from slice s join track t on s.track_id = t.id where t.name = 'scopes' \
             group by s.name order by s.name",
            "select count(*) as flows from flow f join slice s on f.slice_out = s.id \
             where s.name = 'job'",
            "select count(*) as arrows, s.name as waker, t.name as woken from flow f \
             join slice s on f.slice_out = s.id join slice t on f.slice_in = t.id \
             where s.name like 'wakes %' and s.ts <= t.ts group by s.name, t.name",
            "select count(*) as n, max(value) as highest from counter c join track t \
             on c.track_id = t.id where t.name = 'queue'",
        ],
    );
    let row = |name: &str| rows.iter().find(|r| r["name"] == name).expect(name);
    assert_eq!(
        (&row("outer")["n"], &row("outer")["depth"]),
        (&5.into(), &0.into())
    );
    assert_eq!(
        (&row("inner")["n"], &row("inner")["depth"]),
        (&5.into(), &1.into())
    );
    assert!(
        row("outer")["least"].as_i64() >= Some(20_000_000),
        "{rows:?}"
    );
    assert!(
        row("inner")["least"].as_i64() >= Some(10_000_000),
        "{rows:?}"
    );
    assert_eq!(row("job")["n"], 2);
    assert!(rows.iter().any(|r| r["flows"] == 1), "{rows:?}");
    // The main thread waited for the worker's end.
    let is_join = |r: &Value| {
        let is = |column: &str, start: &str| {
            r[column]
                .as_str()
                .is_some_and(|name| name.starts_with(start))
        };
        is("waker", "wakes ") && is("woken", "woken by ") && r["arrows"] == 1
    };
    assert!(rows.iter().any(is_join), "{rows:?}");
    assert!(
        rows.iter().any(|r| r["highest"].as_f64() == Some(40.0)),
        "{rows:?}"
    );
    let info = json(at, &["info", "t.beat", "--json"]);
    assert_eq!(info["recording"]["records_lost"], 0);
}

#[test]
fn the_recorder_reads_counters_of_processes_unless_told_not_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let script = "d = []
import time
end = time.time() + 1.5
while time.time() < end:
    d.append(bytearray(1 << 16)); sum(range(20000))";
    let run = |name: &str, flags: &[&str]| {
        let mut arguments = vec!["record", "-q", "-o", name];
        arguments.extend(flags);
        arguments.extend(["--", "python3", "-c", script]);
        let output = stackbeat(at, &arguments);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        json(at, &["report", name, "--json"])["counters"].clone()
    };
    let counters = run("t.beat", &[]);
    let cpu = named(&counters, "CPU");
    assert!(cpu["max"].as_i64() > Some(20), "{cpu}");
    let memory = named(&counters, "memory");
    assert_eq!(memory["unit"], "bytes");
    assert!(memory["max"].as_i64() > memory["min"].as_i64(), "{memory}");
    assert!(named(&counters, "descriptors")["last"].as_i64() >= Some(3));
    // 64 KiB a round.
    let allocated = named(&counters, "allocated");
    assert_eq!(allocated["unit"], "bytes/s");
    assert!(allocated["max"].as_i64() > Some(1 << 20), "{allocated}");
    let allocations = named(&counters, "allocations");
    assert!(allocations["max"].as_i64() > Some(16), "{allocations}");
    assert!(named(&counters, "minor faults")["max"].as_i64() > Some(100));
    assert_eq!(
        run("off.beat", &["--counters", "off"]),
        serde_json::json!([])
    );
    assert_eq!(run("ring.beat", &["--mode", "ring"]), serde_json::json!([]));
    let refused = stackbeat(at, &["record", "--counters", "1ms", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// Not a test: what `the_rust_crate_does_the_same` records.
#[test]
#[ignore = "is run by another test"]
fn worker() {
    for i in 0..1000 {
        let _scope = stackbeat_api::scope("turn");
        stackbeat_api::counter("turns", i);
    }
    stackbeat_api::mark("done");
    assert!(stackbeat_api::is_active());
}

#[test]
fn the_rust_crate_does_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let own = std::env::current_exe()
        .expect("a path")
        .display()
        .to_string();
    let output = stackbeat(
        at,
        &[
            "record",
            "-q",
            "-o",
            "t.beat",
            "--",
            &own,
            "--ignored",
            "--exact",
            "worker",
        ],
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let report = json(at, &["report", "t.beat", "--json"]);
    assert_eq!(named(&report["scopes"], "turn")["count"], 1000);
    assert_eq!(named(&report["counters"], "turns")["last"], 999);
    assert_eq!(report["events"][0]["text"], "done");
}
