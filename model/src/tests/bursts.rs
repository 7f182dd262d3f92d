//! Bursts of computing between long waits, of which a tick meets some.

use std::collections::BTreeMap;

use stackbeat_core::probe::Probe;
use stackbeat_core::shm::record_format::flags;

use super::super::synthetic::{Builder, LEAF_PC, NATIVE, Script};
use super::random_threads::Random;
use super::slice_rules::{A, B, C, D, MS, play, play_threads};
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

    /// A call that computes for less than the interval. It is in the trace when a tick comes meanwhile.
    fn call(&mut self, node: u32, ns: u64) {
        let begin_ns = self.t.now_ns;
        while self.next_tick_ns < begin_ns {
            self.next_tick_ns += MS;
        }
        if self.next_tick_ns < begin_ns + ns {
            self.t.totals.cpu_ns += ns - 5_000;
            let row = self.t.block(node, Probe::Read, ns, (0, 0));
            // It never gave the CPU up.
            if let Some(usage) = &mut row.rusage {
                usage.voluntary_switches -= 1;
            }
            self.t.totals.voluntary_switches -= 1;
        } else {
            self.t.totals.cpu_ns += ns;
            self.t.now_ns += ns;
        }
    }

    /// From now on no tick comes.
    fn end_ticks(&mut self) {
        self.next_tick_ns = u64::MAX;
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

/// Ticks meet long bursts more often than short ones, and find all of their time: the short ones of the
/// others go to those who were found in short ones.
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

/// Waits that are shorter than the interval are in the trace when a tick met them: they have no more of the
/// computing between them.
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

/// Of two threads that do the same, no tick meets the second.
#[test]
fn what_one_thread_of_a_pool_was_seen_to_do_counts_for_the_others() {
    let (trace, all) = play_threads([1, 1], |b, threads| {
        let [waits, computes, ..] = stacks(b);
        let mut random = Random(17);
        for t in threads {
            let is_met = t.utid == 1;
            let mut thread = Ticked::new(t);
            if !is_met {
                thread.end_ticks();
            }
            for _ in 0..1000 {
                thread.run(computes, 3 * MS / 10);
                thread.wait(waits, &mut random);
            }
        }
    });
    expect(&shares(&trace, &all), "b", 100.0, 2.0);
}

/// Ticks meet bursts between the first two of these stacks; then there are as many between the others that no
/// tick meets.
fn b_when_ticks_end(met: [usize; 2], unmet: [usize; 2]) -> f64 {
    let (trace, all) = play(|b, t| {
        let [d, b_, c, a] = stacks(b);
        let waits = [a, d, c];
        let mut random = Random(19);
        let mut thread = Ticked::new(t);
        for (i, [from, to]) in [met, unmet].into_iter().enumerate() {
            if i == 1 {
                thread.end_ticks();
            }
            for _ in 0..1000 {
                thread.wait(waits[from], &mut random);
                thread.run(b_, 3 * MS / 10);
                thread.wait(waits[to], &mut random);
            }
        }
    });
    shares(&trace, &all).get("b").copied().unwrap_or(0.0)
}

#[test]
fn a_place_that_no_tick_met_is_known_by_either_of_its_stacks() {
    let by_first = b_when_ticks_end([0, 1], [0, 2]);
    assert!(by_first > 96.0, "{by_first}");
    let by_second = b_when_ticks_end([1, 0], [2, 0]);
    assert!(by_second > 96.0, "{by_second}");
    // What comes before a stack is not what follows it.
    let by_none = b_when_ticks_end([0, 1], [1, 2]);
    assert!((by_none - 50.0).abs() < 4.0, "{by_none}");
}

/// That a tick came in a short wait between long ones says nothing of computing in other bursts.
#[test]
fn short_waits_get_nothing_of_bursts_that_no_tick_met() {
    let (trace, all) = play(|b, t| {
        let [waits_shortly, computes, _, waits] = stacks(b);
        let mut random = Random(23);
        let mut thread = Ticked::new(t);
        for _ in 0..4000 {
            thread.run(computes, MS / 10);
            thread.wait_shortly(waits_shortly, MS / 2);
            thread.wait(waits, &mut random);
        }
    });
    let of = shares(&trace, &all);
    expect(&of, "b", 94.0, 5.0);
}

/// A call that computes is met like other code.
#[test]
fn calls_that_do_not_wait_have_their_share_of_bursts() {
    let (trace, all) = play(|b, t| {
        let [calls, computes, _, waits] = stacks(b);
        let mut random = Random(31);
        let mut thread = Ticked::new(t);
        for _ in 0..4000 {
            thread.run(computes, 3 * MS / 10);
            thread.call(calls, 3 * MS / 10);
            thread.wait(waits, &mut random);
        }
    });
    let of = shares(&trace, &all);
    expect(&of, "b", 50.0, 4.0);
    expect(&of, "a", 0.0, 1.0);
}

/// Two programs, of which nobody knows where they wait.
#[test]
fn bursts_between_samples_without_a_stack_belong_to_no_other_program() {
    let (trace, all) = play_threads([1, 2], |b, threads| {
        let computes = b.stack(1, &[A, B], LEAF_PC);
        let mut random = Random(29);
        for t in threads {
            let is_met = t.utid == 1;
            let mut thread = Ticked::new(t);
            if !is_met {
                thread.end_ticks();
            }
            for _ in 0..1000 {
                thread.run(computes, 3 * MS / 10);
                thread.wait(0, &mut random);
            }
        }
    });
    let of_second = all.slices.iter().filter(|s| s.thread == ThreadIndex(1));
    let names: Vec<&str> = of_second
        .map(|s| trace.function(trace.frame(s.frame).function).name.as_str())
        .collect();
    assert!(!names.contains(&"b"), "{}", names.len());
}

#[test]
fn what_is_not_known_is_split_in_the_middle() {
    let (trace, all) = play(|b, t| {
        let [waits, ..] = stacks(b);
        let other = b.stack(1, &[A, B], NATIVE);
        let mut thread = Ticked::new(t);
        thread.end_ticks();
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
