//! The signal gate: none of our signals arrives inside a call that would be disturbed by it.
//!
//! A call that can return EINTR or a short count (read, poll, nanosleep, …) closes the gate before it
//! begins. Dekker's scheme: the thread stores `closed` and then looks at `in_flight`; the sampler
//! stores `in_flight` and then looks at `closed`. Both orders are sequentially consistent, so at
//! least one side sees the other: either the sampler does not send, or the thread waits here until
//! the signal has been handled.

use crate::layout::ThreadEntry;
use crate::sync::{Ordering, between_sequential, fence};

/// How often a closing thread waits before it takes the signal for lost. A signal that was sent is
/// delivered on the way out of the first system call; what is waited for is the time between the
/// sampler's store and its tgkill, which is long only when the sampler is preempted just there.
const PATIENCE: u32 = 500;

/// Thread: closes the gate. Gives what it was before, for [`reopen`]. `wait` is called while a signal
/// is on its way, with the number of the attempt, and says whether to go on waiting.
#[inline(always)]
pub fn close(entry: &ThreadEntry, wait: impl FnMut(u32) -> bool) -> u32 {
    let before = entry.closed.swap(1, Ordering::SeqCst);
    between_sequential();
    if entry.in_flight.load(Ordering::SeqCst) != 0 {
        await_signal(entry, wait);
    }
    before
}

#[cold]
fn await_signal(entry: &ThreadEntry, mut wait: impl FnMut(u32) -> bool) {
    for attempt in 0..PATIENCE {
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

/// Handler: the signal has arrived.
#[inline]
pub fn arrived(entry: &ThreadEntry) {
    entry.in_flight.store(0, Ordering::SeqCst);
}

/// Sampler: asks to send a signal. When true, send it now, and call [`cancel`] if that fails.
pub fn try_send(entry: &ThreadEntry) -> bool {
    if entry.in_flight.load(Ordering::Relaxed) != 0 {
        return false;
    }
    entry.in_flight.store(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if entry.closed.load(Ordering::SeqCst) != 0 {
        entry.in_flight.store(0, Ordering::SeqCst);
        return false;
    }
    true
}

/// Sampler: the signal could not be sent, or can no longer arrive.
pub fn cancel(entry: &ThreadEntry) {
    entry.in_flight.store(0, Ordering::SeqCst);
}
