//! Captures that hooks and signals ask for. A thread may have come to be another one since its last: in a
//! forked child, or with a new session. So it takes part anew first.

use super::capture::{self, More, Request};
use super::event_sampling::{self, OF_ALLOCATION};
use super::tls::{self, Block};
use super::wakers::Long;
use super::{Wait, fork, own_stack, registered, registration, session, unpatch_request};
use crate::cycles::Cycles;
use crate::probe::Probe;
use crate::shm::layout::{CLASSES, Control, TICK_RUNNING, ThreadEntry, Tick, drops};
use crate::shm::record_format::Woke;
use crate::shm::throttle;
use crate::sync::{Ordering, fence};
use crate::system_call::SystemCall;
use crate::unwind::Registers;
use core::sync::atomic::compiler_fence;

/// A throttled capture at a call that does not block.
#[cold]
#[inline(never)]
pub(super) fn point(probe: Probe, arg: u64) {
    if !is_left_to_a_signal() {
        away(|| Request {
            arg: Some((arg, 0)),
            ..Request::point(probe)
        });
    }
}

/// How long a wait was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Not as long as the interval that was asked for.
    Short,
    /// That long, but not as long as what the budget has put in force for waits.
    LeftOut,
    /// As long as that: then it is a record of its own, whoever took the tick. Such waits bound themselves to
    /// one an interval.
    Overdue,
    /// Shorter than the interval, but a moment of the thread's own lies in it ([`throttle::next_moment`]),
    /// which stands for a tick where there are none.
    Met,
}

/// The length of a wait that began at `begin` and is over. Most are known to be short by what the thread has
/// found out when the one before ended: threads that wait often come back to cold caches, and what is in
/// force lies in several lines.
#[inline(always)]
pub(super) fn length(entry: &ThreadEntry, begin: Cycles) -> Length {
    let (block, now) = (tls::block(), session::now());
    match now < block.short_until.load(Ordering::Relaxed) {
        true => Length::Short,
        false => length_in_force(block, entry, begin, now),
    }
}

#[inline(never)]
fn length_in_force(block: &Block, entry: &ThreadEntry, begin: Cycles, now: Cycles) -> Length {
    /// So long what was found out holds: settings change.
    const KNOWN_NS: u32 = 1_000_000;
    let Some(mapping) = session::mapping() else {
        return Length::Short;
    };
    let control = mapping.control();
    let class = (entry.class.load(Ordering::Relaxed) as usize).min(CLASSES - 1);
    let lasted = now.saturating_sub(begin);
    // First: whoever changes both stores it last, and a short length with a long one's ns does no harm.
    let asked_ns = control.interval_ns[class].load(Ordering::Acquire);
    let asked = control.interval_cycles[class].load(Ordering::Relaxed);
    if control.switch.load(Ordering::Relaxed) != 1 {
        return Length::Short;
    }
    let moment_from = |from| match entry.has_kernel_clock() {
        true => throttle::next_moment(entry.utid(), control.sampling_interval_cycles(entry), from),
        false => None,
    };
    let known = match asked_ns {
        0..=KNOWN_NS => asked,
        _ => asked.saturating_mul(KNOWN_NS.into()) / u64::from(asked_ns),
    };
    let until = now.saturating_add(known);
    let until = moment_from(now).map_or(until, |moment| moment.min(until));
    block.short_until.store(until, Ordering::Relaxed);
    if lasted < asked {
        return match moment_from(begin).is_some_and(|moment| moment < now) {
            true => Length::Met,
            false => Length::Short,
        };
    }
    match lasted >= control.wait_in_force_cycles(class) {
        true => Length::Overdue,
        false => Length::LeftOut,
    }
}

/// A wait is over of which no record is made.
#[cold]
#[inline(never)]
pub(super) fn leave_out(entry: &ThreadEntry) {
    session::count(entry, drops::WAIT_LEFT_OUT);
}

/// The capture at the end of a call that may have blocked: throttled, unless it is overdue.
#[cold]
#[inline(never)]
pub(super) fn wait(wait: &Wait, entry: &ThreadEntry, result: i64, length: Length) {
    let overdue = length == Length::Overdue;
    let is_met = length == Length::Met;
    let mut node = 0;
    if overdue || is_met || !is_left_to_a_signal() {
        node = away(|| Request {
            arg: Some((wait.arg, result)),
            begin: wait.begin,
            overdue,
            is_met,
            ..Request::point(wait.probe)
        });
    }
    if node == 0 && length == Length::LeftOut {
        leave_out(entry);
    }
}

/// The capture of a wait that was so long that it says who ended it.
#[cold]
#[inline(never)]
pub(super) fn long_wait(wait: &Wait, result: i64, long: &Long, overdue: bool) {
    away(|| Request {
        arg: Some((wait.arg, result)),
        begin: wait.begin,
        forced: true,
        overdue,
        more: Some(More::Waited(long.waited(wait, result))),
        ..Request::point(wait.probe)
    });
}

/// The capture of a thread that has ended a long wait of another.
#[cold]
#[inline(never)]
pub(super) fn wake(probe: Probe, arg: u64, woke: &Woke) {
    away(|| Request {
        arg: Some((arg, 0)),
        forced: true,
        more: Some(More::Woke(*woke)),
        ..Request::point(probe)
    });
}

/// A capture whatever the throttle says, within the thread's budget of them.
#[cold]
#[inline(never)]
pub(super) fn forced(probe: Probe, arg: u64) {
    away(|| Request {
        arg: Some((arg, 0)),
        forced: true,
        ..Request::point(probe)
    });
}

/// The capture to which interruptions by the sampling clock were left, if any were.
#[cold]
#[inline(never)]
pub(super) fn better_moment(probe: Probe, arg: u64) {
    away(|| Request {
        arg: Some((arg, 0)),
        is_met: true,
        ..Request::point(probe)
    });
}

/// The capture that the number of what the thread did asks for.
#[cold]
#[inline(never)]
pub(super) fn sampled_event(probe: Probe, arg: Option<u64>) {
    away(|| Request {
        arg: arg.map(|arg| (arg, 0)),
        ..Request::point(probe)
    });
}

/// Captures if it is due. Gives the sample's node; 0 when there is none.
#[inline(never)]
pub(super) fn slow(request: &Request) -> u32 {
    away(|| *request)
}

/// The same for a request that is made on the thread's own stack, because the program's may have little left.
#[inline(always)]
fn away<'a>(request: impl Fn() -> Request<'a>) -> u32 {
    let mut node = 0;
    if !own_stack::run(|registers| node = take_part_and_make(&request(), registers))
        && let Some((entry, _)) = registered(tls::block())
    {
        session::count(entry, drops::REENTRANT);
    }
    node
}

/// Whether a throttled capture in the calling thread is left to a signal.
fn is_left_to_a_signal() -> bool {
    let block = tls::block();
    registered(block).is_some_and(|(entry, tick)| is_about_to_be_interrupted(block, entry, tick))
}

fn take_part_and_make(request: &Request, registers: &Registers) -> u32 {
    if !session::is_active() {
        session::leave(tls::block());
        return 0;
    }
    fork::check_for_fork();
    let block = tls::block();
    if registered(block).is_some_and(|(entry, _)| session::is_stale(entry)) {
        registration::rejoin(block);
    }
    if request.interrupted.is_none()
        && registered(block).is_some()
        && let Some(mapping) = session::mapping()
    {
        unpatch_request::follow(mapping);
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if request.interrupted.is_none() {
        super::left_handlers::look(registers);
    }
    capture::make(request, registers)
}

/// A signal is on its way for this tick: it captures where the thread is when it arrives, which says more
/// than where its next hook is. One that does not come soon is not waited for. Without the guard, which
/// the signal would find held.
fn is_about_to_be_interrupted(block: &Block, entry: &ThreadEntry, tick: &Tick) -> bool {
    if tick.count.load(Ordering::Relaxed) >= TICK_RUNNING {
        // Nobody announces anything while the ticker is parked: it has to be woken.
        return false;
    }
    // Pairs with the release store of the tick: the sampler announced the signal before it.
    fence(Ordering::Acquire);
    let Some(mapping) = session::mapping().filter(|_| entry.in_flight.load(Ordering::Relaxed) != 0)
    else {
        return false;
    };
    let now = session::now();
    let since = match block.held_since.load(Ordering::Relaxed) {
        Cycles(0) => now,
        since => since,
    };
    block.held_since.store(since, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    if entry.in_flight.load(Ordering::Relaxed) == 0 {
        // It came in between.
        block.held_since.store(Cycles(0), Ordering::Relaxed);
        return false;
    }
    now.saturating_sub(since) < signal_timeout(mapping.control(), entry)
}

/// How long a signal that was announced is waited for: a quarter of the thread's interval.
fn signal_timeout(control: &Control, entry: &ThreadEntry) -> Cycles {
    let class = (entry.class.load(Ordering::Relaxed) as usize).min(CLASSES - 1);
    control.interval_cycles[class].load(Ordering::Relaxed) / 4
}

/// The thread's counters have reached what was drawn.
#[cold]
#[inline(never)]
pub(super) fn allocations() {
    let block = tls::block();
    for kind in OF_ALLOCATION {
        let Some((entry, _)) = registered(block) else {
            return;
        };
        if kind.counter(entry) >= kind.next(block, entry).load(Ordering::Relaxed) {
            sampled_event(kind.probe(), None);
        }
    }
}

/// Counts a system call, or bytes that one has moved, and captures it if it is one to be captured.
#[inline(always)]
pub(super) fn add(entry: &ThreadEntry, call: SystemCall, more: u64) {
    if !event_sampling::add_some_quietly(entry, call, more) {
        let calls = &entry.system_calls[call as usize];
        let count = calls.count.load(Ordering::Relaxed).wrapping_add(more);
        calls.count.store(count, Ordering::Relaxed);
        capture_call(call);
    }
}

/// The calling thread's calls of a kind, or their bytes, have reached what was drawn.
#[cold]
#[inline(never)]
fn capture_call(call: SystemCall) {
    sampled_event(Probe::SampledCall, Some(call as u64));
}
