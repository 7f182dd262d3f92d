//! What Darwin says of locks, threads and descriptors.

use core::ffi::c_int;
use libc::{
    clockid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_t, sem_t, timespec,
};
use stackbeat_core::agent::{self, Awaited, Wake};
use stackbeat_core::ids::Tid;
use stackbeat_core::posix::{Descriptor, Object, Objects};
use stackbeat_core::shm::waiters::How;

/// Knows objects by their addresses. The owner of a mutex is a field of libpthread's own, so it is not read. Descriptors are not
/// followed to what they are of.
pub(super) struct Darwin;

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

impl Objects for Darwin {
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
    #[allow(clippy::unnecessary_cast, reason = "another type on Apple's systems")]
    unsafe fn thread(thread: pthread_t) -> impl Object {
        Address(thread as u64, How::Wake(1))
    }
    fn descriptor(_file: c_int) -> impl Descriptor {
        Unknown
    }
    unsafe fn accepts(_clock: clockid_t, deadline: *const timespec) -> bool {
        // SAFETY: by contract.
        !deadline.is_null() && unsafe { (0..1_000_000_000).contains(&(*deadline).tv_nsec) }
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
        agent::announce(&[], false, How::Release)
    }
    fn forget(self) {}
    fn opened(self) {}
}
