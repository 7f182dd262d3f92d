//! For tests: golden files, and a made-up report with every kind of thing in it.

pub(crate) mod browser;

use std::fs;
use std::path::Path;

use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::{SystemCall, SystemCalls};
use stackbeat_model::{
    AttributedCalls, Evidence, FunctionIndex, Metrics, Segment, SegmentKind, StackIndex,
    ThreadIndex,
};

use crate::summary::call_bytes::CallBytes;
use crate::summary::call_tree::{Profile, ROOT};
use crate::summary::load::Report;
use crate::summary::metadata::{
    DropsRow, FunctionName, Metadata, ProcessRow, Recording, ThreadMetadata,
};
use crate::summary::system_calls::CallSites;
use crate::summary::timeline::{Bar, Timeline};

/// Compares a text with `tools/tests/golden/NAME`; `STACKBEAT_BLESS=1` writes the file instead.
pub(crate) fn golden(name: &str, text: &str) {
    golden_at(&format!("tests/golden/{name}"), text);
}

/// As [`golden`], with a path from the package's folder.
pub(crate) fn golden_at(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("STACKBEAT_BLESS").is_some() {
        fs::write(&path, text).expect("the golden file can be written");
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == text,
        "{} differs; STACKBEAT_BLESS=1 accepts this:\n{text}",
        path.display()
    );
}

/// Functions of the made-up program: name, module, file.
const FUNCTIONS: [(&str, &str, &str); 12] = [
    ("main", "/home/me/shop", "src/main.rs"),
    ("shop::serve", "/home/me/shop", "src/serve.rs"),
    ("shop::parse_order", "/home/me/shop", "src/order.rs"),
    ("shop::price", "/home/me/shop", "src/price.rs"),
    (
        "shop::store::Store::insert",
        "/home/me/shop",
        "src/store.rs",
    ),
    ("shop::worker", "/home/me/shop", "src/worker.rs"),
    ("memcpy", "/lib/x86_64-linux-gnu/libc.so.6", ""),
    ("malloc", "/lib/x86_64-linux-gnu/libc.so.6", ""),
    ("start_thread", "/lib/x86_64-linux-gnu/libc.so.6", ""),
    ("shop+0x1f20", "/home/me/shop", ""),
    (
        "std::map<std::string, std::vector<int>>::operator[]",
        "/home/me/shop",
        "/usr/include/c++/12/bits/stl_map.h",
    ),
    ("sh_main<evil \"&' </script>>", "/usr/bin/dash", ""),
];

/// Builds one thread's segments after another.
struct Author {
    profile: Profile,
    timeline: Timeline,
    thread: u32,
    now_ns: u64,
}

impl Author {
    fn segment(&mut self, stack: &[u32], length_ns: u64, kind: SegmentKind, bytes: u64) {
        let functions: Vec<_> = stack.iter().map(|f| FunctionIndex(*f)).collect();
        let path = match stack.is_empty() {
            true => ROOT,
            false => self.profile.tree.path(&functions),
        };
        let running_ns = match kind {
            SegmentKind::Running => length_ns,
            _ => 0,
        };
        let segment = Segment {
            thread: ThreadIndex(self.thread),
            begin_ns: self.now_ns,
            end_ns: self.now_ns + length_ns,
            stack: StackIndex::NONE,
            kind,
            metrics: Metrics {
                cpu_ns: running_ns - running_ns / 10,
                runnable_ns: running_ns / 10,
                allocations: bytes / 64,
                allocated_bytes: bytes,
                samples: 1,
                ..Metrics::default()
            },
            evidence: Evidence {
                samples: 1,
                squares: u128::from(running_ns - running_ns / 10).pow(2),
            },
            arg: None,
            result: None,
            waker_tid: None,
            new_iteration: false,
            is_inferred: false,
        };
        self.now_ns += length_ns;
        let place = self.profile.add(&segment, path);
        self.timeline.push(
            segment.thread,
            Bar {
                begin_ns: segment.begin_ns,
                end_ns: segment.end_ns,
                place,
                place_ns: length_ns,
                cpu_ns: segment.metrics.cpu_ns,
                allocated_bytes: bytes,
                common: None,
            },
        );
    }

    fn run(&mut self, stack: &[u32], length_ns: u64, bytes: u64) {
        self.segment(stack, length_ns, SegmentKind::Running, bytes);
    }

    fn wait(&mut self, stack: &[u32], length_ns: u64, probe: Probe) {
        self.segment(stack, length_ns, SegmentKind::Blocked(probe.into()), 0);
    }
}

/// Start of the made-up recording.
pub(crate) const START_NS: u64 = 5_000_000_000;

/// A server with two workers, and a child process: all causes of interest, a gap, losses, names with
/// characters that a page must not take for markup.
pub(crate) fn report() -> Report {
    let mut author = Author {
        profile: Profile::default(),
        timeline: Timeline::new(100_000),
        thread: 0,
        now_ns: START_NS,
    };
    const MS: u64 = 1_000_000;
    for turn in 0..40u64 {
        author.wait(&[0, 1], (3 + turn % 5) * MS, Probe::EpollWait);
        author.run(&[0, 1, 2], 2 * MS, 4096);
        author.run(&[0, 1, 2, 6], MS + turn * 10_000, 0);
        author.run(&[0, 1, 2, 7], MS / 2, 65_536);
        author.run(&[0, 1, 4, 10], 3 * MS, 1024);
        if turn % 4 == 0 {
            author.wait(&[0, 1, 4], 4 * MS + turn * MS / 8, Probe::MutexLock);
        }
        author.wait(&[0, 1], MS, Probe::Send);
    }
    let end_ns = author.now_ns;
    for worker in 0..2u64 {
        author.thread = 1 + worker as u32;
        author.now_ns = START_NS + 3 * MS;
        for round in 0..30u64 {
            author.run(&[8, 5, 3], (5 + worker) * MS, 256);
            // Recursion.
            author.run(&[8, 5, 3, 3, 9], 2 * MS, 0);
            author.wait(&[8, 5], (1 + round % 3) * MS, Probe::CondWait);
            if round % 10 == 9 {
                author.wait(&[8, 5, 4], 7 * MS, Probe::Fsync);
            }
        }
        author.segment(&[8], 20 * MS, SegmentKind::Gap, 0);
        author.run(&[], 2 * MS, 0);
    }
    author.thread = 3;
    author.now_ns = START_NS + 50 * MS;
    author.run(&[11], 9 * MS, 0);
    author.wait(&[11], 30 * MS, Probe::Wait);
    let Author {
        mut profile,
        timeline,
        ..
    } = author;
    let mut calls = CallSites::default();
    for (thread, path, call, count) in [
        (0, &[0, 1, 4][..], SystemCall::Read, 1200),
        (0, &[0, 1], SystemCall::Read, 300),
        (1, &[8, 5, 4], SystemCall::Write, 20),
        (2, &[8, 5, 3, 3, 9], SystemCall::Write, 30),
        (2, &[], SystemCall::Write, 10),
        (0, &[0, 1, 4], SystemCall::BytesRead, 120 << 10),
        (0, &[0, 1], SystemCall::BytesRead, 5 << 20),
        (1, &[8, 5, 4], SystemCall::BytesWritten, 20 << 20),
        (1, &[8, 5], SystemCall::WakeUps, 60),
    ] {
        let functions: Vec<_> = path.iter().map(|f| FunctionIndex(*f)).collect();
        let attributed = AttributedCalls {
            thread: ThreadIndex(thread),
            stack: StackIndex::NONE,
            call,
            count,
            time_ns: START_NS,
        };
        calls.add(
            attributed.thread,
            profile.tree.path(&functions),
            &attributed,
        );
    }
    let metadata = metadata(end_ns - START_NS, &profile);
    profile.set_layers(metadata.layers());
    Report {
        metadata,
        damage: Vec::new(),
        profile,
        timeline,
        calibration_ns: None,
        waits: Default::default(),
        deadlocks: Default::default(),
        calls,
    }
}

/// The same, with names whose letters take two cells each.
pub(crate) fn report_with_wide_names() -> Report {
    let mut report = report();
    let metadata = &mut report.metadata;
    metadata.recording.command = vec!["./店".to_owned(), "注文を処理する".repeat(9)];
    let threads = metadata.threads.iter_mut().map(|t| &mut t.name);
    let processes = metadata.processes.iter_mut().map(|p| &mut p.name);
    for name in threads.chain(processes) {
        *name = format!("店🍣{name}");
    }
    for function in &mut metadata.functions {
        function.name = format!("注文::処理::{}::関数の名前はとても長い", function.name);
    }
    report
}

/// A long recording of many threads with many stacks: more than a page carries.
pub(crate) fn large_report(threads: u32, segments: u64, bar_budget: usize) -> Report {
    let mut author = Author {
        profile: Profile::default(),
        timeline: Timeline::new(bar_budget),
        thread: 0,
        now_ns: START_NS,
    };
    // A linear congruential generator (Knuth's MMIX constants): the same trace each time.
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut longest = 0;
    for thread in 0..threads {
        author.thread = thread;
        author.now_ns = START_NS;
        for _ in 0..segments {
            let mut stack = vec![8, 5];
            for _ in 0..3 + random(9) {
                stack.push(random(11) as u32);
            }
            match random(5) {
                0 => author.wait(&stack, 1 + random(9_000_000), Probe::FutexWait),
                _ => author.run(&stack, 1 + random(1_500_000), random(5000)),
            }
        }
        longest = longest.max(author.now_ns - START_NS);
    }
    let Author {
        mut profile,
        timeline,
        ..
    } = author;
    let mut metadata = Metadata {
        recording: Recording {
            command: vec!["large".into()],
            start_ns: START_NS,
            duration_ns: longest,
            interval_ns: 1_000_000,
            main_interval_ns: 1_000_000,
            outcome: "finished",
            state: "complete".into(),
            ..Recording::default()
        },
        ..metadata_of_functions()
    };
    profile.set_layers(metadata.layers());
    metadata.processes = vec![ProcessRow {
        name: "large".into(),
        ..ProcessRow::default()
    }];
    metadata.threads = (0..threads)
        .map(|i| ThreadMetadata {
            utid: i + 1,
            tid: 100 + i,
            name: format!("worker-{i}"),
            ..ThreadMetadata::default()
        })
        .collect();
    Report {
        metadata,
        damage: Vec::new(),
        profile,
        timeline,
        calibration_ns: None,
        waits: Default::default(),
        deadlocks: Default::default(),
        calls: Default::default(),
    }
}

fn metadata_of_functions() -> Metadata {
    let functions = FUNCTIONS.iter().map(|(name, module, file)| FunctionName {
        name: (*name).into(),
        module: (*module).into(),
        file: (*file).into(),
        line: if file.is_empty() { 0 } else { 42 },
    });
    Metadata {
        functions: functions.collect(),
        ..Metadata::default()
    }
}

fn metadata(duration_ns: u64, profile: &Profile) -> Metadata {
    let process = |upid: u32, name: &str| ProcessRow {
        upid,
        replaced_upid: 0,
        pid: 1000 + upid,
        parent_pid: 999 + upid,
        name: name.into(),
        command: vec![name.into(), "--verbose".into()],
        begin_ns: 0,
        end_ns: duration_ns,
    };
    let names = ["shop", "worker-1", "worker-2", "sh"];
    let calls = |i: usize| {
        let mut calls = SystemCalls::from_list(&[1500, 20 * i as u64, 0, 3]).unwrap_or_default();
        calls.0[SystemCall::BytesRead as usize] = 6 << 20;
        calls.0[SystemCall::WakeUps as usize] = 100;
        calls.0[SystemCall::BytesWritten as usize] = (20 << 20) * i as u64;
        calls
    };
    let threads = names.iter().enumerate().map(|(i, name)| ThreadMetadata {
        utid: i as u32 + 1,
        tid: 1001 + i as u32,
        name: (*name).into(),
        process: usize::from(i == 3),
        upid: 1 + u32::from(i == 3),
        pid: 1001 + u32::from(i == 3),
        is_main: i == 0 || i == 3,
        begin_ns: 0,
        end_ns: profile.threads[i].wall_ns(),
        system_calls: Some(calls(i)),
        // As with a trace of an older version.
        wake_ups: (i != 3).then_some(100),
        call_bytes: (i != 3).then(|| CallBytes::of(&calls(i))),
        ..ThreadMetadata::default()
    });
    let dropped = |cause, count, description| DropsRow {
        utid: 1,
        cause,
        count,
        description,
    };
    Metadata {
        recording: Recording {
            trace: "shop.beat".into(),
            command: vec!["./shop".into(), "--verbose".into()],
            hostname: "example".into(),
            os: "Linux 6.18".into(),
            machine: "x86_64".into(),
            cpus: 2,
            cpu_model: "Made-up CPU".into(),
            stackbeat_version: "0.1.0".into(),
            started_unix_ns: 1_700_000_000_000_000_000,
            start_ns: START_NS,
            duration_ns,
            interval_ns: 1_000_000,
            main_interval_ns: 1_000_000,
            probes: vec!["alloc".into(), "lock".into()],
            outcome: "finished",
            state: "complete".into(),
            label: String::new(),
            commit: String::new(),
            shares_processor: false,
            records_written: 1000,
            records_stored: 997,
            records_lost: 3,
            hooks_only: false,
            unrecorded: Vec::new(),
            unseen_cpu_ns: 0,
            counts_end_ns: None,
        },
        processes: vec![process(1, "shop"), process(2, "sh")],
        threads: threads.collect(),
        drops: vec![
            dropped(
                "buffer_full",
                3,
                "records dropped because the buffer was full",
            ),
            dropped("truncated_depth", 2, "stacks deeper than --depth"),
        ],
        ..metadata_of_functions()
    }
}
