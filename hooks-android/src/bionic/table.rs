//! The functions of `stackbeat_core::posix` that bionic has, each with its hook and the place of its
//! original.

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};

use libc::stat as Stat;
use libc::*;
use stackbeat_core::posix::function_table::Function;
use stackbeat_core::posix::{ByAddress as Here, Descriptor, Object, Objects};
use stackbeat_core::{function_of_table, function_table};

use super::{by_hand, libraries, raw_call, threads, vfork};

/// `struct sembuf` of Linux' `linux/sem.h`, which the crate libc leaves out.
#[cfg(target_os = "android")]
#[allow(non_camel_case_types, reason = "as the list names it")]
#[allow(unused, reason = "hooks pass its address on")]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sembuf {
    number: u16,
    operation: i16,
    flags: i16,
}

/// `thrd_busy` of bionic's `threads.h`, and of glibc's.
const THRD_BUSY: c_int = 1;

/// Each list in a module of its own, `with` another one that has the functions by which its locks are tried.
macro_rules! lists {
    ($($list:ident $(with $tries:ident)?;)*) => {
        $(
            #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
            mod $list {
                #[allow(unused_imports, reason = "not every list names types, objects and locks")]
                use super::*;
                $(use super::$tries::*;)?
                stackbeat_core::$list! { function_table }
            }
        )*

        /// All functions.
        pub fn functions() -> impl Iterator<Item = &'static Function> {
            let by_hand = [
                by_hand::LISTED,
                by_hand::BY_HAND,
                by_hand::LISTS,
                libraries::FUNCTIONS,
                raw_call::FUNCTIONS,
                threads::FUNCTIONS,
                vfork::FUNCTIONS,
            ];
            [$($list::FUNCTIONS),*, polls::FUNCTIONS, loops::FUNCTIONS].into_iter().chain(by_hand).flatten()
        }
    };
}

/// Waits for events. The kernel never restarts these after a signal, so none of ours may come meanwhile.
mod polls {
    use super::*;

    function_table! {
        wait fn poll(files: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int = Poll(count) [];
        wait fn __poll_chk(files: *mut pollfd, count: nfds_t, timeout_ms: c_int, room: size_t) -> c_int = Poll(count) [];
        wait fn ppoll(files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int = Poll(count) [];
        wait fn __ppoll_chk(files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int = Poll(count) [];
        wait fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int = Select(count) [];
        wait fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int = Select(count) [];
    }
}

/// The same, by which `Looper` waits.
mod loops {
    use super::*;
    use crate::framework::looper;

    function_of_table! { @ epoll_wait(poll: c_int, events: *mut epoll_event, room: c_int, timeout_ms: c_int) -> c_int {
        let count = function_of_table!(wait EpollWait, poll, None, call(poll, events, room, timeout_ms));
        looper::has_polled();
        count
    } }
    function_of_table! { @ epoll_pwait(poll: c_int, events: *mut epoll_event, room: c_int, timeout_ms: c_int, mask: *const sigset_t) -> c_int {
        let count = function_of_table!(wait EpollWait, poll, None, call(poll, events, room, timeout_ms, mask));
        looper::has_polled();
        count
    } }

    pub(super) const FUNCTIONS: &[Function] = stackbeat_core::by_hand! { epoll_wait epoll_pwait };
}

lists! {
    posix_allocation;
    linux_allocation;
    posix_mapping;
    linux_mapping;
    posix_io;
    linux_io;
    posix_net;
    linux_net;
    posix_locks;
    linux_locks with posix_locks;
    posix_waits;
    linux_waits with posix_waits;
    posix_sleeps;
    linux_sleeps;
    posix_clocks;
    posix_threads;
    linux_threads;
    posix_processes;
}

/// The names of a function that bionic may have.
pub fn names(function: &'static Function) -> impl Iterator<Item = &'static str> {
    let aliases = function
        .aliases
        .iter()
        .filter(|(system, _)| *system == "linux");
    [function.name]
        .into_iter()
        .chain(aliases.map(|(_, name)| *name))
}
