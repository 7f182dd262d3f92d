//! What asks Mach, asked on Linux (`world`).

pub(crate) mod session;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stackbeat_core::ids::{Pid, Tid, Upid};
use stackbeat_core::platform;

use super::host::Inside;
use super::resources::OfProcess;
use crate::host::{Host, Interruption, Resources, State, Suspended, Suspension, ToWalk};

pub(super) use world::look_up;

fn own_pid() -> Pid {
    Pid(std::process::id())
}

fn suspension(host: &Inside) -> Box<dyn Suspension> {
    match host.interruption().expect("there is one") {
        Interruption::BySuspension(by) => by,
        Interruption::BySignal(_) => panic!("there are no signals to threads"),
    }
}

/// A thread that does one thing until it is told to end.
struct Worker {
    tid: Tid,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start(name: &str, mut step: impl FnMut() + Send + 'static) -> Worker {
        let is_over = Arc::new(AtomicBool::new(false));
        let tid = Arc::new(AtomicU32::new(0));
        let (of_thread, own_tid) = (Arc::clone(&is_over), Arc::clone(&tid));
        let run = move || {
            own_tid.store(platform::thread_id(), Ordering::Release);
            while !of_thread.load(Ordering::Relaxed) {
                step();
            }
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .expect("a thread");
        while tid.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        Worker {
            tid: Tid(tid.load(Ordering::Acquire)),
            is_over,
            thread,
        }
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().expect("it ends");
    }
}

/// Waits until something holds, and fails when it does not.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn threads_are_known_by_tid() {
    let host = Inside::new(own_pid());
    let computes = Worker::start("computes", || _ = std::hint::black_box(1));
    let waits = Worker::start("waits", thread::park);
    for (worker, name, state) in [
        (&computes, "computes", State::Running),
        (&waits, "waits", State::Blocked),
    ] {
        assert!(host.threads(own_pid()).contains(&worker.tid));
        assert_eq!(
            host.thread_name(own_pid(), worker.tid).as_deref(),
            Some(name)
        );
        let mut followed = host.follow(own_pid(), worker.tid);
        until(name, || {
            host.state(own_pid(), worker.tid) == state && followed.state() == state
        });
    }
    let before = host.scheduled(own_pid(), computes.tid).expect("it lives");
    until("it goes on", || {
        host.scheduled(own_pid(), computes.tid)
            .is_some_and(|now| now.run_ns > before.run_ns)
    });
    assert!(host.thread_count(own_pid()).expect("known") >= 3);
    let gone = computes.tid;
    computes.end();
    waits.end();
    until("it is gone", || host.state(own_pid(), gone) == State::Gone);
    assert!(!host.has_thread(own_pid(), gone) && !host.threads(own_pid()).contains(&gone));
    // Of other processes nothing is known.
    assert!(host.threads(Pid(1)).is_empty() && !host.exists(Pid(1)));
}

#[test]
fn ports_are_given_back() {
    let mut before = 0;
    // Other tests hold some for a moment, and give them back.
    until("some are held, and not one for each thread", || {
        before = world::HELD.load(Ordering::Relaxed);
        let host = Inside::new(own_pid());
        for _ in 0..50 {
            let worker = Worker::start("short", thread::park);
            assert!(host.has_thread(own_pid(), worker.tid));
            worker.end();
            _ = host.thread_count(own_pid());
        }
        (1..40).contains(&(world::HELD.load(Ordering::Relaxed) - before))
    });
    until("all are given back", || {
        world::HELD.load(Ordering::Relaxed) - before < 40
    });
}

// Three functions that keep frame pointers, as all code does there: the innermost computes.
std::arch::global_asm!(
    ".pushsection .text.stackbeat_chain, \"ax\", @progbits",
    ".globl stackbeat_outer, stackbeat_middle, stackbeat_innermost, stackbeat_end",
    "stackbeat_outer:",
    "push rbp",
    "mov rbp, rsp",
    "call stackbeat_middle",
    "pop rbp",
    "ret",
    "stackbeat_middle:",
    "push rbp",
    "mov rbp, rsp",
    "call stackbeat_innermost",
    "pop rbp",
    "ret",
    "stackbeat_innermost:",
    "push rbp",
    "mov rbp, rsp",
    "mov ecx, 10000",
    "2:",
    "dec ecx",
    "jnz 2b",
    "pop rbp",
    "ret",
    "stackbeat_end:",
    ".popsection",
);

unsafe extern "C" {
    fn stackbeat_outer();
    fn stackbeat_middle();
    fn stackbeat_innermost();
    fn stackbeat_end();
}

/// A stack as it was taken in a window.
fn take(by: &mut dyn Suspension, tid: Tid) -> Option<Vec<u64>> {
    let mut words = vec![0u64; 4096];
    let mut direct = [0; 64];
    by.prepare(own_pid(), tid);
    let window = crate::sampler::window::enter();
    let (registers, cpu_ns, read) = match by.suspend(own_pid(), tid) {
        Suspended::Yes { registers, cpu_ns } => {
            let from = registers.sp & !7;
            // As much as surely lies on it.
            let read = by.read_stack(own_pid(), from, &mut words[..64]);
            // SAFETY: the thread is suspended where it calls functions, far from its stack's end.
            let directly = unsafe { by.read_own_stack(own_pid(), from, &mut direct) };
            by.resume();
            (registers, cpu_ns, read.min(directly))
        }
        Suspended::NotNow | Suspended::Gone => return None,
    };
    // What fails in the window is not told: whoever tells allocates.
    drop(window);
    assert!(cpu_ns > 0);
    assert_eq!((read, &words[..64]), (64, &direct[..]));
    let walked = by.walk(&ToWalk {
        pid: own_pid(),
        upid: Upid(1),
        epoch: 0,
        registers: &registers,
        words: &words[..read],
        high: 0,
        depth: 64,
    });
    let mut leaf_first: Vec<u64> = walked
        .stack
        .frames
        .iter()
        .map(|(address, _)| *address)
        .collect();
    leaf_first.reverse();
    Some(leaf_first)
}

#[test]
fn a_suspended_thread_is_walked_and_goes_on() {
    let host = Inside::new(own_pid());
    let mut by = suspension(&host);
    // SAFETY: they change no register that a caller has to keep.
    let worker = Worker::start("walked", || unsafe { stackbeat_outer() });
    let bounds = [
        stackbeat_outer as *const () as u64,
        stackbeat_middle as *const () as u64,
        stackbeat_innermost as *const () as u64,
        stackbeat_end as *const () as u64,
    ];
    let function_of = |address: u64| {
        bounds
            .windows(2)
            .position(|range| (range[0]..range[1]).contains(&address))
    };
    let mut whole = 0;
    for _ in 0..400 {
        let stack = take(&mut *by, worker.tid).expect("it lives");
        let functions: Vec<_> = stack
            .iter()
            .map_while(|address| function_of(*address))
            .collect();
        // Whatever the instruction is at which it was met: each function once, in this order.
        let chain = [2, 1, 0];
        let from = chain
            .iter()
            .position(|function| functions.first() == Some(function));
        assert_eq!(
            functions,
            chain[from.unwrap_or(chain.len())..],
            "{stack:x?}"
        );
        whole += usize::from(functions.len() == chain.len());
    }
    assert!(whole > 300, "{whole} of 400");
    worker.end();
}

#[test]
fn who_has_ended_is_not_suspended() {
    let host = Inside::new(own_pid());
    let mut by = suspension(&host);
    let worker = Worker::start("ends", thread::park);
    let tid = worker.tid;
    by.prepare(own_pid(), tid);
    worker.end();
    until("it is gone", || host.state(own_pid(), tid) == State::Gone);
    assert!(matches!(by.suspend(own_pid(), tid), Suspended::Gone));
    by.prepare(own_pid(), Tid(1));
    assert!(matches!(by.suspend(own_pid(), Tid(1)), Suspended::Gone));
}

#[test]
fn a_system_may_lack_what_says_how_much_is_used() {
    let with = Inside::new(own_pid()).resources(own_pid());
    let with = with.expect("its own").read();
    assert!(with.resident_bytes.is_some() && with.others.len() == 6);
    let without = OfProcess::without(own_pid()).read();
    assert!(without.resident_bytes.is_none() && without.others.is_empty());
    assert!(without.threads.is_some());
}

#[test]
fn the_ticker_wakes_on_time() {
    let host = Inside::new(own_pid());
    let now = platform::clock_ns(libc::CLOCK_MONOTONIC);
    host.sleep_until(now + 30_000_000);
    let slept = platform::clock_ns(libc::CLOCK_MONOTONIC) - now;
    assert!(slept >= 29_900_000, "{slept} ns");
    host.sleep_until(0);
}

#[test]
fn the_window_uses_nothing_of_std() {
    let text = include_str!("../window.rs");
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    for line in code {
        for word in [
            "std::", "vec!", "format!", "panic!", "assert", "unwrap", "expect(", "Box", "String",
            "Mutex",
        ] {
            assert!(!line.contains(word), "{line}");
        }
    }
}
