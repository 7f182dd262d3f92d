//! A thread's timer of its own CPU time (timer_create(2), `CLOCK_THREAD_CPUTIME_ID`), which samples it
//! (`SamplingClock::Timer`). The kernel looks at such timers in its own tick, which it has anyway, so a
//! sample costs little more than its signal; none comes sooner than with the next tick. The signal is sent
//! when the thread is about to leave the kernel (`CONFIG_POSIX_CPU_TIMERS_TASK_WORK`), so it ends no system
//! call but those that do such work while they wait (`io_uring_enter`: [`super::leave_timer`]).
//!
//! The thread starts and stops it by itself; whoever stops the clocks of a process' threads may stop it as
//! well.

use super::session;
use crate::platform;
use crate::shm::layout::{Control, NO_TIMER, ThreadEntry};
use crate::shm::registry;
use crate::sync::Ordering;
use core::ffi::c_int;

/// Time between two signals while the session is switched off, ns: then they only look whether it is on
/// again.
const RESTING_NS: u32 = 100_000_000;

/// Its address says that a signal is one of these.
static MARK: u8 = 0;

/// Whether the entries of this process' threads are its own: a forked child that nobody announced has its
/// parent's until it notices, and timers with the same numbers.
fn is_own_process() -> bool {
    !super::session::is_another()
}

/// Starts the calling thread's timer. Where it cannot have one, it is on ticks. So it is where the program
/// handles the signal itself: one of its own would be lost where one of these pends.
pub(super) fn start(control: &Control, entry: &ThreadEntry) {
    if entry.timer.load(Ordering::SeqCst) != 0 || !is_own_process() {
        return;
    }
    if super::handles_signal() {
        return registry::put_on_ticks(entry);
    }
    let signal = libc::SIGURG as u32;
    match platform::create_timer(
        libc::CLOCK_THREAD_CPUTIME_ID,
        signal,
        (&raw const MARK).addr(),
    ) {
        None => registry::put_on_ticks(entry),
        Some(timer) => {
            entry.timer.store(timer as u32 + 1, Ordering::SeqCst);
            entry.wants_clock.store(1, Ordering::SeqCst);
            set(control, entry, timer);
        }
    }
}

/// Stops a thread's timer, if it has one. It wants no event either.
pub(super) fn stop(entry: &ThreadEntry) {
    if is_own_process() {
        entry.wants_clock.store(0, Ordering::SeqCst);
        remove(entry);
    }
}

fn remove(entry: &ThreadEntry) {
    let timer = entry.timer.fetch_and(NO_TIMER, Ordering::SeqCst) & !NO_TIMER;
    if timer != 0 {
        platform::delete_timer(timer as c_int - 1);
    }
}

/// Whether a signal is one of these.
///
/// # Safety
/// `info` is what the kernel passed to a handler with SA_SIGINFO.
pub(super) unsafe fn is(info: *const libc::siginfo_t) -> bool {
    // SAFETY: by contract; the value is meaningful for SI_TIMER, which is checked first.
    unsafe {
        (*info).si_code == libc::SI_TIMER
            && (*info).si_value().sival_ptr.addr() == (&raw const MARK).addr()
    }
}

/// The number of the timer that has sent this signal.
///
/// # Safety
/// `info` is that of a signal that [`is`] one of these.
unsafe fn number(info: *const libc::siginfo_t) -> c_int {
    /// `_timer` of `siginfo_t` (asm-generic/siginfo.h).
    #[repr(C)]
    struct OfTimer {
        _signal: [i32; 4],
        timer: c_int,
    }
    // SAFETY: by contract.
    unsafe { (*info.cast::<OfTimer>()).timer }
}

/// Whether the thread of this entry has the timer that has sent this signal. It may have been stopped
/// meanwhile.
///
/// # Safety
/// As for [`number`].
pub(super) unsafe fn is_of(entry: &ThreadEntry, info: *const libc::siginfo_t) -> bool {
    // SAFETY: by contract.
    let timer = unsafe { number(info) };
    entry.timer.load(Ordering::Relaxed) == timer as u32 + 1
}

/// Nobody wants the timer that has sent this signal any more.
///
/// # Safety
/// As for [`number`].
pub(super) unsafe fn delete(info: *const libc::siginfo_t) {
    // SAFETY: by contract.
    platform::delete_timer(unsafe { number(info) });
}

/// The calling thread's timer has gone off: another interval may be in force since it was set, or another
/// clock.
pub(super) fn follow(entry: &ThreadEntry) {
    let Some(mapping) = session::mapping() else {
        return;
    };
    let control = mapping.control();
    match entry.timer.load(Ordering::Relaxed) {
        0 => {}
        _ if entry.has_user_clock() => remove(entry),
        _ if !entry.has_timer() => stop(entry),
        timer if entry.clock_period_ns.load(Ordering::Relaxed) != period_ns(control, entry) => {
            set(control, entry, timer as c_int - 1);
        }
        _ => {}
    }
}

fn set(control: &Control, entry: &ThreadEntry, timer: c_int) {
    let ns = period_ns(control, entry);
    entry.clock_period_ns.store(ns, Ordering::Relaxed);
    platform::start_timer(timer, ns.into(), ns.into());
}

/// What the timer is to be set to.
fn period_ns(control: &Control, entry: &ThreadEntry) -> u32 {
    if control.switch.load(Ordering::Relaxed) != 1 {
        return RESTING_NS;
    }
    // 0 would stop it.
    control.thread_interval_ns(entry).max(1)
}
