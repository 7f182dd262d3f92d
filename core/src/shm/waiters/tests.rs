//! The table of waiters, with threads that are entries only.

use super::*;
use crate::shm::mapping::tests::small;
use crate::shm::registry::{NewThread, add_thread};
use std::vec::Vec;

const LOCK: Object = Object {
    id: 0x7f00_1234_5678,
    scope: 1,
};
/// The same bucket, another object.
const NEIGHBOUR: Object = Object { scope: 2, ..LOCK };

fn threads(mapping: &Mapping, count: usize) -> Vec<Me<'_>> {
    let new = |i: usize| NewThread {
        tid: Tid(1000 + i as u32),
        ..NewThread::default()
    };
    (0..count)
        .map(|i| {
            let (index, entry) = add_thread(mapping, &new(i)).expect("room");
            entry
                .blocking_section_begin
                .store(Cycles(i as u64 + 1), Ordering::Relaxed);
            Me { index, entry }
        })
        .collect()
}

fn tid(mapping: &Mapping, waker: Option<Waker>) -> u32 {
    waker.map_or(0, |w| w.thread(mapping).expect("lives").1.0)
}

fn count(mapping: &Mapping) -> u32 {
    mapping.waiter_counts()[bucket_of(LOCK.id)].load(Ordering::Relaxed)
}

#[test]
fn the_last_that_let_go_of_a_lock_gave_it() {
    let mapping = small();
    let all = threads(&mapping, 3);
    let release = |me, object: Object| {
        announce(
            &mapping,
            me,
            (&[object.id], object.scope),
            How::Release,
            Cycles(0),
        )
    };
    assert_eq!(release(all[1], LOCK), None, "nobody waits");
    let entered = enter(&mapping, all[0], LOCK, Tid(1001)).expect("a place");
    assert_eq!(release(all[1], NEIGHBOUR), None, "another object");
    assert_eq!(release(all[1], LOCK).map(|a| a.number), Some(1));
    assert_eq!(release(all[2], LOCK).map(|a| a.is_long), Some(false));
    let waker = conclude(&mapping, all[0], &entered, How::Release, Outcome::Done);
    assert_eq!(tid(&mapping, waker), 1002);
    assert_eq!(count(&mapping), 0);
    // What was noted before a wait began is not its end.
    let entered = enter(&mapping, all[0], LOCK, Tid(0)).expect("a place");
    let waker = conclude(&mapping, all[0], &entered, How::Release, Outcome::Done);
    assert_eq!(waker, None);
}

#[test]
fn each_signal_ends_the_wait_of_one_thread() {
    let mapping = small();
    let all = threads(&mapping, 4);
    let wake = |me, long_since| {
        announce(
            &mapping,
            me,
            (&[LOCK.id], LOCK.scope),
            How::Wake(1),
            long_since,
        )
    };
    let enter = |me| enter(&mapping, me, LOCK, Tid(0)).expect("a place");
    let end = |me, entered: &Entered| {
        tid(
            &mapping,
            conclude(&mapping, me, entered, How::Wake(1), Outcome::Done),
        )
    };
    let (first, second) = (enter(all[0]), enter(all[1]));
    assert_eq!(wake(all[2], Cycles(1)).map(|a| a.is_long), Some(true));
    // The kernel woke the other one: the claim goes with it, and the first is free for the next.
    assert_eq!(end(all[1], &second), 1002);
    assert!(wake(all[3], Cycles(0)).is_some());
    assert_eq!(end(all[0], &first), 1003);
    assert_eq!(wake(all[2], Cycles(0)), None);
    let (first, second) = (enter(all[0]), enter(all[1]));
    let everybody = announce(
        &mapping,
        all[3],
        (&[LOCK.id], LOCK.scope),
        How::Wake(u32::MAX),
        Cycles(0),
    );
    assert!(everybody.is_some());
    assert_eq!(wake(all[2], Cycles(0)), None, "both are claimed");
    assert_eq!((end(all[0], &first), end(all[1], &second)), (1003, 1003));
}

/// What a thread that waits for [`LOCK`] among others was claimed for.
const ONE_OF_THEM: Object = Object {
    id: descriptor(Described::Pipe, 7),
    scope: 0,
};

#[test]
fn only_what_is_ready_ends_a_wait_for_several() {
    let mapping = small();
    let all = threads(&mapping, 3);
    let wait = |how: &[(Me, How)], outcome| {
        let entered = enter(&mapping, all[0], LOCK, Tid(0)).expect("a place");
        for (me, how) in how {
            announce(
                &mapping,
                *me,
                (&[ONE_OF_THEM.id, LOCK.id], LOCK.scope),
                *how,
                Cycles(0),
            );
        }
        let waker = conclude(&mapping, all[0], &entered, How::Wake(1), outcome);
        tid(&mapping, waker)
    };
    let is_it = |object| object == ONE_OF_THEM.id;
    let write = |me| (me, How::Wake(1));
    let close = |me| (me, How::Close);
    let on_trial = |me| (me, How::WakeOnTrial);
    let [_, a, b] = all[..] else { unreachable!() };
    assert_eq!(wait(&[write(a), write(b)], Outcome::Ready(&is_it)), 1001);
    assert_eq!(wait(&[write(a)], Outcome::Ready(&|_| false)), 0);
    // The last that closes it, and only for who found the end.
    assert_eq!(wait(&[close(a), close(b)], Outcome::Closed), 1002);
    assert_eq!(wait(&[close(a), write(b)], Outcome::Done), 1002);
    assert_eq!(wait(&[close(a)], Outcome::Done), 0);
    assert_eq!(wait(&[close(a)], Outcome::Ready(&is_it)), 1001);
    assert_eq!(wait(&[write(a), close(b)], Outcome::Failed), 0);
    // What was claimed on trial may be claimed by the next.
    assert_eq!(wait(&[on_trial(a)], Outcome::Ready(&is_it)), 1001);
    assert_eq!(wait(&[on_trial(a), write(b)], Outcome::Ready(&is_it)), 1002);
    assert_eq!(wait(&[write(a), on_trial(b)], Outcome::Ready(&is_it)), 1001);
}

#[test]
fn places_come_back() {
    let mapping = small();
    let all = threads(&mapping, 64);
    let entered: Vec<_> = all
        .iter()
        .map(|me| enter(&mapping, *me, LOCK, Tid(0)))
        .collect();
    assert_eq!(entered.iter().flatten().count(), 64);
    assert_eq!(count(&mapping), 64);
    for me in &all {
        leave(&mapping, me.index, me.entry);
    }
    assert_eq!(count(&mapping), 0);
    // A killed thread's entry is used again.
    let _ = enter(&mapping, all[0], LOCK, Tid(0));
    crate::shm::registry::end_thread(all[0].entry, Cycles(1));
    crate::shm::registry::free_thread(&mapping, all[0].index);
    assert_eq!(count(&mapping), 1);
    threads(&mapping, 1);
    assert_eq!(count(&mapping), 0);
}
