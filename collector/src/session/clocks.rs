//! The clocks that the recorder reads: the time, and what it has used itself.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::own_threads;

/// The monotonic clock, ns, without a system call where libc knows how: the ticker reads it five times a
/// tick.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
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
