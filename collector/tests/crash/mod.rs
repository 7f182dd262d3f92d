//! Kills the program or the collector at random moments under 16 writing threads, recovers, and counts:
//! written = recovered + declared lost, nothing doubled, nothing invented, nothing corrupt.
//!
//! The program of this test is this binary again (`writing_threads`): it uses core's writing side as an agent
//! would, and its records carry their own numbers. How many it wrote it notes in a memory of its own, so that
//! the counts of the mapping are checked from outside. The collector is this binary too (`collector`), with
//! the real session in it. Each is started as the one test of its process, and learns from variables what it
//! is to do.
//!
//! `STACKBEAT_CRASHES` says how often (200), `STACKBEAT_CRASH_SEED` repeats a run.
#![cfg(target_os = "linux")]

mod check_trace;
mod collector;
mod writing_threads;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stackbeat_collector::recover::{RecoverOptions, recover};

use self::writing_threads::Notes;

/// What a collector and its program are to do.
struct Work {
    output: PathBuf,
    notes: PathBuf,
    pace_ns: u64,
    compress: bool,
}

const OUTPUT: &str = "STACKBEAT_CRASH_OUTPUT";
const NOTES: &str = "STACKBEAT_CRASH_NOTES";
const PACE_NS: &str = "STACKBEAT_CRASH_PACE_NS";
const COMPRESS: &str = "STACKBEAT_CRASH_COMPRESS";

impl Work {
    /// Starts the collector.
    fn start(&self) -> std::io::Result<Child> {
        Command::new(std::env::current_exe()?)
            .args(["--ignored", "--exact", "crash::collector::collector"])
            .args(["--nocapture", "--test-threads=1"])
            .env(OUTPUT, &self.output)
            .env(NOTES, &self.notes)
            .env(PACE_NS, self.pace_ns.to_string())
            .env(COMPRESS, self.compress.to_string())
            .stdout(Stdio::piped())
            .spawn()
    }

    /// Of the process that was started with it.
    fn given() -> Work {
        let variable = |name| std::env::var(name).expect("another test has set it");
        Work {
            output: variable(OUTPUT).into(),
            notes: variable(NOTES).into(),
            pace_ns: variable(PACE_NS).parse().expect("a number"),
            compress: variable(COMPRESS) == "true",
        }
    }
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Program,
    Collector,
    Both,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

fn kill(pid: u32) {
    // SAFETY: the pid is that of a process this test started and has not waited for, or of its
    // child, whose parent is stopped from waiting by being dead.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}

#[test]
fn what_was_written_is_recovered_or_declared_lost() {
    let crashes = number("STACKBEAT_CRASHES", 200);
    let seed = number("STACKBEAT_CRASH_SEED", u64::from(std::process::id()));
    let began = Instant::now();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut totals = check_trace::Totals::default();
    for round in 0..crashes {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9).wrapping_add(round) | 1);
        let found = one(folder.path(), round, &mut random)
            .unwrap_or_else(|e| panic!("round {round}, seed {seed}: {e}"));
        totals.add(&found);
    }
    println!(
        "crash test: {crashes} kills in {:.0?}, seed {seed}: {} records written = {} recovered + \
         {} declared lost; {} from shared memory",
        began.elapsed(),
        totals.written,
        totals.rows,
        totals.lost,
        totals.from_mapping
    );
    assert!(totals.rows > 0, "nothing was recorded at all");
}

#[test]
fn a_full_disk_costs_only_what_finds_no_place() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    full_disk(folder.path()).unwrap_or_else(|e| panic!("full disk: {e}"));
}

fn one(folder: &Path, round: u64, random: &mut Random) -> Result<check_trace::Totals, String> {
    let victim = [Victim::Program, Victim::Collector, Victim::Both][round as usize % 3];
    let output = folder.join("run.beat");
    let recovered = folder.join("recovered.beat");
    let notes = folder.join("notes");
    for file in [&output, &recovered, &notes] {
        let _ = std::fs::remove_file(file);
    }
    let pace_ns = [0, 2_000, 50_000][random.below(3) as usize];
    let compress = random.below(2) == 1;
    let work = Work {
        output: output.clone(),
        notes: notes.clone(),
        pace_ns,
        compress,
    };
    let mut collector = work.start().map_err(|e| e.to_string())?;
    let program = started(&mut collector)?;
    std::thread::sleep(Duration::from_micros(random.below(60_000)));
    match victim {
        Victim::Program => kill(program),
        Victim::Collector => {
            kill(collector.id());
            std::thread::sleep(Duration::from_micros(random.below(10_000)));
            kill(program);
        }
        Victim::Both => {
            kill(collector.id());
            kill(program);
        }
    }
    collector.wait().map_err(|e| e.to_string())?;
    wait_for_end(program);
    let notes = Notes::read(&notes);
    if victim == Victim::Program {
        return check_trace::check(&output, &notes, 0);
    }
    let options = RecoverOptions::default();
    let summary = recover(&output, &recovered, &options).map_err(|e| e.to_string())?;
    if summary.still_running || summary.damaged != 0 {
        return Err(format!("{victim:?}: {summary:?}"));
    }
    let totals = check_trace::check(&recovered, &notes, summary.records_from_mapping)
        .map_err(|e| format!("{victim:?}, {summary:?}: {e}"))?;
    if summary.records_from_trace + summary.records_from_mapping != totals.rows {
        return Err(format!("{} rows, but {summary:?}", totals.rows));
    }
    if summary.mapping.is_some_and(|m| m.exists()) {
        return Err("the mapping was left behind".to_owned());
    }
    Ok(totals)
}

/// The disk is full while the program runs (a limit on the size of files): with room again in time
/// nothing but what found no place in memory is lost; without it the file says so and `recover`
/// gets the rest.
fn full_disk(folder: &Path) -> Result<(), String> {
    for room_again in [true, false] {
        let output = folder.join("full.beat");
        let recovered = folder.join("full-recovered.beat");
        let notes = folder.join("full-notes");
        for file in [&output, &recovered, &notes] {
            let _ = std::fs::remove_file(file);
        }
        let work = Work {
            output: output.clone(),
            notes: notes.clone(),
            pace_ns: 20_000,
            compress: false,
        };
        let mut collector = work.start().map_err(|e| e.to_string())?;
        let program = started(&mut collector)?;
        limit_files(collector.id(), 200_000);
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = check_trace::says_disk_full(&output) {
            if Instant::now() > deadline {
                return Err(format!("the file never got full: {error}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // It goes on like this for a while, trying again and again.
        std::thread::sleep(Duration::from_millis(1200));
        let length = std::fs::metadata(&output).map_err(|e| e.to_string())?.len();
        if length > 200_000 {
            return Err(format!("the limit did not work: {length} bytes"));
        }
        if room_again {
            limit_files(collector.id(), u64::MAX);
            std::thread::sleep(Duration::from_millis(1000));
        }
        kill(program);
        let status = collector.wait().map_err(|e| e.to_string())?;
        if !status.success() {
            return Err(format!("the collector ended with {status}"));
        }
        let notes = Notes::read(&notes);
        if room_again {
            check_trace::check(&output, &notes, 0)?;
        } else {
            check_trace::says_disk_full(&output)?;
            let options = RecoverOptions::default();
            let summary = recover(&output, &recovered, &options).map_err(|e| e.to_string())?;
            let totals = check_trace::check(&recovered, &notes, summary.records_from_mapping)?;
            if summary.records_from_mapping == 0 || totals.rows < 1000 {
                return Err(format!("{summary:?}"));
            }
        }
    }
    Ok(())
}

/// Sets the largest size that a process may give to a file.
fn limit_files(pid: u32, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is a valid object; nothing is to be returned.
    let set = unsafe {
        libc::prlimit(
            pid as libc::pid_t,
            libc::RLIMIT_FSIZE,
            &raw const limit,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(set, 0, "prlimit");
}

/// The program's pid, as the collector tells it on a line of its own.
fn started(collector: &mut Child) -> Result<u32, String> {
    // It stays open: what runs tests says at the end how they went.
    let out = collector.stdout.as_mut().ok_or("no pipe")?;
    let mut said = String::new();
    for line in BufReader::new(out).lines() {
        let line = line.map_err(|e| e.to_string())?;
        if let Some(pid) = line.strip_prefix(collector::STARTED) {
            return pid.parse().map_err(|_| format!("no pid: {pid:?}"));
        }
        said += &line;
    }
    Err(format!("the collector said {said:?}"))
}

/// An orphan is reaped by somebody else: wait until it is gone, or dead and not yet reaped.
fn wait_for_end(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while Instant::now() < deadline {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        if state.is_none_or(|s| "ZX".contains(s)) {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    panic!("process {pid} does not end");
}

/// xorshift64* (Vigna 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }
}
