//! Bursts of computing between long waits, of which a tick meets some.

use std::collections::BTreeMap;

use stackbeat_core::probe::Probe;
use stackbeat_core::record::flags;

use super::super::synthetic::{Builder, LEAF_PC, NATIVE, Script};
use super::random::Random;
use super::rules::{A, B, C, D, MS, play};
use super::*;

/// A thread under a tick every millisecond.
struct Ticked<'a> {
    t: &'a mut Script,
    next_tick_ns: u64,
}

impl<'a> Ticked<'a> {
    fn new(t: &'a mut Script) -> Self {
        let next_tick_ns = t.now_ns + MS / 3;
        Ticked { t, next_tick_ns }
    }

    /// Runs code for `ns`; each tick in it takes a sample.
    fn run(&mut self, node: u32, ns: u64) {
        let end_ns = self.t.now_ns + ns;
        while self.next_tick_ns < self.t.now_ns {
            self.next_tick_ns += MS;
        }
        while self.next_tick_ns < end_ns {
            self.t
                .run(node, self.next_tick_ns - self.t.now_ns, Probe::Running);
            self.next_tick_ns += MS;
        }
        self.t.totals.cpu_ns += end_ns - self.t.now_ns;
        self.t.now_ns = end_ns;
    }

    /// Waits about 2.5 ms, so that bursts fall in with ticks by chance only.
    fn wait(&mut self, node: u32, random: &mut Random) {
        let ns = 2 * MS + random.below(MS);
        self.t.block(node, Probe::Nanosleep, ns, (0, 0));
    }

    /// Waits for less than the interval: such a wait is in the trace when a tick falls into it.
    fn wait_shortly(&mut self, node: u32, ns: u64) {
        let begin_ns = self.t.now_ns;
        while self.next_tick_ns < begin_ns {
            self.next_tick_ns += MS;
        }
        if self.next_tick_ns < begin_ns + ns {
            self.t.block(node, Probe::Nanosleep, ns, (0, 0));
            return;
        }
        self.t.totals.voluntary_switches += 1;
        self.t.totals.cpu_ns += 5_000;
        self.t.now_ns += ns;
    }
}

/// CPU time by the function that it is of itself, in percent of all.
fn shares(trace: &Trace, all: &Everything) -> BTreeMap<String, f64> {
    let sum: u64 = all.slices.iter().map(|s| s.own.cpu_ns).sum();
    let mut of = BTreeMap::new();
    for slice in &all.slices {
        let name = trace
            .function(trace.frame(slice.frame).function)
            .name
            .clone();
        *of.entry(name).or_default() += slice.own.cpu_ns as f64 * 100.0 / sum as f64;
    }
    of
}

#[track_caller]
fn expect(of: &BTreeMap<String, f64>, name: &str, percent: f64, within: f64) {
    let found = of.get(name).copied().unwrap_or(0.0);
    assert!(
        (found - percent).abs() < within,
        "{name}: {found} of {of:?}"
    );
}

fn stacks(b: &mut Builder) -> [u32; 4] {
    let waits = b.stack(1, &[A, D], NATIVE);
    let [larger, smaller] = [B, C].map(|leaf| b.stack(1, &[A, leaf], LEAF_PC));
    [waits, larger, smaller, b.stack(1, &[A], NATIVE)]
}

#[test]
fn bursts_belong_to_what_ticks_find_in_others_of_them() {
    let (trace, all) = play(|b, t| {
        let [waits, larger, smaller, _] = stacks(b);
        let mut random = Random(11);
        let mut thread = Ticked::new(t);
        for _ in 0..4000 {
            thread.run(larger, 3 * MS / 10);
            thread.run(smaller, MS / 10);
            thread.wait(waits, &mut random);
        }
    });
    let of = shares(&trace, &all);
    expect(&of, "b", 75.0, 4.0);
    expect(&of, "c", 25.0, 4.0);
    expect(&of, "d", 0.0, 0.5);
    assert!(all.totals[0].1.gap_ns == 0);
}

/// Ticks meet long bursts more often than short ones, and find all of their time: the short ones of the others go to
/// those who were found in short ones.
#[test]
fn short_bursts_are_not_taken_for_long_ones() {
    let (trace, all) = play(|b, t| {
        let [waits, short, long, _] = stacks(b);
        let mut random = Random(13);
        let mut thread = Ticked::new(t);
        for i in 0..4000 {
            match i % 10 {
                0 => thread.run(long, 3 * MS),
                5 => thread.run(long, 8 * MS / 10),
                _ => thread.run(short, MS / 10),
            }
            thread.wait(waits, &mut random);
        }
    });
    let of = shares(&trace, &all);
    expect(&of, "b", 100.0 * 0.8 / 4.6, 2.0);
    expect(&of, "c", 100.0 * 3.8 / 4.6, 2.0);
}

#[test]
fn who_ends_waits_of_others_is_not_the_one_who_computes() {
    let (trace, all) = play(|b, t| {
        let [_, computes, _, wakes] = stacks(b);
        let mut thread = Ticked::new(t);
        for _ in 0..4000 {
            thread.run(computes, 3 * MS / 10);
            let row = thread.t.run(wakes, MS / 100, Probe::CondSignal);
            row.flags = flags::FORCED;
        }
    });
    expect(&shares(&trace, &all), "b", 100.0, 4.0);
}

/// Waits that are shorter than the interval are in the trace when a tick met them: they have no more of the computing
/// between them.
#[test]
fn short_waits_have_the_time_off_the_cpu_only() {
    let (trace, all) = play(|b, t| {
        let [waits, larger, smaller, _] = stacks(b);
        let mut random = Random(17);
        let mut thread = Ticked::new(t);
        for _ in 0..4000 {
            thread.run(larger, 3 * MS / 10);
            thread.run(smaller, MS / 10);
            thread.wait_shortly(waits, MS / 4 + random.below(MS / 2));
        }
    });
    let of = shares(&trace, &all);
    expect(&of, "b", 75.0, 4.0);
    expect(&of, "c", 25.0, 4.0);
    expect(&of, "d", 0.0, 1.0);
}

/// What one thread of a pool was seen to do counts for the others; without any such sample the middle decides.
#[test]
fn what_is_not_known_is_split_in_the_middle() {
    let (trace, all) = play(|b, t| {
        let [waits, ..] = stacks(b);
        let other = b.stack(1, &[A, B], NATIVE);
        let mut thread = Ticked::new(t);
        thread.next_tick_ns = u64::MAX;
        for _ in 0..10 {
            thread.run(0, MS / 4);
            thread.t.block(waits, Probe::Nanosleep, 2 * MS, (0, 0));
            thread.run(0, MS / 4);
            thread.t.block(other, Probe::Nanosleep, 2 * MS, (0, 0));
        }
    });
    let of = shares(&trace, &all);
    expect(&of, "b", 50.0, 5.0);
    expect(&of, "d", 50.0, 5.0);
}
