//! An app that records itself: it loads `libstackbeat_app.so` by `System.load` and calls its natives.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use stackbeat_core::probe::Probe;
use stackbeat_proto::columns::SampleRow;
use stackbeat_tests::plain_reader::Trace;
use stackbeat_tests::process_tree::cpu_ticks;
use stackbeat_tests::tool::{command_in, text};
use stackbeat_tests::tool_json::array;
use stackbeat_tests::{built, json_of, scratch, target_folder, wait_until, workspace};

use super::{dex, folder, is_java, versions};
use crate::in_process::bionic;

/// The library that an app carries, where it is also when only the package's tests were built.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        built(
            target_folder().join("deps/libstackbeat_app.so"),
            &["--package", "stackbeat-android-app"],
        )
    })
}

/// The app, with the class that has the natives, as dex.
fn app() -> &'static Path {
    static APP: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, app) = APP.get_or_init(|| {
        dex(&[
            "tests/tests/art/app/App.java",
            "tests/tests/art/Program.java",
            "hooks-android/aar/stackbeat/src/main/java/dev/stackbeat/Native.java",
        ])
    });
    app
}

fn command(version: u8, mode: &str, traces: &Path) -> Command {
    let mut command = Command::new(folder().join(format!("{version}/run-art")));
    command.arg(app()).arg("dev.stackbeat.App").arg(mode);
    command.arg(library()).arg(traces);
    command
}

/// What the app said, a line each.
fn said(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    let errors = text(&output.stderr);
    assert!(!errors.contains("stackbeat:"), "{errors}");
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn run(version: u8, mode: &str, traces: &Path) -> Vec<String> {
    let _one = super::one_at_a_time();
    said(&command(version, mode, traces).output().expect("it runs"))
}

/// What stands behind a word at a line's begin, in order.
fn after<'a>(said: &'a [String], word: &str) -> Vec<&'a str> {
    let found = said.iter().filter_map(|line| line.strip_prefix(word));
    found.map(str::trim).collect()
}

/// How often the contender has waited for 3 ms and more, each time that it says so.
fn waited(said: &[String]) -> Vec<usize> {
    let numbers = after(said, "waited ").into_iter();
    numbers.map(|n| n.parse().expect("a number")).collect()
}

/// The waits of the contender for the monitor, longer than 2 ms.
fn contended(trace: &Trace) -> Vec<&SampleRow> {
    let rows = trace.all_samples();
    rows.filter(|(thread, row)| {
        trace.threads[thread].name == "contender"
            && row.probe == Probe::MonitorEnter as u8
            && row.duration_ns > 2_000_000
    })
    .map(|(_, row)| row)
    .collect()
}

/// Each wait of the program's is there. ART inflates a lock at the first one, before it comes to the hook.
#[track_caller]
fn check_waits(waits: &[&SampleRow], waited: usize) {
    assert!(waited >= 3, "the program has tested nothing: {waited}");
    assert!(waits.len() + 1 >= waited, "{} of {waited}", waits.len());
}

/// A complete trace says what `App.work` did, in which the contender has waited so often.
#[track_caller]
fn check(trace: &Path, waited: usize) {
    let path = trace.to_str().expect("UTF-8");
    let checked = json_of(&["info", "--check", "--json", path]);
    assert_eq!(checked["recording"]["outcome"], "finished", "{checked:#}");
    assert_eq!(checked["recording"]["records_lost"], 0, "{checked:#}");
    let trace = Trace::read(trace);
    let names: Vec<&str> = trace.threads.values().map(|t| &*t.name).collect();
    assert!(
        names.iter().all(|n| !n.starts_with("stackbeat")),
        "{names:?}"
    );
    let tid = |name: &str| {
        let mut threads = trace.threads.values();
        let found = threads.find(|t| t.name == name);
        found.unwrap_or_else(|| panic!("{name} in {names:?}")).tid
    };
    let waits = contended(&trace);
    check_waits(&waits, waited);
    let woken = waits.iter().filter(|w| w.waker_tid == Some(tid("holder")));
    assert!(woken.count() >= waits.len() - 2, "{waits:?}");
    let in_java = waits.iter().filter(|row| {
        let mut frames = trace.frames(row.node).into_iter();
        frames.any(|frame| is_java(&frame) && frame.name.starts_with("dev.stackbeat.App.lambda"))
    });
    assert!(in_java.count() >= waits.len() - 2);
}

fn report(trace: &str) -> Value {
    json_of(&["report", "--json", trace])
}

#[test]
fn an_app_records_itself() {
    for version in versions() {
        let scratch = scratch();
        let said = run(version, "records", scratch.path());
        let trace = after(&said, "trace ")[0];
        assert_eq!(after(&said, "stopped "), [trace]);
        check(Path::new(trace), waited(&said)[0]);
        let report = report(trace);
        let mut threads = array(&report, "threads");
        let allocator = threads.find(|t| t["name"] == "allocator").expect("it");
        let allocations = allocator["allocations"].as_u64().expect("a number");
        assert!(
            (100_000..110_000).contains(&allocations),
            "ART {version}: {allocations}"
        );
        let text = report.to_string();
        assert!(text.contains("holder") && text.contains("monitor enter"));
        // Nothing but the trace is left.
        assert_eq!(std::fs::read_dir(scratch.path()).expect("there").count(), 1);
    }
}

#[test]
fn recordings_come_and_go_in_an_app() {
    for version in versions() {
        let scratch = scratch();
        let said = run(version, "again", scratch.path());
        let traces = after(&said, "trace ");
        assert_eq!(after(&said, "stopped "), traces);
        assert_eq!(traces.len(), 3);
        for (trace, waited) in traces.into_iter().zip(waited(&said)) {
            check(Path::new(trace), waited);
        }
    }
}

/// The listener comes to threads that are there before it, whether they run or not, each time.
#[test]
fn objects_of_threads_from_before_the_recording_count() {
    const OBJECTS: u64 = 20_000;
    for version in versions() {
        let scratch = scratch();
        let said = run(version, "early", scratch.path());
        let traces = after(&said, "trace ");
        assert_eq!(traces.len(), 3);
        for trace in traces {
            let report = report(trace);
            for name in ["runner", "sleeper"] {
                let thread = array(&report, "threads").find(|t| t["name"] == name);
                let counted = thread.and_then(|t| t["allocations"].as_u64());
                // One that runs comes to its checkpoint at an end of its loop. ART itself allocates some, and
                // names methods in whatever thread passes a hook.
                let counted = counted.unwrap_or_else(|| panic!("{name} in {report:#}"));
                assert!(
                    (OBJECTS - 5..OBJECTS + 5_000).contains(&counted),
                    "ART {version}, {name}: {counted}"
                );
            }
        }
    }
}

#[test]
fn an_app_dumps_while_it_is_recorded() {
    for version in versions() {
        let scratch = scratch();
        let said = run(version, "dumps", scratch.path());
        let dump = Trace::read(&scratch.path().join("dump"));
        check_waits(&contended(&dump), waited(&said)[0]);
    }
}

/// Each hook says what became of it, in the app and in the trace. Hooks are tried by calls that are counted.
#[test]
fn an_app_says_what_became_of_its_hooks() {
    for version in versions() {
        let scratch = scratch();
        let said = run(version, "doctor", scratch.path());
        let art = format!("art {version}");
        let line = |begin: &str| {
            let begin = format!("{art}{begin}");
            let found = said.iter().find(|line| line.starts_with(&begin));
            found.unwrap_or_else(|| panic!("{begin} in {said:#?}"))
        };
        assert!(line(": 18 of 18 hooks in place").len() > 10);
        assert!(line(", by dobby: ").contains("MonitorLock"));
        assert!(line(", by its listener: ").ends_with("ObjectAllocated"));
        // This is what the calls have passed.
        let passed = line(": 9 of 9 hooks that were tried are passed by their calls: ");
        for name in [
            "ObjectAllocated",
            "JniMethodStart",
            "MonitorUnlock",
            "Park",
            "MonitorNotify",
        ] {
            assert!(passed.contains(name), "{passed}");
        }
        let free = line(", not available: monitors that nobody waits for");
        let inlined = "(inlined: 0 of 8 came to Monitor::MonitorEnter)";
        assert!(free.ends_with(inlined), "{free}");
        let bionic = said
            .iter()
            .find(|line| line.starts_with("bionic, by slots: "));
        assert!(bionic.is_some_and(|line| line.contains("pthread_mutex_lock")));

        let info = json_of(&["info", "--json", after(&said, "trace ")[0]]);
        let process = array(&info, "processes").next().expect("the app");
        let in_trace: Vec<&str> = array(process, "capabilities")
            .filter_map(Value::as_str)
            .collect();
        let lines: Vec<&str> = said[1..said.len() - 1].iter().map(String::as_str).collect();
        assert_eq!(in_trace, lines);
    }
}

/// A session makes no call that Android's filter of apps came to know later: under that filter it would end
/// the app.
#[test]
fn an_app_is_recorded_under_the_filter_of_old_androids() {
    for version in versions() {
        let scratch = scratch();
        let old = scratch.path().join("old_android.so");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&old)
            .arg(workspace().join("tests/tests/art/app/old_android.c"))
            .output()
            .expect("cc runs");
        assert!(compiled.status.success(), "{compiled:?}");
        let record = |sdk: &str| {
            let _one = super::one_at_a_time();
            command(version, "records", scratch.path())
                .env("LD_PRELOAD", &old)
                .env("STACKBEAT_TEST_SDK", sdk)
                .output()
                .expect("it runs")
        };
        let said = said(&record("26"));
        check(Path::new(after(&said, "trace ")[0]), waited(&said)[0]);
        // The filter works: whoever is said to be new makes the calls.
        assert!(!record("33").status.success());
    }
}

/// The stress run in an app, recorded: which of our calls are not on the list of those that Android lets apps
/// make. These calls are held, too.
fn calls_of_a_session(version: u8, held_too: &[&str]) -> Vec<String> {
    let scratch = scratch();
    let _one = super::one_at_a_time();
    let mut command = command(version, "stress", scratch.path());
    command.arg(app());
    let (output, held) =
        bionic::under_filter("run-art", held_too, || command.output().expect("it runs"));
    let said = said(&output);
    assert_eq!(after(&said, "trace "), after(&said, "stopped "));
    assert_eq!(after(&said, "stopped ").len(), 2);
    assert!(held.len() > 100, "ART makes calls of its own: {held:?}");
    let ours = bionic::ours(&held).into_iter();
    ours.map(|call| format!("{} by {} in {}", call.name, call.file, call.thread))
        .collect()
}

/// A session in an app makes no call that Android's filter ends an app for, whatever the app does. ART's own
/// calls and those of this C library are told apart by whose instruction makes them.
#[test]
fn a_session_in_an_app_keeps_to_what_android_allows() {
    for version in versions() {
        let wrong = calls_of_a_session(version, &[]);
        assert!(wrong.is_empty(), "ART {version}: {wrong:#?}");
        // Were the clock's calls not allowed, they would be met.
        let met = calls_of_a_session(version, &["timer_create", "membarrier"]);
        eprintln!("ART {version}: {met:#?}");
        let of_library = |call: &&String| call.contains("by libstackbeat_app.so");
        assert!(met.iter().filter(of_library).count() > 0, "{met:#?}");
    }
}

/// Without properties, as on Linux, nobody wants a recording; what cannot be done is an exception that says
/// why.
#[test]
fn what_an_app_cannot_have_is_an_exception() {
    for version in versions().into_iter().take(1) {
        let scratch = scratch();
        let said = run(version, "refuses", scratch.path());
        assert_eq!(
            said,
            [
                "asked null",
                "stopped null",
                "dump stackbeat: this process is not recorded: call start before",
                "start stackbeat: /dev/null/nowhere: Not a directory (os error 20)",
            ]
        );
    }
}

/// Since the epoch.
fn now_ms() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after the epoch").as_millis()
}

/// The app is killed while its main thread waits for a lock. The next start completes its trace, and says
/// what for.
#[test]
fn the_next_start_says_how_the_last_run_ended() {
    for version in versions() {
        let scratch = scratch();
        let mut child = command(version, "dies", scratch.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        let pid = child.id();
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut said = Vec::new();
        for line in lines {
            said.push(line.expect("UTF-8"));
            if said.iter().any(|line| line.starts_with("blocked ")) {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(300));
        let killed_ms = now_ms();
        child.kill().expect("it is there");
        child.wait().expect("it is there");
        let trace = after(&said, "trace ")[0];
        let blocked_ms: u128 = after(&said, "blocked ")[0].parse().expect("a number");

        let next = run(version, "next", scratch.path());
        // Other tests may have left something, too.
        let is_own = |line: &String| line.starts_with(&format!("run\t{pid}\t"));
        let own = next.iter().position(is_own);
        let own = &next[own.unwrap_or_else(|| panic!("{pid} in {next:?}"))..];
        let others = own
            .iter()
            .skip(1)
            .position(|line| line.starts_with("run\t"));
        let own = &own[..others.map_or(own.len(), |at| at + 1)];
        let run = after(own, "run\t")[0];
        let fields: Vec<&str> = run.split('\t').collect();
        assert_eq!((fields[0], fields[2]), (&*pid.to_string(), "0"), "{run}");
        assert_eq!(fields[3], trace);
        let info = json_of(&["info", "--json", trace]);
        assert_eq!(info["recording"]["outcome"], "recovered", "{info:#}");

        let waits = after(own, "wait\t").into_iter();
        let waits: Vec<Vec<&str>> = waits.map(|wait| wait.split('\t').collect()).collect();
        let main = &waits[0];
        assert_eq!(main[..3], [&*pid.to_string(), "1", "monitor enter"]);
        // Who holds the lock is parked.
        let owner = waits.iter().find(|wait| wait[0] == main[3]);
        assert_eq!(owner.map(|wait| wait[2]), Some("park"), "{waits:?}");
        let since: u128 = main[4].parse().expect("a number");
        // Two clocks are read, one after the other.
        let (from, until) = (blocked_ms - 2, killed_ms + 2);
        assert!((from..until).contains(&since), "{since} in {from}..{until}");
    }
}

/// Methods get their names before their frames are recorded: whenever a process is killed, its trace has no
/// number without a name. Those that a capture outside of ART's hooks was the first to meet have no number.
#[test]
fn a_killed_app_leaves_the_names_of_its_java_frames() {
    const ROUNDS: u64 = 4;
    for version in versions() {
        let scratch = scratch();
        let (mut named, mut not_known, mut methods) = (0, 0, BTreeSet::new());
        for round in 0..ROUNDS {
            let mut child = command(version, "runs", scratch.path())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("it runs");
            let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
            let lines = lines.map(|line| line.expect("UTF-8"));
            let said: Vec<String> = lines.take(2).collect();
            // Another moment each time.
            let until_ms = 100 + 400 * round + (now_ms() % 400) as u64;
            let until = cpu_ticks(child.id()) + until_ms / 10;
            wait_until("it computes", || cpu_ticks(child.id()) >= until);
            child.kill().expect("it is there");
            child.wait().expect("it is there");
            run(version, "next", scratch.path());
            let trace = Trace::read(Path::new(after(&said, "trace ")[0]));
            for number in trace
                .all_samples()
                .flat_map(|(_, row)| trace.methods_of(row.node))
            {
                match trace.methods.get(&number) {
                    Some(method) => {
                        named += 1;
                        methods.insert(method.name.clone());
                    }
                    None => {
                        assert_eq!(number, 0, "ART {version}, killed after {until_ms} ms");
                        not_known += 1;
                    }
                }
            }
        }
        eprintln!(
            "ART {version}: {named} frames of {} methods, {not_known} are not known",
            methods.len()
        );
        let expected = ["dev.stackbeat.App.spin", "dev.stackbeat.App.deep"];
        assert!(
            expected.iter().all(|name| methods.contains(*name)),
            "{methods:?}"
        );
        assert!(not_known * 20 < named, "{not_known}, and {named} are");
    }
}

/// Where `stackbeat record` records the program, loading the library adds Java to that.
#[test]
fn beside_another_agent_the_library_only_adds_java() {
    for version in versions() {
        let scratch = scratch();
        let _one = super::one_at_a_time();
        let output = command_in(scratch.path(), &["record", "-q", "-o", "t.beat", "--"])
            .arg(folder().join(format!("{version}/run-art")))
            .arg(app())
            .args(["dev.stackbeat.App", "beside"])
            .arg(library())
            .arg(scratch.path())
            .output()
            .expect("stackbeat runs");
        let said = said(&output);
        let refused =
            "stackbeat: another recorder's agent is in this process: end that recording first";
        assert_eq!(after(&said, "refused "), [refused]);
        check(&scratch.path().join("t.beat"), waited(&said)[0]);
    }
}
