//! The signal gate: none of our signals arrives inside a call that would be disturbed by it.
//!
//! A call that can return EINTR or a short count (read, poll, nanosleep, …) closes the gate before it
//! begins. Dekker's scheme: the thread stores `closed` and then reads `in_flight`; the sampler
//! stores `in_flight` and then reads `closed`. Both orders are sequentially consistent, so at
//! least one side sees the other: either the sampler does not send, or the thread waits here until
//! the signal has been handled.
//!
//! The thread's half of that order costs more than everything else in a hook. A thread that closes its gate
//! often and is hardly ever interrupted gets an asymmetric barrier ([`use_asymmetric_barrier`]): it leaves
//! its fence out. The sampler takes that back with the next signal: it clears `asymmetric_barrier` and has
//! the kernel run a full barrier on every processor that runs the program (`membarrier`). A thread that read
//! `asymmetric_barrier` before this barrier had stored `closed` before that, so the sampler sees it; one that
//! reads it later runs its fence again.
//!
//! A thread does not wait for ever: a signal may be lost (fetched by the program, or ignored). Before it goes
//! on it takes the announcement back, and the sampler sends only what it could [`commit`] to. Between that
//! and the end of tgkill the sampler may lose its processor for any time; the thread waits for that, and
//! gives a signal up as lost only when it has been in the kernel once more after it was sent.
//!
//! A thread without an entry has no gate. One such thread of a process at a time is announced by its tid
//! before it gets a signal, and whoever announces looks for an entry of that thread afterwards; a thread
//! that has just got its entry looks for its own tid, and waits until the signal has been handled or the
//! announcement is taken back, by the sampler or, as above, by itself.

use crate::ids::Utid;
use crate::shm::layout::ThreadEntry;
use crate::sync::{AtomicU32, Ordering, between_sequential, fence, fence_by_others};

/// `ThreadEntry::in_flight`: a signal was announced; it is being sent; it was; and the thread has noticed
/// that.
const ANNOUNCED: u32 = 1;
const SENDING: u32 = 2;
const SENT: u32 = 3;
const NOTICED: u32 = 4;
/// `ProcessEntry::unregistered` holds the same, plus this times the tid.
const STATES: u32 = 8;

/// How often a closing thread waits before it takes the signal for lost. A signal that was sent is
/// delivered on the way out of the first system call; what is waited for is the time between the
/// sampler's store and its tgkill, which is long only when the sampler is preempted just there.
const MOST_WAITS: u32 = 500;

/// Thread: closes the gate. Gives what it was before, for [`reopen`]. `wait` is called while a signal
/// is on its way, with the number of the attempt, and says whether to go on waiting.
#[inline(always)]
pub fn close(entry: &ThreadEntry, wait: impl FnMut(u32) -> bool) -> u32 {
    // Handlers that come in between put it back to what they found.
    let before = entry.closed.load(Ordering::Relaxed);
    entry.closed.store(1, Ordering::Relaxed);
    fence_by_others();
    // The utid, because a late store may be meant for the thread that had this entry before.
    if entry.asymmetric_barrier.load(Ordering::Relaxed) != entry.utid.load(Ordering::Relaxed) {
        entry.closed.swap(1, Ordering::SeqCst);
        between_sequential();
    }
    if entry.in_flight.load(Ordering::SeqCst) != 0 {
        await_signal(entry, wait);
    }
    before
}

#[cold]
#[inline(never)]
fn await_signal(entry: &ThreadEntry, mut wait: impl FnMut(u32) -> bool) {
    for attempt in 0..MOST_WAITS {
        if entry.in_flight.load(Ordering::SeqCst) == 0 || !wait(attempt) {
            return;
        }
    }
    // It was lost: nobody is to wait for it again.
    entry.in_flight.store(0, Ordering::SeqCst);
}

/// Thread: puts the gate back to what it was when the call began.
#[inline(always)]
pub fn reopen(entry: &ThreadEntry, before: u32) {
    entry.closed.store(before, Ordering::Release);
}

/// Thread: it has waited for long enough for a signal that was announced. False: it has to wait once more,
/// with a system call, because the signal may come at this moment. When true, it will not come.
#[cold]
pub fn give_up(entry: &ThreadEntry) -> bool {
    give_up_of(&entry.in_flight, 0)
}

/// The same for a signal that was announced to it when it had no entry.
#[cold]
pub fn give_up_meeting(unregistered: &AtomicU32, tid: u32) -> bool {
    give_up_of(unregistered, tid)
}

/// Thread: takes a signal back that was announced and is not being sent yet. When true, it will not come.
#[cold]
pub fn take_back(entry: &ThreadEntry) -> bool {
    take_back_of(&entry.in_flight, ANNOUNCED)
}

/// The same for a signal that was announced to it when it had no entry.
#[cold]
pub fn take_back_meeting(unregistered: &AtomicU32, tid: u32) -> bool {
    take_back_of(unregistered, tid * STATES + ANNOUNCED)
}

fn take_back_of(word: &AtomicU32, announced: u32) -> bool {
    let taken = word.compare_exchange(announced, 0, Ordering::SeqCst, Ordering::SeqCst);
    taken.is_ok()
}

fn give_up_of(word: &AtomicU32, tid: u32) -> bool {
    let before = word.load(Ordering::SeqCst);
    let (from, to) = match before % STATES {
        _ if before == 0 || before / STATES != tid => return true,
        SENDING => return false,
        SENT => (before, before - SENT + NOTICED),
        _ => (before, 0),
    };
    let changed = word.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
    changed.is_ok() && to == 0
}

/// Thread: whether the sampler is sending the signal that was announced, which takes as long as it lasts
/// until it has a processor.
pub fn is_being_sent(entry: &ThreadEntry) -> bool {
    entry.in_flight.load(Ordering::Relaxed) == SENDING
}

/// Handler: the signal has arrived.
#[inline]
pub fn arrived(entry: &ThreadEntry) {
    entry.in_flight.store(0, Ordering::SeqCst);
}

/// Sampler: has the thread with this utid leave its fence out. Only for threads of processes that the
/// kernel knows for `membarrier`, and only the sampler that calls [`try_send`] may do it.
pub fn use_asymmetric_barrier(entry: &ThreadEntry, utid: Utid) {
    entry.asymmetric_barrier.store(utid.0, Ordering::Relaxed);
}

/// Sampler: asks to send a signal. When true, [`commit`] to it, then send it. `barrier` is called when the
/// thread leaves its fence out: a full barrier on every processor that runs the thread's process; false where
/// that failed.
pub fn try_send(entry: &ThreadEntry, barrier: impl FnOnce() -> bool) -> bool {
    let keeps_away = [&entry.in_flight, &entry.closed];
    if keeps_away
        .iter()
        .any(|word| word.load(Ordering::Relaxed) != 0)
        || entry.is_out_of_reach(Ordering::Relaxed)
    {
        return false;
    }
    let asymmetric_barrier = entry.asymmetric_barrier.load(Ordering::Relaxed);
    if asymmetric_barrier != 0 {
        entry.asymmetric_barrier.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !barrier() {
            entry
                .asymmetric_barrier
                .store(asymmetric_barrier, Ordering::Relaxed);
            return false;
        }
    }
    entry.in_flight.store(ANNOUNCED, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if entry.closed.load(Ordering::SeqCst) != 0 || entry.is_out_of_reach(Ordering::SeqCst) {
        entry.in_flight.store(0, Ordering::SeqCst);
        return false;
    }
    true
}

/// Sampler: sends the signal that was announced, unless the thread does not wait for it any more: then false.
/// Call [`sent`] afterwards, or [`cancel`] if sending failed.
pub fn commit(entry: &ThreadEntry) -> bool {
    let in_flight = &entry.in_flight;
    let committed =
        in_flight.compare_exchange(ANNOUNCED, SENDING, Ordering::SeqCst, Ordering::SeqCst);
    committed.is_ok()
}

/// Sampler: the signal was sent; it may have arrived.
pub fn sent(entry: &ThreadEntry) {
    let in_flight = &entry.in_flight;
    _ = in_flight.compare_exchange(SENDING, SENT, Ordering::SeqCst, Ordering::SeqCst);
}

/// Sampler: the signal could not be sent, or can no longer arrive.
pub fn cancel(entry: &ThreadEntry) {
    entry.in_flight.store(0, Ordering::SeqCst);
}

/// Sampler: a signal is about to be sent to a thread that has no entry; `unregistered` is its process' word
/// for that. `is_registered` looks for its entry after the announcement: if there is one now, false comes
/// back, and nothing is to be sent. When true, [`commit_meeting`] to it, then send it.
pub fn announce(unregistered: &AtomicU32, tid: u32, is_registered: impl FnOnce() -> bool) -> bool {
    unregistered.store(tid * STATES + ANNOUNCED, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if is_registered() {
        cancel_meeting(unregistered);
        return false;
    }
    true
}

/// Sampler: sends the signal that was announced to an unregistered thread, unless that has got an entry and
/// does not wait for it any more: then false. Call [`meeting_sent`] afterwards, or [`cancel_meeting`] if
/// sending failed.
pub fn commit_meeting(unregistered: &AtomicU32, tid: u32) -> bool {
    let (from, to) = (tid * STATES + ANNOUNCED, tid * STATES + SENDING);
    let committed = unregistered.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
    committed.is_ok()
}

/// Sampler: the signal was sent; it may have arrived.
pub fn meeting_sent(unregistered: &AtomicU32, tid: u32) {
    let (from, to) = (tid * STATES + SENDING, tid * STATES + SENT);
    _ = unregistered.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
}

/// Sampler: whether a signal that was announced is still on its way.
pub fn is_announced(unregistered: &AtomicU32) -> bool {
    unregistered.load(Ordering::SeqCst) != 0
}

/// Sampler: the tid of the unregistered thread to whom a signal was announced that is still on its way; 0:
/// none.
pub fn announced_to(unregistered: &AtomicU32) -> u32 {
    unregistered.load(Ordering::SeqCst) / STATES
}

/// Sampler: the signal could not be sent, or did not arrive.
pub fn cancel_meeting(unregistered: &AtomicU32) {
    unregistered.store(0, Ordering::SeqCst);
}

/// Thread: whether the sampler is sending the signal that was announced when the thread had no entry.
pub fn is_meeting_being_sent(unregistered: &AtomicU32, tid: u32) -> bool {
    unregistered.load(Ordering::Relaxed) == tid * STATES + SENDING
}

/// Thread: it has got its entry this moment. While a signal is announced to it, `wait` is called with the
/// number of the attempt, and says whether to go on waiting: no longer than until [`give_up_meeting`].
pub fn introduce(unregistered: &AtomicU32, tid: u32, mut wait: impl FnMut(u32) -> bool) {
    fence(Ordering::SeqCst);
    for attempt in 0..MOST_WAITS {
        if unregistered.load(Ordering::SeqCst) / STATES != tid || !wait(attempt) {
            return;
        }
    }
}

/// Handler, in a thread with or without an entry: what was announced to it has arrived.
#[inline]
pub fn met(unregistered: &AtomicU32, tid: impl FnOnce() -> u32) {
    let announced = unregistered.load(Ordering::SeqCst);
    if announced != 0 && announced / STATES == tid() {
        unregistered.store(0, Ordering::SeqCst);
    }
}
