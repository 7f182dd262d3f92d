//! Waits that other threads end, and ending them: the agent's side of `crate::shm::waiters`.
//!
//! A hook that is about to block for certain begins its wait here, and one that lets go of something asks
//! here first whether anybody waits for it: one load. All else is off the hot path.

use super::tls;
use super::wakers::{Long, SCHEDULING_SHARE, long_cycles, me, scope, try_announce, with_watchers};
use super::{
    Wait, begin_wait, begin_wait_from, is_enabled, kernel_clock, registered, requests, session,
    thread,
};
use crate::cycles::Cycles;
use crate::ids::{Pid, Tid};
use crate::probe::{Cause, Probe};
use crate::shm::layout::{ThreadEntry, drops};
use crate::shm::record_format::Woke;
use crate::shm::waiters::{self, Described, Entered, How, Object, Outcome, descriptor};
use crate::shm::watches;
use core::sync::atomic::{AtomicU32, Ordering};

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub struct Awaited {
    /// Address, or what stands for a descriptor.
    pub id: u64,
    /// The same address is the same thing in other processes.
    pub is_shared: bool,
    /// Tid of the thread that holds it, 0: not known.
    pub owner_tid: Tid,
    /// How it will be let go of.
    pub how: How,
}

impl Awaited {
    fn object(&self) -> Object {
        Object {
            id: self.id,
            scope: scope(self.is_shared),
        }
    }
}

/// What a thread waits for that waits for a child's end, any child's unless `pid` is above 0.
pub fn end_of_child(pid: i32) -> Awaited {
    Awaited {
        id: match u32::try_from(pid) {
            Ok(pid) if pid != 0 => waiters::child(pid),
            _ => waiters::any_child(session::pid().0),
        },
        is_shared: true,
        owner_tid: Tid(0),
        how: How::Wake(1),
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

/// The same, seen from outside at this pc, stack pointer and frame pointer.
pub(super) fn begin_wait_for_at(
    probe: Probe,
    arg: u64,
    awaited: Option<Awaited>,
    at: [u64; 3],
) -> WaitFor {
    let wait = begin_wait_from(probe, arg, at);
    let entered = awaited.and_then(|awaited| enter(&wait, &awaited));
    WaitFor { wait, entered }
}

impl WaitFor {
    /// The call has ended with this result (negative: an error).
    pub fn end(&self, result: i64) {
        self.finish(result, 0, None);
    }

    /// The same for a call that has moved this many bytes; a negative number is none.
    pub fn end_moving(&self, result: i64, bytes: i64) {
        self.finish(result, bytes, None);
    }

    /// The same for a call that waits for several things: those that are ready are the ones for which
    /// `is_ready` is true.
    pub fn end_ready(&self, result: i64, is_ready: &dyn Fn(u64) -> bool) {
        self.finish(result, 0, Some(is_ready));
    }

    fn finish(&self, result: i64, bytes: i64, is_ready: Option<&dyn Fn(u64) -> bool>) {
        let Some((entry, tick)) = self.wait.still() else {
            return;
        };
        let long = match &self.entered {
            Some((entered, how)) => conclude(&self.wait, entry, entered, *how, result, is_ready),
            None if self.wait.has_failed(result) => interrupted(&self.wait, entry, result),
            None => None,
        };
        self.wait.end_of(entry, tick, result, bytes, long.as_ref());
    }
}

/// What a thread waits for that waits until somebody writes to this or closes it: what stands for something
/// behind a descriptor (`waiters::descriptor`).
pub fn written(object: u64) -> Awaited {
    Awaited {
        id: object,
        is_shared: true,
        owner_tid: Tid(0),
        how: How::Wake(1),
    }
}

/// The same for a thread that waits for one of several; `None` where there are none.
pub fn one_of(mut objects: impl Iterator<Item = u64>) -> Option<Awaited> {
    let first = objects.next()?;
    let mut group = None;
    for (i, object) in objects.enumerate() {
        if i == 0 {
            group = Some(join_group(None, first)?);
        }
        group = Some(join_group(group, object)?);
    }
    Some(written(group.unwrap_or(first)))
}

/// Adds an object to a group, by default to a new one of the calling thread.
#[cold]
#[inline(never)]
fn join_group(group: Option<u64>, object: u64) -> Option<u64> {
    let block = tls::block();
    if registered(block).is_none() && !thread::register() {
        return None;
    }
    let (entry, _) = registered(block)?;
    let utid = entry.utid.load(Ordering::Relaxed);
    let group = group.unwrap_or_else(|| descriptor(Described::Group, utid.into()));
    watches::join_group(session::mapping()?, group, object);
    Some(group)
}

/// Whether wakers are looked for, and the calling thread is one that may look.
pub fn finds_wakers() -> bool {
    session::is_active()
        && (registered(tls::block()).is_some() || thread::register())
        && session::mapping().is_some_and(|mapping| long_cycles(mapping) != Cycles(0))
}

/// An epoll instance (what stands for it) watches something behind a descriptor, and says `data` when that
/// is ready; `None`: it does not watch it any more.
pub fn watch(poll: u64, object: u64, data: Option<u64>) {
    if let Some(mapping) = session::mapping() {
        match data {
            Some(data) => watches::watch(mapping, poll, object, data),
            None => watches::unwatch(mapping, poll, object),
        }
    }
}

/// Whether an epoll instance reports this object by data for which `is_said` is true.
pub fn is_reported(poll: u64, object: u64, is_said: impl Fn(u64) -> bool) -> bool {
    session::mapping().is_some_and(|mapping| watches::is_reported(mapping, poll, object, is_said))
}

/// The inode of the other end of the Unix socket with this one; 0: not known, or not yet.
pub fn unix_peer(inode: u64) -> u64 {
    session::mapping().map_or(0, |mapping| {
        watches::unix_peer(mapping, inode, || {
            kernel_clock::call_if_asleep(mapping.control())
        })
    })
}

/// A number that no thing behind a descriptor has got before.
pub fn new_number() -> u64 {
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    u64::from(session::upid().0) << 32 | u64::from(NUMBERS.fetch_add(1, Ordering::Relaxed))
}

/// As [`announce`], for what stands for something behind a descriptor.
#[cold]
#[inline(never)]
pub fn announce_descriptor(object: u64, how: How) -> Wake {
    let (ids, count, polls) = with_watchers(object);
    let how = match how {
        // Which of them sees it is the kernel's choice.
        How::Wake(1) if polls > 1 => How::WakeOnTrial,
        how => how,
    };
    Wake {
        long: announced(&ids[..count], true, how),
    }
}

/// What stands for the signals of the calling process: what comes out of its signalfds.
pub fn signals() -> u64 {
    descriptor(Described::Signals, session::pid().0.into())
}

/// The pid of the calling process, as the session knows it.
pub fn own_pid() -> i32 {
    session::pid().0 as i32
}

/// Whether this is the calling thread's tid.
pub fn is_own_tid(tid: Tid) -> bool {
    let entry = registered(tls::block());
    entry.is_some_and(|(entry, _)| entry.tid() == tid)
}

/// The calling thread is about to send a signal to a process, or to its thread `tid` if that is not 0.
#[cold]
#[inline(never)]
pub fn sends_signal(pid: Pid, tid: Tid) -> Wake {
    Wake {
        long: try_send(pid, tid),
    }
}

fn try_send(pid: Pid, tid: Tid) -> Option<Woke> {
    let (entry, _) = registered(tls::block())?;
    let (mapping, me) = me(entry)?;
    let (long, now) = (long_cycles(mapping), session::now());
    let target = descriptor(Described::Signals, pid.0.into());
    let (ids, count, _) = with_watchers(target);
    let announced = waiters::announce_signal(
        mapping,
        me,
        ids.get(..count)?,
        (pid, tid),
        now,
        now.saturating_sub(long / SCHEDULING_SHARE),
    )?;
    (announced.is_long && long != Cycles(0)).then(|| Woke {
        number: announced.number,
        object: target,
        ..Woke::default()
    })
}

#[cold]
#[inline(never)]
fn enter(wait: &Wait, awaited: &Awaited) -> Option<(Entered, How)> {
    // SAFETY: null or the entry of this thread, in the mapping, which is never unmapped.
    let entry = unsafe { wait.entry.as_ref() }?;
    // A signal's handler that waits inside another wait leaves that one's place alone.
    if wait.signal_gate_before != 0 || !is_enabled(wait.probe) {
        return None;
    }
    let (mapping, me) = me(entry)?;
    if long_cycles(mapping) == Cycles(0) {
        return None;
    }
    let entered = waiters::enter(mapping, me, awaited.object(), awaited.owner_tid);
    if entered.is_none() {
        session::count(entry, drops::WAITERS_FULL);
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
    is_ready: Option<&dyn Fn(u64) -> bool>,
) -> Option<Long> {
    let (mapping, me) = me(entry)?;
    let end_cycles = session::now();
    let outcome = match (wait.probe, wait.probe.cause(), is_ready) {
        (.., Some(is_ready)) if result > 0 => Outcome::Ready(is_ready),
        (Probe::Read | Probe::Recv, ..) if result == 0 => Outcome::Closed,
        // Who came last counts, and what it returns differs between threads.
        (Probe::BarrierWait, ..) => Outcome::Closed,
        (_, Cause::Lock | Cause::Wait | Cause::Join, _) if result == 0 => Outcome::Done,
        (_, Cause::Lock | Cause::Wait | Cause::Join, _) | (.., Some(_)) => Outcome::Failed,
        _ if result >= 0 => Outcome::Done,
        _ => Outcome::Failed,
    };
    let waker = waiters::conclude(mapping, me, entered, how, outcome);
    let long = long_cycles(mapping);
    if long == Cycles(0) || end_cycles.saturating_sub(wait.begin) < long {
        return None;
    }
    let waker = match waker {
        // Its own handler did, which a signal called.
        Some(waker) if waker.is(me) => {
            waiters::signalled(mapping, entry, wait.begin).or(Some(waker))
        }
        None if is_interrupted(wait.probe, result) => {
            waiters::signalled(mapping, entry, wait.begin)
        }
        waker => waker,
    };
    Some(Long {
        end_cycles,
        owner_tid: Tid(entry.wait_owner.load(Ordering::Relaxed)),
        waker,
    })
}

/// `errno`, which is still that of the call.
fn last_error() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

/// Whether a call ended because a signal's handler ran.
fn is_interrupted(probe: Probe, result: i64) -> bool {
    match probe {
        // `clock_nanosleep` gives the error itself, and the hooks of other sleeps that have no errno give it.
        Probe::Nanosleep if result > 0 => result == i64::from(libc::EINTR),
        _ => result < 0 && last_error() == Some(libc::EINTR),
    }
}

/// A call that is not in the table of waiters has failed: what to write down if it was long and a signal of
/// somebody who is known ended it.
#[cold]
#[inline(never)]
pub(super) fn interrupted(wait: &Wait, entry: &'static ThreadEntry, result: i64) -> Option<Long> {
    let is_outer = wait.signal_gate_before == 0 && is_enabled(wait.probe);
    if !is_outer || !is_interrupted(wait.probe, result) {
        return None;
    }
    let (mapping, _) = me(entry)?;
    let (long, end_cycles) = (long_cycles(mapping), session::now());
    if long == Cycles(0) || end_cycles.saturating_sub(wait.begin) < long {
        return None;
    }
    let waker = waiters::signalled(mapping, entry, wait.begin)?;
    Some(Long {
        end_cycles,
        owner_tid: Tid(0),
        waker: Some(waker),
    })
}

/// What to write down of a wait until a child runs its program. Who ended it is known by the child's pid,
/// when it has become a process of its own.
pub(super) fn waited_for_child(wait: &Wait, entry: &'static ThreadEntry) -> Option<Long> {
    let (mapping, _) = me(entry)?;
    let (long, end_cycles) = (long_cycles(mapping), session::now());
    let is_long = long != Cycles(0) && end_cycles.saturating_sub(wait.begin) >= long;
    (is_long && wait.signal_gate_before == 0 && is_enabled(wait.probe)).then_some(Long {
        end_cycles,
        owner_tid: Tid(0),
        waker: None,
    })
}

/// A call that lets go of something for which threads wait, between its begin and its end.
#[derive(Debug)]
#[must_use]
pub struct Wake {
    /// What to write down: a thread has waited for long.
    long: Option<Woke>,
}

/// The calling thread is about to let go of these (addresses) in this way: notes it for those that wait.
/// `is_shared`: the addresses mean the same in other processes.
#[cold]
#[inline(never)]
pub fn announce(ids: &[u64], is_shared: bool, how: How) -> Wake {
    Wake {
        long: announced(ids, is_shared, how),
    }
}

/// What to write down when a thread has waited for long. Whoever lets go of something takes part.
fn announced(ids: &[u64], is_shared: bool, how: How) -> Option<Woke> {
    if !session::is_active() || (registered(tls::block()).is_none() && !thread::register()) {
        return None;
    }
    try_announce(ids, is_shared, how, false)
}

impl Wake {
    /// The call has returned.
    #[inline]
    pub fn end(self, probe: Probe, arg: u64) {
        match self.long {
            Some(woke) if is_enabled(probe) => requests::wake(probe, arg, &woke),
            _ => super::hit(probe, arg),
        }
    }
}
