//! Ending as the program did.

use std::ptr;

/// Ends the calling process by the signal that has ended its program: whoever waits for it sees what it would
/// see of the program (a shell leaves its loop after Ctrl-C). Writes no core file. Comes back where the
/// signal ends nobody.
pub fn die_of(signal: i32) {
    // SAFETY: calls that change nothing but the calling process; the set is valid once `sigemptyset` has
    // filled it.
    unsafe {
        // A size limit of 0 does not keep a core from a program that takes it (core(5)), this does.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
        libc::raise(signal);
    }
}
