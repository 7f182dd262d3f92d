//! The agent in a real process: hits become records, with the right stacks and counters, across
//! threads and forks. One test function: there is one agent in a process, which nothing else may use.
#![cfg(target_os = "linux")]

use stackbeat_core::agent;
use stackbeat_core::clock;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::buffer::{self, Pool};
use stackbeat_core::shm::callstack::Table;
use stackbeat_core::shm::layout::{CLASSES, Capacity, ThreadEntry, entry_state, node_kind};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::record_format::{RecordKind, flags};
use stackbeat_core::shm::registry;
use stackbeat_core::shm::throttle::Ticker;
use stackbeat_core::system_call::SystemCall;
use std::ffi::CString;
use std::sync::atomic::Ordering;

use super::alone::is_alone;

pub(super) struct Seen {
    utid: u32,
    probe: u8,
    flags: u8,
    pub(super) node: u32,
    pub(super) words: Vec<u64>,
}

/// All samples that were not drained yet but those that system calls caused, and how many records of other
/// kinds came between.
pub(super) fn samples(mapping: &Mapping) -> (Vec<Seen>, usize) {
    let (mut seen, others) = all_samples(mapping);
    seen.retain(|s| s.probe != Probe::SampledCall as u8);
    (seen, others)
}

fn all_samples(mapping: &Mapping) -> (Vec<Seen>, usize) {
    let mut seen = Vec::new();
    let mut others = 0;
    for i in 0..mapping.count() {
        let mut words = Vec::new();
        let Some(drained) = buffer::drain(mapping, i, true, &mut words) else {
            continue;
        };
        buffer::stored(mapping, &drained);
        let mut rest = words.as_slice();
        let mut records = 0;
        while let Some(header) = rest.first() {
            let length = (header >> 8 & 0xff) as usize;
            let (record, next) = rest.split_at(length);
            rest = next;
            records += 1;
            if *header as u8 == RecordKind::Sample as u8 {
                seen.push(Seen {
                    utid: drained.utid.0,
                    probe: (header >> 16) as u8,
                    flags: (header >> 24) as u8,
                    node: (header >> 32) as u32,
                    words: record.to_vec(),
                });
            } else {
                others += 1;
            }
        }
        assert_eq!(records, drained.records);
    }
    (seen, others)
}

pub(super) fn find(mapping: &Mapping, tid: u32) -> &ThreadEntry {
    registry::threads(mapping)
        .map(|(_, e)| e)
        .find(|e| e.tid.load(Ordering::Relaxed) == tid)
        .expect("the thread is registered")
}

/// Bounds of the calling thread's stack.
pub(super) fn own_stack() -> Option<(usize, usize)> {
    let mut low = std::ptr::null_mut();
    let mut bytes = 0;
    // SAFETY: fills the attributes of the calling thread, reads them, and gives them back.
    unsafe {
        let mut attributes = std::mem::zeroed();
        assert_eq!(
            libc::pthread_getattr_np(libc::pthread_self(), &mut attributes),
            0
        );
        libc::pthread_attr_getstack(&attributes, &mut low, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
    }
    Some((low as usize, low as usize + bytes))
}

fn tid() -> u32 {
    stackbeat_core::platform::thread_id()
}

#[inline(never)]
fn outer_of_test() {
    middle_of_test();
    std::hint::black_box(());
}

#[inline(never)]
fn middle_of_test() {
    agent::hit(Probe::Read, 7);
    std::hint::black_box(());
}

/// Whether some frame of the stack lies in the first `bytes` of a function.
fn has(stack: &[u64], function: fn(), bytes: u64) -> bool {
    let start = function as usize as u64;
    stack.iter().any(|a| (start..start + bytes).contains(a))
}

fn stack_of(mapping: &Mapping, node: u32) -> Vec<u64> {
    let table = Table::of(mapping, 0).expect("generation 0");
    let mut stack = Vec::new();
    let mut i = node;
    while i != 0 {
        let value = table.read(i).expect("a node that a record names is there");
        if value.kind != node_kind::ROOT {
            stack.push(value.address);
        }
        i = value.parent;
    }
    stack
}

#[test]
fn a_session_in_this_process() {
    if !is_alone("agent::a_session_in_this_process") {
        return;
    }
    let path = CString::new(format!(
        "/dev/shm/stackbeat-test-agent.{}",
        std::process::id()
    ))
    .expect("no NUL");
    let mapping = Mapping::create(
        &path,
        Capacity {
            buffers: 64,
            ..Capacity::default()
        },
    )
    .expect("created");
    let control = mapping.control();
    control.switch.store(1, Ordering::Relaxed);
    control.depth_limit.store(128, Ordering::Relaxed);
    control.probe_mask.store(u64::MAX, Ordering::Relaxed);
    control.forced_per_second.store(100, Ordering::Relaxed);
    control.follow_children.store(1, Ordering::Relaxed);
    let begin = clock::cycles();
    std::thread::sleep(std::time::Duration::from_millis(10));
    let cycles_a_ms = (clock::cycles() - begin) / 10;
    for class in 0..CLASSES {
        control.interval_ns[class].store(1_000_000, Ordering::Relaxed);
        control.interval_cycles[class].store(cycles_a_ms, Ordering::Relaxed);
    }
    let mut ticker = Ticker::default();
    ticker.advance_all(control, clock::cycles());

    agent::hit(Probe::Read, 1); // before init: nothing happens
    assert!(!agent::init(c"/dev/shm/stackbeat-no-such-session"));
    assert!(agent::init(&path));
    stackbeat_core::platform::remove(&path);
    // The test runs on a thread that no hook has seen start.
    agent::thread_started(own_stack(), agent::Creator::UNKNOWN);
    let (start, others) = samples(&mapping);
    assert_eq!(start.len(), 2);
    assert_eq!(start[0].probe, Probe::ThreadStart as u8);
    assert!(others >= 3, "executable, command line, name: {others}");

    // One capture a tick, with its stack.
    for _ in 0..10 {
        outer_of_test();
    }
    assert_eq!(samples(&mapping).0.len(), 0, "no tick since the start");
    ticker.advance_all(control, clock::cycles());
    for _ in 0..10 {
        outer_of_test();
    }
    let (seen, _) = samples(&mapping);
    assert_eq!(seen.len(), 1);
    let stack = stack_of(&mapping, seen[0].node);
    // The hook's hot path is inlined into the middle one.
    assert!(has(&stack, middle_of_test, 1024), "{stack:x?}");
    assert!(has(&stack, outer_of_test, 32), "{stack:x?}");
    assert_eq!(seen[0].probe, Probe::Read as u8);
    assert_ne!(seen[0].flags & flags::HAS_ARG, 0);
    assert_eq!(seen[0].words[7], 7);

    // Counters are exact whatever is captured.
    for i in 0..1000 {
        agent::allocated(Probe::Malloc, i);
        agent::freed();
    }
    let me = find(&mapping, tid());
    assert_eq!(me.allocations.load(Ordering::Relaxed), 1000);
    assert_eq!(me.allocated_bytes.load(Ordering::Relaxed), 499_500);
    assert_eq!(me.frees.load(Ordering::Relaxed), 1000);

    // They ask for samples of their own, whatever the ticks: the first within one and a half times 32
    // allocations of the draw, each next one at most a quarter later.
    let (seen, _) = samples(&mapping);
    let counted = |probe| seen.iter().filter(move |s| s.probe == probe as u8);
    let met: Vec<u64> = counted(Probe::SampledAllocation)
        .map(|s| s.words[4])
        .collect();
    assert!((8..=64).contains(&met.len()), "{met:?}");
    assert!(met[0] <= 1 + 48, "{met:?}");
    assert!(met.windows(2).all(|w| w[0] < w[1]), "{met:?}");
    assert_ne!(counted(Probe::SampledByte).count(), 0);
    let all = met.len() + counted(Probe::SampledByte).count();
    assert_eq!(all, seen.len(), "no tick since");
    assert!(seen.iter().all(|s| s.flags & flags::HAS_RUSAGE == 0));

    // So do system calls, each kind by itself, and these samples say how many calls they stand for.
    let made = |call: SystemCall| {
        let counter = &me.system_calls[call as usize].count;
        counter.load(Ordering::Relaxed)
    };
    for i in 0..1000 {
        agent::count(SystemCall::Stat);
        if i % 50 == 0 {
            agent::count_call(Probe::Open, 0);
        }
    }
    assert_eq!((made(SystemCall::Stat), made(SystemCall::Open)), (1000, 20));
    let (seen, _) = all_samples(&mapping);
    let amounts = |call: SystemCall| -> Vec<u64> {
        let is_one = |s: &&Seen| s.probe == Probe::SampledCall as u8 && s.words[7] == call as u64;
        seen.iter().filter(is_one).map(|s| s.words[8]).collect()
    };
    let (stats, opens) = (amounts(SystemCall::Stat), amounts(SystemCall::Open));
    assert!((15..=50).contains(&stats.len()), "{stats:?}");
    assert!((1..=5).contains(&opens.len()), "{opens:?}");
    assert!(stats[0] <= 8 && opens[0] <= 8, "{stats:?} {opens:?}");
    assert!(
        (700..=1000).contains(&stats.iter().sum::<u64>()),
        "{stats:?}"
    );
    assert!(stats.iter().all(|n| *n > 0), "{stats:?}");
    assert_eq!(seen.len(), stats.len() + opens.len(), "no tick since");
    let not_io = !SystemCall::Stat.category().bit();
    control.probe_mask.store(not_io, Ordering::Relaxed);
    for _ in 0..1000 {
        agent::count(SystemCall::Stat);
    }
    assert_eq!(made(SystemCall::Stat), 2000);
    assert_eq!(all_samples(&mapping).0.len(), 0);
    control.probe_mask.store(u64::MAX, Ordering::Relaxed);

    // And the bytes that they move: of one large read in a hundred small ones, its share.
    for i in 0..1000 {
        let bytes = if i % 100 == 50 { 100_000 } else { 1000 };
        agent::begin_wait(Probe::Read, 0).end_moving(bytes, bytes);
        agent::begin_wait(Probe::Read, 0).end_moving(-1, -1);
    }
    agent::begin_wait(Probe::Sendfile, 0).end_moving(1 << 40, 1 << 40);
    let all = 990 * 1000 + 10 * 100_000 + (1 << 40);
    let moved = [SystemCall::BytesRead, SystemCall::BytesWritten].map(made);
    assert_eq!(moved, [all, 1 << 40]);
    assert_eq!(made(SystemCall::Read), 2000);
    let (seen, _) = all_samples(&mapping);
    let amounts = |call: SystemCall| -> Vec<u64> {
        let is_one = |s: &&Seen| s.probe == Probe::SampledCall as u8 && s.words[7] == call as u64;
        seen.iter().filter(is_one).map(|s| s.words[8]).collect()
    };
    let (read, written) = (
        amounts(SystemCall::BytesRead),
        amounts(SystemCall::BytesWritten),
    );
    assert!((40..=150).contains(&read.len()), "{read:?}");
    // Distances have grown; the copy is met, and is more than all distances before.
    let last = read.iter().max().expect("is one");
    let before = read.iter().sum::<u64>() - last;
    assert!((1_000_000..2_000_000).contains(&before), "{read:?}");
    assert!(all - before - last < 1_000_000, "{read:?}");
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0] > (1 << 40) - 10_000, "{written:?}");

    // A wait that a tick passed in has its length and result; its gate is open again.
    let wait = agent::begin_wait(Probe::Nanosleep, 3);
    assert_eq!(me.closed.load(Ordering::Relaxed), 1);
    assert_eq!(me.blocking_section.load(Ordering::Relaxed) & 1, 1);
    let asleep = clock::cycles();
    std::thread::sleep(std::time::Duration::from_millis(3));
    let asleep = clock::cycles() - asleep;
    ticker.advance_all(control, clock::cycles());
    wait.end(-4);
    assert_eq!(me.closed.load(Ordering::Relaxed), 0);
    assert_eq!(me.blocking_section.load(Ordering::Relaxed) & 1, 0);
    let (seen, _) = samples(&mapping);
    assert_eq!(seen.len(), 1);
    assert_ne!(seen[0].flags & flags::BLOCKED, 0);
    assert!(Cycles(seen[0].words[2]) >= asleep);
    assert_eq!(seen[0].words[8] as i64, -4);

    // A poll that is not captured is still an event loop's iteration, told once by the next sample.
    let are_short = (0..50).any(|_| {
        agent::begin_wait(Probe::EpollWait, 5).end(1);
        agent::begin_wait(Probe::Read, 5).end(1);
        // Long ones are captured, and on a busy machine any may be long.
        samples(&mapping).0.is_empty()
    });
    assert!(are_short);
    let loop_iterations: Vec<bool> = (0..2)
        .map(|_| {
            ticker.advance_all(control, clock::cycles());
            outer_of_test();
            let (seen, _) = samples(&mapping);
            assert_eq!(seen.len(), 1);
            seen[0].flags & flags::LOOP_ITERATION != 0
        })
        .collect();
    assert_eq!(loop_iterations, [true, false]);

    // Forced captures have a budget.
    for _ in 0..200 {
        agent::force(Probe::MutexUnlock, 0);
    }
    let forced = samples(&mapping).0.len();
    assert!((10..=40).contains(&forced), "{forced}");
    let refused = me.drops[6].load(Ordering::Relaxed);
    assert_eq!(refused as usize + forced, 200);

    // They leave the tick to whoever it would have met without them.
    ticker.advance_all(control, clock::cycles());
    let from = std::time::Instant::now();
    while samples(&mapping).0.is_empty() {
        assert!(
            from.elapsed().as_secs() < 10,
            "the budget does not fill again"
        );
        agent::force(Probe::MutexUnlock, 0);
    }
    agent::freed();
    let (seen, _) = samples(&mapping);
    assert_eq!(seen.len(), 1);
    assert_ne!(seen[0].probe, Probe::MutexUnlock as u8);

    // A hook that comes well behind its tick was not found by it.
    let mut is_weighted = |after_us| {
        ticker.advance_all(control, clock::cycles());
        std::thread::sleep(std::time::Duration::from_micros(after_us));
        outer_of_test();
        let (seen, _) = samples(&mapping);
        assert_eq!(seen.len(), 1);
        seen[0].flags & flags::FORCED == 0
    };
    // On a busy machine any may be late.
    assert!((0..50).any(|_| is_weighted(0)));
    assert!(!is_weighted(1000));

    // A masked category captures nothing, and leaves the tick to the others.
    control
        .probe_mask
        .store(!Probe::Read.category().bit(), Ordering::Relaxed);
    ticker.advance_all(control, clock::cycles());
    agent::freed();
    samples(&mapping);
    ticker.advance_all(control, clock::cycles());
    agent::hit(Probe::Read, 0);
    assert_eq!(samples(&mapping).0.len(), 0);
    agent::freed();
    assert_eq!(samples(&mapping).0.len(), 1);
    control.probe_mask.store(u64::MAX, Ordering::Relaxed);
    ticker.advance_all(control, clock::cycles());
    agent::freed();

    // Parked: the next hook captures and says that somebody runs.
    ticker.park(control);
    assert_eq!(control.parked.load(Ordering::Relaxed), 1);
    samples(&mapping);
    agent::hit(Probe::Read, 0);
    agent::hit(Probe::Read, 0);
    assert_eq!(samples(&mapping).0.len(), 1);
    assert_eq!(control.parked.load(Ordering::Relaxed), 0);
    ticker.advance_all(control, clock::cycles());

    // A new generation of the CallstackTable: stacks are complete in it from the start.
    mapping.prepare_generation(1).expect("room");
    control.generation.store(1, Ordering::SeqCst);
    outer_of_test();
    ticker.advance_all(control, clock::cycles());
    outer_of_test();
    let (seen, _) = samples(&mapping);
    let node = seen.last().expect("a sample").node;
    let nodes = mapping.layout().capacity.generation_nodes;
    assert_eq!(node / nodes, 1);
    let table = Table::of(&mapping, 1).expect("generation 1");
    let mut depth = 0;
    let mut at = node % nodes;
    while at != 0 {
        at = table.read(at).expect("it is there").parent;
        depth += 1;
    }
    assert!(depth > 5, "{depth}");
    control.generation.store(2, Ordering::SeqCst);
    mapping.prepare_generation(2).expect("room");
    ticker.advance_all(control, clock::cycles());
    outer_of_test();
    let (seen, _) = samples(&mapping);
    assert_eq!(seen.last().expect("a sample").node / nodes, 2);

    // Another thread, once the budget has a capture again.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let creator = agent::creating_thread();
    let other = std::thread::spawn(move || {
        agent::thread_started(None, creator);
        agent::hit(Probe::Write, 0);
        agent::thread_exiting(0);
        agent::hit(Probe::Write, 0);
        tid()
    })
    .join()
    .expect("no panic");
    let entry = find(&mapping, other);
    assert_eq!(entry.state.load(Ordering::Relaxed), entry_state::ENDED);
    assert_eq!(
        entry.creator_utid.load(Ordering::Relaxed),
        me.utid.load(Ordering::Relaxed)
    );
    assert_ne!(entry.creator_node.load(Ordering::Relaxed), 0);
    let utid = entry.utid.load(Ordering::Relaxed);
    let (seen, _) = samples(&mapping);
    let probes: Vec<u8> = seen
        .iter()
        .filter(|s| s.utid == utid)
        .map(|s| s.probe)
        .collect();
    assert_eq!(probes, [Probe::ThreadStart as u8, Probe::ThreadExit as u8]);

    // A forked child that nobody announced notices at its first capture.
    let before = me.allocations.load(Ordering::Relaxed);
    // SAFETY: the child only calls the agent and _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // User-mode emulation ignores MADV_WIPEONFORK, so the child cannot notice by itself there.
        if cfg!(target_arch = "aarch64") {
            agent::fork_child();
        }
        ticker.advance_all(control, clock::cycles());
        outer_of_test();
        outer_of_test();
        for _ in 0..10 {
            agent::allocated(Probe::Malloc, 1);
        }
        agent::process_exiting();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    let in_child = find(&mapping, child as u32);
    assert_ne!(
        in_child.process.load(Ordering::Relaxed),
        me.process.load(Ordering::Relaxed)
    );
    assert_eq!(in_child.allocations.load(Ordering::Relaxed), 10);
    assert_eq!(me.allocations.load(Ordering::Relaxed), before);
    let process = mapping
        .process(in_child.process.load(Ordering::Relaxed))
        .expect("it exists");
    assert_eq!(process.pid.load(Ordering::Relaxed), child as u32);
    assert_eq!(
        process.parent_pid.load(Ordering::Relaxed),
        std::process::id()
    );

    // Switched off: nothing more.
    samples(&mapping);
    control.switch.store(0, Ordering::Relaxed);
    ticker.advance_all(control, clock::cycles());
    outer_of_test();
    assert_eq!(samples(&mapping).0.len(), 0);
}
