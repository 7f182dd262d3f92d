//! Stopped real programs: our walk from outside next to gdb's backtrace.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stackbeat_core::unwind::walk::Stack;
use stackbeat_core::unwind::{Registers, Start, WalkEnd};

use super::remote::Process;

/// Prints the registers a walk begins with, then the pc of every frame that is not inlined.
const SCRIPT: &str = "
import gdb
def number(name): return int(gdb.parse_and_eval('(unsigned long)$' + name))
print('REGISTERS', *[number(r) for r in 'rip rsp rbp rbx r12 r13 r14 r15'.split()])
frame = gdb.newest_frame()
while frame:
    if frame.type() != gdb.INLINE_FRAME: print('FRAME', frame.pc())
    frame = frame.older()
";

/// A program that is ended with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    fn start(command: &mut Command) -> Program {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Program(child.expect("it starts"))
    }

    /// Stops it once it has used some CPU time or is asleep below something.
    fn stop(&self) {
        std::thread::sleep(Duration::from_millis(400));
        // SAFETY: a signal to our own child.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, libc::SIGSTOP) }, 0);
        let begin = Instant::now();
        let is_stopped = || {
            let status = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()));
            status.is_ok_and(|s| s.rsplit(") ").next().is_some_and(|s| s.starts_with('T')))
        };
        while !is_stopped() {
            assert!(
                begin.elapsed() < Duration::from_secs(90),
                "it does not stop"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Compares our frames with gdb's for a program that was stopped. `least`: frames to expect.
fn equals_gdb(program: &Program, folder: &Path, least: usize) {
    program.stop();
    let pid = program.0.id();
    let script = folder.join("frames.py");
    std::fs::write(&script, SCRIPT).expect("the folder can be written");
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-p", &pid.to_string()])
        .args(["-ex", "set backtrace past-main on"])
        .args(["-ex", "set backtrace past-entry on"])
        .arg("-x")
        .arg(&script)
        .output()
        .expect("gdb runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = |line: &str| -> Vec<u64> {
        let words = line.split_whitespace().skip(1);
        words.map(|w| w.parse().expect("a number")).collect()
    };
    let lines = |key: &'static str| text.lines().filter(move |line| line.starts_with(key));
    let gdb: Vec<u64> = lines("FRAME ").flat_map(numbers).collect();
    let registers = lines("REGISTERS ").flat_map(numbers).collect::<Vec<_>>();
    assert!(gdb.len() >= least, "gdb found {}: {text}", gdb.len());
    let registers = Registers {
        pc: registers[0],
        sp: registers[1],
        fp: registers[2],
        lr: 0,
        saved: registers[3..8].try_into().expect("five"),
        is_wild: false,
    };
    let process = Process::open(pid);
    let mut stack = Stack::boxed();
    let from = Start {
        registers: &registers,
        exact: true,
        high: 0,
        skip: (0, 0),
    };
    let end = stack.walk(&from, 900, &&process, &mut &process);
    let ours: Vec<u64> = stack.frames().iter().rev().map(|frame| frame.pc).collect();
    let hex = |frames: &[u64]| frames.iter().map(|f| format!("{f:x} ")).collect::<String>();
    assert_eq!(hex(&ours), hex(&gdb), "{text}");
    assert_eq!(end, WalkEnd::Root);
    // Again, now with everything to be reused; a leaf whose rule is an expression (in the PLT) is not.
    let end = stack.walk(&from, 900, &&process, &mut &process);
    assert_eq!(end, WalkEnd::Root);
    assert!(
        stack.kept() + 1 >= gdb.len(),
        "{} kept: {text}",
        stack.kept()
    );
}

#[test]
fn python_asleep_in_a_recursion() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let code = "import time
def f(n): return f(n - 1) if n else [time.sleep(100) for _ in sorted([1])]
f(20)";
    let program = Program::start(Command::new("/usr/bin/python3").args(["-c", code]));
    equals_gdb(&program, folder.path(), 15);
}

#[test]
fn sqlite_in_a_join() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sql = "create table t(a, b);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 30000)
insert into t select x, hex(randomblob(8)) from c;
select count(*) from t x join t y on x.b < y.b;";
    let program = Program::start(Command::new("sqlite3").args([":memory:", sql]));
    equals_gdb(&program, folder.path(), 6);
}

#[test]
fn cpp_without_frame_pointers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("deep.cc");
    let binary = folder.path().join("deep");
    let text = "#include <algorithm>\n#include <functional>\n#include <unistd.h>\n#include <vector>
struct Node { virtual ~Node() = default; virtual int run(int n) = 0; };
struct Deep : Node { int run(int n) override {
  std::function<int(int)> next = [this](int m) { return m ? run(m - 1) : pause(); };
  std::vector<int> v{n, 1}; std::for_each(v.begin(), v.end(), [&](int &x) { x += next(n); }); return v[0]; } };
int main() { Deep d; return d.run(40); }";
    std::fs::write(&source, text).expect("the folder can be written");
    let status = Command::new("g++")
        .args(["-O2", "-o"])
        .arg(&binary)
        .arg(&source)
        .status();
    assert!(status.is_ok_and(|s| s.success()), "g++ compiles");
    let program = Program::start(&mut Command::new(&binary));
    equals_gdb(&program, folder.path(), 40);
}

#[test]
fn rust_asleep_in_a_sort() {
    // This test program itself, asked to sleep.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let this = std::env::current_exe().expect("it has a path");
    let mut command = Command::new(this);
    command.args([
        "--ignored",
        "--exact",
        "unwind::gdb::sleeper",
        "--test-threads=1",
    ]);
    let program = Program::start(&mut command);
    equals_gdb(&program, folder.path(), 4);
}

/// Not a test: what `rust_asleep_in_a_sort` looks at.
#[test]
#[ignore = "sleeps for as long as another test looks at it"]
fn sleeper() {
    let mut numbers = [3, 2, 1];
    numbers.sort_by_key(|n| {
        std::thread::sleep(Duration::from_secs(30));
        *n
    });
}
