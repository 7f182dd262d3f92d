//! `stackbeat attach` on programs of several processes: which are recorded, that all are left as they were,
//! and that those who use them notice nothing.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use common::{command_in, json};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A master with two forked workers, and a program that a third one has started. All work until the
/// master's input ends, and each says how its sums came out.
const PREFORK: &str = "
import os, subprocess, sys, time
WORK = '''
import os, sys, time
def work():
    rounds = 0
    parent = os.getppid()
    while os.getppid() == parent:
        assert sum(len(bytes(i)) for i in range(300)) == 44850
        rounds += 1
        time.sleep(0.0005)
    os.write(1, b\"good\\\\n\" if rounds > 10 else b\"idle\\\\n\")
'''
exec(WORK)
def start(what):
    pid = os.fork()
    if pid == 0:
        what()
        os._exit(0)
    return pid
def runs_another():
    child = subprocess.Popen([sys.executable, '-c', WORK + 'work()'], stdin=subprocess.PIPE)
    work()
workers = [start(work), start(work), start(runs_another)]
print('running', flush=True)
sys.stdin.read()
";

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(10));
    }
}

/// The process and its descendants.
fn family(pid: u32) -> Vec<u32> {
    let children = |pid: u32| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten();
        let texts = tasks.filter_map(|t| fs::read_to_string(t.ok()?.path().join("children")).ok());
        let texts: Vec<_> = texts.collect();
        let pids = texts.iter().flat_map(|t| t.split_whitespace());
        pids.filter_map(|p| p.parse().ok()).collect::<Vec<u32>>()
    };
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        all.extend(children(*pid));
        next += 1;
    }
    all
}

/// What must be as before: threads, descriptors, handled signals, and nothing of a session mapped.
fn state(pid: u32) -> (usize, usize, String, bool) {
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find(|l| l.starts_with("SigCgt"));
    let is_mapped = is_attached(pid);
    (
        count("task"),
        count("fd"),
        caught.unwrap_or("").to_owned(),
        is_mapped,
    )
}

fn is_attached(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.contains("/stackbeat.")
}

/// A program that ends with the test, and its descendants with it.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            for pid in family(self.0.id()) {
                let _ = Command::new("kill")
                    .args(["-KILL", &pid.to_string()])
                    .status();
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn say(signal: &str, pid: u32) {
    let said = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(said.expect("kill runs").success());
}

/// Ends a recorder by Ctrl-C; gives its summary.
#[track_caller]
fn end(mut recorder: Program) -> Value {
    say("-INT", recorder.0.id());
    let mut said = String::new();
    let mut stderr = recorder.0.stderr.take().expect("is piped");
    stderr.read_to_string(&mut said).expect("reads");
    assert!(recorder.0.wait().expect("ends").success(), "{said}");
    serde_json::from_str(said.lines().last().unwrap_or_default()).expect("JSON")
}

/// Samples by process.
fn samples(folder: &Path) -> BTreeMap<u64, u64> {
    let report = json(folder, &["report", "t.beat", "--json"]);
    let mut samples = BTreeMap::new();
    for thread in report["threads"].as_array().expect("threads") {
        let pid = thread["pid"].as_u64().expect("a pid");
        *samples.entry(pid).or_default() += thread["samples"].as_u64().expect("a number");
    }
    samples
}

#[test]
fn processes_that_were_there_are_recorded_when_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let master = Command::new("python3")
        .args(["-c", PREFORK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut master = Program(master.expect("starts"));
    let mut said = BufReader::new(master.0.stdout.take().expect("is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("reads");
    assert_eq!(line, "running\n");
    let pid = master.0.id();
    // Version managers may stand between us and the interpreter: whoever is there counts.
    wait_until("all processes are there", || family(pid).len() >= 5);
    let executable = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    wait_until("all have become what they will be", || {
        let executables: Vec<_> = family(pid).iter().map(executable).collect();
        executables.iter().all(|e| *e == executables[0])
    });
    // The last one opens what it needs as it starts.
    sleep(Duration::from_millis(500));
    let pids = family(pid);
    let before: Vec<_> = pids.iter().map(|pid| state(*pid)).collect();

    let mut alone = command_in(
        at,
        &["attach", "-f", "--json", "-o", "t.beat", &pid.to_string()],
    );
    let alone = Program(alone.stderr(Stdio::piped()).spawn().expect("starts"));
    wait_until("it is attached to", || is_attached(pid));
    assert_eq!(pids.iter().filter(|pid| is_attached(**pid)).count(), 1);
    let summary = end(alone);
    let warning = format!("{} processes that it has started before", pids.len() - 1);
    assert!(
        summary["warnings"].to_string().contains(&warning),
        "{summary}"
    );
    assert_eq!(summary["attached_descendants"], Value::Null);

    for _ in 0..3 {
        let options = ["attach", "-f", "--json", "-o", "t.beat", "--children"];
        let all = command_in(at, &[&options[..], &[&pid.to_string()]].concat())
            .stderr(Stdio::piped())
            .spawn();
        let all = Program(all.expect("starts"));
        wait_until("all are attached to", || {
            pids.iter().all(|pid| is_attached(*pid))
        });
        wait_until("all are captured", || {
            let status = json(at, &["status", &all.0.id().to_string(), "--json"]);
            status["sessions"][0]["samples"].as_u64() > Some(500)
        });
        let summary = end(all);
        assert_eq!(summary["attached_descendants"], pids.len() - 1, "{summary}");
        assert_eq!(summary["warnings"], serde_json::json!([]));
        let samples = samples(at);
        // The master waits for its input; all others work.
        for pid in &pids[1..] {
            assert!(
                samples.get(&u64::from(*pid)) > Some(&20),
                "{pid}: {samples:?}"
            );
        }
        let after: Vec<_> = pids.iter().map(|pid| state(*pid)).collect();
        assert_eq!(after, before);
    }
    drop(master.0.stdin.take());
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("reads");
    assert_eq!(rest, "good\n".repeat(pids.len() - 1));
}

/// Asks a server for a page, again and again; all answers must be right.
fn ask(socket: &Path, times: usize) {
    for _ in 0..times {
        let mut stream = UnixStream::connect(socket).expect("connects");
        let request = b"GET / HTTP/1.0\r\n\r\n";
        stream.write_all(request).expect("asks");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("is answered");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.ends_with("the page\n"), "{answer}");
    }
}

#[test]
fn nginx_serves_on_while_master_and_workers_are_attached_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let socket = at.join("nginx.sock");
    let here = at.display();
    fs::write(at.join("index.html"), "the page\n").expect("writes");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {here}/tmp;"))
        .collect();
    let configuration = format!(
        "worker_processes 2; daemon off; pid {here}/pid; error_log {here}/error.log;
        events {{ }}
        http {{ access_log off; {temporary}
          server {{ listen unix:{here}/nginx.sock; root {here}; }} }}"
    );
    fs::write(at.join("nginx.conf"), configuration).expect("writes");
    // Its workers take another user, who must see the page.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(at, open).expect("mode");
    let server = Command::new("nginx")
        .arg("-c")
        .arg(at.join("nginx.conf"))
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .spawn();
    let Ok(server) = server else {
        panic!("nginx is missing: scripts/install-test-packages.sh");
    };
    let mut server = Program(server);
    let pid = server.0.id();
    wait_until("nginx listens", || UnixStream::connect(&socket).is_ok());
    wait_until("its workers are there", || family(pid).len() == 3);
    ask(&socket, 50);
    let pids = family(pid);
    let before: Vec<_> = pids.iter().map(|pid| state(*pid)).collect();
    for _ in 0..3 {
        let options = ["attach", "-f", "--json", "-o", "t.beat", "--children"];
        let recorder = command_in(at, &[&options[..], &[&pid.to_string()]].concat())
            .stderr(Stdio::piped())
            .spawn();
        let recorder = Program(recorder.expect("starts"));
        wait_until("all are attached to", || {
            ask(&socket, 1);
            pids.iter().all(|pid| is_attached(*pid))
        });
        ask(&socket, 300);
        let summary = end(recorder);
        assert_eq!(summary["attached_descendants"], 2, "{summary}");
        ask(&socket, 50);
        let samples = samples(at);
        // The kernel may give all connections to one worker.
        let of_workers: u64 = pids[1..]
            .iter()
            .filter_map(|p| samples.get(&u64::from(*p)))
            .sum();
        assert!(of_workers > 0, "{samples:?}");
        wait_until("all is as before", || {
            pids.iter()
                .map(|pid| state(*pid))
                .eq(before.iter().cloned())
        });
    }
    say("-TERM", pid);
    assert!(server.0.wait().expect("ends").success());
}
