//! Threads that wait in one call since before they were recorded: each has its row, which says where it
//! waits, and which goes on when it does.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use stackbeat_tests::process_tree::{is_attached, send};
use stackbeat_tests::{Background, compile, wait_until};

use stackbeat_tests::tool::{command_in, json, stackbeat, text};
use stackbeat_tests::viewers;

/// Threads that wait: for a condition, for which they have computed for 0.3 s, for events, for a signal, and
/// in a system call that is not libc's. With a first line of input the first one works and waits again, and
/// the last one ends by a system call of its own; the end of the input ends the program.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int stage, ends[2];
static volatile int waiting;
static volatile long sum;
static long raw(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
__attribute__((noinline)) static void waits_for_stage(int wanted) {
    pthread_mutex_lock(&lock);
    __atomic_fetch_add(&waiting, 1, __ATOMIC_SEQ_CST);
    while (stage < wanted) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}
static void *in_pool(void *unused) {
    struct timespec used;
    pthread_setname_np(pthread_self(), "pool");
    do {
        for (int i = 0; i < 100000; i++) sum++;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    } while (used.tv_nsec < 300000000);
    waits_for_stage(1);
    for (int i = 0; i < 100; i++) usleep(1000);
    waits_for_stage(2);
    return unused;
}
__attribute__((noinline)) static int waits_for_events(void) {
    struct epoll_event event;
    __atomic_fetch_add(&waiting, 1, __ATOMIC_SEQ_CST);
    return epoll_wait(epoll_create1(0), &event, 1, -1);
}
static void *of_events(void *unused) {
    pthread_setname_np(pthread_self(), "events");
    return waits_for_events() ? 0 : unused;
}
__attribute__((noinline)) static int waits_for_a_signal(void) {
    sigset_t all;
    sigfillset(&all);
    __atomic_fetch_add(&waiting, 1, __ATOMIC_SEQ_CST);
    return sigsuspend(&all);
}
static void *of_signals(void *unused) {
    pthread_setname_np(pthread_self(), "signals");
    return waits_for_a_signal() ? 0 : unused;
}
static void *leaves(void *unused) {
    char byte;
    pthread_setname_np(pthread_self(), "leaver");
    __atomic_fetch_add(&waiting, 1, __ATOMIC_SEQ_CST);
    raw(SYS_read, ends[0], (long)&byte, 1);
    raw(SYS_exit, 0, 0, 0);
    return unused;
}
int main(void) {
    pthread_t thread;
    char byte;
    if (pipe(ends)) return 9;
    pthread_create(&thread, 0, in_pool, 0);
    pthread_create(&thread, 0, of_events, 0);
    pthread_create(&thread, 0, of_signals, 0);
    pthread_create(&thread, 0, leaves, 0);
    while (waiting < 4) usleep(1000);
    usleep(300000);
    if (write(1, "running\n", 8) != 8) return 9;
    while (read(0, &byte, 1) == 1) {
        pthread_mutex_lock(&lock);
        stage++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        if (write(ends[1], "", 1) != 1) return 9;
    }
    _exit(0);
}
"#;

/// The program's threads, and where each waits.
const WHERE: [(&str, &[&str]); 4] = [
    ("pool", &["pthread_cond_wait", "waits_for_stage"]),
    ("events", &["epoll_wait", "waits_for_events"]),
    ("signals", &["sigwait", "waits_for_a_signal"]),
    ("leaver", &["leaves"]),
];

/// The program, which waits.
struct Waiting {
    child: Background,
    input: Option<ChildStdin>,
    _said: BufReader<ChildStdout>,
}

impl Waiting {
    #[track_caller]
    fn start(mut command: Command) -> Waiting {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = Background(child.expect("starts"));
        let mut said = BufReader::new(child.0.stdout.take().expect("is piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("reads");
        assert_eq!(line, "running\n");
        Waiting {
            input: child.0.stdin.take(),
            child,
            _said: said,
        }
    }

    fn go_on(&mut self) {
        let input = self.input.as_mut().expect("is open");
        input.write_all(b"1").expect("it reads");
    }

    /// Ends it, and whoever records it from its start.
    #[track_caller]
    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.0.wait().expect("ends").success());
    }
}

/// Tids by the names of threads.
fn threads(pid: u32) -> BTreeMap<String, u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let tasks = tasks.map(|task| task.expect("a folder").path());
    let named = tasks.map(|task| {
        let name = fs::read_to_string(task.join("comm")).expect("it runs");
        let tid = task.file_name().and_then(|tid| tid.to_str());
        let tid = tid.and_then(|tid| tid.parse().ok());
        (name.trim().to_owned(), tid.expect("a number"))
    });
    named.collect()
}

/// Attaches to a program, and comes back when that has happened.
#[track_caller]
fn attach(at: &Path, pid: u32, options: &[&str]) -> (Background, ChildStderr) {
    let mut recorder = command_in(at, &["attach", "-f", "--json", "-o", "t.beat"]);
    recorder.args(options).arg(pid.to_string());
    let recorder = recorder.stderr(Stdio::piped()).spawn();
    let mut recorder = Background(recorder.expect("starts"));
    let said = recorder.0.stderr.take().expect("is piped");
    wait_until("it is attached to", || is_attached(pid));
    (recorder, said)
}

/// Ends a recorder by Ctrl-C. Gives how long it took to attach, ns.
#[track_caller]
fn end((mut recorder, mut stderr): (Background, ChildStderr)) -> u64 {
    send("-INT", recorder.0.id());
    let mut said = String::new();
    stderr.read_to_string(&mut said).expect("reads");
    assert!(recorder.0.wait().expect("ends").success(), "{said}");
    let summary: Value = serde_json::from_str(&said).expect("JSON");
    number(&summary["attach"], "total_ns")
}

#[track_caller]
fn number(value: &Value, key: &str) -> u64 {
    let number = value[key].as_u64();
    number.unwrap_or_else(|| panic!("{key} of {value}"))
}

/// Each of the threads has one row; gives them by name. Whatever they waited for, they did so where they
/// should.
#[track_caller]
fn rows(at: &Path, tids: &BTreeMap<String, u64>) -> BTreeMap<String, Value> {
    let report = json(at, &["report", "t.beat", "--json"]);
    let all = report["threads"].as_array().expect("a list");
    let mut rows = BTreeMap::new();
    for (name, tid) in tids {
        let mut own = all.iter().filter(|row| number(row, "tid") == *tid);
        let row = own.next().unwrap_or_else(|| panic!("{name} in {all:?}"));
        assert_eq!(own.next(), None, "{name}");
        assert_eq!(row["name"], **name);
        rows.insert(name.clone(), row.clone());
    }
    for (name, parts) in WHERE {
        let tid = tids[name].to_string();
        let report = json(at, &["report", "t.beat", "--json", "--thread", &tid]);
        let sites = report["blocking_sites"].as_array().expect("a list");
        let longest = sites.iter().max_by_key(|site| number(site, "longest_ns"));
        let longest = longest.unwrap_or_else(|| panic!("{name}: {sites:?}"));
        // Of a hook's own wait the call itself is no frame.
        let place = longest.to_string();
        for part in parts {
            assert!(place.contains(part), "{name}: {part} in {place}");
        }
    }
    let checked = json(at, &["info", "t.beat", "--json", "--check"]);
    assert_eq!(checked["violations"], serde_json::json!([]));
    rows
}

/// Waits once, in the call and for the seconds that it is told. Says what came of it.
const WAITS_ONCE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **argument) {
    int word = 0, result = 0, seconds = atoi(argument[2]);
    struct timespec time = {seconds, 0}, until;
    struct timeval other_time = {seconds, 0};
    struct epoll_event event;
    sem_t none;
    sem_init(&none, 0, 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    errno = 0;
    switch (atoi(argument[1])) {
    case 0: result = poll(0, 0, seconds * 1000); break;
    case 1: result = ppoll(0, 0, &time, 0); break;
    case 2: result = select(0, 0, 0, 0, &other_time); break;
    case 3: result = epoll_wait(epoll_create1(0), &event, 1, seconds * 1000); break;
    case 4: result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, 0, 0); break;
    case 5: result = nanosleep(&time, 0); break;
    case 6: result = sem_timedwait(&none, &until); break;
    }
    printf("%d %d\n", result, errno);
    return count != 3;
}
"#;

/// A thread that was stopped to attach goes back to its call with our own call's CPU time, and is ready for
/// long where others have its processor: it is not one that has left its call, and no signal may find it
/// there.
#[test]
fn the_stopped_thread_finds_its_call_whole_on_a_busy_processor() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let program = compile(at, "once.c", WAITS_ONCE, &[]);
    let on_one = |what: &Path| {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(what).current_dir(at);
        command
    };
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let programs = [0, 1, 2, 3, 4].map(|kind| {
            let mut command = on_one(&program);
            let child = command
                .args([&kind.to_string(), "6"])
                .stdout(Stdio::piped())
                .spawn();
            (kind, Background(child.expect("starts")))
        });
        sleep(Duration::from_millis(300));
        // Five recorders at once keep each other from the processor.
        let recorders = programs.each_ref().map(|(_, program)| {
            let pid = program.0.id().to_string();
            let mut command = on_one(stackbeat_tests::stackbeat());
            command.args(["attach", "-q", "-f", "-d", "200ms", "-o", &pid, &pid]);
            Background(command.spawn().expect("starts"))
        });
        for mut recorder in recorders {
            assert!(recorder.0.wait().expect("ends").success());
        }
        waiting.extend(programs);
    }
    for (kind, mut program) in waiting {
        let mut said = String::new();
        let output = program.0.stdout.as_mut().expect("is piped");
        output.read_to_string(&mut said).expect("reads");
        let timed_out = format!("-1 {}\n", libc::ETIMEDOUT);
        let wanted = if kind == 4 { &timed_out } else { "0 0\n" };
        assert_eq!(said, wanted, "{kind}");
    }
}

/// The kernel goes on with some calls by another one, `restart_syscall`. `sem_timedwait` has left for a
/// function that has no name by a jump.
#[test]
fn what_the_stopped_thread_waits_for_is_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let program = compile(at, "once.c", WAITS_ONCE, &[]);
    let cases = [
        ("0", "poll", "poll"),
        ("4", "futex wait", "syscall"),
        ("5", "nanosleep", "clock_nanosleep"),
        ("6", "futex wait", "__futex_abstimed_wait_common"),
    ];
    let programs = cases.map(|(kind, ..)| {
        let mut program = Command::new(&program);
        let child = program.args([kind, "60"]).stdout(Stdio::null()).spawn();
        Background(child.expect("starts"))
    });
    sleep(Duration::from_millis(300));
    // The second time our hooks are in the program's slots.
    for time in 0..2 {
        let recorders: Vec<_> = (programs.iter().zip(cases))
            .map(|(program, (kind, ..))| {
                let pid = program.0.id().to_string();
                let mut recorder = command_in(
                    at,
                    &["attach", "-q", "-f", "-d", "1500ms", "-o", kind, &pid],
                );
                Background(recorder.spawn().expect("starts"))
            })
            .collect();
        for (mut recorder, (kind, call, leaf)) in recorders.into_iter().zip(cases) {
            assert!(recorder.0.wait().expect("ends").success(), "{kind}");
            let report = json(at, &["report", kind, "--json"]);
            // To detach takes a place, too.
            let duration_ns = number(&report["recording"], "duration_ns");
            assert!(duration_ns < 20_000 * MS, "{kind}, {time}: {duration_ns}");
            let site = &report["blocking_sites"][0];
            assert_eq!(site["call"], call, "{kind}, {time}: {site}");
            assert_eq!(site["stack"][0], leaf, "{kind}, {time}: {site}");
        }
    }
}

const MS: u64 = 1_000_000;

#[test]
fn threads_that_wait_since_before_have_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let mut program = Waiting::start(Command::new(compile(at, "waiting.c", PROGRAM, &[])));
    let pid = program.child.0.id();
    let tids = threads(pid);
    assert_eq!(tids.len(), 5);
    let recorder = attach(at, pid, &[]);
    sleep(Duration::from_millis(1500));
    program.go_on();
    sleep(Duration::from_millis(800));
    let attached_ns = end(recorder);
    let rows = rows(at, &tids);
    for (name, row) in &rows {
        let least = match name.as_str() {
            "pool" | "leaver" | "waiting" => 1200 * MS,
            _ => 1900 * MS,
        };
        // One of them has been stopped to attach.
        let begin_ns = number(row, "begin_ns");
        assert!(begin_ns < attached_ns + 500 * MS, "{name}: {row}");
        assert!(
            begin_ns + number(row, "blocked_ns") > least,
            "{name}: {row}"
        );
    }
    let pool = &rows["pool"];
    assert_eq!(pool["system_calls"]["sleep"], 100, "{pool}");
    assert!(number(pool, "samples") > 0, "{pool}");
    assert!(number(pool, "exact_cpu_ns") > 300 * MS, "{pool}");
    assert!(number(pool, "cpu_ns") < 150 * MS, "{pool}");
    let end_of = |name: &str| number(&rows[name], "end_ns");
    assert!(
        end_of("leaver") + 300 * MS < end_of("events"),
        "{:?}",
        rows["leaver"]
    );

    let exported = stackbeat(at, &["export", "t.beat", "--to", "perfetto", "-o", "t.p"]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let query = "select t.tid, count(*) as slices from thread_track tt join thread t using (utid) \
                 join slice s on s.track_id = tt.id group by t.utid";
    let tracks = viewers::trace_processor(&at.join("t.p"), &[query]);
    for (name, tid) in &tids {
        let own = tracks.iter().filter(|row| number(row, "tid") == *tid);
        assert_eq!(own.count(), 1, "{name}: {tracks:?}");
    }
    program.end();
}

#[test]
fn they_have_rows_when_capturing_begins_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let path = compile(at, "waiting.c", PROGRAM, &[]);
    let start = |session: u32| {
        sleep(Duration::from_millis(400));
        let started = stackbeat(at, &["start", &session.to_string()]);
        assert!(started.status.success(), "{}", text(&started.stderr));
        sleep(Duration::from_millis(1200));
    };
    let check = |tids: &BTreeMap<String, u64>| {
        for (name, row) in rows(at, tids) {
            assert!(number(&row, "blocked_ns") > 800 * MS, "{name}: {row}");
        }
    };
    let program = Waiting::start(Command::new(&path));
    let pid = program.child.0.id();
    let recorder = attach(at, pid, &["--start-disabled"]);
    start(recorder.0.0.id());
    end(recorder);
    check(&threads(pid));
    program.end();

    let path = path.to_str().expect("UTF-8");
    let options = ["record", "-q", "-f", "-o", "t.beat", "--start-disabled"];
    let program = Waiting::start(command_in(at, &[&options[..], &["--", path]].concat()));
    let session = program.child.0.id();
    start(session);
    let status = json(at, &["status", &session.to_string(), "--json"]);
    let pid = number(&status["sessions"][0], "program_pid") as u32;
    let tids = threads(pid);
    program.end();
    check(&tids);
}

/// A library whose constructor says that it runs, and waits until the file in the environment goes: whoever
/// loads it holds the dynamic linker's lock meanwhile.
const SLOW: &str = r#"
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void waits(void) {
    if (write(1, "running\n", 8) != 8) _exit(9);
    while (access(getenv("HELD"), F_OK) == 0) usleep(10000);
}
"#;

/// Loads it in another thread, and goes on afterwards.
const LOADS: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
static void *loads(void *path) {
    return dlopen(path, RTLD_NOW);
}
int main(int count, char **arguments) {
    pthread_t thread;
    void *loaded;
    pthread_create(&thread, 0, loads, arguments[count - 1]);
    for (char byte; read(0, &byte, 1) == 1;) {}
    pthread_join(thread, &loaded);
    // What a call of ours left there would show.
    if (!loaded || dlopen("/none/such", RTLD_NOW) || !dlerror()) return 8;
    return 0;
}
"#;

#[test]
fn a_program_whose_loader_is_held_is_said_not_to_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let library = compile(at, "slow.c", SLOW, &["-shared", "-fPIC"]);
    let program = compile(at, "loads.c", LOADS, &["-pthread", "-ldl"]);
    let held = at.join("held");
    fs::write(&held, "").expect("writes");
    let mut command = Command::new(program);
    command.arg(library).env("HELD", &held);
    let program = Waiting::start(command);
    let pid = program.child.0.id().to_string();
    let output = stackbeat(at, &["attach", "-f", "-o", "t.beat", "-d", "50ms", &pid]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("did not answer within 20 s"), "{said}");
    assert!(!said.contains("ended"), "{said}");
    // Later it can be attached to.
    fs::remove_file(&held).expect("is there");
    let output = stackbeat(at, &["attach", "-f", "-o", "t.beat", "-d", "50ms", &pid]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    program.end();
}
