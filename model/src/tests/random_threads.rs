//! Conservation on random threads: whatever the samples, nothing is invented and nothing forgotten.

use stackbeat_core::probe::Probe;

use super::super::synthetic::{Builder, LEAF_PC, NATIVE, Script};
use super::*;

/// xorshift64*: the same numbers every time.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % limit.max(1)
    }
}

/// A trace of a few threads that do random things; consistent, as a real recording is.
pub(super) fn trace(seed: u64) -> Vec<u8> {
    let mut random = Random(seed * 2 + 1);
    let start = 1 << 40;
    let mut b = Builder::new(1_000_000, &["random"], start);
    b.process(1, 1000, 0, start, "/bin/random");
    let mut end = start;
    let threads = 1 + random.below(4);
    for utid in 1..=threads {
        let begin = start + random.below(1 << 22);
        b.thread(utid, 1, 999 + utid, "random", begin);
        let mut t = Script::new(utid, begin);
        for _ in 0..random.below(60) {
            step(&mut random, &mut b, &mut t);
            if random.below(20) == 0 {
                t.flush(&mut b);
            }
        }
        t.flush(&mut b);
        t.vanish(random.below(2) * random.below(1 << 24));
        if random.below(4) != 0 {
            // What happens after the last sample is only in the totals.
            t.totals.allocations += random.below(9);
            t.totals.allocated_bytes += random.below(900);
            let rest = random.below(1 << 20);
            t.totals.cpu_ns += rest;
            t.now_ns += rest;
            b.thread_end(utid, t.now_ns, &t.totals, t.written);
        }
        end = end.max(t.now_ns);
    }
    b.finish(end, 0)
}

fn step(random: &mut Random, b: &mut Builder, t: &mut Script) {
    let mut addresses: Vec<u64> = (0..random.below(5))
        .map(|depth| 0x1000 * (depth + 1) + 0x10 * random.below(3))
        .collect();
    if random.below(8) == 0 && !addresses.is_empty() {
        addresses[0] = 0;
    }
    let leaf = if random.below(2) == 0 {
        NATIVE
    } else {
        LEAF_PC
    };
    let node = match random.below(10) {
        0 => 0,
        _ => b.stack(1, &addresses, leaf),
    };
    let ns = match random.below(4) {
        0 => random.below(1000),
        1 => random.below(30_000_000),
        _ => random.below(2_000_000),
    };
    let probes = [
        Probe::Running,
        Probe::Malloc,
        Probe::Free,
        Probe::Poll,
        Probe::MutexUnlock,
        Probe::Fork,
    ];
    match random.below(6) {
        0 => t.vanish(ns),
        1 => t.lose(random.below(4)),
        3 => {
            let counted = [
                Probe::SampledAllocation,
                Probe::SampledByte,
                Probe::SampledCall,
            ];
            t.now_ns += ns;
            let probe = counted[random.below(3) as usize];
            let row = t.count(node, random.below(99), random.below(9999), probe);
            if probe == Probe::SampledCall {
                // Of kinds that nobody knows, and so many that nobody makes them, too.
                row.arg = Some((random.below(30), random.below(9) as i64 - 2));
            }
        }
        2 => {
            let blocking = [
                Probe::Read,
                Probe::EpollWait,
                Probe::MutexLock,
                Probe::ThreadJoin,
                Probe::BlockedOutside,
            ];
            let probe = blocking[random.below(5) as usize];
            let row = t.block(node, probe, ns, (random.below(9), -1));
            if random.below(2) == 0 {
                row.flags = 0;
            }
        }
        _ => {
            let row = t.run(node, ns, probes[random.below(6) as usize]);
            row.flags = (random.below(8) << 4) as u8;
        }
    }
}

#[test]
fn random_threads_conserve() {
    for seed in 0..1500 {
        let trace = open(trace(seed));
        assert_eq!(trace.damage(), &[], "seed {seed}");
        let violations = conservation(&trace).expect("readable");
        assert_eq!(violations, &[], "seed {seed}");
    }
}

#[test]
fn slices_nest() {
    for seed in 0..300 {
        let trace = open(trace(seed));
        let all = visit(&trace);
        for (i, slice) in all.slices.iter().enumerate() {
            assert!(slice.begin_ns <= slice.end_ns, "seed {seed}");
            if slice.depth == 0 {
                continue;
            }
            // Callers come later, and reach at least as far on both sides.
            let caller = all.slices[i + 1..]
                .iter()
                .find(|other| other.thread == slice.thread && other.depth + 1 == slice.depth)
                .expect("a caller");
            assert!(caller.begin_ns <= slice.begin_ns, "seed {seed}");
            assert!(caller.end_ns >= slice.end_ns, "seed {seed}");
            assert!(caller.total.cpu_ns >= slice.total.cpu_ns, "seed {seed}");
        }
    }
}

/// Takes slices down.
#[derive(Default, PartialEq, Debug)]
struct Told(Vec<Slice>, Vec<(u32, FrameIndex, u64)>);

impl SliceSink for Told {
    fn open(&mut self, depth: u32, frame: FrameIndex, begin_ns: u64) {
        self.1.push((depth, frame, begin_ns));
    }
    fn close(&mut self, slice: &Slice) {
        self.0.push(*slice);
    }
}

#[test]
fn what_stacks_share_is_found_by_nodes_as_by_frames() {
    for seed in 0..300 {
        let trace = open(trace(seed));
        let all = visit(&trace);
        for (thread, _) in &all.totals {
            let (mut by_nodes, mut by_frames) = (Slicer::new(*thread), Slicer::new(*thread));
            let (mut expected, mut found) = (Told::default(), Told::default());
            for segment in all.segments.iter().filter(|s| s.thread == *thread) {
                by_frames.forget_nodes();
                by_frames.advance(&trace, segment, &mut expected);
                by_nodes.advance(&trace, segment, &mut found);
            }
            by_frames.end(&trace, &mut expected);
            by_nodes.end(&trace, &mut found);
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}
