//! What the kernel is asked for threads of a session: to run when there is something to do.

use std::num::NonZeroU64;

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute, set_current_timer_slack};

/// By how much threads of a session are less nice than the program.
const LESS_NICE: i32 = 15;
/// How long the ticker asks to run at a time, ns: the least that the kernel grants (kernel/sched/syscalls.c,
/// `__setparam_fair`).
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` in its first version (Linux 3.14, include/uapi/linux/sched/types.h); `libc` lacks it
/// for Android.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The calling thread is the ticker's.
pub(super) fn begin() {
    // Sleeps of this thread end on time: the default slack is 50 µs (prctl(2)).
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    ask_for_short_slices();
}

/// Where hundreds of threads want a processor, each has its equal part of it, and a session that takes more
/// waits for seconds. The calling thread, which is one of a process of our own, is to run before these, where
/// we may ask for that (setpriority(2)).
pub(super) fn be_less_nice() {
    // On Linux this process means the calling thread.
    if let Ok(nice) = getpriority_process(None) {
        let _ = setpriority_process(None, nice - LESS_NICE);
    }
}

/// A ticker that finds its processor taken would tick when the running thread sleeps, and meet no thread that
/// computes for less than a slice. One that asks for short slices itself is let in before (Linux 6.12; older
/// ones take no notice).
fn ask_for_short_slices() {
    /// <sched.h>, `SCHED_OTHER`.
    const USUAL: u32 = 0;
    let mut attributes = SchedAttr::default();
    let size = size_of_val(&attributes);
    // SAFETY: the kernel writes `size` bytes at most.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if got != 0 || attributes.policy != USUAL {
        return;
    }
    attributes.runtime = SLICE_NS;
    // SAFETY: changes the calling thread only, whose other attributes are those that it has. Where it is
    // refused, all stays as it was.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Sleeps until this moment of the monotonic clock, ns.
pub(super) fn sleep_until(ns: u64) {
    let time = Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as _,
    };
    // Interrupted it wakes early.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &time);
}
