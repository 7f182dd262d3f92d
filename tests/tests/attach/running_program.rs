//! `stackbeat attach` on programs that were running before: they neither notice nor change.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::{packet, process::Origin};
use stackbeat_tests::process_tree::{is_attached, is_traced, send, slots, thread_statuses};
use stackbeat_tests::{compile_file, wait_until};

use stackbeat_tests::tool::{binary, command_in, stackbeat};

/// Attaches for a time and gives the summary.
#[track_caller]
fn attach(folder: &Path, pid: u32, duration: &str) -> Value {
    let pid = pid.to_string();
    let arguments = [
        "attach", "-f", "--json", "-o", "t.beat", "-d", duration, &pid,
    ];
    let output = stackbeat(folder, &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    summary_of(&said)
}

/// What a recorder says of its recording at the end.
#[track_caller]
fn summary_of(said: &str) -> Value {
    serde_json::from_str(said.lines().last().unwrap_or_default()).expect("JSON")
}

fn compile(folder: &Path, source: &str, options: &[&str]) -> PathBuf {
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attach"));
    compile_file(folder, &sources.join(source), &[&["-O2"], options].concat())
}

/// Waits until a process takes part in a session and nobody traces it.
fn await_attached(pid: u32) {
    let is_traced = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        !status.contains("TracerPid:\t0\n")
    };
    wait_until("it is attached to", || is_attached(pid) && !is_traced());
    sleep(Duration::from_millis(100));
}

/// A program that says `running` once it does.
struct Program {
    child: Child,
    rest: BufReader<std::process::ChildStdout>,
}

impl Program {
    fn start(command: &mut Command) -> Program {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut rest = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        rest.read_line(&mut line).expect("readable");
        assert_eq!(line, "running\n");
        Program { child, rest }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said besides, and its exit code.
    fn end(mut self) -> (String, Option<i32>) {
        let mut said = String::new();
        self.rest.read_to_string(&mut said).expect("readable");
        let status = self.child.wait().expect("waited for");
        (said, status.code())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended already, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn maps_of(pid: u32, name: &str) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    maps.matches(name).count()
}

fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task"))
        .expect("it runs")
        .count()
}

#[test]
fn a_busy_program_is_the_same_after_many_attach_sessions() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let resident = compile(at, "resident.c", &["-ldl"]);
    let program = Program::start(Command::new(resident).arg("600"));
    let pid = program.pid();
    let descriptors = || {
        fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("it runs")
            .count()
    };
    sleep(Duration::from_millis(300));
    let before = descriptors();
    for round in 0..6 {
        let summary = attach(at, pid, "150ms");
        let slots = &summary["attach"]["slots"];
        assert!(slots.as_u64() > Some(10), "{summary}");
        assert!(summary["detach"].is_object(), "{summary}");
        assert!(
            summary["samples"].as_u64() > Some(0),
            "round {round}: {summary}"
        );
        assert_eq!(maps_of(pid, "/stackbeat."), 0, "no session is mapped");
    }
    // Its libraries come and go with descriptors of their own.
    assert!(descriptors() <= before + 2);
    // Threads that compute are met by the sampler, which looks for unregistered threads now and then.
    attach(at, pid, "1s");
    let report = stackbeat(at, &["report", "t.beat", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let names: Vec<_> = report["functions"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|f| f["name"].as_str())
        .collect();
    for wanted in ["compute_here", "allocates", "floats", "starts_threads"] {
        assert!(names.contains(&wanted), "{wanted} in {names:?}");
    }
    let packets = PacketReader::new(File::open(at.join("t.beat")).expect("the trace"));
    let origins: Vec<_> = packets
        .filter_map(|p| match p.expect("good").1.body {
            Some(packet::Body::Process(process)) => Some(process.origin()),
            _ => None,
        })
        .collect();
    assert_eq!(origins.first(), Some(&Origin::Attached));
    send("-TERM", pid);
    assert_eq!(program.end(), ("0 wrong\n".to_owned(), Some(0)));
}

#[test]
fn a_program_started_by_a_link_is_called_by_the_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    std::os::unix::fs::symlink(compile(at, "quiet.c", &[]), at.join("link")).expect("a link");
    let program = Program::start(&mut Command::new(at.join("link")));
    attach(at, program.pid(), "100ms");
    let report = stackbeat(at, &["report", "t.beat", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    assert_eq!(report["processes"][0]["name"], "link");
    send("-TERM", program.pid());
}

#[test]
fn slots_threads_and_handlers_are_put_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    for options in [
        &["-Wl,-z,lazy"][..],
        &["-Wl,-z,now"],
        &["-fno-plt", "-no-pie"],
    ] {
        let quiet = compile(at, "quiet.c", options);
        let program = Program::start(&mut Command::new(&quiet));
        let pid = program.pid();
        let status = |key: &str| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
            let line = status.lines().find(|l| l.starts_with(key));
            line.expect("the kernel says it").to_owned()
        };
        let masks = || ["SigBlk", "SigIgn", "SigCgt"].map(status);
        // What it does once, it has done when it comes to its second round.
        sleep(Duration::from_millis(100));
        let before = (slots(pid), masks());
        for _ in 0..3 {
            let mut recorder = Command::new(binary())
                .args(["attach", "-q", "-f", "-o", "q.beat", &pid.to_string()])
                .current_dir(at)
                .spawn()
                .expect("runs");
            await_attached(pid);
            let during = slots(pid);
            let changed = during.iter().filter(|(k, v)| before.0.get(k) != Some(v));
            assert!(changed.count() > 5, "{options:?}");
            assert_eq!(threads(pid), 2);
            // Ctrl-C.
            send("-INT", recorder.id());
            assert_eq!(recorder.wait().expect("waited for").code(), Some(0));
            let after = (slots(pid), masks());
            let same = |k: &(String, u64)| before.0.get(k) == after.0.get(k);
            let differing: Vec<_> = before.0.keys().filter(|k| !same(k)).collect();
            assert!(differing.is_empty(), "{options:?}: {differing:x?}");
            assert_eq!(before.1, after.1);
            assert_eq!(threads(pid), 2);
        }
        send("-TERM", pid);
        assert_eq!(program.end(), ("ended by a signal\n".to_owned(), Some(3)));
    }
}

/// No hook registers them, and most of the time they are ready, not running.
#[test]
fn threads_that_share_a_processor_are_met_soon() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let spinners = compile(at, "spinners.c", &[]);
    let program = Program::start(&mut Command::new(spinners));
    attach(at, program.pid(), "5s");
    let report = stackbeat(at, &["report", "--json", "t.beat"]).stdout;
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let threads = report["threads"].as_array().expect("a list");
    let known: Vec<_> = threads.iter().map(|t| t["running_ns"].as_u64()).collect();
    assert_eq!(known.len(), 4);
    // On an idle machine after a few turns of the processor; elsewhere such a turn takes as much longer.
    assert!(
        known.iter().all(|ns| *ns > Some(2_500_000_000)),
        "{known:?}"
    );
    send("-TERM", program.pid());
    assert_eq!(program.end().1, Some(0));
}

/// No hook registers them before the calls that a signal of ours would disturb.
#[test]
fn threads_that_block_all_signals_get_none_of_ours() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let held = compile(at, "held.c", &[]);
    let program = Program::start(&mut Command::new(held));
    attach(at, program.pid(), "60s");
    let said = "ppoll 0 sigtimedwait 0 sigsuspend 0\n";
    assert_eq!(program.end(), (said.to_owned(), Some(3)));
}

#[test]
fn what_a_program_says_is_heard_though_it_asked_for_an_agent_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    // Names of symbols are not needed for it.
    for options in [&[][..], &["-no-pie", "-s"]] {
        let speaks = compile(at, "speaks.c", options);
        let program = Program::start(&mut Command::new(speaks));
        for _ in 0..2 {
            attach(at, program.pid(), "500ms");
            let report = stackbeat(at, &["report", "--json", "t.beat"]).stdout;
            let report: Value = serde_json::from_slice(&report).expect("JSON");
            let count = |list: &str, name: &str, key: &str| {
                let mut rows = report[list].as_array().expect("a list").iter();
                let row = rows.rfind(|row| row["name"] == name);
                row.and_then(|row| row[key].as_u64()).unwrap_or(0)
            };
            let heard = [
                count("scopes", "turn", "count"),
                count("counters", "turns", "values"),
                report["totals"]["samples"].as_u64().expect("a number"),
            ];
            assert!(heard.iter().all(|n| *n > 20), "{options:?}: {heard:?}");
        }
        send("-TERM", program.pid());
        // On, off, on, off.
        assert_eq!(program.end(), ("4 changes\n".to_owned(), Some(0)));
    }
}

#[test]
fn the_programs_end_is_the_recordings_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let resident = compile(at, "resident.c", &["-ldl"]);
    let program = Program::start(Command::new(resident).arg("2"));
    let summary = attach(at, program.pid(), "60s");
    assert!(summary["detach"].is_null(), "{summary}");
    assert_eq!(program.end(), ("0 wrong\n".to_owned(), Some(0)));
}

/// Attaching fails with this code and this text.
#[track_caller]
fn refused(folder: &Path, pid: u32, text: &str) {
    let pid = pid.to_string();
    let output = stackbeat(folder, &["attach", "-d", "100ms", "-o", "no.beat", &pid]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(text), "{said}");
    assert!(!folder.join("no.beat").exists());
}

#[test]
fn what_cannot_be_attached_to_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    refused(at, 4_000_000, "no such process");

    let mut child = Command::new("true").spawn().expect("starts");
    sleep(Duration::from_millis(200));
    refused(at, child.id(), "has ended already");
    child.wait().expect("waited for");

    let program = compile(at, "quiet.c", &["-static"]);
    let program = Program::start(&mut Command::new(program));
    refused(at, program.pid(), "statically linked");
    drop(program);

    let quiet = compile(at, "quiet.c", &[]);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -v 100000; exec $0"])
        .arg(&quiet);
    let program = Program::start(&mut limited);
    refused(at, program.pid(), "(RLIMIT_AS); raise that with `prlimit");
    drop(program);

    let program = Program::start(Command::new(&quiet).arg("leaderless"));
    wait_until("its main thread has ended", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", program.pid()));
        stat.expect("it runs").contains(") Z ")
    });
    refused(at, program.pid(), "its main thread has ended");
    drop(program);

    let program = Program::start(&mut Command::new(&quiet));
    let pid = program.pid();
    let thread = fs::read_dir(format!("/proc/{pid}/task"))
        .expect("it runs")
        .filter_map(|t| t.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .find(|tid| *tid != pid);
    refused(
        at,
        thread.expect("a second thread"),
        "is a thread of process",
    );
    send("-STOP", pid);
    sleep(Duration::from_millis(100));
    refused(at, pid, "is stopped");
    send("-CONT", pid);
    // Recorded already, by an attach and from its start.
    let mut recorder = Command::new(binary())
        .args(["attach", "-q", "-o", "first.beat", &pid.to_string()])
        .current_dir(at)
        .spawn()
        .expect("runs");
    await_attached(pid);
    refused(at, pid, "is being recorded already");
    send("-TERM", pid);
    assert_eq!(recorder.wait().expect("waited for").code(), Some(0));
    assert_eq!(program.end(), ("ended by a signal\n".to_owned(), Some(3)));
    let mut inside = command_in(
        at,
        &["record", "-q", "--in-process", "-o", "inside.beat", "--"],
    );
    let program = Program::start(inside.arg(&quiet));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.pid()));
    let children = children.expect("it runs");
    let mut children = children
        .split_whitespace()
        .map(|pid| pid.parse().expect("a pid"));
    let is_quiet = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "quiet\n")
    };
    let own = children.find(is_quiet).expect("it runs");
    refused(at, own, "is being recorded already, from inside");
    send("-TERM", own);
    assert_eq!(program.end(), ("ended by a signal\n".to_owned(), Some(3)));

    for (mode, text) in [
        ("seccomp", "seccomp filter"),
        ("traced", "traces it already"),
    ] {
        let program = Program::start(Command::new(compile(at, "quiet.c", &[])).arg(mode));
        let pid = program.pid();
        refused(at, pid, text);
        if mode == "seccomp" {
            let pid = pid.to_string();
            let arguments = [
                "attach",
                "-d",
                "300ms",
                "--allow-seccomp",
                "-o",
                "s.beat",
                &pid,
            ];
            let output = stackbeat(at, &arguments);
            assert!(output.status.success(), "{output:?}");
        }
        send("-TERM", pid);
        assert_eq!(program.end(), ("ended by a signal\n".to_owned(), Some(3)));
    }
}

/// A module is listed before it is relocated: who changes its slots then is in the dynamic linker's way.
#[test]
fn modules_that_come_and_go_meanwhile_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let loads = compile(at, "loads.c", &["-ldl", "-pthread"]);
    for _ in 0..8 {
        let program = Program::start(&mut Command::new(&loads));
        sleep(Duration::from_millis(50));
        attach(at, program.pid(), "100ms");
        send("-TERM", program.pid());
        assert_eq!(program.end(), ("went on\n".to_owned(), Some(0)));
    }
}

/// Job control stops the whole process while one thread of it makes our calls.
#[test]
fn a_program_that_is_stopped_meanwhile_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    // A group of its own with a parent in the session: otherwise the kernel ignores the signal.
    let mut program = Command::new(compile(at, "children.c", &[]));
    let program = Program::start(program.process_group(0));
    let pid = program.pid();
    let mut stopped = 0;
    for round in 0..8 {
        let mut recorder = command_in(at, &["attach", "-f", "-d", "50ms", "-o", "t.beat"]);
        let recorder = recorder.arg(pid.to_string()).stderr(Stdio::piped()).spawn();
        let mut recorder = recorder.expect("starts");
        // Every other time to detach.
        if round % 2 == 1 {
            wait_until("it is attached to", || is_attached(pid));
            sleep(Duration::from_millis(20));
        }
        wait_until("it is traced, or that is over", || {
            is_traced(pid) || !matches!(recorder.try_wait(), Ok(None))
        });
        stopped += u32::from(is_traced(pid));
        send("-TSTP", pid);
        // No thread runs on for good, and who traced it is done with it.
        wait_until("all of it is stopped", || {
            thread_statuses(pid).all(|status| status.contains("State:\tT"))
        });
        send("-CONT", pid);
        let output = recorder.wait_with_output().expect("waited for");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() || said.contains("is stopped"),
            "{round}: {said}"
        );
    }
    assert!(stopped > 0);
    send("-TERM", pid);
    assert_eq!(program.end().1, Some(0));
}

/// While a thread is traced the end of its child is a signal to the other threads, by which some calls come
/// back with EINTR: so it is none with children that is stopped.
#[test]
fn threads_that_wait_are_not_woken_by_the_end_of_children() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let program = Program::start(&mut Command::new(compile(at, "children.c", &[])));
    for _ in 0..6 {
        attach(at, program.pid(), "300ms");
    }
    send("-TERM", program.pid());
    // One that was in its call before, when a capture in the parent has signals blocked as the child ends, is
    // still woken (docs/limits.md): rarely, and only beside much else. Where parents are stopped it is more
    // than one a session.
    let (said, status) = program.end();
    assert!(
        ["0", "1", "2"].contains(&said.trim_end_matches(" interrupted\n")),
        "{said}"
    );
    assert_eq!(status, Some(0));
}

/// Of two at the same moment one is refused, and the other one stays undisturbed.
#[test]
fn nobody_takes_a_program_from_another_recorder() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let program = Program::start(&mut Command::new(compile(at, "quiet.c", &[])));
    let pid = program.pid().to_string();
    for round in 0..8 {
        let recorders = ["one.beat", "two.beat"].map(|trace| {
            let options = ["attach", "-f", "--json", "-d", "600ms", "-o", trace, &pid];
            let recorder = command_in(at, &options).stderr(Stdio::piped()).spawn();
            recorder.expect("starts")
        });
        for recorder in recorders {
            let output = recorder.wait_with_output().expect("waited for");
            let said = String::from_utf8_lossy(&output.stderr);
            if !output.status.success() {
                let is_why = [
                    "is being recorded already",
                    "traces it already",
                    "takes part in another",
                ];
                assert!(
                    is_why.iter().any(|why| said.contains(why)),
                    "{round}: {said}"
                );
                continue;
            }
            let summary = summary_of(&said);
            // What it patched it has found in its place.
            assert_eq!(
                summary["detach"]["slots"], summary["attach"]["slots"],
                "{round}: {said}"
            );
        }
    }
    send("-TERM", program.pid());
    assert_eq!(program.end(), ("ended by a signal\n".to_owned(), Some(3)));
}

#[test]
fn a_collector_that_was_killed_is_no_obstacle() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let resident = compile(at, "resident.c", &["-ldl"]);
    let program = Program::start(Command::new(resident).arg("600"));
    let pid = program.pid();
    let mut recorder = Command::new(binary())
        .args(["attach", "-q", "-o", "killed.beat", &pid.to_string()])
        .current_dir(at)
        .spawn()
        .expect("runs");
    await_attached(pid);
    recorder.kill().expect("it runs");
    recorder.wait().expect("waited for");
    let summary = attach(at, pid, "500ms");
    assert!(summary["samples"].as_u64() > Some(50), "{summary}");
    // Nothing has waited for an answer of the one that was killed.
    let pause_ns = summary["attach"]["pause_ns"].as_u64();
    assert!(pause_ns < Some(1_000_000_000), "{summary}");
    let recovered = stackbeat(at, &["recover", "killed.beat", "-o", "r.beat"]);
    assert!(recovered.status.success(), "{recovered:?}");
    send("-TERM", pid);
    assert_eq!(program.end(), ("0 wrong\n".to_owned(), Some(0)));
}

/// The thread that makes calls for it comes back by itself.
#[test]
fn a_recorder_that_is_killed_while_it_uses_a_thread_leaves_the_program_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let resident = compile(at, "resident.c", &["-ldl"]);
    let program = Program::start(Command::new(resident).arg("600"));
    let pid = program.pid();
    let mut met = 0;
    for round in 0..40 {
        let mut recorder = command_in(at, &["attach", "-q", "-f", "-o", "killed.beat"]);
        let mut recorder = recorder.arg(pid.to_string()).spawn().expect("runs");
        // It may be too fast to be met.
        let until = Instant::now() + Duration::from_secs(1);
        while !is_traced(pid) && Instant::now() < until {}
        sleep(Duration::from_micros(200 * round));
        met += u32::from(is_traced(pid));
        recorder.kill().expect("it runs");
        recorder.wait().expect("waited for");
    }
    assert!(met > 10, "{met}");
    // But for the moments in which one starts another.
    let blocks_all = |status: String| {
        let mask = status
            .split("SigBlk:\t")
            .nth(1)
            .and_then(|rest| rest.get(..16));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.is_none_or(|mask| mask.count_ones() > 40)
    };
    wait_until("all signals are as before", || {
        !thread_statuses(pid).any(blocks_all)
    });
    let summary = attach(at, pid, "500ms");
    assert!(summary["samples"].as_u64() > Some(50), "{summary}");
    send("-TERM", pid);
    assert_eq!(program.end(), ("0 wrong\n".to_owned(), Some(0)));
}
