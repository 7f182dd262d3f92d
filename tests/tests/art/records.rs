//! Single records of collections, native calls, class loads, deep stacks and exceptions, beside what the
//! program says of each.

use stackbeat_core::probe::Probe;
use stackbeat_proto::columns::SampleRow;

use super::{
    CLOCK_NS, Frame, Recorded, equal_stacks, is_java, is_same_stack, marked, program, record,
    record_on, sticking_library, versions,
};

/// Each record of these lies in one of the spans (begin and duration) that the program says. So many spans
/// have one at least.
#[track_caller]
fn assert_inside(what: &str, rows: &[&SampleRow], said: &[(u64, u64)], at_least: usize) {
    let is_in = |row: &SampleRow, &(begin, ns): &(u64, u64)| {
        row.time_ns <= begin + ns + CLOCK_NS && row.time_ns - row.duration_ns + CLOCK_NS >= begin
    };
    let outside = |row: &&&SampleRow| !said.iter().any(|span| is_in(row, span));
    let outside = rows.iter().filter(outside).count();
    let has_one = |span: &&(u64, u64)| rows.iter().any(|row| is_in(row, span));
    let with = said.iter().filter(has_one).count();
    eprintln!(
        "{what}: {} records, {outside} outside; {with} of {} have one",
        rows.len(),
        said.len()
    );
    assert_eq!(outside, 0, "{what}");
    assert!(with >= at_least, "{what}: {with} of {}", said.len());
}

/// The innermost Java frame of a record.
fn java_leaf(recorded: &Recorded, row: &SampleRow) -> Option<String> {
    let frames = recorded.trace.frames(row.node);
    let java = frames.iter().rfind(|frame| is_java(frame));
    java.map(|frame| frame.name.clone())
}

/// How often a hook was passed in two runs of the same kind, one of which does `more` more of it.
#[track_caller]
fn assert_counts(what: &str, runs: [&Recorded; 2], hook: &str, more: u64, others: u64) {
    let counts = runs.map(|run| run.status(&format!("hook {hook} placed")));
    eprintln!("{what}: {counts:?} calls of {hook}, {more} more");
    let grown = counts[1].abs_diff(counts[0]);
    assert!(
        (more.saturating_sub(others)..=more + others).contains(&grown),
        "{what}: {counts:?}, not {more} more"
    );
}

const FAST: &[&str] = &["--interval", "100us"];
/// So that what a hook meets is left to no signal.
const BY_HOOKS: &[&str] = &["--interval", "100us", "--no-interrupt"];

/// Each collection that the program asks for counts. Samples of it lie in the time that the program says.
#[test]
fn collections_are_those_of_the_program() {
    for version in versions() {
        let runs = [20, 120].map(|n: u32| record(version, FAST, &["collects", &n.to_string()]));
        let [few, many] = &runs;
        let what = format!("ART {version}, collections");
        // The machine collects by itself a few times.
        assert_counts(&what, [few, many], "FinishGc", 100, 4);
        let said = many.said_waits("gc");
        assert_eq!(said.len(), 120);
        let rows = many.rows_of_thread("collector").into_iter();
        let is_in_gc = |row: &&SampleRow| {
            java_leaf(many, row).is_some_and(|leaf| leaf == "java.lang.Runtime.gc")
        };
        let rows: Vec<&SampleRow> = rows.filter(is_in_gc).collect();
        assert_inside(&what, &rows, &said, 60);
    }
}

/// A thread that wants memory waits for the collection that another one does: in the call that makes its
/// object, no longer than that, and the collection's thread ends it.
#[test]
fn waits_for_the_collector_lie_in_the_program_s_allocations() {
    for version in versions() {
        let recorded = record_on(version, &["-Xmx24m"], FAST, &["starves", "3000"], &[]);
        let said = recorded.said_waits("made");
        let rows = recorded.rows("allocator", Probe::GcWait);
        let known = rows.iter().filter_map(|row| row.waker_tid);
        let (known, collector) = (
            known.clone().count(),
            known
                .filter(|tid| *tid == recorded.tid("collector"))
                .count(),
        );
        let what = format!("ART {version}, waits for the collector");
        assert_inside(&what, &rows, &said, 20);
        eprintln!("{known} with who ended it, {collector} by the thread that collects");
        assert!(known * 4 >= rows.len() * 3, "{known} of {}", rows.len());
        // Also the machine's own thread collects then, and the one that wants memory.
        assert!(collector * 4 >= rows.len(), "{collector} of {}", rows.len());
    }
}

/// Each call of a native method counts. Records of calls, and what a method waits for, lie in the time that
/// the program says.
#[test]
fn native_calls_are_those_of_the_program() {
    for version in versions() {
        let library = sticking_library();
        let runs = [1_000, 501_000]
            .map(|n: u32| record(version, BY_HOOKS, &["natives", &n.to_string(), library]));
        let what = format!("ART {version}, native calls");
        let [few, many] = &runs;
        assert_counts(&what, [few, many], "JniMethodStart", 500_000, 100);
        let rows = many.rows("caller", Probe::NativeCall);
        let of_plain =
            |row: &&SampleRow| java_leaf(many, row).is_some_and(|leaf| leaf == "Program.plain");
        let rows: Vec<&SampleRow> = rows.into_iter().filter(of_plain).collect();
        assert!(rows.len() >= 5, "{what}: {}", rows.len());
        assert_inside(&what, &rows, &many.said_waits("plain"), 1);
        // What the method waits for, each time.
        let said = many.said_waits("native");
        assert_eq!(said.len(), 100);
        let in_nap = |row: &&SampleRow| {
            let stack = many.trace.stack(row.node);
            row.duration_ns >= 2_500_000 && stack.iter().any(|name| name == "Java_Program_nap")
        };
        let waits = many.rows_of_thread("caller").into_iter().filter(in_nap);
        let waits: Vec<&SampleRow> = waits.collect();
        assert!(waits.len() <= said.len(), "{what}: {}", waits.len());
        assert_inside(&what, &waits, &said, 96);
    }
}

/// Each class that the program loads counts. Records of loads lie in the time that the program says.
#[test]
fn class_loads_are_those_of_the_program() {
    for version in versions() {
        let jar = program().to_str().expect("UTF-8");
        let runs =
            [20, 120].map(|n: u32| record(version, BY_HOOKS, &["classes", &n.to_string(), jar]));
        let [few, many] = &runs;
        let what = format!("ART {version}, class loads");
        assert_counts(&what, [few, many], "DefineClass", 100, 0);
        let said = many.said_waits("loaded");
        assert_eq!(said.len(), 120);
        let in_load = |row: &&SampleRow| {
            let frames = many.trace.frames(row.node);
            frames.iter().any(|frame| frame.name == "Program.load")
        };
        let rows = many.rows("loader", Probe::ClassLoad);
        let rows: Vec<&SampleRow> = rows.into_iter().filter(in_load).collect();
        // Mostly something else in the load takes the tick, so few have a record, or none.
        assert_inside(&what, &rows, &said, 0);
    }
}

/// After an exception was caught the stack is that of the handler, whatever was thrown, also by ART itself
/// and where the stack was full.
#[test]
fn stacks_in_handlers_are_those_of_throwable() {
    for version in versions() {
        let recorded = record(version, &[], &["exceptions", "100"]);
        let (equal, said) = equal_stacks(&recorded);
        assert_eq!(said, 100);
        eprintln!("ART {version}: {equal} of {said}");
        // The first walks teach where ART keeps what.
        assert!(equal + 8 >= said, "ART {version}: {equal} of {said}");
    }
}

/// Deep recursion, after stacks have overflown: whole as far as the limit of a stack allows, and marked as
/// truncated where it does not.
#[test]
fn deep_stacks_are_whole_or_say_that_they_are_not() {
    for version in versions() {
        let recorded = record(version, &[], &["depths", "16"]);
        let marked = marked(&recorded);
        let (mut right, mut whole) = (0, 0);
        for (said, stack) in &marked {
            let java: Vec<&Frame> = stack.iter().filter(|frame| is_java(frame)).collect();
            let is_cut = stack.iter().any(|frame| frame.name == "[truncated]");
            // Behind the last frame of the program's is what parks.
            let own = java
                .iter()
                .rposition(|frame| frame.name.starts_with("Program"));
            let own = own.map_or(0, |at| at + 1).min(said.len());
            // Native frames in between may be unknown, also where all of Java's are there.
            let is_right = (own == said.len() || own >= 500 && is_cut)
                && is_same_stack(&said[said.len() - own..], &java);
            right += usize::from(is_right);
            whole += usize::from(is_right && own == said.len());
        }
        eprintln!(
            "ART {version}: {right} of {} are right, {whole} whole",
            marked.len()
        );
        assert_eq!(marked.len(), 16);
        // The first walks teach where ART keeps what.
        assert!(right >= 14 && whole >= 3, "{right}, {whole} whole");
    }
}
