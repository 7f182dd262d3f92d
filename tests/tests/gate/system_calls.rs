//! System calls by kind and thread: one more in each round is found with two runs a side.

use std::path::Path;

use serde_json::Value;
use stackbeat_tests::compile;

use super::stackbeat;

/// A thread appends to a file; `how` says what else it does in each round, once more than otherwise. The main
/// thread meanwhile reads as often as time will have it. It makes one such call by itself: of a hundred calls
/// some ten are samples, and one that met another caller would be a tenth.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static const char *how;
static atomic_int done;
static volatile int rounds;
__attribute__((noinline)) void sync_again(int file) { fsync(file); rounds++; }
__attribute__((noinline)) void open_again(void) { close(open("entries", O_RDONLY)); rounds++; }
__attribute__((noinline)) void look_again(void) {
    struct stat status;
    stat("entries", &status);
    rounds++;
}
static void *keep(void *unused) {
    pthread_setname_np(pthread_self(), "keeper-7");
    int file = open("entries", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 120; i++) {
        if (write(file, "entry\n", 6) != 6) _exit(3);
        if (i == 60) fsync(file);
        if (!strcmp(how, "fsync")) sync_again(file);
        if (!strcmp(how, "open")) open_again();
        if (!strcmp(how, "stat")) look_again();
    }
    close(file);
    done = 1;
    return unused;
}
int main(int count, char **arguments) {
    how = count > 1 ? arguments[1] : "";
    pthread_t keeper;
    pthread_create(&keeper, 0, keep, 0);
    int zero = open("/dev/zero", O_RDONLY);
    char byte;
    while (!done) if (read(zero, &byte, 1) != 1) return 4;
    return pthread_join(keeper, 0);
}
"#;

fn record(folder: &Path, trace: &str, how: &str) {
    let arguments = ["record", "-q", "-o", trace, "--", "./log", how];
    let recorded = stackbeat(folder, &arguments);
    assert!(recorded.status.success(), "{recorded:?}");
}

/// Two runs of each side.
fn gate(at: &Path, candidate: &str, format: &str) -> (Option<i32>, String) {
    let candidate = format!("{candidate}[01].beat");
    let arguments = [
        "gate",
        "--fail-on-counts",
        "-b",
        "base[01].beat",
        "-c",
        &candidate,
        "--format",
        format,
    ];
    let output = stackbeat(at, &arguments);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    (output.status.code(), text)
}

#[test]
fn one_more_call_in_each_round_is_found_with_its_kind_and_thread() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "log.c", PROGRAM, &[]);
    for run in 0..2 {
        for side in ["base", "again"] {
            record(at, &format!("{side}{run}.beat"), "");
        }
        for how in ["fsync", "open", "stat"] {
            record(at, &format!("{how}{run}.beat"), how);
        }
    }
    let gate = |candidate: &str| {
        let (code, json) = gate(at, candidate, "json");
        (code, serde_json::from_str::<Value>(&json).expect("JSON"))
    };
    for (how, metric, also, function) in [
        ("fsync", "calls:sync", None, "sync_again"),
        ("open", "calls:open", Some("calls:close"), "open_again"),
        ("stat", "calls:stat", None, "look_again"),
    ] {
        let (code, json) = gate(how);
        assert_eq!(code, Some(1), "{json:#}");
        let rows = json["roles"].as_array().expect("a list");
        let mut of_kind = rows.iter().filter(|row| row["metric"] == metric);
        let row = of_kind.next().unwrap_or_else(|| panic!("{how}: {json:#}"));
        assert!(of_kind.next().is_none(), "{how}: {json:#}");
        assert_eq!(row["role"]["thread"], "keeper-*", "{row:#}");
        assert_eq!(row["shift"], 120.0, "{row:#}");
        assert_eq!(row["p"], Value::Null, "counted exactly");
        // A finding of its own, or part of one of the time that the thread waits for these calls.
        let findings = json["findings"].as_array().expect("a list");
        let has = |finding: &&Value, metric: &str| {
            let also = finding["also"].as_array().expect("a list");
            finding["metric"] == metric || also.iter().any(|m| *m == metric)
        };
        let found = findings.iter().find(|f| has(f, metric));
        let found = found.unwrap_or_else(|| panic!("{how}: {json:#}"));
        assert_eq!(found["role"]["thread"], "keeper-*", "{found:#}");
        assert!(also.is_none_or(|also| has(&found, also)), "{found:#}");
        // With the function that makes the calls, and how many it makes.
        assert_eq!(found["function"], function, "{found:#}");
        let parts = found["parts"].as_array().expect("a list");
        let part = parts.iter().find(|part| part["metric"] == metric);
        let part = part.unwrap_or_else(|| panic!("{found:#}"));
        assert_eq!(part["baseline"], 0.0, "{found:#}");
        let candidate = part["candidate"].as_f64().expect("a number");
        assert!((90.0..=121.0).contains(&candidate), "{found:#}");
    }
    let (_, json) = gate("again");
    let text = json["findings"].to_string();
    assert!(!text.contains("calls:"), "{text}");
}

/// Functions read from a file with the same number of calls; the argument says how many bytes one of them
/// reads at a time.
const READERS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static int file;
static char bytes[65536];
static volatile int rounds;
__attribute__((noinline)) void read_index(void) { if (pread(file, bytes, 16, 0) != 16) _exit(3); rounds++; }
__attribute__((noinline)) void read_entry(int size) { if (pread(file, bytes, size, 0) != size) _exit(3); rounds++; }
static void *serve(void *size) {
    pthread_setname_np(pthread_self(), "reader-1");
    for (int i = 0; i < 400; i++) { read_index(); read_entry(atoi(size)); }
    return 0;
}
int main(int count, char **arguments) {
    file = open("/dev/zero", O_RDONLY);
    pthread_t thread;
    pthread_create(&thread, 0, serve, arguments[1]);
    return pthread_join(thread, 0);
}
"#;

#[test]
fn twice_as_many_bytes_in_as_many_calls_are_found_with_their_function() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "readers.c", READERS, &[]);
    for run in 0..2 {
        for (side, size) in [("base", "2000"), ("same", "2000"), ("twice", "4000")] {
            let trace = format!("{side}{run}.beat");
            let arguments = ["record", "-q", "-o", &trace, "--", "./readers", size];
            let recorded = stackbeat(at, &arguments);
            assert!(recorded.status.success(), "{recorded:?}");
        }
    }
    let gate = |candidate: &str, format: &str| gate(at, candidate, format);
    let (code, json) = gate("twice", "json");
    assert_eq!(code, Some(1), "{json}");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let findings = json["findings"].as_array().expect("a list");
    let [found] = &findings[..] else {
        panic!("{json:#}");
    };
    assert_eq!(found["metric"], "bytes:read", "{found:#}");
    // What the kernel counts of the same reads joins it.
    assert_eq!(
        found["also"],
        serde_json::json!(["read-bytes"]),
        "{found:#}"
    );
    assert_eq!(found["cause"], "transfers", "{found:#}");
    assert_eq!(found["role"]["thread"], "reader-*", "{found:#}");
    assert_eq!(found["function"], "read_entry", "{found:#}");
    let rows = json["roles"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["metric"] == "bytes:read");
    assert_eq!(row.expect("a row")["shift"], 400.0 * 2000.0, "{rows:#?}");
    let (_, text) = gate("twice", "text");
    assert!(text.contains("bytes read by system calls"), "{text}");
    assert!(text.contains("788 KiB   1.53 MiB"), "{text}");

    let (_, json) = gate("same", "json");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let findings = json["findings"].to_string();
    assert!(!findings.contains("bytes"), "{findings}");
}
