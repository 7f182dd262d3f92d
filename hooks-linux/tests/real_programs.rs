//! Real programs under the agent print what they print without it, and are seen.
//!
//! A program that is not installed is passed over (named in the test's output).

use stackbeat_tests::c_programs::{Session, agent, assert_same, compile, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|f| f.join(program))
        .find(|f| f.exists())
}

/// Runs a shell script both ways; `needs` are the programs it calls.
fn same(needs: &[&str], script: &str) {
    if let Some(missing) = needs.iter().find(|p| installed(p).is_none()) {
        eprintln!("passed over: {missing} is not installed");
        return;
    }
    let shell = Path::new("/bin/sh");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fresh = |name: &str| {
        let f = folder.path().join(name);
        std::fs::create_dir(&f).expect("a folder");
        f
    };
    let plain = run(Command::new(shell)
        .arg("-c")
        .arg(script)
        .current_dir(fresh("plain")));
    let session = Session::new()
        .tick(Duration::from_millis(1))
        .interrupt(Duration::from_millis(1));
    let hooked = run(session
        .command(shell)
        .arg("-c")
        .arg(script)
        .current_dir(fresh("hooked")));
    assert_same(script, &plain, &hooked);
    assert!(
        plain.status.success(),
        "{}",
        String::from_utf8_lossy(&plain.stderr)
    );
    let samples: u64 = session.samples().values().sum();
    assert!(samples > 10, "only {samples} samples");
}

#[test]
fn python() {
    same(
        &["python3"],
        "python3 -m test -q test_json test_threading_local test_struct 2>&1 | grep -v -i 'duration\\|sec\\|rss\\|load\\|seed' | head -20
         python3 -c 'import subprocess, threading, json
t = [threading.Thread(target=lambda: sum(range(200000))) for _ in range(4)]
[x.start() for x in t]; [x.join() for x in t]
print(subprocess.run([\"echo\", \"child\"], capture_output=True, env={}).stdout)
print(json.dumps({str(i): i for i in range(1000)})[:50])'",
    );
}

#[test]
fn sqlite() {
    same(
        &["sqlite3"],
        "sqlite3 db 'create table t(a integer primary key, b text);
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
         insert into t select i, hex(i * 7919) from n;
         select count(*), sum(length(x.b)) from t x join t y on x.a = y.a + 1;'",
    );
}

#[test]
fn git() {
    same(
        &["git"],
        "export GIT_AUTHOR_DATE=2000-01-01T00:00:00Z GIT_COMMITTER_DATE=2000-01-01T00:00:00Z
         export GIT_CONFIG_GLOBAL=/dev/null
         git init -q -b main . && git config user.name n && git config user.email e
         for i in 1 2 3 4 5; do seq $((i * 1000)) > file$i; git add . ; git commit -qm $i; done
         git log -p --stat | cksum; git gc -q; git fsck --full 2>&1; git rev-parse HEAD",
    );
}

#[test]
fn node() {
    same(
        &["node"],
        "node -e 'const {Worker, isMainThread} = require(\"worker_threads\");
         const fs = require(\"fs\");
         const w = new Worker(\"let s = 0; for (let i = 0; i < 1e6; i++) s += i; require(\\\"worker_threads\\\").parentPort.postMessage(s)\", {eval: true});
         w.on(\"message\", m => console.log(m));
         fs.promises.readFile(\"/etc/passwd\").then(b => console.log(b.length));
         setTimeout(() => console.log(JSON.stringify([...Array(1000).keys()]).length), 50);' | sort",
    );
}

#[test]
fn gcc() {
    same(
        &["gcc"],
        "for i in 1 2 3; do printf '#include <stdio.h>\nint main(void) { puts(\"hello %d\"); return 0; }\n' $i > a$i.c; done
         for i in 1 2 3; do gcc -O2 -o a$i a$i.c && ./a$i; done; gcc -c missing.c 2>&1; true",
    );
}

#[test]
fn xz() {
    same(
        &["xz"],
        "seq 1000000 > numbers; xz -T2 -2 --block-size=1MiB -k numbers; cksum < numbers.xz; xz -dc -T2 numbers.xz | cksum",
    );
}

#[test]
fn redis() {
    same(
        &["redis-server", "redis-cli", "redis-benchmark"],
        "redis-server --port 0 --unixsocket $PWD/s --save '' --daemonize yes --pidfile $PWD/pid > log
         for i in 1 2 3 4 5 6 7 8 9 10; do redis-cli -s s ping > /dev/null 2>&1 && break; sleep 0.1; done
         redis-benchmark -s s -n 5000 -c 10 -q -t set,get,lpush > /dev/null
         redis-cli -s s set key value; redis-cli -s s get key; redis-cli -s s llen mylist
         redis-cli -s s shutdown nosave; true",
    );
}

#[test]
fn shells_and_pipes() {
    same(
        &["find", "sort", "awk", "perl"],
        "find /usr/include -name '*.h' | sort | awk '{ n += length } END { print (NR > 0), (n > 0) }'
         perl -e 'my $p = open(my $f, \"-|\", \"echo from perl\"); print <$f>; close $f; fork == 0 and exit 3; wait; print $? >> 8, \"\\n\"'
         sh -c 'trap \"echo trapped\" USR1; kill -USR1 $$; echo after'",
    );
}

/// The program's own allocator stays in use, before and behind the agent, and AddressSanitizer accepts
/// that it is not the first library.
#[test]
fn other_allocators_and_sanitizers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let agent = agent().to_str().expect("UTF-8");
    let program = compile(folder.path(), "threads.cpp", &[]);
    let plain = run(&mut Command::new(&program));
    for allocator in [
        "libjemalloc.so.2",
        "libtcmalloc.so.4",
        "libtcmalloc_minimal.so.4",
    ] {
        let path = Path::new("/usr/lib/x86_64-linux-gnu").join(allocator);
        if !path.exists() {
            eprintln!("passed over: {allocator} is not installed");
            continue;
        }
        let behind = format!("{agent}:{}", path.display());
        let before = format!("{}:{agent}", path.display());
        for preload in [&behind, &before] {
            let session = Session::new().tick(Duration::from_millis(1));
            let hooked = run(session.command(&program).env("LD_PRELOAD", preload));
            assert_same(preload, &plain, &hooked);
            // One that comes first keeps its calls to itself.
            let seen = session.total(|t| t.allocations.load(Ordering::Relaxed));
            assert!(seen > 1000 || preload == &before, "{preload}: {seen}");
        }
    }
    for sanitizer in ["address", "leak", "thread", "undefined"] {
        let option = format!("-fsanitize={sanitizer}");
        let program = compile(folder.path(), "threads.cpp", &[&option]);
        let session = Session::new()
            .tick(Duration::from_millis(1))
            .interrupt(Duration::from_millis(1));
        let hooked = run(&mut session.command(&program));
        assert_same(sanitizer, &plain, &hooked);
    }
}

/// Unpatched hooks are called no more, by libraries and programs with slots of each kind: bound lazily, at
/// the start, and read-only from then on; also where the dynamic linker was started as the program.
#[test]
fn unpatched_hooks_are_out_of_the_way() {
    /// Each is captured, which takes an agent without optimization some 50 µs.
    const BLOCKS: u64 = 10_000;
    let allocations = |session: &Session| session.total(|t| t.allocations.load(Ordering::Relaxed));
    let folder = tempfile::tempdir().expect("a folder");
    let bindings: [(&str, &[&str]); 3] = [
        ("lazy", &["-Wl,-z,lazy"]),
        ("now", &["-Wl,-z,now", "-Wl,-z,relro"]),
        ("fixed", &["-no-pie", "-fno-pie", "-fno-plt"]),
    ];
    let mut commands: Vec<(String, PathBuf, Vec<String>)> = Vec::new();
    for (name, options) in bindings {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).expect("a folder");
        let program = compile(&place, "churn.c", options);
        let dynamic_linkers = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
        // A program at bias 0 looks like the dynamic linker to who believes AT_BASE.
        let linkers = dynamic_linkers.iter().filter(|_| name == "fixed");
        for linker in linkers.map(PathBuf::from).filter(|path| path.exists()) {
            let path = program.to_str().expect("UTF-8").to_owned();
            commands.push(("ld.so".to_owned(), linker, vec![path, BLOCKS.to_string()]));
        }
        commands.push((name.to_owned(), program, vec![BLOCKS.to_string()]));
    }
    let script = format!("print(len([str(i) for i in range({BLOCKS})]))");
    if let Some(python) = installed("python3") {
        commands.push((
            "python".to_owned(),
            python,
            vec!["-S".into(), "-c".into(), script],
        ));
    }
    for (name, program, arguments) in commands {
        let with = |session: Session| {
            let mut command = session.command(&program);
            let output = run(command.args(&arguments).env("PYTHONMALLOC", "malloc"));
            (output, allocations(&session))
        };
        let plain = run(Command::new(&program).args(&arguments));
        let (hooked, all) = with(Session::new().capture_all());
        assert_same(&name, &plain, &hooked);
        assert!(all > BLOCKS, "{name}: {all}");
        let (unpatched, few) = with(Session::new().unpatch_allocation().capture_all());
        assert_same(&name, &plain, &unpatched);
        assert!(few < all / 20, "{name}: {few} of {all} were counted");
    }
}

/// Also in a process that the agent comes to later, where a library that is loaded makes it look for slots
/// again; and while other threads are in hooks, whose slots are filled and emptied meanwhile.
#[test]
fn unpatched_hooks_stay_out_of_a_process_that_is_attached_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = agent().to_str().expect("UTF-8");
    for binding in ["-Wl,-z,lazy", "-Wl,-z,now"] {
        let program = compile(folder.path(), "late.c", &["-Wl,-z,relro", binding, "-ldl"]);
        let attach = |session: Session, times: &str, blocks: &str| {
            let arguments = [agent, session.path(), times, blocks];
            let output = run(Command::new(&program).args(arguments));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                said.ends_with("left\n"),
                "{binding}: {said} {:?}",
                output.status
            );
            session.total(|t| t.allocations.load(Ordering::Relaxed))
        };
        let all = attach(Session::new().capture_all(), "1", "20000");
        let unpatched = || Session::new().unpatch_allocation().capture_all();
        let few = attach(unpatched(), "1", "20000");
        assert!(all > 20_000 && few < 1000, "{binding}: {few} of {all}");
        attach(unpatched(), "100", "100");
    }
}
