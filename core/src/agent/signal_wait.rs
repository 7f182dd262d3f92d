//! How a thread waits for a signal of ours that is on its way.

use super::registered;
use super::session::{self, AGENT};
use super::tls;
use crate::platform;
use crate::shm::layout::drops;
use crate::shm::signal_gate;
use crate::sync::{AtomicU32, add_own};
use core::sync::atomic::Ordering;

/// How often a thread gives the processor away before it sleeps for a signal that is on its way.
const YIELDS: u32 = 64;
/// One such sleep; the signal ends it early.
const SLEEP_NS: u64 = 50_000;
/// A sleep while the sampler is sending the signal and has no processor.
const SENDING_NS: u64 = 10_000_000;
/// Attempts after which the signal will not come, because the program has taken it (signalfd). About
/// 10 ms.
const ATTEMPTS: u32 = YIELDS + 200;

/// Whether the program has put its own handler in our place past the hooks, as Go's runtime does. Then
/// its threads are not interrupted any more.
fn handler_was_replaced() -> bool {
    let is_replaced = |signal: &AtomicU32| {
        let signal = signal.load(Ordering::Relaxed);
        signal != 0 && platform::signal_handler(signal) != AGENT.handler.load(Ordering::Relaxed)
    };
    let replaced = is_replaced(&AGENT.signal) || is_replaced(&AGENT.second_signal);
    if replaced {
        AGENT.forget_signals();
        if let Some(mapping) = session::mapping() {
            session::publish_signal(mapping);
        }
    }
    replaced
}

/// How long to sleep while the sampler is sending: nobody tells when it has sent.
fn while_sending_ns(attempt: u32) -> u64 {
    const SOON: u32 = 20;
    match attempt < SOON {
        true => SLEEP_NS,
        false => SENDING_NS,
    }
}

/// Takes the signal of ours off that was sent to the calling thread and pends. Where one of the program's
/// pended before, the kernel has dropped ours. Nobody may be sending one: it would be in the way of the
/// program's, which is sent again.
fn absorb(blocked: u64) {
    platform::absorb_signal(blocked, session::collector_pid());
}

/// Waits a moment for a signal that is on its way; false when waiting is useless.
pub(super) fn await_signal(attempt: u32) -> bool {
    let Some((entry, _)) = registered(tls::block()) else {
        return false;
    };
    let missed = || add_own(&entry.drops[drops::SIGNAL_MISSED], 1);
    // Whether to go on waiting: while the sampler has no processor in the middle of sending.
    let lose = || {
        if signal_gate::give_up(entry) {
            missed();
            return false;
        }
        let (value, time_ns) = match signal_gate::is_being_sent(entry) {
            true => (entry.in_flight.load(Ordering::Relaxed), SENDING_NS),
            false => (0, SLEEP_NS),
        };
        // The signal ends it. Without it, it is at least a look into the kernel, where signals are delivered.
        platform::wait(&entry.in_flight, value, Some(time_ns));
        true
    };
    let blocked = AGENT.signals() & platform::blocked_signals();
    if blocked != 0 {
        // It would arrive inside a call that opens the mask (sigsuspend, ppoll) or fetches it (sigwait).
        if !signal_gate::take_back(entry) {
            if signal_gate::is_being_sent(entry) {
                let value = entry.in_flight.load(Ordering::Relaxed);
                platform::wait(&entry.in_flight, value, Some(while_sending_ns(attempt)));
                return true;
            }
            absorb(blocked);
            signal_gate::arrived(entry);
        }
        missed();
        return false;
    }
    if attempt < YIELDS {
        platform::yield_now();
    } else if attempt == YIELDS && handler_was_replaced() {
        return lose();
    } else if attempt < ATTEMPTS {
        let value = entry.in_flight.load(Ordering::Relaxed);
        platform::wait(&entry.in_flight, value, Some(SLEEP_NS));
    } else {
        return lose();
    }
    true
}

/// Waits a moment for a signal that was announced to this thread while it had no entry; false when waiting is
/// useless.
pub(super) fn await_meeting(unregistered: &AtomicU32, tid: u32, attempt: u32) -> bool {
    let value = unregistered.load(Ordering::Relaxed);
    let blocked = AGENT.signals() & platform::blocked_signals();
    if blocked != 0 {
        // As in `await_signal`: it would arrive in a later call.
        if !signal_gate::take_back_meeting(unregistered, tid) {
            if signal_gate::is_meeting_being_sent(unregistered, tid) {
                platform::wait(unregistered, value, Some(while_sending_ns(attempt)));
                return true;
            }
            absorb(blocked);
            signal_gate::met(unregistered, || tid);
        }
        return false;
    }
    if attempt < YIELDS {
        platform::yield_now();
    } else if attempt < ATTEMPTS {
        platform::wait(unregistered, value, Some(SLEEP_NS));
    } else if signal_gate::give_up_meeting(unregistered, tid) {
        return false;
    } else if signal_gate::is_meeting_being_sent(unregistered, tid) {
        platform::wait(unregistered, value, Some(SENDING_NS));
    } else {
        // At least a look into the kernel, where signals are delivered.
        platform::yield_now();
    }
    true
}
