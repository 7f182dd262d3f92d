//! Threads that the collector finds before they pass a hook: they wait in one call since before there were hooks.
//!
//! The collector makes an entry for such a thread, so that it has its row in the trace. With its first hook
//! the thread takes that entry over. Both may happen at the same moment, and there must be one entry:
//! each side stores what it has (the thread a claimed entry with its tid, the collector an offered one)
//! and then looks for the other's. There is a sequentially consistent fence in between on both sides, so at
//! least one of them sees the other. Offers are taken, kept and withdrawn by compare-and-swap: if both
//! see each other, one gives way.

use super::{NewThread, announce, claim_thread, fill_in, make_room, show_sign, state, threads};
use crate::layout::ThreadEntry;
use crate::mapping::Mapping;
use crate::sync::{AtomicU32, Ordering};

/// Collector: offers an entry to a thread that seems to have none and has used this CPU time. Follow with a
/// sequentially consistent fence, then with [`keep`], or with [`take_back`] where the thread [`has_entry`].
pub fn offer(mapping: &Mapping, new: &NewThread, cpu_ns: u64) -> Option<u32> {
    let process = mapping.process(new.process)?;
    let (i, entry) = claim_thread(mapping, new)?;
    fill_in(mapping, i, entry, new);
    entry.cpu_before_ns.store(cpu_ns, Ordering::Relaxed);
    entry.cpu_ns.store(cpu_ns, Ordering::Relaxed);
    publish(&process.found, entry);
    Some(i)
}

/// Collector: an entry that is filled in can be taken from now on. `found` counts those of its process.
pub fn publish(found: &AtomicU32, entry: &ThreadEntry) {
    found.fetch_add(1, Ordering::Relaxed);
    entry.state.store(state::OFFERED, Ordering::Release);
}

/// Collector: whether this is an entry that its thread has made by itself, or is about to.
pub fn has_entry(entry: &ThreadEntry) -> bool {
    matches!(
        entry.state.load(Ordering::Acquire),
        state::CLAIMED | state::LIVE | state::ENDED
    )
}

/// Collector: the thread had no entry of its own when this one was offered. It may have taken this one since.
pub fn keep(mapping: &Mapping, i: u32) {
    if let Some(entry) = mapping.thread(i)
        && accept(entry)
    {
        announce(mapping);
        show_sign(mapping, i, entry);
    }
}

/// Collector: an offer that was not taken stays. False: it was taken.
pub fn accept(entry: &ThreadEntry) -> bool {
    change(entry, state::OFFERED, state::FOUND)
}

/// Collector: the thread has an entry of its own, unless it takes this one at this moment.
pub fn take_back(mapping: &Mapping, i: u32) {
    if let Some(entry) = mapping.thread(i)
        && withdraw(entry)
    {
        make_room(mapping, i);
        forget(mapping, entry);
    }
}

/// Collector: an offer that was not taken is none any more. False: it was taken.
pub fn withdraw(entry: &ThreadEntry) -> bool {
    change(entry, state::OFFERED, state::FREE)
}

/// Collector: the thread is gone, and has never passed a hook.
pub fn end(mapping: &Mapping, i: u32, cycles: u64) {
    if let Some(entry) = mapping.thread(i)
        && entry.state.load(Ordering::Acquire) == state::FOUND
    {
        super::end_thread(entry, cycles);
        forget(mapping, entry);
        show_sign(mapping, i, entry);
    }
}

fn forget(mapping: &Mapping, entry: &ThreadEntry) {
    if let Some(process) = mapping.process(entry.process.load(Ordering::Relaxed)) {
        process.found.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Thread: the entry that the collector has made for it; its own from now on.
pub(super) fn take_over<'a>(
    mapping: &'a Mapping,
    new: &NewThread,
) -> Option<(u32, &'a ThreadEntry)> {
    let process = mapping.process(new.process)?;
    take_one_of(&process.found, threads(mapping), new)
}

/// Thread: the one of these entries that was made for it. `found` counts those of its process.
pub fn take_one_of<'a>(
    found: &AtomicU32,
    mut entries: impl Iterator<Item = (u32, &'a ThreadEntry)>,
    new: &NewThread,
) -> Option<(u32, &'a ThreadEntry)> {
    if found.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let taken = entries.find(|(_, entry)| take(entry, new))?;
    found.fetch_sub(1, Ordering::Relaxed);
    Some(taken)
}

fn take(entry: &ThreadEntry, new: &NewThread) -> bool {
    let is_for_somebody = matches!(
        entry.state.load(Ordering::Acquire),
        state::OFFERED | state::FOUND
    );
    is_for_somebody
        && entry.tid.load(Ordering::Relaxed) == new.tid
        && entry.process.load(Ordering::Relaxed) == new.process
        // It may be kept in between.
        && (change(entry, state::OFFERED, state::LIVE) || change(entry, state::FOUND, state::LIVE))
}

/// Changes an entry's state, unless it is another one than it was.
pub(super) fn change(entry: &ThreadEntry, from: u32, to: u32) -> bool {
    let changed = entry
        .state
        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    changed.is_ok()
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::layout::entry_state;
    use crate::mapping::tests::small;
    use crate::registry::{NewProcess, add_process, add_thread, free_thread};

    const THREAD: NewThread = NewThread {
        tid: 77,
        process: 0,
        is_main: false,
        creator_uid: 0,
        creator_node: 0,
        stack: (0, 0),
        cycles: 5,
    };

    fn state_of(mapping: &Mapping, i: u32) -> u32 {
        let entry = mapping.thread(i).expect("there");
        entry.state.load(Ordering::Relaxed)
    }

    fn found(mapping: &Mapping) -> u32 {
        let process = mapping.process(0).expect("there");
        process.found.load(Ordering::Relaxed)
    }

    fn with_process() -> Mapping {
        let mapping = small();
        add_process(&mapping, &NewProcess::default()).expect("room");
        mapping
    }

    #[test]
    fn a_thread_takes_over_what_was_made_for_it() {
        let mapping = with_process();
        let other = NewThread { tid: 78, ..THREAD };
        let others = offer(&mapping, &other, 0).expect("room");
        let own = offer(&mapping, &THREAD, 9).expect("room");
        keep(&mapping, own);
        assert_eq!(state_of(&mapping, own), entry_state::FOUND);
        let late = NewThread {
            cycles: 1000,
            stack: (16, 32),
            ..THREAD
        };
        let (i, entry) = add_thread(&mapping, &late).expect("its own");
        assert_eq!(i, own);
        assert_eq!(state_of(&mapping, own), entry_state::LIVE);
        // It was there before, and knows its stack.
        assert_eq!(entry.start_cycles.load(Ordering::Relaxed), 5);
        assert_eq!(entry.cpu_before_ns.load(Ordering::Relaxed), 9);
        assert_eq!(entry.stack_high.load(Ordering::Relaxed), 32);
        assert_eq!(found(&mapping), 1);
        // An offer can be taken before it is kept.
        let (i, _) = add_thread(&mapping, &other).expect("its own");
        assert_eq!((i, found(&mapping)), (others, 0));
        keep(&mapping, others);
        assert_eq!(state_of(&mapping, others), entry_state::LIVE);
        // What they had claimed before they saw it is free again.
        let third = NewThread { tid: 79, ..THREAD };
        let (i, _) = add_thread(&mapping, &third).expect("room");
        assert_eq!((i, threads(&mapping).count()), (2, 3));
    }

    #[test]
    fn an_offer_that_comes_too_late_is_taken_back() {
        let mapping = with_process();
        let (own, entry) = add_thread(&mapping, &THREAD).expect("room");
        let offered = offer(&mapping, &THREAD, 0).expect("room");
        assert!(has_entry(entry) && own != offered);
        take_back(&mapping, offered);
        assert_eq!(state_of(&mapping, offered), entry_state::FREE);
        assert_eq!(found(&mapping), 0);
    }

    #[test]
    fn a_thread_that_never_came_ends() {
        let mapping = with_process();
        let i = offer(&mapping, &THREAD, 0).expect("room");
        keep(&mapping, i);
        end(&mapping, i, 8);
        assert_eq!(state_of(&mapping, i), entry_state::ENDED);
        assert_eq!(found(&mapping), 0);
        free_thread(&mapping, i);
        // The next thread with this number is another one.
        let (_, entry) = add_thread(&mapping, &THREAD).expect("room");
        assert_eq!(entry.uid.load(Ordering::Relaxed), 2);
    }
}
