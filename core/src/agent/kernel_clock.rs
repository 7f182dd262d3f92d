//! Events, which the collector starts and stops for each thread, and what they have in common with timers,
//! which each thread starts and stops by itself ([`super::cpu_timer`]). Threads that begin with an event or
//! on ticks come to timers here.
//!
//! No gate keeps its signals away: they come between any two instructions. So a thread wants it from when
//! such a signal may arrive there, and has it stopped before one must not. The thread stores what it wants
//! and then looks for the collector's descriptor; the collector stores that and then looks at what the thread
//! wants. One of them sees the other.

use super::registered;
use super::session;
use super::tls::{self, Block};
use crate::platform;
use crate::shm::layout::{
    CLOCK_ENDED, Control, NO_TIMER, ThreadEntry, Tick, entry_state, sampled_by,
};
use crate::shm::mapping::Mapping;
use crate::shm::registry;
use crate::shm::throttle;
use crate::sync::Ordering;

/// How long to wait for the collector, ns, and how often in all. One that is gone has taken the clock with
/// it.
const WAIT_NS: u64 = 10_000_000;
const WAITS: u32 = 100;

/// The calling thread, whose entry this is, is ready for its signals, or begins on ticks, for which the
/// collector has to wake up.
pub(super) fn want(control: &Control, entry: &ThreadEntry) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if entry.has_timer() {
        return super::cpu_timer::start(control, entry);
    }
    if entry.has_kernel_clock() {
        entry.wants_clock.store(1, Ordering::SeqCst);
    }
    call_if_asleep(control);
}

/// There is something for the collector to do, which may sleep for long where nobody needs ticks.
pub(super) fn call_if_asleep(control: &Control) {
    if control.has_kernel_clock() {
        call(control);
    }
}

/// The calling thread's event, which counts this, has gone off for the first time, and waits for the
/// collector to give it its period.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[cold]
pub(super) fn strikes_first(entry: &ThreadEntry, counts: u32) {
    entry.fault_descriptor.fetch_or(counts, Ordering::SeqCst);
    if let Some(mapping) = session::mapping() {
        call(mapping.control());
    }
}

fn call(control: &Control) {
    control.clock_calls.call();
    // Where other threads are on ticks, the collector may sleep until one of them does something.
    if control.parked.swap(0, Ordering::SeqCst) != 0 {
        platform::wake(&control.parked, 1);
    }
}

/// Stops the calling thread's clock. None of its signals is on its way afterwards.
pub fn stop_kernel_clock() {
    let mapping = session::mapping().filter(|m| m.control().has_kernel_clock());
    if let (Some(mapping), Some((entry, _))) = (mapping, registered(tls::block())) {
        stop(mapping.control(), || core::iter::once(entry), WAITS);
    }
}

/// The calling thread is about to make a call that does a timer's work in the middle of its wait
/// (`io_uring_enter`), and would end early: from here on it has no timer, and is on ticks, which respect
/// waits.
#[inline]
pub fn leave_timer() {
    if session::has_timers() {
        stay_on_ticks();
    }
}

#[cold]
#[inline(never)]
fn stay_on_ticks() {
    let registered = registered(tls::block()).map(|(entry, _)| entry);
    let Some(entry) = registered.or_else(super::registered_now) else {
        return;
    };
    // First: whatever comes in between starts no timer any more.
    let before = entry.timer.fetch_or(NO_TIMER, Ordering::SeqCst);
    if before & NO_TIMER == 0
        && entry.has_timer()
        && let Some(mapping) = session::mapping()
    {
        registry::put_on_ticks(entry);
        follow(mapping.control(), tls::block(), entry);
    }
}

/// The calling thread, if it is on ticks or has an event, gets a timer where its process has computed for
/// long enough. The collector ends the event when it sees that. `is_open`: it does not block the session's
/// first signal, by which timers go off.
pub(super) fn begin_timer(mapping: &Mapping, entry: &ThreadEntry, is_open: bool) {
    let control = mapping.control();
    let may_leave = || {
        let own = mapping.process(session::index());
        own.is_some_and(|own| {
            own.sampled_by.load(Ordering::Relaxed) == sampled_by::SESSION_CLOCK
                && own.signal.load(Ordering::Relaxed) == libc::SIGURG as u32
                && own.handles_signal.load(Ordering::Relaxed) == 0
        })
    };
    if entry.has_timer()
        || !control.has_timers()
        || entry.timer.load(Ordering::Relaxed) & NO_TIMER != 0
        || !is_open
        || !may_leave()
        || entry.is_out_of_reach(Ordering::Relaxed)
    {
        return;
    }
    registry::put_on_timer(entry);
    want(control, entry);
    if !entry.has_timer() {
        // What was refused once is not tried again with each sample.
        entry.timer.fetch_or(NO_TIMER, Ordering::SeqCst);
    }
}

/// Has the calling thread watch the tick word that its entry names. Gives that.
pub(super) fn follow(
    control: &'static Control,
    block: &Block,
    entry: &ThreadEntry,
) -> &'static Tick {
    let tick = throttle::tick_of(control, entry.tick_index.load(Ordering::Relaxed));
    let word = core::ptr::from_ref(tick).cast_mut();
    if !core::ptr::eq(block.tick.load(Ordering::Relaxed), word) {
        block.tick.store(word, Ordering::Relaxed);
        if !entry.has_kernel_clock() {
            leave(control, entry);
        }
    }
    tick
}

/// The calling thread, whose entry this is, is on ticks from here on, or ends. Events are the collector's to
/// end.
pub(super) fn leave(control: &Control, entry: &ThreadEntry) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if control.has_timers() && super::session::owns_memory() {
        super::cpu_timer::stop(entry);
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = (control, entry);
}

/// Stops the clocks of these threads of the process.
#[cold]
#[inline(never)]
pub(super) fn stop_where(is_one: impl Fn(&ThreadEntry) -> bool) {
    if let Some(mapping) = session::mapping().filter(|m| m.control().has_kernel_clock()) {
        stop_of(mapping, is_one, WAITS);
    }
}

/// Stops all of this session, whose collector is gone or not.
pub(super) fn stop_all_of(mapping: &Mapping, collector_is_gone: bool) {
    let waits = if collector_is_gone { 0 } else { WAITS };
    stop_of(mapping, |_| true, waits);
}

fn stop_of(mapping: &Mapping, is_one: impl Fn(&ThreadEntry) -> bool, waits: u32) {
    let is_one = &is_one;
    let entries = || {
        let entries = registry::threads(mapping).map(|(_, entry)| entry);
        entries.filter(move |entry| {
            entry.state.load(Ordering::Relaxed) == entry_state::LIVE
                && entry.process.load(Ordering::Relaxed) == session::index()
                && is_one(entry)
        })
    };
    stop(mapping.control(), entries, waits);
}

fn stop<'a, I: Iterator<Item = &'a ThreadEntry>>(
    control: &Control,
    entries: impl Fn() -> I,
    mut waits: u32,
) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if control.has_timers() {
        entries().for_each(super::cpu_timer::stop);
    }
    let runs = |entry: &&ThreadEntry| {
        let descriptor = entry.clock_descriptor.load(Ordering::SeqCst);
        descriptor != 0 && descriptor & CLOCK_ENDED == 0
    };
    entries().for_each(|entry| entry.wants_clock.store(0, Ordering::SeqCst));
    if !entries().any(|entry| runs(&entry)) {
        // The collector will see that it is not wanted before it begins.
        return;
    }
    call(control);
    for entry in entries() {
        while waits > 0 && runs(&entry) {
            waits -= 1;
            let descriptor = entry.clock_descriptor.load(Ordering::SeqCst);
            platform::wait(&entry.clock_descriptor, descriptor, Some(WAIT_NS));
        }
        if runs(&entry) {
            // Nobody answers, and with the collector its clock has gone.
            let descriptor = &entry.clock_descriptor;
            descriptor.fetch_or(CLOCK_ENDED, Ordering::SeqCst);
        }
    }
}
