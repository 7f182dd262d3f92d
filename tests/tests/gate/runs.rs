//! What a gate says of traces that cannot be compared as they are, of runs that crash, and of where it runs
//! them.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use stackbeat_tests::compile;

use super::{binary, command_in, stackbeat};

/// Reads lines until they end; with arguments it crashes in its second run, which it counts in the file
/// `runs`.
const COUNTS: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) long count_lines(void) {
    long lines = 0;
    int c;
    while ((c = getchar()) != EOF) lines += c == '\n';
    return lines;
}
__attribute__((noinline)) void compute(void) {
    volatile double x = 1;
    for (int i = 0; i < 20000000; i++) x = x * 1.0000001 + 0.1;
}
int main(int count, char **arguments) {
    if (count > 1) {
        FILE *file = fopen(arguments[1], "a+");
        fputc('.', file);
        long runs = ftell(file);
        fclose(file);
        if (runs == 2) raise(SIGSEGV);
    }
    printf("%ld\n", count_lines());
    compute();
}
"#;

const SORTS: &str = r#"
#include <stdlib.h>
__attribute__((noinline)) int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) void sort_all(int *values, int count) {
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < count; i++) values[i] = rand();
        qsort(values, count, sizeof *values, by_value);
    }
}
int main(void) {
    static int values[20000];
    sort_all(values, 20000);
}
"#;

fn record(at: &Path, trace: &str, program: &[&str]) {
    let recorded = stackbeat(
        at,
        &[&["record", "-q", "-o", trace, "--"], program].concat(),
    );
    assert!(recorded.status.success(), "{recorded:?}");
}

fn gate(at: &Path, baseline: &str, candidate: &str) -> (Option<i32>, String) {
    let output = stackbeat(at, &["gate", "-b", baseline, "-c", candidate]);
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn traces_that_cannot_be_compared_are_refused_or_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "counts.c", COUNTS, &[]);
    compile(at, "sorts.c", SORTS, &[]);
    std::fs::copy(at.join("counts"), at.join("counts-new")).expect("is copied");
    for side in ["old", "new", "other"] {
        std::fs::create_dir(at.join(side)).expect("is made");
    }
    for run in 0..2 {
        record(at, &format!("old/{run}.beat"), &["./counts"]);
        record(at, &format!("new/{run}.beat"), &["./counts-new"]);
        record(at, &format!("other/{run}.beat"), &["./sorts"]);
    }
    // Another program, and another build of the same one.
    let (code, text) = gate(at, "old", "other");
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("other/0.beat of sorts") && text.contains("give runs of one program"),
        "{text}"
    );
    let (code, text) = gate(at, "old", "new");
    assert_ne!(code, Some(2), "{text}");
    // The same traces on both sides, however they are named.
    assert!(!text.contains("compared with itself"), "{text}");
    let (_, text) = gate(at, "old", &at.join("old/1.beat").display().to_string());
    assert!(
        text.contains("1 of 1 traces of the candidate are the baseline's, too"),
        "{text}"
    );
    // A file among them that is no trace is left out, and said in the report.
    std::fs::write(at.join("new/2.beat"), "text").expect("is written");
    let (code, text) = gate(at, "old", "new");
    assert_ne!(code, Some(2), "{text}");
    let said = "new/2.beat is not a stackbeat trace";
    assert!(text.contains(said) && text.contains("left out"), "{text}");
    let output = stackbeat(at, &["gate", "--paired", "-b", "old", "-c", "new"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    std::fs::remove_file(at.join("new/2.beat")).expect("is removed");
    // What is damaged is said in the report, whatever its format.
    let damaged = at.join("new/1.beat");
    let mut bytes = std::fs::read(&damaged).expect("is read");
    // Longer than any packet, so that the head of one is hit.
    let (begin, end) = (bytes.len() / 4, bytes.len() * 3 / 4);
    bytes[begin..end].fill(0xA5);
    std::fs::write(&damaged, bytes).expect("is written");
    let output = stackbeat(at, &["gate", "-b", "old", "-c", "new", "--format", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let warnings = json["warnings"].to_string();
    assert!(
        warnings.contains("new/1.beat: damaged near byte"),
        "{warnings}"
    );
}

#[test]
fn what_only_a_shell_understands_a_shell_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "counts.c", COUNTS, &[]);
    let side = "printf 'a\\nb\\n' | ./counts > said";
    let ab = [
        "ab",
        "--in-turns",
        "--runs",
        "2",
        "--warmup",
        "0",
        "--format",
        "json",
    ];
    let output = stackbeat(at, &[&ab[..], &["-b", side, "-c", side]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(3), "{json:#}");
    let said = std::fs::read_to_string(at.join("said")).expect("is there");
    assert_eq!(said, "2\n");
    let command = json["candidate"][0]["command"].as_str().expect("a text");
    assert!(command.contains(side), "{command}");
}

#[test]
fn a_run_that_crashes_is_repeated_once_and_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "counts.c", COUNTS, &[]);
    let ab = [
        "ab",
        "--in-turns",
        "--runs",
        "2",
        "--warmup",
        "0",
        "--format",
        "json",
    ];
    let sides = ["-b", "./counts", "-c", "./counts runs"];
    let output = stackbeat(at, &[&ab[..], &sides].concat());
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(json["candidate"].as_array().map(Vec::len), Some(2));
    let warnings = json["warnings"].to_string();
    assert!(
        warnings.contains("a run of the candidate failed (") && warnings.contains("repeated"),
        "{warnings}"
    );
    assert_eq!(
        std::fs::read_to_string(at.join("runs")).expect("is there"),
        "..."
    );
}

#[test]
fn nobody_who_reads_any_more_is_no_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "counts.c", COUNTS, &[]);
    record(at, "a.beat", &["./counts"]);
    // Both standard output and standard error are a pipe that is closed.
    for arguments in [
        &["gate", "-b", "a.beat", "-c", "a.beat"][..],
        &["gate", "-b", "none", "-c", "none"],
        &["report", "none.beat"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = command_in(at, arguments);
        let both = command
            .stdout(writer.try_clone().expect("a copy"))
            .stderr(writer);
        let status = both.stdin(Stdio::null()).status().expect("runs");
        assert!(
            matches!(status.code(), Some(0..=3)),
            "{} {arguments:?}: {status}",
            binary()
        );
    }
}
