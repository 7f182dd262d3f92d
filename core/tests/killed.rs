//! Real processes write into one mapping and are killed at any moment, while another one drains it:
//! what was written is either read back as it was written, or known to be lost.
// It starts itself, which user-mode emulation cannot.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use stackbeat_core::agent;
use stackbeat_core::clock;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::platform;
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::buffer::{self, Pool};
use stackbeat_core::shm::layout::{CLASSES, Capacity, buffer_state, drops, entry_state};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::record_format::RecordKind;
use stackbeat_core::shm::registry;
use stackbeat_core::shm::throttle::Ticker;
use std::collections::HashMap;
use std::ffi::CString;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const CHILD: &str = "STACKBEAT_TEST_MAPPING";
const ROUNDS: u32 = 40;
const PROCESSES: usize = 2;
const THREADS: usize = 8;
/// Records of a round before its processes are killed: on a busy machine they may not have begun when their
/// time is over.
const LEAST: u64 = 50;

/// Not a test of its own: what the killed processes run.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else {
        return;
    };
    let path = CString::new(path).expect("no NUL");
    assert!(agent::init(&path));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                agent::thread_started(None, agent::Creator::UNKNOWN);
                for n in 0u64.. {
                    agent::allocated(Probe::Malloc, 8);
                    agent::freed();
                    if n % 16 == 0 {
                        agent::force(Probe::Mark, n);
                    }
                }
            });
        }
    });
}

/// A process that does not outlive the test, however that ends.
struct Victim(Child);

impl Victim {
    fn kill(&mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it was ours");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(path: &CString) -> Victim {
    let child = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "killed::child", "--test-threads=1"])
        .env(CHILD, path.to_str().expect("ASCII"))
        .stdout(Stdio::null())
        .spawn()
        .expect("this program starts");
    Victim(child)
}

/// What came of a thread.
#[derive(Default)]
struct Received {
    records: u64,
    /// Number after the last one.
    next: u64,
    spans: Vec<Span>,
}

/// Records that were read together, samples among them.
struct Span {
    /// Number of the first record, and the number after the last.
    first: u64,
    next: u64,
    /// Times of the first and the last sample.
    begin: u64,
    end: u64,
}

impl Received {
    /// Nothing was read twice, and time goes on with the numbers.
    ///
    /// A thread can complete a sub-buffer behind a scan and take one ahead of it: that scan reads
    /// newer records than the next one.
    fn check(&mut self) {
        self.spans.sort_by_key(|span| span.first);
        for pair in self.spans.windows(2) {
            assert!(pair[0].next <= pair[1].first, "a record twice");
            assert!(pair[0].end <= pair[1].begin, "time goes back");
        }
    }
}

fn drain(mapping: &Mapping, threads: &mut HashMap<u32, Received>) {
    for i in 0..mapping.count() {
        let mut words = Vec::new();
        let Some(drained) = buffer::drain(mapping, i, true, &mut words) else {
            continue;
        };
        let thread = threads.entry(drained.utid.0).or_default();
        let mut times = None;
        let mut rest = words.as_slice();
        for _ in 0..drained.records {
            let length = (rest[0] >> 8 & 0xff) as usize;
            let (record, next) = rest.split_at(length);
            rest = next;
            thread.records += 1;
            match RecordKind::from_number(record[0] as u8) {
                Some(RecordKind::Sample) => {
                    // Allocations and frees go in step, time goes on.
                    assert_eq!(record[5], record[4] * 8);
                    assert!(record[6] == record[4] || record[6] + 1 == record[4]);
                    let (begin, end) = times.unwrap_or((record[1], record[1]));
                    assert!(record[1] >= end);
                    times = Some((begin, record[1]));
                    assert_ne!(record[0] >> 32, 0, "a sample without a stack");
                }
                Some(RecordKind::Name | RecordKind::Module | RecordKind::Text) => {}
                other => panic!("{other:?} was never written: {record:x?}"),
            }
        }
        assert!(rest.is_empty());
        let next = drained.first_record + drained.records as u64;
        thread.next = thread.next.max(next);
        if let Some((begin, end)) = times {
            thread.spans.push(Span {
                first: drained.first_record,
                next,
                begin,
                end,
            });
        }
        buffer::stored(mapping, &drained);
    }
}

/// Takes sub-buffers away from their owners, as from idle ones.
fn revoke(mapping: &Mapping, round: u32) {
    for i in 0..mapping.count() {
        if (i + round).is_multiple_of(4) {
            buffer::revoke(mapping, i);
        }
        let Some(header) = mapping.buffer(i) else {
            continue;
        };
        let state = header.state.load(Ordering::Relaxed);
        if state as u32 == buffer_state::REVOKED {
            buffer::settle(mapping, i, mapping.thread((state >> 32) as u32));
        }
    }
}

#[test]
fn what_the_killed_wrote_is_read_or_counted() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let path = CString::new(format!(
        "/dev/shm/stackbeat-test-killed.{}",
        std::process::id()
    ))
    .expect("no NUL");
    let mapping = Mapping::create(
        &path,
        Capacity {
            buffers: 24,
            buffer_bytes: 4096,
            ..Capacity::default()
        },
    )
    .expect("created");
    let control = mapping.control();
    control.switch.store(1, Ordering::Relaxed);
    control.depth_limit.store(64, Ordering::Relaxed);
    control.probe_mask.store(u64::MAX, Ordering::Relaxed);
    control.forced_per_second.store(10_000, Ordering::Relaxed);
    for class in 0..CLASSES {
        control.interval_ns[class].store(100_000, Ordering::Relaxed);
        control.interval_cycles[class].store(Cycles(200_000), Ordering::Relaxed);
    }
    let mut ticker = Ticker::default();
    ticker.advance_all(control, clock::cycles());
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let (mut total, mut total_lost) = (0, 0);

    for round in 0..ROUNDS {
        let mut threads = HashMap::new();
        let mut children: Vec<Victim> = (0..PROCESSES).map(|_| start(&path)).collect();
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let life = Duration::from_micros(10_000 + (random >> 33) % 40_000);
        let end = Instant::now() + life;
        let is_written = || {
            let threads = registry::threads(&mapping).map(|(_, entry)| entry);
            let live = threads.filter(|t| t.state.load(Ordering::Relaxed) == entry_state::LIVE);
            let records = live.map(|t| t.records.load(Ordering::Relaxed)).sum::<u64>();
            records >= LEAST
        };
        while Instant::now() < end || !is_written() {
            ticker.advance_all(control, clock::cycles());
            if round % 2 == 0 {
                drain(&mapping, &mut threads);
                revoke(&mapping, round);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        for child in &mut children {
            child.kill();
        }
        for i in 0..mapping.count() {
            buffer::owner_died(&mapping, i);
        }
        drain(&mapping, &mut threads);
        assert_eq!(buffer::free_count(&mapping), mapping.count());

        for (i, entry) in registry::threads(&mapping) {
            match entry.state.load(Ordering::Relaxed) {
                entry_state::FREE => continue,
                // Killed while it was filling it in.
                entry_state::CLAIMED => {
                    entry.state.store(entry_state::FREE, Ordering::Relaxed);
                    continue;
                }
                _ => {}
            }
            let utid = entry.utid.load(Ordering::Relaxed);
            let mut received = threads.remove(&utid).unwrap_or_default();
            received.check();
            let written = entry.records.load(Ordering::Relaxed).max(received.next);
            let lost = entry.drops[drops::BUFFER_FULL].load(Ordering::Relaxed);
            let missing = written - received.records;
            // Killed between counting a loss and taking its number, it has one more.
            assert!(
                missing == lost || missing + 1 == lost,
                "thread {utid}: {written} written, {} read, {lost} lost",
                received.records
            );
            total += written;
            total_lost += lost;
            registry::end_thread(entry, Cycles(0));
            registry::free_thread(&mapping, i);
        }
        assert!(threads.is_empty(), "records of threads that never were");
        for (_, process) in registry::processes(&mapping) {
            registry::end_process(process, Cycles(0), false);
            registry::free_process(process);
        }
        assert_eq!(control.agents_disabled.load(Ordering::Relaxed), 0);
    }
    platform::remove(&path);
    assert!(total > 1000 && total_lost < total, "{total} {total_lost}");
}
