//! A second platform for the lists of `stackbeat_core::posix`: a table of functions, each with the name, the hook and the place
//! where the original is to be put. A library that rebinds symbols takes such a table.

use core::ffi::{c_char, c_int, c_long, c_void};
use libc::*;
use stackbeat_core::agent::{Awaited, Wake};
use stackbeat_core::function_table;
use stackbeat_core::ids::Tid;
use stackbeat_core::posix::function_table::Function;
use stackbeat_core::posix::{Descriptor, Object, Objects};
use stackbeat_core::shm::waiters::How;

use libc::stat as Stat;

/// All of them.
pub(super) fn functions() -> impl Iterator<Item = &'static Function> {
    let lists = [
        allocation::FUNCTIONS,
        mapping::FUNCTIONS,
        io::FUNCTIONS,
        net::FUNCTIONS,
        locks::FUNCTIONS,
        waits::FUNCTIONS,
        sleeps::FUNCTIONS,
        clocks::FUNCTIONS,
        threads::FUNCTIONS,
        processes::FUNCTIONS,
    ];
    lists.into_iter().flatten()
}

/// A platform that knows objects by their addresses only, and nothing of descriptors.
struct Here;

#[derive(Clone, Copy)]
struct Address(u64, How);

impl Object for Address {
    fn awaited(self) -> Awaited {
        Awaited {
            id: self.0,
            is_shared: false,
            owner_tid: Tid(0),
            how: self.1,
        }
    }
}

#[derive(Clone, Copy)]
struct Unknown;

impl Descriptor for Unknown {
    fn read(self) -> Option<u64> {
        None
    }
    fn is_awaited(self) -> bool {
        false
    }
    fn writes(self) -> Wake {
        unreachable!("nobody is known to wait")
    }
    fn closes(self) -> Wake {
        unreachable!("nobody is known to wait")
    }
    fn forget(self) {}
    fn opened(self) {}
}

impl Objects for Here {
    unsafe fn mutex(lock: *const pthread_mutex_t) -> impl Object {
        Address(lock as u64, How::Release)
    }
    unsafe fn rwlock(lock: *const pthread_rwlock_t) -> impl Object {
        Address(lock as u64, How::Release)
    }
    unsafe fn rwlock_read(lock: *const pthread_rwlock_t) -> impl Object {
        Address(lock as u64, How::Release)
    }
    unsafe fn semaphore(semaphore: *const sem_t) -> impl Object {
        Address(semaphore as u64, How::Wake(1))
    }
    unsafe fn condition(condition: *const pthread_cond_t) -> impl Object {
        Address(condition as u64, How::Wake(1))
    }
    unsafe fn thread(thread: pthread_t) -> impl Object {
        Address(thread, How::Wake(1))
    }
    fn descriptor(_file: c_int) -> impl Descriptor {
        Unknown
    }
    unsafe fn accepts(_clock: clockid_t, deadline: *const timespec) -> bool {
        !deadline.is_null()
    }
}

/// Each list in a module of its own.
macro_rules! lists {
    ($($module:ident = $list:ident;)*) => {$(
        mod $module {
            use super::*;
            stackbeat_core::$list! { function_table }
        }
    )*};
}

lists! {
    allocation = posix_allocation;
    mapping = posix_mapping;
    io = posix_io;
    net = posix_net;
    locks = posix_locks;
    waits = posix_waits;
    sleeps = posix_sleeps;
    clocks = posix_clocks;
    threads = posix_threads;
    processes = posix_processes;
}
