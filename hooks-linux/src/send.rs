//! Sending signals, which ends waits of other threads and processes.
//!
//! Signals to groups of processes, and those that the kernel and timers send, tell nobody who sent them.

use crate::signal::crash;
use core::ffi::{c_int, c_void};
use libc::{pid_t, pthread_t};
use stackbeat_core::agent;
use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::platform::TID_OFFSET;
use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::SystemCall;

/// The tid of a thread; 0: it has ended, or that is not known. What stands where glibc has it is believed
/// only if the calling thread's own stands there.
///
/// # Safety
/// `thread` is a thread that has not been joined.
unsafe fn tid_of(thread: pthread_t) -> Tid {
    let word = |thread: pthread_t| (thread as usize + TID_OFFSET) as *const u32;
    // SAFETY: the calling thread's own descriptor is longer than that; the other is one like it, from which
    // the original reads the same word.
    unsafe {
        let own = Tid(word(libc::pthread_self()).read());
        match agent::is_own_tid(own) {
            true => Tid(word(thread).read()),
            false => Tid(0),
        }
    }
}

/// Runs a call that sends a signal to a process (`tid`: `None`), or to a thread of it, which may be unknown
/// (0).
#[inline(always)]
pub(crate) fn send<R>(pid: pid_t, tid: Option<Tid>, signal: c_int, call: impl FnOnce() -> R) -> R {
    agent::count(SystemCall::Signal);
    if crash::is_watched(signal) && is_to_itself(pid, tid) && crash::is_ours(signal) {
        return crash::send_to_itself(signal, call);
    }
    // 0 asks whether the process is there; other numbers below 1 mean many processes.
    if signal == 0 || pid <= 0 || tid == Some(Tid(0)) || !agent::finds_wakers() {
        return call();
    }
    let wake = agent::sends_signal(Pid(pid as u32), tid.unwrap_or_default());
    let result = call();
    wake.end(Probe::SignalSend, signal as u64);
    result
}

/// Whether the calling thread will get it. The kernel gives what is sent to a process to its first thread, if
/// that does not block it.
#[cold]
fn is_to_itself(pid: pid_t, tid: Option<Tid>) -> bool {
    let own = agent::own_pid();
    agent::owns_memory() && pid == own && agent::is_own_tid(tid.unwrap_or(Tid(own as u32)))
}

macro_rules! sends {
    ($($name:ident($($arg:ident: $type:ty),*) to $pid:expr, $tid:expr, $signal:ident;)*) => {$(
        original!(fn $name($($arg: $type),*) -> c_int = SignalSend);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            if !agent::hit_quietly() {
                $name::called();
            }
            // SAFETY: the caller's arguments, passed on.
            unsafe { send($pid, $tid, $signal, || $name::call($($arg),*)) }
        }
    )*};
}

sends! {
    kill(pid: pid_t, signal: c_int) to pid, None, signal;
    sigqueue(pid: pid_t, signal: c_int, value: *mut c_void) to pid, None, signal;
    tgkill(pid: pid_t, tid: pid_t, signal: c_int) to pid, Some(Tid(tid as u32)), signal;
    pthread_kill(thread: pthread_t, signal: c_int) to agent::own_pid(), Some(tid_of(thread)), signal;
    pthread_sigqueue(thread: pthread_t, signal: c_int, value: *mut c_void) to agent::own_pid(), Some(tid_of(thread)), signal;
}

// The version before gives ESRCH for a thread that has ended (glibc's NEWS for 2.34).
versions! {
    pthread_kill = "GLIBC_2.34";
}
