//! Programs without an agent in the recorded tree: named, with their CPU time.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use stackbeat_tests::{compile, servers};

use stackbeat_tests::tool::{heading, json, stackbeat, text};

/// Uses so much CPU time.
const BURN: &str = r#"
#include <stdlib.h>
#include <time.h>
int main(int count, char **argument) {
  long ms = count > 1 ? atol(argument[1]) : 100;
  for (;;) {
    for (volatile int i = 0; i < 100000; i++) {}
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    if (used.tv_sec * 1000 + used.tv_nsec / 1000000 >= ms) return 0;
  }
}
"#;

/// Starts its arguments as a program, waits for it, and starts the same once more under the name that ends
/// with "d".
const STARTS: &str = r#"
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
extern char **environ;
int main(int count, char **argument) {
  char other[4096];
  snprintf(other, sizeof other, "%sd", argument[1]);
  char *names[] = {argument[1], other};
  for (int i = 0; i < 2; i++) {
    pid_t child;
    int status;
    argument[1] = names[i];
    if (posix_spawn(&child, names[i], 0, 0, argument + 1, environ)) return 1;
    waitpid(child, &status, 0);
    if (status) return 2;
  }
  return 0;
}
"#;

fn unrecorded(report: &Value) -> Vec<(String, String, u64, u64)> {
    let rows = report["recording"]["unrecorded"]
        .as_array()
        .expect("a list");
    rows.iter()
        .map(|row| {
            let text = |name: &str| row[name].as_str().expect("text").to_owned();
            let number = |name: &str| row[name].as_u64().expect("a number");
            (
                text("name"),
                text("reason"),
                number("processes"),
                number("cpu_ns") / 1_000_000,
            )
        })
        .collect()
}

/// Where one row is said: the summary, the first lines of the report, `info`, and all the JSON.
fn assert_is_said(at: &Path, summary: &str, name: &str) {
    let said = |text: &str| {
        let line = text.lines().find(|line| line.contains("not recorded"));
        assert!(line.is_some_and(|line| line.contains(name)), "{text}");
    };
    said(summary);
    let report = text(&stackbeat(at, &["report", "t.beat"]).stdout);
    let heading = heading(&report);
    assert!(!heading.contains("; complete"), "{report}");
    said(&heading);
    said(&text(&stackbeat(at, &["info", "t.beat"]).stdout));
    let info = json(at, &["info", "t.beat", "--json"]);
    assert_eq!(info["recording"]["unrecorded"][0]["name"], *name, "{info}");
}

/// Computes for 100 ms, and as much again in seccomp's strict mode.
const STRICT: &str = r#"
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int main(void) {
  volatile unsigned long rounds = 0;
  struct timespec used;
  do {
    for (volatile int i = 0; i < 10000; i++) {}
    rounds++;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  } while (used.tv_sec == 0 && used.tv_nsec < 100000000);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 1;
  for (unsigned long round = 0; round < rounds; round++)
    for (volatile int i = 0; i < 10000; i++) {}
  syscall(SYS_exit, 3);
}
"#;

#[test]
fn a_program_in_a_sandbox_is_named_with_what_was_not_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let program = compile(at, "strict.c", STRICT, &[]);
    let path = program.to_str().expect("text");
    let output = stackbeat(at, &["record", "-o", "t.beat", "--", path]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert_is_said(at, &text(&output.stderr), "strict");
    let report = json(at, &["report", "t.beat", "--json"]);
    let rows = unrecorded(&report);
    let [(name, reason, 1, cpu_ms)] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!((name.as_str(), reason.as_str()), ("strict", "sandbox"));
    // About as much as before, of which the first part was seen.
    assert!((20..400).contains(cpu_ms), "{cpu_ms} ms");
    let info = text(&stackbeat(at, &["info", "t.beat"]).stdout);
    let line = info
        .lines()
        .find(|line| line.trim_start().starts_with("sandbox"));
    assert!(line.is_some_and(|line| line.contains("strict")), "{info}");
}

#[test]
fn a_static_program_is_named_with_its_cpu_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let program = compile(at, "burn.c", BURN, &["-static"]);
    let output = stackbeat(
        at,
        &[
            "record",
            "-o",
            "t.beat",
            "--",
            program.to_str().expect("text"),
            "120",
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_is_said(at, &text(&output.stderr), "burn");
    let report = json(at, &["report", "t.beat", "--json"]);
    let rows = unrecorded(&report);
    assert_eq!(rows.len(), 1, "{rows:?}");
    let (name, reason, processes, cpu_ms) = &rows[0];
    assert_eq!(
        (name.as_str(), reason.as_str(), *processes),
        ("burn", "static", 1)
    );
    // The kernel's own figure at its end.
    assert!((120..140).contains(cpu_ms), "{rows:?}");
}

/// It has ended before anybody looked.
#[test]
fn a_program_without_an_agent_is_named_however_short_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "burn.c", BURN, &["-static"]);
    fs::write(at.join("musl.c"), BURN).expect("is written");
    let built = Command::new("musl-gcc")
        .args(["-o", "musl", "musl.c"])
        .current_dir(at)
        .output()
        .expect("musl-gcc is installed: scripts/install-test-packages.sh");
    assert!(built.status.success(), "{}", text(&built.stderr));
    // Its loader does not get as far as the agent.
    compile(at, "lost.c", BURN, &["-Wl,--no-as-needed", "-lm"]);
    let broken = fs::read(at.join("lost")).expect("is read");
    let at_name = (broken.windows(9))
        .position(|bytes| bytes == b"libm.so.6")
        .expect("it is linked with libm");
    let mut changed = broken;
    changed[at_name..at_name + 9].copy_from_slice(b"none.so.6");
    fs::write(at.join("lost"), changed).expect("is written");
    for (name, reason, least_ns) in [
        ("burn", "static", 1_000_000),
        ("musl", "loader", 1_000_000),
        ("lost", "not_known", 1),
    ] {
        let program = format!("./{name}");
        let words = ["record", "--force", "-o", "t.beat", "--", &program, "1"];
        let output = stackbeat(at, &words);
        assert_is_said(at, &text(&output.stderr), name);
        let report = json(at, &["report", "t.beat", "--json"]);
        let rows = unrecorded(&report);
        let [(found, because, 1, _)] = rows.as_slice() else {
            panic!("{rows:?}");
        };
        assert_eq!((found.as_str(), because.as_str()), (name, reason));
        let row = &report["recording"]["unrecorded"][0];
        let cpu_ns = row["cpu_ns"].as_u64().expect("a number");
        assert!((least_ns..50_000_000).contains(&cpu_ns), "{row}");
        let executable = at.join(name).canonicalize().expect("it is there");
        assert_eq!(row["executable"], *executable.to_string_lossy());
    }
}

#[test]
fn a_static_child_is_named_and_a_dynamic_one_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let parent = compile(at, "starts.c", STARTS, &[]);
    let child = compile(at, "burn.c", BURN, &["-static"]);
    compile(at, "burnd.c", BURN, &[]);
    let words = [parent, child].map(|path| path.to_str().expect("text").to_owned());
    let output = stackbeat(
        at,
        &["record", "-o", "t.beat", "--", &words[0], &words[1], "300"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_is_said(at, &text(&output.stderr), "burn");
    let report = json(at, &["report", "t.beat", "--json"]);
    let rows = unrecorded(&report);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((rows[0].0.as_str(), rows[0].1.as_str()), ("burn", "static"));
    // What it used after the last look is in no process; the sum is the kernel's.
    let unseen_ms = report["recording"]["unseen_cpu_ns"]
        .as_u64()
        .expect("a number")
        / 1_000_000;
    let both_ms = rows[0].3 + unseen_ms;
    assert!(
        rows[0].3 >= 50 && (295..450).contains(&both_ms),
        "{rows:?} and {unseen_ms} ms"
    );
    let processes = report["processes"].as_array().expect("a list");
    let names: Vec<_> = processes
        .iter()
        .map(|p| p["name"].as_str().expect("text"))
        .collect();
    assert!(
        names.contains(&"starts") && names.contains(&"burnd"),
        "{names:?}"
    );
}

/// Uses so much CPU time in a thread, and becomes what follows.
const BECOMES: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static void *burn(void *ms) {
  struct timespec used;
  do {
    for (volatile int i = 0; i < 100000; i++) {}
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  } while (used.tv_sec * 1000 + used.tv_nsec / 1000000 < (long)ms);
  return 0;
}
int main(int count, char **argument) {
  pthread_t thread;
  if (pthread_create(&thread, 0, burn, (void *)atol(argument[1]))) return 1;
  pthread_join(thread, 0);
  if (count > 2) execv(argument[2], argument + 2);
  return count > 2;
}
"#;

/// Forks twice and ends at once; what is left computes for 300 ms.
const LEAVES: &str = r#"
#include <time.h>
#include <unistd.h>
int main(void) {
  if (fork()) _exit(0);
  setsid();
  if (fork()) _exit(0);
  struct timespec used;
  do {
    for (volatile int i = 0; i < 100000; i++) {}
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  } while (used.tv_sec == 0 && used.tv_nsec < 300000000);
  return 0;
}
"#;

/// Its parent has ended before anybody looked.
#[test]
fn an_orphan_is_named_and_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "burn.c", BURN, &["-static"]);
    compile(at, "leaves.c", LEAVES, &["-static"]);
    for (script, name) in [
        ("(./burn 300 &); exit 0", "burn"),
        ("setsid -f ./burn 300", "burn"),
        ("./leaves", "leaves"),
    ] {
        let output = stackbeat(
            at,
            &[
                "record",
                "--force",
                "--wait-children",
                "-o",
                "t.beat",
                "--",
                "sh",
                "-c",
                script,
            ],
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_is_said(at, &text(&output.stderr), name);
        let rows = unrecorded(&json(at, &["report", "t.beat", "--json"]));
        let [(found, reason, count, cpu_ms)] = rows.as_slice() else {
            panic!("{script}: {rows:?}");
        };
        assert_eq!((found.as_str(), reason.as_str()), (name, "static"));
        // Those that only fork are named when that took them a millisecond, on a busy machine.
        assert!(*count == 1 || *count <= 3 && name == "leaves", "{rows:?}");
        // The last look may be some time before its end.
        assert!((150..340).contains(cpu_ms), "{script}: {rows:?}");
        // It is not one of those that nobody saw, too.
        let info = json(at, &["info", "t.beat", "--json"]);
        let drops = info["drops"].as_array().expect("a list");
        let is_not_hooked = |dropped: &Value| dropped["cause"] == "not_hooked";
        assert!(!drops.iter().any(is_not_hooked), "{script}: {drops:?}");
    }
}

/// A program that nobody saw before it had ended.
#[test]
fn a_trace_with_programs_that_were_not_seen_is_not_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(
        at,
        "nothing.c",
        "int main(void) { return 0; }",
        &["-static"],
    );
    let script = "sleep 0.4; (./nothing &); sleep 0.4";
    let output = stackbeat(at, &["record", "-o", "t.beat", "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = text(&stackbeat(at, &["report", "t.beat"]).stdout);
    let info = text(&stackbeat(at, &["info", "t.beat"]).stdout);
    let state = info.lines().find(|line| line.contains("state"));
    let (_, state) = state
        .and_then(|line| line.split_once("state  "))
        .expect("a state");
    assert_ne!(state, "complete");
    assert!(heading(&report).contains(state), "{info}{report}");
}

/// A static image between two others: it alone is named, with what it alone used.
#[test]
fn images_of_one_process_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let names = [("first", "200"), ("static", "300"), ("last", "50")];
    let mut words = vec!["record", "-o", "t.beat", "--"];
    for (name, ms) in &names {
        let flags: &[&str] = if *name == "static" { &["-static"] } else { &[] };
        compile(at, &format!("{name}.c"), BECOMES, flags);
        words.extend([*name, *ms]);
    }
    let words: Vec<String> = (words.iter().enumerate())
        .map(|(i, word)| match i > 3 && i % 2 == 0 {
            true => format!("./{word}"),
            false => (*word).to_owned(),
        })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = stackbeat(at, &words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = unrecorded(&json(at, &["report", "t.beat", "--json"]));
    let [(name, reason, 1, cpu_ms)] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!((name.as_str(), reason.as_str()), ("static", "static"));
    // The last look may be some time ago.
    assert!((200..340).contains(cpu_ms), "{rows:?}");
}

/// An agent's image came before in the same process: a program of our environment's that execs it.
#[test]
fn a_static_program_that_replaces_an_agents_image_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "burn.c", BURN, &["-static"]);
    compile(at, "becomes.c", BECOMES, &["-static"]);
    compile(at, "last.c", BECOMES, &[]);
    let starts = [
        "setsid ./burn 200",
        "env ./burn 200",
        "nice ./burn 200",
        "sh -c 'exec ./burn 200'",
        // It becomes one again.
        "./becomes 200 ./last 50",
    ];
    for start in starts {
        let script = format!("{start} & wait");
        let output = stackbeat(
            at,
            &["record", "-f", "-o", "t.beat", "--", "sh", "-c", &script],
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = json(at, &["report", "t.beat", "--json"]);
        let rows = unrecorded(&report);
        let [(name, reason, 1, cpu_ms)] = rows.as_slice() else {
            panic!("{start}: {rows:?}: {}", text(&output.stderr));
        };
        assert!(
            start.contains(&format!("./{name} 200")),
            "{start}: {rows:?}"
        );
        assert_eq!(reason, "static");
        // The last look may be some time ago, on a busy machine.
        assert!((10..260).contains(cpu_ms), "{start}: {rows:?}");
        let is_loss = |dropped: &Value| dropped["cause"] == "not_hooked";
        let drops = report["drops"].as_array().expect("a list");
        assert!(!drops.iter().any(is_loss), "{start}: {drops:?}");
    }
}

/// As recorded programs are: one executable with many links, as busybox, is a program by each of them.
#[test]
fn a_program_is_named_by_the_link_that_was_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "becomes.c", BECOMES, &["-static"]);
    for link in ["one", "two", "shortest"] {
        std::os::unix::fs::symlink("becomes", at.join(link)).expect("is linked");
    }
    let cases: [(&[&str], &[&str]); 4] = [
        (&["./one", "150"], &["one"]),
        (&["./shortest", "0"], &["shortest"]),
        (&["sh", "-c", "./two 150; true"], &["two"]),
        (&["./one", "150", "./two", "150"], &["one", "two"]),
    ];
    for (command, names) in cases {
        let words = ["record", "--force", "-o", "t.beat", "--"];
        let output = stackbeat(at, &[&words, command].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = json(at, &["report", "t.beat", "--json"]);
        let mut found: Vec<_> = unrecorded(&report).into_iter().map(|row| row.0).collect();
        found.sort_unstable();
        assert_eq!(found, names, "{command:?}: {report}");
        let executable = at.join("becomes").canonicalize().expect("it is there");
        let row = &report["recording"]["unrecorded"][0];
        assert_eq!(row["executable"], *executable.to_string_lossy());
    }
}

/// Everything has an agent: nothing is said.
#[test]
fn short_children_with_an_agent_are_not_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do (ls; true) >/dev/null; done; exec sleep 0.05";
    let output = stackbeat(at, &["record", "-o", "t.beat", "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        !text(&output.stderr).contains("not recorded"),
        "{}",
        text(&output.stderr)
    );
    let report = json(at, &["report", "t.beat", "--json"]);
    assert_eq!(unrecorded(&report), []);
}

/// Children that the user left out ran unrecorded, too.
#[test]
fn children_that_are_not_followed_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let child = compile(at, "burn.c", BURN, &[]);
    let command = format!("{} 100; true", child.display());
    let output = stackbeat(
        at,
        &[
            "record",
            "--no-children",
            "-o",
            "t.beat",
            "--",
            "sh",
            "-c",
            &command,
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = unrecorded(&json(at, &["report", "t.beat", "--json"]));
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(
        (rows[0].0.as_str(), rows[0].1.as_str()),
        ("burn", "not_followed")
    );
}

/// The recorder is root's here, and a program of another user may not open the session's mapping.
#[test]
fn a_program_of_another_user_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    servers::open_to_all(at);
    let child = compile(at, "burn.c", BURN, &[]);
    let as_nobody = "setpriv --reuid=nobody --regid=nogroup --clear-groups";
    let command = format!("{as_nobody} {} 200; true", child.display());
    let output = stackbeat(at, &["record", "-o", "t.beat", "--", "sh", "-c", &command]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = unrecorded(&json(at, &["report", "t.beat", "--json"]));
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((rows[0].0.as_str(), rows[0].1.as_str()), ("burn", "user"));
}

/// A program of musl loads the agent for its children.
#[test]
fn a_musl_program_is_named_and_its_glibc_child_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    fs::write(at.join("starts.c"), STARTS).expect("is written");
    let built = Command::new("musl-gcc")
        .args(["-o", "starts", "starts.c"])
        .current_dir(at)
        .output()
        .expect("musl-gcc is installed: scripts/install-test-packages.sh");
    assert!(built.status.success(), "{}", text(&built.stderr));
    compile(at, "burn.c", BURN, &[]);
    compile(at, "burnd.c", BURN, &[]);
    let output = stackbeat(
        at,
        &["record", "-o", "t.beat", "--", "./starts", "./burn", "100"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_is_said(at, &text(&output.stderr), "starts");
    let report = json(at, &["report", "t.beat", "--json"]);
    let rows = unrecorded(&report);
    let [(name, reason, 1, _)] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!((name.as_str(), reason.as_str()), ("starts", "loader"));
    let processes = report["processes"].as_array().expect("a list");
    let names: Vec<_> = processes.iter().map(|p| p["name"].as_str()).collect();
    assert_eq!(names, [Some("burn"), Some("burnd")]);
}

#[test]
fn a_go_child_is_named_and_its_own_child_is_recorded() {
    const PROGRAM: &str = r#"
package main
import ("os"; "os/exec"; "time")
var sum int
func main() {
	for began := time.Now(); time.Since(began) < 200*time.Millisecond; { sum += 1 }
	if exec.Command(os.Args[1], "100").Run() != nil { os.Exit(1) }
}
"#;
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    fs::write(at.join("gopher.go"), PROGRAM).expect("is written");
    let go = std::env::var_os("GO").unwrap_or_else(|| "go".into());
    let built = Command::new(go)
        .args(["build", "-o", "gopher", "gopher.go"])
        .current_dir(at)
        .env("CGO_ENABLED", "0")
        .output()
        .expect("Go is installed: scripts/install-test-packages.sh");
    assert!(built.status.success(), "{}", text(&built.stderr));
    compile(at, "burn.c", BURN, &[]);
    let output = stackbeat(
        at,
        &[
            "record",
            "-o",
            "t.beat",
            "--",
            "sh",
            "-c",
            "./gopher ./burn; true",
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_is_said(at, &text(&output.stderr), "gopher");
    let report = json(at, &["report", "t.beat", "--json"]);
    let rows = unrecorded(&report);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(
        (rows[0].0.as_str(), rows[0].1.as_str()),
        ("gopher", "static")
    );
    let processes = report["processes"].as_array().expect("a list");
    assert!(
        processes.iter().any(|p| p["name"] == "burn"),
        "{processes:?}"
    );
}
