//! System calls by kind and thread, against strace, which counts them in the kernel.

use serde_json::Value;
use stackbeat_tests::{Program, compile, python, report, run, scratch};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A thread makes calls of every kind, so many times as the first argument says.
const SCRIPT: &str = r#"
import fcntl, mmap, os, select, socket, sys, threading, time
def work():
    r, w = os.pipe()
    a, b = socket.socketpair()
    for i in range(int(sys.argv[1])):
        f = os.open("file", os.O_RDWR | os.O_CREAT)
        os.write(f, b"text")
        os.pread(f, 4, 0)
        os.fstat(f)
        os.stat("file")
        os.fdatasync(f)
        fcntl.flock(f, fcntl.LOCK_SH)
        os.sendfile(w, f, 0, 4)
        os.close(f)
        os.read(r, 4)
        os.close(os.dup(r))
        a.send(b"x")
        b.recv(1)
        a.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        select.select([r], [], [], 0)
        e = select.epoll()
        e.register(r, select.EPOLLIN)
        e.poll(0)
        e.close()
        time.sleep(1e-6)
        mmap.mmap(-1, 4096).close()
        os.kill(os.getpid(), 0)
        os.sched_yield()
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
worker = threading.Thread(target=work)
worker.start()
worker.join()
"#;

/// What strace calls the calls of each kind that the script makes, and how many the thread makes in a round.
const KINDS: [(&str, &[&str], u64); 17] = [
    ("read", &["read", "pread64", "getrandom"], 2),
    ("write", &["write", "pwrite64"], 1),
    ("copy", &["sendfile", "sendfile64"], 1),
    ("open", &["open", "openat", "openat2"], 1),
    ("close", &["close", "close_range"], 3),
    ("sync", &["fsync", "fdatasync"], 1),
    (
        "stat",
        &["stat", "lstat", "fstat", "newfstatat", "statx"],
        2,
    ),
    (
        "control",
        &[
            "fcntl",
            "flock",
            "dup",
            "dup2",
            "dup3",
            "pipe2",
            "epoll_create1",
            "epoll_ctl",
        ],
        4,
    ),
    ("socket", &["socketpair", "setsockopt"], 1),
    ("send", &["sendto", "sendmsg"], 1),
    ("receive", &["recvfrom", "recvmsg"], 1),
    (
        "poll",
        &["pselect6", "select", "epoll_wait", "epoll_pwait"],
        2,
    ),
    ("sleep", &["nanosleep", "clock_nanosleep"], 1),
    ("memory", &["mmap", "munmap"], 2),
    ("process", &["clone", "clone3", "fork", "vfork", "wait4"], 2),
    ("signal", &["kill"], 1),
    ("yield", &["sched_yield"], 1),
];

/// Whether a thread's own arena of malloc's takes one munmap or two is chance: it is cut out of a larger
/// mapping.
const ONE_ARENA: [&str; 2] = ["env", "MALLOC_ARENA_MAX=1"];

type Counts = BTreeMap<String, u64>;

/// By kind: what all threads made, and what the script's own thread did.
fn counted(folder: &Path, rounds: &str) -> (Counts, Counts) {
    let program = Program::new([&ONE_ARENA[..], &[&python(), "-c", SCRIPT, rounds]].concat());
    let recorded = program.folder(folder).record(folder);
    let report = report(&recorded.trace);
    let counts = |value: &Value| -> Counts {
        let kinds = value.as_object().unwrap_or_else(|| panic!("{report:#}"));
        let count = |n: &Value| n.as_u64().expect("a number");
        kinds.iter().map(|(k, n)| (k.clone(), count(n))).collect()
    };
    let threads = report["threads"].as_array().expect("a list");
    let mut own = threads.iter().filter(|t| t["is_main"] == false);
    let thread = own.next().expect("the script's thread");
    assert!(own.next().is_none(), "{threads:#?}");
    (
        counts(&report["system_calls"]),
        counts(&thread["system_calls"]),
    )
}

/// What strace counts, by system call.
fn traced(folder: &Path, program: &[&str]) -> Counts {
    let out = folder.join("strace.txt");
    let mut command = Command::new("strace");
    command
        .current_dir(folder)
        .args(["-f", "-c", "-o"])
        .arg(&out)
        .args(program);
    let ran = run(command);
    assert!(ran.output.status.success(), "{}", ran.stderr());
    let text = std::fs::read_to_string(&out).expect("strace writes its table");
    let lines = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let count = fields.get(3)?.parse().ok()?;
        Some(((*fields.last()?).to_owned(), count))
    });
    lines.collect()
}

/// What python's start and end do beside the rounds is the same in both runs of each, and cancels out: libc's
/// own calls there (the loader, directories) pass no hook.
#[test]
fn python_makes_as_many_calls_of_each_kind_as_strace_counts() {
    let folder = scratch();
    let (few, many) = (20, 60);
    // The first start writes what python compiles its modules to, where nobody has used them before.
    let warm_up = Program::new([&python(), "-c", SCRIPT, "1"]);
    let warm_up = warm_up.folder(folder.path()).run();
    assert!(warm_up.output.status.success(), "{}", warm_up.stderr());
    let ours = [few, many].map(|rounds| counted(folder.path(), &rounds.to_string()));
    let theirs = [few, many].map(|rounds: u64| {
        let (python, rounds) = (python(), rounds.to_string());
        let program = [&ONE_ARENA[..], &[&python, "-c", SCRIPT, &rounds]].concat();
        traced(folder.path(), &program)
    });
    let grown = |[few, many]: [&Counts; 2], name: &str| {
        let of = |counts: &Counts| counts.get(name).copied().unwrap_or(0) as i64;
        of(many) - of(few)
    };
    let [(all_few, own_few), (all_many, own_many)] = &ours;
    for (kind, calls, each) in KINDS {
        let of_strace = calls
            .iter()
            .map(|call| grown([&theirs[0], &theirs[1]], call));
        let of_strace: i64 = of_strace.sum();
        let of_all = grown([all_few, all_many], kind);
        let of_thread = grown([own_few, own_many], kind);
        assert_eq!(of_all, of_strace, "{kind}: {theirs:#?}");
        let of_rounds = (each * (many - few)) as i64;
        assert_eq!(of_thread, of_rounds, "{kind}: {own_many:#?}");
    }
    // Every kind that was counted has been compared.
    for kind in own_many.keys().filter(|kind| *kind != "futex") {
        assert!(KINDS.iter().any(|(k, ..)| k == kind), "{kind}");
    }
}

/// Each round writes lines into a stream and reads them again, by functions of stdio alone.
const STREAMS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    char line[99];
    for (int i = 0; i < atoi(argv[1]); i++) {
        FILE *file = fopen("lines", "w");
        for (int n = 0; n < 400; n++) fprintf(file, "%d of many lines in a file\n", n);
        if (fclose(file) || !(file = fopen("lines", "r"))) return 1;
        while (fgets(line, sizeof line, file)) {}
        rewind(file);
        fscanf(file, "%98s", line);
        getc(file);
        fclose(file);
    }
}
"#;

#[test]
fn streams_make_as_many_calls_as_strace_counts() {
    let folder = scratch();
    let program = compile(folder.path(), "streams.c", STREAMS, &["-w"]);
    let program = program.to_str().expect("UTF-8");
    let [few, many] = ["3", "13"].map(|rounds| {
        let command = [program, rounds];
        let recorded = Program::new(command)
            .folder(folder.path())
            .record(folder.path());
        let report = report(&recorded.trace);
        (report, traced(folder.path(), &command))
    });
    let kinds = [
        ("open", "openat"),
        ("close", "close"),
        ("read", "read"),
        ("write", "write"),
    ];
    for (kind, call) in kinds {
        let ours = [&few.0, &many.0].map(|r| r["system_calls"][kind].as_u64().unwrap_or(0));
        let theirs = [&few.1, &many.1].map(|counts| counts.get(call).copied().unwrap_or(0));
        assert_eq!(
            ours[1] - ours[0],
            theirs[1] - theirs[0],
            "{kind}: {ours:?} {theirs:?}"
        );
        assert!(ours[1] - ours[0] >= 20, "{kind}: {ours:?}");
    }
    let bytes = |report: &Value, kind: &str| report["call_bytes"][kind].as_u64().unwrap_or(0);
    let written = bytes(&many.0, "written") - bytes(&few.0, "written");
    let of_a_round = std::fs::metadata(folder.path().join("lines"))
        .expect("a file")
        .len();
    assert_eq!(written, 10 * of_a_round);
}

/// Each round, `many` makes 12 stats, `some` 6, and `computes` 2, between which nearly all the time passes;
/// `copies` reads and writes. The last of a function is no call that it could be replaced by.
const CALLERS: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static volatile uint64_t sink;
static int zero, null;
static __attribute__((noinline)) void look(int count) {
    struct stat status;
    for (int i = 0; i < count; i++) sink += stat("/", &status);
}
__attribute__((noinline)) void many(void) { look(12); sink++; }
__attribute__((noinline)) void some(void) { look(6); sink++; }
__attribute__((noinline)) void computes(void) {
    for (int i = 0; i < 700000; i++) sink += i;
    look(1);
    for (int i = 0; i < 700000; i++) sink += i;
    look(1);
    sink++;
}
__attribute__((noinline)) void copies(void) {
    char bytes[64];
    for (int i = 0; i < 3; i++) {
        if (read(zero, bytes, sizeof bytes) < 0) abort();
        if (write(null, bytes, sizeof bytes) < 0) abort();
    }
    sink++;
}
int main(int count, char **arguments) {
    zero = open("/dev/zero", O_RDONLY);
    null = open("/dev/null", O_WRONLY);
    for (int i = 0; i < atoi(arguments[1]); i++) { many(); some(); computes(); copies(); }
    return 0;
}
"#;

/// Ticks meet `computes` nearly always; who makes the calls is known all the same. Bounds are at more than
/// four times the error of a thousand samples.
#[test]
fn functions_get_the_calls_that_they_make_however_long_they_run() {
    let folder = scratch();
    let binary = compile(folder.path(), "callers.c", CALLERS, &[]);
    let program = [binary.to_str().expect("UTF-8"), "1500"];
    let theirs = traced(folder.path(), &program);
    let recorded = Program::new(program)
        .options(&["--clock", "tick", "--interval", "100us", "--budget", "0"])
        .record(folder.path());
    let report = report(&recorded.trace);
    let stats = report["system_calls"]["stat"].as_u64().expect("a number");
    assert_eq!(stats, 20 * 1500, "{report:#}");
    // What libc and the loader make of themselves passes no hook: they look for libraries in each folder of a
    // path.
    let of_strace: u64 = KINDS
        .iter()
        .find(|(kind, ..)| *kind == "stat")
        .map_or(0, |kind| {
            kind.1.iter().filter_map(|call| theirs.get(*call)).sum()
        });
    assert!((stats..stats + 500).contains(&of_strace), "{theirs:#?}");

    let functions = report["system_call_functions"].as_array().expect("a list");
    let share = |call: &str, function: &str| {
        let found = functions
            .iter()
            .find(|row| row["call"] == call && row["name"] == function);
        let all = report["system_calls"][call].as_f64().expect("a number");
        found.map_or(0.0, |row| row["total"].as_f64().expect("a number")) / all
    };
    for (function, expected) in [("many", 0.6), ("some", 0.3), ("computes", 0.1)] {
        let share = share("stat", function);
        assert!((share - expected).abs() < 0.07, "{function}: {share}");
    }
    // All of a kind by one function: exact.
    assert_eq!(share("stat", "main"), 1.0);
    assert_eq!(share("stat", "look"), 1.0);
    for call in ["read", "write"] {
        assert_eq!(share(call, "copies"), 1.0, "{call}");
        assert_eq!(share(call, "many"), 0.0, "{call}");
    }
    // By call path, too.
    let sites = report["system_call_sites"].as_array().expect("a list");
    let first = sites.iter().find(|site| site["call"] == "stat");
    let stack = &first.expect("is there")["stack"];
    let names = ["look", "many", "main"];
    assert!(
        names
            .iter()
            .enumerate()
            .all(|(at, name)| stack[at] == *name),
        "{stack:#}"
    );
    // These samples are no evidence of time.
    let own = |name: &str| {
        let functions = report["functions"].as_array().expect("a list");
        let found = functions.iter().find(|row| row["name"] == name);
        found.map_or(0.0, |row| row["self"]["cpu_ns"].as_f64().expect("a number"))
    };
    let all = report["totals"]["cpu_ns"].as_f64().expect("a number");
    assert!(own("computes") > 0.8 * all, "{report:#}");
}

/// Threads copy between a file, a pipe and sockets with every kind of call that moves bytes; the numbers
/// differ.
const MOVERS: &str = r#"
import os, socket, sys, threading
def files():
    f = os.open("moved", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for i in range(300):
        os.pwrite(f, b"x" * (100 + i), 0)
        os.writev(f, [b"a" * 11, b"b" * 22])
        os.lseek(f, 0, 0)
        os.read(f, 50000)
        os.readv(f, [bytearray(7), bytearray(7)])
        os.pread(f, 64, 0)
        os.read(f, 50000)
    try: os.write(-1, b"none")
    except OSError: pass
def sockets():
    a, b = socket.socketpair()
    r, w = os.pipe()
    f = os.open("moved2", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(f, b"y" * 5000)
    for i in range(200):
        a.send(b"z" * (i + 1))
        b.recv(500, socket.MSG_PEEK)
        b.recv(1000)
        b.sendmsg([b"1234", b"56"])
        a.recvmsg(100)
        os.sendfile(w, f, 0, 1000 + i)
        os.read(r, 4096)
for work in (files, sockets):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"#;

/// A thread sleeps five times in `naps` and once in `computes`, where nearly all the time passes; what the
/// kernel counted of it stands in a file.
const SLEEPERS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
static volatile uint64_t sink;
static const struct timespec shortly = { 0, 20000 };
__attribute__((noinline)) void naps(void) { for (int i = 0; i < 5; i++) nanosleep(&shortly, 0); sink++; }
__attribute__((noinline)) void computes(void) {
    for (int i = 0; i < 300000; i++) sink += i;
    nanosleep(&shortly, 0);
    sink++;
}
static void *work(void *unused) {
    for (int i = 0; i < 500; i++) { naps(); computes(); }
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    FILE *file = fopen("switches", "w");
    fprintf(file, "%ld %ld", usage.ru_nvcsw, usage.ru_nivcsw);
    fclose(file);
    return 0;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    return pthread_join(thread, 0);
}
"#;

#[test]
fn wake_ups_are_those_that_the_kernel_counts_and_belong_to_whose_calls_sleep() {
    let folder = scratch();
    let binary = compile(folder.path(), "sleepers.c", SLEEPERS, &[]);
    let recorded = Program::new([binary.to_str().expect("UTF-8")])
        .folder(folder.path())
        .options(&["--interval", "100us", "--budget", "0"])
        .record(folder.path());
    let report = report(&recorded.trace);
    let switches = std::fs::read_to_string(folder.path().join("switches")).expect("is written");
    let switches: Vec<u64> = switches
        .split(' ')
        .map(|n| n.parse().expect("a number"))
        .collect();
    let threads = report["threads"].as_array().expect("a list");
    let thread = threads
        .iter()
        .find(|t| t["is_main"] == false)
        .expect("the thread");
    let woken = thread["wake_ups"].as_u64().expect("a number");
    // Each sleep is one; a sleep may be over before it began, and the CPU may be lost in a call that does not
    // sleep.
    assert!(switches[0] >= 2900, "{switches:?}");
    // Few sleeps are for something else than a call: a page that is not there.
    let (least, most) = (switches[0] - 30, switches[0] + switches[1] + 30);
    assert!((least..=most).contains(&woken), "{woken}, {switches:?}");
    let functions = report["wake_up_functions"].as_array().expect("a list");
    let share = |function: &str| {
        let found = functions.iter().find(|row| row["name"] == function);
        let count = found.map_or(0.0, |row| row["total"].as_f64().expect("a number"));
        count / report["wake_ups"].as_f64().expect("a number")
    };
    let (naps, computes) = (share("naps"), share("computes"));
    assert!((naps - 5.0 / 6.0).abs() < 0.14, "{naps}");
    assert!((computes - 1.0 / 6.0).abs() < 0.14, "{computes}");
}

/// libc reads, writes and closes inside of these calls, by functions that have hooks of their own.
#[test]
fn calls_inside_of_calls_are_no_wake_ups() {
    let folder = scratch();
    let source = r#"
        #define _GNU_SOURCE
        #include <netdb.h>
        #include <stdio.h>
        #include <sys/resource.h>
        int main(void) {
            FILE *file = fopen("/dev/null", "w");
            struct addrinfo *found;
            for (int i = 0; i < 500; i++) {
                fputs("x", file);
                file = freopen("/dev/null", "w", file);
                if (getaddrinfo("localhost", "80", 0, &found) == 0) freeaddrinfo(found);
            }
            struct rusage usage;
            getrusage(RUSAGE_SELF, &usage);
            printf("%ld\n", usage.ru_nvcsw + usage.ru_nivcsw);
        }"#;
    let binary = compile(folder.path(), "inside.c", source, &[]);
    let recorded = Program::new([binary.to_str().expect("UTF-8")]).record(folder.path());
    let switches: u64 = recorded.run.stdout().trim().parse().expect("a number");
    let woken = report(&recorded.trace)["wake_ups"]
        .as_u64()
        .expect("a number");
    // A call may take a page fault or a lock's wait for a switch.
    assert!(woken <= switches + 10, "{woken} of {switches}");
}

/// The bytes that strace saw calls of each thread return, those that read and those that wrote; by thread in
/// the order of their first call.
fn moved_by_strace(folder: &Path, program: &[&str]) -> Vec<(u64, u64)> {
    let out = folder.join("moves.txt");
    let calls = "read,readv,pread64,write,writev,pwrite64,sendto,sendmsg,recvfrom,recvmsg,sendfile,getrandom";
    let mut command = Command::new("strace");
    command
        .current_dir(folder)
        .args([
            "-f",
            "-e",
            &format!("trace={calls}"),
            "-e",
            "signal=none",
            "-o",
        ])
        .arg(&out)
        .args(program);
    let ran = run(command);
    assert!(ran.output.status.success(), "{}", ran.stderr());
    let text = std::fs::read_to_string(&out).expect("strace writes its lines");
    let mut threads: Vec<(&str, u64, u64)> = Vec::new();
    for line in text.lines() {
        let Some((tid, call)) = line.split_once(' ') else {
            continue;
        };
        let result = call.rsplit_once(" = ").map(|(_, result)| result.trim());
        let Some(bytes) = result.and_then(|r| r.parse::<u64>().ok()) else {
            continue;
        };
        if call.contains("MSG_PEEK") {
            continue;
        }
        let name = call.trim_start().split('(').next().unwrap_or("");
        let at = threads.iter().position(|(t, ..)| *t == tid);
        let at = at.unwrap_or_else(|| {
            threads.push((tid, 0, 0));
            threads.len() - 1
        });
        let reads = [
            "read",
            "readv",
            "pread64",
            "recvfrom",
            "recvmsg",
            "sendfile",
            "getrandom",
        ];
        let writes = [
            "write", "writev", "pwrite64", "sendto", "sendmsg", "sendfile",
        ];
        let (is_read, is_write) = (reads.contains(&name), writes.contains(&name));
        assert!(is_read || is_write, "{line}");
        threads[at].1 += if is_read { bytes } else { 0 };
        threads[at].2 += if is_write { bytes } else { 0 };
    }
    threads.into_iter().map(|(_, r, w)| (r, w)).collect()
}

#[test]
fn threads_move_as_many_bytes_as_strace_sees_their_calls_return() {
    let folder = scratch();
    let program = [&python(), "-c", MOVERS];
    let theirs = moved_by_strace(folder.path(), &program);
    let recorded = Program::new(program)
        .folder(folder.path())
        .record(folder.path());
    let report = report(&recorded.trace);
    let threads = report["threads"].as_array().expect("a list");
    let bytes = |of: &Value| {
        let bytes = &of["call_bytes"];
        assert!(bytes.is_object(), "{of:#}");
        let one = |name: &str| bytes[name].as_u64().unwrap_or(0);
        (one("read"), one("written"))
    };
    let own = threads.iter().filter(|t| t["is_main"] == false);
    let mut ours: Vec<(u64, u64)> = own.map(bytes).collect();
    // The first thread that strace sees is the main one.
    let mut theirs = theirs[1..].to_vec();
    ours.sort_unstable();
    theirs.sort_unstable();
    assert_eq!(ours, theirs, "{threads:#?}");
    assert!(
        ours.iter().all(|(r, w)| *r > 10_000 && *w > 10_000),
        "{ours:?}"
    );
    let sum = threads.iter().map(bytes);
    let sum = sum.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert_eq!(bytes(&report), sum, "{report:#}");
}

/// Each round, `large` reads 6000 bytes in one call, `small` 3000 in six, and `computes` 1000, before which
/// nearly all the time passes; `puts` writes 1000.
const READERS: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
static volatile uint64_t sink;
static int zero, null;
static char bytes[6000];
static inline __attribute__((always_inline)) void take(size_t count) { if (read(zero, bytes, count) != (ssize_t)count) abort(); }
__attribute__((noinline)) void large(void) { take(6000); sink++; }
__attribute__((noinline)) void small(void) { for (int i = 0; i < 6; i++) take(500); sink++; }
__attribute__((noinline)) void computes(void) {
    for (int i = 0; i < 300000; i++) sink += i;
    take(1000);
    sink++;
}
__attribute__((noinline)) void puts_some(void) {
    if (write(null, bytes, 1000) != 1000) abort();
    sink++;
}
int main(int count, char **arguments) {
    zero = open("/dev/zero", O_RDONLY);
    null = open("/dev/null", O_WRONLY);
    for (int i = 0; i < atoi(arguments[1]); i++) { large(); small(); computes(); puts_some(); }
    return 0;
}
"#;

/// Bounds are at more than four times the error of the samples that there are at least.
#[test]
fn functions_get_the_bytes_that_their_calls_move() {
    let folder = scratch();
    let binary = compile(folder.path(), "readers.c", READERS, &[]);
    let recorded = Program::new([binary.to_str().expect("UTF-8"), "3000"])
        .options(&["--interval", "100us", "--budget", "0"])
        .record(folder.path());
    let report = report(&recorded.trace);
    assert_eq!(report["call_bytes"]["read"], 10_000 * 3000, "{report:#}");
    assert_eq!(report["call_bytes"]["written"], 1000 * 3000, "{report:#}");
    let functions = report["call_byte_functions"].as_array().expect("a list");
    let share = |kind: &str, function: &str| {
        let found = functions
            .iter()
            .find(|row| row["bytes"] == kind && row["name"] == function);
        let all = report["call_bytes"][kind].as_f64().expect("a number");
        found.map_or(0.0, |row| row["total"].as_f64().expect("a number")) / all
    };
    for (function, expected) in [("large", 0.6), ("small", 0.3), ("computes", 0.1)] {
        let share = share("read", function);
        assert!((share - expected).abs() < 0.13, "{function}: {share}");
    }
    for (kind, function) in [
        ("read", "main"),
        ("written", "main"),
        ("written", "puts_some"),
    ] {
        assert!(
            share(kind, function) > 0.99,
            "{kind} {function}: {report:#}"
        );
    }
    let sites = report["call_byte_sites"].as_array().expect("a list");
    let first = sites.iter().find(|site| site["bytes"] == "read");
    let stack = &first.expect("is there")["stack"];
    let names = ["take", "large", "main"];
    assert!(
        (names.iter().enumerate()).all(|(at, name)| stack[at] == *name),
        "{stack:#}"
    );
}
