//! Gates of real recordings: an injected slowdown is found with its function and its cause.

mod ci_files;
mod reports;
mod runs;
mod system_calls;
mod transfers;
mod trend;

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use stackbeat_tests::{compile, python};

use stackbeat_tests::tool::{binary, command_in, stackbeat};

/// Enough for an exact test at half a percent.
const RUNS: usize = 6;

fn compile_shop(folder: &Path) {
    compile(folder, "shop.c", include_str!("shop.c"), &[]);
}

/// Records each variant of the program in turns into folders of their names.
fn record(folder: &Path, variants: &[&str]) {
    compile_shop(folder);
    for variant in variants {
        std::fs::create_dir(folder.join(variant)).expect("is made");
    }
    for run in 0..RUNS {
        for variant in variants {
            let output = format!("{variant}/{run}.beat");
            let what = if variant.starts_with("base") {
                ""
            } else {
                variant
            };
            let recorded = stackbeat(
                folder,
                &["record", "-q", "-o", &output, "--", "./shop", "100", what],
            );
            assert!(recorded.status.success(), "{recorded:?}");
        }
    }
}

/// On a busy machine counts may be all that is sure.
fn gate(folder: &Path, candidate: &str) -> (Option<i32>, Value) {
    let both = ["gate", "-b", "base", "-c", candidate];
    let output = stackbeat(
        folder,
        &[&both[..], &["--format", "json", "--fail-on-counts"]].concat(),
    );
    let json = serde_json::from_slice(&output.stdout);
    let json = json.unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output.status.code(), json)
}

#[test]
fn an_injected_slowdown_is_found_with_function_and_cause() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    record(
        at,
        &["base", "base-again", "parse", "alloc", "sleep", "lock"],
    );

    let (code, json) = gate(at, "base-again");
    assert_ne!(code, Some(1), "{json:#}");

    for (variant, function, cause) in [
        ("parse", "parse", "cpu"),
        ("alloc", "render", "allocation"),
        ("sleep", "flush", "sleep"),
        ("lock", "take", "lock"),
    ] {
        let (code, json) = gate(at, variant);
        assert_eq!(code, Some(1), "{variant}: {json:#}");
        let all = json["findings"].as_array().expect("a list");
        let found = all
            .iter()
            .any(|f| f["cause"] == cause && is_in(f, function));
        assert!(found, "{variant}: {all:#?}");
    }
}

fn is_in(finding: &Value, function: &str) -> bool {
    let path = finding["path"].as_array().expect("a list");
    finding["function"] == function || path.iter().any(|frame| frame == function)
}

#[test]
fn ab_records_both_in_turns_and_stops_when_the_answer_is_clear() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile_shop(at);
    let arguments = [
        "ab",
        "--in-turns",
        "--runs",
        "12",
        "--warmup",
        "0",
        "-b",
        "./shop 60",
        "-c",
        "./shop 60 sleep",
        "--format",
        "json",
    ];
    let output = stackbeat(at, &arguments);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(1), "{json:#}");
    let runs = json["candidate"].as_array().expect("a list");
    let fresh = json["confirmation"]["runs"].as_u64().unwrap_or(0) as usize;
    assert!(
        runs.len() - fresh < 12,
        "{} runs, {fresh} of them fresh, for a change of this size",
        runs.len()
    );
    assert!(
        runs.iter().all(|r| r["calibration_ns"].is_u64()),
        "{runs:#?}"
    );
    let confirmation = &json["confirmation"];
    assert_eq!(confirmation["is_confirmed"], true, "{json:#}");
    assert!(
        confirmation["runs"]
            .as_u64()
            .is_some_and(|n| n >= 2 && n < runs.len() as u64)
    );
    // The traces stay, for another gate; they are not replaced by accident.
    assert!(at.join("stackbeat-ab/baseline/001.beat").exists());
    let named = [&arguments[..], &["-o", "stackbeat-ab"]].concat();
    assert_eq!(stackbeat(at, &named).status.code(), Some(2));

    let files = ["-o", "v.md", "-o", "v.html", "-o", "v.xml", "-o", "v.sarif"];
    let traces = [
        "gate",
        "-b",
        "stackbeat-ab/baseline",
        "-c",
        "stackbeat-ab/candidate",
    ];
    let output = stackbeat(at, &[&traces[..], &files[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("REGRESSION"));
    for (name, has) in [
        ("v.md", "### ❌"),
        ("v.html", "flush"),
        ("v.xml", "<failure"),
        ("v.sarif", "slower/"),
    ] {
        let text = std::fs::read_to_string(at.join(name)).expect("was written");
        assert!(text.contains(has), "{name}");
    }
    reports::are_valid(&at.join("v.sarif"), &at.join("v.xml"), 1);

    // Nobody reads what it prints; files and exit code still count.
    let quiet = [&traces[..], &["--format", "json", "-o", "unread.md"]].concat();
    let mut unread = command_in(at, &quiet);
    let unread = unread.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut unread = unread.expect("starts");
    drop(unread.stdout.take());
    let output = unread.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(at.join("unread.md").exists());

    let traces = ["diff", "stackbeat-ab/baseline", "stackbeat-ab/candidate"];
    let output = stackbeat(at, &traces);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("blocked: sleep: "), "{text}");

    let policy = "[[budget]]\nfunction = \"main\"\nmetric = \"cpu\"\nmax = \"1ms\"\n";
    std::fs::write(at.join("p.toml"), policy).expect("is written");
    let same = [
        "gate",
        "-b",
        "stackbeat-ab/baseline",
        "-c",
        "stackbeat-ab/baseline",
    ];
    let files = ["-o", "s.xml", "-o", "s.sarif"];
    let output = stackbeat(at, &[&same[..], &files[..]].concat());
    assert_ne!(output.status.code(), Some(1), "{output:?}");
    reports::are_valid(&at.join("s.sarif"), &at.join("s.xml"), 0);
    let output = stackbeat(at, &[&same[..], &["--policy", "p.toml"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("over budget: CPU time of function main"),
        "{text}"
    );

    let failing = stackbeat(at, &["ab", "-o", "f", "-b", "./shop 1", "-c", "false"]);
    assert_eq!(failing.status.code(), Some(2));
    let text = String::from_utf8_lossy(&failing.stderr);
    assert!(text.contains("the candidate failed"), "{text}");
}

/// Computes so many steps, and says which processors it may use.
const COMPUTES: &str = "
import os, sys
with open(sys.argv[2], 'a') as file:
    print(*sorted(os.sched_getaffinity(0)), file=file)
x = 1
for _ in range(int(sys.argv[1])):
    x = (x * 1103515245 + 12345) & 0x7FFFFFFF
";

#[test]
fn pairs_that_share_a_processor_show_what_noise_would_hide() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    std::fs::write(at.join("work.py"), COMPUTES).expect("is written");
    let python = python();
    let command = |steps: u32| format!("{python} work.py {steps} cpus");
    let (old, new) = (command(2_000_000), command(2_500_000));
    let ab = [
        "ab",
        "--together",
        "--no-confirm",
        "--runs",
        "10",
        "--format",
        "json",
    ];
    let output = stackbeat(at, &[&ab[..], &["-b", &old, "-c", &new]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(1), "{json:#}");
    // A quarter more, and next to nothing of the start-up.
    let whole = json["whole"].as_array().expect("a list");
    let cpu = whole.iter().find(|row| row["metric"] == "cpu");
    let cpu = cpu.expect("is measured");
    let change = cpu["relative"].as_f64().expect("a number");
    assert!((0.12..0.32).contains(&change), "{cpu:#}");
    assert_eq!(json["findings"][0]["cause"], "cpu", "{json:#}");
    assert_eq!(json["pairing"], "together");

    // All on one processor, and both of a pair at the same time.
    let cpus = std::fs::read_to_string(at.join("cpus")).expect("is read");
    let first = cpus.lines().next().expect("a line");
    assert!(
        !first.contains(' ') && cpus.lines().all(|cpu| cpu == first),
        "{cpus}"
    );
    let times = |side: &str| -> Vec<(u64, u64)> {
        let runs = json[side].as_array().expect("a list").iter();
        runs.map(|run| {
            let begin = run["started_unix_ns"].as_u64().expect("a time");
            (
                begin,
                begin + run["values"]["wall"].as_u64().expect("a time"),
            )
        })
        .collect()
    };
    // What else the processor does may keep one of a pair for long, but not from running beside the other.
    let pairs = times("baseline").into_iter().zip(times("candidate"));
    let mut shares: Vec<f64> = pairs
        .map(|(baseline, candidate)| {
            let end = baseline.1.min(candidate.1);
            let both = end.saturating_sub(baseline.0.max(candidate.0));
            let all = baseline.1.max(candidate.1) - baseline.0.min(candidate.0);
            both as f64 / all as f64
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    assert!(shares[0] > 0.0, "{shares:?}");
    assert!(shares[shares.len() / 2] > 0.5, "{shares:?}");

    // The traces say how they were made, and so a gate of them says the same.
    let gate = [
        "gate",
        "-b",
        "stackbeat-ab/baseline",
        "-c",
        "stackbeat-ab/candidate",
        "--format",
        "json",
    ];
    let output = stackbeat(at, &gate);
    assert_eq!(output.status.code(), Some(1));
    let again: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for part in ["pairing", "verdict"] {
        assert_eq!(again[part], json[part], "{part}");
    }

    let foreign = [
        "ab", "--cpus", "1000", "-o", "f", "-b", "true", "-c", "true",
    ];
    let output = stackbeat(at, &foreign);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("processor 1000 is not one"), "{text}");
}

/// Counts its runs in the file that it is given; for `b…` it computes more in the first six, and less in all
/// others: noise does not confirm that by chance. By its CPU time, which a busy machine leaves as it is. With
/// a second argument it allocates as well.
const FIRST_SLOWER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static void *volatile kept;
int main(int count, char **arguments) {
    for (int i = 0; i < 1000 && count > 2; i++) kept = malloc(100);
    FILE *file = fopen(arguments[1], "r+");
    int runs = 0;
    if (!file || fscanf(file, "%d", &runs) != 1) return 1;
    rewind(file);
    fprintf(file, "%d", runs + 1);
    fclose(file);
    clock_t until = CLOCKS_PER_SEC / 1000 * (arguments[1][0] != 'b' ? 100 : runs < 6 ? 300 : 50);
    while (clock() < until) {}
}
"#;

#[test]
fn what_fresh_runs_do_not_show_is_not_claimed() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    // Slower in its first six runs, for example because something else kept the machine busy.
    compile(at, "work.c", FIRST_SLOWER, &["-O0"]);
    let begin = || {
        for name in ["a.n", "b.n"] {
            std::fs::write(at.join(name), "0").expect("is written");
        }
    };
    begin();
    let sides = ["-b", "./work a.n", "-c", "./work b.n"];
    let runs = ["ab", "--in-turns", "--runs", "6", "--warmup", "0"];
    let output = stackbeat(at, &[&runs[..], &sides[..]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("fresh pairs of runs did not show that"),
        "{text}"
    );
    // Not confirmed, but beside allocations that all runs have.
    begin();
    let more = ["-b", "./work a.n", "-c", "./work b.n more", "--force"];
    let output = stackbeat(
        at,
        &[&runs[..], &more[..], &["--fail-on-counts"][..]].concat(),
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in [
        "REGRESSION: allocations",
        "fresh pairs of runs confirm it",
        "fresh pairs of runs did not show that",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The same, believed.
    begin();
    let believed = ["--no-confirm", "--force"];
    let output = stackbeat(at, &[&runs[..], &sides[..], &believed[..]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = stackbeat(folder.path(), &["gate", "-b", "nowhere", "-c", "x*.beat"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--baseline nowhere: no such file"), "{text}");
}

#[test]
fn ab_names_mistakes_before_it_runs_or_replaces_anything() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let old = at.join("stackbeat-ab/baseline/001.beat");
    std::fs::create_dir_all(old.parent().expect("has one")).expect("is made");
    std::fs::write(&old, "").expect("is written");
    let policy = "[[budget]]\nmetric = \"wall\"\nmax = \"1s\"\n";
    std::fs::write(at.join("wall.toml"), policy).expect("is written");
    let cases: [(&[&str], &str); 6] = [
        (&["--runs", "0"], "nothing would be compared"),
        (&["--write", "out.htm"], "the ending names no format"),
        (&["--write", "no/out.md"], "there is no folder no"),
        (&["--interval", "1us"], "too short"),
        (
            &["--together", "--policy", "wall.toml"],
            "budget of wall time cannot be judged",
        ),
        (&["-c", "./new 'x"], "an open quote"),
    ];
    for (arguments, says) in cases {
        let sides: &[&str] = match arguments[0] {
            "-c" => &["-b", "touch ran"],
            _ => &["-b", "touch ran", "-c", "touch ran"],
        };
        let output = stackbeat(at, &[&["ab", "--force"], sides, arguments].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(says), "{arguments:?}: {text}");
        assert!(old.exists() && !at.join("ran").exists(), "{arguments:?}");
    }
    let few = [
        "ab", "--runs", "2", "--warmup", "0", "-b", "true", "-c", "true",
    ];
    let kept = stackbeat(at, &[&few[..], &["-o", "stackbeat-ab"]].concat());
    let text = String::from_utf8_lossy(&kept.stderr);
    assert!(text.contains("has traces already"), "{text}");
    // Where no folder is named they go beside those, and that is said before the first run.
    let beside = stackbeat(at, &few);
    let text = String::from_utf8_lossy(&beside.stderr);
    let told: Vec<&str> = text.lines().collect();
    assert!(
        told[0].contains("--runs 2: times cannot be told apart"),
        "{text}"
    );
    assert_eq!(told[1], "stackbeat: the traces go to stackbeat-ab.2");
    assert!(at.join("stackbeat-ab.2/candidate/002.beat").exists());
    assert_eq!(std::fs::read(&old).expect("is there"), b"");
}
