//! The self-test of `doctor`: a tiny program that passes every kind of hook, recorded for real, and
//! what must then be in its trace.

use std::ffi::OsString;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use stackbeat_collector::session::Options;
use stackbeat_model::{
    Function, SampleRow, Segment, StackIndex, ThreadIndex, Trace, Visitor, conservation,
};

use crate::agent_library;
use crate::commands::hook_findings::{HookFindings, look_at};
use crate::commands::probes::Counted;

/// How long each kind of work goes on, so that some captures fall on it at 1 ms.
const WORK: Duration = Duration::from_millis(25);

/// The program that is recorded.
pub(crate) fn program() -> Result<()> {
    allocate();
    compute();
    read_and_write()?;
    thread::sleep(Duration::from_millis(5));
    hand_over();
    talk()?;
    let status = Command::new("true").stdin(Stdio::null()).status();
    status.context("a child process")?;
    Ok(())
}

/// Allocates until enough time has passed.
#[inline(never)]
fn allocate() {
    let end = Instant::now() + WORK;
    while Instant::now() < end {
        for size in 1..200usize {
            black_box(vec![0u8; size * 16]);
        }
    }
}

/// Passes no hook at all.
#[inline(never)]
fn compute() {
    let mut x = 1u64;
    // Counted, not timed: reading a clock would be a hook.
    for _ in 0..60_000_000u64 {
        x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
}

#[inline(never)]
fn read_and_write() -> Result<()> {
    let mut from = File::open("/dev/zero").context("/dev/zero")?;
    let mut to = File::create("/dev/null").context("/dev/null")?;
    let mut block = vec![0u8; 64 << 10];
    let end = Instant::now() + WORK;
    while Instant::now() < end {
        from.read_exact(&mut block)?;
        to.write_all(&block)?;
    }
    // A read that waits longer than the interval is always captured.
    let (mut reader, mut writer) = std::io::pipe().context("a pipe")?;
    let peer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(4));
        writer.write_all(b"x")
    });
    reader.read_exact(&mut [0u8])?;
    let _ = peer.join();
    Ok(())
}

/// Two threads that wait for each other.
#[inline(never)]
fn hand_over() {
    let (to_worker, from_main) = mpsc::channel::<u32>();
    let (to_main, from_worker) = mpsc::channel();
    let worker = thread::Builder::new()
        .name("self-test".into())
        .spawn(move || {
            for number in from_main {
                thread::sleep(Duration::from_millis(3));
                if to_main.send(number).is_err() {
                    break;
                }
            }
        });
    if let Ok(worker) = worker {
        for number in 0..4 {
            if to_worker.send(number).is_err() || from_worker.recv().is_err() {
                break;
            }
        }
        drop(to_worker);
        let _ = worker.join();
    }
}

/// Waits for a line from a socket.
#[inline(never)]
fn talk() -> Result<()> {
    let Ok(listener) = TcpListener::bind("127.0.0.1:0") else {
        return Ok(()); // no network here: the check for it says so
    };
    let address = listener.local_addr()?;
    let peer = thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        thread::sleep(Duration::from_millis(4));
        stream.write_all(b"x")
    });
    let mut byte = [0u8];
    TcpStream::connect(address)?.read_exact(&mut byte)?;
    let _ = peer.join();
    Ok(())
}

/// What the recording of `program` showed.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub hooks: HookFindings,
    /// Samples whose stack contains the function that did the work.
    pub named: u64,
    /// Samples whose stack leads through this program's code to its root, with names or without.
    pub reached: u64,
    pub processes: usize,
    pub violations: Vec<String>,
    pub warnings: Vec<String>,
    /// Functions whose hooks saw no call, and whether they are needed.
    pub not_reached: Vec<(&'static str, bool)>,
    /// As `wait` gives it.
    pub wait_status: i32,
}

/// Functions that `program` calls, and whether recording is of use without them. (Those of the network may
/// be missing where there is none.)
pub(crate) const CALLED: [(&str, bool); 16] = [
    ("malloc", true),
    ("calloc", true),
    ("realloc", true),
    ("free", true),
    ("read", true),
    ("write", true),
    ("open64", true),
    ("close", true),
    ("syscall", true),
    ("clock_gettime", true),
    ("pthread_create", true),
    ("pthread_join", true),
    ("connect", false),
    ("accept4", false),
    ("send", false),
    ("recv", false),
];

/// Runs `program` once more and gives those of [`CALLED`] that did not reach their hooks.
pub(crate) fn not_reached() -> Result<Vec<(&'static str, bool)>> {
    let (counted, _) = Counted::run(&command()?, agent_library::locate(None)?, false)?;
    Ok(CALLED
        .into_iter()
        .filter(|(name, _)| !counted.has(name))
        .collect())
}

/// Records `program` and looks at what came out.
pub(crate) fn run() -> Result<Findings> {
    let folder = scratch_folder()?;
    let result = record_in(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn command() -> Result<Vec<OsString>> {
    let own = std::env::current_exe().context("the path of this program")?;
    Ok(vec![own.into(), "demo-worker".into(), "self-test".into()])
}

fn scratch_folder() -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("stackbeat-doctor-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| format!("{}", folder.display()))?;
    Ok(folder)
}

fn record_in(folder: &Path) -> Result<Findings> {
    let trace_path = folder.join("self-test.beat");
    let options = Options::new(command()?, agent_library::locate(None)?, trace_path.clone());
    let outcome = stackbeat_collector::record(&options, &mut |_| {})?;
    let trace = Trace::open(&trace_path)?;
    let mut stacks = Stacks {
        own: std::env::current_exe().context("the path of this program")?,
        named: 0,
        reached: 0,
        known: vec![None; trace.stack_count() as usize],
    };
    trace.visit(&mut stacks)?;
    Ok(Findings {
        hooks: HookFindings {
            records_lost: outcome.records_lost,
            ..look_at(&trace)?
        },
        named: stacks.named,
        reached: stacks.reached,
        processes: trace.process_count(),
        violations: conservation(&trace)?
            .iter()
            .map(|v| v.to_string())
            .collect(),
        warnings: outcome.warnings.iter().map(|w| w.to_string()).collect(),
        not_reached: not_reached()?,
        wait_status: outcome.wait_status,
    })
}

/// Counts samples by what is in their stacks.
struct Stacks {
    /// The program's file.
    own: PathBuf,
    named: u64,
    reached: u64,
    /// Of each stack: whether a name of this module is in it, and whether code of the file is.
    known: Vec<Option<(bool, bool)>>,
}

impl Visitor for Stacks {
    fn segment(&mut self, _: &Trace, _: &Segment) {}

    fn sample(&mut self, trace: &Trace, _: ThreadIndex, _: &SampleRow, stack: StackIndex) {
        let known = &mut self.known[stack.0 as usize];
        let (is_named, is_reached) = *known.get_or_insert_with(|| {
            let frames = trace.stack_frames(stack);
            let mut functions = frames
                .iter()
                .map(|f| trace.function(trace.frame(*f).function));
            let has = |is_it: &dyn Fn(&Function) -> bool| functions.clone().any(is_it);
            let is_named = has(&|function| function.name.contains("self_test"));
            let is_own = has(&|function| Path::new(&function.module) == self.own);
            let is_cut_off = functions.any(|function| function.name == "[truncated]");
            (is_named, is_own && !is_cut_off)
        });
        self.named += u64::from(is_named);
        self.reached += u64::from(is_reached);
    }
}
