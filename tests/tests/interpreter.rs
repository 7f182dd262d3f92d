//! What the other tests show on small programs of their own, on a real one: python, as its users run it.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use stackbeat_tests::process_tree::send;
use stackbeat_tests::tool_json::array;
use stackbeat_tests::{Background, python, until};

use stackbeat_tests::tool::{binary, command_in, json, stackbeat, text};

fn write(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("script.py");
    std::fs::write(&path, script).expect("is written");
    path
}

/// One run with and one without: what the interpreter calls by itself is the same in both.
#[test]
fn calls_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = write(
        folder.path(),
        "import os, sys, time\n\
         n = int(sys.argv[1])\n\
         f = os.open(sys.argv[0], os.O_RDONLY)\n\
         for i in range(n):\n    os.pread(f, 10, 0)\n\
         for i in range(2 * n):\n    os.readv(f, [bytearray(1)])\n\
         r, w = os.pipe()\n\
         for i in range(3 * n):\n    os.writev(w, [b'x']); os.read(r, 1)\n",
    );
    let script = script.to_str().expect("UTF-8");
    let counted = |n: &str| {
        let python = python();
        let arguments = ["probes", "--count", "--json", "--", &python, script, n];
        let output = stackbeat(folder.path(), &arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let counted: Value = serde_json::from_slice(&output.stderr).expect("JSON");
        move |name: &str| {
            let mut found = array(&counted, "functions").filter(|f| f["name"] == name);
            found.next().and_then(|f| f["calls"].as_u64()).unwrap_or(0)
        }
    };
    let (none, many) = (counted("0"), counted("1000"));
    for (names, expected) in [
        (["pread", "pread64"], 1000),
        (["readv", "readv64"], 2000),
        (["writev", "writev64"], 3000),
        (["read", "__read_chk"], 3000),
    ] {
        let sum = |of: &dyn Fn(&str) -> u64| names.iter().map(|name| of(name)).sum::<u64>();
        assert_eq!(sum(&many) - sum(&none), expected, "{names:?}");
    }
}

/// Through the functions that `stackbeat.h` looks for.
#[test]
fn marks_scopes_and_counters_come_from_python_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = write(
        folder.path(),
        "import ctypes, time\n\
         event = ctypes.CDLL(None).stackbeat_v1_event\n\
         event.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64]\n\
         say = lambda kind, name, value=0: event(kind, name.encode(), len(name.encode()), value)\n\
         say(0, 'begins')\n\
         for i in range(20):\n    say(1, 'turn'); time.sleep(0.005); say(2, ''); say(10, 'turns', i)\n",
    );
    let script = script.to_str().expect("UTF-8");
    let record = ["record", "-q", "-o", "t.beat", "--", &python(), script];
    let recorded = stackbeat(folder.path(), &record);
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let report = json(folder.path(), &["report", "--json", "t.beat"]);
    assert!(array(&report, "events").any(|e| e["text"] == "begins"));
    let turn = array(&report, "scopes").find(|s| s["name"] == "turn");
    let turn = turn.expect("the scope");
    assert_eq!(turn["count"], 20);
    assert!(turn["total_ns"].as_u64() >= Some(100_000_000), "{turn}");
    let turns = array(&report, "counters").find(|c| c["name"] == "turns");
    let turns = turns.expect("the counter");
    assert_eq!((&turns["values"], &turns["max"]), (&20.into(), &19.into()));
}

/// A thread that waits for a pipe is dumped while it waits.
#[test]
fn a_thread_that_waits_for_long_is_dumped() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = write(
        folder.path(),
        "import os, threading, time\n\
         r, w = os.pipe()\n\
         waits = threading.Thread(target=lambda: os.read(r, 1))\n\
         waits.start()\n\
         while not os.path.exists('seen'): sum(range(10000)); time.sleep(0.001)\n\
         os.write(w, b'x')\n\
         waits.join()\n",
    );
    let on_block = ["--dump-on-block", "300ms", "--dump-on-block-in", "io"];
    let arguments = ["record", "-q", "--mode", "ring", "-o", "t.beat"];
    let mut recorder = Background(
        command_in(folder.path(), &arguments)
            .args(on_block)
            .arg("--")
            .arg(python())
            .arg(script)
            .spawn()
            .expect("starts"),
    );
    // The summary in its header is written last.
    let report = until("the dump", || {
        let output = stackbeat(folder.path(), &["report", "--json", "t.dump-1.beat"]);
        let report: Value = serde_json::from_slice(&output.stdout).ok()?;
        (report["recording"]["outcome"] == "finished").then_some(report)
    });
    std::fs::write(folder.path().join("seen"), "").expect("is written");
    assert!(recorder.0.wait().expect("ends").success());
    let is_reason = |e: &Value| e["text"].as_str().is_some_and(|t| t.contains("in read"));
    assert!(
        array(&report, "events").any(is_reason),
        "{}",
        report["events"]
    );
}

/// Two threads of an interpreter that hold what the other wants: locks of a library that python code calls.
#[test]
fn a_deadlock_is_seen_while_it_lasts() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = write(
        folder.path(),
        "import ctypes, threading\n\
         c = ctypes.CDLL(None)\n\
         locks = [ctypes.create_string_buffer(64) for i in range(2)]\n\
         both = threading.Barrier(2)\n\
         def hold(own, other):\n    c.pthread_mutex_lock(own); both.wait(); c.pthread_mutex_lock(other)\n\
         for i in range(2):\n    threading.Thread(target=hold, args=(locks[i], locks[1 - i])).start()\n",
    );
    let arguments = ["record", "-q", "-o", "t.beat", "--"];
    let mut recorder = Background(
        command_in(folder.path(), &arguments)
            .arg(python())
            .arg(script)
            .stderr(Stdio::null())
            .spawn()
            .expect("starts"),
    );
    let session = recorder.0.id().to_string();
    let now = until("the deadlock", || {
        let output = stackbeat(folder.path(), &["status", "--json", "--locks", &session]);
        let now: Value = serde_json::from_slice(&output.stdout).ok()?;
        // The trace has those that last.
        let lasts =
            array(&now, "waits").all(|wait| wait["waited_ns"].as_u64() > Some(1_000_000_000));
        (lasts && now["deadlocks"][0].as_array().map(Vec::len) == Some(2)).then_some(now)
    });
    for wait in array(&now, "waits") {
        assert_eq!(wait["call"], "pthread_mutex_lock", "{wait}");
    }
    let pid = now["waits"][0]["pid"].as_u64().expect("a pid") as u32;
    send("-KILL", pid);
    recorder.0.wait().expect("ends");
    let report = json(folder.path(), &["report", "--json", "t.beat"]);
    assert_eq!(array(&report, "deadlocks").count(), 1);
}

/// With a budget, python that calls malloc for each object is captured less often, and its hooks of
/// allocation go; the recording, its start included, costs less than half of what it does without.
#[test]
fn a_budget_is_kept_by_longer_intervals_and_without_hooks_of_allocation() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = write(
        folder.path(),
        "import time\n\
         end = time.process_time() + 4\n\
         while time.process_time() < end: [str(i) for i in range(10000)]\n",
    );
    let cost = |options: &[&str]| {
        let arguments = [
            &["record", "-q", "-f", "--clock", "tick", "-o", "t.beat"],
            options,
        ]
        .concat();
        let recorded = command_in(folder.path(), &arguments)
            .arg("--")
            .arg(python())
            .arg(&script)
            .env("PYTHONMALLOC", "malloc")
            .output()
            .expect("runs");
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
        let info = json(folder.path(), &["info", "--json", "t.beat"]);
        let longest = array(&info, "intervals").filter_map(|i| i["interval_ns"].as_u64());
        let percent = info["cost"]["percent"].as_f64().expect("a number");
        (percent, longest.max().expect("an interval"))
    };
    let mut tries = Vec::new();
    // Beside other programs' work the recorder's own costs more, and this program gets less done: a few
    // tries.
    let is_kept = (0..4).any(|_| {
        let (free, kept) = (cost(&["--budget", "0"]), cost(&["--budget", "1%"]));
        assert_eq!(free.1, 1_000_000);
        tries.push((free, kept));
        kept.1 > 2_000_000 && kept.0 < free.0 / 2.0
    });
    assert!(is_kept, "{tries:?}");
    let report = json(folder.path(), &["report", "--json", "t.beat"]);
    assert!(
        report["recording"]["counts_end_ns"].is_u64(),
        "{}",
        report["recording"]
    );
}

/// A group with a limit of memory, as containers have; `None` where this user may not make one.
struct Group(PathBuf);

impl Group {
    fn with_limit(bytes: u64) -> Option<Group> {
        let name = format!("stackbeat-test-{}", std::process::id());
        for (controller, limit) in [("memory", "memory.limit_in_bytes"), ("", "memory.max")] {
            let at = Path::new("/sys/fs/cgroup").join(controller).join(&name);
            if std::fs::create_dir(&at).is_ok() {
                let group = Group(at);
                if std::fs::write(group.0.join(limit), bytes.to_string()).is_ok() {
                    return Some(group);
                }
            }
        }
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended.
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn limits_of_the_group_are_counters() {
    const LIMIT: u64 = 512 << 20;
    let Some(group) = Group::with_limit(LIMIT) else {
        eprintln!("this user may make no cgroup with a limit of memory: not tested");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let join = "echo $$ > \"$1/cgroup.procs\"; shift; exec \"$@\"";
    // It grows between two looks, and does nothing when the next one is due.
    let script = "import time; time.sleep(0.6); kept = bytearray(50 << 20); time.sleep(2.5)";
    let recorded = Command::new("sh")
        .args(["-c", join, "sh"])
        .arg(&group.0)
        .args([binary(), "record", "-q", "-o", "t.beat", "--"])
        .args([&python(), "-c", script])
        .current_dir(folder.path())
        .output()
        .expect("runs");
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let report = json(folder.path(), &["report", "--json", "t.beat"]);
    let counter = |name: &str| {
        let found = array(&report, "counters").find(|c| c["name"] == name);
        found.and_then(|c| c["max"].as_u64()).unwrap_or_default()
    };
    assert_eq!(
        counter("cgroup memory limit"),
        LIMIT,
        "{}",
        report["counters"]
    );
    let used = counter("cgroup memory");
    assert!((50 << 20..LIMIT).contains(&used), "{used}");
}
