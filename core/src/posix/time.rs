//! Sleeps, giving up the processor, and clock reads. `mod.rs` says what a line means.

/// Sleeps: what all platforms have.
#[macro_export]
macro_rules! posix_sleeps {
    ($emit:ident) => {
        $emit! {
            wait fn nanosleep(time: *const timespec, rest: *mut timespec) -> c_int = Nanosleep(0) [ended by handlers] aka glibc [__nanosleep];
            wait fn usleep(time_us: useconds_t) -> c_int = Nanosleep(time_us) [ended by handlers];
            hit fn sched_yield() -> c_int = Yield(0) [] aka glibc [__sched_yield pthread_yield];
        }
    };
}

/// Sleeps: what glibc and bionic have.
#[macro_export]
macro_rules! linux_sleeps {
    ($emit:ident) => {
        $emit! {
            wait fn clock_nanosleep(clock: clockid_t, flags: c_int, time: *const timespec, rest: *mut timespec) -> c_int = Nanosleep(clock) [ended by handlers];
            hit fn thrd_yield() -> () = Yield(0) [];
        }
    };
}

/// Clock reads: what all platforms have.
#[macro_export]
macro_rules! posix_clocks {
    ($emit:ident) => {
        $emit! {
            hit fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int = ClockRead(clock) [];
            hit fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int = ClockRead(0) [] aka glibc [__gettimeofday];
            hit fn time(time: *mut time_t) -> time_t = ClockRead(0) [];
            hit fn timespec_get(time: *mut timespec, base: c_int) -> c_int = ClockRead(base) [];
        }
    };
}
