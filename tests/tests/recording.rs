//! Real recordings through the command: what the program's caller sees, and what comes out.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use serde_json::Value;
use stackbeat_tests::tool_json::assert_adds_up;
use stackbeat_tests::{Background, compile, python, until};

use stackbeat_tests::tool::{binary, heading, stackbeat, text};

#[track_caller]
fn json(output: &Output) -> Value {
    let said = || format!("{}{}", text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{}", said());
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What `record --json` says last.
#[track_caller]
fn summary(output: &Output) -> Value {
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_str(said.lines().last().unwrap_or_default()).expect("JSON")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is a number"))
}

#[test]
fn the_caller_sees_the_programs_own_output_and_status() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let output = stackbeat(
        at,
        &[
            "record",
            "-q",
            "--",
            "sh",
            "-c",
            "echo out; echo err >&2; exit 7",
        ],
    );
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "out\n");
    assert_eq!(text(&output.stderr), "err\n");
    assert!(at.join("sh.beat").exists());

    // A second one takes the next free name; a named one is not replaced.
    let output = stackbeat(at, &["record", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(output.status.signal(), Some(9), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("sh.2.beat"));
    assert!(text(&output.stderr).contains("killed by signal 9"));
    let output = stackbeat(at, &["record", "--", "sh", "-c", "kill -SYS $$"]);
    assert_eq!(output.status.signal(), Some(31));
    assert!(text(&output.stderr).contains("a seccomp filter refused a system call"));
    let output = stackbeat(at, &["record", "-o", "sh.beat", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    let output = stackbeat(at, &["record", "-f", "-o", "sh.beat", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));

    let output = stackbeat(
        at,
        &[
            "record", "--json", "-o", "j.beat", "--", "sh", "-c", "exit 3",
        ],
    );
    assert_eq!(output.status.code(), Some(3));
    let summary: Value = serde_json::from_slice(&output.stderr).expect("one line of JSON");
    assert_eq!(summary["schema"], "stackbeat.record.v1");
    assert_eq!(summary["trace"], "j.beat");
    assert_eq!(
        number(&summary["records_written"]),
        number(&summary["records_stored"]) + number(&summary["records_lost"])
    );
    let output = stackbeat(at, &["record", "-o", "/nonexistent/x.beat", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/nonexistent/x.beat"));
}

/// The program is told once of what was sent to the group, as without a recorder, and of what was sent to
/// the recorder alone.
#[test]
fn a_signal_reaches_the_program_once() {
    const PROGRAM: &str = "
import os, signal, sys, time
def note(number, frame):
    os.write(1, b'%d\\n' % number)
    if number == signal.SIGTERM: os._exit(0)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM): signal.signal(number, note)
os.write(1, b'ready\\n')
# Not signal.pause: one that comes just before it is noted only when the next ends it.
while True: time.sleep(0.01)
";
    let folder = tempfile::tempdir().expect("a folder");
    let recorder = Command::new(binary())
        .args([
            "record", "-q", "-o", "t.beat", "--", "python3", "-c", PROGRAM,
        ])
        .current_dir(folder.path())
        .env_remove("STACKBEAT_AGENT")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let pid = Pid::from_child(&recorder);
    let mut recorder = Background(recorder);
    let send_group = |signal| kill_process_group(pid, signal).expect("is sent");
    let send = |signal| kill_process(pid, signal).expect("is sent");
    let mut lines = BufReader::new(recorder.0.stdout.take().expect("is piped")).lines();
    let mut next = || lines.next().expect("more").expect("text");
    assert_eq!(next(), "ready");
    for round in 0..20 {
        send_group(Signal::USR1);
        assert_eq!(next(), "10", "round {round}");
        // The recorder handles one after the other: had it handed on the first, that would be printed
        // before this one.
        send(Signal::USR2);
        assert_eq!(next(), "12", "round {round}");
    }
    // Alone, and again the same: nobody takes the second for the first.
    for _ in 0..3 {
        send(Signal::USR1);
        assert_eq!(next(), "10");
    }
    send_group(Signal::TERM);
    assert_eq!(next(), "15");
    assert!(recorder.0.wait().expect("ends").success());
}

/// `kill %1` of a shell goes to the job's group: recorder, program and its children. The program is told
/// once, all of the job ends, and the trace is complete.
#[test]
fn kill_of_a_shells_job_ends_all_of_it() {
    const PROGRAM: &str = "
import os, signal, subprocess, time
notes = os.open('notes', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def note(number, frame): os.write(notes, b'%d\\n' % number)
for number in (signal.SIGUSR1, signal.SIGUSR2): signal.signal(number, signal.SIG_IGN)
subprocess.Popen(['sleep', '100'])
for number in (signal.SIGUSR1, signal.SIGUSR2): signal.signal(number, note)
os.write(notes, b'ready\\n')
while True: time.sleep(0.01)
";
    // USR2 goes to the recorder alone, which hands it on after what it makes of the USR1 before.
    const SHELL: &str = r#"
set -m
last() {
    for _ in {1..3000}; do [ "$(tail -n 1 notes 2>&1)" = "$1" ] && return; sleep 0.01; done
    echo "no $1: $(cat notes)" >&2; kill -KILL %1; exit 9
}
"$@" &
last ready
for _ in {1..20}; do
    kill -USR1 %1; last 10
    kill -USR2 $!; last 12
done
kill %1
wait %1
echo $? $!
"#;
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let shell = Command::new("bash")
        .args(["-c", SHELL, "bash", binary()])
        .args(["record", "-q", "-o", "t.beat", "--"])
        .args(["python3", "-c", PROGRAM])
        .current_dir(at)
        .env_remove("STACKBEAT_AGENT")
        .stdin(Stdio::null())
        .output()
        .expect("bash runs");
    let said = text(&shell.stdout) + &text(&shell.stderr);
    let notes = fs::read_to_string(at.join("notes")).expect("notes");
    assert_eq!(notes, format!("ready\n{}", "10\n12\n".repeat(20)), "{said}");
    let stdout = text(&shell.stdout);
    let (status, group) = stdout.trim().split_once(' ').expect(&said);
    assert_eq!(status, (128 + 15).to_string(), "{said}");
    let group = group.parse().ok().and_then(Pid::from_raw).expect("a pid");
    // Whoever adopts the last of them takes a moment to reap it.
    until("somebody is left in the group", || {
        test_kill_process_group(group).is_err().then_some(())
    });
    let info = stackbeat(at, &["info", "t.beat", "--json", "--check"]);
    let info: Value = serde_json::from_slice(&info.stdout).expect("JSON");
    assert_adds_up(&info);
    let recording = &info["recording"];
    assert_eq!(recording["outcome"], "finished", "{recording}");
    assert_eq!(number(&recording["records_lost"]), 0, "{recording}");
    let processes = info["processes"].as_array().expect("processes");
    let named = |name| {
        processes.iter().any(|process| {
            process["name"]
                .as_str()
                .is_some_and(|n| n.starts_with(name))
        })
    };
    assert!(named("python3") && named("sleep"), "{processes:?}");
}

#[test]
fn every_view_of_a_trace_tells_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let output = stackbeat(
        at,
        &[
            "record",
            "-o",
            "t.beat",
            "--",
            binary(),
            "demo-worker",
            "self-test",
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("see more: stackbeat report t.beat"));

    let report = json(&stackbeat(at, &["report", "t.beat", "--json"]));
    let info = stackbeat(at, &["info", "t.beat", "--json", "--check"]);
    let info: Value = serde_json::from_slice(&info.stdout).expect("JSON");
    assert_adds_up(&info);
    // Samples that allocations caused are in the file, but say nothing about time.
    assert!(number(&report["totals"]["samples"]) <= number(&info["counts"]["samples"]));
    assert_eq!(report["recording"], info["recording"]);
    let totals = &report["totals"];
    assert_eq!(
        number(&totals["wall_ns"]),
        number(&totals["running_ns"])
            + number(&totals["blocked_ns"])
            + number(&totals["no_evidence_ns"])
    );
    let sites = report["blocking_sites"].as_array().expect("sites");
    let blocked: u64 = sites.iter().map(|s| number(&s["total_ns"])).sum();
    assert_eq!(blocked, number(&totals["blocked_ns"]));

    // The program sleeps, waits and talks for known times.
    let by_cause = &totals["blocked_by_cause_ns"];
    assert!(number(&by_cause["sleep"]) >= 5_000_000, "{by_cause}");
    let functions: BTreeMap<String, &Value> = report["functions"]
        .as_array()
        .expect("functions")
        .iter()
        .map(|f| (f["name"].as_str().expect("a name").to_string(), f))
        .collect();
    let modules = functions.values().map(|f| f["module"].to_string());
    let agents: Vec<_> = modules.filter(|m| m.contains("libstackbeat")).collect();
    assert!(
        agents.is_empty(),
        "no frame of the agent is in a stack: {agents:?}"
    );
    let compute = functions
        .iter()
        .find(|(name, _)| name.contains("self_test::compute"))
        .unwrap_or_else(|| panic!("compute is there: {:?}", functions.keys()))
        .1;
    assert!(
        number(&compute["total"]["wall_ns"]) > 10_000_000,
        "{compute}"
    );

    // Text and filters agree with it.
    let tables = text(&stackbeat(at, &["report", "t.beat", "--top", "0"]).stdout);
    assert!(tables.contains("Functions by") && tables.contains("Losses"));
    let one = json(&stackbeat(
        at,
        &[
            "report",
            "t.beat",
            "--json",
            "--function",
            "self_test::compute",
        ],
    ));
    assert_eq!(
        one["focus"]["callees"][0]["wall_ns"],
        compute["total"]["wall_ns"]
    );
    let output = stackbeat(at, &["report", "t.beat", "--thread", "nobody"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no such thread"));

    // The page, and an export through the command.
    let output = stackbeat(at, &["report", "t.beat", "--html", "page.html"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = fs::read_to_string(at.join("page.html")).expect("a page");
    assert!(page.contains("self_test::compute") && page.len() < 4 << 20);
    let folded = stackbeat(at, &["export", "t.beat", "--to", "folded", "-o", "-"]);
    let wall: u64 = text(&folded.stdout)
        .lines()
        .filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok())
        .sum();
    assert_eq!(wall, number(&totals["wall_ns"]));
    let exported = json(&stackbeat(
        at,
        &["export", "t.beat", "--to", "perfetto", "--json"],
    ));
    assert_eq!(exported["output"], "t.pftrace");
    assert_eq!(
        fs::metadata(at.join("t.pftrace")).expect("exists").len(),
        number(&exported["bytes"])
    );
    // pprof takes the first mapping for the program.
    let output = stackbeat(at, &["export", "t.beat", "--to", "pprof", "-o", "t.pb.gz"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut profile = Vec::new();
    let packed = fs::File::open(at.join("t.pb.gz")).expect("opens");
    let mut packed = flate2::read::GzDecoder::new(packed);
    std::io::Read::read_to_end(&mut packed, &mut profile).expect("unpacks");
    let profile = text(&profile);
    let program = profile.find(binary()).expect("is there");
    assert!(profile.find("/libstackbeat").is_none_or(|at| program < at));
    let again = ["export", "t.beat", "-o", "t.pftrace", "--force"];
    assert_eq!(stackbeat(at, &again[..4]).status.code(), Some(2));
    assert!(stackbeat(at, &again).status.success());
    let output = stackbeat(at, &["export", "t.beat", "--to", "chrome", "-o", "t.beat"]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "the trace is not overwritten"
    );
}

/// A trace that lacks records does not call itself complete, in whatever form it is shown.
#[test]
fn a_trace_that_lacks_records_says_so_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    const PROGRAM: &str = "
import time
end = time.monotonic() + 0.5
while time.monotonic() < end: time.sleep(0)
";
    for (mode, word) in [("startup", "lost"), ("ring", "overwritten")] {
        let output = stackbeat(
            at,
            &[
                "record",
                "--json",
                "-f",
                "-o",
                "t.beat",
                "--mode",
                mode,
                "--budget",
                "0",
                "--buffer",
                "64KiB",
                "-i",
                "50us",
                "--",
                &python(),
                "-c",
                PROGRAM,
            ],
        );
        let summary = summary(&output);
        let (written, lost) = (
            number(&summary["records_written"]),
            number(&summary["records_lost"]),
        );
        assert!(lost > 0, "{summary}");
        let report = json(&stackbeat(at, &["report", "t.beat", "--json"]));
        let state = report["recording"]["state"].as_str().expect("text");
        let counts = format!("complete but for {lost} of {written} records");
        assert!(state.starts_with(&counts), "{state}: {summary}");
        assert!(state.contains(word), "{mode}: {state}");
        assert_eq!(
            state.contains("the end of the recording"),
            mode == "ring",
            "{state}"
        );
        let heading = heading(&text(&stackbeat(at, &["report", "t.beat"]).stdout));
        assert!(heading.contains(state), "{heading}");
        let info = text(&stackbeat(at, &["info", "t.beat"]).stdout);
        assert!(info.contains(&format!("state  {state}\n")), "{info}");
        let page = stackbeat(at, &["report", "t.beat", "--html", "-"]);
        let page = text(&page.stdout);
        assert!(page.contains(&format!("\"state\":\"{state}\"")), "{state}");
    }
}

/// All that names how long it took names the same.
#[test]
fn a_recording_has_one_duration() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    // A program that ends at once, and one whose child lives on for a while.
    for script in ["true", "sleep 0.6 & exec sleep 0.2"] {
        let words = ["record", "--json", "-f", "-o", "t.beat", "--"];
        let output = stackbeat(at, &[&words[..], &["sh", "-c", script]].concat());
        let recorded = number(&summary(&output)["duration_ns"]);
        let report = json(&stackbeat(at, &["report", "t.beat", "--json"]));
        assert_eq!(
            number(&report["recording"]["duration_ns"]),
            recorded,
            "{script}"
        );
    }
}

#[test]
fn a_process_stays_one_when_it_executes_other_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let execs = "exec sh -c 'exec true'";
    let record = ["record", "--json", "-o", "t.beat"];
    for (options, script, processes) in [
        (&["--no-children"][..], execs.to_owned(), 1),
        // A child, and a program in the place of each.
        (&["-f"], format!("sh -c \"{execs}\"; exec true"), 2),
    ] {
        let output = stackbeat(
            at,
            &[&record, options, &["--", "sh", "-c", &script]].concat(),
        );
        let said = summary(&output);
        let counts = (number(&said["processes"]), number(&said["threads"]));
        assert_eq!(counts, (processes, processes), "{said}");

        let info = json(&stackbeat(at, &["info", "--json", "t.beat"]));
        let counts = &info["counts"];
        assert_eq!(number(&counts["processes"]), processes, "{counts}");
        assert_eq!(number(&counts["threads"]), processes, "{counts}");
        let images = info["processes"].as_array().expect("a list").len() as u64;
        assert_eq!(number(&counts["programs"]), images, "{counts}");
        assert!(images > processes, "{info}");

        let plural = if processes == 1 {
            "process"
        } else {
            "processes"
        };
        let said = format!("{processes} {plural} ({images} programs), {processes} thread");
        for command in ["info", "report"] {
            let shown = text(&stackbeat(at, &[command, "t.beat"]).stdout);
            assert!(shown.contains(&said), "{said}: {shown}");
        }
    }
}

#[test]
fn a_page_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    assert!(
        stackbeat(at, &["record", "-q", "-o", "t.beat", "--", "true"])
            .status
            .success()
    );
    let output = stackbeat(
        at,
        &["report", "t.beat", "--html", "/nonexistent/page.html"],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/nonexistent/page.html: cannot be written"));
}

#[test]
fn the_doctor_finds_this_machine_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = stackbeat(folder.path(), &["doctor", "--json"]);
    let report = json(&output);
    assert_eq!(report["ok"], true);
    let checks = report["recording"].as_array().expect("checks");
    assert!(checks.len() > 8, "{report}");
}

/// As in a container or a browser's sandbox: its pids are numbers of somebody else for the recorder.
const IN_A_NAMESPACE: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int main(void) {
  if (unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID)) return 77;
  pid_t child = fork();
  for (long i = 0; child == 0 && clock() < CLOCKS_PER_SEC * 6 / 10; i++) free(malloc(100));
  if (child == 0) _exit(0);
  int status;
  return waitpid(child, &status, 0) != child || status;
}
"#;

#[test]
fn nothing_is_said_of_who_has_the_same_pid_outside_of_a_namespace() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "inner.c", IN_A_NAMESPACE, &[]);
    let output = stackbeat(at, &["record", "-q", "-o", "t.beat", "--", "./inner"]);
    if output.status.code() == Some(77) {
        eprintln!("pid namespaces are not allowed here: not tested");
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&stackbeat(
        at,
        &["report", "--json", "--top", "0", "t.beat"],
    ));
    let rows = |name: &str| report[name].as_array().expect("a list").clone();
    let process = rows("processes").into_iter().find(|p| p["pid"] == 1);
    let process = process.expect("it is the first of its namespace");
    let threads = rows("threads");
    let thread = threads.iter().find(|t| t["upid"] == process["upid"]);
    let thread = thread.expect("its thread");
    assert_eq!(thread["name"], "inner");
    // Its CPU time is not that of the machine's first process.
    assert!(number(&thread["cpu_ns"]) > 400_000_000, "{thread}");
    let counters = rows("counters");
    let of_it = counters.iter().find(|c| c["upid"] == process["upid"]);
    assert_eq!(of_it, None);
}

/// Nothing can be rewritten in a pipe: the last packet says what the first one says of a file.
#[test]
fn a_trace_that_went_through_a_pipe_is_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let line = format!(
        "{} record -o /dev/stdout -- sh -c 'sleep 0.05' | cat > piped.beat",
        binary()
    );
    let status = Command::new("sh")
        .args(["-c", &line])
        .current_dir(at)
        .status();
    assert!(status.expect("sh runs").success());
    let info = json(&stackbeat(at, &["info", "piped.beat", "--json"]));
    assert_eq!(info["recording"]["outcome"], "finished", "{info}");
    let written = info["recording"]["records_written"].as_u64();
    assert!(written.is_some_and(|written| written > 0), "{info}");
}

#[test]
fn modules_that_are_gone_or_changed_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let source = |rounds: &str| {
        format!("int main(void) {{ for (volatile long i = 0; i < {rounds}; i++) {{}} return 0; }}")
    };
    for name in ["gone", "changed", "other"] {
        let rounds = if name == "other" { "1" } else { "30000000" };
        stackbeat_tests::compile(at, &format!("{name}.c"), &source(rounds), &[]);
    }
    let command = "./gone; ./changed; rm gone changed; mv other changed";
    let output = stackbeat(at, &["record", "-o", "t.beat", "--", "sh", "-c", command]);
    let info = stackbeat(at, &["info", "t.beat"]);
    for said in [text(&output.stderr), text(&info.stdout)] {
        for reason in [
            "gone: cannot be opened any more",
            "changed: changed since it was loaded",
        ] {
            assert_eq!(said.matches(reason).count(), 1, "{said}");
        }
        assert_eq!(said.matches("stay without names").count(), 2, "{said}");
    }
}
