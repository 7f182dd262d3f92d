//! Programs as people run them: of the samples of their Python threads, how many have all of the Python
//! stack. What was cut, refused or lost is not complete.
//!
//! From the first stack with the function that a thread begins with to the last one, all have it outermost.
//! Before, the interpreter begins, or the thread takes its lock; afterwards the interpreter or the thread
//! ends. There a stack may have other Python functions or none. It is complete if it is whole and no call of
//! the interpreter's evaluator is left native on it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stackbeat_core::shm::record_format::flags;
use stackbeat_proto::columns::SampleRow;
use stackbeat_proto::v1::{NodeKind, drops::Cause};
use stackbeat_tests::c_programs::{self, Session};
use stackbeat_tests::plain_reader::{Frame, Trace};
use stackbeat_tests::tool::{command_in, text};

use super::{Stack, recorded};

/// The one that Debian's packages are for.
const PYTHON: &str = "/usr/bin/python3";
const EVALUATOR: &str = "_PyEval_EvalFrameDefault";
/// A call that is beginning or ending has native frames alone: the evaluator's, and so many above it.
const MOST_ABOVE_BEGINNING: usize = 2;

/// In these the interpreter begins and ends. What it runs meanwhile is no part of the program, but functions
/// of `atexit` and destructors.
const STARTS_AND_ENDS: [&str; 2] = ["Py_InitializeFromConfig", "Py_FinalizeEx"];

/// A script of this topic.
fn script(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/workloads");
    format!("{folder}/{name}")
}

/// Where the naps of a run are written.
fn naps_file(folder: &Path) -> PathBuf {
    folder.join("naps")
}

/// The environment in which all runs are equal.
fn prepared<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    command
        .current_dir(folder)
        .env("NAPS", naps_file(folder))
        .env("PYTHONPATH", script(""))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OPENBLAS_NUM_THREADS", "2")
}

/// Whether calls of the evaluator stand on a stack whose functions are not there.
fn misses_functions(frames: &[Frame]) -> bool {
    let is_native = |frame: &Frame| matches!(frame.kind, NodeKind::Native | NodeKind::LeafPc);
    let missed = frames
        .iter()
        .position(|frame| is_native(frame) && frame.name == EVALUATOR);
    missed.is_some_and(|at| frames.len() - 1 - at > MOST_ABOVE_BEGINNING)
}

fn outermost(frames: &[Frame]) -> Option<&str> {
    let is_managed = |frame: &&Frame| frame.kind == NodeKind::ManagedInterpreted;
    frames.iter().find(is_managed).map(|frame| &*frame.name)
}

/// What one recording shows of its Python threads.
#[derive(Debug, Default)]
struct Share {
    complete: usize,
    /// Stacks of the others.
    incomplete: Vec<String>,
    /// Cut, refused and lost ones, by cause.
    dropped: BTreeMap<&'static str, u64>,
}

impl Share {
    fn of(trace: &Trace) -> Share {
        let mut share = Share::default();
        for (utid, rows) in &trace.samples {
            let thread = &trace.threads[utid];
            let is_main = thread.tid == trace.processes[&thread.upid].pid;
            share.add_thread(trace, is_main, rows);
        }
        for ((_, cause), count) in &trace.drops {
            let cause = Cause::try_from(*cause).unwrap_or(Cause::Unknown);
            // These say nothing of samples: who ended a wait, waits that were too short, other programs, and
            // captures besides the samples, of which a second has only so many. Stacks that could not be
            // walked to their root are among the stacks.
            let is_other = matches!(
                cause,
                Cause::WaitersFull
                    | Cause::WaitLeftOut
                    | Cause::NotHooked
                    | Cause::ForcedOverBudget
                    | Cause::TruncatedUnwind
            );
            if !is_other {
                *share.dropped.entry(cause.as_str_name()).or_default() += count;
            }
        }
        share
    }

    fn add_thread(&mut self, trace: &Trace, is_main: bool, rows: &[SampleRow]) {
        let entries = match is_main {
            // A script or a forked process, or `python -m`.
            true => &["<module>", "_run_module_as_main"][..],
            false => &["Thread._bootstrap"],
        };
        let nodes: BTreeSet<u32> = rows.iter().map(|row| row.node).collect();
        let stacks: BTreeMap<_, _> = nodes.iter().map(|&id| (id, trace.frames(id))).collect();
        let begins = |row: &SampleRow| {
            let frames = &stacks[&row.node];
            let is_entry = outermost(frames).is_some_and(|name| entries.contains(&name));
            is_entry
                && !frames
                    .iter()
                    .any(|frame| STARTS_AND_ENDS.contains(&&*frame.name))
        };
        let is_of_python = |frames: &Vec<Frame>| {
            outermost(frames).is_some() || frames.iter().any(|frame| frame.name == EVALUATOR)
        };
        // Those of libblas, for example.
        if !stacks.values().any(is_of_python) {
            return;
        }
        let first = rows.iter().position(begins);
        let ends = first.zip(rows.iter().rposition(begins));
        for (i, row) in rows.iter().enumerate() {
            let frames = &stacks[&row.node];
            let is_whole = !frames.is_empty()
                && row.flags & flags::STACK_CUT == 0
                && frames.iter().all(|frame| frame.kind != NodeKind::Truncated)
                && trace.methods_of(row.node).iter().all(|method| *method != 0)
                && !misses_functions(frames);
            // Otherwise there is nothing of Python to be seen.
            let is_python = outermost(frames).is_some();
            let is_inside = ends.map_or(is_python, |(first, last)| (first..=last).contains(&i));
            match is_whole && (begins(row) || !is_inside) {
                true => self.complete += usize::from(is_python),
                false => {
                    let names = frames.iter().map(|frame| &*frame.name);
                    let names = names.collect::<Vec<_>>().join(";");
                    self.incomplete.push(names);
                }
            }
        }
    }

    #[track_caller]
    fn assert_is_high(&self, what: &str) {
        // Some of the cut ones are counted twice.
        let incomplete = self.incomplete.len() as u64 + self.dropped.values().sum::<u64>();
        let share = self.complete as f64 / (self.complete as f64 + incomplete as f64);
        eprintln!("{what}: {share:.4} of {} {:?}", self.complete, self.dropped);
        let some: Vec<_> = self.incomplete.iter().take(5).collect();
        assert!(self.complete > 300 && share >= 0.995, "{what}: {some:#?}");
    }
}

/// Compares the naps of a trace with what the threads said of them.
#[track_caller]
fn assert_naps(what: &str, folder: &Path, trace: &Trace, count: usize) {
    let lines = std::fs::read_to_string(naps_file(folder)).expect("naps");
    let mut said = BTreeMap::<u32, Vec<Stack>>::new();
    for line in lines.lines() {
        let (tid, stack) = serde_json::from_str(line).expect("JSON of the script");
        said.entry(tid).or_default().push(stack);
    }
    assert_eq!(said.values().map(Vec::len).sum::<usize>(), count, "{what}");
    let mut recorded = recorded(trace);
    for (tid, said) in said {
        assert_eq!(recorded.remove(&tid), Some(said), "{what}: thread {tid}");
    }
}

/// Records a program with the system's interpreter twice, and holds it against a run without a recorder.
fn is_seen_whole(name: &str, arguments: &[&str], naps: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let plain = prepared(Command::new(PYTHON).args(arguments), folder).output();
    let plain = plain.expect("Python is installed");
    assert!(plain.status.success(), "{name}: {}", text(&plain.stderr));
    for interval in [&[][..], &["--interval", "1ms"]] {
        std::fs::remove_file(naps_file(folder)).expect("the naps of the last run");
        let recorder = ["record", "-q", "-f", "-o", "t.beat"];
        let words = [&recorder, interval, &["--", PYTHON], arguments].concat();
        let output = prepared(&mut command_in(folder, &words), folder).output();
        assert_same(name, &plain, &output.expect("runs"));
        let trace = Trace::read(&folder.join("t.beat"));
        let what = format!("{name} {interval:?}");
        assert_naps(&what, folder, &trace, naps);
        Share::of(&trace).assert_is_high(&what);
    }
}

/// What a run says, and how it ends. Durations at the end of lines are none of that.
#[track_caller]
fn assert_same(name: &str, plain: &Output, recorded: &Output) {
    let said = |output: &Output| -> Vec<String> {
        let said = text(&output.stdout);
        let before = |line: &str| line.split(" in ").next().unwrap_or_default().to_owned();
        said.lines().map(before).collect()
    };
    let errors = text(&recorded.stderr);
    assert_eq!(plain.status, recorded.status, "{name}: {errors}");
    assert_eq!(said(plain), said(recorded), "{name}: {errors}");
}

#[test]
fn numpy_in_threads_is_seen_whole() {
    is_seen_whole("numpy", &[&script("numeric.py")], 40);
}

#[test]
fn a_service_in_flask_under_load_is_seen_whole() {
    is_seen_whole("flask", &[&script("service.py")], 20);
}

#[test]
fn pools_of_forked_and_new_processes_are_seen_whole() {
    is_seen_whole("pool", &[&script("pool.py")], 20);
}

#[test]
fn tests_under_pytest_are_seen_whole() {
    let suite = script("test_suite.py");
    let options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", &suite];
    is_seen_whole("pytest", &options, 40);
}

/// CPython's tests of generators and exceptions find nothing changed while each call of a hook walks the
/// stack, and threads are interrupted besides.
#[test]
fn cpythons_own_tests_pass_while_every_hook_captures() {
    const MODULES: [&str; 4] = [
        "test_generators",
        "test_yield_from",
        "test_contextlib",
        "test_raise",
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let session = Session::new()
        .capture_all()
        .interrupt(std::time::Duration::from_millis(1));
    // One test raises SIGINT, which a shell has its background jobs ignore.
    let mut command = session.command(Path::new("env"));
    command.args(["--default-signal=INT", PYTHON, "-m", "test"]);
    command.args(MODULES);
    let output = c_programs::run(command.current_dir(folder.path()));
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let passed = format!("All {} tests OK.", MODULES.len());
    assert!(said.contains(&passed), "{said}");
    let samples: u64 = session.samples().values().sum();
    assert!(samples > 10_000, "{samples}");
}
