//! System calls by kind and thread, against strace, which counts them in the kernel.

use serde_json::Value;
use stackbeat_tests::{Program, python, report, run, scratch};
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

type Counts = BTreeMap<String, u64>;

/// By kind: what all threads made, and what the script's own thread did.
fn counted(folder: &Path, rounds: &str) -> (Counts, Counts) {
    let program = Program::new([&python(), "-c", SCRIPT, rounds]);
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
fn traced(folder: &Path, rounds: &str) -> Counts {
    let out = folder.join("strace.txt");
    let mut command = Command::new("strace");
    command
        .current_dir(folder)
        .args(["-f", "-c", "-o"])
        .arg(&out)
        .args([&python(), "-c", SCRIPT, rounds]);
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

/// What python's start and end do beside the rounds is the same in both runs of each, and cancels out: libc's own
/// calls there (the loader, directories) pass no hook.
#[test]
fn python_makes_as_many_calls_of_each_kind_as_strace_counts() {
    let folder = scratch();
    let (few, many) = (20, 60);
    // The first start writes what python compiles its modules to, where nobody has used them before.
    let warm_up = Program::new([&python(), "-c", SCRIPT, "1"]);
    let warm_up = warm_up.folder(folder.path()).run();
    assert!(warm_up.output.status.success(), "{}", warm_up.stderr());
    let ours = [few, many].map(|rounds| counted(folder.path(), &rounds.to_string()));
    let theirs = [few, many].map(|rounds| traced(folder.path(), &rounds.to_string()));
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
