//! What `recover` accepts and refuses. That it loses and doubles nothing is the crash test's part.
#![cfg(target_os = "linux")]

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stackbeat_collector::recover::{RecoverError, RecoverOptions, leftovers, orphans, recover};
use stackbeat_core::clock;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::Pid;
use stackbeat_core::shm::buffer::Writer;
use stackbeat_core::shm::layout::{Capacity, ClockSource, Mode};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::record_format::{RecordKind, header};
use stackbeat_core::shm::registry::{NewProcess, NewThread, add_process, add_thread};
use stackbeat_core::sync::Ordering;
use stackbeat_proto::columns;
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::{self, packet, summary};
use tempfile::TempDir;

const RECORDS: u64 = 40;

/// A small mapping.
fn mapping_in(path: &Path) -> Mapping {
    let c_path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    let capacity = Capacity {
        processes: 4,
        threads: 16,
        buffers: 8,
        buffer_bytes: 4096,
        generation_nodes: 1024,
        call_rows: 0,
    };
    Mapping::create(&c_path, capacity).expect("a mapping")
}

fn open_mapping(path: &Path) -> Mapping {
    let c_path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    Mapping::open(&c_path).expect("it can be opened")
}

/// A mapping that a dead collector left, with one thread's records in it.
fn abandoned(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let mapping = mapping_in(&path);
    // No other session is to be taken for this one.
    let id = folder.as_os_str().as_bytes();
    for (i, word) in mapping.header().session_id.iter().enumerate() {
        let half = id.iter().skip(i).step_by(2);
        let value = half.fold(1, |sum: u64, byte| sum.wrapping_mul(257) + u64::from(*byte));
        word.store(value, Ordering::Relaxed);
    }
    let control = mapping.control();
    control
        .clock_source
        .store(ClockSource::Monotonic as u32, Ordering::Relaxed);
    control.interval_ns[0].store(1_000_000, Ordering::Relaxed);
    control.interval_cycles[0].store(Cycles(1_000_000), Ordering::Relaxed);
    let begin = clock::now(ClockSource::Monotonic);
    let new = NewProcess {
        pid: Pid(gone()),
        cycles: begin,
        ..Default::default()
    };
    let (process, upid) = add_process(&mapping, &new).expect("an entry");
    let new = NewThread {
        tid: new.pid.main_thread(),
        process,
        cycles: begin,
        ..Default::default()
    };
    let (index, entry) = add_thread(&mapping, &new).expect("an entry");
    let writer = Writer {
        pool: &mapping,
        entry,
        index,
        upid,
        mode: Mode::Endless,
        generation: 0,
    };
    for n in 0..RECORDS {
        let at = begin + Cycles(n * 1000);
        writer.append(
            &[header(RecordKind::Sample, 7, 10, 0, 0), at.0, 0, 0, n, 0, 0],
            at,
        );
    }
    mapping
        .header()
        .collector_pid
        .store(new.tid.0, Ordering::Relaxed);
    path
}

/// The pid of a process that has ended.
fn gone() -> u32 {
    let mut child = std::process::Command::new("true").spawn().expect("started");
    child.wait().expect("waited");
    child.id()
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn rows(trace: &Path) -> usize {
    let file = fs::File::open(trace).expect("the output");
    let bodies = PacketReader::new(file).map(|p| p.expect("a good packet").1.body);
    bodies
        .map(|body| match body {
            Some(packet::Body::Samples(batch)) => columns::decode(&batch).expect("columns").len(),
            _ => 0,
        })
        .sum()
}

fn summary(trace: &Path) -> v1::Summary {
    let file = fs::File::open(trace).expect("the output");
    let first = PacketReader::new(file)
        .next()
        .expect("a packet")
        .expect("good");
    match first.1.body {
        Some(packet::Body::Header(header)) => header.summary.expect("a summary"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_mapping_alone_is_enough() {
    let folder = folder();
    let mapping = abandoned(folder.path(), "stackbeat.1.x");
    let output = folder.path().join("out.beat");
    let keep = RecoverOptions {
        keep_mapping: true,
        ..Default::default()
    };
    let found = recover(&mapping, &output, &keep).expect("recovered");
    assert_eq!(
        (
            found.records_written,
            found.records_from_mapping,
            found.records_lost
        ),
        (RECORDS, RECORDS, 0)
    );
    assert_eq!((found.threads, found.processes, found.damaged), (1, 1, 0));
    assert_eq!(rows(&output) as u64, RECORDS);
    assert_eq!(summary(&output).outcome(), summary::Outcome::Recovered);
    assert!(mapping.exists());

    // Again, from the folder, over the first result.
    let again = RecoverOptions {
        overwrite: true,
        ..Default::default()
    };
    let refused = recover(folder.path(), &output, &RecoverOptions::default());
    assert!(matches!(refused, Err(RecoverError::OutputExists { .. })));
    recover(folder.path(), &output, &again).expect("recovered");
    assert_eq!(rows(&output) as u64, RECORDS);
    assert!(
        !mapping.exists(),
        "nothing is in it that is not in the output"
    );
    assert!(matches!(
        recover(folder.path(), &output, &again),
        Err(RecoverError::Foreign { .. })
    ));
}

#[test]
fn a_recovered_trace_recovers_to_itself_however_it_is_cut() {
    let folder = folder();
    let mapping = abandoned(folder.path(), "stackbeat.1.x");
    let whole = folder.path().join("whole.beat");
    recover(&mapping, &whole, &RecoverOptions::default()).expect("recovered");
    let bytes = fs::read(&whole).expect("read");
    let again = RecoverOptions {
        overwrite: true,
        ..Default::default()
    };
    let (cut, output) = (
        folder.path().join("cut.beat"),
        folder.path().join("out.beat"),
    );
    let mut seen = Vec::new();
    for length in 0..=bytes.len() {
        fs::write(&cut, &bytes[..length]).expect("written");
        match recover(&cut, &output, &again) {
            Ok(found) => {
                assert_eq!(
                    rows(&output) as u64,
                    found.records_from_trace,
                    "cut at {length}"
                );
                seen.push(found.records_from_trace);
            }
            Err(error) => assert!(matches!(error, RecoverError::Foreign { .. }), "{error}"),
        }
    }
    assert!(seen.is_sorted());
    assert_eq!((seen.first(), seen.last()), (Some(&0), Some(&RECORDS)));
}

#[test]
fn the_living_are_left_alone() {
    let folder = folder();
    let path = abandoned(folder.path(), "stackbeat.1.x");
    let c_path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    let mapping = Mapping::open(&c_path).expect("it can be opened");
    let pid = mapping.header().collector_pid.load(Ordering::Relaxed);
    assert_eq!(orphans(folder.path()).expect("listed").len(), 1);

    mapping
        .header()
        .collector_pid
        .store(std::process::id(), Ordering::Relaxed);
    let output = folder.path().join("out.beat");
    let refused = recover(&path, &output, &RecoverOptions::default());
    assert!(
        matches!(refused, Err(RecoverError::CollectorAlive { .. })),
        "{refused:?}"
    );
    assert!(!output.exists());
    assert!(orphans(folder.path()).expect("listed").is_empty());

    // Only the program lives: what there is so far is given, the mapping is left.
    mapping.header().collector_pid.store(pid, Ordering::Relaxed);
    let process = mapping.process(0).expect("the process");
    process.pid.store(std::process::id(), Ordering::Relaxed);
    let found = recover(&path, &output, &RecoverOptions::default()).expect("recovered");
    assert!(found.still_running && path.exists());
    assert_eq!(found.records_from_mapping, RECORDS);
}

#[test]
fn other_files_are_refused() {
    let folder = folder();
    let output = folder.path().join("out.beat");
    let file = folder.path().join("file");
    for content in [
        &b""[..],
        b"hello",
        &[0; 10_000],
        b"STKBEAT1 but no more than that",
    ] {
        fs::write(&file, content).expect("written");
        let refused = recover(&file, &output, &RecoverOptions::default());
        assert!(
            matches!(refused, Err(RecoverError::Foreign { .. })),
            "{refused:?}"
        );
        assert!(!output.exists());
    }
    let missing = recover(
        &folder.path().join("none"),
        &output,
        &RecoverOptions::default(),
    );
    assert!(matches!(missing, Err(RecoverError::Read { .. })));
}

/// Looks for what belongs to nobody until these names are left, and gives what was named as recoverable. A
/// process that another test starts at this moment shares our descriptors and mappings until it is another
/// program.
#[track_caller]
fn tidied(folder: &Path, expected: &[&str]) -> Vec<PathBuf> {
    for attempt in 0.. {
        let found = leftovers::tidy(folder, Duration::ZERO);
        let items = fs::read_dir(folder).expect("the folder");
        let mut names: Vec<String> = items
            .map(|item| item.expect("an item").file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        if names == expected {
            return found.kept.into_iter().map(|o| o.mapping).collect();
        }
        assert!(attempt < 200, "{names:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    unreachable!("it ends by returning or by the assertion")
}

#[test]
fn what_belongs_to_nobody_goes_and_what_can_be_recovered_stays() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    // Records that are in no trace: data, whether the trace is there or not.
    let with_records = abandoned(folder.path(), "stackbeat.1.00000001");
    // Nobody has joined.
    drop(mapping_in(&path("stackbeat.2.00000002")));
    // Cut off, and never complete.
    fs::write(path("stackbeat.3.00000003"), b"").expect("written");
    fs::write(path("stackbeat-copy.4.0"), vec![7; 5000]).expect("written");
    // Not of ours.
    fs::write(path("other"), b"").expect("written");
    // In use: its recorder lives, and holds the lock.
    let in_use = mapping_in(&path("stackbeat.5.00000005"));
    let kept = tidied(
        folder.path(),
        &["other", "stackbeat.1.00000001", "stackbeat.5.00000005"],
    );
    assert_eq!(kept, std::slice::from_ref(&with_records));
    drop(in_use);
    tidied(folder.path(), &["other", "stackbeat.1.00000001"]);

    // What a finished trace holds is needed no more; that of an unfinished one is.
    let trace = path("run.beat");
    let keep = RecoverOptions {
        keep_mapping: true,
        ..Default::default()
    };
    recover(&with_records, &trace, &keep).expect("recovers");
    let mapping = open_mapping(&with_records);
    assert!(mapping.set_trace_path(trace.as_os_str().as_bytes()));
    drop(mapping);
    tidied(folder.path(), &["other", "run.beat"]);
}

#[test]
fn young_files_are_left_alone() {
    let folder = folder();
    fs::write(folder.path().join("stackbeat.3.00000003"), b"").expect("written");
    let found = leftovers::tidy(folder.path(), leftovers::YOUNG);
    assert!(found.removed.is_empty() && found.kept.is_empty());
}
