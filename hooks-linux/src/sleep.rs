//! Sleeps, and giving up the processor.

use crate::interrupted::Handlers;
use core::ffi::{c_int, c_uint};
use libc::{clockid_t, timespec, useconds_t};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

stackbeat_core::posix_sleeps! { hooks }
stackbeat_core::linux_sleeps! { hooks }

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
        let rest_s = handlers.run(|| sleep::call(time_s));
        let is_interrupted = rest_s > 0 || before != libc::EINTR && *error == libc::EINTR;
        wait.end(if is_interrupted {
            libc::EINTR.into()
        } else {
            0
        });
        rest_s
    }
}

original!(fn thrd_sleep(time: *const timespec, rest: *mut timespec) -> c_int = Nanosleep);
/// Gives -1 where a signal ended it, and leaves errno alone (C11, 7.26.5.7).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn thrd_sleep(time: *const timespec, rest: *mut timespec) -> c_int {
    let handlers = Handlers::so_far();
    if !agent::hit_quietly() {
        thrd_sleep::called();
    }
    let wait = agent::begin_wait(Probe::Nanosleep, 0);
    // SAFETY: the caller's arguments, passed on.
    let result = handlers.run(|| unsafe { thrd_sleep::call(time, rest) });
    wait.end(match result {
        -1 => libc::EINTR.into(),
        result => result.into(),
    });
    result
}
