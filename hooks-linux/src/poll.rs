//! Waiting for events. The kernel never restarts these after a signal, not even with SA_RESTART.

use crate::descriptor;
use crate::interrupted::Handlers;
use core::ffi::{c_int, c_long, c_void};
use core::ptr::null;
use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::SystemCall;

hooks! {
    wait fn aio_suspend(list: *const *const c_void, count: c_int, timeout: *const timespec) -> c_int = Poll(count as c_long) [] aka glibc [aio_suspend64];
}

/// Whether a time in which to wait is not nothing; null: for ever.
///
/// # Safety
/// `time` is null or what the caller gave as a time.
unsafe fn is_some(time: *const timespec) -> bool {
    // SAFETY: by contract.
    time.is_null() || unsafe { (*time).tv_sec != 0 || (*time).tv_nsec != 0 }
}

/// The calls that wait for one of several descriptors. Where the condition holds, they may block, for what
/// comes after `for`; then the last expression is their end. `under`: the signals that they block meanwhile.
macro_rules! waits {
    (mask) => { null() };
    (mask $mask:expr) => { $mask };
    ($($name:ident($($arg:ident: $type:ty),*) = $probe:ident, $value:expr, if $may_wait:expr, for $awaited:expr, $(under $mask:expr,)? |$wait:ident, $result:ident| $end:expr;)*) => {$(
        original!(fn $name($($arg: $type),*) -> c_int = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            let handlers = Handlers::so_far();
            if !agent::hit_quietly() {
                $name::called();
            }
            // SAFETY: the caller's arguments, passed on.
            unsafe {
                if !$may_wait {
                    let wait = agent::begin_wait(Probe::$probe, $value as u64);
                    let result = $name::call($($arg),*);
                    wait.end(result.into());
                    return result;
                }
                let $wait = agent::begin_wait_for(Probe::$probe, $value as u64, $awaited);
                let $result = handlers.run_masked(waits!(mask $($mask)?), || $name::call($($arg),*));
                $end;
                $result
            }
        }
    )*};
}

waits! {
    poll(files: *mut pollfd, count: nfds_t, timeout_ms: c_int) = Poll, count, if timeout_ms != 0 && !files.is_null(),
        for descriptor::polls(files, count as usize), |wait, result| descriptor::polled(&wait, files, count as usize, result);
    __poll(files: *mut pollfd, count: nfds_t, timeout_ms: c_int) = Poll, count, if timeout_ms != 0 && !files.is_null(),
        for descriptor::polls(files, count as usize), |wait, result| descriptor::polled(&wait, files, count as usize, result);
    __poll_chk(files: *mut pollfd, count: nfds_t, timeout_ms: c_int, room: size_t) = Poll, count, if timeout_ms != 0 && !files.is_null(),
        for descriptor::polls(files, count as usize), |wait, result| descriptor::polled(&wait, files, count as usize, result);
    ppoll(files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) = Poll, count, if !files.is_null() && is_some(timeout),
        for descriptor::polls(files, count as usize), under mask, |wait, result| descriptor::polled(&wait, files, count as usize, result);
    __ppoll_chk(files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) = Poll, count, if !files.is_null() && is_some(timeout),
        for descriptor::polls(files, count as usize), under mask, |wait, result| descriptor::polled(&wait, files, count as usize, result);

    // A `timeval` looks like a `timespec`.
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) = Select, count, if !read.is_null() && is_some(timeout.cast()),
        for descriptor::selects(read, count), |wait, result| descriptor::selected(&wait, read, count, result);
    __select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) = Select, count, if !read.is_null() && is_some(timeout.cast()),
        for descriptor::selects(read, count), |wait, result| descriptor::selected(&wait, read, count, result);
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) = Select, count, if !read.is_null() && is_some(timeout),
        for descriptor::selects(read, count), under mask, |wait, result| descriptor::selected(&wait, read, count, result);

    epoll_wait(poll: c_int, events: *mut epoll_event, room: c_int, timeout_ms: c_int) = EpollWait, poll, if timeout_ms != 0,
        for descriptor::waits_for_events(poll), |wait, result| descriptor::events_came(&wait, poll, events, result);
    epoll_pwait(poll: c_int, events: *mut epoll_event, room: c_int, timeout_ms: c_int, mask: *const sigset_t) = EpollWait, poll, if timeout_ms != 0,
        for descriptor::waits_for_events(poll), under mask, |wait, result| descriptor::events_came(&wait, poll, events, result);
    epoll_pwait2(poll: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) = EpollWait, poll, if is_some(timeout),
        for descriptor::waits_for_events(poll), under mask, |wait, result| descriptor::events_came(&wait, poll, events, result);
}

original!(fn epoll_ctl(poll: c_int, operation: c_int, file: c_int, event: *mut epoll_event) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_ctl(
    poll: c_int,
    operation: c_int,
    file: c_int,
    event: *mut epoll_event,
) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        let result = epoll_ctl::call(poll, operation, file, event);
        if result == 0 {
            descriptor::watched(poll, operation, file, event);
        }
        result
    }
}

original!(fn epoll_create(size: c_int) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's argument, passed on.
    let poll = unsafe { epoll_create::call(size) };
    descriptor::forget(poll);
    poll
}

original!(fn epoll_create1(flags: c_int) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's argument, passed on.
    let poll = unsafe { epoll_create1::call(flags) };
    descriptor::forget(poll);
    poll
}
