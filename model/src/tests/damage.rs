//! Files that are not what they should be: clear errors or the part that is left, never a panic.

use super::super::synthetic::{Builder, Message, ROOT, managed, realistic};
use super::random_threads::Random;
use super::*;

fn refuse(bytes: &[u8]) -> String {
    match Trace::from_bytes("/tmp/some.beat", bytes.to_vec()) {
        Ok(_) => panic!("this must not open"),
        Err(error) => error.to_string(),
    }
}

/// Reads all there is; the result does not matter.
fn exercise(bytes: Vec<u8>) {
    let Ok(trace) = Trace::from_bytes("damaged.beat", bytes) else {
        return;
    };
    let all = visit(&trace);
    let _ = conservation(&trace).expect("bytes in memory are readable");
    for stack in 0..trace.stack_count().min(5000) {
        for frame in trace.stack_frames(StackIndex(stack)) {
            let _ = &trace.function(trace.frame(frame).function).name;
        }
    }
    assert_eq!(all.totals.len(), trace.threads().len());
    let wall: u128 = trace
        .threads()
        .iter()
        .map(|thread| u128::from(thread.end_ns - thread.start_ns))
        .sum();
    let found: u128 = all.totals.iter().map(|(_, t)| u128::from(t.wall_ns)).sum();
    assert_eq!(wall, found);
}

#[test]
fn what_is_no_trace_is_refused_with_a_reason() {
    assert!(refuse(b"").contains("is empty"));
    assert!(refuse(b"\x7fELF\x02\x01\x01").contains("not a stackbeat trace"));
    assert!(refuse(b"SQLite format 3\0").contains("not a stackbeat trace"));
    // A valid packet stream of something else.
    let mut other = Vec::new();
    other.extend(
        Message::default()
            .message(1, &Message::default().varint(1, 5))
            .0,
    );
    assert!(refuse(&other).contains("not a stackbeat trace"));
    let missing = Trace::open("/nonexistent/x.beat").expect_err("there is no such file");
    assert!(missing.to_string().contains("/nonexistent/x.beat"));
}

#[test]
fn what_can_be_read_only_once_is_read_whole() {
    let bytes = realistic();
    let whole = visit(&open(bytes.clone()));
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let writing = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &bytes));
    let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    let trace = Trace::open(&path).expect("a trace");
    writing.join().expect("ends").expect("is read to its end");
    assert!(conservation(&trace).expect("is read").is_empty());
    for _ in 0..2 {
        let read = visit(&trace);
        assert_eq!((read.samples, &read.totals), (whole.samples, &whole.totals));
    }
    // Without an end, but no trace.
    let refused = Trace::open("/dev/zero").expect_err("is no trace");
    assert!(
        refused.to_string().contains("not a stackbeat trace"),
        "{refused}"
    );
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let header = Message::default().varint(1, 9).string(3, "7.2.0");
    let packet = Message::default().message(1, &header);
    let message = refuse(&Message::default().message(1, &packet).0);
    for part in ["/tmp/some.beat", "version 9", "7.2.0"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_file_cut_anywhere_keeps_what_is_whole() {
    let whole = realistic();
    let samples = open(whole.clone()).samples();
    let mut before = 0;
    for cut in (0..whole.len()).step_by(37) {
        let Ok(trace) = Trace::from_bytes("cut.beat", whole[..cut].to_vec()) else {
            assert!(cut < 400, "the header is read from the first bytes");
            continue;
        };
        assert!(trace.samples() >= before && trace.samples() <= samples);
        before = trace.samples();
        assert!(trace.damage().len() <= 2, "{:?}", trace.damage());
        assert!(visit(&trace).samples == trace.samples());
    }
    assert!(before > 0);
}

#[test]
fn thousands_of_mutations_do_no_harm() {
    let mut random = Random(4242);
    let originals: Vec<Vec<u8>> = [realistic(), managed()]
        .into_iter()
        .chain((0..40).map(super::random_threads::trace))
        .collect();
    for _ in 0..4000 {
        let mut bytes = originals[random.below(originals.len() as u64) as usize].clone();
        for _ in 0..=random.below(6) {
            mutate(&mut random, &mut bytes);
        }
        exercise(bytes);
    }
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    let length = bytes.len() as u64;
    let at = random.below(length) as usize;
    match random.below(6) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
        2 => {
            let to = (at + random.below(9) as usize).min(bytes.len());
            bytes.drain(at..to);
        }
        3 => {
            let extra: Vec<u8> = (0..random.below(12))
                .map(|_| random.below(256) as u8)
                .collect();
            bytes.splice(at..at, extra);
        }
        4 => {
            let to = (at + random.below(300) as usize).min(bytes.len());
            let copy = bytes[at..to].to_vec();
            let target = random.below(length) as usize;
            bytes.splice(target..target, copy);
        }
        _ => bytes.truncate(at.max(1)),
    }
    if bytes.is_empty() {
        bytes.push(0x0a);
    }
}

#[test]
fn absurd_times_and_counters_do_not_overflow() {
    let mut random = Random(99);
    for _ in 0..300 {
        let mut b = Builder::new(random.below(3) * (u64::MAX / 2), &[], u64::MAX);
        let extreme = |random: &mut Random| match random.below(4) {
            0 => 0,
            1 => u64::MAX - random.below(3),
            2 => random.below(1000),
            _ => random.below(u64::MAX),
        };
        let begin = extreme(&mut random);
        b.thread(1, 1, 1, "x", begin);
        let rows: Vec<SampleRow> = (0..8)
            .map(|_| SampleRow {
                record: 5,
                time_ns: extreme(&mut random),
                duration_ns: extreme(&mut random),
                cpu_ns: extreme(&mut random),
                allocations: extreme(&mut random),
                allocated_bytes: extreme(&mut random),
                frees: extreme(&mut random),
                probe: random.below(256) as u8,
                flags: random.below(256) as u8,
                ..SampleRow::default()
            })
            .enumerate()
            .map(|(i, row)| SampleRow {
                record: i as u64,
                ..row
            })
            .collect();
        b.samples(1, &rows);
        let end = extreme(&mut random);
        let totals = Metrics {
            cpu_ns: extreme(&mut random),
            ..Metrics::default()
        };
        b.thread_end(1, end, &totals, u64::MAX);
        exercise(b.finish(extreme(&mut random), 0));
    }
}

#[test]
fn nodes_in_circles_forwards_and_twice_stay_finite() {
    let mut b = Builder::new(1_000_000, &[], 1000);
    b.process(1, 1, 0, 1000, "/bin/x");
    b.thread(1, 1, 1, "x", 1000);
    // ids 1..6; 3 names a later parent, 4 itself, 5 stands twice, 6 hangs below 3.
    let body = Message::default()
        .deltas(1, [1, 2, 3, 4, 5, 5, 6])
        .signed(2, [0, 1, -2, 0, 3, 4, 3])
        .deltas(3, [1 << 32, 100, 200, 300, 400, 500, 600])
        .packed(4, [1, ROOT, 6, 0]);
    b.packet(5, &body);
    let rows: Vec<SampleRow> = (1..=7)
        .map(|node| SampleRow {
            record: u64::from(node),
            time_ns: 1000 * u64::from(node),
            node,
            probe: 1,
            ..SampleRow::default()
        })
        .collect();
    b.samples(1, &rows);
    let trace = open(b.finish(9000, 7));
    assert_eq!(trace.damage().len(), 1, "{:?}", trace.damage());
    let all = visit(&trace);
    assert_eq!(all.samples, 7);
    for stack in 0..trace.stack_count() {
        assert!(trace.stack_frames(StackIndex(stack)).len() <= 3);
    }
}

#[test]
fn a_chain_of_a_hundred_thousand_nodes_is_cut() {
    let n = 100_000u64;
    let mut b = Builder::new(1_000_000, &[], 1000);
    let kinds = [1, ROOT, n - 1, 0];
    let body = Message::default()
        .deltas(1, 1..=n)
        .signed(2, (0..n as i64).map(|i| i64::from(i != 0)))
        .deltas(3, (0..n).map(|i| 1 << 32 | (i * 16)))
        .packed(4, kinds);
    b.packet(5, &body);
    let trace = open(b.finish(9000, 0));
    let deepest = (0..trace.stack_count())
        .step_by(4097 / 8)
        .map(|stack| trace.stack_frames(StackIndex(stack)).len())
        .max();
    assert!(deepest <= Some(4097), "{deepest:?}");
}

#[test]
fn a_million_threads_are_only_many() {
    let mut b = Builder::new(1_000_000, &[], 1000);
    for utid in 1..=1_000_000u64 {
        let body = Message::default().varint(1, utid).varint(6, 1000 + utid);
        b.packet(3, &body);
    }
    let trace = open(b.finish(9_000_000, 0));
    assert_eq!(trace.threads().len(), 1_000_000);
    assert_eq!(conservation(&trace).expect("readable"), &[]);
}
