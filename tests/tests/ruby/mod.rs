//! Ruby methods on stacks: by Ruby's own account.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeMap;

use stackbeat_core::probe::{Cause, Probe};
use stackbeat_core::shm::record_format::flags;
use stackbeat_proto::v1::NodeKind;
use stackbeat_tests::plain_reader::{Frame, Trace};
use stackbeat_tests::tool::{stackbeat, text};

/// Label and line, outermost first.
type Stack = Vec<(String, u32)>;

const RUBY: &str = "ruby3.1";

/// Records a script. Gives its output and the trace.
fn record(script: &str, arguments: &[&str], options: &[&str]) -> (String, Trace) {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("{}/tests/ruby/{script}", env!("CARGO_MANIFEST_DIR"));
    let recorder = ["record", "-q", "-o", "t.beat"];
    let program = ["--", RUBY, &script];
    let words = [&recorder, options, &program, arguments].concat();
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
fn sleeps(trace: &Trace) -> BTreeMap<u32, Vec<Stack>> {
    let mut stacks = BTreeMap::<u32, Vec<Stack>>::new();
    for (utid, row) in trace.all_samples() {
        // Afterwards it may wait for the lock of the virtual machine.
        let cause = Probe::from_number(row.probe).map(Probe::cause);
        let is_sleep = cause == Some(Cause::Poll)
            && row.flags & flags::BLOCKED != 0
            && row.duration_ns >= 2_500_000;
        let stack = managed(trace, row.node);
        if is_sleep && stack.last().is_some_and(|(name, _)| name == "nap") {
            let tid = trace.threads[&utid].tid;
            stacks.entry(tid).or_default().push(stack);
        }
    }
    stacks
}

/// Stacks of sleeps by Ruby's own account and of the trace, by thread.
fn said_and_recorded(arguments: &[&str]) -> Vec<(Vec<Stack>, Vec<Stack>)> {
    let (output, trace) = record("stacks.rb", arguments, &[]);
    let said: BTreeMap<u32, Vec<Stack>> =
        serde_json::from_str(&output).expect("JSON of the script");
    assert_eq!(said.len(), 4);
    let mut recorded = sleeps(&trace);
    let said = said.into_iter();
    said.map(|(tid, said)| (said, recorded.remove(&tid).unwrap_or_default()))
        .collect()
}

/// Blocks, callbacks from C, exceptions, fibers, code made at run time, names that are not ASCII, threads.
#[test]
fn stacks_are_those_of_rubys_own_account() {
    for (said, recorded) in said_and_recorded(&["150", "1"]) {
        for (i, (found, expected)) in recorded.iter().zip(&said).enumerate() {
            assert_eq!(found, expected, "sleep {i}");
        }
        assert_eq!(recorded.len(), said.len());
    }
}

/// Another thread frees and moves objects all the time. What cannot be read meanwhile is left out, and
/// nothing else stands in its place.
#[test]
fn no_stack_is_wrong_while_memory_is_collected() {
    let (mut expected, mut found) = (0, 0);
    for (said, recorded) in said_and_recorded(&["60", "2", "gc"]) {
        let mut rest = said.iter();
        for stack in &recorded {
            assert!(rest.any(|said| said == stack), "{stack:?} was not said");
        }
        expected += said.len();
        found += recorded.len();
    }
    eprintln!("{found} of {expected} sleeps have Ruby's stack");
    assert!(found * 4 >= expected * 3, "{found} of {expected}");
}

/// The methods that `calls.rb` made, on a stack of one of its chains: each stands where it belongs. Gives how
/// many there are.
fn made_methods(frames: &[Frame]) -> usize {
    // The innermost call may be in `rb_vm_exec` itself, whose place its methods take then.
    let is_call = |frame: &Frame| frame.name == "rb_vm_exec";
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
    let (_, trace) = record("calls.rb", &["2"], &["--interval", "200us"]);
    let (mut made, mut whole, mut samples) = (0, 0, 0);
    for (_, row) in trace.all_samples() {
        let frames = trace.frames(row.node);
        made += made_methods(&frames);
        let is_managed = |frame: &Frame| frame.kind == NodeKind::ManagedInterpreted;
        let is_whole = frames.iter().any(is_managed);
        whole += usize::from(is_whole);
        let is_run = is_whole || frames.iter().any(|frame| frame.name == "rb_vm_exec");
        samples += usize::from(is_run);
    }
    eprintln!("{whole} of {samples} with Ruby's methods, {made} frames of made code");
    assert!(samples > 500 && made > 1000, "{samples}, {made}");
    let share = whole as f64 / samples as f64;
    assert!(
        share >= 0.99,
        "{whole} of {samples} stacks have Ruby's methods"
    );
}

/// What was recorded of a program that is killed has its methods.
#[test]
fn methods_of_a_killed_program_have_names() {
    let (_, trace) = record("calls.rb", &["1", "killed"], &[]);
    let samples = trace.all_samples();
    let stacks = samples.map(|(_, row)| managed(&trace, row.node));
    let made = stacks.filter(|stack| {
        let last = stack.last();
        last.is_some_and(|(label, line)| label.starts_with("f_") && *line > 0)
    });
    let made = made.count();
    assert!(made > 50, "{made}");
}

/// The recorder reads the stack of a thread that waits, from outside.
#[test]
fn waits_that_never_end_have_rubys_stacks() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ruby/forever.rb");
    let words = ["record", "-q", "-o", "t.beat", "--", RUBY, script];
    let output = stackbeat(folder.path(), &words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let words = ["export", "--to", "folded", "-o", "-", "t.beat"];
    let folded = text(&stackbeat(folder.path(), &words).stdout);
    let waits = folded.lines().filter_map(|line| {
        let (stack, ns) = line.rsplit_once(' ')?;
        let mut frames = stack.split(';');
        let is_whole = ["block in <main>", "forever", "block in forever"]
            .iter()
            .all(|label| frames.any(|frame| frame == *label));
        is_whole.then(|| ns.parse::<u64>().ok())?
    });
    let waited_ns: u64 = waits.sum();
    assert!(waited_ns > 1_000_000_000, "{waited_ns} ns in\n{folded}");
}
