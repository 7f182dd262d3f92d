//! Gates of many traces: what stays of each is small.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use stackbeat_model::synthetic::Program;

const STACKBEAT: &str = env!("CARGO_BIN_EXE_stackbeat");

/// Each with the same 4,000 stacks of 24 frames, of which a summary keeps as much as it ever does.
const TRACE_BYTES: u64 = 128 << 10;

/// Peak memory of a gate with so many copies of the trace on each side, in KiB, as the kernel last said it.
fn peak_kib(folder: &Path, runs: usize) -> u64 {
    for run in 0..2 * runs {
        let side = folder.join(if run % 2 == 0 { "base" } else { "new" });
        fs::create_dir_all(&side).expect("is made");
        let copy = side.join(format!("{run}.beat"));
        if !copy.exists() {
            fs::hard_link(folder.join("one.beat"), copy).expect("is linked");
        }
    }
    let mut gate = Command::new(STACKBEAT)
        .args(["gate", "-b", "base", "-c", "new"])
        .current_dir(folder)
        .env_remove("STACKBEAT_AGENT")
        // One heap: how threads share out memory between theirs is no matter of the traces.
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    let status = format!("/proc/{}/status", gate.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
        peak = peak.max(now.unwrap_or(0));
        if let Some(status) = gate.try_wait().expect("is waited for") {
            assert_ne!(status.code(), Some(2));
            return peak;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn memory_grows_by_little_a_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut file = fs::File::create(folder.path().join("one.beat")).expect("is made");
    Program::new(8)
        .write(TRACE_BYTES, &mut file)
        .expect("is written");
    let few = peak_kib(folder.path(), 5);
    let many = peak_kib(folder.path(), 20);
    let grown = many.saturating_sub(few) / 30;
    println!("{few} KiB with 10 traces, {many} KiB with 40");
    assert!(few > 0 && grown < 300, "{grown} KiB a trace");
}
