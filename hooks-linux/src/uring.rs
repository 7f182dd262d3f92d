//! Waiting for completions of io_uring. liburing makes its system calls by itself, past libc's `syscall`, so
//! its functions that wait are hooked (its <liburing.h>, 2.0 to 2.9). `io_uring_wait_cqe` is inline in
//! programs and calls `__io_uring_get_cqe`; `io_uring_wait_cqe_timeout` calls `io_uring_wait_cqes`.

use core::ffi::{c_int, c_uint, c_void};
use libc::{sigset_t, size_t};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

/// Where so many completions are about to be waited for.
fn waited_for(count: c_uint) -> c_uint {
    agent::leave_timer();
    count
}

hooks! {
    wait fn __io_uring_get_cqe(ring: *mut c_void, completion: *mut *mut c_void, submit: c_uint, count: c_uint, mask: *mut sigset_t) -> c_int = Poll(waited_for(count)) [];
    wait fn io_uring_submit_and_wait(ring: *mut c_void, count: c_uint) -> c_int = Poll(waited_for(count)) [];
    wait fn io_uring_submit_and_wait_reg(ring: *mut c_void, completion: *mut *mut c_void, count: c_uint, index: c_int) -> c_int = Poll(waited_for(count)) [];
    wait fn io_uring_enter(ring: c_uint, submit: c_uint, count: c_uint, flags: c_uint, mask: *mut sigset_t) -> c_int = Poll(waited_for(count)) [];
    wait fn io_uring_enter2(ring: c_uint, submit: c_uint, count: c_uint, flags: c_uint, argument: *mut c_void, bytes: size_t) -> c_int = Poll(waited_for(count)) [];
}

/// Functions that wait by themselves if they are given a time, and otherwise call `__io_uring_get_cqe`.
macro_rules! timed_waits {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {$(
        original!(fn $name(ring: *mut c_void, completion: *mut *mut c_void, count: c_uint, time: *const c_void $(, $arg: $type)*) -> c_int = Poll);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            ring: *mut c_void,
            completion: *mut *mut c_void,
            count: c_uint,
            time: *const c_void
            $(, $arg: $type)*
        ) -> c_int {
            if time.is_null() {
                // SAFETY: the caller's arguments, passed on.
                return unsafe { $name::call(ring, completion, count, time $(, $arg)*) };
            }
            if !agent::hit_quietly() {
                $name::called();
            }
            waited!($name(ring, completion, count, time $(, $arg)*) = Poll, waited_for(count))
        }
    )*};
}

timed_waits! {
    io_uring_wait_cqes(mask: *mut sigset_t);
    io_uring_wait_cqes_min_timeout(least_us: c_uint, mask: *mut sigset_t);
    io_uring_submit_and_wait_timeout(mask: *mut sigset_t);
    io_uring_submit_and_wait_min_timeout(least_us: c_uint, mask: *mut sigset_t);
}

// Those of its src/liburing.map.
hidden_versions! {
    __io_uring_get_cqe = "LIBURING_2.0";
    io_uring_submit_and_wait = "LIBURING_2.0";
    io_uring_wait_cqes = "LIBURING_2.0";
    io_uring_submit_and_wait_timeout = "LIBURING_2.2";
    io_uring_enter = "LIBURING_2.3";
    io_uring_enter2 = "LIBURING_2.3";
    io_uring_wait_cqes_min_timeout = "LIBURING_2.8";
    io_uring_submit_and_wait_min_timeout = "LIBURING_2.8";
    io_uring_submit_and_wait_reg = "LIBURING_2.9";
}
