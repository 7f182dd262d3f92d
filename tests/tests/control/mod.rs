//! Steering live recordings of real programs: what the commands do, who may use them, and that clients of
//! any kind leave the recording alone.

mod access;
mod budget;
mod changed_settings;
mod dumps;
mod leaks;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use stackbeat_collector::session::control::client;
use stackbeat_collector::session::protocol::{Request, SessionStatus, Settings};
use stackbeat_tests::process_tree::send;
use stackbeat_tests::tool_json::{assert_adds_up, figure};
use stackbeat_tests::{compile, python, wait_until};
use tempfile::TempDir;

use stackbeat_tests::tool::{binary, command, text};

/// Threads that allocate, lock and sleep until the file in the first argument goes, and then say what
/// they did, which does not depend on how long it took.
const WORKERS: &str = "
import os, sys, threading, time
lock = threading.Lock()
rounds = 0
def work():
    global rounds
    while os.path.exists(sys.argv[1]):
        assert sum(i * i for i in range(1000)) == 332833500
        assert len(bytes(100000)) == 100000
        with lock:
            rounds += 1
        time.sleep(0.0005)
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print('worked' if rounds > 10 else 'idle', len(threads))
";

#[track_caller]
fn stackbeat(arguments: &[&str]) -> Output {
    let output = command(arguments).output().expect("runs");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    output
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    serde_json::from_slice(&stackbeat(arguments).stdout).expect("JSON")
}

/// Every thread's sums come out.
#[track_caller]
fn check(trace: &str) {
    let output = command(&["info", trace, "--json", "--check"]).output();
    let info: Value = serde_json::from_slice(&output.expect("runs").stdout).expect("JSON");
    assert_adds_up(&info);
}

/// A recording that goes on until it is told to end.
struct Recording {
    folder: TempDir,
    recorder: Child,
}

impl Recording {
    /// Of the workers.
    fn start(options: &[&str]) -> Recording {
        let folder = tempfile::tempdir().expect("a folder");
        let go_on = folder.path().join("go-on");
        fs::write(&go_on, "").expect("writes");
        let python = python();
        let program = [&python, "-c", WORKERS, go_on.to_str().expect("UTF-8")];
        Recording::of(folder, options, &program)
    }

    fn of(folder: TempDir, options: &[&str], program: &[&str]) -> Recording {
        let trace = folder.path().join("t.beat");
        let recorder = command(&["record", "-o"])
            .arg(trace)
            .args(options)
            .arg("--")
            .args(program)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let recording = Recording { folder, recorder };
        wait_until("it begins", || {
            recording.try_status().is_some_and(|s| !s.pids.is_empty())
        });
        recording
    }

    fn pid(&self) -> String {
        self.recorder.id().to_string()
    }

    fn try_status(&self) -> Option<SessionStatus> {
        client::find(&self.pid()).ok()
    }

    #[track_caller]
    fn status(&self) -> SessionStatus {
        client::find(&self.pid()).expect("the session lives")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    /// Waits until the session has so many more samples.
    #[track_caller]
    fn wait_for_samples(&self, more: u64) {
        let wanted = self.status().samples + more;
        wait_until("samples come", || self.status().samples >= wanted);
    }

    #[track_caller]
    fn wait_for_threads(&self, threads: u32) {
        wait_until("threads start", || self.status().live_threads >= threads);
    }

    /// Lets the workers end; gives what they said.
    #[track_caller]
    fn end(&mut self) -> String {
        // Gone already when the program was another one.
        let _ = fs::remove_file(self.at("go-on"));
        let status = self.recorder.wait().expect("ends");
        let mut said = String::new();
        let mut read = |stream: &mut dyn Read| stream.read_to_string(&mut said);
        read(self.recorder.stderr.as_mut().expect("is piped")).expect("reads");
        assert!(status.success(), "{status}: {said}");
        said.clear();
        let stdout = self.recorder.stdout.as_mut().expect("is piped");
        stdout.read_to_string(&mut said).expect("reads");
        said
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.at("go-on"));
        // Nothing happens to one that has ended.
        let _ = self.recorder.kill();
        let _ = self.recorder.wait();
    }
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Mappings that have to do with us: files of ours, and how many there are in all.
fn mappings(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter(|l| l.contains("stackbeat")).count()
}
