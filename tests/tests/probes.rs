//! `stackbeat probes`: exact counts on programs whose calls are known, and what is said of hooks that a
//! program cannot reach.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use stackbeat_tests::compile;

use stackbeat_tests::tool::{binary, command};

fn stackbeat(arguments: &[&str]) -> Output {
    command(arguments).output().expect("runs")
}

/// Calls in known numbers, by three named threads, the main thread and a forked child.
const CALLS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *name) {
  pthread_setname_np(pthread_self(), name);
  for (int i = 0; i < 10000; i++) {
    void *volatile p = malloc(100);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    free(p);
  }
  return 0;
}
int main(void) {
  static char names[3][16];
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) {
    snprintf(names[i], sizeof names[i], "worker-%d", i);
    pthread_create(threads + i, 0, work, names[i]);
  }
  for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
  int ends[2];
  char byte = 'x';
  if (pipe(ends)) return 1;
  for (int i = 0; i < 500; i++)
    if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) return 1;
  struct timespec now;
  for (int i = 0; i < 777; i++) clock_gettime(CLOCK_MONOTONIC, &now);
  for (int i = 0; i < 123; i++) free(realloc(malloc(10), 2000));
  pid_t child = fork();
  if (!child) {
    for (int i = 0; i < 55; i++) {
      void *volatile p = malloc(1);
      free(p);
    }
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  return 3;
}
"#;

/// Brings an allocator and a `read` of its own, which the loader finds before all others.
const OWN: &str = r#"
#include <stddef.h>
#include <unistd.h>
static char heap[1 << 20];
static size_t at;
void *malloc(size_t n) { void *p = heap + at; at += (n + 15) & ~(size_t)15; return p; }
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) { (void)p; return malloc(n); }
ssize_t read(int f, void *b, size_t n) { (void)f; (void)b; return n; }
int main(void) {
  char byte;
  for (int i = 0; i < 100; i++) read(0, &byte, 1);
  for (int i = 0; i < 70; i++)
    if (write(1, "x", 1) != 1) return 1;
  return 0;
}
"#;

#[track_caller]
fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|e| {
        panic!("{e}: {}", String::from_utf8_lossy(bytes));
    })
}

/// Calls of a function, in all or by one role.
fn calls(counted: &Value, name: &str, role: Option<&str>) -> u64 {
    let functions = counted["functions"].as_array().expect("functions");
    let Some(function) = functions.iter().find(|f| f["name"] == name) else {
        return 0;
    };
    let number = |value: &Value| value["calls"].as_u64().expect("a number");
    match role {
        None => number(function),
        Some(role) => {
            let roles = function["roles"].as_array().expect("roles");
            roles.iter().filter(|r| r["role"] == role).map(number).sum()
        }
    }
}

#[test]
fn every_call_is_counted_by_function_and_role() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile(folder.path(), "known.c", CALLS, &["-O0"]);
    let program = program.to_str().expect("UTF-8");
    let output = stackbeat(&["probes", "--count", "--json", "--", program]);
    assert_eq!(output.status.code(), Some(3));
    let counted = json(&output.stderr);
    assert_eq!(counted["schema"], "stackbeat.calls.v1");
    for (name, role, expected) in [
        ("malloc", "known/worker-*", 30_000),
        ("free", "known/worker-*", 30_000),
        ("pthread_mutex_lock", "known/worker-*", 30_000),
        ("pthread_mutex_unlock", "known/worker-*", 30_000),
        ("malloc", "known/main", 123 + 55),
        ("realloc", "known/main", 123),
        ("free", "known/main", 123 + 55),
        ("read", "known/main", 500),
        ("write", "known/main", 500),
        ("clock_gettime", "known/main", 777),
        ("pthread_create", "known/main", 3),
        ("pthread_join", "known/main", 3),
        ("fork", "known/main", 1),
        ("waitpid", "known/main", 1),
    ] {
        assert_eq!(
            calls(&counted, name, Some(role)),
            expected,
            "{name} by {role}: {counted}"
        );
    }
    // The child's are left out when asked.
    let output = stackbeat(&[
        "probes",
        "--count",
        "--json",
        "--no-children",
        "--",
        program,
    ]);
    assert_eq!(
        calls(&json(&output.stderr), "malloc", Some("known/main")),
        123
    );
    // The table says the same, and how many functions it leaves out.
    let output = stackbeat(&["probes", "--count", "--top", "2", "--", program]);
    let table = String::from_utf8_lossy(&output.stderr);
    assert!(
        table.contains("pthread_mutex_unlock") || table.contains("malloc"),
        "{table}"
    );
    assert!(table.contains("more functions: --top 0"), "{table}");
}

#[test]
fn all_probes_are_listed_with_their_functions() {
    let listed = json(&stackbeat(&["probes", "--json"]).stdout);
    let functions = listed["functions"].as_array().expect("functions");
    assert!(functions.len() > 200, "{}", functions.len());
    for (name, group, waits_for) in [
        ("malloc", "alloc", Value::Null),
        ("pthread_mutex_timedlock", "lock", "lock".into()),
        ("recvmmsg", "net", "net".into()),
        ("epoll_pwait2", "poll", "poll".into()),
        ("posix_spawnp", "process", "process".into()),
        ("vfork", "process", "process".into()),
        ("fork", "process", Value::Null),
    ] {
        let function = functions.iter().find(|f| f["name"] == name).expect(name);
        assert_eq!(
            (&function["group"], &function["waits_for"]),
            (&group.into(), &waits_for)
        );
    }
    let table = stackbeat(&["probes"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        table.contains("aligned_alloc memalign posix_memalign"),
        "{table}"
    );
    let refused = stackbeat(&["probes", "ls"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--count"));
}

/// What `info` says of the hooks in the first process.
fn said_of_hooks(program: &str, options: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t.beat");
    let trace = trace.to_str().expect("UTF-8");
    let recorded = Command::new(binary())
        .args(["record", "-q", "-o", trace, "--", program])
        .env_remove("STACKBEAT_AGENT")
        .envs(options.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    assert!(recorded.status.code().is_some(), "{recorded:?}");
    let info = json(&stackbeat(&["info", "--json", trace]).stdout);
    let Some(process) = info["processes"].get(0) else {
        return Vec::new();
    };
    let said = process["capabilities"].as_array().expect("a list");
    said.iter()
        .map(|s| s.as_str().expect("text").to_owned())
        .collect()
}

#[test]
fn hooks_that_are_out_of_reach_are_named_and_cost_the_others_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let known = compile(folder.path(), "known.c", CALLS, &["-O0"]);
    let known = known.to_str().expect("UTF-8");
    let listed = json(&stackbeat(&["probes", "--json"]).stdout);
    let functions = listed["functions"].as_array().expect("functions").iter();
    // Of a library that this program does without nothing is missing.
    let all = functions
        .filter(|f| !f["name"].to_string().contains("io_uring_"))
        .count();
    let said = said_of_hooks(known, &[]);
    assert_eq!(said[0], format!("{all} of {all} hooks in place"));

    let own = compile(folder.path(), "own.c", OWN, &["-O0", "-rdynamic"]);
    let own = own.to_str().expect("UTF-8");
    let said = said_of_hooks(own, &[]);
    assert_eq!(said[0], format!("{} of {all} hooks in place", all - 5));
    let hidden = said
        .iter()
        .find_map(|s| s.strip_prefix("hidden by the program itself: "));
    let mut hidden: Vec<_> = hidden.expect("is said").split(", ").collect();
    hidden.sort_unstable();
    assert_eq!(hidden, ["calloc", "free", "malloc", "read", "realloc"]);
    let output = stackbeat(&["probes", "--count", "--json", "--", own]);
    assert_eq!(output.status.code(), Some(0));
    let counted = json(&output.stderr);
    assert_eq!(calls(&counted, "read", None), 0);
    assert_eq!(calls(&counted, "malloc", None), 0);
    assert_eq!(calls(&counted, "write", None), 70);

    // An allocator that is preloaded too comes behind the agent: nothing is hidden.
    for library in ["libjemalloc.so.2", "libtcmalloc.so.4"] {
        let path = format!("/usr/lib/x86_64-linux-gnu/{library}");
        if !Path::new(&path).exists() {
            continue;
        }
        let said = said_of_hooks(known, &[("LD_PRELOAD", &path)]);
        assert_eq!(
            said[0],
            format!("{all} of {all} hooks in place"),
            "{library}"
        );
        let output = Command::new(binary())
            .args(["probes", "--count", "--json", "--", known])
            .env("LD_PRELOAD", &path)
            .output()
            .expect("runs");
        let counted = json(&output.stderr);
        assert!(
            calls(&counted, "malloc", Some("known/worker-*")) == 30_000,
            "{library}"
        );
    }
    // No agent comes into a static program: it runs, and nothing is claimed.
    let alone = compile(folder.path(), "alone.c", CALLS, &["-O0", "-static-pie"]);
    assert!(said_of_hooks(alone.to_str().expect("UTF-8"), &[]).is_empty());
}
