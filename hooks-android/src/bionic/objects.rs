//! What locks, threads and descriptors are to the hooks: addresses.
//!
//! bionic keeps the owner of a normal mutex nowhere (`pthread_mutex_internal_t` in bionic's `pthread_mutex.cpp` has a word for
//! recursive and error-checking ones only), so a lock's owner is not known. Who ended a wait is: the one that lets go says the
//! lock's address.

use core::ffi::c_int;

use libc::{
    clockid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_t, sem_t, timespec,
};
use stackbeat_core::agent::{Awaited, Wake};
use stackbeat_core::ids::Tid;
use stackbeat_core::posix::{Descriptor, Object, Objects};
use stackbeat_core::shm::waiters::How;

/// The objects of bionic.
pub(super) struct Here;

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

/// Nothing is known of descriptors, so nobody is named who ended a `read`.
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
        Address(0, How::Release).announce(How::Release)
    }
    fn closes(self) -> Wake {
        self.writes()
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
    #[allow(clippy::unnecessary_cast, reason = "a signed number in bionic")]
    unsafe fn thread(thread: pthread_t) -> impl Object {
        Address(thread as u64, How::Wake(1))
    }
    fn descriptor(_file: c_int) -> impl Descriptor {
        Unknown
    }
    /// bionic looks at a deadline only when it waits, so a try hides no error of a lock that is free. One that is not a time at all
    /// is left to it.
    unsafe fn accepts(_clock: clockid_t, deadline: *const timespec) -> bool {
        // SAFETY: what the caller of the hook gave as a deadline.
        !deadline.is_null() && (0..1_000_000_000).contains(unsafe { &(*deadline).tv_nsec })
    }
}
