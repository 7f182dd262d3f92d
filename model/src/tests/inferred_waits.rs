//! Waits that were seen from outside, among a thread's samples.

use stackbeat_core::probe::{Cause, Probe};
use stackbeat_core::shm::record_format::flags;

use super::super::synthetic::{Builder, LEAF_PC, NATIVE, Script};
use super::slice_rules::{A, B, C, D, MS, START, picture, play, s};
use super::*;

#[test]
fn a_wait_fills_the_time_that_no_sample_explains() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], LEAF_PC);
        let ad = b.stack(1, &[A, D], LEAF_PC);
        t.run(ab, MS, Probe::Running);
        b.wait(1, ad, Probe::FutexWait, START + 2 * MS, 0);
        t.vanish(50 * MS);
        t.run(ac, MS, Probe::Running);
    });
    // Of the 51 ms between the samples one was used, half of it on each side.
    let expected = [
        s(0, "a", 0, 52_000),
        s(1, "b", 0, 2000),
        s(1, "d", 2000, 49_500),
        s(2, "futex wait", 2000, 49_500),
        s(1, "c", 51_500, 500),
    ];
    assert_eq!(picture(&trace, &all), expected);
    let totals = &all.totals[0].1;
    // On the way there it used half of the time.
    assert_eq!(totals.gap_ns, 500_000);
    assert_eq!(totals.blocked_ns[Cause::Wait as usize], 49_500_000);
    let wait = all.segments.iter().find(|s| s.arg == Some(7));
    assert_eq!(wait.map(|s| s.metrics.samples), Some(0));
}

/// A wait that goes on when capturing begins again is one, also where a tick meets the thread at its end:
/// nothing says that the thread was there all the while.
#[test]
fn a_wait_lasts_through_the_begin_of_capturing() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], LEAF_PC);
        let ad = b.stack(1, &[A, D], LEAF_PC);
        t.run(ab, MS, Probe::Running);
        b.switch(START + 2 * MS, false);
        b.wait(1, ad, Probe::FutexWait, START + 10 * MS, 0);
        b.switch(START + 20 * MS, true);
        t.vanish(50 * MS);
        t.run(ac, MS, Probe::Running);
    });
    let totals = &all.totals[0].1;
    let blocked_ns = totals.blocked_ns[Cause::Wait as usize];
    assert!(
        (40 * MS..=42 * MS).contains(&blocked_ns),
        "{:?}",
        picture(&trace, &all)
    );
}

/// The wait begins in what would be A's half of the CPU time: it still is in the gap, and B has the rest.
#[test]
fn a_wait_that_begins_right_behind_a_sample_counts() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], LEAF_PC);
        let ad = b.stack(1, &[A, D], LEAF_PC);
        t.run(ab, MS, Probe::Running);
        b.wait(1, ad, Probe::FutexWait, START + MS + MS / 10, 0);
        t.vanish(50 * MS);
        t.run(ac, MS, Probe::Running);
    });
    let expected = [
        s(0, "a", 0, 52_000),
        s(1, "b", 0, 1100),
        s(1, "d", 1100, 50_000),
        s(2, "futex wait", 1100, 50_000),
        s(1, "c", 51_100, 900),
    ];
    assert_eq!(picture(&trace, &all), expected);
}

/// Between a thread's begin and its end no tick met it: what it ran then is not put into the moment before
/// its wait.
#[test]
fn before_a_wait_there_is_no_more_cpu_time_than_time() {
    let (_, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        let ac = b.stack(1, &[A, C], LEAF_PC);
        t.run(ab, MS / 100, Probe::ThreadStart);
        b.wait(1, ac, Probe::FutexWait, START + MS / 50, START + 10 * MS);
        t.vanish(10 * MS);
        t.run(ab, 6 * MS, Probe::ThreadExit);
    });
    let of_running = all
        .segments
        .iter()
        .filter(|s| s.kind == SegmentKind::Running);
    for segment in of_running {
        assert!(segment.metrics.cpu_ns <= segment.wall_ns(), "{segment:?}");
    }
    let totals = &all.totals[0].1;
    assert_eq!(totals.blocked_ns[Cause::Wait as usize], 10 * MS - MS / 50);
    assert_eq!(totals.metrics.cpu_ns, 6 * MS + MS / 100);
}

/// A sample inside of a wait, after so many voluntary and involuntary switches.
fn inside(t: &mut Script, node: u32, switches: (u64, u64)) {
    t.totals.voluntary_switches += switches.0;
    t.totals.involuntary_switches += switches.1;
    let usage = Rusage {
        voluntary_switches: t.totals.voluntary_switches,
        involuntary_switches: t.totals.involuntary_switches,
        ..Rusage::default()
    };
    let row = t.run(node, MS / 10, Probe::Malloc);
    row.flags |= flags::INSIDE;
    row.rusage = Some(usage);
}

/// A lookup of a name computes and allocates, too: where others had the CPU meanwhile it has not waited.
#[test]
fn who_lost_the_cpu_inside_of_a_call_did_not_wait_there() {
    let (_, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        let abc = b.stack(1, &[A, B, C], NATIVE);
        t.run(ab, MS, Probe::Malloc);
        t.vanish(MS);
        inside(t, abc, (0, 1));
        t.run(ab, MS, Probe::Malloc);
    });
    let totals = &all.totals[0].1;
    assert_eq!(totals.blocked_ns.iter().sum::<u64>(), 0);
    assert_eq!(totals.metrics.runnable_ns, MS);
}

/// A handler's sample lies inside of a wait: what comes before it is no gap. The wait is counted once, where
/// it was longest.
#[test]
fn a_wait_lasts_through_the_samples_inside_of_it() {
    for (before_ms, after_ms) in [(30, 20), (20, 30)] {
        let (_, all) = play(|b, t| {
            let ab = b.stack(1, &[A, B], NATIVE);
            let abc = b.stack(1, &[A, B, C], NATIVE);
            t.run(ab, MS, Probe::Malloc);
            t.vanish(before_ms * MS);
            inside(t, abc, (1, 0));
            let row = t.block(ab, Probe::Poll, after_ms * MS, (3, 0));
            row.duration_ns = 50 * MS + MS / 10;
            t.run(ab, MS, Probe::Malloc);
        });
        let totals = &all.totals[0].1;
        assert_eq!(totals.blocked_ns[Cause::Poll as usize], 50 * MS);
        assert_eq!(totals.gap_ns, 0);
        assert_eq!(totals.metrics.runnable_ns, 0);
        let waits = all.segments.iter().filter(|s| s.blocked_ns() > 0);
        let waits: Vec<(u64, bool)> = waits.map(|s| (s.wall_ns(), s.is_inferred)).collect();
        let expected = [
            (before_ms * MS, before_ms < after_ms),
            (after_ms * MS, before_ms > after_ms),
        ];
        assert_eq!(waits, expected);
    }
}

/// The one switch may be the wait's, or that of a handler's own call: it is of who was off the CPU for
/// longer.
#[test]
fn a_wait_lasts_through_a_call_inside_of_it_that_lost_the_cpu() {
    for (before_ms, call_ms) in [(30, 1), (1, 30)] {
        let (_, all) = play(|b, t| {
            let ab = b.stack(1, &[A, B], NATIVE);
            let abc = b.stack(1, &[A, B, C], NATIVE);
            t.run(ab, MS, Probe::Malloc);
            t.vanish(before_ms * MS);
            t.totals.involuntary_switches += 1;
            t.block(abc, Probe::Wait, call_ms * MS, (0, 7)).flags |= flags::INSIDE;
            let row = t.block(ab, Probe::Poll, MS, (3, 0));
            row.duration_ns = (before_ms + call_ms + 1) * MS;
            t.run(ab, MS, Probe::Malloc);
        });
        let totals = &all.totals[0].1;
        let poll_ns = totals.blocked_ns[Cause::Poll as usize];
        // Where the call is the longer one, the thread may have been ready all the time before.
        let expected = if before_ms > call_ms { 31 } else { 1 };
        assert_eq!(poll_ns.div_ceil(MS), expected, "{before_ms}");
        assert_eq!(totals.gap_ns, 0);
    }
}

/// Too short for a gap where nobody waits.
#[test]
fn a_short_wait_lasts_through_the_samples_inside_of_it() {
    let (_, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        let abc = b.stack(1, &[A, B, C], NATIVE);
        t.run(ab, MS, Probe::Malloc);
        t.vanish(3 * MS / 2);
        inside(t, abc, (1, 0));
        t.block(ab, Probe::Poll, MS, (2, 0)).duration_ns = 5 * MS / 2 + MS / 10;
        t.run(ab, MS, Probe::Malloc);
    });
    let totals = &all.totals[0].1;
    assert_eq!(totals.blocked_ns[Cause::Poll as usize], 5 * MS / 2);
    assert_eq!(totals.running_ns, 2 * MS + MS / 10);
    assert_eq!(totals.gap_ns, 0);
}

#[test]
fn a_wait_that_its_hook_recorded_is_told_once() {
    let (_, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        t.run(ab, MS, Probe::Malloc);
        b.wait(1, ab, Probe::Read, START + MS, 0);
        t.block(ab, Probe::Read, 500 * MS, (3, 1));
        t.run(ab, MS, Probe::Malloc);
    });
    let blocked: Vec<_> = all
        .segments
        .iter()
        .filter(|s| matches!(s.kind, SegmentKind::Blocked(_)))
        .collect();
    assert_eq!(blocked.len(), 1);
    assert_eq!(blocked[0].result, Some(1));
    assert_eq!(all.totals[0].1.blocked_ns[Cause::Io as usize], 500 * MS);
}

#[test]
fn who_waits_at_the_end_waits_until_the_end() {
    let (_, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        t.run(ab, MS, Probe::Malloc);
        b.wait(1, ab, Probe::MutexLock, START + MS, 0);
        t.vanish(900 * MS);
    });
    let totals = &all.totals[0].1;
    assert_eq!(totals.blocked_ns[Cause::Lock as usize], 900 * MS);
    assert_eq!(totals.gap_ns, 0);
}

/// It has run behind the wait, or so shortly that nobody saw it: that moves the begin of the wait nowhere.
#[test]
fn who_waits_near_the_end_has_waited_since_the_wait_began() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        t.run(ab, MS, Probe::Malloc);
        b.wait(1, ab, Probe::MutexLock, START + MS + MS / 5, 0);
        t.vanish(900 * MS);
        t.totals.cpu_ns += 3 * MS;
    });
    let totals = &all.totals[0].1;
    assert_eq!(totals.blocked_ns[Cause::Lock as usize], 900 * MS - MS / 5);
    assert_eq!((totals.running_ns, totals.gap_ns), (MS + MS / 5, 0));
    assert_eq!(totals.metrics.cpu_ns, 4 * MS);
    assert_eq!(conservation(&trace).expect("reads"), []);
}

#[test]
fn a_wait_that_was_seen_to_end_does_not_last_until_the_end() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        t.run(ab, MS, Probe::Malloc);
        b.wait(1, ab, Probe::MutexLock, START + MS + MS / 5, START + 2 * MS);
        t.vanish(600 * MS);
        t.totals.cpu_ns += 500 * MS;
    });
    assert_eq!(all.totals[0].1.running_ns, 501 * MS);
    assert_eq!(conservation(&trace).expect("reads"), []);
}

#[test]
fn what_a_thread_without_a_sample_has_used_is_kept() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        b.wait(1, ab, Probe::MutexLock, START + MS / 5, 0);
        t.vanish(600 * MS);
        t.totals.cpu_ns += 3 * MS;
    });
    assert_eq!(all.totals[0].1.metrics.cpu_ns, 3 * MS);
    assert_eq!(conservation(&trace).expect("reads"), []);
}

#[test]
fn between_the_end_of_a_wait_and_the_next_nothing_is_known() {
    let (_, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        b.wait(1, ab, Probe::Poll, START + 100 * MS, START + 200 * MS);
        // The same again with an end, and a later one without.
        b.wait(1, ab, Probe::Poll, START + 100 * MS, START + 250 * MS);
        b.wait(1, ab, Probe::Poll, START + 400 * MS, 0);
        t.vanish(1000 * MS);
    });
    let totals = &all.totals[0].1;
    assert_eq!(totals.blocked_ns[Cause::Poll as usize], 750 * MS);
    assert_eq!(totals.gap_ns, 250 * MS);
}

#[test]
fn waits_that_make_no_sense_take_nothing_from_anybody() {
    let (_, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], NATIVE);
        b.wait(1, ab, Probe::Poll, 0, 0);
        b.wait(1, ab, Probe::Poll, u64::MAX, 1);
        b.wait(1, 4_000_000, Probe::Poll, START + 3 * MS, START);
        t.run(ab, MS, Probe::Malloc);
        t.run(ab, MS, Probe::Malloc);
    });
    let totals = &all.totals[0].1;
    assert_eq!(totals.running_ns, 2 * MS);
    assert_eq!(totals.wall_ns, 2 * MS);
}

/// A thread that has waited since before there was a trace of it, and has run for so long before.
fn waits_since_before(b: &mut Builder, t: &mut Script) -> u32 {
    let ab = b.stack(1, &[A, B], LEAF_PC);
    let ad = b.stack(1, &[A, D], LEAF_PC);
    b.found(START, 700 * MS);
    t.totals.cpu_ns = 700 * MS;
    // Its row and the wait began at one moment, of which there are two versions.
    b.wait(1, ad, Probe::FutexWait, START - MS / 10, 0);
    t.vanish(50 * MS);
    ab
}

#[test]
fn what_a_thread_used_before_it_was_found_is_not_its_first_samples() {
    let (trace, all) = play(|b, t| {
        let ab = waits_since_before(b, t);
        t.run(ab, MS, Probe::Running);
    });
    let expected = [
        s(0, "a", 0, 51_000),
        s(1, "d", 0, 50_000),
        s(2, "futex wait", 0, 50_000),
        s(1, "b", 50_000, 1000),
    ];
    assert_eq!(picture(&trace, &all), expected);
    let totals = &all.totals[0].1;
    assert_eq!(totals.cpu_before_start_ns, 700 * MS);
    assert_eq!(totals.metrics.cpu_ns, MS);
}

/// Its one switch so far is the first sample's own: that says nothing of how it came there.
#[test]
fn a_thread_that_was_found_waiting_was_not_kept_from_running() {
    let (_, all) = play(|b, t| {
        let ab = waits_since_before(b, t);
        t.block(ab, Probe::Read, 3 * MS, (3, 1));
    });
    let totals = &all.totals[0].1;
    assert_eq!(totals.blocked_ns[Cause::Io as usize], 3 * MS);
    // The rest is what it used on the way to the call.
    assert_eq!(
        totals.blocked_ns[Cause::Wait as usize],
        50 * MS - totals.metrics.cpu_ns
    );
}

#[test]
fn a_thread_that_waits_from_begin_to_end_has_used_nothing() {
    let (_, all) = play(|b, t| {
        waits_since_before(b, t);
    });
    let totals = &all.totals[0].1;
    assert_eq!(totals.blocked_ns[Cause::Wait as usize], 50 * MS);
    assert_eq!((totals.wall_ns, totals.metrics.cpu_ns), (50 * MS, 0));
}

/// Ten waits in one place, of which one look was seen: nobody knows how many they were. With as many switches
/// as waits were seen, each is one.
#[test]
fn waits_that_were_not_seen_apart_are_inferred() {
    for (switches, is_inferred) in [(10, true), (1, false)] {
        let (_, all) = play(|b, t| {
            let ab = b.stack(1, &[A, B], LEAF_PC);
            let ad = b.stack(1, &[A, D], LEAF_PC);
            t.run(ab, MS, Probe::Running).rusage = Some(Rusage::default());
            b.wait(1, ad, Probe::BlockedOutside, START + 2 * MS, 0);
            t.vanish(50 * MS);
            t.totals.voluntary_switches += switches;
            t.run(ab, MS, Probe::Running).rusage = Some(Rusage {
                voluntary_switches: switches,
                ..Rusage::default()
            });
        });
        let waits: Vec<bool> = (all.segments.iter())
            .filter(|s| matches!(s.kind, SegmentKind::Blocked(_)))
            .map(|s| s.is_inferred)
            .collect();
        assert_eq!(waits, [is_inferred], "{switches}");
    }
}
