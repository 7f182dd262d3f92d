//! Clock reads.

use core::ffi::{c_int, c_void};
use libc::{clockid_t, time_t, timespec, timeval};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

hooks! {
    hit fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int = ClockRead(clock) [];
    hit fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int = ClockRead(0) [] aka glibc [__gettimeofday];
    hit fn time(time: *mut time_t) -> time_t = ClockRead(0) [];
    hit fn timespec_get(time: *mut timespec, base: c_int) -> c_int = ClockRead(base) [];
}
