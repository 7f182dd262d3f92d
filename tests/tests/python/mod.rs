//! Python functions on stacks: by the interpreter's own account, in each version that is installed.
#![cfg(target_os = "linux")]

mod await_chains;
mod compared;
mod qualified_names;
mod stale_frames;
mod workloads;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stackbeat_core::probe::{Cause, Probe};
use stackbeat_core::shm::record_format::flags;
use stackbeat_proto::v1::NodeKind;
use stackbeat_tests::plain_reader::Trace;
use stackbeat_tests::tool::{stackbeat, text};
use stackbeat_tests::workspace;

/// Name and line, outermost first.
type Stack = Vec<(String, u32)>;

/// Interpreters of this machine whose versions are known, and the version.
fn interpreters() -> Vec<(PathBuf, (u32, u32))> {
    let mut found = BTreeMap::new();
    let mut candidates = vec![PathBuf::from("/usr/bin/python3")];
    // Of scripts/install-pythons.sh.
    let unpacked = workspace().join("target/pythons");
    candidates.push(unpacked.join("3.9/usr/bin/python3.9"));
    candidates.extend(["3.14", "3.15"].map(|v| unpacked.join(format!("usr/bin/python{v}"))));
    // Of scripts/free-threaded-python.sh.
    if let Some(more) = std::env::var_os("STACKBEAT_TESTS_PYTHONS") {
        candidates.extend(std::env::split_paths(&more));
    }
    if let Some(home) = std::env::var_os("HOME") {
        let versions = Path::new(&home).join(".pyenv/versions");
        let entries = std::fs::read_dir(versions).into_iter().flatten().flatten();
        candidates.extend(entries.map(|entry| entry.path().join("bin/python3")));
    }
    for candidate in candidates {
        let mut command = std::process::Command::new(&candidate);
        command.args([
            "-c",
            "import sys; print(*sys.version_info[:2], sys.executable)",
        ]);
        let Ok(output) = command.output() else {
            continue;
        };
        let output = text(&output.stdout);
        let mut words = output.split_whitespace();
        let mut number = || words.next().and_then(|word| word.parse::<u32>().ok());
        if let (Some(major), Some(minor)) = (number(), number())
            && (3, 9) <= (major, minor)
            && (major, minor) <= (3, 15)
        {
            found.insert(candidate, (major, minor));
        }
    }
    eprintln!("versions: {:?}", found.values());
    assert!(!found.is_empty(), "no Python from 3.9 to 3.15 is installed");
    found.into_iter().collect()
}

/// By thread id, the stacks of its sleeps in order.
fn said(output: &str) -> BTreeMap<u32, Vec<Stack>> {
    serde_json::from_str(output).expect("JSON of the script")
}

/// The Python functions of a stack.
fn managed(trace: &Trace, node: u32) -> Stack {
    let frames = trace.frames(node).into_iter();
    let managed = frames.filter(|frame| frame.kind == NodeKind::ManagedInterpreted);
    managed.map(|frame| (frame.name, frame.line)).collect()
}

/// The same in a trace: samples of the blocked call below `nap`.
fn recorded(trace: &Trace) -> BTreeMap<u32, Vec<Stack>> {
    let mut stacks = BTreeMap::<u32, Vec<Stack>>::new();
    for (utid, row) in trace.all_samples() {
        let managed = managed(trace, row.node);
        // Afterwards it may wait for the interpreter's lock.
        let cause = Probe::from_number(row.probe).map(Probe::cause);
        let is_nap = cause == Some(Cause::Poll)
            && row.flags & flags::BLOCKED != 0
            && row.duration_ns >= 2_500_000;
        if is_nap && managed.last().is_some_and(|(name, _)| name == "nap") {
            stacks
                .entry(trace.threads[&utid].tid)
                .or_default()
                .push(managed);
        }
    }
    stacks
}

/// A thread's polls that are no sleeps of the script: flags, length and stack.
fn other_polls(trace: &Trace, tid: u32) -> Vec<(u8, u64, Vec<String>)> {
    let of_thread = trace.all_samples().filter(|(utid, row)| {
        let cause = Probe::from_number(row.probe).map(Probe::cause);
        let is_sleep = row.duration_ns >= 2_500_000
            && managed(trace, row.node)
                .last()
                .is_some_and(|(name, _)| name == "nap");
        trace.threads[utid].tid == tid && cause == Some(Cause::Poll) && !is_sleep
    });
    let names = |node| trace.frames(node).into_iter().map(|frame| frame.name);
    let shown = of_thread.map(|(_, row)| (row.flags, row.duration_ns, names(row.node).collect()));
    shown.collect()
}

/// Records a script, in which so many threads sleep, with each interpreter. Each sleep's stack is the one
/// that the script says.
fn sleeps_are_as_said(script: &str, arguments: &[&str], threads: usize) {
    for (python, version) in interpreters() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = format!("{}/tests/python/{script}", env!("CARGO_MANIFEST_DIR"));
        let python = python.to_str().expect("UTF-8");
        let recorder = ["record", "-q", "-o", "t.beat", "--", python, &script];
        let output = stackbeat(folder.path(), &[&recorder, arguments].concat());
        assert!(
            output.status.success(),
            "{python}: {}",
            text(&output.stderr)
        );
        let said = said(&text(&output.stdout));
        let trace = Trace::read(&folder.path().join("t.beat"));
        let recorded = recorded(&trace);
        assert_eq!(said.len(), threads, "{version:?}");
        for (tid, expected) in &said {
            let found = recorded.get(tid).map_or(&[][..], Vec::as_slice);
            assert_eq!(
                found.len(),
                expected.len(),
                "{version:?}: sleeps of thread {tid}; these are none: {:?}",
                other_polls(&trace, *tid)
            );
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                assert_eq!(found, expected, "{python}: sleep {i} of thread {tid}");
            }
        }
    }
}

/// Generators, comprehensions, callbacks from C, coroutines, code made at run time, names that are not ASCII,
/// threads.
#[test]
fn stacks_are_those_of_the_interpreters_own_account() {
    sleeps_are_as_said("stacks.py", &["150", "1"], 4);
}

/// Another thread looks at them by `sys._current_frames()` at that moment, and two more compute all the time:
/// without the interpreter's lock, at the same time.
#[test]
fn stacks_are_those_that_other_threads_see() {
    sleeps_are_as_said("current_frames.py", &["60"], 3);
}

/// Samples at any instruction of the interpreter, of code that is thrown away all the time and whose memory
/// is used again: no frame is another function's, none is missing.
#[test]
fn samples_at_any_moment_show_calls_that_are_there() {
    for (python, version) in interpreters() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/calls.py");
        let python = python.to_str().expect("UTF-8");
        let arguments = [
            "record",
            "-q",
            "--interval",
            "200us",
            "-o",
            "t.beat",
            "--",
            python,
        ];
        let output = stackbeat(folder.path(), &[&arguments[..], &[script, "2"]].concat());
        assert!(
            output.status.success(),
            "{version:?}: {}",
            text(&output.stderr)
        );
        let trace = Trace::read(&folder.path().join("t.beat"));
        let (mut chains, mut whole, mut samples) = (0, 0, 0);
        for rows in trace.samples.values() {
            // Many samples have one stack.
            let mut known = BTreeMap::new();
            let mut stack_of = |node| {
                known
                    .entry(node)
                    .or_insert_with(|| managed(&trace, node))
                    .clone()
            };
            let stacks: Vec<Stack> = rows.iter().map(|row| stack_of(row.node)).collect();
            let is_run = |stack: &Stack| stack.iter().any(|(name, _)| name == "run");
            let Some(first) = stacks.iter().position(is_run) else {
                continue;
            };
            let last = stacks
                .iter()
                .rposition(is_run)
                .expect("there is a first one");
            for stack in &stacks[first..=last] {
                samples += 1;
                let run = stack.iter().position(|(name, _)| name == "run");
                let Some(run) = run else { continue };
                let outer = stack[..run].first().map_or("", |(name, _)| name);
                whole += usize::from(outer == "<module>" || outer.ends_with("_bootstrap"));
                let mut number = None;
                for (level, (name, line)) in stack[run + 1..].iter().enumerate() {
                    // `make` and what it calls, or the generator at the end of the chain.
                    let chain = name.strip_prefix("f_");
                    let Some(made) = chain.filter(|name| !name.ends_with("<genexpr>")) else {
                        break;
                    };
                    let mut parts = made.split('_');
                    let own = parts.next().expect("a number");
                    assert_eq!(*number.get_or_insert(own), own, "{version:?}: {stack:?}");
                    let expected = level.to_string();
                    assert_eq!(parts.next(), Some(&*expected), "{version:?}: {stack:?}");
                    assert_eq!(*line as usize, level + 1, "{version:?}: {stack:?}");
                    chains += 1;
                }
            }
        }
        assert!(
            samples > 500 && chains > 500,
            "{version:?}: {samples} samples, {chains} frames"
        );
        let share = whole as f64 / samples as f64;
        eprintln!("{python}: {whole} of {samples} whole, {chains} frames of made code");
        assert!(
            share >= 0.995,
            "{version:?}: {whole} of {samples} stacks reach the thread's begin"
        );
    }
}

/// Where the native stack is cut, the functions of Python's are all there, but at moments of a call's begin
/// or end.
#[test]
fn stacks_deeper_than_the_limit_have_all_functions() {
    const SCRIPT: &str = "
import time
def down(n): return sum(range(100)) if n == 0 else 1 + down(n - 1)
def by_sort(n): return sorted([n], key=lambda n: by_sort(n - 1) if n else down(30))
def top():
    while time.thread_time() < 0.3: by_sort(20)
top()
";
    const OUTER: [&str; 4] = ["<module>", "top", "by_sort", "by_sort.<locals>.<lambda>"];
    for (python, version) in interpreters() {
        let folder = tempfile::tempdir().expect("a folder");
        let python = python.to_str().expect("UTF-8");
        let options = ["record", "-q", "--interval", "500us", "--depth", "40"];
        let program = ["-o", "t.beat", "--", python, "-c", SCRIPT];
        let output = stackbeat(folder.path(), &[options, program].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let trace = Trace::read(&folder.path().join("t.beat"));
        let rows: Vec<_> = trace.all_samples().map(|(_, row)| row.node).collect();
        let is_whole = |node: &u32| {
            let stack = managed(&trace, *node);
            let names = stack.iter().map(|(name, _)| &**name);
            // Before 3.11 names have no function around them.
            let is_outer = |(name, outer): (&str, &str)| outer.ends_with(name);
            stack.len() > 1 && names.zip(OUTER).all(is_outer)
        };
        let begin = rows.iter().position(is_whole).expect("there is one");
        let end = rows.iter().rposition(is_whole).expect("there is one");
        let rows = &rows[begin..=end];
        let is_cut = |node: &&u32| {
            let frames = trace.frames(**node);
            (frames.first()).is_some_and(|frame| frame.kind == NodeKind::Truncated)
        };
        let whole = rows.iter().filter(|node| is_whole(node)).count();
        // What the stack before has is not walked again, so few are cut.
        let cut: Vec<_> = rows.iter().filter(is_cut).collect();
        let whole_cut = cut.iter().filter(|node| is_whole(node)).count();
        let (all, cut) = (rows.len(), cut.len());
        let shares = format!("{version:?}: {whole} of {all}, {whole_cut} of {cut}");
        eprintln!("{shares}");
        assert!(all > 100 && 100 * whole >= 98 * all, "{shares}");
        assert!(cut - whole_cut <= 1 + cut / 50, "{shares}");
    }
}

/// The stacks below `work` in which a sub-interpreter sleeps, and how often: of a program that is started by
/// these words.
fn sleeps_in_sub_interpreters(program: &[&str], extent: &str) -> BTreeMap<Vec<String>, usize> {
    let folder = tempfile::tempdir().expect("a folder");
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/python/subinterpreters.py"
    );
    let recorder = ["record", "-q", "-o", "t.beat", "--"];
    let arguments = [&recorder, program, &[script, extent]].concat();
    let output = stackbeat(folder.path(), &arguments);
    assert!(
        output.status.success(),
        "{program:?}: {}",
        text(&output.stderr)
    );
    let trace = Trace::read(&folder.path().join("t.beat"));
    let mut counts: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for stack in recorded(&trace).into_values().flatten() {
        let names = stack.into_iter().map(|(name, _)| name);
        let below = names.skip_while(|name| name != "work").skip(1);
        *counts.entry(below.collect()).or_default() += 1;
    }
    counts
}

const IN_SUB_INTERPRETER: [&str; 4] = ["enter", "<module>", "in_sub", "nap"];

/// A thread in a sub-interpreter has the functions of all interpreters that it came through on its stack.
#[test]
fn functions_of_sub_interpreters_are_seen() {
    let nested = [&["enter", "<module>", "outer_sub"][..], &IN_SUB_INTERPRETER].concat();
    let stack = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let expected = BTreeMap::from([(stack(&IN_SUB_INTERPRETER), 40), (stack(&nested), 40)]);
    for (python, version) in interpreters() {
        let python = python.to_str().expect("UTF-8");
        let counts = sleeps_in_sub_interpreters(&[python], "nested");
        assert_eq!(counts, expected, "{version:?}");
    }
}

/// The functions of a stack from the first one on whose name ends with a thread's number.
fn from_numbered(stack: Stack) -> String {
    let is_numbered = |name: &str| name.ends_with(|end: char| end.is_ascii_digit());
    let names = stack.into_iter().map(|(name, _)| name);
    let own: Vec<String> = names.skip_while(|name| !is_numbered(name)).collect();
    own.join(";")
}

/// Interpreters are made and ended while threads start and end: the sleeps of each thread, and its starts of
/// others, are in its own functions.
#[test]
fn interpreters_that_come_and_go_are_seen() {
    const ROUNDS: usize = 20;
    let mut sleeps = BTreeMap::from([("stay_0;nap".to_owned(), ROUNDS)]);
    for i in 1..=3 {
        for stack in [
            format!("work_{i};before_{i};nap"),
            format!("work_{i};enter_{i};<module>;inner_{i};nap"),
            format!("work_{i};enter_{i};<module>;nap"),
            format!("work_{i};after_{i};nap"),
            format!("short_{i};nap"),
        ] {
            sleeps.insert(stack, ROUNDS);
        }
    }
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/python/changing_interpreters.py"
    );
    for (python, version) in interpreters() {
        let folder = tempfile::tempdir().expect("a folder");
        let python = python.to_str().expect("UTF-8");
        let rounds = ROUNDS.to_string();
        let arguments = [
            "record", "-q", "-o", "t.beat", "--", python, script, &rounds,
        ];
        let output = stackbeat(folder.path(), &arguments);
        assert!(
            output.status.success(),
            "{version:?}: {}",
            text(&output.stderr)
        );
        let trace = Trace::read(&folder.path().join("t.beat"));
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for stack in recorded(&trace).into_values().flatten() {
            *counts.entry(from_numbered(stack)).or_default() += 1;
        }
        let others = || {
            let tids = trace.threads.values().map(|thread| thread.tid);
            let polls = tids.flat_map(|tid| other_polls(&trace, tid));
            polls.filter(|poll| poll.1 >= 2_500_000).collect::<Vec<_>>()
        };
        // None is in a wrong place. One that meets a list of states while it changes again and again is in
        // none.
        let of_none = sleeps.values().sum::<usize>() - counts.values().sum::<usize>();
        let is_wrong =
            |(stack, count): (&String, &usize)| sleeps.get(stack).is_none_or(|most| count > most);
        assert!(
            of_none <= 3 && !counts.iter().any(is_wrong),
            "{python}: {counts:?}; these are none: {:?}",
            others()
        );
        // Some have no stack, where several threads start others at once.
        let mut starts: BTreeMap<String, usize> = BTreeMap::new();
        for thread in trace.threads.values().filter(|one| one.creator_node != 0) {
            let start = managed(&trace, thread.creator_node);
            let outermost = start.first().map(|(name, _)| name.clone());
            let own = from_numbered(start);
            let starter = own.split(';').next().filter(|name| !name.is_empty());
            let starter = starter.map(str::to_owned).or(outermost);
            *starts.entry(starter.unwrap_or_default()).or_default() += 1;
        }
        let main = starts.remove("<module>").unwrap_or(0);
        let of_work: usize = (1..=3)
            .filter_map(|i| starts.remove(&format!("work_{i}")))
            .sum();
        assert!(main <= 3, "{python}: {main}");
        assert!(of_work > ROUNDS, "{python}: {of_work}");
        assert_eq!(starts, BTreeMap::new(), "{python}");
    }
}

/// A program that has the interpreter inside of it has any name.
#[test]
fn an_interpreter_of_another_name_is_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("shop");
    std::fs::copy("/usr/bin/python3", &program).expect("copies");
    let program = program.to_str().expect("UTF-8");
    let counts = sleeps_in_sub_interpreters(&["env", "PYTHONHOME=/usr", program], "flat");
    let expected = IN_SUB_INTERPRETER.map(str::to_owned).to_vec();
    assert_eq!(counts, BTreeMap::from([(expected, 40)]));
}

/// The recorder reads the stack of a thread that waits, from outside. In 3.9 and 3.10 it cannot tell which
/// one it is.
#[test]
fn waits_that_never_end_have_python_stacks() {
    for (python, version) in interpreters() {
        if version <= (3, 10) {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/forever.py");
        let python = python.to_str().expect("UTF-8");
        let arguments = ["record", "-q", "-o", "t.beat", "--", python, script];
        let output = stackbeat(folder.path(), &arguments);
        assert!(
            output.status.success(),
            "{version:?}: {}",
            text(&output.stderr)
        );
        let output = stackbeat(
            folder.path(),
            &["export", "--to", "folded", "-o", "-", "t.beat"],
        );
        let folded = text(&output.stdout);
        // Most of the thread's time is this one stack.
        let waits = folded.lines().filter_map(|line| {
            let (stack, ns) = line.rsplit_once(' ')?;
            let is_whole = stack.contains(";Thread._bootstrap;")
                && stack.contains(";forever;Event.wait;Condition.wait;");
            is_whole.then(|| ns.parse::<u64>().ok())?
        });
        let waited_ns: u64 = waits.sum();
        assert!(
            waited_ns > 1_000_000_000,
            "{version:?}: {waited_ns} ns in\n{folded}"
        );
    }
}

/// Threads are called what the program calls them: names that the system has no room for, attributes of an
/// object that has many, in an object that was given a dictionary, and names that change.
#[test]
fn threads_have_the_names_that_the_program_gave_them() {
    for (python, version) in interpreters() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/named_threads.py");
        let python = python.to_str().expect("UTF-8");
        let arguments = ["record", "-q", "-o", "t.beat", "--", python, script];
        let output = stackbeat(folder.path(), &arguments);
        assert!(
            output.status.success(),
            "{version:?}: {}",
            text(&output.stderr)
        );
        let said: BTreeMap<u32, String> =
            serde_json::from_slice(&output.stdout).expect("JSON of the script");
        let trace = Trace::read(&folder.path().join("t.beat"));
        let names: BTreeMap<u32, &str> = (trace.threads.values())
            .map(|thread| (thread.tid, &*thread.name))
            .collect();
        assert_eq!(said.len(), 7, "{version:?}");
        for (tid, name) in &said {
            assert_eq!(names.get(tid), Some(&&**name), "{version:?}: {names:?}");
        }
    }
}
