//! A library in C that uses `stackbeat.h` and is loaded by a program that knows nothing of it: an extension
//! of sqlite3.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use stackbeat_tests::tool::{json, stackbeat, text};
use stackbeat_tests::workspace;

/// Two functions of SQL: `doubled(i)`, and whether anybody listens.
const EXTENSION: &str = r#"
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1
#include "stackbeat.h"
#include <pthread.h>
#include <time.h>

static void *take_over(void *id) {
    stackbeat_flow_end("handed over", (uint64_t)(uintptr_t)id);
    stackbeat_mark("taken over");
    stackbeat_async_end("query", 1);
    return 0;
}

static void doubled(sqlite3_context *context, int count, sqlite3_value **values) {
    STACKBEAT_SCOPE("doubled");
    sqlite3_int64 i = sqlite3_value_int64(values[0]);
    (void)count;
    stackbeat_counter("row", i);
    if (i == 1) stackbeat_async_begin("query", 1);
    if (i % 100 == 0) {
        stackbeat_scope_begin("pause");
        struct timespec time = {0, 2000000};
        nanosleep(&time, 0);
        stackbeat_scope_end();
        stackbeat_mark_value("rows", i);
        stackbeat_capture();
    }
    if (i == 250) {
        pthread_t thread;
        stackbeat_flow_begin("handed over", (uint64_t)i);
        pthread_create(&thread, 0, take_over, (void *)(uintptr_t)i);
        pthread_join(thread, 0);
    }
    sqlite3_result_int64(context, 2 * i);
}

static void listens(sqlite3_context *context, int count, sqlite3_value **values) {
    (void)count, (void)values;
    sqlite3_result_int(context, stackbeat_is_active());
}

int sqlite3_extension_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    SQLITE_EXTENSION_INIT2(api);
    (void)error;
    stackbeat_mark("loaded");
    int result = sqlite3_create_function(db, "doubled", 1, SQLITE_UTF8, 0, doubled, 0, 0);
    return result ? result : sqlite3_create_function(db, "listens", 0, SQLITE_UTF8, 0, listens, 0, 0);
}
"#;

const ROWS: u64 = 500;

/// Builds it; `None` where sqlite3 or its headers are not installed.
fn build(folder: &Path, options: &[&str]) -> Option<()> {
    let is_here = Command::new("sqlite3").arg("-version").output().is_ok();
    if !is_here || !Path::new("/usr/include/sqlite3ext.h").exists() {
        eprintln!("sqlite3 and libsqlite3-dev are not installed: not tested");
        return None;
    }
    fs::write(folder.join("beat.c"), EXTENSION).expect("writes");
    let include = workspace().join("api/include");
    let output = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC"])
        .args(["-shared", "-pthread", "-o", "beat.so", "beat.c"])
        .args(options)
        .arg("-I")
        .arg(include)
        .current_dir(folder)
        .output();
    let output = output.expect("gcc runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(())
}

/// What sqlite3 is asked.
fn question() -> [String; 4] {
    let sql = format!(
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < {ROWS})
         select sum(doubled(i)), listens() from n;"
    );
    ["sqlite3", ":memory:", ".load ./beat", &sql].map(str::to_owned)
}

/// What sqlite3 answers by itself, and recorded.
#[track_caller]
fn answers(folder: &Path) -> [String; 2] {
    let question = question();
    let question: Vec<&str> = question.iter().map(String::as_str).collect();
    let mut alone = Command::new(question[0]);
    let alone = alone.args(&question[1..]).current_dir(folder).output();
    let alone = alone.expect("runs");
    let record = ["record", "-q", "-f", "-o", "t.beat", "--"];
    let recorded = stackbeat(folder, &[&record[..], &question].concat());
    [alone, recorded].map(|output| {
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    })
}

fn rows<'a>(report: &'a Value, key: &str) -> &'a [Value] {
    report[key].as_array().expect(key)
}

#[track_caller]
fn named<'a>(report: &'a Value, key: &str, name: &str) -> &'a Value {
    let mut rows = rows(report, key).iter();
    let row = rows.find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("{name}: {:#}", report[key]))
}

#[test]
fn an_extension_of_sqlite_is_heard() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    if build(at, &[]).is_none() {
        return;
    }
    let sum = ROWS * (ROWS + 1);
    assert_eq!(answers(at), [format!("{sum}|0"), format!("{sum}|1")]);
    let report = json(at, &["report", "t.beat", "--json"]);
    assert_eq!(named(&report, "scopes", "doubled")["count"], ROWS);
    let pause = named(&report, "scopes", "pause");
    assert_eq!(pause["count"], 5);
    assert!(pause["total_ns"].as_u64() >= Some(10_000_000), "{pause}");
    assert_eq!(named(&report, "scopes", "query")["count"], 1);
    let counter = named(&report, "counters", "row");
    let expected = [ROWS, 1, ROWS, ROWS].map(Value::from);
    let said = ["values", "min", "max", "last"].map(|key| counter[key].clone());
    assert_eq!(said, expected);
    // Of the thread that took over, one mark; all others are of the main thread.
    let utid = |is_main: bool| {
        let mut threads = rows(&report, "threads").iter();
        let thread = threads.find(|thread| thread["is_main"] == is_main);
        thread.expect("a thread")["utid"].clone()
    };
    let (main, other) = (utid(true), utid(false));
    let marks = rows(&report, "events")
        .iter()
        .filter(|e| e["kind"] == "mark");
    let marks: Vec<_> = marks
        .map(|e| {
            (
                e["text"].as_str().expect("text"),
                e["value"].clone(),
                &e["utid"],
            )
        })
        .collect();
    let at_hundreds = |i: u64| ("rows", Value::from(100 * i), &main);
    let expected = [
        ("loaded", Value::from(0), &main),
        at_hundreds(1),
        at_hundreds(2),
        ("taken over", Value::from(0), &other),
        at_hundreds(3),
        at_hundreds(4),
        at_hundreds(5),
    ];
    assert_eq!(marks, expected);
    // The arrow between the two threads, and the stacks that were asked for.
    let export = ["export", "t.beat", "--to", "chrome", "-o", "t.json"];
    assert!(stackbeat(at, &export).status.success());
    let chrome: Value =
        serde_json::from_slice(&fs::read(at.join("t.json")).expect("reads")).expect("JSON");
    let thread = |phase: &str| {
        let ends = rows(&chrome, "traceEvents").iter();
        let mut ends = ends.filter(|e| e["name"] == "handed over" && e["ph"] == phase);
        let end = ends.next().unwrap_or_else(|| panic!("no {phase}"));
        assert_eq!((ends.next(), &end["id"]), (None, &Value::from("0xfa")));
        end["tid"].clone()
    };
    assert_ne!(thread("s"), thread("f"));
    let folded = stackbeat(at, &["export", "t.beat", "--to", "folded", "-o", "-"]);
    let folded = text(&folded.stdout);
    assert!(folded.contains("sqlite3_step;"), "{folded}");
    assert!(folded.contains(";doubled"), "{folded}");
}

#[test]
fn built_without_it_the_extension_says_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    if build(at, &["-DSTACKBEAT_NOOP"]).is_none() {
        return;
    }
    let sum = ROWS * (ROWS + 1);
    assert_eq!(answers(at), [format!("{sum}|0"), format!("{sum}|0")]);
    let report = json(at, &["report", "t.beat", "--json"]);
    assert!(rows(&report, "scopes").is_empty(), "{report}");
    let mut events = rows(&report, "events").iter();
    assert!(
        !events.any(|e| e["kind"] == "mark"),
        "{:#}",
        report["events"]
    );
    let mut counters = rows(&report, "counters").iter();
    assert!(!counters.any(|row| row["name"] == "row"));
    let mut nm = Command::new("nm");
    let symbols = nm.args(["-D", "beat.so"]).current_dir(at).output();
    let symbols = text(&symbols.expect("nm is installed").stdout);
    assert!(symbols.contains("sqlite3_extension_init"), "{symbols}");
    assert!(
        !symbols.contains("dlsym") && !symbols.contains("stackbeat"),
        "{symbols}"
    );
}
