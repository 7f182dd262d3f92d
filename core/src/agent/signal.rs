//! The session's signal: a thread is captured where it runs.

use super::capture::Request;
use super::context::registers_of;
use super::requests::slow;
use crate::agent::session;
use crate::agent::tls;
use crate::agent::{alternate, cpu_timer, kernel_clock, registered, thread};
use crate::platform;
use crate::probe::Probe;
use crate::shm::layout::{CLOCK_ENDED, drops, first_strike};
use crate::shm::signal_gate;
use crate::sync::{AtomicU32, Ordering};

/// Handles the session's signal.
///
/// # Safety
/// `info` and `context` are what the kernel passed to a handler with SA_SIGINFO.
pub(super) unsafe fn on_signal(
    info: *mut libc::siginfo_t,
    context: *mut core::ffi::c_void,
) -> bool {
    // SAFETY: by contract.
    if unsafe { cpu_timer::is(info) } {
        let is_known = session::is_active() && tls::has_thread_pointer();
        let entry = is_known.then(|| registered(tls::block())).flatten();
        match entry {
            // SAFETY: by contract; it is one of these.
            Some((entry, _)) if unsafe { cpu_timer::is_of(entry, info) } => {
                // SAFETY: by contract.
                unsafe { clock_strikes(Clock::Timer, context) }
            }
            // In a fork the entry is put aside.
            None if is_known => {}
            // SAFETY: by contract; it is one of these.
            _ => unsafe { cpu_timer::delete(info) },
        }
        return true;
    }
    if !session::is_active() {
        return false;
    }
    // SAFETY: by contract.
    if !unsafe { platform::is_signal_of(info, session::collector_pid()) } {
        // SAFETY: by contract.
        let event = unsafe { event_of(info) };
        if let Some(event) = event {
            // SAFETY: by contract.
            unsafe { clock_strikes(event, context) };
        }
        return event.is_some();
    }
    if !tls::has_thread_pointer() {
        // A thread without libc.
        return true;
    }
    if let Some(process) = session::mapping().and_then(|m| m.process(session::index())) {
        signal_gate::met(&process.unregistered, platform::thread_id);
    }
    let block = tls::block();
    if registered(block).is_none() && !thread::register() {
        // A thread whose entry is taken away (fork, vfork): it came too late, but it came.
        // SAFETY: null or the entry of this thread, in the mapping, which is never unmapped.
        if let Some(entry) = unsafe { block.saved_entry.load(Ordering::Relaxed).as_ref() } {
            signal_gate::arrived(entry);
        }
        return true;
    }
    let Some((entry, _)) = registered(block) else {
        return true;
    };
    // SAFETY: by contract.
    unsafe { alternate::put_back(context) };
    signal_gate::arrived(entry);
    if block.guard.load(Ordering::Relaxed) != 0 {
        session::count(entry, drops::SIGNAL_MISSED);
        return true;
    }
    // SAFETY: by contract.
    let registers = unsafe { registers_of(context) };
    slow(&Request {
        interrupted: Some(&registers),
        ..Request::point(Probe::Running)
    });
    if let Some(mapping) = session::mapping() {
        // SAFETY: by contract. It has come, so it was open.
        let is_first = unsafe { (*info).si_signo } == libc::SIGURG;
        kernel_clock::begin_timer(mapping, entry, is_first);
        kernel_clock::follow(mapping.control(), block, entry);
    }
    true
}

/// The calling thread's event, if that has sent the signal, by the collector's descriptor (fcntl(2),
/// F_SETSIG).
///
/// # Safety
/// `info` is what the kernel passed to a handler with SA_SIGINFO.
unsafe fn event_of(info: *const libc::siginfo_t) -> Option<Clock> {
    /// `si_code` of a descriptor that has something to say, and of one that falls silent then
    /// (asm-generic/siginfo.h).
    const POLL_IN: i32 = 1;
    const POLL_HUP: i32 = 6;
    /// `_sigpoll` of `siginfo_t` (asm-generic/siginfo.h).
    #[repr(C)]
    struct OfDescriptor {
        _signal: [i32; 4],
        _band: core::ffi::c_long,
        descriptor: i32,
    }
    // SAFETY: by contract; the descriptor is meaningful for POLL_IN, and within the structure for all.
    let (code, descriptor) =
        unsafe { ((*info).si_code, (*info.cast::<OfDescriptor>()).descriptor) };
    if !matches!(code, POLL_IN | POLL_HUP) || !tls::has_thread_pointer() {
        return None;
    }
    let block = tls::block();
    // In a fork the entry is put aside.
    let entries = [&block.entry, &block.saved_entry];
    let counts = entries.into_iter().find_map(|entry| {
        // SAFETY: null, or in the mapping, which is never unmapped.
        let entry = unsafe { entry.load(Ordering::Relaxed).as_ref() }?;
        let is_own = |own: &AtomicU32, bits: u32| {
            let number = own.load(Ordering::Relaxed) & !bits;
            number != 0 && number == (descriptor as u32).wrapping_add(1)
        };
        if is_own(&entry.clock_descriptor, CLOCK_ENDED) {
            return Some(first_strike::TIME);
        }
        is_own(&entry.fault_descriptor, first_strike::ANY).then_some(first_strike::FAULTS)
    })?;
    Some(Clock::Event {
        counts,
        is_still: code == POLL_HUP,
    })
}

/// What has sent the signal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// An event that the collector has opened for the thread.
    Event {
        /// What it counts: a bit of [`first_strike`].
        counts: u32,
        /// It stands still until the collector starts it again.
        is_still: bool,
    },
    /// The thread's own timer.
    Timer,
}

/// The calling thread has computed for another interval: it is sampled where that was over.
///
/// # Safety
/// `context` is the third argument of a handler with SA_SIGINFO.
unsafe fn clock_strikes(clock: Clock, context: *mut core::ffi::c_void) {
    let block = tls::block();
    if let Some((entry, _)) = registered(block) {
        let of_time =
            !matches!(clock, Clock::Event { counts, .. } if counts == first_strike::FAULTS);
        let strikes = entry.clock_strikes.load(Ordering::Relaxed);
        if let Clock::Event { counts, is_still } = clock
            && (is_still || of_time && strikes == 0)
        {
            kernel_clock::strikes_first(entry, counts);
        }
        if of_time {
            let more = strikes.wrapping_add(1);
            entry.clock_strikes.store(more, Ordering::Relaxed);
        }
        if clock == Clock::Timer {
            cpu_timer::follow(entry);
            if entry.closed.load(Ordering::Relaxed) != 0 {
                crate::agent::is_signalled_inside();
            }
        }
        if entry.has_timer() != (clock == Clock::Timer) {
            // The thread has another clock by now.
            return;
        }
    }
    // SAFETY: by contract.
    unsafe { alternate::put_back(context) };
    // In a capture it has met our own work.
    if block.guard.load(Ordering::Relaxed) == 0 {
        // SAFETY: by contract.
        let registers = unsafe { registers_of(context) };
        slow(&Request {
            interrupted: Some(&registers),
            is_met: true,
            ..Request::point(Probe::Running)
        });
        if let (Some(mapping), Some((entry, _))) = (session::mapping(), registered(block)) {
            // The signal has come, so it was open.
            kernel_clock::begin_timer(mapping, entry, true);
        }
    }
}
