//! Who waits for what, and who ends it: the table through which a thread that lets go of something
//! and the threads that wait for it find each other.
//!
//! A thread that is about to block enters itself into the bucket of what it waits for; who releases,
//! signals or posts reads that bucket's count first, and only if somebody is there does it
//! note itself there. Nothing here waits, allocates or takes a lock; who finds no place is not in
//! the table and will not know its waker.
//!
//! There are three ways to note a waker, before the call that ends the wait:
//!
//! - [`How::Release`], for locks: the last that let go of a lock before a thread got it is the one that
//!   gave it. So releases overwrite each other in the bucket, and who got the lock reads there: while it
//!   holds the lock nobody can let go of it. A thread that waits to *share* a lock waits for whoever
//!   holds it alone, and uses another object for that ([`shared`]).
//! - [`How::Wake`], for all else: the first that signals ends the wait. So it claims threads, the longest
//!   waiting first, as many as the call wakes. Which threads the kernel really wakes may differ: who
//!   wakes up unclaimed takes the claim over from the one that has it ([`conclude`]).
//!
//! - [`How::Close`], for descriptors: threads see the end of what they read when the last writer has closed
//!   it; and for barriers: the last that comes ends the wait of all. So closes overwrite each other, in the
//!   waiter's entry, and only a wait that ended with the end looks there.
//!
//! A claim holds while the word `woken_by` of the waiter still has the number of its wait, so one that
//! comes late does not get into the next wait. Entries of killed threads are cleared when they are used
//! again; until then they cost a comparison.

mod object;
mod signal_wakers;

use crate::cycles::Cycles;
use crate::ids::{Tid, Utid};
use crate::shm::layout::{ThreadEntry, WAIT_BUCKETS, WAIT_PLACES};
use crate::shm::mapping::Mapping;
use crate::sync::Ordering;

use super::wait_table::{bucket_of, leave};
pub use object::{Described, EVERYWHERE, Object, any_child, child, descriptor, shared};
pub use signal_wakers::{announce_signal, signalled};

/// Buckets in which a thread may stand: its object's and those behind.
const REACH: usize = 8;
/// Waiters of a lock whose time is read when it is released.
const LOOKED_AT: usize = 8;
/// Threads that one call may wake and that are claimed.
pub const MOST_WOKEN: u32 = 64;

const _: () = assert!(WAIT_BUCKETS.is_power_of_two());

/// Who ended a wait: a thread and the number of its wake, in one word.
///
/// ```text
///   bit 63 1 | bits 42..63 number | bits 22..42 low bits of the thread's utid | bits 0..22 index of its entry
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker(u64);

const WAKER: u64 = 1 << 63;
const NUMBERS: u32 = (1 << 21) - 1;
const UTIDS: u32 = (1 << 20) - 1;
const INDICES: u32 = (1 << 22) - 1;

impl Waker {
    fn new(index: u32, utid: Utid, number: u32) -> Waker {
        Waker(
            WAKER
                | u64::from(number & NUMBERS) << 42
                | u64::from(utid.0 & UTIDS) << 22
                | u64::from(index & INDICES),
        )
    }

    fn from_word(word: u64) -> Option<Waker> {
        (word & WAKER != 0).then_some(Waker(word))
    }

    /// Whether it is this thread.
    pub fn is(self, me: Me) -> bool {
        let own = Waker::new(me.index, me.entry.utid(), self.number());
        self == own
    }

    /// The number of its wake.
    pub fn number(self) -> u32 {
        (self.0 >> 42) as u32 & NUMBERS
    }

    /// The thread's utid and tid; `None` when another one has its entry by now.
    pub fn thread(self, mapping: &Mapping) -> Option<(Utid, Tid)> {
        let entry = mapping.thread(self.0 as u32 & INDICES)?;
        let utid = entry.utid();
        (utid.0 & UTIDS == (self.0 >> 22) as u32 & UTIDS).then(|| (utid, entry.tid()))
    }
}

/// A thread that takes part, as itself.
#[derive(Clone, Copy, Debug)]
pub struct Me<'a> {
    /// Index of its entry.
    pub index: u32,
    /// Its entry.
    pub entry: &'a ThreadEntry,
}

/// Waiter: enters itself, before it blocks. `owner_tid`: who holds the lock, 0 unknown. Gives the wait's
/// number, and what the bucket said before; `None` where there is no place.
pub fn enter(mapping: &Mapping, me: Me, object: Object, owner_tid: Tid) -> Option<Entered> {
    let Me { index, entry } = me;
    leave(mapping, index, entry);
    let number = match entry.wait_number.load(Ordering::Relaxed).wrapping_add(1) {
        0 => 1,
        number => number,
    };
    entry.wait_number.store(number, Ordering::Relaxed);
    entry.wait_object.store(object.id, Ordering::Relaxed);
    entry.wait_scope.store(object.scope, Ordering::Relaxed);
    entry.wait_owner.store(owner_tid.0, Ordering::Relaxed);
    entry.closed_by.store(0, Ordering::Relaxed);
    entry.woken_by.store(u64::from(number), Ordering::Relaxed);
    let home = bucket_of(object.id);
    let buckets = mapping.waiters();
    let before = buckets[home].released_by.load(Ordering::Relaxed);
    for bucket in (home..home + REACH).map(|i| i % WAIT_BUCKETS) {
        for (i, word) in buckets[bucket].places.iter().enumerate() {
            let is_free = word.load(Ordering::Relaxed) == 0;
            let place = (bucket * WAIT_PLACES + i) as u32 + 1;
            if is_free
                && word
                    .compare_exchange(0, index + 1, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
            {
                entry.wait_place.store(place, Ordering::Relaxed);
                mapping.waiter_counts()[home].fetch_add(1, Ordering::SeqCst);
                return Some(Entered {
                    number,
                    object,
                    before,
                });
            }
        }
    }
    None
}

/// A wait that stands in the table.
#[derive(Clone, Copy, Debug)]
pub struct Entered {
    number: u32,
    object: Object,
    /// `WaitBucket::released_by` when it was entered.
    before: u64,
}

/// How a call that ends waits notes its thread as the waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It lets go of a lock.
    Release,
    /// It wakes up to so many threads.
    Wake(u32),
    /// It wakes one thread of those that wait in several places: all are claimed on trial, until somebody
    /// else claims them.
    WakeOnTrial,
    /// It closes one of the ends of something.
    Close,
    /// It sends a signal to the thread with this tid, or to a process; 0: then one of its threads takes it.
    Signal(Tid),
}

/// Waker: notes itself, before the call that lets go of these objects of one scope, the first of which is
/// why. Gives the number of the wake, and whether somebody has waited since `long_since` or longer; `None`
/// when nobody waits.
///
/// Each way of letting go is a function apart that is not inlined: hooks have little of the program's stack.
pub fn announce(
    mapping: &Mapping,
    me: Me,
    (ids, scope): (&[u64], u32),
    how: How,
    long_since: Cycles,
) -> Option<Announced> {
    let cause = *ids.first()?;
    let number = me.entry.wakes.load(Ordering::Relaxed).wrapping_add(1) & NUMBERS;
    let waker = Waker::new(me.index, me.entry.utid(), number);
    let mut first: Option<Cycles> = None;
    for id in ids {
        let object = Object { id: *id, scope };
        let begin = match how {
            How::Release => release(mapping, object, waker),
            How::Wake(count) => claim(mapping, object, cause, waker, count),
            How::WakeOnTrial => claim_on_trial(mapping, object, cause, waker),
            How::Close => close(mapping, object, cause, waker),
            How::Signal(tid) => claim_of_thread(mapping, object, cause, waker, tid),
        };
        first = first.into_iter().chain(begin).min();
    }
    let first = first?;
    me.entry.wakes.store(number, Ordering::Relaxed);
    Some(Announced {
        number,
        is_long: first <= long_since,
    })
}

/// Notes who let go, if anybody waits. Gives when one of the first waiters began.
#[inline(never)]
fn release(mapping: &Mapping, object: Object, waker: Waker) -> Option<Cycles> {
    let begins =
        waiters(mapping, object).map(|entry| entry.blocking_section_begin.load(Ordering::Relaxed));
    let first = begins.take(LOOKED_AT).min()?;
    note(mapping, object, waker);
    Some(first)
}

/// In `ThreadEntry::woken_for`: a claim on trial. No object has this bit.
const ON_TRIAL: u64 = 1;

/// Whether a waiter may be claimed whose `woken_by` says this. 0: its wait is over, it is about to leave.
fn is_free(entry: &ThreadEntry, armed: u64) -> bool {
    armed != 0 && armed & WAKER == 0 || entry.woken_for.load(Ordering::Relaxed) & ON_TRIAL != 0
}

/// Why a waiter was claimed.
fn cause_of(entry: &ThreadEntry) -> u64 {
    entry.woken_for.load(Ordering::Relaxed) & !ON_TRIAL
}

/// Claims the waiters that may be claimed, on trial. Gives when the first of them began.
#[inline(never)]
fn claim_on_trial(mapping: &Mapping, object: Object, cause: u64, waker: Waker) -> Option<Cycles> {
    let claim = |entry: &ThreadEntry| {
        let armed = entry.woken_by.load(Ordering::Relaxed);
        let begin = entry.blocking_section_begin.load(Ordering::Relaxed);
        let claimed = is_free(entry, armed)
            && entry
                .woken_by
                .compare_exchange(armed, waker.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        claimed.then(|| {
            entry.woken_for.store(cause | ON_TRIAL, Ordering::Relaxed);
            begin
        })
    };
    waiters(mapping, object)
        .filter_map(claim)
        .take(MOST_WOKEN as usize)
        .min()
}

/// Notes with all waiters who closed what they wait for. Gives when the first of them began.
#[inline(never)]
fn close(mapping: &Mapping, object: Object, cause: u64, waker: Waker) -> Option<Cycles> {
    let begins = waiters(mapping, object).map(|entry| {
        entry.closed_for.store(cause, Ordering::Relaxed);
        entry.closed_by.store(waker.0, Ordering::Relaxed);
        entry.blocking_section_begin.load(Ordering::Relaxed)
    });
    begins.take(MOST_WOKEN as usize).min()
}

/// A wake that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Number of the WAKE record, which waiters refer to.
    pub number: u32,
    /// Somebody has waited for long.
    pub is_long: bool,
}

/// The threads that wait for an object.
fn waiters(mapping: &Mapping, object: Object) -> Waiters<'_> {
    let count = &mapping.waiter_counts()[bucket_of(object.id)];
    Waiters {
        mapping,
        object,
        left: count.load(Ordering::Relaxed),
        looked_at: 0,
    }
}

struct Waiters<'a> {
    mapping: &'a Mapping,
    object: Object,
    /// Entries of the object's home bucket that are still to be met.
    left: u32,
    looked_at: usize,
}

impl<'a> Iterator for Waiters<'a> {
    type Item = &'a ThreadEntry;

    /// Apart, because hooks that wake others have little of the program's stack.
    #[inline(never)]
    fn next(&mut self) -> Option<&'a ThreadEntry> {
        let home = bucket_of(self.object.id);
        while self.left > 0 && self.looked_at < REACH * WAIT_PLACES {
            let (bucket, at) = (self.looked_at / WAIT_PLACES, self.looked_at % WAIT_PLACES);
            let bucket = (home + bucket) % WAIT_BUCKETS;
            self.looked_at += 1;
            let word = self.mapping.waiters()[bucket].places[at].load(Ordering::Acquire);
            let index = word.checked_sub(1);
            let Some(entry) = index.and_then(|index| self.mapping.thread(index)) else {
                continue;
            };
            let place = (bucket * WAIT_PLACES + at) as u32;
            let is_there = entry.wait_place.load(Ordering::Relaxed) == place + 1;
            let awaited = entry.wait_object.load(Ordering::Relaxed);
            if bucket_of(awaited) == home {
                self.left -= 1;
            }
            if is_there
                && awaited == self.object.id
                && entry.wait_scope.load(Ordering::Relaxed) == self.object.scope
            {
                return Some(entry);
            }
        }
        None
    }
}

/// Notes in the bucket who let go last.
fn note(mapping: &Mapping, object: Object, waker: Waker) {
    let bucket = &mapping.waiters()[bucket_of(object.id)];
    bucket.released_by.store(waker.0, Ordering::Relaxed);
    bucket
        .released
        .store(waker.0 ^ seal(object), Ordering::Release);
}

/// What tells an object from the others in its bucket.
fn seal(object: Object) -> u64 {
    object.id ^ u64::from(object.scope) << 48
}

/// Who let go of the object last, if the bucket still says it.
fn noted(mapping: &Mapping, object: Object) -> Option<Waker> {
    let bucket = &mapping.waiters()[bucket_of(object.id)];
    let released = bucket.released.load(Ordering::Acquire);
    let word = bucket.released_by.load(Ordering::Relaxed);
    (word ^ released == seal(object)).then_some(())?;
    Waker::from_word(word)
}

/// Claims up to `count` waiters that nobody has claimed; a single one is the one that waits longest. Gives
/// when the first of them began.
#[inline(never)]
fn claim(
    mapping: &Mapping,
    object: Object,
    cause: u64,
    waker: Waker,
    count: u32,
) -> Option<Cycles> {
    if count == 1 {
        return claim_one(mapping, object, cause, waker, |_| true);
    }
    let most = count.min(MOST_WOKEN) as usize;
    unclaimed(mapping, object)
        .filter_map(|found| claim_this(found, cause, waker))
        .take(most)
        .min()
}

/// Claims the one that waits longest, of those that nobody has claimed and for which `may_be` is true.
fn claim_one(
    mapping: &Mapping,
    object: Object,
    cause: u64,
    waker: Waker,
    may_be: impl Fn(&ThreadEntry) -> bool,
) -> Option<Cycles> {
    let found = unclaimed(mapping, object)
        .filter(|(.., entry)| may_be(entry))
        .min_by_key(|(begin, ..)| *begin)?;
    let begin = claim_this(found, cause, waker)?;
    note(mapping, object, waker);
    Some(begin)
}

/// The same for the threads with this tid, or all if it is 0.
#[inline(never)]
fn claim_of_thread(
    mapping: &Mapping,
    object: Object,
    cause: u64,
    waker: Waker,
    tid: Tid,
) -> Option<Cycles> {
    claim_one(mapping, object, cause, waker, |entry| {
        tid == Tid(0) || entry.tid() == tid
    })
}

/// When its wait began, its word that says who ends it, and its entry.
type Unclaimed<'a> = (Cycles, u64, &'a ThreadEntry);

fn unclaimed(mapping: &Mapping, object: Object) -> impl Iterator<Item = Unclaimed<'_>> {
    waiters(mapping, object).filter_map(|entry| {
        let armed = entry.woken_by.load(Ordering::Relaxed);
        let begin = entry.blocking_section_begin.load(Ordering::Relaxed);
        is_free(entry, armed).then_some((begin, armed, entry))
    })
}

fn claim_this((begin, armed, entry): Unclaimed, cause: u64, waker: Waker) -> Option<Cycles> {
    let claimed =
        entry
            .woken_by
            .compare_exchange(armed, waker.0, Ordering::Relaxed, Ordering::Relaxed);
    claimed.ok()?;
    entry.woken_for.store(cause, Ordering::Relaxed);
    Some(begin)
}

/// How a call that waited has ended.
#[derive(Clone, Copy)]
pub enum Outcome<'a> {
    /// It failed, or its time was over.
    Failed,
    /// It got what it waited for.
    Done,
    /// It found the end of what it reads.
    Closed,
    /// Some of the objects for which it waited are ready: those for which this is true.
    Ready(&'a dyn Fn(u64) -> bool),
}

/// Waiter: leaves the table after the call. Gives who gave it what it waited for.
pub fn conclude(
    mapping: &Mapping,
    me: Me,
    entered: &Entered,
    how: How,
    outcome: Outcome,
) -> Option<Waker> {
    let is_current = me.entry.wait_number.load(Ordering::Relaxed) == entered.number;
    if !is_current {
        return None;
    }
    leave(mapping, me.index, me.entry);
    let word = me.entry.woken_by.swap(0, Ordering::Relaxed);
    let closer = || Waker::from_word(me.entry.closed_by.load(Ordering::Relaxed));
    let claimed = Waker::from_word(word);
    let is_ready: &dyn Fn(u64) -> bool = match outcome {
        Outcome::Failed => return None,
        Outcome::Closed => return closer(),
        Outcome::Done => &|_| true,
        Outcome::Ready(is_ready) => {
            if claimed.is_none() || !is_ready(cause_of(me.entry)) {
                let closed_for = me.entry.closed_for.load(Ordering::Relaxed);
                let closer = closer().filter(|_| is_ready(closed_for));
                if closer.is_some() || claimed.is_some() {
                    return closer;
                }
            }
            is_ready
        }
    };
    let object = entered.object;
    match (how, claimed) {
        (How::Release, _) => noted(mapping, object).filter(|waker| waker.0 != entered.before),
        (_, Some(waker)) => Some(waker),
        (_, None) => {
            let waker = noted(mapping, object).filter(|waker| waker.0 != entered.before)?;
            // It was meant for another, which still waits: that one is free again.
            let other = waiters(mapping, object)
                .find(|entry| entry.woken_by.load(Ordering::Relaxed) == waker.0)
                .filter(|entry| is_ready(cause_of(entry)))?;
            let armed = u64::from(other.wait_number.load(Ordering::Relaxed));
            other
                .woken_by
                .compare_exchange(waker.0, armed, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
                .then_some(waker)
        }
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests;
