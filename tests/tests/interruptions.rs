//! What a program's blocking calls return while it is recorded, as an independent interposer counts it: a
//! library that is preloaded beside the agent (`tests/interposers/interruptions.c`). Not one EINTR and not
//! one short transfer more.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stackbeat_tests::tool_json::{figure, number};
use stackbeat_tests::{Program, has_kernel_clock, info, run, scratch, workspace};

/// Rows of the interposer: a name and three numbers.
const ROWS: usize = 64;
const NAME_BYTES: usize = 40;
const ROW_BYTES: usize = NAME_BYTES + 3 * 8;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    calls: u64,
    interrupted: u64,
    cut: u64,
}

struct Interposer {
    library: PathBuf,
    rows: PathBuf,
}

impl Interposer {
    fn new(folder: &Path) -> Interposer {
        let library = folder.join("interruptions.so");
        let source = workspace().join("tests/interposers/interruptions.c");
        let mut command = Command::new("gcc");
        command.args(["-shared", "-fPIC", "-O2", "-U_FORTIFY_SOURCE", "-o"]);
        let built = run({
            command.arg(&library).arg(source);
            command
        });
        assert!(built.output.status.success(), "{}", built.stderr());
        Interposer {
            library,
            rows: folder.join("interruptions.rows"),
        }
    }

    /// A shell script in which `$WATCHED PROGRAM` is watched by the interposer. If a command of it fails, the
    /// servers that it began end, too: somebody waits for all that may write to its output.
    fn script(&self, text: &str) -> Program {
        let text = format!("trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{text}");
        fs::write(&self.rows, [0; ROWS * ROW_BYTES]).expect("written");
        let watched = format!(
            "env LD_PRELOAD={} INTERRUPTIONS={}",
            self.library.display(),
            self.rows.display()
        );
        Program::new(["bash", "-ec", &text]).variable("WATCHED", &watched)
    }

    fn counts(&self) -> BTreeMap<String, Counts> {
        let bytes = fs::read(&self.rows).expect("the rows");
        let rows = bytes.as_chunks::<ROW_BYTES>().0.iter();
        rows.filter_map(|row| {
            let (name, numbers) = row.split_at(NAME_BYTES);
            let name = name.split(|b| *b == 0).next()?;
            let number = |i: usize| u64::from_le_bytes(numbers.as_chunks::<8>().0[i]);
            let counts = Counts {
                calls: number(0),
                interrupted: number(1),
                cut: number(2),
            };
            (!name.is_empty()).then(|| (String::from_utf8_lossy(name).into_owned(), counts))
        })
        .collect()
    }
}

/// Runs a script with and without stackbeat, under each clock, and compares what the interposer saw.
#[track_caller]
fn undisturbed(text: &str) {
    let folder = scratch();
    let interposer = Interposer::new(folder.path());
    let text = text.replace("FOLDER", folder.path().to_str().expect("UTF-8"));
    let plain = interposer.script(&text).run();
    assert_eq!(plain.shell_status(), 0, "{}", plain.stderr());
    let without = interposer.counts();
    // Nothing that was never interrupted proves anything.
    let ticks = beside(&interposer, &text, &without, &["--clock", "tick"]);
    let sent = figure(&ticks, "signals_sent");
    assert!(sent > 20, "{sent} signals");
    if has_kernel_clock() {
        let kernel = beside(&interposer, &text, &without, &["--clock", "kernel"]);
        let samples = number(&kernel["counts"], "samples");
        assert!(samples > 100, "{samples} samples");
        assert_eq!(figure(&kernel, "signals_held_back"), 0);
    }
}

/// The same run, recorded with these options. Gives what the trace says about itself.
#[track_caller]
fn beside(
    interposer: &Interposer,
    text: &str,
    without: &BTreeMap<String, Counts>,
    options: &[&str],
) -> serde_json::Value {
    let folder = scratch();
    let script = interposer.script(text).options(options);
    let recorded = script.record(folder.path());
    assert_eq!(recorded.run.shell_status(), 0, "{}", recorded.run.stderr());
    let with = interposer.counts();
    let calls: u64 = with.values().map(|c| c.calls).sum();
    assert!(calls > 300, "{with:?}");
    for (name, counts) in &with {
        let before = without.get(name).copied().unwrap_or_default();
        assert!(
            counts.interrupted <= before.interrupted && counts.cut <= before.cut,
            "{name}: {counts:?} while recorded ({options:?}), {before:?} without"
        );
    }
    info(&recorded.trace)
}

#[test]
fn the_interposer_sees_what_a_signal_does() {
    let folder = scratch();
    let interposer = Interposer::new(folder.path());
    let script = "$WATCHED python3 -c '
import signal, select
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.05)
select.select([], [], [], 0.3)'";
    assert_eq!(interposer.script(script).run().shell_status(), 0);
    assert!(interposer.counts()["select"].interrupted > 0);
}

#[test]
fn redis_and_its_benchmark() {
    undisturbed(
        "cd FOLDER
        $WATCHED redis-server --port 0 --unixsocket FOLDER/s --save '' --appendonly yes --dir FOLDER \\
            --io-threads 2 > /dev/null &
        until redis-cli -s FOLDER/s -e ping > /dev/null 2>&1; do sleep 0.05; done
        $WATCHED redis-benchmark -s FOLDER/s -q -n 3000 -c 10 -t set,get,lpush,mset > /dev/null
        redis-cli -s FOLDER/s bgrewriteaof > /dev/null
        redis-cli -s FOLDER/s shutdown nosave
        wait",
    );
}

#[test]
fn nginx_and_its_clients() {
    undisturbed(
        "cd FOLDER; mkdir -p www
        head -c 1000000 /dev/zero > www/large; echo small > www/small
        cat > nginx.conf <<END
worker_processes 2; daemon off; pid FOLDER/pid; error_log stderr; user root;
events {}
http { access_log FOLDER/access; gzip on; gzip_types *;
       server { listen unix:FOLDER/http; root FOLDER/www; } }
END
        rm -f http
        $WATCHED nginx -c FOLDER/nginx.conf &
        until [ -s pid ] && [ -S http ]; do sleep 0.05; done
        $WATCHED python3 -c '
import socket, threading
def get():
    for path in [\"small\", \"large\", \"small\"] * 15:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(\"FOLDER/http\")
            s.sendall(f\"GET /{path} HTTP/1.0\\r\\nAccept-Encoding: gzip\\r\\n\\r\\n\".encode())
            while s.recv(65536): pass
clients = [threading.Thread(target=get) for _ in range(4)]
for c in clients: c.start()
for c in clients: c.join()'
        kill -QUIT $(cat pid)
        wait",
    );
}

#[test]
fn node_with_its_thread_pool() {
    undisturbed(
        "cd FOLDER
        $WATCHED node -e '
const http = require(\"http\"), crypto = require(\"crypto\"), fs = require(\"fs\"), zlib = require(\"zlib\");
const text = \"x\".repeat(20000);
http.createServer((question, answer) => {
  if (question.url == \"/zip\") zlib.gzip(text.repeat(20), (e, data) => answer.end(data));
  else if (question.url == \"/file\") fs.readFile(process.execPath, (e, data) => answer.end(data.subarray(0, 1 << 20)));
  else answer.end(crypto.createHash(\"sha256\").update(text).digest(\"hex\"));
}).listen(\"FOLDER/http\" + process.pid, async function() {
  const socketPath = \"FOLDER/http\" + process.pid;
  const get = (path) => new Promise((done) => http.get({socketPath, path}, (r) => { r.resume(); r.on(\"end\", done); }));
  for (let i = 0; i < 30; i++) await Promise.all([\"/a\", \"/zip\", \"/file\", \"/b\"].map(get));
  process.exit(0);
});'",
    );
}

/// SIGCHLD is blocked in all threads: `subprocess` blocks it in its own while it forks, and a child that ends
/// just then ends a call of another thread, recorded or not.
#[test]
fn python_in_every_kind_of_call() {
    undisturbed(
        "$WATCHED python3 -c '
import os, select, signal, socket, subprocess, threading, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGCHLD])
end = time.time() + 1.5
def echoes(s):
    while data := s.recv(65536):
        sum(data)
        s.sendall(data)
def sends(s):
    while time.time() < end:
        threading.Thread(target=s.sendall, args=(bytes(300000),)).start()
        got = 0
        while got < 300000: got += len(s.recv(65536))
    s.close()
def naps():
    while time.time() < end:
        time.sleep(0.001); select.select([], [], [], 0.001); sum(range(3000))
def fetches():
    while time.time() < end: signal.sigtimedwait([signal.SIGUSR1], 0.002)
def children():
    while time.time() < end: subprocess.run([\"true\"])
def semaphores():
    while time.time() < end: threading.Semaphore(0).acquire(timeout=0.002)
def draws():
    while time.time() < end: assert len(os.getrandom(100000)) == 100000
pair = socket.socketpair()
jobs = [(echoes, pair[0]), (sends, pair[1]), (naps,), (fetches,), (children,), (semaphores,), (draws,)]
threads = [threading.Thread(target=f, args=a) for f, *a in jobs]
for t in threads: t.start()
for t in threads: t.join()'",
    );
}

/// Collections while a goroutine runs a loop without calls: the collector interrupts it by SIGURG, and waits.
const COLLECTIONS: &str = r#"
package main
// static int one(void) { return 1; }
import "C"
import ("fmt"; "runtime"; "time")
var sum int
func loop() { for { sum += 1 } }
func main() {
	runtime.GOMAXPROCS(2)
	go loop()
	time.Sleep(20 * time.Millisecond)
	began := time.Now()
	for i := 0; i < 20 * int(C.one()); i++ { runtime.GC() }
	fmt.Println(time.Since(began).Milliseconds())
}
"#;

#[test]
fn gos_threads_get_each_of_their_own_signals() {
    let folder = scratch();
    let at = folder.path();
    fs::write(at.join("collections.go"), COLLECTIONS).expect("is written");
    let go = std::env::var_os("GO").unwrap_or_else(|| "go".into());
    let mut build = Command::new(go);
    build
        .args(["build", "-o", "collections", "collections.go"])
        .current_dir(at)
        .env("CGO_ENABLED", "1");
    let built = run(build);
    assert_eq!(built.shell_status(), 0, "{}", built.stderr());
    let program = at.join("collections");
    let program = Program::new([program.to_str().expect("UTF-8")]);
    let ms = |said: String| said.trim().parse::<u64>().expect("milliseconds");
    let plain = ms(program.run().stdout());
    for clock in ["auto", "tick", "timer"] {
        let recorded = program.clone().options(&["--clock", clock]).record(at);
        let took = ms(recorded.run.stdout());
        println!("20 collections: {took} ms with {clock}, {plain} ms without");
        // One that is lost costs seconds.
        assert!(took < 20 * plain + 2_000, "{clock}: {took} ms, {plain} ms");
    }
}
