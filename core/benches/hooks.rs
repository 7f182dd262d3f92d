//! What a hook costs: dormant, throttled, captured; and the parts of a capture.
//!
//! `cargo bench -p stackbeat-core --bench hooks`. Each line is one call (throttled hooks: one of a
//! thousand, so that the timer does not count).

use divan::{Bencher, black_box};
use stackbeat_core::agent;
use stackbeat_core::clock;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::Upid;
use stackbeat_core::platform;
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::buffer::{self, Pool, Writer};
use stackbeat_core::shm::callstack::{NodeValue, Table};
use stackbeat_core::shm::layout::{Capacity, Mode, node_kind};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::registry::{self, NewThread};
use stackbeat_core::shm::throttle::Ticker;
use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

fn main() {
    // Before the first use of `session` the agent is dormant.
    divan::main();
}

fn create() -> (CString, Mapping) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "/dev/shm/stackbeat-bench.{}.{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let path = CString::new(name).expect("no NUL");
    let mapping = Mapping::create(&path, Capacity::default()).expect("created");
    (path, mapping)
}

/// The session that this process' agent takes part in; ring mode, so that it never ends.
fn session() -> &'static Mapping {
    static SESSION: OnceLock<Mapping> = OnceLock::new();
    SESSION.get_or_init(|| {
        let (path, mapping) = create();
        let control = mapping.control();
        control.switch.store(1, Ordering::Relaxed);
        control.mode.store(Mode::Ring as u32, Ordering::Relaxed);
        control.depth_limit.store(256, Ordering::Relaxed);
        control.probe_mask.store(u64::MAX, Ordering::Relaxed);
        control.forced_per_second.store(u32::MAX, Ordering::Relaxed);
        Ticker::default().advance_all(control, clock::cycles());
        assert!(agent::init(&path));
        agent::thread_started(own_stack(), agent::Creator::UNKNOWN);
        platform::remove(&path);
        mapping
    })
}

fn own_stack() -> Option<(usize, usize)> {
    let mut low = std::ptr::null_mut();
    let mut bytes = 0;
    // SAFETY: fills the attributes of the calling thread, reads them, and gives them back.
    unsafe {
        let mut attributes = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return None;
        }
        libc::pthread_attr_getstack(&attributes, &mut low, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
    }
    Some((low as usize, low as usize + bytes))
}

const CALLS: usize = 1000;

#[divan::bench(name = "a0_nothing (1000 calls)")]
fn nothing() {
    for i in 0..CALLS {
        black_box(i);
    }
}

#[divan::bench(name = "a1_dormant_allocated_freed (1000 calls)")]
fn dormant() {
    for i in 0..CALLS {
        agent::allocated(Probe::Malloc, black_box(i));
        agent::freed();
    }
}

#[divan::bench(name = "b1_throttled_allocated_freed (1000 calls)")]
fn throttled_allocation(bencher: Bencher) {
    session();
    agent::hit(Probe::Read, 0);
    bencher.bench_local(|| {
        for i in 0..CALLS {
            agent::allocated(Probe::Malloc, black_box(i));
            agent::freed();
        }
    });
}

#[divan::bench(name = "b2_throttled_hit (1000 calls)")]
fn throttled_hit(bencher: Bencher) {
    session();
    bencher.bench_local(|| {
        for i in 0..CALLS {
            agent::hit(Probe::MutexLock, black_box(i as u64));
        }
    });
}

#[divan::bench(name = "b3_throttled_wait (1000 calls)")]
fn throttled_wait(bencher: Bencher) {
    session();
    bencher.bench_local(|| {
        for i in 0..CALLS {
            agent::begin_wait(Probe::Read, black_box(i as u64)).end(0);
        }
    });
}

#[divan::bench(name = "b3_throttled_wait_that_moves_bytes (1000 calls)")]
fn throttled_wait_that_moves_bytes(bencher: Bencher) {
    session();
    bencher.bench_local(|| {
        for i in 0..CALLS {
            agent::begin_wait(Probe::Read, black_box(i as u64)).end_moving(64, black_box(64));
        }
    });
}

#[divan::bench(name = "b4_throttled_system_call (1000 calls)")]
fn throttled_system_call(bencher: Bencher) {
    session();
    bencher.bench_local(|| {
        for i in 0..CALLS {
            if !agent::count_quietly(Probe::Stat) {
                agent::count_call(Probe::Stat, black_box(i as u64));
            }
        }
    });
}

#[inline(never)]
fn at_depth(depth: usize, work: &mut dyn FnMut()) {
    if depth == 0 {
        work();
    } else {
        at_depth(depth - 1, work);
    }
    black_box(depth);
}

#[divan::bench(name = "c1_capture", args = [10, 30, 60, 120])]
fn capture(bencher: Bencher, depth: usize) {
    let control = session().control();
    let mut ticker = Ticker::default();
    let mut bencher = Some(bencher);
    at_depth(depth, &mut || {
        if let Some(bencher) = bencher.take() {
            bencher.bench_local(|| {
                let now = clock::cycles();
                ticker.advance(control, 0, 0, now);
                ticker.advance(control, 0, 1, now);
                ticker.advance(control, 0, 2, now);
                ticker.advance(control, 0, 3, now);
                ticker.advance(control, 1, 0, now);
                ticker.advance(control, 1, 1, now);
                ticker.advance(control, 1, 2, now);
                ticker.advance(control, 1, 3, now);
                agent::hit(Probe::Read, 1);
            });
        }
    });
}

#[divan::bench(name = "c2_part_cycle_counter")]
fn cycle_counter() -> Cycles {
    clock::cycles()
}

#[divan::bench(name = "c3_part_thread_cpu")]
fn thread_cpu() -> u64 {
    platform::thread_cpu_ns()
}

#[divan::bench(name = "c4_part_rusage")]
fn rusage() -> Option<platform::Usage> {
    platform::thread_usage()
}

fn native(parent: u32, address: u64) -> NodeValue {
    NodeValue {
        parent,
        address,
        kind: node_kind::NATIVE,
    }
}

#[divan::bench(name = "d1_table_hit (1000 nodes)", threads = [1, 2])]
fn table_hit(bencher: Bencher) {
    static SHARED: OnceLock<Mapping> = OnceLock::new();
    let mapping = SHARED.get_or_init(|| create().1);
    bencher.bench(|| {
        let table = Table::of(mapping, 0).expect("generation 0");
        let mut parent = 1;
        for i in 0..1000u64 {
            parent = table
                .insert(native(parent, 0x5555_0000_1000 + i * 23))
                .expect("room");
        }
        parent
    });
}

#[divan::bench(
    name = "d2_table_miss (1000 nodes)",
    sample_count = 100,
    sample_size = 1
)]
fn table_miss(bencher: Bencher) {
    let (path, mapping) = create();
    platform::remove(&path);
    mapping.extend_nodes(0, 1 << 18).expect("room");
    let table = Table::of(&mapping, 0).expect("generation 0");
    let mut next = 0;
    bencher.bench_local(|| {
        for _ in 0..1000u64 {
            next += 1;
            let _ = black_box(table.insert(native(1, 0x5555_0000_1000 + next * 23)));
        }
    });
}

#[divan::bench(name = "e1_buffer_append (1000 samples of 7 words, ring)")]
fn append(bencher: Bencher) {
    let (path, mapping) = create();
    platform::remove(&path);
    let (index, entry) = registry::add_thread(&mapping, &NewThread::default()).expect("room");
    let writer = Writer {
        pool: &mapping,
        entry,
        index,
        upid: Upid(1),
        mode: Mode::Ring,
        generation: 0,
    };
    bencher.bench_local(|| {
        for i in 0..1000 {
            writer.append(black_box(&[i; 7]), Cycles(i));
        }
    });
}

#[divan::bench(
    name = "e2_drain (8 MB of sub-buffers)",
    sample_count = 20,
    sample_size = 1
)]
fn drain(bencher: Bencher) {
    let (path, mapping) = create();
    platform::remove(&path);
    let (index, entry) = registry::add_thread(&mapping, &NewThread::default()).expect("room");
    let writer = Writer {
        pool: &mapping,
        entry,
        index,
        upid: Upid(1),
        mode: Mode::Endless,
        generation: 0,
    };
    let mut words = Vec::new();
    bencher
        .with_inputs(|| while writer.append(&[7; 7], Cycles(1)) {})
        .bench_local_refs(|()| {
            let mut all = 0;
            for i in 0..mapping.count() {
                if let Some(drained) = buffer::drain(&mapping, i, true, &mut words) {
                    all += drained.records as u64;
                    buffer::stored(&mapping, &drained);
                }
            }
            all
        });
}
