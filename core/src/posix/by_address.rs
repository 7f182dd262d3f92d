//! Locks and threads by their addresses, for systems whose C library says no more: bionic and Darwin.
//!
//! The owner of a mutex stands in no field that a hook may read: bionic keeps none for normal ones
//! (`pthread_mutex_internal_t` of its `pthread_mutex.cpp`), Darwin's is libpthread's own. Descriptors are not
//! followed to what is behind them, so nobody is named who ended a `read`. Who lets go of a lock is named:
//! they say its address.

use core::ffi::c_int;

use libc::{
    clockid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_t, sem_t, timespec,
};

use super::{Descriptor, Object, Objects};
use crate::agent::{self, Awaited, Wake};
use crate::ids::Tid;
use crate::shm::waiters::How;

/// Knows objects by their addresses.
#[derive(Debug)]
pub struct ByAddress;

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

/// A descriptor of which nothing is known.
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
        agent::announce(&[], false, How::Release)
    }
    fn closes(self) -> Wake {
        self.writes()
    }
    fn forget(self) {}
    fn opened(self) {}
}

impl Objects for ByAddress {
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
    #[allow(
        clippy::unnecessary_cast,
        reason = "signed in bionic, another type on Darwin"
    )]
    unsafe fn thread(thread: pthread_t) -> impl Object {
        Address(thread as u64, How::Wake(1))
    }
    fn descriptor(_file: c_int) -> impl Descriptor {
        Unknown
    }
    /// A deadline that is no time is left to the function.
    unsafe fn accepts(_clock: clockid_t, deadline: *const timespec) -> bool {
        // SAFETY: by contract.
        !deadline.is_null() && (0..1_000_000_000).contains(unsafe { &(*deadline).tv_nsec })
    }
}
