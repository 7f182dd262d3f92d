//! Signals that end waits.
//!
//! A thread that waits for nothing but signals, or for a signalfd, stands in the table like all others. But a
//! signal ends any wait, where its handler runs; for these the sender notes itself in the entry of the thread
//! or the process that it sends to, and a thread whose call was interrupted looks there. The word counts if
//! it is not older than the wait. The last sender stands there, whatever it sent: a signal that is ignored or
//! blocked, and came after the one that ended the wait, is taken for it.

use super::{Announced, EVERYWHERE, How, Me, NUMBERS, Waker, announce};
use crate::cycles::{AtomicCycles, Cycles};
use crate::ids::{Pid, Tid};
use crate::shm::layout::{ThreadEntry, entry_state};
use crate::shm::mapping::Mapping;
use crate::shm::registry;
use crate::sync::{AtomicU64, Ordering};

/// Entries of threads that are searched for any of a process that waits: sending a signal may not take long.
/// The one thread that a signal is meant for is found among all.
const LOOKED_THROUGH: usize = 1024;

/// Waker: notes itself, before it sends a signal to the process `pid`, or to its thread `tid` if that is
/// not 0. `ids`: what those wait for that wait for signals to that process, or for several things of which
/// this is one. Gives what [`announce`] does; `None` when the process is not recorded.
pub fn announce_signal(
    mapping: &Mapping,
    me: Me,
    ids: &[u64],
    (pid, tid): (Pid, Tid),
    now: Cycles,
    long_since: Cycles,
) -> Option<Announced> {
    let live = |state: &crate::sync::AtomicU32| state.load(Ordering::Acquire) == entry_state::LIVE;
    let (index, process) =
        registry::processes(mapping).find(|(_, p)| p.pid() == pid && live(&p.state))?;
    let claimed = announce(mapping, me, (ids, EVERYWHERE), How::Signal(tid), long_since);
    let number = claimed.map_or_else(
        || me.entry.wakes.load(Ordering::Relaxed).wrapping_add(1) & NUMBERS,
        |claimed| claimed.number,
    );
    let is_waiting = |entry: &ThreadEntry| entry.blocking_section.load(Ordering::Relaxed) & 1 != 0;
    let own_pid = mapping
        .process(me.entry.process.load(Ordering::Relaxed))
        .map_or(Pid(0), |own| own.pid());
    if own_pid == pid && is_waiting(me.entry) {
        // A handler inside of a wait hands its signal on: who sent that one stays.
        return claimed;
    }
    let waker = Waker::new(me.index, me.entry.utid(), number);
    let mut targets = registry::threads(mapping)
        .take(if tid == Tid(0) {
            LOOKED_THROUGH
        } else {
            usize::MAX
        })
        .map(|(_, entry)| entry)
        .filter(|entry| {
            entry.process.load(Ordering::Relaxed) == index
                && live(&entry.state)
                && (tid == Tid(0) || entry.tid() == tid)
        });
    let is_long = if tid == Tid(0) {
        note_sender(&process.signalled_by, &process.signalled_cycles, waker, now);
        targets.any(|entry| {
            is_waiting(entry) && entry.blocking_section_begin.load(Ordering::Relaxed) <= long_since
        })
    } else {
        let target = targets.next();
        target.is_some_and(|entry| {
            note_sender(&entry.signalled_by, &entry.signalled_cycles, waker, now);
            is_waiting(entry) && entry.blocking_section_begin.load(Ordering::Relaxed) <= long_since
        })
    };
    me.entry.wakes.store(number, Ordering::Relaxed);
    Some(Announced {
        number,
        is_long: is_long || claimed.is_some_and(|claimed| claimed.is_long),
    })
}

fn note_sender(by: &AtomicU64, cycles: &AtomicCycles, waker: Waker, now: Cycles) {
    by.store(waker.0, Ordering::Relaxed);
    cycles.store(now, Ordering::Release);
}

/// Waiter: who sent the thread, or its process, a signal at or after a moment.
pub fn signalled(mapping: &Mapping, entry: &ThreadEntry, since: Cycles) -> Option<Waker> {
    let read = |by: &AtomicU64, cycles: &AtomicCycles| {
        let is_new = cycles.load(Ordering::Acquire) >= since;
        is_new
            .then(|| Waker::from_word(by.load(Ordering::Relaxed)))
            .flatten()
    };
    read(&entry.signalled_by, &entry.signalled_cycles).or_else(|| {
        let process = mapping.process(entry.process.load(Ordering::Relaxed))?;
        read(&process.signalled_by, &process.signalled_cycles)
    })
}
