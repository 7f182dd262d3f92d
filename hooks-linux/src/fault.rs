//! Signals that end a process (`stackbeat_core::fault`), where a recording is to tell of crashes: in each process a handler of ours
//! stands where the program has none, and where it would be the default's turn. It notes the thread and its stack, and lets the
//! signal take its course.
//!
//! The program sees the default in its place. A handler of the program's own is installed as ever: whether a fault
//! is an error at all is its business, and nothing of ours runs before it. Handlers that end the process put the default back and
//! raise the signal again: then ours is there again. Where the kernel itself puts the default back (SA_RESETHAND), where a signal is
//! blocked, and where there is no stack left for a handler, the process dies as ever, and its parent tells of it
//! (`agent::child_ended`).

use crate::signal::sigaction;
use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::{
    SA_ONSTACK, SA_SIGINFO, SIG_DFL, SIG_ERR, SIGBUS, SIGFPE, SIGILL, SIGSEGV, sighandler_t,
    siginfo_t,
};
use stackbeat_core::agent;
use stackbeat_core::fault::FAULTS;
use stackbeat_core::sys;

type Action = libc::sigaction;

/// Handlers of ours are in place.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether ours may stand where this signal's default would.
pub(crate) fn is_watched(signal: c_int) -> bool {
    ACTIVE.load(Ordering::Acquire) && FAULTS.iter().any(|(number, _)| *number == signal)
}

/// Installs ours where nobody else stands, if the session is to tell of crashes.
pub(crate) fn start() {
    if !agent::watches_crashes() {
        return;
    }
    ACTIVE.store(true, Ordering::Release);
    each_with(SIG_DFL, &ours());
}

/// Puts the default back.
pub(crate) fn stop() {
    if ACTIVE.swap(false, Ordering::AcqRel) {
        each_with(OURS as usize, &default());
    }
}

/// Gives these signals that have the one handler another one.
fn each_with(before: sighandler_t, after: &Action) {
    for (signal, _) in FAULTS {
        // SAFETY: the original, with local structures and a handler of ours or the default.
        unsafe {
            let mut found = zeroed::<Action>();
            if sigaction::call(signal, core::ptr::null(), &mut found) == 0
                && found.sa_sigaction == before
            {
                sigaction::call(signal, after, null_mut());
            }
        }
    }
}

const OURS: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;

fn default() -> Action {
    // SAFETY: zeros are a valid sigaction: the default.
    unsafe { zeroed() }
}

/// With all signals blocked meanwhile: what the program's other handlers do, they do before or never.
fn ours() -> Action {
    let mut action = default();
    action.sa_sigaction = OURS as usize;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    // SAFETY: a set of its own.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    action
}

/// What the program sees where this handler stands.
fn shown(handler: sighandler_t) -> sighandler_t {
    match handler == OURS as usize {
        true => SIG_DFL,
        false => handler,
    }
}

/// As `sigaction`, for a signal that is watched.
///
/// # Safety
/// As for `sigaction`.
pub(crate) unsafe fn replace(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    let ours = ours();
    // SAFETY: by contract; `new` is read before `old` is written, they may be one.
    unsafe {
        let new = match new.as_ref() {
            // A child of vfork is about to run another program, with the default.
            Some(asked) if asked.sa_sigaction == SIG_DFL && agent::owns_memory() => &raw const ours,
            _ => new,
        };
        let result = sigaction::call(signal, new, old);
        if result == 0
            && let Some(old) = old.as_mut()
            && old.sa_sigaction == OURS as usize
        {
            *old = default();
        }
        result
    }
}

/// As `signal` and its relatives, for a signal that is watched: `original` does what they do.
///
/// # Safety
/// As for `signal`.
pub(crate) unsafe fn handle(
    signal: c_int,
    handler: sighandler_t,
    original: impl FnOnce() -> sighandler_t,
) -> sighandler_t {
    let old = original();
    if old != SIG_ERR && handler == SIG_DFL && agent::owns_memory() {
        // SAFETY: the original, with a handler of ours.
        unsafe { sigaction::call(signal, &ours(), null_mut()) };
    }
    shown(old)
}

unsafe extern "C-unwind" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if agent::owns_memory() {
        // SAFETY: what the kernel passed.
        unsafe { agent::on_fault(signal, info, context) };
    }
    // SAFETY: the original, with the default; what the kernel passed.
    unsafe {
        sigaction::call(signal, &default(), null_mut());
        if !comes_by_itself(signal, (*info).si_code) {
            // The same signal again: it arrives when this handler returns, where it came the first time, so that a core
            // has the registers and the reason of that.
            sys::send_again(signal, info);
        }
    }
}

/// Whether the instruction that a handler returns to faults again, so that the kernel's own signal ends the process.
fn comes_by_itself(signal: c_int, code: c_int) -> bool {
    /// A broken page that nobody has touched yet.
    const BUS_MCEERR_AO: c_int = 5;

    match signal {
        SIGSEGV | SIGILL | SIGFPE => code > 0,
        SIGBUS => code > 0 && code != BUS_MCEERR_AO,
        // A breakpoint is behind the thread, a system call that a filter denies as well.
        _ => false,
    }
}
