//! An entry that the collector has made goes over to its thread.
//!
//! A thread that passes no hook has no entry until the collector makes one for it; with its first hook a
//! thread takes that over, or makes its own. Both may happen at the same moment, and there must be one entry:
//! each side stores what it has (the thread a claimed entry with its tid, the collector an offered one) and
//! then looks for the other's. There is a sequentially consistent fence in between on both sides, so at least
//! one of them sees the other. How far a side has to look is read behind the fence, too. Offers are taken,
//! kept and taken back by compare-and-swap: if both see each other, one gives way.

use crate::ids::Tid;
use crate::shm::layout::{ThreadEntry, entry_state as state};
use crate::sync::{AtomicU32, Ordering, fence};

/// Collector: an entry that is filled in can be taken from now on. `adopted` counts those of its process.
/// Then it looks whether the thread has one, by [`has_entry`] of all others.
pub fn offer(adopted: &AtomicU32, entry: &ThreadEntry) {
    adopted.fetch_add(1, Ordering::Relaxed);
    entry.state.store(state::OFFERED, Ordering::Release);
    fence(Ordering::SeqCst);
}

/// Collector: whether this is an entry that its thread has made by itself, or is about to.
pub fn has_entry(entry: &ThreadEntry) -> bool {
    matches!(
        entry.state.load(Ordering::Acquire),
        state::CLAIMED | state::LIVE | state::ENDED
    )
}

/// Collector: an offer that was not taken stays. False: it was taken.
pub fn keep(entry: &ThreadEntry) -> bool {
    change(entry, state::OFFERED, state::ADOPTED)
}

/// Collector: an offer that was not taken is none any more. False: it was taken.
pub fn take_back(entry: &ThreadEntry) -> bool {
    change(entry, state::OFFERED, state::FREE)
}

/// Thread: it has claimed an entry and stored who it is (`of`: the index of its process, its tid). Gives the
/// one of these that was made for it; then it gives its own back. `adopted` counts such entries of its
/// process.
pub fn take<'a, I: Iterator<Item = (u32, &'a ThreadEntry)>>(
    adopted: &AtomicU32,
    entries: impl FnOnce() -> I,
    of: (u32, Tid),
) -> Option<(u32, &'a ThreadEntry)> {
    fence(Ordering::SeqCst);
    if adopted.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let taken = entries().find(|(_, entry)| is_taken(entry, of))?;
    adopted.fetch_sub(1, Ordering::Relaxed);
    Some(taken)
}

fn is_taken(entry: &ThreadEntry, (process, tid): (u32, Tid)) -> bool {
    let is_for_somebody = matches!(
        entry.state.load(Ordering::Acquire),
        state::OFFERED | state::ADOPTED
    );
    is_for_somebody
        && entry.tid() == tid
        && entry.process.load(Ordering::Relaxed) == process
        // It may be kept in between.
        && (change(entry, state::OFFERED, state::LIVE) || change(entry, state::ADOPTED, state::LIVE))
}

/// Changes an entry's state, unless it is another one than it was.
pub fn change(entry: &ThreadEntry, from: u32, to: u32) -> bool {
    let changed = entry
        .state
        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    changed.is_ok()
}
