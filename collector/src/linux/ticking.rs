//! What the kernel is asked for the ticker's thread: to be woken on time.

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
    // SAFETY: sets a number of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    ask_for_short_slices();
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
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the pointer is to a valid object, no remainder is wanted.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            std::ptr::null_mut(),
        )
    };
}
