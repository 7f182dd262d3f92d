//! `stackbeat attach` on programs of several processes: which are recorded, that all are left as they were,
//! and that those who use them notice nothing.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use stackbeat_tests::process_tree::{State, family, is_attached};
use stackbeat_tests::{Background, end_recorder, wait_until};

use stackbeat_tests::tool::{command_in, json};

/// A master with two forked workers, and a program that a third one has started. Each says when it begins to
/// work. All work until the master's input ends, and each says how its sums came out.
const PREFORK: &str = "
import os, subprocess, sys, time
WORK = '''
import os, sys, time
def work():
    os.write(1, b\"works\\\\n\")
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
os.write(1, b'running\\n')
sys.stdin.read()
";

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
    let mut master = Background(master.expect("starts"));
    let mut said = BufReader::new(master.0.stdout.take().expect("is piped"));
    // All five are what they will be once each has said a line.
    let lines = said.by_ref().lines().take(5);
    let mut lines: Vec<String> = lines.map(|line| line.expect("reads")).collect();
    lines.sort();
    assert_eq!(lines, ["running", "works", "works", "works", "works"]);
    let pid = master.0.id();
    // Version managers may stand between us and the interpreter: whoever is there counts.
    let pids = family(pid);
    let before: Vec<_> = pids.iter().map(|pid| State::of(*pid)).collect();

    let mut alone = command_in(
        at,
        &["attach", "-f", "--json", "-o", "t.beat", &pid.to_string()],
    );
    let mut alone = Background(alone.stderr(Stdio::piped()).spawn().expect("starts"));
    wait_until("it is attached to", || is_attached(pid));
    assert_eq!(pids.iter().filter(|pid| is_attached(**pid)).count(), 1);
    let summary = end_recorder(&mut alone);
    let warning = format!(
        "processes that it has started before are not recorded: {};",
        pids.len() - 1
    );
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
        let mut all = Background(all.expect("starts"));
        wait_until("all are attached to", || {
            pids.iter().all(|pid| is_attached(*pid))
        });
        wait_until("all are captured", || {
            let status = json(at, &["status", &all.0.id().to_string(), "--json"]);
            status["sessions"][0]["samples"].as_u64() > Some(500)
        });
        let summary = end_recorder(&mut all);
        assert_eq!(summary["attached_descendants"], pids.len() - 1, "{summary}");
        assert_eq!(summary["warnings"], serde_json::json!([]));
        let samples = samples(at);
        // The master waits for its input; all others work, as far as others leave them the processor.
        for pid in &pids[1..] {
            assert!(
                samples.get(&u64::from(*pid)) > Some(&0),
                "{pid}: {samples:?}"
            );
        }
        let after: Vec<_> = pids.iter().map(|pid| State::of(*pid)).collect();
        assert_eq!(after, before);
    }
    drop(master.0.stdin.take());
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("reads");
    assert_eq!(rest, "good\n".repeat(pids.len() - 1));
}
