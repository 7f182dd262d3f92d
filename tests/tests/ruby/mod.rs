//! Ruby methods on stacks: by Ruby's own account, in each version that is installed.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeMap;

use stackbeat_core::probe::{Cause, Probe};
use stackbeat_core::shm::record_format::flags;
use stackbeat_proto::v1::NodeKind;
use stackbeat_tests::plain_reader::{Frame, Trace};
use stackbeat_tests::tool::{stackbeat, text};
use stackbeat_tests::workspace;

/// Label and line, outermost first.
type Stack = Vec<(String, u32)>;

/// A Ruby of this machine.
#[derive(Debug)]
struct Ruby {
    version: (u32, u32),
    /// Itself, and where its libraries are.
    words: Vec<String>,
}

impl Ruby {
    /// `None`: it does not run.
    fn of(words: Vec<String>) -> Option<Ruby> {
        let mut command = std::process::Command::new(&words[0]);
        command.args(&words[1..]).args(["-e", "print RUBY_VERSION"]);
        let output = text(&command.output().ok()?.stdout);
        let mut numbers = output.split('.').map(|number| number.parse::<u32>().ok());
        let version = (numbers.next()??, numbers.next()??);
        Some(Ruby { version, words })
    }

    /// What a method of `Object` is called: from 3.4 on its label has the class.
    fn label(&self, method: &str) -> String {
        let class = if self.version < (3, 4) { "" } else { "Object#" };
        format!("{class}{method}")
    }

    /// The command that records a script.
    fn record(&self, script: &str, arguments: &[&str], options: &[&str]) -> Vec<String> {
        let script = format!("{}/tests/ruby/{script}", env!("CARGO_MANIFEST_DIR"));
        let recorder = ["record", "-q", "-o", "t.beat"];
        let words: Vec<_> = self.words.iter().map(String::as_str).collect();
        let script = ["--disable-gems", script.as_str()];
        let parts = [&recorder, options, &["--"], &words, &script, arguments];
        parts.concat().into_iter().map(str::to_owned).collect()
    }
}

/// Those whose methods are read: 3.1 of this Debian, those of `scripts/install-rubies.sh`, and what the
/// variable `STACKBEAT_TESTS_RUBIES` lists.
fn rubies() -> Vec<Ruby> {
    let mut candidates = vec![vec!["ruby3.1".to_owned()]];
    let unpacked = workspace().join("target/rubies/usr");
    for version in ["3.3", "3.4"] {
        let at = |path: &str| unpacked.join(path).display().to_string();
        candidates.push(vec![
            at(&format!("bin/ruby{version}")),
            "-I".to_owned(),
            at(&format!("lib/ruby/{version}.0")),
            "-I".to_owned(),
            at(&format!("lib/x86_64-linux-gnu/ruby/{version}.0")),
        ]);
    }
    if let Some(more) = std::env::var_os("STACKBEAT_TESTS_RUBIES") {
        candidates
            .extend(std::env::split_paths(&more).map(|path| vec![path.display().to_string()]));
    }
    let found: Vec<_> = candidates.into_iter().filter_map(Ruby::of).collect();
    let versions = found.iter().map(|ruby| ruby.version);
    eprintln!("versions: {:?}", versions.collect::<Vec<_>>());
    assert!(
        found.iter().any(|ruby| ruby.version == (3, 1)),
        "Ruby 3.1 is not installed"
    );
    found
}

/// Records a script. Gives its output and the trace.
fn record(ruby: &Ruby, script: &str, arguments: &[&str], options: &[&str]) -> (String, Trace) {
    let folder = tempfile::tempdir().expect("a folder");
    let words = ruby.record(script, arguments, options);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let output = stackbeat(folder.path(), &words);
    let is_killed = arguments.contains(&"killed");
    assert_eq!(
        output.status.success(),
        !is_killed,
        "{}",
        text(&output.stderr)
    );
    let trace = Trace::read(&folder.path().join("t.beat"));
    (text(&output.stdout), trace)
}

/// The Ruby methods of a stack.
fn managed(trace: &Trace, node: u32) -> Stack {
    let frames = trace.frames(node).into_iter();
    let managed = frames.filter(|frame| frame.kind == NodeKind::ManagedInterpreted);
    managed.map(|frame| (frame.name, frame.line)).collect()
}

/// By thread id, the stacks of sleeps in order: samples of the blocked call below `nap`.
fn sleeps(ruby: &Ruby, trace: &Trace) -> BTreeMap<u32, Vec<Stack>> {
    let mut stacks = BTreeMap::<u32, Vec<Stack>>::new();
    let nap = ruby.label("nap");
    for (utid, row) in trace.all_samples() {
        // Afterwards it may wait for the lock of the virtual machine.
        let cause = Probe::from_number(row.probe).map(Probe::cause);
        let is_sleep = cause == Some(Cause::Poll)
            && row.flags & flags::BLOCKED != 0
            && row.duration_ns >= 2_500_000;
        let stack = managed(trace, row.node);
        if is_sleep && stack.last().is_some_and(|(name, _)| *name == nap) {
            let tid = trace.threads[&utid].tid;
            stacks.entry(tid).or_default().push(stack);
        }
    }
    stacks
}

/// Stacks of sleeps by Ruby's own account and of the trace, by thread.
fn said_and_recorded(ruby: &Ruby, arguments: &[&str]) -> Vec<(Vec<Stack>, Vec<Stack>)> {
    let (output, trace) = record(ruby, "stacks.rb", arguments, &[]);
    let said: BTreeMap<u32, Vec<Stack>> =
        serde_json::from_str(&output).expect("JSON of the script");
    assert_eq!(said.len(), 4);
    let mut recorded = sleeps(ruby, &trace);
    let said = said.into_iter();
    said.map(|(tid, said)| (said, recorded.remove(&tid).unwrap_or_default()))
        .collect()
}

/// Blocks, callbacks from C, exceptions, fibers, code made at run time, names that are not ASCII, threads.
#[test]
fn stacks_are_those_of_rubys_own_account() {
    for ruby in rubies() {
        for (said, recorded) in said_and_recorded(&ruby, &["150", "1"]) {
            for (i, (found, expected)) in recorded.iter().zip(&said).enumerate() {
                assert_eq!(found, expected, "sleep {i} of {ruby:?}");
            }
            assert_eq!(recorded.len(), said.len(), "{ruby:?}");
        }
    }
}

/// Another thread frees and moves objects all the time. What cannot be read meanwhile is left out, and
/// nothing else stands in its place.
#[test]
fn no_stack_is_wrong_while_memory_is_collected() {
    for ruby in rubies() {
        let (mut expected, mut found) = (0, 0);
        for (said, recorded) in said_and_recorded(&ruby, &["60", "2", "gc"]) {
            let mut rest = said.iter();
            for stack in &recorded {
                let is_said = rest.any(|said| said == stack);
                let differs = |said: &&Stack| {
                    let frames = said.iter().zip(stack).filter(|(a, b)| a != b).count();
                    frames + said.len().abs_diff(stack.len())
                };
                let nearest = said.iter().min_by_key(differs);
                assert!(
                    is_said,
                    "{stack:?} was not said by {ruby:?}; nearest {nearest:?}"
                );
            }
            expected += said.len();
            found += recorded.len();
        }
        let version = ruby.version;
        eprintln!("{version:?}: {found} of {expected} sleeps have Ruby's stack");
        // How much is left out depends on how often memory is collected meanwhile.
        assert!(found * 2 >= expected, "{found} of {expected}");
    }
}

/// The name of `rb_vm_exec` in a trace, where its symbol may be hidden: what most methods that native code
/// calls stand below.
fn evaluator(trace: &Trace) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for (_, row) in trace.all_samples() {
        for pair in trace.frames(row.node).windows(2) {
            let is_managed = |frame: &Frame| frame.kind == NodeKind::ManagedInterpreted;
            if !is_managed(&pair[0]) && is_managed(&pair[1]) {
                *counts.entry(pair[0].name.clone()).or_default() += 1;
            }
        }
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.expect("stacks with methods").0
}

/// The methods that `calls.rb` made, on a stack of one of its chains: each stands where it belongs. Gives how
/// many there are.
fn made_methods(frames: &[Frame], evaluator: &str) -> usize {
    // The innermost call may be in `rb_vm_exec` itself, whose place its methods take then.
    let is_call = |frame: &Frame| frame.name == evaluator;
    let is_below_its_call =
        |at: usize| is_call(&frames[at - 1]) || !frames[at..].iter().any(is_call);
    let (mut number, mut last, mut count) = (None, None, 0);
    let managed = frames.iter().enumerate();
    let managed = managed.filter(|(_, frame)| frame.kind == NodeKind::ManagedInterpreted);
    for (at, frame) in managed {
        let method = frame.name.strip_prefix("block in ");
        let Some(made) = method.unwrap_or(&frame.name).strip_prefix("f_") else {
            continue;
        };
        let (own, level) = made.split_once('_').expect("a chain and a place");
        let level: u32 = level.parse().expect("a number");
        assert_eq!(*number.get_or_insert(own), own, "{frames:#?}");
        assert_eq!(frame.line, level + 1, "{frames:#?}");
        // A block is of the method above, and functions in C call it. On a fiber's stack it is the outermost.
        // Methods are called by what stands above.
        let is_in_place = match (method, last) {
            (_, None) => true,
            (Some(_), Some((above, place))) => {
                level == above && at > place + 1 && is_below_its_call(at)
            }
            (None, Some((above, place))) => level == above + 1 && at == place + 1,
        };
        assert!(is_in_place, "{} in {frames:#?}", frame.name);
        last = Some((level, at));
        count += 1;
    }
    count
}

/// Samples at any instruction, of code that is thrown away all the time and whose memory is used again: no
/// frame is another method's, none stands among the wrong native ones, and few stacks have none.
#[test]
fn samples_at_any_moment_show_calls_that_are_there() {
    for ruby in rubies() {
        let (_, trace) = record(&ruby, "calls.rb", &["2"], &["--interval", "200us"]);
        let evaluator = evaluator(&trace);
        assert!(ruby.version != (3, 1) || evaluator == "rb_vm_exec");
        let (mut made, mut whole, mut samples) = (0, 0, 0);
        for (_, row) in trace.all_samples() {
            let frames = trace.frames(row.node);
            made += made_methods(&frames, &evaluator);
            let is_managed = |frame: &Frame| frame.kind == NodeKind::ManagedInterpreted;
            let is_whole = frames.iter().any(is_managed);
            whole += usize::from(is_whole);
            let is_run = is_whole || frames.iter().any(|frame| frame.name == evaluator);
            samples += usize::from(is_run);
        }
        let version = ruby.version;
        eprintln!(
            "{version:?}: {whole} of {samples} with Ruby's methods, {made} frames of made code"
        );
        // On a busy machine it runs for a small part of the two seconds.
        assert!(samples > 200 && made > 500, "{samples}, {made}");
        let share = whole as f64 / samples as f64;
        assert!(
            share >= 0.99,
            "{whole} of {samples} stacks have Ruby's methods in {ruby:?}"
        );
    }
}

/// What was recorded of a program that is killed has its methods.
#[test]
fn methods_of_a_killed_program_have_names() {
    for ruby in rubies() {
        let (_, trace) = record(&ruby, "calls.rb", &["1", "killed"], &[]);
        let samples = trace.all_samples();
        let stacks = samples.map(|(_, row)| managed(&trace, row.node));
        let made = stacks.filter(|stack| {
            let last = stack.last();
            last.is_some_and(|(label, line)| label.starts_with("f_") && *line > 0)
        });
        let made = made.count();
        assert!(made > 50, "{made} of {ruby:?}");
    }
}

/// The recorder reads the stack of a thread that waits, from outside.
#[test]
fn waits_that_never_end_have_rubys_stacks() {
    for ruby in rubies() {
        let folder = tempfile::tempdir().expect("a folder");
        let words = ruby.record("forever.rb", &[], &[]);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let output = stackbeat(folder.path(), &words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let words = ["export", "--to", "folded", "-o", "-", "t.beat"];
        let folded = text(&stackbeat(folder.path(), &words).stdout);
        let forever = ruby.label("forever");
        let block = format!("block in {forever}");
        let waits = folded.lines().filter_map(|line| {
            let (stack, ns) = line.rsplit_once(' ')?;
            let mut frames = stack.split(';');
            let is_whole = ["block in <main>", &forever, &block]
                .iter()
                .all(|label| frames.any(|frame| frame == *label));
            is_whole.then(|| ns.parse::<u64>().ok())?
        });
        let waited_ns: u64 = waits.sum();
        assert!(
            waited_ns > 1_000_000_000,
            "{waited_ns} ns of {ruby:?} in\n{folded}"
        );
    }
}

/// Threads of other ractors than the first are found, too.
#[test]
fn ractors_have_their_methods() {
    for ruby in rubies() {
        let (_, trace) = record(&ruby, "ractors.rb", &["1"], &[]);
        let labels = |method: &str| ruby.label(method);
        let block = format!("block in {}", labels("work"));
        let (work, inner) = (labels("work"), labels("inner"));
        let whole = [
            "block (2 levels) in <main>",
            "block (3 levels) in <main>",
            &work,
            &block,
            &inner,
        ];
        let mut count = 0;
        for (_, row) in trace.all_samples() {
            let stack = managed(&trace, row.node);
            let names: Vec<_> = stack.iter().map(|(name, _)| name.as_str()).collect();
            if names.first() == whole.first() {
                assert!(whole.starts_with(&names), "{names:?} of {ruby:?}");
                count += usize::from(names.len() == whole.len());
            }
        }
        assert!(count > 100, "{count} of {ruby:?}");
    }
}
