//! Threads that wait for long are in a trace before their waits end: in a dump, and when the program is killed.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const STACKBEAT: &str = env!("CARGO_BIN_EXE_stackbeat");
/// A program that hangs must not hang the tests.
const PATIENCE: Duration = Duration::from_secs(120);

fn stackbeat(arguments: &[&str]) -> Command {
    let mut command = Command::new(STACKBEAT);
    command
        .args(arguments)
        .env_remove("STACKBEAT_AGENT")
        .env("NO_COLOR", "1");
    command
}

fn compile(folder: &Path, source: &str, options: &[&str]) -> PathBuf {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/waits");
    let source = Path::new(sources).join(source);
    let program = folder.join(source.file_stem().expect("a name"));
    let status = Command::new("gcc")
        .args(["-g", "-pthread", "-o"])
        .args([&program, &source])
        .args(options)
        .status()
        .expect("gcc runs");
    assert!(status.success());
    program
}

/// A program under `record`.
struct Recorded {
    recorder: Child,
    folder: TempDir,
    /// What it said before `ready`.
    said: Vec<String>,
}

impl Recorded {
    fn start(source: &str, compiler: &[&str], flags: &[&str]) -> Recorded {
        let folder = TempDir::new().expect("a folder");
        let program = compile(folder.path(), source, compiler);
        let trace = folder.path().join("t.beat");
        let mut arguments = vec!["record", "-q", "-o", text(&trace)];
        arguments.extend(flags);
        arguments.extend(["--", text(&program)]);
        let mut recorder = stackbeat(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(recorder.stdout.take().expect("a pipe")).lines();
        let said = lines
            .map(|line| line.expect("text"))
            .take_while(|line| line != "ready")
            .collect();
        Recorded {
            recorder,
            folder,
            said,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A dump of the session as it is now.
    fn dump(&self) -> Report {
        let path = self.file("dump.beat");
        let recorder = self.recorder.id().to_string();
        let arguments = ["dump", &recorder, "--force", "-o", text(&path)];
        let output = stackbeat(&arguments).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        report(&path)
    }

    /// The trace, once the program and the recorder have ended.
    fn finish(mut self) -> Report {
        drop(self.recorder.stdin.take());
        self.recorder.wait().expect("ends");
        report(&self.file("t.beat"))
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// What `report --json` says.
struct Report(Value);

fn report(trace: &Path) -> Report {
    let checked = stackbeat(&["info", "--check", "--json", text(trace)])
        .output()
        .expect("runs");
    let info: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    for violation in info["violations"].as_array().expect("was checked") {
        // On a busy machine the two clocks of a sample are read some time apart.
        let violation = violation.as_str().expect("text");
        assert!(violation.contains("cpu time of a segment"), "{violation}");
    }
    let arguments = ["report", "--json", "--top", "0", text(trace)];
    let output = stackbeat(&arguments).output().expect("runs");
    Report(serde_json::from_slice(&output.stdout).expect("JSON"))
}

impl Report {
    /// By function on the stack: call, cause, share of the thread's time, and how many there were; the longest
    /// of each.
    fn waits(&self) -> BTreeMap<String, (String, String, f64, u64)> {
        let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let walls: BTreeMap<u64, f64> = array(&self.0, "threads")
            .map(|t| (t["uid"].as_u64().expect("a number"), number(t, "wall_ns")))
            .collect();
        let mut waits = BTreeMap::new();
        for site in array(&self.0, "blocking_sites") {
            let thread = site["longest_thread_uid"].as_u64().expect("a number");
            let share = number(site, "total_ns") / walls[&thread];
            let count = site["count"].as_u64().expect("a number");
            for function in array(site, "stack") {
                let wait = (of(&site["call"]), of(&site["cause"]), share, count);
                // Longest first.
                waits.entry(of(function)).or_insert(wait);
            }
        }
        waits
    }
}

fn array<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().expect("an array").iter()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().expect("a number")
}

/// Until something is so.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) => assert!(began.elapsed() < PATIENCE, "{what}: {why}"),
        }
        sleep(Duration::from_millis(100));
    }
}

/// The functions that do not wait for nearly all of their threads' time.
fn missing(report: &Report, functions: &[String]) -> Result<(), String> {
    let waits = report.waits();
    let is_there = |f: &&String| {
        (waits.get(*f)).is_some_and(|(_, _, share, count)| *share > 0.9 && *count <= 1)
    };
    let missing: Vec<_> = functions.iter().filter(|f| !is_there(f)).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("{missing:?} of {waits:?}")),
    }
}

/// Every signal is blocked in this program, so nothing but looks from outside can tell where its threads are.
#[test]
fn whoever_waits_is_in_a_dump_and_in_the_trace_of_a_killed_program() {
    let program = Recorded::start("blocked.c", &["-O2"], &[]);
    let functions: Vec<String> = (program.said.iter())
        .filter(|name| name.starts_with("in_") || name.starts_with("raw_"))
        .cloned()
        .collect();
    assert!(functions.len() >= 20, "{functions:?}");
    until("all wait", || missing(&program.dump(), &functions));
    let pid = (program.said.iter())
        .find_map(|line| line.strip_prefix("pid "))
        .expect("says so");
    let status = Command::new("kill").args(["-KILL", pid]).status();
    assert!(status.expect("runs").success());
    let report = program.finish();
    assert_eq!(missing(&report, &functions), Ok(()));
    let waits = report.waits();
    if let Some((call, cause, ..)) = waits.get("raw_page_fault") {
        assert_eq!((&**call, &**cause), ("page fault", "io"));
    }
    for (function, call, cause) in [
        ("in_read", "read", "io"),
        ("in_mutex", "pthread_mutex_lock", "lock"),
        ("in_epoll", "epoll_wait", "poll"),
        ("in_join", "pthread_join", "join"),
        ("in_sigwait", "sigwait", "wait"),
        // Libc's own call.
        ("in_getchar", "read", "io"),
    ] {
        assert_eq!((&*waits[function].0, &*waits[function].1), (call, cause));
    }
}
