//! Real programs under the real hooks: same output and status as without, and a trace that says what
//! they did.

use stackbeat_core::probe::{Cause, Probe};
use stackbeat_tests::{
    Background, Program, run, scratch, stackbeat, verbatim, wait_until, without_numbers, workspace,
};
use std::path::Path;
use std::process::{Command, Stdio};

fn sh(folder: &Path, script: &str) {
    let status = Command::new("bash")
        .args(["-euc", script])
        .current_dir(folder)
        .status()
        .expect("bash runs");
    assert!(status.success(), "{script}");
}

/// Names of the programs whose images the trace contains.
fn executables(trace: &stackbeat_tests::plain_reader::Trace) -> Vec<String> {
    trace
        .processes
        .values()
        .map(|p| {
            p.executable
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

#[test]
fn python_runs_modules_of_its_own_test_suite() {
    let folder = scratch();
    // Some distributions leave the test suite out: then the packages' own self-tests serve.
    let has_suite = Command::new("python3")
        .args(["-c", "import test.test_json"])
        .stderr(Stdio::null())
        .status()
        .expect("python3 runs")
        .success();
    let modules: &[&str] = if has_suite {
        &[
            "test.test_json",
            "test.test_threading_local",
            "test.test_dict",
            "test.test_heapq",
        ]
    } else {
        &["unittest.test"]
    };
    let command = ["python3", "-m", "unittest"].iter().chain(modules);
    let recorded = Program::new(command)
        .folder(folder.path())
        .record_and_compare(folder.path(), without_numbers);
    assert!(
        recorded.run.stderr().contains("OK"),
        "{}",
        recorded.run.stderr()
    );
    let trace = recorded.decode();
    trace.assert_sound();
    assert_eq!(trace.lost_records(), 0);
    assert!(
        trace.sample_count() > 100,
        "{} samples",
        trace.sample_count()
    );
    assert!(trace.cpu_share(|name| name.contains("Py") || name.contains("python")) > 0.5);
}

#[test]
fn sqlite_inserts_and_joins() {
    let folder = scratch();
    let script = folder.path().join("shop.sql");
    let sql = "
        pragma journal_mode=off;
        create table customer(id integer primary key, name text);
        create table purchase(id integer primary key, customer int, cents int);
        with recursive n(i) as (select 1 union all select i+1 from n where i<20000)
          insert into customer select i, 'customer ' || i from n;
        with recursive n(i) as (select 1 union all select i+1 from n where i<200000)
          insert into purchase select i, i*7919 % 20000, i % 1000 from n;
        create index by_customer on purchase(customer);
        select name, sum(cents) s from customer c join purchase p on p.customer=c.id
          group by c.id order by s desc, name limit 20;
        select count(*), sum(a.cents*b.cents) from purchase a join purchase b
          on a.customer=b.customer where a.id<20000;
    ";
    std::fs::write(&script, sql).unwrap();
    let recorded = Program::new(["sqlite3", ":memory:"])
        .input(&script)
        .record_and_compare(folder.path(), verbatim);
    assert_eq!(recorded.run.stdout().lines().count(), 22);
    let trace = recorded.decode();
    trace.assert_sound();
    assert_eq!(trace.lost_records(), 0);
    let share = trace.cpu_share(|name| name == "sqlite3_step");
    assert!(share > 0.8, "sqlite3_step has {share} of the CPU time");
}

#[test]
fn redis_server_under_its_own_benchmark() {
    let folder = scratch();
    let socket = folder.path().join("redis.sock");
    let socket = socket.to_str().unwrap();
    let server = Program::new([
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        socket,
        "--save",
        "",
        "--io-threads",
        "2",
        "--daemonize",
        "no",
    ])
    .folder(folder.path());
    let trace_file = folder.path().join("trace.beat");
    let child = server
        .recorded_command(&trace_file)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server starts");
    let mut child = Background(child);
    let redis = |arguments: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-s", socket]).args(arguments);
        run(command)
    };
    wait_until("redis answers", || redis(&["ping"]).stdout() == "PONG\n");
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args([
        "-s",
        socket,
        "-q",
        "-n",
        "20000",
        "-c",
        "20",
        "-t",
        "set,get,lpush,sort",
    ]);
    let benchmark = run(benchmark);
    assert!(benchmark.output.status.success(), "{}", benchmark.stderr());
    redis(&["set", "answer", "42"]);
    assert_eq!(redis(&["get", "answer"]).stdout(), "42\n");
    redis(&["shutdown", "nosave"]);
    assert!(child.0.wait().unwrap().success());

    let trace = stackbeat_tests::plain_reader::Trace::read(&trace_file);
    trace.assert_sound();
    assert_eq!(trace.lost_records(), 0);
    // The main thread waits in epoll; background threads wait on a condition variable.
    assert!(trace.blocked_in(Cause::Poll, "") > 0);
    assert!(trace.threads.len() >= 4, "{:?}", trace.threads);
    let names: Vec<&str> = trace.threads.values().map(|t| t.name.as_str()).collect();
    assert!(
        names.iter().any(|name| name.starts_with("bio_")),
        "{names:?}"
    );
}

#[test]
fn git_reads_the_history_of_a_large_repository() {
    let folder = scratch();
    let repository = folder.path().join("repository");
    // 1,500 commits over 300 files, as a stream.
    let import = r#"
        git init -q repository && cd repository
        python3 - <<'P' | git fast-import --quiet
import random
random.seed(7)
files = {}
for n in range(1500):
    print("commit refs/heads/main\ncommitter A <a@example.org> %d +0000\ndata 9\ncommit %02d" % (1500000000 + n * 60, n % 100))
    for _ in range(3):
        name = "src/part%d/file%d.txt" % (random.randrange(20), random.randrange(15))
        lines = files.setdefault(name, [])
        lines.insert(random.randrange(len(lines) + 1), "line %d of change %d" % (random.randrange(1 << 30), n))
        text = "\n".join(lines) + "\n"
        print("M 644 inline %s\ndata %d\n%s" % (name, len(text), text))
P
    "#;
    sh(folder.path(), import);
    let recorded = Program::new(["git", "--no-pager", "log", "-p", "--stat", "main"])
        .folder(&repository)
        .record_and_compare(folder.path(), verbatim);
    assert!(recorded.run.output.stdout.len() > 500_000);
    let trace = recorded.decode();
    trace.assert_sound();
    assert_eq!(trace.lost_records(), 0);
    assert!(trace.cpu_share(|name| name.contains("inflate")) > 0.02);
    assert!(
        trace.cpu_share(|name| name.starts_with("git+0x")) > 0.5,
        "functions of a stripped program"
    );
}

#[test]
fn node_with_workers_and_timers() {
    let folder = scratch();
    let script = folder.path().join("work.js");
    let source = r#"
        const { Worker, isMainThread, parentPort } = require('worker_threads');
        const crypto = require('crypto'), fs = require('fs');
        function churn(n) { let o = []; for (let i = 0; i < n; i++) o.push({ i, s: 'x' + i }); return JSON.stringify(o).length; }
        if (isMainThread) {
            const workers = [1, 2].map(() => new Promise(done => new Worker(__filename).on('message', done)));
            setTimeout(() => fs.readFile(__filename, 'utf8', (e, text) => {
                Promise.all(workers).then(all => {
                    console.log(all.join(), text.length, churn(50000));
                    console.log(crypto.pbkdf2Sync('a', 'b', 60000, 32, 'sha256').toString('hex'));
                });
            }), 50);
        } else parentPort.postMessage(churn(100000));
    "#;
    std::fs::write(&script, source).unwrap();
    let recorded = Program::new(["node", "--perf-basic-prof", "work.js"])
        .folder(folder.path())
        .record_and_compare(folder.path(), verbatim);
    let trace = recorded.decode();
    trace.assert_sound();
    assert!(
        trace.threads.len() >= 7,
        "main, platform threads, workers: {}",
        trace.threads.len()
    );
    assert!(trace.cpu_share(|name| name.contains("PBKDF2") || name.contains("pbkdf2")) > 0.02);
    for process in trace.processes.values() {
        // Left by V8 for tools like us.
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", process.pid));
    }
}

#[test]
fn gcc_compiles_in_many_short_processes() {
    let folder = scratch();
    let source: String = (0..300)
        .map(|i| format!("int f{i}(int *a, int n) {{ int s = {i}; for (int i = 0; i < n; i++) s += a[i] * {i}; return s; }}\n"))
        .collect();
    let main = "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(\"built\"); }\n";
    std::fs::write(folder.path().join("big.c"), format!("{source}{main}")).unwrap();
    let compile = Program::new(["gcc", "-O2", "-pipe", "-o", "big", "big.c"]).folder(folder.path());
    let plain = compile.run();
    assert!(plain.output.status.success());
    let expected = std::fs::read(folder.path().join("big")).unwrap();
    let recorded = compile.record_and_compare(folder.path(), verbatim);
    assert_eq!(
        std::fs::read(folder.path().join("big")).unwrap(),
        expected,
        "another program came out"
    );
    let trace = recorded.decode();
    trace.assert_sound();
    let names = executables(&trace);
    for program in ["cc1", "as", "collect2", "ld"] {
        let found = names.iter().any(|name| {
            name == program
                || name.ends_with(&format!("-{program}"))
                || program == "ld" && name.contains("ld")
        });
        assert!(found, "no {program} among {names:?}");
    }
    // cc1 does the work.
    let cc1: Vec<u32> = trace
        .processes
        .values()
        .filter(|p| p.executable.ends_with("/cc1"))
        .map(|p| p.upid)
        .collect();
    let cpu = |of_cc1: bool| -> u64 {
        trace
            .threads
            .values()
            .filter(|t| cc1.contains(&t.upid) == of_cc1)
            .filter_map(|t| trace.samples.get(&t.utid)?.last().map(|row| row.cpu_ns))
            .sum()
    };
    assert!(
        cpu(true) > 2 * cpu(false),
        "cc1 {} ns, others {} ns",
        cpu(true),
        cpu(false)
    );
}

#[test]
fn xz_compresses_in_two_threads() {
    let folder = scratch();
    sh(
        folder.path(),
        "python3 -c \"
import random
random.seed(3)
words = [bytes(random.choices(b'abcdefghij', k=random.randrange(2, 9))) for _ in range(3000)]
open('data', 'wb').write(b' '.join(random.choices(words, k=900000)))\"",
    );
    let compress = Program::new(["xz", "-T2", "-1", "--block-size=1MiB", "-k", "-c", "data"])
        .folder(folder.path());
    let plain = compress.run();
    let recorded = compress.record(folder.path());
    assert_eq!(plain.output.status, recorded.run.output.status);
    assert!(
        plain.output.stdout == recorded.run.output.stdout,
        "other bytes came out"
    );
    let trace = recorded.decode();
    trace.assert_sound();
    assert_eq!(trace.lost_records(), 0);
    assert!(trace.threads.len() >= 3);
    // The workers compute inside liblzma nearly all the time, the main thread waits for them.
    let share = trace.cpu_share(|name| name.starts_with("liblzma.so") || name.starts_with("lzma_"));
    assert!(share > 0.7, "liblzma has {share} of the CPU time");
}

#[test]
fn shell_pipelines_keep_their_order_and_status() {
    let folder = scratch();
    let script = "set -o pipefail; seq 20000 | sort -R --random-source=<(yes) | sort -n | tail -3; (exit 3) | cat; echo status $?; exit 7";
    let recorded = Program::new(["bash", "-c", script])
        .folder(folder.path())
        .record_and_compare(folder.path(), verbatim);
    assert_eq!(recorded.run.output.status.code(), Some(7));
    let trace = recorded.decode();
    trace.assert_sound();
    let names = executables(&trace);
    for program in ["bash", "seq", "sort", "tail", "cat"] {
        assert!(
            names.iter().any(|name| name == program),
            "no {program} among {names:?}"
        );
    }
}

#[test]
fn allocation_counters_are_exact_and_probes_can_be_chosen() {
    let folder = scratch();
    let list = Program::new(["ls", "-lR", workspace().join("core").to_str().unwrap()])
        .options(&["--probes", "alloc"]);
    let recorded = list.record_and_compare(folder.path(), verbatim);
    let trace = recorded.decode();
    trace.assert_sound();
    for (_, row) in trace.all_samples() {
        let probe = Probe::from_number(row.probe).expect("a known probe");
        let category = probe.category().name();
        assert!(
            ["alloc", "sampler", "user", "thread", "process"].contains(&category),
            "{} was not asked for",
            probe.name()
        );
    }
    let none = run(Command::new(stackbeat()));
    assert_eq!(none.output.status.code(), Some(2), "no arguments: usage");
}

#[test]
fn a_program_started_by_a_link_is_called_by_the_link() {
    const SOURCE: &str = "#include <sys/wait.h>\n#include <unistd.h>\n\
        int main(int argc, char **argv) {\n\
            if (fork() == 0) _exit(0);\n\
            wait(0);\n\
            return argc > 1 && execv(argv[1], argv + 1);\n\
        }\n";
    let folder = scratch();
    let file = stackbeat_tests::compile(folder.path(), "target.c", SOURCE, &[]);
    for link in ["first", "second"] {
        std::os::unix::fs::symlink(&file, folder.path().join(link)).expect("a link");
    }
    std::fs::hard_link(&file, folder.path().join("third")).expect("a link");
    // The kernel's own link to the file says nothing of what it is called.
    let command = ["./first", "./second", "./third", "/proc/self/exe"];
    let recorded = Program::new(command)
        .folder(folder.path())
        .record(folder.path());
    let report = stackbeat_tests::report(&recorded.trace);
    let processes = stackbeat_tests::tool_json::array(&report, "processes");
    let names: Vec<_> = processes.filter_map(|p| p["name"].as_str()).collect();
    let expected = ["first", "second", "third", "third"];
    assert_eq!(names, expected.map(|name| [name, name]).concat());
}

#[test]
fn locks_of_rusts_library_are_locks_and_its_conditions_are_waits() {
    let folder = scratch();
    let program = stackbeat_tests::example("std_locks");
    let recorded = Program::new([program.to_str().expect("UTF-8")]).record(folder.path());
    let report = stackbeat_tests::report(&recorded.trace);
    let sites: Vec<_> = stackbeat_tests::tool_json::array(&report, "blocking_sites").collect();
    for (function, call, cause) in [
        ("std_locks::in_mutex", "futex lock", "lock"),
        ("std_locks::in_reader", "futex lock", "lock"),
        ("std_locks::in_condition", "futex wait", "wait"),
    ] {
        let longest = sites
            .iter()
            .filter(|site| site["stack"].to_string().contains(function))
            .max_by_key(|site| site["total_ns"].as_u64())
            .unwrap_or_else(|| panic!("{function} does not wait: {sites:#?}"));
        assert_eq!(
            (&longest["call"], &longest["cause"]),
            (&call.into(), &cause.into())
        );
    }
}
