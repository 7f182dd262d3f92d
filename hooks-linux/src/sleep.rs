//! Sleeps, and giving up the processor.

use core::ffi::{c_int, c_uint};
use libc::{clockid_t, timespec, useconds_t};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

hooks! {
    wait fn nanosleep(time: *const timespec, rest: *mut timespec) -> c_int = Nanosleep, 0;
    wait fn __nanosleep(time: *const timespec, rest: *mut timespec) -> c_int = Nanosleep, 0;
    wait fn clock_nanosleep(clock: clockid_t, flags: c_int, time: *const timespec, rest: *mut timespec) -> c_int = Nanosleep, clock;
    wait fn usleep(time_us: useconds_t) -> c_int = Nanosleep, time_us;
    wait fn sleep(time_s: c_uint) -> c_uint = Nanosleep, time_s;
    wait fn thrd_sleep(time: *const timespec, rest: *mut timespec) -> c_int = Nanosleep, 0;
    hit fn sched_yield() -> c_int = Yield, 0;
    hit fn __sched_yield() -> c_int = Yield, 0;
    hit fn pthread_yield() -> c_int = Yield, 0;
    hit fn thrd_yield() -> () = Yield, 0;
}
