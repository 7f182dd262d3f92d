//! Sleeps, and giving up the processor.

use crate::interrupted::{self, Handlers};
use core::ffi::{c_int, c_uint};
use core::mem::zeroed;
use libc::{EINTR, TIMER_ABSTIME, clockid_t, timespec, useconds_t};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

hooks! {
    hit fn sched_yield() -> c_int = Yield, 0;
    hit fn __sched_yield() -> c_int = Yield, 0;
    hit fn pthread_yield() -> c_int = Yield, 0;
    hit fn thrd_yield() -> () = Yield, 0;
}

/// Whether to sleep for so long takes any time.
///
/// # Safety
/// `time` is null or what the caller gave as a time.
unsafe fn lasts(time: *const timespec) -> bool {
    // SAFETY: by contract.
    let time = unsafe { time.as_ref() };
    time.is_some_and(|time| {
        let is_valid = time.tv_sec >= 0 && (0..1_000_000_000).contains(&time.tv_nsec);
        is_valid && (time.tv_sec, time.tv_nsec) != (0, 0)
    })
}

/// A sleep that a signal ends before it begins: all of it is left.
///
/// # Safety
/// What the caller gave; `time` is not null.
#[cold]
unsafe fn leave_all(time: *const timespec, rest: *mut timespec) {
    if !rest.is_null() {
        // SAFETY: by contract.
        unsafe { rest.write(*time) };
    }
}

/// Whether a moment is still to come.
///
/// # Safety
/// `moment` is null or what the caller gave as a time.
#[cold]
unsafe fn is_ahead(clock: clockid_t, moment: *const timespec) -> bool {
    // SAFETY: by contract; a timespec's zeroed value is valid.
    unsafe {
        let mut now: timespec = zeroed();
        lasts(moment)
            && libc::clock_gettime(clock, &mut now) == 0
            && ((*moment).tv_sec, (*moment).tv_nsec) > (now.tv_sec, now.tv_nsec)
    }
}

/// The calls that sleep. Where a handler has run before and the condition holds, they end as one that a signal ends. The last
/// expression is the wait's result.
macro_rules! sleeps {
    ($($name:ident($($arg:ident: $type:ty),*) -> $of:ty = $value:expr, if $lasts:expr, cut $cut:expr, |$result:ident| $ended:expr;)*) => {$(
        original!(fn $name($($arg: $type),*) -> $of = Nanosleep);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $of {
            let handlers = Handlers::so_far();
            if !agent::hit_quietly() {
                $name::called();
            }
            let wait = agent::begin_wait(Probe::Nanosleep, $value as u64);
            // SAFETY: the caller's arguments, passed on.
            let $result = unsafe {
                match handlers.have_run() && $lasts {
                    false => $name::call($($arg),*),
                    true => $cut,
                }
            };
            wait.end($ended.into());
            $result
        }
    )*};
}

sleeps! {
    nanosleep(time: *const timespec, rest: *mut timespec) -> c_int = 0,
        if lasts(time), cut { leave_all(time, rest); interrupted::fail() }, |result| result;
    __nanosleep(time: *const timespec, rest: *mut timespec) -> c_int = 0,
        if lasts(time), cut { leave_all(time, rest); interrupted::fail() }, |result| result;
    clock_nanosleep(clock: clockid_t, flags: c_int, time: *const timespec, rest: *mut timespec) -> c_int = clock,
        if flags == TIMER_ABSTIME && is_ahead(clock, time) || flags == 0 && lasts(time),
        cut { if flags == 0 { leave_all(time, rest); } EINTR }, |result| result;
    usleep(time_us: useconds_t) -> c_int = time_us,
        if time_us != 0, cut interrupted::fail(), |result| result;
    // Gives -1 where a signal ended it, and leaves errno alone (C11, 7.26.5.7).
    thrd_sleep(time: *const timespec, rest: *mut timespec) -> c_int = 0,
        if lasts(time), cut { leave_all(time, rest); -1 }, |result| if result == -1 { EINTR } else { result };
}

original!(fn sleep(time_s: c_uint) -> c_uint = Nanosleep);
/// Gives the whole seconds that are left where a signal ended it: 0 in the last of them, with EINTR in errno
/// (glibc's posix/sleep.c).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sleep(time_s: c_uint) -> c_uint {
    let handlers = Handlers::so_far();
    if !agent::hit_quietly() {
        sleep::called();
    }
    // SAFETY: the caller's argument, passed on; errno of the calling thread is always there.
    unsafe {
        let error = libc::__errno_location();
        let before = *error;
        let wait = agent::begin_wait(Probe::Nanosleep, time_s.into());
        let rest_s = match handlers.have_run() && time_s != 0 {
            false => sleep::call(time_s),
            true => {
                interrupted::fail();
                time_s
            }
        };
        let is_interrupted = rest_s > 0 || before != EINTR && *error == EINTR;
        wait.end(if is_interrupted { EINTR.into() } else { 0 });
        rest_s
    }
}
