//! Waits for children that have been started and do not run their program yet.

use super::{ROUNDS, Recorded, report};
use stackbeat_tests::{Program, compile, python, scratch};

fn record_children(kind: &str) -> Recorded {
    let folder = scratch();
    let program = compile(folder.path(), "children.c", include_str!("children.c"), &[]);
    let program = program.to_str().expect("UTF-8");
    let recorded = Program::new([program, kind, &ROUNDS.to_string()]).record(folder.path());
    let run = &recorded.run;
    assert!(run.output.status.success(), "{kind}: {}", run.stderr());
    Recorded {
        said: run.stdout(),
        report: report(&recorded.trace),
    }
}

/// Each of the waits is there, and was ended by the child that it started.
fn every_child_is_known(kind: &str, call: &str) {
    let recorded = record_children(kind);
    let (waiter, children) = (recorded.utids("waiter"), recorded.utids("ender"));
    assert_eq!(children.len() as u64, ROUNDS, "{kind}: children");
    let (mut all, mut known) = (0, 0);
    for pair in recorded.pairs(call, waiter[0]) {
        let count = pair["count"].as_u64().expect("a count");
        let waker = pair["waker_utid"].as_u64().expect("a utid");
        assert_eq!(pair["cause"], "process", "{pair:#}");
        all += count;
        known += count * u64::from(children.contains(&waker));
    }
    assert_eq!(
        (all, known),
        (ROUNDS, ROUNDS),
        "{kind}: {:#}",
        recorded.report["waits"]
    );
}

#[test]
fn a_vfork() {
    every_child_is_known("vfork", "vfork");
}

#[test]
fn a_vfork_in_the_child_of_one() {
    every_child_is_known("nested", "vfork");
}

#[test]
fn a_spawn() {
    every_child_is_known("spawn", "posix_spawn");
}

/// Python's subprocess starts its children by `vfork`.
#[test]
fn subprocesses_of_python() {
    const SCRIPT: &str = "
import subprocess, sys
for _ in range(40):
    subprocess.run([sys.executable, '-S', '-c', 'pass'], check=True)
";
    let folder = scratch();
    let recorded = Program::new([&*python(), "-c", SCRIPT])
        .options(&["--long-wait", "10us"])
        .record(folder.path());
    let status = recorded.run.output.status;
    assert!(status.success(), "{}", recorded.run.stderr());
    let waits = &report(&recorded.trace)["waits"];
    let pairs = waits["pairs"].as_array().expect("pairs");
    let count_of = |is_known: bool| -> u64 {
        let of_call = pairs.iter().filter(|pair| pair["call"] == "vfork");
        let known = of_call.filter(|pair| !is_known || pair["waker_utid"] != 0);
        known
            .map(|pair| pair["count"].as_u64().expect("a count"))
            .sum()
    };
    assert_eq!((count_of(false), count_of(true)), (40, 40), "{waits:#}");
}
