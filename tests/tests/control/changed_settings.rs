//! What is changed while a session goes on stands in its trace.

use super::*;

#[test]
fn what_is_changed_while_it_runs_stands_in_the_trace() {
    let mut recording = Recording::start(&["--budget", "0", "--interval", "1ms"]);
    let pid = recording.pid();
    recording.wait_for_threads(5);
    recording.wait_for_samples(50);
    let program = recording.status().program_pid.to_string();
    let said = |arguments: &[&str]| text(&stackbeat(arguments).stderr);
    assert!(said(&["mark", &program, "first <mark>"]).contains("has the mark `first <mark>` at "));
    assert!(said(&["stop", &pid]).contains("captures nothing until `stackbeat start"));
    assert!(!recording.status().capturing);
    let stopped = Instant::now();
    // What was under way comes in, then nothing.
    let mut last = recording.status().samples;
    wait_until("no more samples come", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = recording.status().samples;
        std::mem::replace(&mut last, now) == now
    });
    let stopped_ns = stopped.elapsed().as_nanos() as u64;
    assert!(said(&["start", &pid]).contains("captures from now on"));
    recording.wait_for_samples(50);
    let changed = said(&["set", &pid, "--interval", "300us", "--probes", "lock,sleep"]);
    assert!(
        changed.contains("an interval of 300 µs, the probes lock sleep now"),
        "{changed}"
    );
    let set = json(&["set", &pid, "--interval", "300us", "--json"]);
    assert_eq!(set["schema"], "stackbeat.set.v1");
    assert_eq!(set["session"]["interval_ns"], 300_000);
    let set = json(&["status", &pid, "--json"]);
    let session = &set["sessions"][0];
    assert_eq!(set["schema"], "stackbeat.status.v1");
    assert_eq!(session["interval_ns"], 300_000);
    assert_eq!(session["main_interval_ns"], 300_000);
    assert_eq!(session["probes"], serde_json::json!(["lock", "sleep"]));
    assert!(session["pids"].to_string().contains(&program));
    recording.wait_for_samples(50);
    assert_eq!(recording.end(), "worked 4\n");

    let trace = recording.path("t.beat");
    let report = json(&["report", &trace, "--json"]);
    let events: Vec<(&str, &str)> = report["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter(|e| e["kind"] != "timers")
        .map(|e| {
            (
                e["kind"].as_str().expect("kind"),
                e["text"].as_str().expect("text"),
            )
        })
        .collect();
    let (intervals, others): (Vec<_>, Vec<_>) = events
        .into_iter()
        .partition(|(kind, _)| *kind == "interval");
    assert_eq!(
        others,
        [
            ("mark", "first <mark>"),
            ("setting", "capturing off"),
            ("setting", "capturing on"),
            ("setting", "probes lock sleep"),
        ]
    );
    // On a busy machine ticks may be further apart for a while. Nothing is said twice that was asked for
    // once.
    for class in ["threads every ", "main threads every "] {
        let said = intervals.iter().map(|(_, text)| *text);
        let said: Vec<_> = said.filter(|text| text.starts_with(class)).collect();
        let again = said.windows(2).filter(|pair| pair[0] == pair[1]);
        assert!(again.count() <= 1, "{intervals:?}");
        assert!(said.contains(&&*format!("{class}300 µs")), "{intervals:?}");
    }
    // The time without captures is nobody's: it is shown as time without evidence.
    let off_ns = stopped_ns * 9 / 10;
    let mut workers = 0;
    for thread in report["threads"].as_array().expect("threads") {
        if thread["is_main"] == false {
            workers += 1;
            assert!(thread["no_evidence_ns"].as_u64() > Some(off_ns), "{thread}");
        }
    }
    assert_eq!(workers, 4);
    check(&trace);
    // Every export that knows moments shows the mark; text is text.
    for (format, mark) in [
        ("perfetto", "first <mark>"),
        ("chrome", r#""name":"first <mark>","s":"g""#),
        ("firefox", "first <mark>"),
    ] {
        let out = recording.path(format);
        stackbeat(&["export", &trace, "--to", format, "-o", &out]);
        let bytes = fs::read(&out).expect("reads");
        assert!(text(&bytes).contains(mark), "{format}");
    }
    let page = recording.path("page.html");
    stackbeat(&["report", &trace, "--html", &page]);
    let page = fs::read_to_string(page).expect("reads");
    assert!(page.contains("first \\u003cmark>"));
}

/// Whoever notes the time that `mark` says finds it in the report.
#[test]
fn a_mark_is_where_it_was_said_to_be() {
    let mut recording = Recording::start(&[]);
    let mark = Request::Mark {
        text: "here".to_owned(),
    };
    let before_ns = recording.status().elapsed_ns;
    let reply = client::ask(&recording.status().session, &mark).expect("is done");
    let after_ns = reply.session.expect("says how it is").elapsed_ns;
    recording.end();
    let report = json(&["report", &recording.path("t.beat"), "--json"]);
    let mut events = report["events"].as_array().expect("events").iter();
    let found = events.find(|event| event["kind"] == "mark");
    let at_ns = found.and_then(|mark| mark["at_ns"].as_u64());
    let at_ns = at_ns.expect("is there");
    assert!(
        (before_ns..=after_ns).contains(&at_ns),
        "{before_ns} {at_ns} {after_ns}"
    );
}

#[test]
fn the_interval_that_the_budget_leaves_stands_in_the_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t.beat").display().to_string();
    let script = "import time; end = time.time() + 2\nwhile time.time() < end: sum(range(3000))";
    let python = python();
    let recorded = [
        "record",
        "-q",
        "--interval",
        "50us",
        "--budget",
        "1",
        "-o",
        &trace,
    ];
    stackbeat(&[&recorded[..], &["--", &python, "-c", script]].concat());
    let info = json(&["info", &trace, "--json"]);
    let stretch = figure(&info, "intervals_kept_ns") / figure(&info, "intervals_asked_ns").max(1);
    let report = json(&["report", &trace, "--json"]);
    let events = report["events"].as_array().expect("events");
    let told: Vec<i64> = events
        .iter()
        .filter(|e| e["kind"] == "interval")
        .map(|e| e["value"].as_i64().expect("a number"))
        .collect();
    // A machine that is quick enough keeps 50 µs; then there is nothing to tell.
    assert!(stretch < 2 || !told.is_empty(), "stretched {stretch}-fold");
    assert!(
        told.iter().all(|ns| (50_000..=100_000_000).contains(ns)),
        "{told:?}"
    );
    check(&trace);
}

#[test]
fn a_session_that_starts_disabled_waits_for_its_start() {
    let mut recording = Recording::start(&["--start-disabled", "-q"]);
    std::thread::sleep(Duration::from_millis(600));
    let idle = recording.status();
    assert!(!idle.capturing);
    // Starts of threads, nothing else.
    assert!(idle.samples <= u64::from(idle.threads) * 2, "{idle:?}");
    stackbeat(&["start", &recording.pid()]);
    recording.wait_for_samples(200);
    assert_eq!(recording.end(), "worked 4\n");
    let trace = recording.path("t.beat");
    check(&trace);
}

#[test]
fn what_cannot_be_meant_is_an_error() {
    for (arguments, parts) in [
        (
            vec!["stop", "1"],
            vec!["1: no live session", "stackbeat status"],
        ),
        (vec!["set", "1"], vec!["nothing to set", "--interval"]),
        (vec!["set", "1", "--interval", "1ns"], vec!["too short"]),
        (vec!["set", "1", "--probes", "disk"], vec!["no such group"]),
    ] {
        let output = command(&arguments).output().expect("runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        for part in parts {
            assert!(
                text(&output.stderr).contains(part),
                "{}",
                text(&output.stderr)
            );
        }
    }
    let none = command(&["status", "1"]).output().expect("runs");
    assert_eq!(none.status.code(), Some(1));
}

/// A program that computes, and passes no hook, until its file goes.
fn computing(options: &[&str]) -> Recording {
    const SOURCE: &str = "
        #include <unistd.h>
        int main(int argc, char **argv) {
            while (access(argv[1], F_OK) == 0)
                for (volatile int i = 0; i < 10000000; i++) {}
        }";
    let folder = tempfile::tempdir().expect("a folder");
    let go_on = folder.path().join("go-on");
    fs::write(&go_on, "").expect("writes");
    let program = compile(folder.path(), "computes.c", SOURCE, &[]);
    let words = [&program, &go_on].map(|path| path.to_str().expect("UTF-8").to_owned());
    Recording::of(folder, options, &[&words[0], &words[1]])
}

/// Waits until the program has used so much more CPU time.
fn await_cpu(recording: &Recording, hundredths: u64) {
    let wanted = budget::cpu_ticks(recording) + hundredths;
    wait_until("it computes", || budget::cpu_ticks(recording) >= wanted);
}

/// When the program's process was put on timers, and from them: the distance of their samples, 0 for ticks,
/// ns.
fn timers(recording: &Recording) -> Vec<u64> {
    let report = json(&["report", &recording.path("t.beat"), "--json"]);
    let events = report["events"].as_array().expect("events");
    let timers = events.iter().filter(|e| e["kind"] == "timers");
    timers
        .map(|e| e["value"].as_u64().expect("a number"))
        .collect()
}

#[test]
fn an_interval_that_is_asked_for_is_kept_also_where_it_was_the_first() {
    let mut recording = computing(&["--clock", "auto"]);
    await_cpu(&recording, 150);
    stackbeat(&["set", &recording.pid(), "--interval", "1ms"]);
    // The change takes a moment.
    await_cpu(&recording, 40);
    let before = recording.status().samples;
    await_cpu(&recording, 100);
    let samples = recording.status().samples - before;
    recording.end();
    assert!(samples > 400, "{samples} in a second");
    let timers = timers(&recording);
    assert!(
        timers.len() == 2 && timers[0] > 0 && timers[1] == 0,
        "{timers:?}"
    );
}

#[test]
fn an_interval_that_is_asked_for_before_the_start_is_kept() {
    let mut recording = computing(&["--clock", "auto", "--start-disabled"]);
    stackbeat(&["set", &recording.pid(), "--interval", "500us"]);
    stackbeat(&["start", &recording.pid()]);
    await_cpu(&recording, 180);
    recording.end();
    assert_eq!(timers(&recording), [0; 0]);
}

/// Of a program that has computed for a second, samples are as far apart as the kernel's timers go off.
#[test]
fn status_says_what_samples_are_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let go_on = folder.path().join("go-on");
    fs::write(&go_on, "").expect("writes");
    let code = "import os, sys\nwhile os.path.exists(sys.argv[1]): sum(range(10000))";
    let program = [&python(), "-c", code, go_on.to_str().expect("UTF-8")];
    let mut recording = Recording::of(folder, &["--budget", "0"], &program);
    let mut resolution = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills in a local structure.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    let timers_ns = (resolution.tv_nsec as u64).max(1_000_000);
    wait_until("they are", || {
        recording.status().sampled_each_ns == timers_ns
    });
    assert_eq!(recording.status().interval_ns, 1_000_000);
    let said = text(&stackbeat(&["status", &recording.pid()]).stdout);
    let every = said.lines().find(|line| line.starts_with("samples every"));
    let wanted = format!("{}.00 ms", timers_ns / 1_000_000);
    assert!(every.is_some_and(|line| line.ends_with(&wanted)), "{said}");
    assert_eq!(recording.end(), "");
}
