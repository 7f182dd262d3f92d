//! What threads wait for, and what they compute, is in the trace as they measure it themselves; waits that
//! last long also before they end: in a dump, and when the program is killed.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use stackbeat_tests::compile_file;
use stackbeat_tests::process_tree::send;
use stackbeat_tests::tool_json::{array, assert_adds_up};
use tempfile::TempDir;

use stackbeat_tests::tool::{binary, command};

/// A program that hangs must not hang the tests.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A program under `record`.
struct Recorded {
    recorder: Child,
    folder: TempDir,
    /// What it said before `ready`.
    said: Vec<String>,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Recorded {
    fn start(source: &str, compiler: &[&str], flags: &[&str], argument: &str) -> Recorded {
        Recorded::start_by(&[], source, compiler, flags, argument)
    }

    /// As `start`; the recorder is started by the command `starter`.
    fn start_by(
        starter: &[&str],
        source: &str,
        compiler: &[&str],
        flags: &[&str],
        argument: &str,
    ) -> Recorded {
        // Whoever the recorder is: the build's folder may be closed to it.
        let folder = tempfile::tempdir_in("/tmp").expect("a folder");
        let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/waits"));
        let program = compile_file(folder.path(), &sources.join(source), compiler);
        let trace = folder.path().join("t.beat");
        let mut arguments = vec!["record", "-q", "-o", text(&trace)];
        arguments.extend(flags);
        arguments.extend(["--", text(&program), argument]);
        let mut command = match starter {
            [] => command(&arguments),
            [starter, options @ ..] => {
                let copy = folder.path().join("stackbeat");
                fs::copy(binary(), &copy).expect("copies");
                fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("mode");
                let mut command = Command::new(starter);
                command.args(options).arg(copy).args(&arguments);
                command
                    .env_remove("STACKBEAT_AGENT")
                    .env_remove("HOME")
                    .env_remove("XDG_RUNTIME_DIR");
                command
            }
        };
        let mut recorder = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let output = BufReader::new(recorder.stdout.take().expect("a pipe"));
        let mut lines = output.lines().map(|line| line.expect("text"));
        let said = (&mut lines).take_while(|line| line != "ready").collect();
        Recorded {
            recorder,
            folder,
            said,
            lines: Box::new(lines),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A dump of the session as it is now.
    fn dump(&self) -> Report {
        let path = self.file("dump.beat");
        let recorder = self.recorder.id().to_string();
        let arguments = ["dump", &recorder, "--force", "-o", text(&path)];
        let output = command(&arguments).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        report(&path)
    }

    /// The first dump that is written by itself.
    fn first_dump(&self) -> Report {
        let path = self.file("t.dump-1.beat");
        // The summary in its header is written last.
        until("a dump", || match is_finished(&path) {
            true => Ok(()),
            false => Err("none".to_owned()),
        });
        report(&path)
    }

    /// The trace, once the program and the recorder have ended.
    fn finish(mut self) -> Report {
        drop(self.recorder.stdin.take());
        self.recorder.wait().expect("ends");
        report(&self.file("t.beat"))
    }
}

/// Whether a trace is there, and complete.
fn is_finished(trace: &Path) -> bool {
    let output = command(&["info", "--json", text(trace)]).output();
    let info: Value = serde_json::from_slice(&output.expect("runs").stdout).unwrap_or_default();
    info["recording"]["outcome"] == "finished"
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// What `report --json` says.
struct Report(Value);

fn report(trace: &Path) -> Report {
    let checked = command(&["info", "--check", "--json", text(trace)])
        .output()
        .expect("runs");
    let info: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    assert_adds_up(&info);
    let arguments = ["report", "--json", "--top", "0", text(trace)];
    let output = command(&arguments).output().expect("runs");
    Report(serde_json::from_slice(&output.stdout).expect("JSON"))
}

impl Report {
    /// By function on the stack: call, cause and share of the thread's time of the longest wait.
    fn waits(&self) -> BTreeMap<String, (String, String, f64)> {
        let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let walls: BTreeMap<u64, f64> = array(&self.0, "threads")
            .map(|t| (t["utid"].as_u64().expect("a number"), number(t, "wall_ns")))
            .collect();
        let mut waits = BTreeMap::new();
        for site in array(&self.0, "blocking_sites") {
            let thread = site["longest_utid"].as_u64().expect("a number");
            let share = number(site, "total_ns") / walls[&thread];
            for function in array(site, "stack") {
                let wait = (of(&site["call"]), of(&site["cause"]), share);
                // Longest first.
                waits.entry(of(function)).or_insert(wait);
            }
        }
        waits
    }
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().expect("a number")
}

/// Until something is so.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) => assert!(began.elapsed() < TIMEOUT, "{what}: {why}"),
        }
        sleep(Duration::from_millis(100));
    }
}

/// The functions that do not wait for nearly all of their threads' time.
fn missing(report: &Report, functions: &[String]) -> Result<(), String> {
    let waits = report.waits();
    let is_there = |f: &&String| waits.get(*f).is_some_and(|(_, _, share)| *share > 0.9);
    let missing: Vec<_> = functions.iter().filter(|f| !is_there(f)).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("{missing:?} of {waits:?}")),
    }
}

/// Every signal is blocked in this program, so nothing but the off-CPU sampler can say where its threads are.
#[test]
fn whoever_waits_is_in_a_dump_and_in_the_trace_of_a_killed_program() {
    let program = Recorded::start("blocked.c", &["-O2"], &[], "");
    let functions: Vec<String> = (program.said.iter())
        .filter(|name| name.starts_with("in_") || name.starts_with("raw_"))
        .cloned()
        .collect();
    assert!(functions.len() >= 20, "{functions:?}");
    until("all wait", || missing(&program.dump(), &functions));
    let pid = (program.said.iter())
        .find_map(|line| line.strip_prefix("pid "))
        .expect("says so");
    send("-KILL", pid.parse().expect("a number"));
    let report = program.finish();
    assert_eq!(missing(&report, &functions), Ok(()));
    let waits = report.waits();
    if let Some((call, cause, ..)) = waits.get("raw_page_fault") {
        assert_eq!((&**call, &**cause), ("page fault", "io"));
    }
    for (function, call, cause) in [
        ("in_read", "read", "io"),
        ("in_mutex", "pthread_mutex_lock", "lock"),
        ("in_epoll", "epoll_wait", "poll"),
        ("in_join", "pthread_join", "join"),
        ("in_sigwait", "sigwait", "wait"),
        ("in_flock", "flock", "lock"),
        ("in_setlk", "flock", "lock"),
        ("in_receive", "mq_receive", "ipc"),
        ("in_send", "mq_send", "ipc"),
        // Libc's own call.
        ("in_getchar", "read", "io"),
        // By the instruction itself.
        #[cfg(target_arch = "x86_64")]
        ("raw_read", "read", "io"),
        #[cfg(target_arch = "x86_64")]
        ("raw_nanosleep", "nanosleep", "sleep"),
        #[cfg(target_arch = "x86_64")]
        ("raw_futex", "futex wait", "wait"),
        #[cfg(target_arch = "x86_64")]
        ("raw_setlk", "flock", "lock"),
        #[cfg(target_arch = "x86_64")]
        ("raw_sigwait", "sigwait", "wait"),
        #[cfg(target_arch = "x86_64")]
        ("raw_receive", "mq_receive", "ipc"),
    ] {
        assert_eq!((&*waits[function].0, &*waits[function].1), (call, cause));
    }
}

/// What each function measured itself, by the clocks of its thread, is what the trace says: code without any
/// hook, between rare ones, between dense ones, and every kind of wait, hooked or not.
#[test]
fn all_that_computes_or_waits_has_its_share() {
    // Timers sample most of it: a thread of 400 ms has 100 samples, and two standard deviations are 0.1.
    let (compared, report) = compare_shares("shares.c", 0.15);
    assert!(compared > 35, "{compared}");
    let waits = report.waits();
    for (function, call, cause) in [
        ("in_semop", "semop", "ipc"),
        ("in_msgrcv", "msgrcv", "ipc"),
        ("in_receive", "mq_receive", "ipc"),
    ] {
        assert_eq!((&*waits[function].0, &*waits[function].1), (call, cause));
    }
}

/// Ticks meet a part of the bursts only: these are not the waits' around them.
#[test]
fn computing_between_waits_has_its_share() {
    // Without what is known of other bursts, the waits would have half of it.
    assert_eq!(compare_shares("bursts.c", 0.2).0, 3);
}

/// Compares what functions say of themselves with the trace, within this share of their threads' time. Gives
/// how many did, and what the trace says.
fn compare_shares(source: &str, within: f64) -> (usize, Report) {
    let program = Recorded::start(source, &["-O2", "-fno-builtin"], &[], "");
    let said = program.said.clone();
    let report = program.finish();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for line in &said {
        let fields: Vec<&str> = line.split(' ').collect();
        let [kind, function, measured, whole] = fields[..] else {
            panic!("{line}");
        };
        let key = match kind {
            "compute" => "cpu_ns",
            _ => "blocked_ns",
        };
        let traced: f64 = array(&report.0, "functions")
            .filter(|f| f["name"] == function)
            .map(|f| number(&f["total"], key))
            .sum();
        let ns = |text: &str| text.parse::<f64>().expect("a number");
        let error = (traced - ns(measured)) / ns(whole);
        // A wait that no hook has seen is known from looks in between.
        let bound = match function.starts_with("raw_") {
            true => 0.2,
            false => within,
        };
        if error.abs() > bound {
            wrong.push(format!("{line}: {traced}"));
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    (compared, report)
}

/// Who computes and is kept waiting for a CPU is told apart from who uses one, as the kernel counts it.
#[test]
fn threads_that_share_a_cpu_are_runnable_while_others_have_it() {
    let program = Recorded::start("runnable.c", &["-O2"], &[], "");
    let said = program.said.clone();
    let report = program.finish();
    assert_eq!(said.len(), 5, "{said:?}");
    for line in &said {
        let fields: Vec<&str> = line.split(' ').collect();
        let [tid, what, _, ready] = fields[..] else {
            panic!("{line}");
        };
        let tid: u64 = tid.parse().expect("a number");
        let thread = array(&report.0, "threads").find(|t| t["tid"] == tid);
        let thread = thread.expect("is in the trace");
        let runnable = number(thread, "runnable_ns");
        let ready: f64 = ready.parse().expect("a number");
        let bound = 0.1 * number(thread, "wall_ns");
        match what {
            // On a CPU of their own less than half of the time, whoever else is there.
            "computes" => {
                assert!(ready > 0.5 * number(thread, "wall_ns"), "{line}: {thread}");
                assert!((runnable - ready).abs() < bound, "{line}: {thread}");
            }
            // Sleeping is not waiting for a CPU, however short it is.
            _ => assert!(runnable < ready + bound, "{line}: {thread}"),
        }
    }
    let function = array(&report.0, "functions").find(|f| f["name"] == "takes_turns");
    let total = &function.expect("is in the trace")["total"];
    assert!(number(total, "runnable_ns") > 0.5 * number(total, "running_ns"));
}

/// What a dump says that it was written for.
fn reasons(report: &Report) -> Vec<String> {
    array(&report.0, "events")
        .filter_map(|event| event["text"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn a_long_wait_for_a_lock_is_dumped_while_it_lasts() {
    let on_block = ["--dump-on-block", "200ms", "--dump-on-block-in", "lock"];
    let flags = [&["--mode", "ring"], &on_block[..]].concat();
    let mut program = Recorded::start("dumps.c", &["-O2"], &flags, "lock");
    let dump = program.first_dump();
    let said = reasons(&dump);
    assert!(
        said.iter()
            .any(|text| text.contains("in pthread_mutex_lock")),
        "{said:?}"
    );
    let (call, _, share) = dump.waits()["wants_lock"].clone();
    assert_eq!(call, "pthread_mutex_lock");
    assert!(share > 0.5, "{share}");
    // One wait, one dump.
    drop(program.recorder.stdin.take());
    program.recorder.wait().expect("ends");
    assert!(!program.file("t.dump-2.beat").exists());
}

#[test]
fn a_slow_iteration_is_dumped_while_it_lasts() {
    let flags = ["--mode", "ring", "--dump-on-slow-iteration", "100ms"];
    let mut program = Recorded::start("dumps.c", &["-O2"], &flags, "iteration");
    let dump = program.first_dump();
    let said = reasons(&dump);
    assert!(
        said.iter().any(|text| text.contains("one iteration")),
        "{said:?}"
    );
    let is_there = array(&dump.0, "functions").any(|f| f["name"] == "slow_iteration");
    assert!(is_there);
    let input = program.recorder.stdin.as_mut().expect("a pipe");
    input.write_all(b"go on\n").expect("takes it");
    let report = program.finish();
    assert!(!reasons(&report).is_empty());
}

#[test]
fn a_fault_is_dumped_and_stays_the_programs_own() {
    let flags = ["--mode", "ring", "--dump-on-crash"];
    let mut program = Recorded::start("dumps.c", &["-O2"], &flags, "crash");
    // The other thread has waited for long enough to be seen.
    until("it waits", || {
        match program.dump().waits().get("wants_lock") {
            Some(_) => Ok(()),
            None => Err("not yet".to_owned()),
        }
    });
    drop(program.recorder.stdin.take());
    let said: Vec<String> = (&mut program.lines).collect();
    assert_eq!(said, ["handled"]);
    let status = program.recorder.wait().expect("ends");
    assert_eq!(status.signal(), Some(11));
    let dump = report(&program.file("t.dump-1.beat"));
    let said = reasons(&dump);
    assert!(said.iter().any(|text| text.contains("SIGSEGV")), "{said:?}");
    let waits = dump.waits();
    assert_eq!(waits["wants_lock"].0, "pthread_mutex_lock");
}

/// A process that may not be looked into (another user's, or not dumpable, and no rights of a debugger, as in
/// containers) is sampled as others are, and the trace says what it lacks and what helps.
#[test]
fn what_may_not_be_looked_into_is_sampled_and_said() {
    let setpriv = Command::new("setpriv").arg("--version").output();
    if fs::metadata("/proc/self").expect("is there").uid() != 0 || setpriv.is_err() {
        eprintln!("only root can give up its rights: not tested");
        return;
    }
    let bounded = ["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"];
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    for (rights, how) in [(&bounded[..], "user"), (&nobody[..], "dumpable")] {
        let starter = [&["setpriv"], rights].concat();
        let mut program = Recorded::start_by(&starter, "closed.c", &["-O2"], &[], how);
        // Without signals nothing is known of who calls nothing.
        until("it is sampled, and said", || {
            let report = program.dump();
            let samples = array(&report.0, "functions")
                .find(|f| f["name"] == "computes")
                .map_or(0.0, |f| number(&f["total"], "cpu_ns"));
            let said = reasons(&report).concat();
            let is_said =
                said.contains("may not be looked into") && said.contains("CAP_SYS_PTRACE");
            match samples > 0.0 && is_said {
                true => Ok(()),
                false => Err(format!("{how}: {samples} ns, {said:?}")),
            }
        });
        drop(program.recorder.stdin.take());
        assert!(program.recorder.wait().expect("ends").success());
        let trace = program.file("t.beat");
        let output = command(&["info", "--json", text(&trace)]).output();
        let info: Value = serde_json::from_slice(&output.expect("runs").stdout).expect("JSON");
        let refused = array(&info, "recorder_figures")
            .find(|figure| figure["name"] == "off_cpu_refused")
            .map_or(0.0, |figure| number(figure, "value"));
        assert!(refused > 0.0, "{how}: {info}");
        let waits = report(&trace).waits();
        assert_eq!(waits["in_read"].0, "read", "{how}: {waits:?}");
    }
}

/// Without the right to signal a process of another user nothing is known of who computes in it: the trace
/// says so.
#[test]
fn what_may_not_be_signalled_is_said() {
    let setpriv = Command::new("setpriv").arg("--version").output();
    if fs::metadata("/proc/self").expect("is there").uid() != 0 || setpriv.is_err() {
        eprintln!("only root can give up its rights: not tested");
        return;
    }
    let starter = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"];
    // A thread's own timer asks nobody.
    let flags = ["--clock", "tick"];
    let mut program = Recorded::start_by(&starter, "closed.c", &["-O2"], &flags, "user");
    until("it is said", || {
        let said = reasons(&program.dump()).concat();
        match said.contains("may not be signalled") && said.contains("CAP_KILL") {
            true => Ok(()),
            false => Err(said),
        }
    });
    drop(program.recorder.stdin.take());
    assert!(program.recorder.wait().expect("ends").success());
}
