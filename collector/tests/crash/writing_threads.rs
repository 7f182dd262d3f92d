//! The program of the crash test: 16 threads that write as fast as they are asked to. Record number n of
//! a thread carries n in several places, and a stack that depends on n.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Work;
use stackbeat_core::clock;
use stackbeat_core::ids::{Pid, Tid, Upid};
use stackbeat_core::shm::buffer::Writer;
use stackbeat_core::shm::callstack::{NodeValue, Table, root_address};
use stackbeat_core::shm::layout::{ClockSource, Mode, SESSION_VARIABLE, node_id, node_kind};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::methods::{Description, Methods, Runtime, managed_address};
use stackbeat_core::shm::record_format::{RecordKind, flags, header};
use stackbeat_core::shm::registry::{NewProcess, NewThread, add_process, add_thread};

pub(super) const THREADS: usize = 16;
/// Records that share one stack, and stacks of one thread.
pub(super) const SAME_STACK: u64 = 16;
pub(super) const STACKS: u64 = 64;

/// What a record must carry besides its number.
pub(super) fn seal(utid: u32, number: u64) -> u64 {
    (u64::from(utid) << 48 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The address of the leaf of record `number`.
pub(super) fn leaf(utid: u32, number: u64) -> u64 {
    0x10_0000 + u64::from(utid) * 0x1000 + number / SAME_STACK % STACKS * 16
}

/// How many records each thread has finished, kept outside of the mapping: per thread its utid and
/// the count.
#[derive(Debug)]
pub(super) struct Notes(&'static [[AtomicU64; 2]; THREADS]);

impl Notes {
    fn map(path: &Path) -> Notes {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .expect("notes");
        let bytes = size_of::<[[AtomicU64; 2]; THREADS]>();
        file.set_len(bytes as u64).expect("room for the notes");
        // SAFETY: maps a file of this size; the mapping is never removed.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: the memory is mapped for good, aligned to a page, and atomics may have any bits.
        Notes(unsafe { &*base.cast() })
    }

    /// (utid, records finished) of the threads that began.
    pub(super) fn read(path: &Path) -> Vec<(u32, u64)> {
        let notes = Notes::map(path);
        notes
            .0
            .iter()
            .map(|n| {
                (
                    n[0].load(Ordering::Relaxed) as u32,
                    n[1].load(Ordering::Relaxed),
                )
            })
            .filter(|(utid, _)| *utid != 0)
            .collect()
    }
}

/// Not a test: the program that is recorded.
#[test]
#[ignore = "is run by another test"]
fn writer() {
    let work = Work::given();
    let session = std::env::var(SESSION_VARIABLE).expect("a session");
    let path = CString::new(session).expect("no NUL");
    let mapping: &'static Mapping = Box::leak(Box::new(Mapping::join(&path).expect("the mapping")));
    mapping.map_methods().expect("room in the address space");
    let notes = Notes::map(&work.notes);
    let (process, upid) = add_process(
        mapping,
        &NewProcess {
            pid: Pid(std::process::id()),
            cycles: clock::now(ClockSource::Cycles),
            ..Default::default()
        },
    )
    .expect("an entry");
    std::thread::scope(|scope| {
        for note in notes.0 {
            scope.spawn(move || write(mapping, note, work.pace_ns, process, upid));
        }
    });
}

/// The name of the method that this record's stack passes through.
pub(super) fn method_name(number: u64) -> String {
    format!("method {}", number / 64 % 500)
}

/// The address field of that method's node, which the threads of all processes describe alike.
fn managed(mapping: &Mapping, number: u64) -> u64 {
    let methods = Methods::of(mapping);
    let key = number / 64 % 500 + 1;
    let method = methods.find(key).or_else(|| {
        let name = method_name(number);
        let description = Description {
            runtime: Runtime::CPython,
            name: name.as_bytes(),
            file: b"program.py",
            ..Default::default()
        };
        methods.insert(key, &description).ok()
    });
    managed_address(method.unwrap_or(0), 7)
}

fn write(mapping: &Mapping, note: &[AtomicU64; 2], pace_ns: u64, process: u32, upid: Upid) {
    let source = match mapping.control().clock_source.load(Ordering::Relaxed) {
        0 => ClockSource::Cycles,
        _ => ClockSource::Monotonic,
    };
    let (index, entry) = add_thread(
        mapping,
        &NewThread {
            // SAFETY: takes nothing and cannot fail.
            tid: Tid(unsafe { libc::gettid() } as u32),
            process,
            cycles: clock::now(source),
            ..Default::default()
        },
    )
    .expect("an entry");
    let utid = entry.utid.load(Ordering::Relaxed);
    note[0].store(u64::from(utid), Ordering::Relaxed);
    let nodes = mapping.layout().capacity.generation_nodes;
    for number in 0.. {
        // The order of an agent: note the generation, look again, then use it.
        let generation = mapping.control().generation.load(Ordering::Acquire);
        entry.capturing.store(generation + 1, Ordering::SeqCst);
        if mapping.control().generation.load(Ordering::SeqCst) != generation {
            entry.capturing.store(0, Ordering::SeqCst);
            continue;
        }
        let node = Table::of(mapping, generation).and_then(|table| {
            let insert = |parent, address, kind| {
                table
                    .insert(NodeValue {
                        parent,
                        address,
                        kind,
                    })
                    .ok()
            };
            let root = insert(0, root_address(upid, 0), node_kind::ROOT)?;
            let outer = insert(root, 0x1000 + u64::from(utid), node_kind::NATIVE)?;
            let managed = insert(outer, managed(mapping, number), node_kind::MANAGED)?;
            insert(managed, leaf(utid, number), node_kind::NATIVE)
        });
        let id = node.map_or(0, |i| node_id(generation, nodes, i));
        let now = clock::now(source);
        let record = [
            header(RecordKind::Sample, 9, 10, flags::HAS_ARG, id),
            now.0,
            0,
            number * 1000,
            number + 1,
            number * 7,
            number / 2,
            seal(utid, number),
            number as i64 as u64,
        ];
        Writer {
            pool: mapping,
            entry,
            index,
            upid,
            mode: Mode::Endless,
            generation,
        }
        .append(&record, now);
        entry.capturing.store(0, Ordering::Release);
        note[1].store(number + 1, Ordering::Release);
        if pace_ns > 0 {
            let until = stackbeat_core::platform::clock_ns(libc::CLOCK_MONOTONIC) + pace_ns;
            while stackbeat_core::platform::clock_ns(libc::CLOCK_MONOTONIC) < until {
                std::hint::spin_loop();
            }
        }
    }
}
