//! The handler of SIGURG, by which threads that compute are interrupted. Android and ART have no use for that
//! signal. What was there before gets the signals that are not ours.
//!
//! # Signal safety
//! The handler calls the agent, and the handler before it. `errno` stays.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering};

use libc::{SA_ONSTACK, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGURG, siginfo_t};
use stackbeat_core::agent;
use stackbeat_core::crash_signals::CRASH_SIGNALS;
use stackbeat_core::platform;

type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// What was there before.
static BEFORE: AtomicUsize = AtomicUsize::new(SIG_DFL);

unsafe extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel passed.
    if unsafe { agent::Alarm::is(info, context) || agent::on_signal(info, context) } {
        return;
    }
    let before = BEFORE.load(Ordering::Acquire);
    if before != SIG_DFL && before != SIG_IGN {
        // SAFETY: it was the handler of this signal; one without SA_SIGINFO leaves the other two arguments
        // alone.
        unsafe { transmute::<usize, Handler>(before)(signal, info, context) };
    }
}

/// Puts the handler there. It stays: a signal may be on its way when the session ends.
pub(crate) fn start() {
    if !agent::allows_handlers() {
        return;
    }
    // SAFETY: zeros are a valid structure; both live during the calls, and the mask has room for the word.
    unsafe {
        let mut found = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        if libc::sigaction(SIGURG, null(), &raw mut found) != 0 {
            return;
        }
        if found.sa_sigaction != on_signal as *const () as usize {
            BEFORE.store(found.sa_sigaction, Ordering::Release);
            let mut ours = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            ours.sa_sigaction = on_signal as *const () as usize;
            ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
            // A handler of the app's on top of ours would run on a stack that is too small for it.
            let faults = CRASH_SIGNALS.iter().map(|(fault, _)| *fault as u32);
            let blocked = faults.fold(u64::MAX, |set, fault| set & !platform::signal_bit(fault));
            // A set of signals begins with the word of signals 1 to 64 (glibc's bits/types/__sigset_t.h;
            // bionic's has no other).
            *(&raw mut ours.sa_mask).cast::<u64>() = blocked;
            if libc::sigaction(SIGURG, &raw const ours, null_mut()) != 0 {
                return;
            }
        }
    }
    agent::handlers_installed(SIGURG as u32, 0);
}
