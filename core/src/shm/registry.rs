//! The registry: which processes and threads take part, each with an entry in the mapping.
//!
//! FREE → CLAIMED (by compare-and-swap) → LIVE → ENDED → FREE. A process or thread fills in its own entry;
//! the collector frees it when everything of it is in the trace. For threads that pass no hook the collector
//! makes one: CLAIMED → OFFERED → ADOPTED, and → LIVE once the thread takes it over ([`adopted`]).

pub mod adopted;

use crate::cycles::Cycles;
use crate::ids::{Pid, Tid, Upid, Utid};
use crate::platform;
use crate::shm::adoption;
use crate::shm::layout::{
    CLASSES, Control, PHASES, ProcessEntry, STILL, TIMED, ThreadClass, ThreadEntry,
    entry_state as state, sampled_by,
};
use crate::shm::mapping::Mapping;
use crate::shm::wait_table;
use crate::sync::{AtomicU32, Ordering};

/// Who a process is.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewProcess {
    /// The kernel's number of the process.
    pub pid: Pid,
    /// The kernel's number of its parent.
    pub parent_pid: Pid,
    /// The parent's upid; 0: not recorded.
    pub parent_upid: Upid,
    /// `proto::v1::process::Origin`.
    pub origin: u32,
    /// When it began, in cycles.
    pub cycles: Cycles,
}

/// Who a thread is.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewThread {
    /// The kernel's number of the thread.
    pub tid: Tid,
    /// Index of its process' entry.
    pub process: u32,
    /// The first thread of its process.
    pub is_main: bool,
    /// Thread that created it; 0: not known.
    pub creator_utid: Utid,
    /// Node of the stack that created it; 0: not known.
    pub creator_node: u32,
    /// Lowest address of its stack and first address above; 0: not known.
    pub stack: (u64, u64),
    /// When it was registered.
    pub cycles: Cycles,
}

fn claim(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) == state::FREE
        && word
            .compare_exchange(
                state::FREE,
                state::CLAIMED,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
}

/// Agent: takes an entry for this process; gives its index and the process' number. `None` (counted) when
/// there is none.
pub fn add_process(mapping: &Mapping, new: &NewProcess) -> Option<(u32, Upid)> {
    let control = mapping.control();
    let count = mapping.layout().capacity.processes;
    let found = (0..count).find_map(|i| {
        mapping
            .process(i)
            .filter(|e| claim(&e.state))
            .map(|e| (i, e))
    });
    let Some((i, entry)) = found else {
        control.processes_refused.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    let upid = Upid(control.next_upid.fetch_add(1, Ordering::Relaxed));
    clear_process(entry);
    let sampled_by = control.at_first.load(Ordering::Relaxed);
    entry.sampled_by.store(sampled_by, Ordering::Relaxed);
    entry.upid.store(upid.0, Ordering::Relaxed);
    entry.pid.store(new.pid.0, Ordering::Relaxed);
    entry.parent_pid.store(new.parent_pid.0, Ordering::Relaxed);
    entry
        .parent_upid
        .store(new.parent_upid.0, Ordering::Relaxed);
    entry.origin.store(new.origin, Ordering::Relaxed);
    entry.start_cycles.store(new.cycles, Ordering::Relaxed);
    entry.state.store(state::LIVE, Ordering::Release);
    control.processes_used.fetch_max(i + 1, Ordering::Release);
    announce(mapping);
    Some((i, upid))
}

/// Agent: an entry can be seen that could not be seen before.
pub fn announce(mapping: &Mapping) {
    mapping.control().announced.fetch_add(1, Ordering::Release);
}

fn clear_process(entry: &ProcessEntry) {
    entry.epoch.store(0, Ordering::Relaxed);
    entry.signal.store(0, Ordering::Relaxed);
    entry.second_signal.store(0, Ordering::Relaxed);
    entry.unregistered.store(0, Ordering::Relaxed);
    entry.adopted.store(0, Ordering::Relaxed);
    entry.end_cycles.store(Cycles(0), Ordering::Relaxed);
    entry.signalled_cycles.store(Cycles(0), Ordering::Relaxed);
    entry.unseen_from_ns.store(0, Ordering::Relaxed);
    entry.generated_code.store(0, Ordering::Relaxed);
    for word in [
        &entry.filters,
        &entry.sandboxed,
        &entry.fatal_signal,
        &entry.fatal_utid,
        &entry.fatal_tid,
        &entry.fatal_node,
        &entry.handles_signal,
        &entry.sampled_by,
        &entry.has_unseen_calls,
    ] {
        word.store(0, Ordering::Relaxed);
    }
    entry.fatal_cycles.store(Cycles(0), Ordering::Relaxed);
    for word in &entry.fatal_name {
        word.store(0, Ordering::Relaxed);
    }
}

/// Agent: takes an entry for this thread, the one that the collector has made for it if there is one. `None`
/// (counted) when there is none.
pub fn add_thread<'a>(mapping: &'a Mapping, new: &NewThread) -> Option<(u32, &'a ThreadEntry)> {
    let control = mapping.control();
    mapping.follow_growth();
    let claimed = claim_thread(mapping, new);
    if let Some((i, entry)) = adopted::take_over(mapping, new) {
        if let Some((claimed, entry)) = claimed {
            entry.state.store(state::FREE, Ordering::Release);
            make_room(mapping, claimed);
        }
        entry.stack_low.store(new.stack.0, Ordering::Relaxed);
        entry.stack_high.store(new.stack.1, Ordering::Relaxed);
        if new.creator_utid != Utid(0) {
            let creator = (&entry.creator_utid, &entry.creator_node);
            creator.0.store(new.creator_utid.0, Ordering::Relaxed);
            creator.1.store(new.creator_node, Ordering::Relaxed);
        }
        // It runs at this moment: a wait that is found later cannot have begun before.
        entry
            .last_capture_cycles
            .store(new.cycles, Ordering::Relaxed);
        entry
            .cpu_ns
            .store(platform::thread_cpu_ns(), Ordering::Relaxed);
        show_activity(mapping, i, entry);
        announce(mapping);
        return Some((i, entry));
    }
    let Some((i, entry)) = claimed else {
        control.threads_refused.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    fill_in(mapping, i, entry, new);
    entry.state.store(state::LIVE, Ordering::Release);
    // First what a collector looks for that sees the announcement.
    show_activity(mapping, i, entry);
    announce(mapping);
    Some((i, entry))
}

/// Claims an entry and says in it who does.
fn claim_thread<'a>(mapping: &'a Mapping, new: &NewThread) -> Option<(u32, &'a ThreadEntry)> {
    let control = mapping.control();
    let limit = mapping.reachable_threads();
    let begin = control.threads_hint.load(Ordering::Relaxed);
    let hint = begin.min(limit);
    let found = (hint..limit).chain(0..hint).find_map(|i| {
        mapping
            .thread(i)
            .filter(|e| claim(&e.state))
            .map(|e| (i, e))
    });
    let Some((i, entry)) = found else {
        // Full, unless one has become free meanwhile: see `may_have_room`.
        let hint = &control.threads_hint;
        let _ = hint.compare_exchange(begin, limit, Ordering::Relaxed, Ordering::Relaxed);
        return None;
    };
    entry.tid.store(new.tid.0, Ordering::Relaxed);
    entry.process.store(new.process, Ordering::Relaxed);
    control.threads_hint.store(i + 1, Ordering::Relaxed);
    control.threads_used.fetch_max(i + 1, Ordering::Release);
    Some((i, entry))
}

/// Whether a thread that found no entry may find one now: some have become free since, or there are more.
pub fn may_have_room(mapping: &Mapping) -> bool {
    mapping.control().threads_hint.load(Ordering::Relaxed) < mapping.attainable_threads()
}

/// Fills a claimed entry in; its tid and process stand there.
fn fill_in(mapping: &Mapping, i: u32, entry: &ThreadEntry, new: &NewThread) {
    let control = mapping.control();
    let utid = control.next_utid.fetch_add(1, Ordering::Relaxed);
    // A thread that was killed while it waited has left its place taken.
    wait_table::leave(mapping, i, entry);
    clear_thread(entry);
    entry.utid.store(utid, Ordering::Relaxed);
    entry
        .creator_utid
        .store(new.creator_utid.0, Ordering::Relaxed);
    entry
        .creator_node
        .store(new.creator_node, Ordering::Relaxed);
    entry.start_cycles.store(new.cycles, Ordering::Relaxed);
    entry.stack_low.store(new.stack.0, Ordering::Relaxed);
    entry.stack_high.store(new.stack.1, Ordering::Relaxed);
    let class = if new.is_main {
        ThreadClass::Main
    } else {
        ThreadClass::Other
    };
    entry.class.store(class as u32, Ordering::Relaxed);
    let by = mapping
        .process(new.process)
        .map(|process| process.sampled_by.load(Ordering::Relaxed));
    let index = match by {
        Some(sampled_by::SESSION_CLOCK) if control.has_timers() => TIMED,
        Some(sampled_by::SESSION_CLOCK) if control.has_kernel_clock() => STILL,
        Some(sampled_by::EVENTS_AT_FIRST) => STILL,
        _ => tick_index(class as u32, Utid(utid)),
    };
    entry.tick_index.store(index, Ordering::Relaxed);
}

/// Collector: the thread is sampled at ticks from the moment at which it looks at its tick index
/// ([`crate::shm::throttle::Ticker::move_still`]).
pub fn put_on_ticks(entry: &ThreadEntry) {
    let class = entry.class.load(Ordering::Relaxed).min(CLASSES as u32 - 1);
    let index = tick_index(class, entry.utid());
    entry.tick_index.store(index, Ordering::Relaxed);
}

/// Collector: the thread is sampled by an event, which the collector opens next.
pub fn put_on_event(entry: &ThreadEntry) {
    entry.tick_index.store(STILL, Ordering::Relaxed);
}

/// Agent: the calling thread is sampled by a timer of its own, which it starts next.
pub fn put_on_timer(entry: &ThreadEntry) {
    entry.tick_index.store(TIMED, Ordering::Relaxed);
}

/// This entry is free: searches begin with it.
fn make_room(mapping: &Mapping, i: u32) {
    let hint = &mapping.control().threads_hint;
    hint.fetch_min(i, Ordering::Relaxed);
}

/// Agent: the thread of this entry has begun, captured, entered or left a wait, or ended. The collector looks
/// only at entries whose bit is set, so its cost does not grow with the number of waiting threads. A bit may
/// be lost between a store of the owner's and its look at `has_shown` (there is no fence). So the collector
/// looks twice at each entry, and at all entries now and then.
#[cold]
#[inline(never)]
pub fn show_activity(mapping: &Mapping, i: u32, entry: &ThreadEntry) {
    entry.has_shown.store(1, Ordering::Relaxed);
    if let Some(word) = mapping.activity().get((i / u64::BITS) as usize) {
        word.fetch_or(1 << (i % u64::BITS), Ordering::Release);
    }
}

/// Collector: clears the activity bits of up to 64 entries and gives them, as bits from entry `word` × 64 on.
pub fn take_activity(mapping: &Mapping, word: usize) -> u64 {
    let Some(activity) = mapping.activity().get(word) else {
        return 0;
    };
    if activity.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    let taken = activity.swap(0, Ordering::AcqRel);
    for bit in (0..u64::BITS).filter(|bit| taken >> bit & 1 != 0) {
        if let Some(entry) = mapping.thread(word as u32 * u64::BITS + bit) {
            entry.has_shown.store(0, Ordering::Relaxed);
        }
    }
    taken
}

/// The tick word of a thread: its class', and of those in turn by its utid.
fn tick_index(class: u32, utid: Utid) -> u32 {
    class * PHASES as u32 + utid.0 % PHASES as u32
}

fn clear_thread(e: &ThreadEntry) {
    e.mask_calls.store(0, Ordering::Relaxed);
    for word in [
        &e.allocations,
        &e.allocated_bytes,
        &e.frees,
        &e.records,
        &e.cpu_ns,
        &e.blocking_section_arg,
        &e.wait_object,
        &e.woken_by,
        &e.woken_for,
        &e.closed_for,
        &e.closed_by,
        &e.sent_run_ns,
        &e.signalled_by,
        &e.cpu_before_ns,
    ] {
        word.store(0, Ordering::Relaxed);
    }
    for word in [
        &e.last_capture_cycles,
        &e.end_cycles,
        &e.blocking_section_begin,
        &e.loop_iteration,
        &e.slow_iteration,
        &e.sent_cycles,
        &e.spent_cycles,
        &e.signalled_cycles,
        &e.waits_cycles,
    ] {
        word.store(Cycles(0), Ordering::Relaxed);
    }
    for word in [
        &e.clock_descriptor,
        &e.fault_descriptor,
        &e.timer,
        &e.wants_clock,
        &e.clock_strikes,
        &e.clock_period_ns,
        &e.last_tick,
        &e.buffer,
        &e.capturing,
        &e.samples,
        &e.blocking_section,
        &e.blocking_section_probe,
        &e.closed,
        &e.in_flight,
        &e.asymmetric_barrier,
        &e.wait_scope,
        &e.wait_place,
        &e.wait_number,
        &e.wait_owner,
        &e.wakes,
        &e.loop_iterations,
        &e.call_row,
        &e.every,
        &e.has_shown,
        &e.alternate,
    ] {
        word.store(0, Ordering::Relaxed);
    }
    for word in e.drops.iter().chain(&e.registers) {
        word.store(0, Ordering::Relaxed);
    }
    for calls in &e.system_calls {
        calls.count.store(0, Ordering::Relaxed);
        calls.next.store(0, Ordering::Relaxed);
    }
}

/// Agent or collector: this thread has ended.
pub fn end_thread(entry: &ThreadEntry, cycles: Cycles) {
    entry.end_cycles.store(cycles, Ordering::Relaxed);
    for from in [state::LIVE, state::ADOPTED] {
        adoption::change(entry, from, state::ENDED);
    }
}

/// Agent or collector: this process has ended, or (`execed`) its image has been replaced.
pub fn end_process(entry: &ProcessEntry, cycles: Cycles, execed: bool) {
    entry.end_cycles.store(cycles, Ordering::Relaxed);
    let end = if execed { state::EXECED } else { state::ENDED };
    let _ = entry
        .state
        .compare_exchange(state::LIVE, end, Ordering::Release, Ordering::Relaxed);
}

/// Collector: an ended thread is in the trace as a whole; its entry may be used again.
pub fn free_thread(mapping: &Mapping, i: u32) {
    if let Some(entry) = mapping.thread(i)
        && adoption::change(entry, state::ENDED, state::FREE)
    {
        make_room(mapping, i);
    }
}

/// Collector: an ended process is in the trace as a whole; its entry may be used again.
pub fn free_process(entry: &ProcessEntry) {
    for ended in [state::ENDED, state::EXECED] {
        let _ =
            entry
                .state
                .compare_exchange(ended, state::FREE, Ordering::Release, Ordering::Relaxed);
    }
}

/// Collector: thread entries that were ever used, with their indices, whatever their state.
pub fn threads(mapping: &Mapping) -> impl Iterator<Item = (u32, &ThreadEntry)> {
    let control: &Control = mapping.control();
    let used = control
        .threads_used
        .load(Ordering::Acquire)
        .min(control.threads_limit.load(Ordering::Relaxed));
    (0..used).map_while(|i| mapping.thread(i).map(|e| (i, e)))
}

/// Collector: process entries that were ever used, with their indices, whatever their state.
pub fn processes(mapping: &Mapping) -> impl Iterator<Item = (u32, &ProcessEntry)> {
    let used = mapping.control().processes_used.load(Ordering::Acquire);
    (0..used).map_while(|i| mapping.process(i).map(|e| (i, e)))
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::shm::mapping::tests::small;

    #[test]
    fn entries_are_reused_and_utids_are_not() {
        let mapping = small();
        let (p, upid) = add_process(&mapping, &NewProcess::default()).expect("room");
        assert_eq!((p, upid), (0, Upid(1)));
        let mut last = 0;
        for round in 0..100 {
            let (i, entry) = add_thread(&mapping, &NewThread::default()).expect("room");
            assert_eq!(i, 0, "round {round}");
            let utid = entry.utid.load(Ordering::Relaxed);
            assert!(utid > last);
            last = utid;
            assert_eq!(entry.allocations.load(Ordering::Relaxed), 0);
            entry.allocations.store(5, Ordering::Relaxed);
            end_thread(entry, Cycles(9));
            free_thread(&mapping, i);
        }
        assert_eq!(threads(&mapping).count(), 1);
    }

    #[test]
    fn a_full_registry_says_when_it_has_room_again() {
        let mapping = small();
        assert!(may_have_room(&mapping));
        while add_thread(&mapping, &NewThread::default()).is_some() {}
        assert!(!may_have_room(&mapping));
        let entry = mapping.thread(9).expect("there");
        end_thread(entry, Cycles(9));
        assert!(!may_have_room(&mapping));
        free_thread(&mapping, 9);
        assert!(may_have_room(&mapping));
        let (i, _) = add_thread(&mapping, &NewThread::default()).expect("room");
        assert_eq!(i, 9);
        assert!(add_thread(&mapping, &NewThread::default()).is_none());
        assert!(!may_have_room(&mapping));
    }

    #[test]
    fn each_activity_bit_is_taken_once() {
        let mapping = small();
        for _ in 0..3 {
            add_thread(&mapping, &NewThread::default()).expect("room");
        }
        assert_eq!(take_activity(&mapping, 0), 0b111);
        assert_eq!(take_activity(&mapping, 0), 0);
        let (i, entry) = (1, mapping.thread(1).expect("there"));
        assert_eq!(entry.has_shown.load(Ordering::Relaxed), 0);
        show_activity(&mapping, i, entry);
        assert_eq!(entry.has_shown.load(Ordering::Relaxed), 1);
        assert_eq!(take_activity(&mapping, 0), 0b10);
        assert_eq!(take_activity(&mapping, usize::MAX), 0);
    }

    #[test]
    fn who_finds_no_entry_is_counted() {
        let mapping = small();
        for _ in 0..64 {
            assert!(add_thread(&mapping, &NewThread::default()).is_some());
        }
        assert!(add_thread(&mapping, &NewThread::default()).is_none());
        for _ in 0..4 {
            assert!(add_process(&mapping, &NewProcess::default()).is_some());
        }
        assert!(add_process(&mapping, &NewProcess::default()).is_none());
        let control = mapping.control();
        assert_eq!(control.threads_refused.load(Ordering::Relaxed), 1);
        assert_eq!(control.processes_refused.load(Ordering::Relaxed), 1);
        control.processes_used.store(u32::MAX, Ordering::Relaxed);
        control.threads_used.store(u32::MAX, Ordering::Relaxed);
        control.threads_limit.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(processes(&mapping).count(), 4);
        assert_eq!(threads(&mapping).count(), 64);
        assert!(add_thread(&mapping, &NewThread::default()).is_none());
    }
}
