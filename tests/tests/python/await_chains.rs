//! Which coroutines await a task of asyncio (`--await-chains`), as asyncio itself says.

use std::path::{Path, PathBuf};
use std::process::Output;

use stackbeat_core::probe::{Cause, Probe};
use stackbeat_core::shm::record_format::flags;
use stackbeat_proto::v1::NodeKind;
use stackbeat_tests::plain_reader::Trace;
use stackbeat_tests::tool::{stackbeat, text};

use super::interpreters;

/// Name, line, and whether it awaits what is above it; outermost first.
type Stack = Vec<(String, u32, bool)>;

/// Interpreters whose tasks say who awaits them.
fn newer() -> Vec<(PathBuf, (u32, u32))> {
    let all = interpreters().into_iter();
    let newer: Vec<_> = all.filter(|(_, version)| *version >= (3, 14)).collect();
    assert!(
        !newer.is_empty(),
        "scripts/install-pythons.sh brings newer versions"
    );
    newer
}

fn record(python: &Path, folder: &Path, options: &[&str], arguments: &[&str]) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/await_chains.py");
    let python = python.to_str().expect("UTF-8");
    let recorder = ["record", "-q", "-o", "t.beat"];
    let words = [&recorder, options, &["--", python, script], arguments];
    let output = stackbeat(folder, &words.concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// Records the script with these arguments of `record`: what it says, and the stacks of its naps in order.
fn naps(python: &Path, folder: &Path, options: &[&str]) -> (Vec<Stack>, Vec<Stack>) {
    let output = record(python, folder, options, &[]);
    let said = serde_json::from_slice(&output.stdout).expect("JSON of the script");
    let trace = Trace::read(&folder.join("t.beat"));
    let naps = trace.all_samples().filter_map(|(_, row)| {
        let frames = trace.frames(row.node).into_iter();
        let managed = frames.filter_map(|frame| match frame.kind {
            NodeKind::ManagedInterpreted => Some((frame.name, frame.line, false)),
            NodeKind::ManagedAwaiting => Some((frame.name, frame.line, true)),
            _ => None,
        });
        let mut managed: Stack = managed.collect();
        let cause = Probe::from_number(row.probe).map(Probe::cause);
        let is_nap = cause == Some(Cause::Poll)
            && row.flags & flags::BLOCKED != 0
            && managed.pop().is_some_and(|(name, ..)| name == "nap");
        is_nap.then_some(managed)
    });
    (said, naps.collect())
}

#[test]
fn tasks_hang_on_the_coroutines_that_await_them() {
    let all = interpreters().into_iter();
    let mut newer = all.filter(|(_, version)| *version >= (3, 14)).peekable();
    assert!(
        newer.peek().is_some(),
        "scripts/install-pythons.sh brings newer ones"
    );
    for (python, version) in newer {
        let folder = tempfile::tempdir().expect("a folder");
        let (said, found) = naps(&python, folder.path(), &["--await-chains"]);
        let awaiting = said.iter().flatten().filter(|(.., awaits)| *awaits).count();
        assert!(said.len() > 40 && awaiting > 100, "{version:?}: {said:?}");
        for (i, (found, said)) in found.iter().zip(&said).enumerate() {
            assert_eq!(found, said, "{version:?}: nap {i}");
        }
        assert_eq!(found.len(), said.len(), "{version:?}");

        // Nobody asked for them.
        let folder = tempfile::tempdir().expect("a folder");
        let (said, found) = naps(&python, folder.path(), &[]);
        let mut called = said;
        called
            .iter_mut()
            .for_each(|stack| stack.retain(|(.., awaits)| !awaits));
        assert_eq!(found, called, "{version:?}");
    }
}

/// The recorder reads the stack of a task that blocks its thread, from outside.
#[test]
fn a_task_that_blocks_for_good_hangs_on_what_awaits_it() {
    // There is one look at such a wait, and it may come to nothing.
    const MOST_RUNS: usize = 10;
    for (python, version) in newer() {
        let folder = tempfile::tempdir().expect("a folder");
        let waited = || {
            let options = ["--force", "--await-chains"];
            record(&python, folder.path(), &options, &["1.5"]);
            let words = ["export", "--to", "folded", "-o", "-", "t.beat"];
            let folded = text(&stackbeat(folder.path(), &words).stdout);
            let long = folded.lines().find(|line| {
                let ns = line
                    .rsplit_once(' ')
                    .and_then(|(_, ns)| ns.parse::<u64>().ok());
                // What could not be walked to the root is said to be so.
                line.contains(";forever;Event.wait;Condition.wait;")
                    && !line.contains(";[truncated];")
                    && ns > Some(1_000_000_000)
            });
            long.map(str::to_owned)
        };
        let stack = (0..MOST_RUNS).find_map(|_| waited());
        let stack = stack.unwrap_or_else(|| panic!("{version:?}: no stack in {MOST_RUNS} runs"));
        let is_whole = stack.contains(";<module>;")
            && stack.contains(";Handle._run;")
            && stack.contains(";behind_forever [async];forever;");
        assert!(is_whole, "{version:?}: {stack}");
    }
}
