//! A session inside the program: the same trace as from outside, however the program ends, and nothing of it
//! that the program or its trace would show.

pub(crate) mod bionic;
mod steered;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use stackbeat_model::transfers;
use stackbeat_tests::plain_reader::Trace;
use stackbeat_tests::process_tree::cpu_ticks;
use stackbeat_tests::tool_json::{array, assert_adds_up, number};
use stackbeat_tests::{
    Program, built, compile, compile_file, info, json_of, report, run, scratch, target_folder,
    until, verbatim, wait_until, workspace,
};

fn build(folder: &Path) -> String {
    build_one(folder, "ends.c")
}

fn build_one(folder: &Path, source: &str) -> String {
    let source = workspace().join("tests/tests/in_process").join(source);
    let program = compile_file(folder, &source, &[]);
    program.to_str().expect("UTF-8").to_owned()
}

fn inside(program: &str, how: &str) -> Program {
    Program::new([program, how]).options(&["--in-process"])
}

/// A complete trace, in which all threads are the program's.
#[track_caller]
fn check(trace: &Path, threads: usize) -> Value {
    let checked = json_of(&["info", "--check", "--json", trace.to_str().expect("UTF-8")]);
    assert_adds_up(&checked);
    assert_eq!(
        number(&checked["recording"], "records_lost"),
        0,
        "{checked:#}"
    );
    let report = report(trace);
    let names: Vec<_> = array(&report, "threads")
        .map(|t| t["name"].to_string())
        .collect();
    assert_eq!(names.len(), threads, "{names:?}");
    assert!(names.iter().all(|n| !n.contains("stackbeat")), "{names:?}");
    report
}

/// Share of the program's running time that a function has, callees included.
fn running(report: &Value, function: &str) -> f64 {
    let all = report["totals"]["running_ns"].as_f64().expect("a number");
    let mut functions = array(report, "functions");
    let found = functions.find(|f| f["name"] == function);
    found.map_or(0.0, |f| {
        f["total"]["running_ns"].as_f64().expect("a number")
    }) / all
}

#[test]
fn the_trace_is_complete_however_the_program_ends() {
    let folder = scratch();
    let program = build(folder.path());
    for (how, status) in [
        ("return", 5),
        ("exit", 3),
        ("_exit", 4),
        ("killed", 128 + 9),
        ("abort", 128 + 6),
    ] {
        let recorded = inside(&program, how).record(folder.path());
        assert_eq!(recorded.run.shell_status(), status, "{how}");
        let report = check(&recorded.trace, 5);
        // On a busy machine the call behind it may have some of it.
        let share = running(&report, "computes");
        assert!(share > 0.5, "{how}: {share}");
        let sleeps = array(&report, "blocking_sites").filter(|c| c["cause"] == "sleep");
        let sleeps: u64 = sleeps.map(|c| number(c, "count")).sum();
        assert_eq!(sleeps, 40, "{how}");
        let allocations = number(&report["totals"], "allocations");
        assert!(
            (20_000..20_200).contains(&allocations),
            "{how}: {allocations}"
        );
    }
}

#[test]
fn who_waits_at_the_end_is_known_with_its_stack() {
    let folder = scratch();
    let program = build(folder.path());
    let recorded = inside(&program, "waiting").record(folder.path());
    assert_eq!(recorded.run.shell_status(), 8);
    let report = check(&recorded.trace, 6);
    let locks: Vec<_> = array(&report, "blocking_sites")
        .filter(|c| c["cause"] == "lock")
        .collect();
    assert_eq!(locks.len(), 1, "{locks:#?}");
    let lasted = number(locks[0], "total_ns");
    let wall_ns = recorded.run.wall.as_nanos() as u64;
    assert!((500_000_000..wall_ns).contains(&lasted), "{lasted}");
    assert!(
        array(locks[0], "stack").any(|name| name == "waits_for_ever"),
        "{locks:#?}"
    );
}

/// What libc starts by itself passes no hook of ours.
#[test]
fn children_of_system_belong_to_the_session() {
    let folder = scratch();
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        int main(void) {
            char line[64] = "";
            FILE *pipe = popen("echo from a pipe", "r");
            fputs(fgets(line, sizeof line, pipe), stdout);
            int status = system("exit 3") >> 8;
            return pclose(pipe) + status;
        }
    "#;
    let program = compile(folder.path(), "starts.c", source, &[]);
    let program = Program::new([program.to_str().expect("UTF-8")]).options(&["--in-process"]);
    let recorded = program.record_and_compare(folder.path(), verbatim);
    let report = report(&recorded.trace);
    let processes: Vec<_> = array(&report, "processes")
        .map(|process| process["name"].to_string())
        .collect();
    assert_eq!(processes, ["\"starts\"", "\"sh\"", "\"sh\""]);
}

/// A program that is started when the session is over would begin another one, in the place of the trace.
#[test]
fn who_outlives_the_session_begins_none() {
    let folder = scratch();
    let script = "(sleep 0.5; sh -c 'echo later'; echo done) >after 2>&1 & echo now";
    let program = Program::new(["sh", "-c", script])
        .options(&["--in-process"])
        .folder(folder.path());
    let recorded = program.record(folder.path());
    assert_eq!(recorded.run.stdout(), "now\n");
    let trace = fs::read(&recorded.trace).expect("is there");
    let after = folder.path().join("after");
    let said = || fs::read_to_string(&after).unwrap_or_default();
    wait_until("it has ended", || said().contains("done"));
    assert_eq!(said(), "later\ndone\n");
    assert!(
        fs::read(&recorded.trace).expect("is there") == trace,
        "is the same"
    );
}

#[test]
fn forks_and_execs_are_recorded_too() {
    let folder = scratch();
    let program = build(folder.path());
    let recorded = inside(&program, "fork").record(folder.path());
    assert_eq!(recorded.run.stdout(), "children 190\n");
    assert_eq!(recorded.run.shell_status(), 5);
    // The session's threads are the parent's, and record its children, too.
    let forked = check(&recorded.trace, 1 + 5 + 20);
    assert_eq!(array(&forked, "processes").count(), 21);

    // The image that exec starts has a session and a trace of its own.
    let recorded = inside(&program, "exec").record(folder.path());
    assert_eq!(recorded.run.shell_status(), 3);
    check(&recorded.trace, 5);
    check(&folder.path().join("trace.2.beat"), 5);
}

#[test]
fn the_program_sees_none_of_its_descriptors() {
    let folder = scratch();
    let program = build(folder.path());
    let program = inside(&program, "descriptors");
    let recorded = program.record_and_compare(folder.path(), str::to_owned);
    assert!(recorded.run.stdout().starts_with("descriptors "));
    check(&recorded.trace, 9);
}

/// Names are looked up, the trace is written and completed, while a thread of the program holds the lock of
/// malloc for good.
#[test]
fn no_thread_of_the_session_waits_for_the_programs_malloc() {
    let folder = scratch();
    let program = build_one(folder.path(), "held.c");
    let recorded = Program::new([program])
        .options(&["--in-process"])
        .record(folder.path());
    assert_eq!(recorded.run.shell_status(), 6);
    // An end that waits for malloc is given up after a minute, and the trace is not finished.
    let info = info(&recorded.trace);
    assert_eq!(info["recording"]["outcome"], "finished");
    let report = check(&recorded.trace, 2);
    assert!(running(&report, "computes") > 0.9);
}

/// What `record --in-process` gives a program, to start one without a recorder that waits for it.
fn environment(folder: &Path) -> Vec<(String, String)> {
    let recorded = Program::new(["env"])
        .options(&["--in-process"])
        .record(folder);
    let text = recorded.run.stdout();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let ours = ["LD_PRELOAD", "STACKBEAT_IN_PROCESS"];
    let found: Vec<_> = lines
        .filter(|(name, _)| ours.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    assert_eq!(found.len(), 2, "{text}");
    found
}

fn start(environment: &[(String, String)], program: &str, how: &str, trace: &Path) -> Child {
    start_in("endless", environment, program, how, trace)
}

fn start_in(
    mode: &str,
    environment: &[(String, String)],
    program: &str,
    how: &str,
    trace: &Path,
) -> Child {
    let options = serde_json::json!({"output": trace, "symbolize": true, "mode": mode}).to_string();
    let mut command = Command::new(program);
    command
        .arg(how)
        .envs(environment.iter().cloned())
        .env("STACKBEAT_IN_PROCESS_OPTIONS", options)
        .stdout(Stdio::piped());
    command.spawn().expect("starts")
}

/// The same where no other test's `status` asks the session how it is: its socket is in a network of its own.
fn start_unasked(
    environment: &[(String, String)],
    program: &str,
    how: &str,
    trace: &Path,
    mode: &str,
) -> Child {
    let apart = ["--user", "--map-root-user", "--net"];
    let may_be_apart = Command::new("unshare").args(apart).arg("true").status();
    if !may_be_apart.is_ok_and(|status| status.success()) {
        return start_in(mode, environment, program, how, trace);
    }
    let options = serde_json::json!({"output": trace, "symbolize": true, "mode": mode}).to_string();
    // Not in the environment of `unshare`, which would be recorded itself.
    let variables = environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let mut command = Command::new("unshare");
    command
        .args(apart)
        .arg("env")
        .args(variables)
        .arg(format!("STACKBEAT_IN_PROCESS_OPTIONS={options}"))
        .args([program, how])
        .stdout(Stdio::piped());
    command.spawn().expect("starts")
}

/// What `STACKBEAT_TEST_KILLS` says, or less.
fn kills() -> usize {
    let asked = std::env::var("STACKBEAT_TEST_KILLS").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(6)
}

#[test]
fn what_a_killed_one_leaves_is_saved_at_the_next_start() {
    let folder = scratch();
    let program = build(folder.path());
    let environment = environment(folder.path());
    let traces: Vec<PathBuf> = (0..kills())
        .map(|i| folder.path().join(format!("killed{i}.beat")))
        .collect();
    for (i, trace) in traces.iter().enumerate() {
        let mut child = start(&environment, &program, "forever", trace);
        // Before the first pass, between passes, while it saves those before, and in the middle of anything.
        let enough = 15 + (i as u64 * 39) % 150;
        until("it has computed", || {
            (cpu_ticks(child.id()) >= enough).then_some(())
        });
        child.kill().expect("is ours");
        child.wait().expect("has ended");
    }
    let last = folder.path().join("last.beat");
    let mut child = start(&environment, &program, "exit", &last);
    assert_eq!(child.wait().expect("ends").code(), Some(3));
    for trace in &traces {
        let info = info(trace);
        assert_eq!(info["recording"]["outcome"], "recovered", "{trace:?}");
        assert_eq!(number(&info["recording"], "records_lost"), 0, "{info:#}");
        assert!(number(&info["counts"], "samples") > 10, "{info:#}");
    }
    check(&last, 5);
    let files = fs::read_dir(folder.path()).expect("is there").flatten();
    let parts = files.filter(|f| f.file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(parts.count(), 0);
}

/// Voluntary switches of all threads of a process.
fn switches(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("lives");
    let status = tasks.map(|t| fs::read_to_string(t.expect("lives").path().join("status")));
    let lines = |text: String| {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|n| n.trim().parse::<u64>().ok())
            .expect("a number")
    };
    status.map(|text| lines(text.expect("lives"))).sum()
}

#[test]
fn nothing_wakes_up_while_the_program_idles() {
    let folder = scratch();
    let program = build(folder.path());
    let environment = environment(folder.path());
    let mut children = ["endless", "ring"].map(|mode| {
        let trace = folder.path().join(mode);
        let mut child = start_unasked(&environment, &program, "idle", &trace, mode);
        let mut line = String::new();
        let output = child.stdout.take().expect("is piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("says so");
        assert_eq!(line, "idle\n");
        child
    });
    let pids = children.each_ref().map(Child::id);
    // Passes get rarer, then there is none.
    until("nothing wakes up any more", || {
        let before = pids.map(switches);
        sleep(Duration::from_secs(5));
        (pids.map(switches) == before).then_some(())
    });
    let before = pids.map(switches);
    sleep(Duration::from_secs(12));
    assert_eq!(pids.map(switches), before);
    for child in &mut children {
        child.kill().expect("is ours");
        child.wait().expect("has ended");
    }
}

/// The folder in which both libraries have the names that a program looks for.
fn libraries(folder: &Path) -> PathBuf {
    let found = environment(folder);
    let at = folder.join("libraries");
    fs::create_dir(&at).expect("is made");
    for (variable, name) in [
        ("LD_PRELOAD", "libstackbeat.so"),
        ("STACKBEAT_IN_PROCESS", "libstackbeat_session.so"),
    ] {
        let (_, path) = found.iter().find(|(n, _)| n == variable).expect("is set");
        fs::copy(path, at.join(name)).expect("is copied");
    }
    at
}

#[test]
fn a_program_begins_and_ends_a_session_by_itself() {
    let folder = scratch();
    let program = build_one(folder.path(), "calls.c");
    let libraries = libraries(folder.path());
    let traces = ["first.beat", "second.beat"].map(|name| folder.path().join(name));
    let mut command = Command::new(program);
    command.arg(&libraries).args(&traces);
    let ended = run(command);
    assert_eq!(ended.shell_status(), 0, "{}", ended.stderr());
    assert_eq!(ended.stdout(), "done\n");
    for trace in &traces {
        let report = check(trace, 2);
        assert!(running(&report, "during") > 0.9, "{trace:?}");
        assert_eq!(
            running(&report, "before") + running(&report, "between"),
            0.0
        );
    }
}

/// The same by the functions for Rust.
#[test]
fn a_rust_program_records_itself() {
    let folder = scratch();
    let libraries = libraries(folder.path());
    let trace = folder.path().join("own.beat");
    let program = built(
        target_folder().join("examples/session"),
        &["--package", "stackbeat-api", "--example", "session"],
    );
    let mut command = Command::new(&program);
    command.args([&libraries, &trace]);
    let ended = run(command);
    assert_eq!(ended.shell_status(), 0, "{}", ended.stderr());
    assert!(ended.stdout().ends_with(" primes\n"), "{}", ended.stdout());
    let report = check(&trace, 1);
    assert!(
        running(&report, "session::count_primes") > 0.9,
        "{report:#}"
    );
    let scopes = report["scopes"].to_string();
    assert!(scopes.contains("count primes"), "{scopes}");
    // Neither is there a session where there is no agent.
    let mut command = Command::new(&program);
    command.args([folder.path(), &trace]);
    let refused = run(command);
    assert_ne!(refused.shell_status(), 0);
    assert!(refused.stderr().contains("NoAgent"), "{}", refused.stderr());
}

#[test]
fn threads_that_are_stopped_anywhere_keep_nobody_from_recording() {
    let folder = scratch();
    let program = build_one(folder.path(), "stopped.c");
    let asked = std::env::var("STACKBEAT_TEST_SUSPENSIONS");
    let suspensions = asked.as_deref().unwrap_or("600");
    let recorded = inside(&program, suspensions).record(folder.path());
    assert_eq!(recorded.run.stdout(), "stopped\n");
    assert_eq!(recorded.run.shell_status(), 0);
    check(&recorded.trace, 5);
}

/// Self time of each function, as a share of the program's running time.
fn shares(report: &Value) -> BTreeMap<String, f64> {
    let all = report["totals"]["running_ns"].as_f64().expect("a number");
    let share = |f: &Value| f["self"]["running_ns"].as_f64().expect("a number") / all;
    let functions = array(report, "functions");
    let named = functions.map(|f| (f["name"].as_str().expect("text").to_owned(), share(f)));
    named.collect()
}

/// How far two recordings are apart: the largest difference of a function's share.
fn distance(a: &Value, b: &Value) -> f64 {
    let (a, b) = (shares(a), shares(b));
    let names = a.keys().chain(b.keys());
    let of = |map: &BTreeMap<String, f64>, name| map.get(name).copied();
    let apart = names.map(|n| (of(&a, n).unwrap_or(0.0) - of(&b, n).unwrap_or(0.0)).abs());
    apart.fold(0.0, f64::max)
}

const PYTHON: &str = "
import json, threading, time
def text(n):
    return json.dumps([{'key': str(i), 'value': [i] * 5} for i in range(n)])
def parses(n):
    return [json.loads(text(200)) for _ in range(n)]
def sorts(n):
    return [sorted(str(i * 7919 % 1000) for i in range(1000)) for _ in range(n)]
def waits():
    for _ in range(30): time.sleep(0.02)
waiter = threading.Thread(target=waits)
waiter.start()
end = time.process_time() + 2.0
while time.process_time() < end:
    parses(5); sorts(5)
waiter.join()
";

/// The same from inside as from outside: no further apart than two recordings from outside, with room for
/// chance.
#[test]
fn python_is_the_same_from_inside_as_from_outside() {
    let folder = scratch();
    let script = folder.path().join("work.py");
    fs::write(&script, PYTHON).expect("is written");
    let interpreter = stackbeat_tests::python();
    let record = |options: &[&str]| {
        let program = Program::new([interpreter.as_str(), script.to_str().expect("UTF-8")]);
        let recorded = program.options(options).record(folder.path());
        assert_eq!(recorded.run.shell_status(), 0, "{}", recorded.run.stderr());
        report(&recorded.trace)
    };
    let [first, second] = [0, 1].map(|_| record(&["--clock", "timer"]));
    let inside = record(&["--in-process"]);
    let apart = distance(&first, &second);
    let from_inside = distance(&first, &inside).min(distance(&second, &inside));
    // At 500 samples a share of a third has a standard error of 2 %.
    assert!(from_inside < apart + 0.08, "{from_inside}, {apart}");
    let sleeps = |report: &Value| {
        let sleeps = array(report, "blocking_sites").filter(|c| c["cause"] == "sleep");
        sleeps.map(|c| number(c, "count")).sum::<u64>()
    };
    assert_eq!((sleeps(&first), sleeps(&inside)), (30, 30));
    let threads = |report: &Value| array(report, "threads").count();
    assert_eq!(threads(&first), threads(&inside));
    let cpu = |report: &Value| report["totals"]["cpu_ns"].as_f64().expect("a number");
    assert!((0.9..1.1).contains(&(cpu(&inside) / cpu(&first))));
}

/// Counters of the program that a trace has, by name.
fn counters(trace: &Path) -> BTreeMap<String, Vec<(u64, i64)>> {
    let trace = Trace::read(trace);
    assert_eq!(trace.processes.len(), 1);
    let named = trace
        .counters
        .into_iter()
        .map(|((_, name), values)| (name, values));
    named.collect()
}

/// What a rate adds up to that is another one at each poll.
fn amount(rate: &[(u64, i64)]) -> f64 {
    let pairs = rate.windows(2);
    let amounts = pairs.map(|pair| (pair[1].0 - pair[0].0) as f64 / 1e9 * pair[1].1 as f64);
    amounts.sum()
}

/// The same counters as from outside, with the same values: what the session's threads use is not the
/// program's, except memory.
#[test]
fn counters_are_the_same_from_inside_as_from_outside() {
    let folder = scratch();
    let program = build_one(folder.path(), "counted.c");
    let record = |options: &[&str]| {
        let recorded = Program::new([program.as_str()])
            .options(options)
            .record(folder.path());
        assert_eq!(recorded.run.shell_status(), 0, "{}", recorded.run.stderr());
        counters(&recorded.trace)
    };
    let outside = record(&["--clock", "timer", "--counters", "50ms"]);
    let inside = record(&["--in-process", "--counters", "50ms"]);
    let names = |counters: &BTreeMap<String, _>| counters.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&outside), names(&inside));

    let most = |counters: &BTreeMap<String, Vec<(u64, i64)>>, name| {
        let values = counters[name].iter().map(|(_, value)| *value);
        values.max().expect("a value")
    };
    for (name, least) in [("threads", 4), ("descriptors", 23)] {
        let [from_outside, from_inside] = [&outside, &inside].map(|c| most(c, name));
        assert_eq!(from_outside, from_inside, "{name}");
        assert!(from_inside >= least, "{name}: {from_inside}");
    }
    let [from_outside, from_inside] = [&outside, &inside].map(|c| most(c, "memory"));
    let more = from_inside - from_outside;
    assert!(
        from_outside > 96 << 20 && (0..48 << 20).contains(&more),
        "{from_outside}, {from_inside}"
    );
    // 96 MiB are touched, in a second at most.
    let faults = [&outside, &inside].map(|c| most(c, "minor faults"));
    assert!(faults.iter().all(|rate| *rate > 10_000), "{faults:?}");
    for (name, least, apart_at_most) in [("CPU", 50.0, 2.5), ("allocations", 1e6, 1.6)] {
        let [from_outside, from_inside] = [&outside, &inside].map(|c| amount(&c[name]));
        assert!(from_inside > least, "{name}: {from_inside}");
        // Percents are whole ones, and how much is allocated in a second of CPU time differs from run to run.
        let apart = from_inside / from_outside;
        assert!(
            (1.0 / apart_at_most..apart_at_most).contains(&apart),
            "{name}: {from_outside}, {from_inside}"
        );
    }
    for name in [transfers::BYTES_WRITTEN, transfers::WRITE_CALLS] {
        let [from_outside, from_inside] = [&outside, &inside].map(|c| most(c, name));
        assert_eq!(from_outside, from_inside, "{name}");
    }
    assert_eq!(most(&inside, transfers::BYTES_WRITTEN), 300_000);
    // The dynamic linker has read before the session began.
    let [from_outside, from_inside] = [&outside, &inside].map(|c| most(c, transfers::READ_CALLS));
    assert!(
        (0..=from_outside).contains(&from_inside),
        "{from_outside}, {from_inside}"
    );
}

/// What redis does for one client, and for a list that a thread of its own frees.
fn redis(folder: &Path, options: &[&str]) -> Value {
    let socket = folder.join("redis.sock");
    let socket = socket.to_str().expect("UTF-8");
    let trace = folder.join("redis.beat");
    let server = [
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        socket,
        "--save",
        "",
        "--daemonize",
        "no",
    ];
    let mut child = Program::new(server)
        .options(options)
        .folder(folder)
        .recorded_command(&trace)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server starts");
    let client = |arguments: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-s", socket]).args(arguments);
        run(command)
    };
    wait_until("redis answers", || client(&["ping"]).stdout() == "PONG\n");
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args([
        "-s", socket, "-q", "-n", "40000", "-c", "1", "-t", "set,get",
    ]);
    let done = run(benchmark);
    assert_eq!(done.shell_status(), 0, "{}", done.stderr());
    // Lists that are freed by the thread bio_lazy_free, which waits for them.
    for _ in 0..5 {
        let fill = "for i = 1, 60000 do redis.call('RPUSH', 'list', 'element ' .. i) end";
        client(&["eval", fill, "0"]);
        assert_eq!(client(&["unlink", "list"]).stdout(), "1\n");
        wait_until("the list is freed", || {
            let memory = client(&["info", "memory"]);
            memory.stdout().contains("lazyfree_pending_objects:0")
        });
        sleep(Duration::from_millis(30));
    }
    client(&["shutdown", "nosave"]);
    assert!(child.wait().expect("ours").success());
    let checked = json_of(&["info", "--check", "--json", trace.to_str().expect("UTF-8")]);
    assert_adds_up(&checked);
    report(&trace)
}

/// Waits that another thread ended: names of who waited and who woke, and how often.
fn wakes(report: &Value) -> BTreeMap<(String, String), u64> {
    let names: std::collections::HashMap<u64, &str> = array(report, "threads")
        .map(|thread| {
            (
                number(thread, "utid"),
                thread["name"].as_str().expect("text"),
            )
        })
        .collect();
    let mut found = BTreeMap::new();
    for pair in array(&report["waits"], "pairs") {
        let [waited, woke] = ["utid", "waker_utid"].map(|key| names.get(&number(pair, key)));
        if let (Some(waited), Some(woke)) = (waited, woke) {
            let key = ((*waited).to_owned(), (*woke).to_owned());
            *found.entry(key).or_default() += number(pair, "count");
        }
    }
    found
}

/// The same for redis: who runs, what is allocated, who waits, and who wakes whom.
#[test]
fn redis_is_the_same_from_inside_as_from_outside() {
    let folder = scratch();
    let [first, second] = [0, 1].map(|_| redis(folder.path(), &["--clock", "timer"]));
    let inside = redis(folder.path(), &["--in-process"]);
    let apart = distance(&first, &second);
    let from_inside = distance(&first, &inside).min(distance(&second, &inside));
    assert!(from_inside < apart + 0.08, "{from_inside}, {apart}");
    let names = |report: &Value| {
        let mut names: Vec<_> = array(report, "threads")
            .map(|t| t["name"].to_string())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&first), names(&inside));
    let of = |report: &Value, key| report["totals"][key].as_f64().expect("a number");
    for key in ["allocations", "allocated_bytes", "frees"] {
        // Its own timer allocates a little.
        let ratio = of(&inside, key) / of(&first, key);
        assert!((0.999..1.001).contains(&ratio), "{key}: {ratio}");
    }
    let freed = ("bio_lazy_free".to_owned(), "redis-server".to_owned());
    for report in [&first, &inside] {
        assert_eq!(wakes(report).get(&freed), Some(&5), "{:?}", wakes(report));
    }
}
