//! A whole session inside a process, as on Apple's systems: ticks, threads that are suspended, drain, trace.
//! What hooks would call the threads call themselves.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use stackbeat_core::agent::{self, Creator};
use stackbeat_core::probe::Probe;
use stackbeat_model::{Counter, Segment, SegmentKind, Trace, Visitor};

use super::stackbeat_outer;
use crate::embedded::{self, Wanted};

/// The session of this process has the host that is tested here.
static IS_WANTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_wanted() -> bool {
    IS_WANTED.load(Ordering::Relaxed)
}

const NAME: &str = "apple::tests::session::a_session_suspends_threads";
/// The child's trace.
const OUTPUT: &str = "STACKBEAT_TEST_OUTPUT";
/// How long its threads do what they do.
const LASTS: Duration = Duration::from_millis(1500);

extern "C" fn own_thread() {
    agent::own_thread();
}

/// A thread that the agent knows, as it does of each that begins while hooks are in place.
fn known(name: &str, run: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
        agent::thread_started(Some(own_stack()), Creator::UNKNOWN);
        run();
        agent::thread_exiting(0);
    });
    thread.expect("a thread")
}

/// Bounds of the calling thread's stack.
fn own_stack() -> (usize, usize) {
    let (mut low, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: fills the attributes of the calling thread, reads them, and gives them back.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes);
        libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut bytes);
        libc::pthread_attr_destroy(&raw mut attributes);
    }
    (low.addr(), low.addr() + bytes)
}

fn for_a_while(mut step: impl FnMut()) {
    let began = Instant::now();
    while began.elapsed() < LASTS {
        step();
    }
}

/// What the recorded process does.
fn record(output: PathBuf) {
    IS_WANTED.store(true, Ordering::Relaxed);
    // Without a budget: on a busy machine the start alone costs more than it allows for a while.
    let text = format!(
        r#"{{"output":{output:?},"interval_ns":1000000,"budget_percent":0,"symbolize":true}}"#
    );
    let wanted = Wanted::from_text(&text).expect("it is in order");
    let mapping = embedded::begin(wanted, None, own_thread).expect("it begins");
    let mapping = CString::new(mapping.as_os_str().as_bytes()).expect("no NUL");
    // Threads of the session run already, so this is no process that begins.
    // SAFETY: the function is looked for.
    unsafe { agent::attach(&mapping, 0) }.expect("it joins");
    let threads = [
        // SAFETY: it changes no register that a caller has to keep.
        known("computes", || for_a_while(|| unsafe { stackbeat_outer() })),
        known("waits", || thread::sleep(LASTS)),
        // Half of its time it computes, and it passes hooks all the time.
        known("both", || {
            for_a_while(|| {
                let until = Instant::now() + Duration::from_millis(5);
                while Instant::now() < until {
                    agent::allocated(Probe::Malloc, 100);
                    agent::freed();
                }
                thread::sleep(Duration::from_millis(5));
            });
        }),
    ];
    for thread in threads {
        thread.join().expect("it ends");
    }
    embedded::end();
}

/// What a thread did, by the trace.
#[derive(Debug, Default)]
struct Did {
    running_ns: u64,
    cpu_ns: u64,
    waits_outside: u64,
    longest_wait_ns: u64,
    samples: u64,
    /// CPU time by the innermost function.
    functions: HashMap<String, u64>,
}

#[derive(Default)]
struct All {
    threads: HashMap<String, Did>,
    /// Values of the process' counters by name, and their unit.
    counters: HashMap<String, (String, Vec<(u64, i64)>)>,
}

impl Visitor for All {
    fn segment(&mut self, trace: &Trace, segment: &Segment) {
        let did = self
            .threads
            .entry(trace.thread(segment.thread).name.clone())
            .or_default();
        match segment.kind {
            SegmentKind::Running => {
                did.running_ns += segment.running_ns();
                did.cpu_ns += segment.metrics.cpu_ns;
                did.samples += segment.evidence.samples;
                let innermost = trace.stack_frames(segment.stack).last().copied();
                let name =
                    innermost.map(|frame| trace.function(trace.frame(frame).function).name.clone());
                *did.functions.entry(name.unwrap_or_default()).or_default() +=
                    segment.metrics.cpu_ns;
            }
            SegmentKind::Blocked(probe) => {
                did.waits_outside += u64::from(probe.known() == Some(Probe::BlockedOutside));
                did.longest_wait_ns = did.longest_wait_ns.max(segment.wall_ns());
            }
            SegmentKind::Gap => {}
        }
    }

    fn counter(&mut self, _: &Trace, counter: &Counter) {
        let (unit, values) = self.counters.entry(counter.name.clone()).or_default();
        unit.clone_from(&counter.unit);
        values.extend(&counter.values);
    }
}

fn check(path: &Path) {
    let trace = Trace::open(path).expect("a trace");
    assert!(
        trace.footer().is_some() && trace.damage().is_empty(),
        "{:?}",
        trace.damage()
    );
    let names: Vec<&str> = trace
        .threads()
        .iter()
        .map(|thread| thread.name.as_str())
        .collect();
    let own = ["stackbeat drain", "stackbeat ticke", "stackbeat saver"];
    assert!(!names.iter().any(|name| own.contains(name)), "{names:?}");
    let mut all = All::default();
    trace.visit(&mut all).expect("it can be read");
    let did = |name: &str| {
        all.threads
            .get(name)
            .unwrap_or_else(|| panic!("{name}: {names:?}"))
    };

    let computes = did("computes");
    let inside = computes
        .functions
        .get("stackbeat_innermost")
        .copied()
        .unwrap_or(0);
    assert!(inside * 10 > computes.cpu_ns * 9, "{computes:?}");
    assert!(computes.samples >= 20, "{computes:?}");

    let waits = did("waits");
    assert!(
        waits.waits_outside >= 1 && waits.running_ns < LASTS.as_nanos() as u64 / 5,
        "{waits:?}"
    );
    assert!(
        waits.longest_wait_ns > LASTS.as_nanos() as u64 / 2,
        "{waits:?}"
    );

    let both = did("both");
    assert!(both.samples >= 10, "{both:?}");
    check_counters(&all);
    assert_eq!(trace.drops().len(), 0, "{:?}", trace.drops());
}

/// What the stand-in says of the process, by its CPU time.
fn check_counters(all: &All) {
    let of = |name: &str, unit: &str| {
        let (found, values) = all.counters.get(name).expect(name);
        assert_eq!(found, unit, "{name}");
        values
    };
    let last = |values: &[(u64, i64)]| values.last().expect("a value").1;
    assert_eq!(last(of("memory", "bytes")), 70 << 20);
    assert_eq!(last(of("footprint", "bytes")), 50 << 20);
    assert!(last(of("threads", "")) >= 1);
    // They were read one after the other, so nearly the same CPU time lies in all of them.
    let most = |values: &[(u64, i64)]| values.iter().map(|value| value.1).max().expect("a value");
    let cpu = most(of("CPU", "%"));
    let written = most(of("disk written", "bytes/s"));
    let power = most(of("power", "uW"));
    // Other processes may have most of the processor.
    assert!(cpu >= 10, "{cpu}");
    for (name, percent) in [("written", written / 10_000_000), ("power", power / 20_000)] {
        let most = (5 + cpu / 4).unsigned_abs();
        assert!(percent.abs_diff(cpu) <= most, "{name}: {percent}, {cpu}");
    }
    assert_eq!(most(of("disk read", "bytes/s")), 0);
    // What Darwin does not say.
    for name in ["minor faults", "major faults", "descriptors"] {
        assert!(!all.counters.contains_key(name), "{name}");
    }
}

#[test]
fn a_session_suspends_threads() {
    if let Some(output) = std::env::var_os(OUTPUT) {
        record(PathBuf::from(output));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("session.beat");
    let child = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", NAME, "--nocapture"])
        .env(OUTPUT, &output)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(
        child.status.success() && said.contains("1 passed"),
        "{said}"
    );
    check(&output);
    if let Some(kept) = std::env::var_os("STACKBEAT_KEEP_TRACE") {
        std::fs::copy(&output, kept).expect("copied");
    }
}
