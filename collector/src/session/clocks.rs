//! The clocks that the recorder reads: the time, and what it has used itself.

use std::time::Duration;

use super::own_threads;

/// The monotonic clock, ns, without a system call where libc knows how: the ticker reads it five times a
/// tick.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a valid object. It does not fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time of the recorder so far: of this process, or of the session's threads inside the program.
pub(crate) fn own_cpu() -> Duration {
    if let Some(cpu) = own_threads::cpu() {
        return cpu;
    }
    Duration::from_nanos(stackbeat_core::platform::clock_ns(
        libc::CLOCK_PROCESS_CPUTIME_ID,
    ))
}
