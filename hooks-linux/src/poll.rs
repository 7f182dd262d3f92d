//! Waiting for events. The kernel never restarts these after a signal, not even with SA_RESTART.

use core::ffi::{c_int, c_long, c_void};
use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

hooks! {
    wait fn poll(files: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int = Poll, count;
    wait fn __poll(files: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int = Poll, count;
    wait fn __poll_chk(files: *mut pollfd, count: nfds_t, timeout_ms: c_int, room: size_t) -> c_int = Poll, count;
    wait fn ppoll(files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int = Poll, count;
    wait fn __ppoll_chk(files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int = Poll, count;

    wait fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int = Select, count;
    wait fn __select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int = Select, count;
    wait fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int = Select, count;

    wait fn epoll_wait(poll: c_int, events: *mut epoll_event, room: c_int, timeout_ms: c_int) -> c_int = EpollWait, poll;
    wait fn epoll_pwait(poll: c_int, events: *mut epoll_event, room: c_int, timeout_ms: c_int, mask: *const sigset_t) -> c_int = EpollWait, poll;
    wait fn epoll_pwait2(poll: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int = EpollWait, poll;

    wait fn aio_suspend(list: *const *const c_void, count: c_int, timeout: *const timespec) -> c_int = Poll, count as c_long;
    wait fn aio_suspend64(list: *const *const c_void, count: c_int, timeout: *const timespec) -> c_int = Poll, count as c_long;
}
