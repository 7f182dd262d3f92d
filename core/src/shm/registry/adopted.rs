//! Threads that the collector finds before they pass a hook: they wait in one call since before there were
//! hooks. It makes an entry for such a thread, so that it has its row in the trace, and the thread takes it
//! over with its first hook (`crate::shm::adoption`).

use super::{NewThread, announce, claim_thread, fill_in, make_room, show_activity, state, threads};
use crate::cycles::Cycles;
use crate::shm::adoption;
use crate::shm::layout::ThreadEntry;
use crate::shm::mapping::Mapping;
use crate::sync::Ordering;

/// Of so many entries one is left for threads that run, and so many at most: the collector makes storage for
/// more before so few are left.
const LEFT_OF: u32 = 16;
const MOST_LEFT: u32 = 512;

/// Collector: how many entries may be offered now: not the last free ones, which threads that run may need.
pub fn room(mapping: &Mapping) -> u32 {
    let limit = mapping.reachable_threads();
    let left = (limit / LEFT_OF).min(MOST_LEFT);
    let used = mapping.control().threads_used.load(Ordering::Acquire);
    let behind = limit.saturating_sub(used).saturating_sub(left);
    if behind > 0 {
        return behind;
    }
    let free =
        threads(mapping).filter(|(_, entry)| entry.state.load(Ordering::Relaxed) == state::FREE);
    let free = limit.saturating_sub(used) as usize + free.count();
    (free as u32).saturating_sub(left)
}

/// Collector: offers an entry to a thread that seems to have none and has used this CPU time, as long as
/// there is [`room`]. Follow with [`keep`], or with [`take_back`] where it has one now
/// (`crate::shm::adoption::has_entry`).
pub fn offer(mapping: &Mapping, new: &NewThread, cpu_ns: u64) -> Option<u32> {
    let process = mapping.process(new.process)?;
    let (i, entry) = claim_thread(mapping, new)?;
    fill_in(mapping, i, entry, new);
    entry.cpu_before_ns.store(cpu_ns, Ordering::Relaxed);
    entry.cpu_ns.store(cpu_ns, Ordering::Relaxed);
    adoption::offer(&process.adopted, entry);
    Some(i)
}

/// Collector: the thread had no entry of its own when this one was offered. It may have taken this one since.
pub fn keep(mapping: &Mapping, i: u32) {
    if let Some(entry) = mapping.thread(i)
        && adoption::keep(entry)
    {
        announce(mapping);
        show_activity(mapping, i, entry);
    }
}

/// Collector: the thread has an entry of its own, unless it takes this one at this moment.
pub fn take_back(mapping: &Mapping, i: u32) {
    if let Some(entry) = mapping.thread(i) {
        // Once it is free, others write there.
        let process = entry.process.load(Ordering::Relaxed);
        if adoption::take_back(entry) {
            forget(mapping, process);
            make_room(mapping, i);
        }
    }
}

/// Collector: the thread is gone, and has never passed a hook. An entry that was taken over since goes on.
pub fn end(mapping: &Mapping, i: u32, cycles: Cycles) {
    if let Some(entry) = mapping.thread(i)
        && entry.state.load(Ordering::Acquire) == state::ADOPTED
    {
        let process = entry.process.load(Ordering::Relaxed);
        entry.end_cycles.store(cycles, Ordering::Relaxed);
        if adoption::change(entry, state::ADOPTED, state::ENDED) {
            forget(mapping, process);
            show_activity(mapping, i, entry);
        }
    }
}

/// An entry of this process waits for its thread no longer.
fn forget(mapping: &Mapping, process: u32) {
    if let Some(process) = mapping.process(process) {
        process.adopted.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Thread: it has claimed an entry, or there was none to claim; gives the one that the collector has made for
/// it.
pub(super) fn take_over<'a>(
    mapping: &'a Mapping,
    new: &NewThread,
) -> Option<(u32, &'a ThreadEntry)> {
    let process = mapping.process(new.process)?;
    adoption::take(
        &process.adopted,
        || threads(mapping),
        (new.process, new.tid),
    )
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::ids::{Tid, Utid};
    use crate::shm::adoption::has_entry;
    use crate::shm::layout::entry_state;
    use crate::shm::mapping::tests::small;
    use crate::shm::registry::{NewProcess, add_process, add_thread, end_thread, free_thread};

    const THREAD: NewThread = NewThread {
        tid: Tid(77),
        process: 0,
        is_main: false,
        creator_utid: Utid(0),
        creator_node: 0,
        stack: (0, 0),
        cycles: Cycles(5),
    };

    fn state_of(mapping: &Mapping, i: u32) -> u32 {
        let entry = mapping.thread(i).expect("there");
        entry.state.load(Ordering::Relaxed)
    }

    fn adopted(mapping: &Mapping) -> u32 {
        let process = mapping.process(0).expect("there");
        process.adopted.load(Ordering::Relaxed)
    }

    fn with_process() -> Mapping {
        let mapping = small();
        add_process(&mapping, &NewProcess::default()).expect("room");
        mapping
    }

    #[test]
    fn a_thread_takes_over_what_was_made_for_it() {
        let mapping = with_process();
        let other = NewThread {
            tid: Tid(78),
            ..THREAD
        };
        let others = offer(&mapping, &other, 0).expect("room");
        let own = offer(&mapping, &THREAD, 9).expect("room");
        keep(&mapping, own);
        assert_eq!(state_of(&mapping, own), entry_state::ADOPTED);
        let late = NewThread {
            cycles: Cycles(1000),
            stack: (16, 32),
            creator_utid: Utid(3),
            creator_node: 4,
            ..THREAD
        };
        let (i, entry) = add_thread(&mapping, &late).expect("its own");
        assert_eq!(i, own);
        assert_eq!(state_of(&mapping, own), entry_state::LIVE);
        // It was there before, and knows its stack.
        assert_eq!(entry.start_cycles.load(Ordering::Relaxed), Cycles(5));
        assert_eq!(entry.cpu_before_ns.load(Ordering::Relaxed), 9);
        assert_eq!(entry.stack_high.load(Ordering::Relaxed), 32);
        let creator = (&entry.creator_utid, &entry.creator_node);
        let creator = (
            creator.0.load(Ordering::Relaxed),
            creator.1.load(Ordering::Relaxed),
        );
        assert_eq!(creator, (3, 4));
        // It ran when it took it.
        assert_eq!(
            entry.last_capture_cycles.load(Ordering::Relaxed),
            Cycles(1000)
        );
        assert!(entry.cpu_ns.load(Ordering::Relaxed) > 9);
        assert_eq!(adopted(&mapping), 1);
        // An offer can be taken before it is kept.
        let (i, _) = add_thread(&mapping, &other).expect("its own");
        assert_eq!((i, adopted(&mapping)), (others, 0));
        keep(&mapping, others);
        assert_eq!(state_of(&mapping, others), entry_state::LIVE);
        // What they had claimed before they saw it is free again.
        let third = NewThread {
            tid: Tid(79),
            ..THREAD
        };
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
        assert_eq!(adopted(&mapping), 0);
    }

    #[test]
    fn offers_leave_entries_for_threads_that_run() {
        let mapping = with_process();
        let of = |tid| NewThread {
            tid: Tid(tid),
            ..THREAD
        };
        assert_eq!(room(&mapping), 60);
        for tid in 0..50 {
            assert!(add_thread(&mapping, &of(tid)).is_some());
        }
        assert_eq!(room(&mapping), 10);
        for tid in 50..60 {
            let i = offer(&mapping, &of(tid), 0).expect("room");
            keep(&mapping, i);
        }
        assert_eq!(room(&mapping), 0);
        for tid in 60..64 {
            assert!(add_thread(&mapping, &of(tid)).is_some());
        }
        assert_eq!(room(&mapping), 0);
        // What threads that end leave behind.
        for i in 0..6 {
            end_thread(mapping.thread(i).expect("there"), Cycles(9));
            free_thread(&mapping, i);
        }
        assert_eq!(room(&mapping), 2);
    }

    #[test]
    fn a_thread_that_never_came_ends() {
        let mapping = with_process();
        let i = offer(&mapping, &THREAD, 0).expect("room");
        keep(&mapping, i);
        end(&mapping, i, Cycles(8));
        assert_eq!(state_of(&mapping, i), entry_state::ENDED);
        assert_eq!(adopted(&mapping), 0);
        free_thread(&mapping, i);
        // The next thread with this number is another one.
        let (_, entry) = add_thread(&mapping, &THREAD).expect("room");
        assert_eq!(entry.utid.load(Ordering::Relaxed), 2);
    }
}
