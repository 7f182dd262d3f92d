//! `--systrace`: a program's own events at the kernel's trace_marker, and at a pipe in its place. What the
//! program does with its descriptors meanwhile must not be met by them.
#![cfg(target_os = "linux")]

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use stackbeat_tests::process_tree::send;
use stackbeat_tests::tool_json::figure;
use stackbeat_tests::{compile, python, wait_until};

use stackbeat_tests::tool::{binary, command_in, json, stackbeat, text};
use stackbeat_tests::viewers;

/// One of each event; a name that would forge a field and a line; another thread ends the flow.
const PROGRAM: &str = r#"
#include "stackbeat.h"
#include <errno.h>
#include <pthread.h>
#include <time.h>
static void *worker(void *argument) {
    stackbeat_flow_step("job", 7);
    stackbeat_flow_end("job", 7);
    return argument;
}
int main(void) {
    struct timespec t = {0, 2000000};
    pthread_t thread;
    errno = 77;
    stackbeat_mark("begin|of\nall");
    stackbeat_scope_begin("outer");
    stackbeat_scope_begin("inner");
    nanosleep(&t, 0);
    stackbeat_scope_end();
    stackbeat_counter("queue", -5);
    stackbeat_scope_end();
    stackbeat_mark_value("answer", 42);
    stackbeat_async_begin("load", 9);
    stackbeat_async_end("load", 9);
    stackbeat_flow_begin("job", 7);
    if (errno != 77) return 1;
    pthread_create(&thread, 0, worker, 0);
    pthread_join(thread, 0);
    return 3;
}
"#;

/// What the program's events are, with its pid in the place of PID.
const LINES: [&str; 12] = [
    "I|PID|begin of all",
    "B|PID|outer",
    "B|PID|inner",
    "E|PID",
    "C|PID|queue|-5",
    "E|PID",
    "I|PID|answer 42",
    "S|PID|load|9",
    "F|PID|load|9",
    "S|PID|job|7",
    "I|PID|job 7",
    "F|PID|job|7",
];

/// A named pipe and somebody who reads it.
struct Pipe(File);

impl Pipe {
    fn new(folder: &Path) -> Pipe {
        let path = folder.join("pipe");
        let made = Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo runs").success());
        let mut options = OpenOptions::new();
        let options = options
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
        Pipe(options.open(path).expect("opens"))
    }

    /// What has come so far.
    fn lines(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        let mut part = [0; 4096];
        loop {
            match self.0.read(&mut part) {
                Ok(0) => break,
                Ok(length) => all.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let all = text(&all);
        assert!(all.is_empty() || all.ends_with('\n'), "{all}");
        all.lines().map(str::to_owned).collect()
    }
}

/// Written and failed, of the trace in the folder.
fn figures(folder: &Path) -> (u64, u64) {
    let info = json(folder, &["info", "t.beat", "--json"]);
    (
        figure(&info, "systrace_written"),
        figure(&info, "systrace_failed"),
    )
}

fn said(output: &Output) -> String {
    format!(
        "{}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    )
}

#[test]
fn each_event_is_a_line_in_the_order_of_its_thread() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", PROGRAM, &[]);
    let mut pipe = Pipe::new(at);
    let run = |flags: &[&str], variable: &str| {
        let mut arguments = vec!["record", "-f", "--json", "-o", "t.beat"];
        arguments.extend(flags);
        arguments.extend(["--", "./p"]);
        let mut command = command_in(at, &arguments);
        let output = command.env("STACKBEAT_SYSTRACE", variable).output();
        let output = output.expect("runs");
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        output
    };
    for (flags, variable) in [(&["--systrace=pipe"][..], ""), (&[], "pipe")] {
        let output = run(flags, variable);
        let report = json(at, &["report", "t.beat", "--json"]);
        let pid = report["processes"][0]["pid"].to_string();
        let expected = LINES.map(|line| line.replace("PID", &pid));
        assert_eq!(pipe.lines(), expected, "{}", said(&output));
        assert_eq!(figures(at), (LINES.len() as u64, 0));
        // The trace has them as well.
        let scopes = report["scopes"].as_array().expect("scopes");
        assert_eq!(scopes.len(), 3, "{report}");
    }
    // A flag takes back what the variable says.
    run(&["--systrace=off"], "pipe");
    assert_eq!(pipe.lines(), [""; 0]);
    assert_eq!(figures(at), (0, 0));
    // Nothing is to be told while the session is switched off.
    run(&["--systrace=pipe", "--start-disabled"], "");
    assert_eq!(pipe.lines(), [""; 0]);
}

/// The program finds the number that is ours and does to it what a program may do to any number. It says what
/// it cannot do, or sees that it should not see, by an exit code that is not 0.
const HOSTILE: &str = r#"
import ctypes, os, resource, sys
event = ctypes.CDLL(None).stackbeat_v1_event
event.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64]
event.restype = None
def mark(text):
    event(0, text, len(text), 0)
def ours():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + name).endswith("/pipe"): found.append(int(name))
        except OSError:
            pass
    return found
if sys.argv[1:] == ["executed"]:
    assert len(ours()) == 1, ours()
    mark(b"executed")
    sys.exit(0)

limits = resource.getrlimit(resource.RLIMIT_NOFILE)
assert limits == (256, 512), limits
mark(b"first")
[number] = ours()
# Out of reach, so that none is missing: all numbers below the limit can be had.
assert number >= 256, number
null = os.open("/dev/null", os.O_RDONLY)
taken = []
try:
    while True: taken.append(os.dup(null))
except OSError:
    pass
assert max(taken) == 255, max(taken)
for each in taken: os.close(each)

# Closed, and the number used for a file of the program's.
resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
file = os.open("own", os.O_RDWR | os.O_CREAT)
os.dup2(file, number)
mark(b"second")
mark(b"third")
assert os.pread(number, 100, 0) == b"", os.pread(number, 100, 0)
os.write(number, b"mine")

# Closed with all others; the lowest number is that of the program's next file.
os.closerange(3, 65536)
mark(b"fourth")
file = os.open("own", os.O_RDWR)
assert file == 3, file
assert os.pread(file, 100, 0) == b"mine"

if os.fork() == 0:
    mark(b"forked")
    os.execv(sys.executable, [sys.executable, __file__, "executed"])
_, status = os.wait()
assert status == 0, status

# Where the path leads nowhere, what is open stays usable; what is closed then, is gone for good.
if os.geteuid() == 0:
    os.mkdir("empty")
    os.chroot("empty")
    mark(b"jailed")
    os.closerange(4, 65536)
    mark(b"lost")
    mark(b"lost, too")
assert os.pread(file, 100, 0) == b"mine"
"#;

#[test]
fn whatever_a_program_does_with_its_descriptors_no_event_goes_astray() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    fs::write(at.join("script.py"), HOSTILE).expect("writes");
    let mut pipe = Pipe::new(at);
    let output = Command::new("sh")
        .args(["-c", "ulimit -Sn 256 && ulimit -Hn 512 && exec \"$@\"", "-"])
        .args([
            binary(),
            "record",
            "--json",
            "-o",
            "t.beat",
            "--systrace=pipe",
        ])
        .args(["--", &python(), "script.py"])
        .current_dir(at)
        .env_remove("STACKBEAT_AGENT")
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(at.join("own")).expect("reads"), b"mine");
    let lines = pipe.lines();
    let names: Vec<&str> = lines.iter().filter_map(|l| l.split('|').nth(2)).collect();
    let mut expected = vec!["first", "second", "third", "fourth", "forked", "executed"];
    let is_root = at.join("empty").exists();
    if is_root {
        expected.push("jailed");
    }
    assert_eq!(names, expected, "{lines:?}\n{}", said(&output));
    // The forked one says its own pid, and keeps it when it executes.
    let pid = |at: usize| lines[at].split('|').nth(1);
    assert_eq!(pid(0), pid(3));
    assert_ne!(pid(0), pid(4));
    assert_eq!(pid(4), pid(5));
    let failed = if is_root { 2 } else { 0 };
    assert_eq!(figures(at), (expected.len() as u64, failed));
    assert_eq!(
        text(&output.stderr).contains("events could not be written"),
        is_root,
        "{}",
        said(&output)
    );
}

#[test]
fn a_pipe_that_nobody_reads_costs_events_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(
        at,
        "p.c",
        r#"
        #include "stackbeat.h"
        int main(void) {
            char name[301] = {0};
            for (int i = 0; i < 300; i++) name[i] = 'a';
            for (int i = 0; i < 5000; i++) stackbeat_mark(name);
            return 0;
        }"#,
        &[],
    );
    drop(Pipe::new(at));
    let output = stackbeat(
        at,
        &["record", "-o", "t.beat", "--systrace=pipe", "--", "./p"],
    );
    assert!(output.status.success(), "{}", said(&output));
    let (written, failed) = figures(at);
    assert_eq!(written + failed, 5000);
    assert!(failed > 0 && written > 0, "{written} {failed}");
    let warning = format!("{failed} of 5000 events could not be written");
    assert!(text(&output.stderr).contains(&warning), "{}", said(&output));
    let report = json(at, &["report", "t.beat", "--json"]);
    let lost = &json(at, &["info", "t.beat", "--json"])["recording"]["records_lost"];
    let marks = report["events"].as_array().map_or(0, Vec::len) as u64;
    assert!(marks + lost.as_u64().unwrap_or(0) >= 5000, "{marks} {lost}");
}

#[test]
fn what_cannot_be_written_to_is_said_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", PROGRAM, &[]);
    fs::write(at.join("plain"), "kept").expect("writes");
    for (path, part) in [
        (
            "plain",
            "neither the kernel's trace_marker nor a named pipe",
        ),
        ("missing/trace_marker", "there is no such file"),
    ] {
        let flag = format!("--systrace={path}");
        let output = stackbeat(at, &["record", "-f", "-o", "t.beat", &flag, "--", "./p"]);
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        let errors = text(&output.stderr);
        assert!(errors.contains(path) && errors.contains(part), "{errors}");
        assert_eq!(figures(at), (0, 0));
        let report = json(at, &["report", "t.beat", "--json"]);
        assert_eq!(report["scopes"].as_array().map(Vec::len), Some(3));
    }
    assert_eq!(fs::read(at.join("plain")).expect("reads"), b"kept");
    let refused = stackbeat(at, &["record", "--systrace=", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("auto, off, or a path"));
}

/// A buffer of the kernel's own, beside that which others may use.
struct Instance(PathBuf);

impl Instance {
    fn new() -> Option<Instance> {
        let path = format!(
            "/sys/kernel/tracing/instances/stackbeat-test-{}",
            std::process::id()
        );
        match fs::create_dir(&path) {
            Ok(()) => Some(Instance(path.into())),
            Err(error) => {
                eprintln!("skipped: the kernel's trace_marker cannot be had: {path}: {error}");
                None
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Refused while somebody has a file of it open; the next boot removes it.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn perfetto_reads_what_the_kernel_has_kept() {
    let Some(instance) = Instance::new() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", PROGRAM, &[]);
    let marker = instance.0.join("trace_marker");
    let flag = format!("--systrace={}", marker.display());
    let output = stackbeat(at, &["record", "-o", "t.beat", &flag, "--", "./p"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert_eq!(figures(at), (LINES.len() as u64, 0));

    let trace = fs::read_to_string(instance.0.join("trace")).expect("reads");
    fs::write(at.join("t.systrace"), &trace).expect("writes");
    let rows = viewers::trace_processor(
        &at.join("t.systrace"),
        &[
            "select s.name, s.depth, s.dur, p.pid, t.is_main_thread as main from slice s \
             join thread_track k on s.track_id = k.id join thread t using(utid) \
             left join process p using(upid) order by s.ts",
            "select s.name as name, count(*) as asynchronous from slice s \
             join process_track k on s.track_id = k.id where s.dur >= 0 group by 1",
            "select t.name as name, c.value from counter c join track t on c.track_id = t.id \
             where t.name = 'queue'",
        ],
    );
    let row = |name: &str| {
        let found = rows.iter().find(|r| r["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {rows:?}\n{trace}"))
    };
    let report = json(at, &["report", "t.beat", "--json"]);
    let (outer, inner) = (row("outer"), row("inner"));
    assert_eq!((&outer["depth"], &inner["depth"]), (&0.into(), &1.into()));
    assert_eq!(outer["pid"], report["processes"][0]["pid"], "{outer}");
    let dur = |row: &Value| row["dur"].as_i64().expect("a number");
    assert!(dur(outer) >= dur(inner) && dur(inner) >= 2_000_000);
    assert_eq!(row("begin of all")["dur"], 0);
    assert_eq!(row("queue")["value"].as_f64(), Some(-5.0));
    for name in ["job", "load"] {
        assert_eq!(row(name)["asynchronous"], 1, "{rows:?}");
    }

    // A kernel that does not trace refuses: said before, and counted.
    fs::write(instance.0.join("tracing_on"), "0").expect("writes");
    let output = stackbeat(at, &["record", "-f", "-o", "t.beat", &flag, "--", "./p"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let errors = text(&output.stderr);
    assert!(errors.contains("the kernel is not tracing"), "{errors}");
    assert_eq!(figures(at), (0, LINES.len() as u64));
}

/// Marks until its input ends.
const WAITING: &str = r#"
#include "stackbeat.h"
#include <poll.h>
#include <stdio.h>
int main(void) {
    struct pollfd input = {0, POLLIN, 0};
    puts("ready");
    fflush(stdout);
    while (poll(&input, 1, 2) == 0) stackbeat_mark("round");
    return 0;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn an_attached_program_writes_while_it_is_attached_and_keeps_no_descriptor() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", WAITING, &[]);
    let mut pipe = Pipe::new(at);
    let mut program = Command::new("./p")
        .current_dir(at)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut ready = [0; 6];
    let output = program.stdout.as_mut().expect("is piped");
    output.read_exact(&mut ready).expect("is ready");
    let numbers = || {
        let folder = fs::read_dir(format!("/proc/{}/fd", program.id())).expect("reads");
        folder.count()
    };
    let before = numbers();
    let pid = program.id().to_string();
    let mut recorder = command_in(
        at,
        &["attach", "-q", "-o", "t.beat", "--systrace=pipe", &pid],
    )
    .stderr(Stdio::piped())
    .spawn()
    .expect("starts");
    let mut lines = Vec::new();
    let began = Instant::now();
    while lines.is_empty() {
        lines = pipe.lines();
        let ended = recorder.try_wait().expect("waits");
        assert!(ended.is_none(), "the recorder has ended: {ended:?}");
        assert!(began.elapsed() < Duration::from_secs(60), "nothing comes");
        std::thread::sleep(Duration::from_millis(10));
    }
    send("-INT", recorder.id());
    let output = recorder.wait_with_output().expect("ends");
    assert!(output.status.success(), "{}", said(&output));
    lines.extend(pipe.lines());
    let expected = format!("I|{pid}|round");
    assert!(lines.iter().all(|line| *line == expected), "{lines:?}");
    assert_eq!(figures(at).0, lines.len() as u64);
    assert_eq!(numbers(), before);
    let mut input = program.stdin.take().expect("is piped");
    input.write_all(b"x").expect("writes");
    assert!(program.wait().expect("ends").success());
    assert_eq!(pipe.lines(), [""; 0]);
}

/// Somebody who opens the pipe after the program's end finds all that it has said.
#[test]
fn a_reader_may_come_late() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", PROGRAM, &[]);
    let made = Command::new("mkfifo").arg(at.join("pipe")).status();
    assert!(made.expect("mkfifo runs").success());
    let record = [
        "record",
        "--json",
        "-f",
        "-o",
        "t.beat",
        "--systrace=pipe",
        "--",
        "sh",
        "-c",
    ];
    let started = command_in(at, &[&record[..], &["./p; touch ended"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut recorder = started.expect("starts");
    wait_until("the program ends", || at.join("ended").exists());
    let mut pipe = File::open(at.join("pipe")).expect("opens");
    let mut all = String::new();
    pipe.read_to_string(&mut all)
        .expect("ends with the recorder");
    assert!(recorder.wait().expect("ends").success());
    let lines: Vec<String> = all.lines().map(str::to_owned).collect();
    assert_eq!(lines.len() as u64, figures(at).0, "{lines:?}");
    for line in LINES {
        let (kind, rest) = line.split_once("PID").expect("a line of this process");
        let is_it = |said: &String| said.starts_with(kind) && said.ends_with(rest);
        assert!(lines.iter().any(is_it), "{line}: {lines:?}");
    }
    // Nobody comes.
    let output = command_in(at, &[&record[..], &["./p"]].concat()).output();
    let said = text(&output.expect("runs").stderr);
    assert!(said.contains("pipe: nobody has read the last "), "{said}");
}
