//! The rules of `docs/slices.md`, one by one.

use std::collections::BTreeMap;

use stackbeat_core::probe::{Cause, Probe};
use stackbeat_core::shm::record_format::flags;

use super::super::synthetic::{Builder, LEAF_PC, NATIVE, Name, Script};
use super::*;

pub(super) const MS: u64 = 1_000_000;
pub(super) const START: u64 = 1000 * MS;

/// Plays one thread and reads the result back.
pub(super) fn play(script: impl FnOnce(&mut Builder, &mut Script)) -> (Trace, Everything) {
    play_threads([1], |b, [t]| script(b, t))
}

/// The same with several threads, of these processes. Their samples come one thread after the other.
pub(super) fn play_threads<const N: usize>(
    processes: [u64; N],
    script: impl FnOnce(&mut Builder, &mut [Script; N]),
) -> (Trace, Everything) {
    let mut b = Builder::new(MS, &["program"], START);
    let mut upids: Vec<u64> = processes.into();
    upids.dedup();
    for upid in &upids {
        b.process(*upid, 1000 * upid, 0, START, "/bin/program");
        b.module(*upid, "/bin/program", 0x10_0000, 0x20_0000);
    }
    let mut threads = std::array::from_fn(|i| Script::new(i as u64 + 1, START));
    for (t, process) in threads.iter().zip(processes) {
        b.thread(t.utid, process, 999 + t.utid, "program", START);
    }
    script(&mut b, &mut threads);
    let samples = threads.iter().map(|t| t.rows.len() as u64).sum();
    for t in &mut threads {
        t.flush(&mut b);
        b.thread_end_with_calls(t.utid, t.now_ns, &t.totals, t.written, &t.system_calls);
    }
    for (address, function) in [
        (0x10_0100, "a"),
        (0x10_0110, "a"),
        (0x10_0200, "b"),
        (0x10_0210, "b"),
        (0x10_0300, "c"),
        (0x10_0400, "d"),
    ] {
        for kind in [NATIVE, LEAF_PC] {
            let name = Name {
                function,
                file: "",
                defined: 0,
                line: 0,
            };
            for upid in &upids {
                b.symbol(*upid, address, kind, "/bin/program", &[name]);
            }
        }
    }
    let end_ns = threads.iter().map(|t| t.now_ns).max().unwrap_or(START);
    let trace = open(b.finish(end_ns, samples));
    assert_eq!(trace.damage(), &[]);
    assert_eq!(conservation(&trace).expect("readable"), &[]);
    let everything = visit(&trace);
    (trace, everything)
}

pub(super) const A: u64 = 0x10_0100;
const A2: u64 = 0x10_0110;
pub(super) const B: u64 = 0x10_0200;
const B2: u64 = 0x10_0210;
pub(super) const C: u64 = 0x10_0300;
pub(super) const D: u64 = 0x10_0400;

/// Slices as (depth, name, begin µs, length µs), in order of begin and depth.
pub(super) fn picture(trace: &Trace, all: &Everything) -> Vec<(u32, String, u64, u64)> {
    let mut slices: Vec<_> = all
        .slices
        .iter()
        .map(|s| {
            let name = trace.function(trace.frame(s.frame).function).name.clone();
            let begin = (s.begin_ns - START) / 1000;
            (s.depth, name, begin, (s.end_ns - s.begin_ns) / 1000)
        })
        .collect();
    slices.sort_by_key(|(depth, _, begin, _)| (*begin, *depth));
    slices
}

pub(super) fn s(depth: u32, name: &str, begin: u64, length: u64) -> (u32, String, u64, u64) {
    (depth, name.to_owned(), begin, length)
}

#[test]
fn a_change_lies_in_the_middle_between_two_samples() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], LEAF_PC);
        t.run(ab, 0, Probe::Running);
        t.run(ab, MS, Probe::Running);
        t.run(ac, MS, Probe::Running);
        t.run(ac, MS, Probe::Running);
    });
    let expected = [
        s(0, "a", 0, 3000),
        s(1, "b", 0, 1500),
        s(1, "c", 1500, 1500),
    ];
    assert_eq!(picture(&trace, &all), expected);
}

#[test]
fn a_blocking_call_is_exact() {
    let (trace, all) = play(|b, t| {
        let a = b.stack(1, &[A], NATIVE);
        let ab = b.stack(1, &[A, B], NATIVE);
        t.run(a, 0, Probe::Malloc);
        t.now_ns += MS;
        t.totals.cpu_ns += MS;
        t.block(ab, Probe::Read, 7 * MS, (3, 100));
        t.run(a, MS, Probe::Malloc);
    });
    let expected = [
        s(0, "a", 0, 9000),
        s(1, "b", 1000, 7000),
        s(2, "read", 1000, 7000),
    ];
    assert_eq!(picture(&trace, &all), expected);
    let read = all.slices.iter().find(|s| s.blocking.is_some());
    let read = read.expect("the call");
    assert_eq!((read.arg, read.result), (Some(3), Some(100)));
    assert_eq!(all.totals[0].1.blocked_ns[Cause::Io as usize], 7 * MS);
    assert_eq!(all.totals[0].1.running_ns, 2 * MS);
}

/// Allocations and bytes by the name of the function that they are of itself.
fn allocated(trace: &Trace, all: &Everything) -> BTreeMap<String, (u64, u64)> {
    let mut of = BTreeMap::<String, (u64, u64)>::new();
    for slice in &all.slices {
        let name = &trace.function(trace.frame(slice.frame).function).name;
        let sums = of.entry(name.clone()).or_default();
        sums.0 += slice.own.allocations;
        sums.1 += slice.own.allocated_bytes;
    }
    of.retain(|_, sums| *sums != (0, 0));
    of
}

#[test]
fn allocations_belong_to_the_stacks_that_they_were_counted_at() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], NATIVE);
        let ad = b.stack(1, &[A, D], NATIVE);
        t.run(ab, 0, Probe::Running);
        t.count(ac, 40, 100, Probe::SampledAllocation);
        t.count(ad, 2, 5000, Probe::SampledByte);
        t.run(ab, MS, Probe::Running);
        t.count(ac, 60, 50, Probe::SampledAllocation);
        t.totals.allocations += 7;
        t.run(ab, MS, Probe::Running);
        t.totals.allocated_bytes += 10;
    });
    // Time is what it would be without: all of it was seen in `b`.
    let times = picture(&trace, &all);
    let lasting: Vec<_> = times.iter().filter(|slice| slice.3 != 0).collect();
    let b = |begin| s(1, "b", begin, 1000);
    assert_eq!(lasting, [&s(0, "a", 0, 2000), &b(0), &b(1000)]);
    // `c` has what was counted up to its samples and, being the last one, the rest; bytes go by theirs.
    let c = (40 + 2 + 60 + 7, 0);
    let d = (0, 100 + 5000 + 50 + 10);
    assert_eq!(
        allocated(&trace, &all),
        BTreeMap::from([("c".to_owned(), c), ("d".to_owned(), d)])
    );
}

#[test]
fn a_moment_elsewhere_cuts_a_stretch_and_takes_none_of_its_time() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], NATIVE);
        let abd = b.stack(1, &[A, B, D], NATIVE);
        t.run(ab, 0, Probe::Running);
        for (node, ns) in [(abd, MS / 2), (ac, MS / 2)] {
            t.now_ns += ns;
            t.totals.cpu_ns += ns;
            t.count(node, 40, 100, Probe::SampledAllocation);
        }
        t.run(ab, 2 * MS, Probe::Running);
    });
    // `a` was there all the time; `b` was when it called `d`, and not when `c` was seen.
    let expected = [
        s(0, "a", 0, 3000),
        s(1, "b", 0, 1000),
        s(2, "d", 500, 0),
        s(1, "c", 1000, 0),
        s(1, "b", 1000, 2000),
    ];
    assert_eq!(picture(&trace, &all), expected);
    let cpu_ns = |name: &str| -> u64 {
        let of = |slice: &&Slice| trace.function(trace.frame(slice.frame).function).name == name;
        all.slices
            .iter()
            .filter(of)
            .map(|slice| slice.own.cpu_ns)
            .sum()
    };
    assert_eq!((cpu_ns("b"), cpu_ns("c"), cpu_ns("d")), (3 * MS, 0, 0));
    assert_eq!(all.totals[0].1.metrics.samples, 2);
}

#[test]
fn without_counted_samples_allocations_go_by_time() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], LEAF_PC);
        t.run(ab, 0, Probe::Running);
        t.totals.allocations += 10;
        t.run(ac, MS, Probe::Running);
        // From here on there are some.
        t.count(ab, 5, 0, Probe::SampledAllocation);
        t.totals.allocations += 10;
        t.run(ac, MS, Probe::Running);
    });
    let expected = [("b", (5 + 5 + 10, 0)), ("c", (5, 0))];
    let expected = expected.map(|(name, sums)| (name.to_owned(), sums));
    assert_eq!(allocated(&trace, &all), BTreeMap::from(expected));
}

#[test]
fn time_off_the_cpu_without_evidence_is_a_gap() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], LEAF_PC);
        t.run(ab, 0, Probe::Running);
        t.vanish(50 * MS);
        t.run(ac, MS, Probe::Running);
    });
    let expected = [
        s(0, "a", 0, 51_000),
        s(1, "b", 0, 500),
        s(1, "[no evidence]", 500, 50_000),
        s(1, "c", 50_500, 500),
    ];
    assert_eq!(picture(&trace, &all), expected);
    assert_eq!(all.totals[0].1.gap_ns, 50 * MS);
}

#[test]
fn a_thread_that_waited_for_the_cpu_was_where_it_is_seen_next() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], LEAF_PC);
        t.run(ab, 0, Probe::Running).rusage = Some(Rusage::default());
        t.vanish(50 * MS);
        t.totals.involuntary_switches = 1;
        t.run(ac, MS, Probe::Running).rusage = Some(Rusage {
            involuntary_switches: 1,
            ..Rusage::default()
        });
    });
    let expected = [
        s(0, "a", 0, 51_000),
        s(1, "b", 0, 500),
        s(1, "c", 500, 50_500),
    ];
    assert_eq!(picture(&trace, &all), expected);
    let totals = &all.totals[0].1;
    assert_eq!(totals.gap_ns, 0);
    assert_eq!(
        totals.metrics.runnable_ns,
        totals.wall_ns - totals.metrics.cpu_ns
    );
}

/// So one sample beside a busy rival does not outweigh all others.
#[test]
fn a_sample_weighs_no_more_for_the_time_in_which_others_had_the_processor() {
    let (_, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let rusage = |involuntary_switches| {
            Some(Rusage {
                involuntary_switches,
                ..Rusage::default()
            })
        };
        for round in 0..10 {
            if round == 5 {
                t.vanish(500 * MS);
                t.totals.involuntary_switches = 1;
            }
            t.run(ab, MS, Probe::Running).rusage = rusage(u64::from(round >= 5));
        }
    });
    let running = all.segments.iter();
    let squares: u128 = running.map(|segment| segment.evidence.squares).sum();
    let cpu_ns = all.totals[0].1.metrics.cpu_ns;
    assert_eq!(all.totals[0].1.metrics.runnable_ns, 500 * MS);
    let worth = u128::from(cpu_ns).pow(2) / squares;
    assert!((8..=10).contains(&worth), "{worth}");
}

/// The scheduler has chosen where that is, so it has no part of the CPU time around it.
#[test]
fn where_a_signal_met_a_wait_for_the_cpu_there_was_the_wait_and_nothing_else() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], LEAF_PC);
        t.run(ab, 0, Probe::Running).rusage = Some(Rusage::default());
        t.vanish(50 * MS);
        t.totals.involuntary_switches = 1;
        let met = t.run(ac, MS, Probe::Running);
        met.flags = flags::FORCED;
        met.rusage = Some(Rusage {
            involuntary_switches: 1,
            ..Rusage::default()
        });
        t.run(ab, MS, Probe::Running);
    });
    let expected = [
        s(0, "a", 0, 52_000),
        s(1, "b", 0, 1_000),
        s(1, "c", 1_000, 50_000),
        s(1, "b", 51_000, 1_000),
    ];
    assert_eq!(picture(&trace, &all), expected);
    assert_eq!(all.totals[0].1.metrics.runnable_ns, 50 * MS);
    let of_c = all.segments.iter().find(|s| s.begin_ns % (100 * MS) == MS);
    assert_eq!(of_c.map(|s| s.metrics.cpu_ns), Some(0));
}

/// The scheduler chooses `b` for its interruptions. Where the thread has slept unseen between two of them,
/// ticks meet `c`: that says nothing of a burst without a sleep in it, which they meet in `b`.
#[test]
fn a_part_of_a_burst_goes_where_ticks_met_bursts_that_began_alike() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], LEAF_PC);
        let ad = b.stack(1, &[A, D], LEAF_PC);
        let part = MS / 10;
        let interrupt = |t: &mut Script, sleeps: u64| {
            t.vanish(MS);
            t.totals.involuntary_switches += 1;
            t.totals.voluntary_switches += sleeps;
            let usage = Rusage {
                voluntary_switches: t.totals.voluntary_switches,
                involuntary_switches: t.totals.involuntary_switches,
                ..Rusage::default()
            };
            let met = t.run(ab, part, Probe::Running);
            (met.flags, met.rusage) = (flags::FORCED, Some(usage));
        };
        for round in 0..400 {
            t.block(ad, Probe::Nanosleep, MS, (0, 0));
            match round % 10 {
                0..3 => _ = t.run(ab, part, Probe::Running),
                3 => {
                    interrupt(t, 1);
                    t.run(ac, part, Probe::Running);
                    interrupt(t, 1);
                }
                _ => (0..3).for_each(|_| interrupt(t, 0)),
            }
        }
        t.block(ad, Probe::Nanosleep, MS, (0, 0));
    });
    let cpu_ns = |name: &str| {
        let of = all.segments.iter().filter(|segment| {
            let frames = trace.stack_frames(segment.stack);
            let is_it = |frame| trace.function(trace.frame(frame).function).name == name;
            segment.kind == SegmentKind::Running && frames.into_iter().any(is_it)
        });
        of.map(|segment| segment.metrics.cpu_ns).sum::<u64>() as f64
    };
    let share = cpu_ns("c") / (cpu_ns("b") + cpu_ns("c"));
    assert!(share < 0.1, "{share}");
}

#[test]
fn a_thread_that_waited_for_the_cpu_at_its_end_was_where_it_was_seen_last() {
    let end = |voluntary_switches: u64| {
        let (_, all) = play(|b, t| {
            let ab = b.stack(1, &[A, B], LEAF_PC);
            t.run(ab, MS, Probe::Running).rusage = Some(Rusage::default());
            t.vanish(50 * MS);
            t.totals.involuntary_switches = 1;
            t.totals.voluntary_switches = voluntary_switches;
        });
        let totals = &all.totals[0].1;
        (totals.gap_ns, totals.metrics.runnable_ns)
    };
    assert_eq!(end(0), (0, 50 * MS));
    assert_eq!(end(1), (50 * MS, 0));
}

#[test]
fn the_switch_of_a_wait_itself_does_not_make_a_gap_before_it() {
    let gap_ns = |switches: u64| {
        let (_, all) = play(|b, t| {
            let ab = b.stack(1, &[A, B], LEAF_PC);
            t.run(ab, 0, Probe::Running).rusage = Some(Rusage::default());
            t.vanish(50 * MS);
            t.block(ab, Probe::Nanosleep, 5 * MS, (0, 0)).rusage = Some(Rusage {
                voluntary_switches: switches,
                ..Rusage::default()
            });
        });
        all.totals[0].1.gap_ns
    };
    assert_eq!(gap_ns(1), 0);
    // The 5 µs of CPU time that the script gives a wait count as time before it.
    assert_eq!(gap_ns(2), 50 * MS - 5_000);
}

/// The one switch is that of a sleep that nobody saw, not that of the call, from which others took the CPU.
#[test]
fn a_call_that_was_at_work_has_not_given_the_cpu_up() {
    let gap_ns = |probe, cpu_ns| {
        let (_, all) = play(|b, t| {
            let ab = b.stack(1, &[A, B], LEAF_PC);
            t.run(ab, 0, Probe::Running).rusage = Some(Rusage::default());
            t.vanish(50 * MS);
            t.totals.cpu_ns += cpu_ns;
            t.block(ab, probe, 5 * MS, (0, 0)).rusage = Some(Rusage {
                voluntary_switches: 1,
                involuntary_switches: 1,
                ..Rusage::default()
            });
        });
        all.totals[0].1.gap_ns
    };
    assert_eq!(gap_ns(Probe::Poll, 0), 0);
    assert!(gap_ns(Probe::Read, 0) > 40 * MS);
    assert!(gap_ns(Probe::Poll, 4 * MS) > 40 * MS);
}

#[test]
fn a_read_that_never_gave_the_cpu_up_is_no_wait() {
    let times = |probe, switches: [u64; 2]| {
        let (_, all) = play(|b, t| {
            let ab = b.stack(1, &[A, B], LEAF_PC);
            let usage = |of_read| Rusage {
                voluntary_switches: switches[0] + of_read,
                involuntary_switches: 3 * switches[1],
                ..Rusage::default()
            };
            t.run(ab, 0, Probe::Running).rusage = Some(usage(0));
            t.run(ab, MS, Probe::Running).rusage = None;
            // Of 4 ms others had the processor for 1 ms; a call takes 5 µs besides.
            t.totals.cpu_ns += 3 * MS - 5_000;
            t.block(ab, probe, 4 * MS, (0, 0)).rusage = Some(usage(0));
            t.block(ab, probe, 4 * MS, (0, 0)).rusage = Some(usage(1));
        });
        let totals = &all.totals[0].1;
        let blocked_ns = totals.all_blocked_ns();
        (totals.running_ns, totals.metrics.runnable_ns, blocked_ns)
    };
    for probe in [Probe::Read, Probe::Send] {
        assert_eq!(times(probe, [1, 1]), (5 * MS, MS, 4 * MS), "{probe:?}");
        assert_eq!(times(probe, [0, 1]), (5 * MS, MS, 4 * MS), "{probe:?}");
    }
    // Where nobody counts switches nothing is known, and a timer may be over before there is one.
    assert_eq!(times(Probe::Read, [0, 0]), (MS, 0, 8 * MS));
    assert_eq!(times(Probe::Nanosleep, [1, 1]), (MS, 0, 8 * MS));
}

#[test]
fn a_short_call_that_did_not_wait_speaks_for_the_time_around_it() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        let ac = b.stack(1, &[A, C], NATIVE);
        t.run(ab, 0, Probe::Malloc);
        t.now_ns += MS;
        t.totals.cpu_ns += MS;
        t.block(ac, Probe::Read, MS / 2, (3, 100)).rusage = None;
    });
    let expected = [
        s(0, "a", 0, 1500),
        s(1, "b", 0, 500),
        s(1, "c", 500, 1000),
        s(2, "read", 1000, 500),
    ];
    assert_eq!(picture(&trace, &all), expected);
}

#[test]
fn who_woke_another_has_not_computed_what_is_around_it() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        let ac = b.stack(1, &[A, C], NATIVE);
        t.run(ab, 0, Probe::Running);
        t.run(ac, MS, Probe::CondSignal).flags = flags::FORCED;
        t.run(ab, MS, Probe::Running);
    });
    let expected = [
        s(0, "a", 0, 2000),
        s(1, "b", 0, 1000),
        s(1, "c", 1000, 0),
        s(1, "b", 1000, 1000),
    ];
    assert_eq!(picture(&trace, &all), expected);
}

#[test]
fn time_on_the_cpu_belongs_to_the_neighbours() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], LEAF_PC);
        t.run(ab, 0, Probe::Running);
        t.run(ac, 50 * MS, Probe::Running);
    });
    let expected = [
        s(0, "a", 0, 50_000),
        s(1, "b", 0, 25_000),
        s(1, "c", 25_000, 25_000),
    ];
    assert_eq!(picture(&trace, &all), expected);
    assert_eq!(all.totals[0].1.gap_ns, 0);
    assert_eq!(all.totals[0].1.metrics.cpu_ns, 50 * MS);
}

#[test]
fn where_samples_were_lost_neighbours_speak_for_two_intervals_only() {
    let (_, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        t.run(ab, 0, Probe::Running);
        t.lose(5);
        t.run(ab, 50 * MS, Probe::Running);
    });
    let totals = &all.totals[0].1;
    assert_eq!(totals.gap_ns, 48 * MS);
    assert_eq!(totals.metrics.cpu_ns, 50 * MS);
    let gap = all.segments.iter().find(|s| s.kind == SegmentKind::Gap);
    assert_eq!(gap.expect("a gap").metrics.cpu_ns, 48 * MS);
}

/// Modules, names, marks and wake-ups have numbers of the same sequence.
#[test]
fn records_that_are_no_samples_are_not_taken_for_lost_ones() {
    let (_, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        t.run(ab, 0, Probe::Running);
        t.tell(5);
        t.run(ab, 50 * MS, Probe::Running);
        t.tell(2);
    });
    let totals = &all.totals[0].1;
    assert_eq!(totals.gap_ns, 0);
    assert_eq!(totals.running_ns, 50 * MS);
}

#[test]
fn the_time_before_the_first_and_after_the_last_sample_counts() {
    let (trace, all) = play(|b, t| {
        let a = b.stack(1, &[A], LEAF_PC);
        t.vanish(10 * MS);
        t.run(a, MS, Probe::Running);
        t.vanish(20 * MS);
    });
    let expected = [
        s(0, "[no evidence]", 0, 10_000),
        s(0, "a", 10_000, 1000),
        s(0, "[no evidence]", 11_000, 20_000),
    ];
    assert_eq!(picture(&trace, &all), expected);
}

#[test]
fn another_call_site_is_another_call() {
    let (trace, all) = play(|b, t| {
        let first = b.stack(1, &[A, B, C], LEAF_PC);
        let same_function = b.stack(1, &[A, B2, C], LEAF_PC);
        let other_site = b.stack(1, &[A2, B2, C], LEAF_PC);
        for node in [first, same_function, other_site] {
            t.run(node, MS, Probe::Running);
        }
    });
    let expected = [
        s(0, "a", 0, 3000),
        s(1, "b", 0, 2500),
        s(2, "c", 0, 1500),
        s(2, "c", 1500, 1000),
        s(1, "b", 2500, 500),
        s(2, "c", 2500, 500),
    ];
    assert_eq!(picture(&trace, &all), expected);
}

#[test]
fn an_iteration_of_the_event_loop_cuts_what_it_calls() {
    let script = |marked: bool, flagged: bool| {
        move |b: &mut Builder, t: &mut Script| {
            let event_loop = b.stack(1, &[A], NATIVE);
            let handler = b.stack(1, &[A, B, C], LEAF_PC);
            t.block(event_loop, Probe::EpollWait, 5 * MS, (4, 1));
            t.run(handler, MS, Probe::Running);
            t.run(handler, MS, Probe::Running);
            if marked {
                b.iteration(1, t.now_ns + MS / 4);
            }
            let row = t.run(handler, MS, Probe::Running);
            if flagged {
                row.flags |= flags::LOOP_ITERATION;
            }
            t.run(handler, MS, Probe::Running);
        }
    };
    let (_, all) = play(script(false, false));
    assert_eq!(all.slices.len(), 4);
    let (trace, all) = play(script(false, true));
    let flagged = picture(&trace, &all);
    assert!(flagged.contains(&s(1, "b", 5000, 2500)), "{flagged:?}");
    assert!(flagged.contains(&s(1, "b", 7500, 1500)), "{flagged:?}");
    assert!(flagged.contains(&s(0, "a", 0, 9000)), "{flagged:?}");
    let (trace, all) = play(script(true, false));
    let marked = picture(&trace, &all);
    assert!(marked.contains(&s(1, "b", 5000, 2250)), "{marked:?}");
    assert!(marked.contains(&s(2, "c", 7250, 1750)), "{marked:?}");
}

#[test]
fn a_truncated_stack_is_laid_beside_the_one_before() {
    let (trace, all) = play(|b, t| {
        let whole = b.stack(1, &[A, B, C], LEAF_PC);
        let cut = b.stack(1, &[0, B, C, D], LEAF_PC);
        t.run(whole, 0, Probe::Running);
        t.run(cut, MS, Probe::Running);
        t.run(whole, MS, Probe::Running);
    });
    let expected = [
        s(0, "a", 0, 2000),
        s(1, "b", 0, 2000),
        s(2, "c", 0, 2000),
        s(3, "d", 500, 1000),
    ];
    assert_eq!(picture(&trace, &all), expected);
}

#[test]
fn a_recursion_beyond_the_depth_limit_stays_one_slice() {
    let (trace, all) = play(|b, t| {
        // The outermost known frame moves in and out as the recursion grows and shrinks.
        let grown = b.stack(1, &[0, B, C, D], LEAF_PC);
        let deeper = b.stack(1, &[0, C, D, D], LEAF_PC);
        t.run(grown, 0, Probe::Running);
        t.run(deeper, MS, Probe::Running);
        t.run(grown, MS, Probe::Running);
    });
    let picture = picture(&trace, &all);
    assert!(
        picture.contains(&s(0, "[truncated]", 0, 2000)),
        "{picture:?}"
    );
    assert!(picture.contains(&s(1, "b", 0, 2000)), "{picture:?}");
    assert!(picture.contains(&s(2, "c", 0, 2000)), "{picture:?}");
}

#[test]
fn allocations_belong_to_the_stack_that_allocates() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], NATIVE);
        t.run(ab, 0, Probe::Running);
        t.run(ac, MS, Probe::Malloc);
        t.run(ab, MS, Probe::Running);
    });
    for slice in &all.slices {
        let name = &trace.function(trace.frame(slice.frame).function).name;
        let expected = if name == "c" { 3 } else { 0 };
        assert_eq!(slice.own.allocations, expected, "{name}");
    }
}

#[test]
fn cpu_time_from_before_an_exec_is_left_out() {
    let (_, all) = play(|b, t| {
        let a = b.stack(1, &[A], LEAF_PC);
        t.totals.cpu_ns = 700 * MS;
        t.run(a, MS, Probe::Running);
        t.run(a, MS, Probe::Running);
    });
    let totals = &all.totals[0].1;
    assert_eq!(totals.cpu_before_start_ns, 700 * MS);
    assert_eq!(totals.metrics.cpu_ns, 2 * MS);
}

#[test]
fn unknown_probes_are_kept() {
    let (trace, all) = play(|b, t| {
        let a = b.stack(1, &[A], NATIVE);
        t.block(a, Probe::Read, 5 * MS, (3, 0)).probe = 77;
    });
    assert!(picture(&trace, &all).contains(&s(1, "probe 77", 0, 5000)));
    assert_eq!(all.totals[0].1.blocked_ns[Cause::Unknown as usize], 5 * MS);
}

#[test]
fn samples_without_stack_still_count() {
    let (_, all) = play(|b, t| {
        let a = b.stack(1, &[A], NATIVE);
        t.run(0, MS, Probe::Running);
        t.run(a, MS, Probe::Running);
        t.run(0, MS, Probe::Running);
    });
    assert_eq!(all.totals[0].1.running_ns, 3 * MS);
    assert_eq!(all.slices.len(), 1);
}

#[test]
fn hooks_alone_say_nothing_of_the_time_between_them() {
    let (mut trace, running) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        let ac = b.stack(1, &[A, C], NATIVE);
        t.run(ab, MS, Probe::Malloc);
        t.run(ac, 100 * MS, Probe::Malloc);
        t.run(ac, MS, Probe::Malloc);
        t.totals.cpu_ns += 50 * MS;
        t.now_ns += 50 * MS;
    });
    let kinds = |all: &Everything| {
        let kind = |s: &Segment| {
            let is_gap = s.kind == SegmentKind::Gap;
            (is_gap, s.wall_ns() / MS, s.metrics.cpu_ns / MS)
        };
        all.segments.iter().map(kind).collect::<Vec<_>>()
    };
    // Nobody interrupted it in all that time.
    let unmet = [(false, 2, 2), (true, 98, 98)];
    assert_eq!(kinds(&running)[..2], unmet);
    assert!(kinds(&running)[2..].iter().all(|(is_gap, ..)| !is_gap));
    trace.config.hooks_only = true;
    let all = visit(&trace);
    assert_eq!(
        kinds(&all),
        [&unmet[..], &[(false, 3, 3), (true, 49, 49)]].concat()
    );
    assert_eq!(conservation(&trace).expect("readable"), &[]);

    // One that was interrupted then, or came to a hook sooner, is where it was met.
    for (probe, ms) in [(Probe::Running, 100), (Probe::Malloc, 15)] {
        let (_, all) = play(|b, t| {
            let ab = b.stack(1, &[A, B], NATIVE);
            let ac = b.stack(1, &[A, C], NATIVE);
            t.run(ab, MS, Probe::Malloc);
            t.run(ac, ms * MS, probe);
        });
        assert!(kinds(&all).iter().all(|(is_gap, ..)| !is_gap), "{probe:?}");
    }
}
