//! Steering live recordings of real programs: what the commands do, who may use them, and that clients of
//! any kind leave the recording alone.

use std::fs;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use stackbeat_collector::session::control::client;
use stackbeat_collector::session::control::protocol::{Request, SessionStatus, Settings};
use tempfile::TempDir;

const STACKBEAT: &str = env!("CARGO_BIN_EXE_stackbeat");

/// Threads that allocate, lock and sleep until the file in the first argument goes, and then say what
/// they did, which does not depend on how long it took.
const WORKERS: &str = "
import os, sys, threading, time
lock = threading.Lock()
rounds = 0
def work():
    global rounds
    while os.path.exists(sys.argv[1]):
        assert sum(i * i for i in range(1000)) == 332833500
        assert len(bytes(100000)) == 100000
        with lock:
            rounds += 1
        time.sleep(0.0005)
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print('worked' if rounds > 10 else 'idle', len(threads))
";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(STACKBEAT);
    command
        .args(arguments)
        .env_remove("STACKBEAT_AGENT")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
}

#[track_caller]
fn stackbeat(arguments: &[&str]) -> Output {
    let output = command(arguments).output().expect("runs");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    output
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    serde_json::from_slice(&stackbeat(arguments).stdout).expect("JSON")
}

/// Every thread's sums come out.
#[track_caller]
fn check(trace: &str) {
    let output = command(&["info", trace, "--json", "--check"]).output();
    let info: Value = serde_json::from_slice(&output.expect("runs").stdout).expect("JSON");
    for violation in info["violations"].as_array().expect("was checked") {
        // On a busy machine the two clocks of a sample are read some time apart.
        let violation = violation.as_str().expect("text");
        assert!(violation.contains("cpu time of a segment"), "{violation}");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The real interpreter: version managers put scripts in its place.
fn python() -> String {
    let script = "import sys; print(sys.executable)";
    let output = Command::new("python3").args(["-c", script]).output();
    text(&output.expect("python3 is here").stdout)
        .trim()
        .to_owned()
}

/// A recording that goes on until it is told to end.
struct Recording {
    folder: TempDir,
    recorder: Child,
}

impl Recording {
    /// Of the workers.
    fn start(options: &[&str]) -> Recording {
        let folder = tempfile::tempdir().expect("a folder");
        let go_on = folder.path().join("go-on");
        fs::write(&go_on, "").expect("writes");
        let python = python();
        let program = [&python, "-c", WORKERS, go_on.to_str().expect("UTF-8")];
        Recording::of(folder, options, &program)
    }

    fn of(folder: TempDir, options: &[&str], program: &[&str]) -> Recording {
        let trace = folder.path().join("t.beat");
        let recorder = command(&["record", "-o"])
            .arg(trace)
            .args(options)
            .arg("--")
            .args(program)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let recording = Recording { folder, recorder };
        let began = Instant::now();
        while recording.try_status().is_none_or(|s| s.pids.is_empty()) {
            assert!(began.elapsed() < Duration::from_secs(30), "it begins");
            std::thread::sleep(Duration::from_millis(10));
        }
        recording
    }

    fn pid(&self) -> String {
        self.recorder.id().to_string()
    }

    fn try_status(&self) -> Option<SessionStatus> {
        client::find(&self.pid()).ok()
    }

    #[track_caller]
    fn status(&self) -> SessionStatus {
        client::find(&self.pid()).expect("the session lives")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    /// Waits until the session has so many more samples.
    #[track_caller]
    fn wait_for_samples(&self, more: u64) {
        let (began, before) = (Instant::now(), self.status().samples);
        while self.status().samples < before + more {
            assert!(began.elapsed() < Duration::from_secs(30), "samples come");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn wait_for_threads(&self, threads: u32) {
        let began = Instant::now();
        while self.status().live_threads < threads {
            assert!(began.elapsed() < Duration::from_secs(30), "threads start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets the workers end; gives what they said.
    #[track_caller]
    fn end(&mut self) -> String {
        // Gone already when the program was another one.
        let _ = fs::remove_file(self.at("go-on"));
        let status = self.recorder.wait().expect("ends");
        let mut said = String::new();
        let mut read = |stream: &mut dyn Read| stream.read_to_string(&mut said);
        read(self.recorder.stderr.as_mut().expect("is piped")).expect("reads");
        assert!(status.success(), "{status}: {said}");
        said.clear();
        let stdout = self.recorder.stdout.as_mut().expect("is piped");
        stdout.read_to_string(&mut said).expect("reads");
        said
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.at("go-on"));
        // Nothing happens to one that has ended.
        let _ = self.recorder.kill();
        let _ = self.recorder.wait();
    }
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Mappings that have to do with us: files of ours, and how many there are in all.
fn mappings(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter(|l| l.contains("stackbeat")).count()
}

#[test]
fn what_is_changed_while_it_runs_stands_in_the_trace() {
    let mut recording = Recording::start(&["--budget", "0"]);
    let pid = recording.pid();
    recording.wait_for_samples(50);
    let program = recording.status().program_pid.to_string();
    stackbeat(&["mark", &program, "first <mark>"]);
    stackbeat(&["stop", &pid]);
    assert!(!recording.status().capturing);
    std::thread::sleep(Duration::from_millis(700));
    let while_stopped = recording.status().samples;
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(recording.status().samples, while_stopped);
    stackbeat(&["start", &pid]);
    recording.wait_for_samples(50);
    stackbeat(&["set", &pid, "--interval", "300us", "--probes", "lock,sleep"]);
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
        .map(|e| {
            (
                e["kind"].as_str().expect("kind"),
                e["text"].as_str().expect("text"),
            )
        })
        .collect();
    assert_eq!(
        events,
        [
            ("mark", "first <mark>"),
            ("setting", "capturing off"),
            ("setting", "capturing on"),
            ("interval", "threads every 300 µs"),
            ("interval", "main threads every 300 µs"),
            ("setting", "probes lock sleep"),
        ]
    );
    // The time without captures is nobody's: it is shown as time without evidence.
    let off_ns = 1_000_000_000;
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
    let figure = |name: &str| {
        let figures = info["recorder_figures"].as_array().expect("figures");
        let found = figures.iter().find(|f| f["name"] == name).expect(name);
        found["value"].as_u64().expect("a number")
    };
    let stretch = figure("intervals_kept_ns") / figure("intervals_asked_ns").max(1);
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
        told.iter().all(|ns| (50_000..=1_000_000).contains(ns)),
        "{told:?}"
    );
    assert!(told.len() < 20, "{told:?}");
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
fn a_thousand_switches_under_load_leave_nothing_behind() {
    let mut recording = Recording::start(&["--interval", "200us"]);
    recording.wait_for_samples(100);
    let status = recording.status();
    let pids = [status.program_pid, status.collector_pid];
    let before = pids.map(|pid| (descriptors(pid), mappings(pid)));
    let ask = |request: &Request| {
        let reply = client::ask(&status.session, request).expect("is done");
        reply.session.expect("a status")
    };
    for round in 0..500u64 {
        assert!(!ask(&Request::Stop {}).capturing);
        let settings = Settings {
            interval_ns: Some(100_000 + round % 7 * 100_000),
            probes: (round % 50 == 0).then(|| vec!["lock".to_owned(), "sleep".to_owned()]),
            ..Settings::default()
        };
        ask(&Request::Set(settings));
        assert!(ask(&Request::Start {}).capturing);
        if round % 25 == 0 {
            recording.wait_for_samples(1);
        }
    }
    recording.wait_for_samples(100);
    std::thread::sleep(Duration::from_millis(100));
    for (pid, (files, maps)) in pids.into_iter().zip(before) {
        // The program may close what it had open for its start, the sampler keep a file a thread.
        assert!(
            descriptors(pid) <= files + 6,
            "{} files, {files} before",
            descriptors(pid)
        );
        assert_eq!(mappings(pid), maps);
    }
    assert_eq!(recording.end(), "worked 4\n");
    let trace = recording.path("t.beat");
    let report = json(&["report", &trace, "--json"]);
    let switches = report["events"].as_array().expect("events");
    let switches = switches.iter().filter(|e| e["kind"] == "setting");
    assert_eq!(switches.count(), 1000 + 10);
    check(&trace);
}

#[test]
fn the_ring_is_dumped_while_the_session_goes_on() {
    let mut recording = Recording::start(&["--mode", "ring", "--buffer", "256KiB"]);
    let pid = recording.pid();
    std::thread::sleep(Duration::from_millis(2500));
    let out = recording.path("dump.beat");
    let dump = json(&["dump", &pid, "--last", "500ms", "-o", &out, "--json"]);
    assert_eq!(dump["schema"], "stackbeat.dump.v1");
    assert!(dump["samples"].as_u64() > Some(100), "{dump}");
    assert!(dump["covered_ns"].as_u64() <= Some(500_000_000), "{dump}");
    assert!(recording.status().capturing);
    // A name that is taken is refused, and --force takes it.
    let again = command(&["dump", &pid, "-o", &out]).output().expect("runs");
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("--force"));
    let own = recording.path("t.beat");
    let again = command(&["dump", &pid, "-f", "-o", &own]).output();
    assert_eq!(again.expect("runs").status.code(), Some(2), "its own trace");
    let all = recording.path("all.beat");
    stackbeat(&["dump", &pid, "-o", &all]);
    assert_eq!(recording.end(), "worked 4\n");

    for trace in [&out, &all, &own] {
        check(trace);
    }
    let report = json(&["report", &out, "--json"]);
    let duration = report["recording"]["duration_ns"]
        .as_u64()
        .expect("a number");
    assert!(
        (300_000_000..=510_000_000).contains(&duration),
        "{duration}"
    );
    let totals = &report["totals"];
    // Four workers for half a second, nothing of the time before.
    assert!(
        totals["wall_ns"].as_u64() < Some(5 * 510_000_000),
        "{totals}"
    );
    assert!(
        totals["cpu_ns"].as_u64() < Some(2 * 510_000_000),
        "{totals}"
    );
    let functions = report["functions"].to_string();
    assert!(
        functions.contains("PyEval"),
        "names are inside: {functions}"
    );
}

#[test]
fn a_signal_to_the_recorder_asks_for_a_dump_and_does_not_reach_the_program() {
    let options = ["--mode", "ring", "--dump-on", "usr2", "--dump-last", "1s"];
    let mut recording = Recording::start(&options);
    recording.wait_for_threads(5);
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    let first = recording.path("t.dump-1.beat");
    let signal = |pid: &str| Command::new("kill").args(["-USR2", pid]).status();
    assert!(signal(&recording.pid()).expect("runs").success());
    while command(&["info", &first])
        .output()
        .map(|o| o.status.success())
        .ok()
        != Some(true)
    {
        assert!(began.elapsed() < Duration::from_secs(30), "the dump comes");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(recording.status().capturing);
    // The next one is under way or begins when the program ends: it is finished all the same.
    assert!(signal(&recording.pid()).expect("runs").success());
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(recording.end(), "worked 4\n");
    for trace in [
        &first,
        &recording.path("t.dump-2.beat"),
        &recording.path("t.beat"),
    ] {
        check(trace);
    }
    let report = json(&["report", &first, "--json"]);
    let duration = report["recording"]["duration_ns"].as_u64();
    assert!(duration <= Some(1_050_000_000), "{duration:?}");
    assert!(report["totals"]["samples"].as_u64() > Some(50));
}

#[test]
fn nobody_else_can_see_or_steer_a_session() {
    let is_root = fs::metadata("/proc/self").is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt;
        m.uid() == 0
    });
    let setpriv = Command::new("setpriv").arg("--version").output();
    if !is_root || setpriv.is_err() {
        eprintln!("only root can be somebody else: not tested");
        return;
    }
    let mut recording = Recording::start(&[]);
    // The build's folder may be closed to others.
    let open = tempfile::tempdir_in("/tmp").expect("a folder");
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).expect("mode");
    let copy = open.path().join("stackbeat");
    fs::copy(STACKBEAT, &copy).expect("copies");
    let as_nobody = |arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&copy)
            .args(arguments)
            .env("NO_COLOR", "1")
            .output()
            .expect("runs")
    };
    let session = recording.status().session;
    let program = recording.status().program_pid.to_string();
    let seen = as_nobody(&["status"]);
    assert_eq!(seen.status.code(), Some(1), "{}", text(&seen.stderr));
    assert!(text(&seen.stdout).contains("no session of yours is recording"));
    assert!(text(&seen.stdout).contains("of other users"));
    assert!(!text(&seen.stdout).contains("python"));
    let out = open.path().join("stolen.beat").display().to_string();
    for arguments in [
        vec!["status", &session],
        vec!["stop", &session],
        vec!["set", &session, "--interval", "1s"],
        vec!["mark", &session, "x"],
        vec!["dump", &session, "-o", &out],
    ] {
        let refused = as_nobody(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let said = text(&refused.stderr);
        assert!(said.contains("a session of another user (uid 0)"), "{said}");
    }
    // By pid it is not even known.
    let refused = as_nobody(&["stop", &program]);
    assert!(text(&refused.stderr).contains("no live session"));
    assert!(recording.status().capturing);
    assert_eq!(recording.status().interval_ns, 1_000_000);
    assert!(!Path::new(&out).exists());
    // The other way round: root sees and steers what others record.
    let theirs = open.path().join("t");
    fs::create_dir(&theirs).expect("a folder");
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).expect("mode");
    let mut other = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["record", "-q", "--", "sleep", "30"])
        .current_dir(&theirs)
        // Where its agent goes, and goes away with the folder.
        .env("HOME", &theirs)
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("XDG_CACHE_HOME")
        .spawn()
        .expect("starts");
    let began = Instant::now();
    let target = other.id().to_string();
    while client::find(&target).is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "it begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    stackbeat(&["stop", &target]);
    assert!(!client::find(&target).expect("lives").capturing);
    // Ends the sleeping program through its recorder.
    let ended = Command::new("kill").arg(&target).status();
    assert!(ended.expect("runs").success());
    other.wait().expect("ends");
    assert_eq!(recording.end(), "worked 4\n");
}

#[test]
fn clients_that_hang_flood_or_talk_nonsense_disturb_nothing() {
    let mut recording = Recording::start(&[]);
    let session = recording.status().session;
    let address = SocketAddr::from_abstract_name(format!("stackbeat/1/{session}"));
    let connect = || UnixStream::connect_addr(address.as_ref().expect("an address"));
    // More than are served at a time, silent.
    let silent: Vec<_> = (0..40).map_while(|_| connect().ok()).collect();
    assert!(silent.len() > 16);
    let answer = |said: &[u8]| {
        let mut stream = connect().expect("connects");
        // Refused before everything was said: what was answered counts.
        let _ = stream.write_all(said);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    for (said, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "no JSON"),
        (b"{\"command\":\"stop\"}\n", "version of the protocol"),
        (b"{\"stackbeat\":9,\"command\":\"stop\"}\n", "version 9"),
        (
            b"{\"stackbeat\":1,\"command\":\"boom\"}\n",
            "unknown variant",
        ),
        (
            b"{\"stackbeat\":1,\"command\":\"set\",\"interval_ns\":1}\n",
            "out of range",
        ),
        (
            b"{\"stackbeat\":1,\"command\":\"set\",\"probes\":[\"x\"]}\n",
            "no group of probes",
        ),
        (b"{\"stackbeat\":1,\"command\":\"set\"}\n", "nothing to set"),
        (
            b"{\"stackbeat\":1,\"command\":\"dump\",\"output\":\"x\"}\n",
            "not an absolute path",
        ),
        (&[b'x'; 100_000], "too long"),
        (&[0xff, b'\n'], "no JSON"),
        (
            b"{\"stackbeat\":1,\"command\":\"mark\",\"text\":\"\"}\n",
            "1 to 1024",
        ),
    ] {
        let got = answer(said);
        assert!(got.contains("\"ok\":false"), "{got}");
        assert!(got.contains(expected), "{expected}: {got}");
    }
    let began = Instant::now();
    let mut asked = 0;
    while began.elapsed() < Duration::from_secs(2) {
        let mut stream = connect().expect("connects");
        stream
            .write_all(b"{\"stackbeat\":1,\"command\":\"status\"}\n")
            .expect("says");
        drop(stream);
        asked += 1;
    }
    assert!(asked > 100);
    drop(silent);
    recording.wait_for_samples(100);
    let status = recording.status();
    assert!(status.capturing && status.lost == 0, "{status:?}");
    assert!(descriptors(status.collector_pid) < 64);
    assert_eq!(recording.end(), "worked 4\n");
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

/// redis answers a benchmark while its recording is switched a thousand times.
#[test]
fn redis_under_load_does_not_notice_the_switch() {
    let is_here = |name: &str| Command::new(name).arg("--version").output().is_ok();
    if !is_here("redis-server") || !is_here("redis-benchmark") {
        eprintln!("redis is not installed: not tested");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("redis.sock").display().to_string();
    let server = [
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        &socket,
        "--save",
        "",
        "--daemonize",
        "no",
        "--dir",
        &folder.path().display().to_string(),
    ]
    .map(str::to_owned);
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let mut recording = Recording::of(folder, &["-q"], &server);
    let began = Instant::now();
    while !Path::new(&socket).exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "redis listens");
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = recording.status();
    let before = (
        descriptors(status.program_pid),
        mappings(status.program_pid),
    );
    let load = Command::new("redis-benchmark")
        .args([
            "-s",
            &socket,
            "-n",
            "60000",
            "-c",
            "20",
            "-t",
            "set,get,lpush",
            "-q",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    for _ in 0..500 {
        for request in [Request::Stop {}, Request::Start {}] {
            client::ask(&status.session, &request).expect("is done");
        }
    }
    let load = load.wait_with_output().expect("ends");
    assert!(load.status.success(), "{}", text(&load.stderr));
    assert!(
        !text(&load.stderr).contains("rror"),
        "{}",
        text(&load.stderr)
    );
    std::thread::sleep(Duration::from_millis(300));
    let after = (
        descriptors(status.program_pid),
        mappings(status.program_pid),
    );
    assert_eq!(after, before);
    let mut down = Command::new("redis-cli");
    down.args(["-s", &socket, "shutdown", "nosave"]);
    assert!(down.status().expect("runs").success());
    recording.end();
    let trace = recording.path("t.beat");
    check(&trace);
}
