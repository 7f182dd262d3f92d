//! Who waits for what, as this process sees it: the session's tables of waiters and of watches, and how a
//! waker notes itself there.

use super::tls;
use super::{Wait, registered, session};
use crate::cycles::Cycles;
use crate::ids::{Tid, Utid};
use crate::platform;
use crate::shm::layout::{ThreadEntry, Watch};
use crate::shm::mapping::Mapping;
use crate::shm::record_format::{Waited, Woke};
use crate::shm::wait_table;
use crate::shm::waiters::{self, EVERYWHERE, How, Me, Waker};
use crate::shm::watches;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// How many wait, by bucket, in the session under way or in the last one; null while there was none.
static WAITER_COUNTS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// The table of watches, in the same way.
static WATCHES: AtomicPtr<Watch> = AtomicPtr::new(core::ptr::null_mut());

/// From here on hooks look into this session's tables.
pub(super) fn use_tables(mapping: &'static Mapping) {
    WATCHES.store(mapping.watches().as_ptr().cast_mut(), Ordering::Relaxed);
    WAITER_COUNTS.store(
        mapping.waiter_counts().as_ptr().cast_mut(),
        Ordering::Relaxed,
    );
}

/// A thread that waited for less than this part of what is long, when it was woken, may have waited for
/// long when it runs again: its waker is captured.
pub(super) const SCHEDULING_SHARE: u64 = 8;

pub(super) fn scope(is_shared: bool) -> u32 {
    match is_shared {
        true => EVERYWHERE,
        false => session::index() + 1,
    }
}

/// Whether anybody may wait for what stands for something behind a descriptor, alone or among others.
#[inline(always)]
pub fn is_descriptor_awaited(object: u64) -> bool {
    let watches = WATCHES.load(Ordering::Relaxed);
    if is_awaited(object) {
        return true;
    }
    if watches.is_null() {
        return false;
    }
    // SAFETY: the table of a mapping, which is never unmapped.
    let mut found = unsafe { watches::find(watches, object) };
    found.any(|watch| {
        let (poll, group) = watchers(watch);
        poll != 0 && is_awaited(poll) || group != 0 && is_awaited(group)
    })
}

#[inline(always)]
fn watchers(watch: &Watch) -> (u64, u64) {
    let poll = watch.poll.load(Ordering::Relaxed);
    (poll, watch.group.load(Ordering::Relaxed))
}

/// An object and what those wait for that wait for it among others, how many these are, and how many of them
/// are epoll instances.
pub(super) fn with_watchers(object: u64) -> ([u64; 1 + 2 * watches::WAYS], usize, u32) {
    let table = WATCHES.load(Ordering::Relaxed);
    let mut ids = [object; 1 + 2 * watches::WAYS];
    let (mut count, mut polls) = (1, 0);
    // SAFETY: the table of a mapping, which is never unmapped.
    let found = (!table.is_null()).then(|| unsafe { watches::find(table, object) });
    for (poll, group) in found.into_iter().flatten().map(watchers) {
        polls += u32::from(poll != 0);
        for id in [poll, group] {
            if id != 0 {
                ids[count] = id;
                count += 1;
            }
        }
    }
    (ids, count, polls)
}

/// Whether anybody may wait for the object. When false, `announce` need not be called.
#[inline(always)]
pub fn is_awaited(id: u64) -> bool {
    let counts = WAITER_COUNTS.load(Ordering::Relaxed);
    // SAFETY: null, or the counts of a mapping, which is never unmapped.
    !counts.is_null() && unsafe { wait_table::may_wait(counts, id) }
}

/// The calling thread ends, and a capture comes anyway. `id`: what those wait for that join it.
pub(super) fn announce_end_of_thread(id: u64) -> Option<Woke> {
    is_awaited(id)
        .then(|| try_announce(&[id], false, How::Wake(1), true))
        .flatten()
}

/// Notes the waker as a thread that takes part. Gives what to write down when a thread has waited for long,
/// or in any case.
pub(super) fn try_announce(
    ids: &[u64],
    is_shared: bool,
    how: How,
    in_any_case: bool,
) -> Option<Woke> {
    let (entry, _) = registered(tls::block()).filter(|_| session::is_active())?;
    let (mapping, me) = me(entry)?;
    let long = long_cycles(mapping);
    let long_since = session::now().saturating_sub(long / SCHEDULING_SHARE);
    let announced = waiters::announce(mapping, me, (ids, scope(is_shared)), how, long_since)?;
    ((announced.is_long || in_any_case) && long != Cycles(0)).then(|| Woke {
        number: announced.number,
        object: ids.first().copied().unwrap_or(0),
        ..Woke::default()
    })
}

/// The process ends: what its parent's threads may wait for.
pub(super) fn announce_end_of_process() -> Option<Woke> {
    let ids = [
        waiters::child(session::pid().0),
        waiters::any_child(platform::parent_process_id()),
    ];
    let is_awaited = ids.iter().any(|id| is_awaited(*id));
    is_awaited
        .then(|| try_announce(&ids, true, How::Wake(1), true))
        .flatten()
}

/// The calling thread as one that takes part in the session under way.
pub(super) fn me(entry: &'static ThreadEntry) -> Option<(&'static Mapping, Me<'static>)> {
    let mapping = session::mapping().filter(|_| !session::is_stale(entry))?;
    let index = tls::block().entry_index.load(Ordering::Relaxed);
    Some((mapping, Me { index, entry }))
}

pub(super) fn long_cycles(mapping: &Mapping) -> Cycles {
    mapping.control().long_wait_cycles.load(Ordering::Relaxed)
}

/// A wait that was so long that it says who ended it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Long {
    pub(super) end_cycles: Cycles,
    pub(super) owner_tid: Tid,
    pub(super) waker: Option<Waker>,
}

impl Long {
    /// What to write down of it.
    pub(super) fn waited(&self, wait: &Wait, result: i64) -> Waited {
        let thread = || self.waker?.thread(session::mapping()?);
        let (waker_utid, waker_tid) = thread().unwrap_or_default();
        Waited {
            probe: wait.probe as u8,
            begin_cycles: wait.begin,
            end_cycles: self.end_cycles,
            object: wait.arg,
            owner_tid: self.owner_tid,
            waker_tid,
            waker_utid,
            wake_number: match waker_utid {
                Utid(0) => 0,
                _ => self.waker.map_or(0, Waker::number),
            },
            result,
            ..Waited::default()
        }
    }
}
