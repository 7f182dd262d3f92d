//! What a program says about itself, from `stackbeat.h` and from the Rust crate, through a real recording
//! into every view; and the counters that the recorder reads.

use std::fs;
use std::process::Command;

use serde_json::Value;
use stackbeat_tests::compile;

use stackbeat_tests::tool::{json, stackbeat};
use stackbeat_tests::viewers;

/// Two threads hand work over; scopes nest; one is never ended, one end has no begin.
const PROGRAM: &str = r#"
#include "stackbeat.h"
#include <pthread.h>
#include <stdio.h>
#include <fcntl.h>
#include <unistd.h>
#include <time.h>
static int zero;
static void read_often(int count) {
    char byte;
    for (int i = 0; i < count; i++) if (read(zero, &byte, 1) != 1) _exit(4);
}
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
    zero = open("/dev/zero", O_RDONLY);
    stackbeat_scope_end();
    stackbeat_mark("start \"quoted\" <b>");
    for (int i = 0; i < 5; i++) {
        stackbeat_scope_begin("outer");
        stackbeat_counter("queue", i * 10);
        stackbeat_scope_begin("inner");
        pause_ms(10);
        read_often(600);
        stackbeat_scope_end();
        pause_ms(10);
        read_often(200);
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
    compile(at, "p.c", PROGRAM, &[]);
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
    // Who reads is known by samples: all do inside of the outer scope, three in four inside of the inner one.
    let reads = |row: &Value| ns(&row["system_calls"], "read");
    assert!((3990..=4000).contains(&reads(outer)), "{outer}");
    assert!((2000..=3900).contains(&reads(inner)), "{inner}");
    assert!(named(scopes, "left open")["system_calls"]["read"].is_null());
    // Lasts until its thread ends.
    assert!(ns(named(scopes, "left open"), "total_ns") >= 19_000_000);
    assert_eq!(
        scopes.as_array().map(Vec::len),
        Some(3),
        "no end without a begin"
    );
    // The worker's start is main's.
    let threads = report["threads"].as_array().expect("threads");
    let is_main = |thread: &&Value| thread["is_main"] == true;
    let main = threads.iter().find(is_main).expect("the main thread");
    let worker = threads.iter().find(|t| !is_main(t)).expect("the worker");
    assert_eq!(worker["started_by_utid"], main["utid"]);
    let starts_in_main = |f: &Value| f == "main";
    let started_at = worker["started_at"].as_array().expect("a stack");
    assert!(started_at.iter().any(starts_in_main), "{worker}");
    assert_eq!(
        (&main["started_by_utid"], &main["started_at"]),
        (&0.into(), &Value::Array(vec![]))
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
        .filter(|e| e["kind"] == "mark")
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
    let text =
        String::from_utf8_lossy(&stackbeat(at, &["report", "t.beat", "--all"]).stdout).into_owned();
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
        (1, 1, 6),
        "a counter of five values, and of 0 when its process ends"
    );
    assert_eq!(phases("i", "answer"), 1);
    // One thread started, one end of a thread waited for.
    for arrow in ["thread start", "wakeup"] {
        let ids = |phase: &str| -> Vec<&Value> {
            let ends = events
                .iter()
                .filter(|e| e["cat"] == arrow && e["ph"] == phase);
            ends.map(|e| &e["id"]).collect()
        };
        let ids = (ids("s"), ids("f"));
        assert_eq!((ids.0.len(), &ids.0), (1, &ids.1), "{arrow}");
    }
    fs::write(at.join("t.json"), chrome.to_string()).expect("writes");
    // Each leads from a call of the one thread to a slice of the other, in the direction of what happened.
    let flows = "select count(*) as flows from flow f \
                 join slice s on f.slice_out = s.id join slice t on f.slice_in = t.id \
                 join thread_track sr on s.track_id = sr.id join thread st on sr.utid = st.utid \
                 join thread_track tr on t.track_id = tr.id join thread tt on tr.utid = tt.utid \
                 where s.category not in ('flow', 'wakeup') and s.ts <= t.ts and \
                 ((t.category = 'wakeup' and t.name like 'woken by %' and tt.is_main_thread) \
                  or (st.is_main_thread and not tt.is_main_thread and t.ts = \
                   (select min(ts) from slice first where first.track_id = t.track_id)) \
                  or (t.category = 'flow' and t.name = 'job' and not tt.is_main_thread))";
    let flows = viewers::trace_processor(&at.join("t.json"), &[flows]);
    assert_eq!(flows[0]["flows"], 3, "{flows:?}");
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
    let rows = viewers::trace_processor(
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
            "select count(*) as starts, st.is_main_thread as starter, tt.is_main_thread as started \
             from flow f join slice s on f.slice_out = s.id join slice t on f.slice_in = t.id \
             join thread_track sr on s.track_id = sr.id join thread st on sr.utid = st.utid \
             join thread_track tr on t.track_id = tr.id join thread tt on tr.utid = tt.utid \
             where s.name like 'starts %' and t.name like 'started by %' and s.ts <= t.ts \
             group by 2, 3",
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
    let is_start = |r: &Value| r["starts"] == 1 && r["starter"] == 1 && r["started"] == 0;
    assert!(rows.iter().any(is_start), "{rows:?}");
    assert!(
        rows.iter().any(|r| r["highest"].as_f64() == Some(40.0)),
        "{rows:?}"
    );
    let info = json(at, &["info", "t.beat", "--json"]);
    assert_eq!(info["recording"]["records_lost"], 0);
}

/// Two of one name overlap; one ends in another thread, one end has no begin, one is never ended.
const ASYNCHRONOUS: &str = r#"
#include "stackbeat.h"
#include <pthread.h>
#include <time.h>
static void pause_ms(long ms) {
    struct timespec t = {0, ms * 1000000L};
    nanosleep(&t, 0);
}
static void *worker(void *argument) {
    stackbeat_async_end("download", 1);
    return argument;
}
int main(void) {
    pthread_t thread;
    stackbeat_async_begin("download", 1);
    pause_ms(10);
    stackbeat_async_begin("download", 2);
    stackbeat_async_begin("left open", 1);
    pause_ms(10);
    pthread_create(&thread, 0, worker, 0);
    pthread_join(thread, 0);
    pause_ms(10);
    stackbeat_async_end("download", 2);
    stackbeat_async_end("download", 9);
    return 0;
}
"#;

#[test]
fn asynchronous_work_is_nobodys_thread_and_may_overlap() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", ASYNCHRONOUS, &[]);
    let recorded = stackbeat(at, &["record", "-q", "-o", "t.beat", "--", "./p"]);
    assert_eq!(recorded.status.code(), Some(0));

    let report = json(at, &["report", "t.beat", "--json"]);
    let downloads = named(&report["scopes"], "download");
    let ns = |row: &Value, field: &str| row[field].as_u64().expect("a number");
    assert_eq!(ns(downloads, "count"), 2, "{report}");
    assert!(ns(downloads, "longest_ns") >= 19_800_000, "{downloads}");
    assert!(ns(downloads, "total_ns") >= 39_600_000, "{downloads}");
    assert_eq!(ns(named(&report["scopes"], "left open"), "count"), 1);

    let export = |format: &str, to: &str| {
        let output = stackbeat(at, &["export", "t.beat", "--to", format, "-o", to]);
        assert!(output.status.success(), "{format}");
        fs::read(at.join(to)).expect("reads")
    };
    let chrome: Value = serde_json::from_slice(&export("chrome", "t.json")).expect("JSON");
    let events = chrome["traceEvents"].as_array().expect("events");
    let pairs: Vec<f64> = events
        .iter()
        .filter(|e| e["cat"] == "async" && e["ph"] == "b")
        .map(|begin| {
            let mut ends = events.iter().filter(|e| {
                e["ph"] == "e" && (&e["cat"], &e["id"]) == (&begin["cat"], &begin["id"])
            });
            let end = ends.next().expect("an end");
            assert_eq!((&end["name"], ends.count()), (&begin["name"], 0));
            let us = |event: &Value| event["ts"].as_f64().expect("a time");
            us(end) - us(begin)
        })
        .collect();
    assert_eq!(pairs.len(), 3);
    assert!(pairs.iter().all(|us| *us >= 19_800.0), "{pairs:?}");
    export("perfetto", "t.pftrace");
    let rows = viewers::trace_processor(
        &at.join("t.pftrace"),
        &[
            "select s.name, count(*) as n, min(s.dur) as least, max(s.depth) as depth, \
           count(distinct s.track_id) as tracks from slice s join process_track t \
           on s.track_id = t.id where s.name in ('download', 'left open') group by 1",
        ],
    );
    let rows = Value::from(rows);
    let downloads = named_once(&rows, "download");
    assert_eq!(
        (&downloads["n"], &downloads["tracks"]),
        (&2.into(), &2.into())
    );
    assert_eq!(downloads["depth"], 0, "{rows}");
    assert!(downloads["least"].as_i64() >= Some(19_800_000), "{rows}");
    assert_eq!(named_once(&rows, "left open")["n"], 1, "{rows}");
    let firefox: Value = serde_json::from_slice(&export("firefox", "t.fx")).expect("JSON");
    let markers = firefox["threads"][0]["markers"]["data"].as_array();
    let markers = markers.expect("data").iter();
    assert_eq!(markers.filter(|d| d["kind"] == "async").count(), 3);
}

fn named_once<'a>(rows: &'a Value, name: &str) -> &'a Value {
    let rows = rows.as_array().expect("rows");
    let mut found = rows.iter().filter(|row| row["name"] == name);
    let first = found.next().unwrap_or_else(|| panic!("{name}: {rows:?}"));
    assert_eq!(found.count(), 0, "{rows:?}");
    first
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
        json(at, &["report", name, "--json"])
    };
    let report = run("t.beat", &[]);
    let counters = &report["counters"];
    let cpu = named(counters, "CPU");
    // It computes all the time: the highest rate is about the mean one, whatever a processor leaves to it.
    let cpu_ns = report["totals"]["cpu_ns"].as_i64().expect("ns");
    let duration_ns = report["recording"]["duration_ns"].as_i64().expect("ns");
    let mean = cpu_ns * 100 / duration_ns;
    assert!(cpu["max"].as_i64() >= Some(mean * 3 / 4), "{mean}: {cpu}");
    let memory = named(counters, "memory");
    assert_eq!(memory["unit"], "bytes");
    assert!(memory["max"].as_i64() > memory["min"].as_i64(), "{memory}");
    assert!(named(counters, "descriptors")["last"].as_i64() >= Some(3));
    // 64 KiB a round.
    let allocated = named(counters, "allocated");
    assert_eq!(allocated["unit"], "bytes/s");
    assert!(allocated["max"].as_i64() > Some(1 << 20), "{allocated}");
    let allocations = named(counters, "allocations");
    assert!(allocations["max"].as_i64() > Some(16), "{allocations}");
    assert!(named(counters, "minor faults")["max"].as_i64() > Some(100));
    assert_eq!(
        run("off.beat", &["--counters", "off"])["counters"],
        serde_json::json!([])
    );
    assert_eq!(
        run("ring.beat", &["--mode", "ring"])["counters"],
        serde_json::json!([])
    );
    let refused = stackbeat(at, &["record", "--counters", "1ms", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// In each round three threads come to a lock that the main thread holds. Prints how often they found it
/// held.
const CONTENDED: &str = r#"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t round_begins, round_ends;
static atomic_int held;
static void *worker(void *argument) {
    for (int i = 0; i < 20; i++) {
        pthread_barrier_wait(&round_begins);
        if (pthread_mutex_trylock(&lock)) {
            held++;
            pthread_mutex_lock(&lock);
        }
        for (int j = 0; j < 100; j++) free(malloc(100 + j));
        pthread_mutex_unlock(&lock);
        pthread_barrier_wait(&round_ends);
    }
    return argument;
}
int main(void) {
    pthread_t threads[3];
    pthread_barrier_init(&round_begins, 0, 4);
    pthread_barrier_init(&round_ends, 0, 4);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, worker, 0);
    for (int i = 0; i < 20; i++) {
        struct timespec t = {0, 20000000};
        pthread_mutex_lock(&lock);
        pthread_barrier_wait(&round_begins);
        nanosleep(&t, 0);
        pthread_mutex_unlock(&lock);
        pthread_barrier_wait(&round_ends);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    printf("%d\n", held);
    return 0;
}
"#;

#[test]
fn waits_for_locks_and_switches_are_counters_that_add_up_to_the_threads_totals() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", CONTENDED, &["-O0"]);
    let recorded = stackbeat(at, &["record", "-q", "-o", "t.beat", "--", "./p"]);
    let printed = String::from_utf8_lossy(&recorded.stdout);
    let held: u64 = printed.trim().parse().expect("a number");
    let report = json(at, &["report", "t.beat", "--json"]);
    let exported = stackbeat(
        at,
        &["export", "t.beat", "--to", "perfetto", "-o", "t.pftrace"],
    );
    assert!(exported.status.success());

    let rows = |value: &Value| value.as_array().expect("rows").clone();
    let sites = rows(&report["blocking_sites"]);
    let waits: u64 = sites
        .iter()
        .filter(|site| site["cause"] == "lock")
        .filter_map(|site| site["count"].as_u64())
        .sum();
    // Each held lock is a wait, if the thread came to wait before the lock was released.
    assert!(waits * 2 >= held && waits <= held + 3, "{waits} of {held}");

    // In Perfetto: what the process' series reach, what its threads' series reach together, and the report.
    let totals = &report["totals"];
    let expected = [
        ("lock waits", &Value::from(waits)),
        ("lock wait time", &totals["blocked_by_cause_ns"]["lock"]),
        ("voluntary switches", &totals["voluntary_switches"]),
        ("allocation count", &totals["allocations"]),
    ];
    let queries = expected.map(|(name, _)| {
        format!(
            "select '{name}' as name, \
               (select max(value) from counter c join process_counter_track t on c.track_id = t.id \
                where t.name = '{name}') as process, \
               (select sum(highest) from (select max(value) as highest from counter c \
                join thread_counter_track t on c.track_id = t.id \
                where t.name like '{name} of thread %' group by t.id)) as threads"
        )
    });
    let series = viewers::trace_processor(
        &at.join("t.pftrace"),
        &queries.each_ref().map(String::as_str),
    );
    for (name, total) in expected {
        let row = named(&Value::from(series.clone()), name).clone();
        let total = total.as_f64().expect("a total");
        assert!(total > 0.0, "{name}");
        assert_eq!(row["process"].as_f64(), Some(total), "{name}: {row}");
        assert_eq!(row["threads"].as_f64(), Some(total), "{name}: {row}");
    }

    let counters = &report["counters"];
    assert_eq!(named(counters, "lock wait time")["unit"], "us/s");
    assert!(named(counters, "lock waits")["max"].as_i64() > Some(0));
    assert!(named(counters, "voluntary switches")["max"].as_i64() > Some(0));
    let workers: Vec<Value> = rows(&report["threads"])
        .into_iter()
        .filter(|thread| thread["blocked_by_cause_ns"]["lock"].as_u64() > Some(0))
        .collect();
    assert!(!workers.is_empty(), "{report}");
    for worker in workers {
        // A thread cannot wait longer than the time that passes.
        let waited = named(&worker["counters"], "lock wait time")["max"].as_i64();
        assert!(waited > Some(0) && waited <= Some(1_000_000), "{worker}");
        assert!(named(&worker["counters"], "allocations")["max"].as_i64() > Some(0));
    }
}

/// Not a test: what `the_rust_crate_does_the_same` records.
#[test]
#[ignore = "is run by another test"]
fn worker() {
    for i in 0..1000 {
        let _scope = stackbeat_api::scope("turn");
        stackbeat_api::counter("turns", i);
        stackbeat_api::async_begin("request", i as u64);
        if i > 0 {
            stackbeat_api::async_end("request", i as u64 - 1);
        }
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
            "marks::events::worker",
        ],
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let report = json(at, &["report", "t.beat", "--json"]);
    assert_eq!(named(&report["scopes"], "turn")["count"], 1000);
    assert_eq!(named(&report["scopes"], "request")["count"], 1000);
    assert_eq!(named(&report["counters"], "turns")["last"], 999);
    let mut events = report["events"].as_array().expect("events").iter();
    let mark = events.find(|event| event["kind"] == "mark");
    assert_eq!(mark.expect("a mark")["text"], "done");
}
