//! The session's signal: a thread is captured where it runs.

use super::capture::Request;
use super::context::registers_of;
use super::requests::slow;
use crate::agent::session;
use crate::agent::tls;
use crate::agent::{alternate, cpu_timer, kernel_clock, registered, thread};
use crate::platform;
use crate::probe::Probe;
use crate::shm::layout::{CLOCK_ENDED, drops};
use crate::shm::signal_gate;
use crate::sync::Ordering;

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
    // SAFETY: by contract; si_pid is meaningful for SI_TKILL, which is checked first.
    let is_sent = unsafe {
        (*info).si_code == libc::SI_TKILL && (*info).si_pid() as u32 == session::collector_pid()
    };
    // SAFETY: by contract.
    if !is_sent && unsafe { is_of_kernel_clock(info) } {
        // SAFETY: by contract.
        unsafe { clock_strikes(Clock::Event, context) };
        return true;
    }
    if !is_sent {
        return false;
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
        kernel_clock::leave_ticks(mapping, entry, is_first);
        kernel_clock::follow(mapping.control(), block, entry);
    }
    true
}

/// Whether the kernel's clock has sent it, by the collector's descriptor for this thread (fcntl(2),
/// F_SETSIG).
///
/// # Safety
/// `info` is what the kernel passed to a handler with SA_SIGINFO.
unsafe fn is_of_kernel_clock(info: *const libc::siginfo_t) -> bool {
    /// `si_code` of a descriptor that has something to say (asm-generic/siginfo.h).
    const POLL_IN: i32 = 1;
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
    if code != POLL_IN || !tls::has_thread_pointer() {
        return false;
    }
    let block = tls::block();
    // In a fork the entry is put aside.
    let entries = [&block.entry, &block.saved_entry];
    entries.into_iter().any(|entry| {
        // SAFETY: null, or in the mapping, which is never unmapped.
        let entry = unsafe { entry.load(Ordering::Relaxed).as_ref() };
        entry.is_some_and(|entry| {
            let own = entry.clock_descriptor.load(Ordering::Relaxed);
            own != 0 && own & !CLOCK_ENDED == (descriptor as u32).wrapping_add(1)
        })
    })
}

/// What has sent the signal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// The collector's event for the thread.
    Event,
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
        let strikes = entry.clock_strikes.load(Ordering::Relaxed);
        entry
            .clock_strikes
            .store(strikes.saturating_add(1), Ordering::Relaxed);
        if clock == Clock::Timer {
            cpu_timer::follow(entry);
            if entry.closed.load(Ordering::Relaxed) != 0 {
                crate::agent::is_signalled_inside();
            }
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
    }
}
