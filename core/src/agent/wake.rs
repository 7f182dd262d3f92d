//! Waits that other threads end, and ending them: the agent's side of `crate::waiters`.
//!
//! A hook that is about to block for certain begins its wait here, and one that lets go of something asks
//! here first whether anybody waits for it: one load. All else is off the hot path.

use super::capture;
use super::thread;
use super::{Wait, begin_wait, is_enabled, process, registered};
use crate::layout::{ThreadEntry, WaitBucket, loss};
use crate::mapping::Mapping;
use crate::probe::{Cause, Probe};
use crate::record::{Waited, Woke};
use crate::sys::{self, tls};
use crate::waiters::{self, Entered, How, Me, Object};
use core::sync::atomic::{AtomicPtr, Ordering};

/// The table of the session under way or of the last one; null while there was none.
static TABLE: AtomicPtr<WaitBucket> = AtomicPtr::new(core::ptr::null_mut());

/// From here on hooks look into this session's table.
pub(super) fn use_table(mapping: &'static Mapping) {
    TABLE.store(mapping.waiters().as_ptr().cast_mut(), Ordering::Relaxed);
}

/// A thread that waited for less than this part of what is long, when it was woken, may have waited for
/// long when it runs again: its waker is captured.
const SCHEDULING_SHARE: u64 = 8;

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub struct Awaited {
    /// Address, or what stands for a descriptor.
    pub id: u64,
    /// The same address is the same thing in other processes.
    pub is_shared: bool,
    /// Tid of the thread that holds it, 0: not known.
    pub owner_tid: u32,
    /// How it will be let go of.
    pub how: How,
}

impl Awaited {
    fn object(&self) -> Object {
        object(self.id, self.is_shared)
    }
}

/// What a thread waits for that waits for a child's end, any child's unless `pid` is above 0.
pub fn end_of_child(pid: i32) -> Awaited {
    Awaited {
        id: match u32::try_from(pid) {
            Ok(pid) if pid != 0 => waiters::child(pid),
            _ => waiters::any_child(process::pid()),
        },
        is_shared: true,
        owner_tid: 0,
        how: How::Wake(1),
    }
}

fn object(id: u64, is_shared: bool) -> Object {
    Object {
        id,
        scope: match is_shared {
            true => 0,
            false => process::index() + 1,
        },
    }
}

/// A call that blocks until another thread lets go of something, between its begin and its end.
#[derive(Debug)]
#[must_use]
pub struct WaitFor {
    wait: Wait,
    /// Its place in the table of waiters, if it has one.
    entered: Option<(Entered, How)>,
}

/// As [`begin_wait`], for a call that blocks until another thread lets go of something, if that is known.
#[inline(always)]
pub fn begin_wait_for(probe: Probe, arg: u64, awaited: impl Into<Option<Awaited>>) -> WaitFor {
    let wait = begin_wait(probe, arg);
    let entered = awaited.into().and_then(|awaited| enter(&wait, &awaited));
    WaitFor { wait, entered }
}

impl WaitFor {
    /// The call has ended with this result (negative: an error).
    pub fn end(self, result: i64) {
        let Some((entry, tick)) = self.wait.still() else {
            return;
        };
        let long = match &self.entered {
            Some((entered, how)) => conclude(&self.wait, entry, entered, *how, result),
            None => None,
        };
        self.wait.end_of(entry, tick, result, long);
    }
}

#[cold]
#[inline(never)]
fn enter(wait: &Wait, awaited: &Awaited) -> Option<(Entered, How)> {
    // SAFETY: null or the entry of this thread, in the mapping, which is never unmapped.
    let entry = unsafe { wait.entry.as_ref() }?;
    // A signal's handler that waits inside another wait leaves that one's place alone.
    if wait.gate_before != 0 || !is_enabled(wait.probe) {
        return None;
    }
    let (mapping, me) = me(entry)?;
    if long_cycles(mapping) == 0 {
        return None;
    }
    let entered = waiters::enter(mapping, me, awaited.object(), awaited.owner_tid);
    if entered.is_none() {
        capture::count(entry, loss::WAITERS_FULL);
    }
    entered.map(|entered| (entered, awaited.how))
}

/// The end of a wait that stood in the table: what to write down when it was long.
#[cold]
#[inline(never)]
fn conclude(
    wait: &Wait,
    entry: &'static ThreadEntry,
    entered: &Entered,
    how: How,
    result: i64,
) -> Option<Waited> {
    let (mapping, me) = me(entry)?;
    let end_cycles = process::now();
    let succeeded = match wait.probe.cause() {
        Cause::Lock | Cause::Wait | Cause::Join => result == 0,
        _ => result >= 0,
    };
    let waker = waiters::conclude(mapping, me, entered, how, succeeded);
    let long = long_cycles(mapping);
    if long == 0 || end_cycles.saturating_sub(wait.begin) < long {
        return None;
    }
    let (waker_uid, waker_tid) = waker.and_then(|w| w.thread(mapping)).unwrap_or((0, 0));
    Some(Waited {
        probe: wait.probe as u8,
        node: 0,
        begin_cycles: wait.begin,
        end_cycles,
        object: wait.arg,
        owner_tid: entry.wait_owner.load(Ordering::Relaxed),
        waker_tid,
        waker_uid,
        wake_number: match waker_uid {
            0 => 0,
            _ => waker.map_or(0, waiters::Waker::number),
        },
        result,
    })
}

/// Whether anybody may wait for the object. When false, [`announce`] need not be called.
#[inline(always)]
pub fn is_awaited(id: u64) -> bool {
    let table = TABLE.load(Ordering::Relaxed);
    // SAFETY: null, or the table of a mapping, which is never unmapped.
    !table.is_null() && unsafe { waiters::may_wait(table, id) }
}

/// A call that lets go of something for which threads wait, between its begin and its end.
#[derive(Debug)]
#[must_use]
pub struct Wake {
    /// What to write down: a thread has waited for long.
    long: Option<Woke>,
}

/// The calling thread is about to let go of these (addresses) in this way: leaves word for those that wait.
/// `is_shared`: the addresses mean the same in other processes.
#[cold]
#[inline(never)]
pub fn announce(ids: &[u64], is_shared: bool, how: How) -> Wake {
    Wake {
        long: try_announce(ids, is_shared, how, false),
    }
}

/// The calling thread ends, and a capture comes anyway. `id`: what those wait for that join it.
pub(super) fn announce_end_of_thread(id: u64) -> Option<Woke> {
    is_awaited(id)
        .then(|| try_announce(&[id], false, How::Wake(1), true))
        .flatten()
}

/// What to write down when a thread has waited for long, or in any case.
fn try_announce(ids: &[u64], is_shared: bool, how: How, in_any_case: bool) -> Option<Woke> {
    let block = tls::block();
    if !process::is_active() || (registered(block).is_none() && !thread::register()) {
        return None;
    }
    let (entry, _) = registered(block)?;
    let (mapping, me) = me(entry)?;
    let long = long_cycles(mapping);
    let long_since = process::now().saturating_sub(long / SCHEDULING_SHARE);
    let mut objects = [Object { id: 0, scope: 0 }; 2];
    let count = ids.len().min(objects.len());
    for (to, id) in objects.iter_mut().zip(ids) {
        *to = object(*id, is_shared);
    }
    let announced = waiters::announce(mapping, me, objects.get(..count)?, how, long_since)?;
    ((announced.is_long || in_any_case) && long != 0).then(|| Woke {
        number: announced.number,
        object: ids.first().copied().unwrap_or(0),
        ..Woke::default()
    })
}

/// The process ends: what its parent's threads may wait for.
pub(super) fn announce_end_of_process() -> Option<Woke> {
    let ids = [
        waiters::child(process::pid()),
        waiters::any_child(sys::parent_process_id()),
    ];
    let is_awaited = ids.iter().any(|id| is_awaited(*id));
    is_awaited
        .then(|| try_announce(&ids, true, How::Wake(1), true))
        .flatten()
}

impl Wake {
    /// The call has returned.
    #[inline]
    pub fn end(self, probe: Probe, arg: u64) {
        match self.long {
            Some(woke) if is_enabled(probe) => capture::wake(probe, arg, woke),
            _ => super::hit(probe, arg),
        }
    }
}

/// The calling thread as one that takes part in the session under way.
fn me(entry: &'static ThreadEntry) -> Option<(&'static Mapping, Me<'static>)> {
    let mapping = process::mapping().filter(|_| !process::is_stale(entry))?;
    let index = tls::block().entry_index.load(Ordering::Relaxed);
    Some((mapping, Me { index, entry }))
}

fn long_cycles(mapping: &Mapping) -> u64 {
    mapping.control().long_wait_cycles.load(Ordering::Relaxed)
}
