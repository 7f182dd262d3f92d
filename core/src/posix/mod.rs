//! What hooks of POSIX calls have in common on all platforms: what a call waits for, what it ends, and what its result says.
//!
//! A platform says by [`Objects`] what it knows of locks, threads and descriptors. The code of a hook asks in these words and
//! knows nothing of a C library's layouts.

pub mod results;

use crate::agent::{self, Awaited, Wake};
use crate::shm::waiters::How;
use core::ffi::c_int;
use libc::{
    clockid_t, pid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_t, timespec,
};

/// The words by which the lines of a list name what a call's arguments are. Each gives an [`Object`] that is to be
/// used before the call returns.
pub trait Objects {
    /// A mutex.
    ///
    /// # Safety
    /// `lock` is what the caller of the hook gave as a mutex.
    unsafe fn mutex(lock: *const pthread_mutex_t) -> impl Object;

    /// A reader-writer lock, for one who waits for it alone and for one who lets go of it.
    ///
    /// # Safety
    /// `lock` is what the caller of the hook gave as a reader-writer lock.
    unsafe fn rwlock(lock: *const pthread_rwlock_t) -> impl Object;

    /// A reader-writer lock, for one who waits to read: all that do may have it at once.
    ///
    /// # Safety
    /// `lock` is what the caller of the hook gave as a reader-writer lock.
    unsafe fn rwlock_read(lock: *const pthread_rwlock_t) -> impl Object;

    /// A semaphore.
    ///
    /// # Safety
    /// `semaphore` is what the caller of the hook gave as a semaphore.
    unsafe fn semaphore(semaphore: *const libc::sem_t) -> impl Object;

    /// A condition variable.
    ///
    /// # Safety
    /// `condition` is what the caller of the hook gave as a condition variable.
    unsafe fn condition(condition: *const pthread_cond_t) -> impl Object;

    /// The end of a thread.
    ///
    /// # Safety
    /// `thread` is what the caller of the hook gave as a thread.
    unsafe fn thread(thread: pthread_t) -> impl Object;

    /// The end of a child process, of any one unless `pid` is above 0.
    ///
    /// # Safety
    /// None; the emitted code calls it beside others that have a contract.
    #[inline(always)]
    unsafe fn child(pid: pid_t) -> impl Object {
        Child(pid)
    }

    /// What is behind a descriptor.
    fn descriptor(file: c_int) -> impl Descriptor;

    /// Whether a mutex is worth a try. False: nobody can hold it, and the locking function is cheaper than a try.
    ///
    /// # Safety
    /// That of [`Objects::mutex`].
    #[inline(always)]
    unsafe fn may_be_held(_lock: *const pthread_mutex_t) -> bool {
        true
    }

    /// Whether timed functions accept a deadline. Some of them look at it before they look at the lock: then a try must not
    /// hide their EINVAL.
    ///
    /// # Safety
    /// `deadline` is what the caller of the hook gave as one.
    unsafe fn accepts(clock: clockid_t, deadline: *const timespec) -> bool;
}

/// Something that threads wait for until another one lets go of it.
pub trait Object: Copy {
    /// What a thread waits for that waits for it. May read the object.
    fn awaited(self) -> Awaited;

    /// What those wait for whose wait ends when it is let go of: as little work as possible, hooks ask this in each
    /// call.
    #[inline(always)]
    fn ids(self) -> impl AsRef<[u64]> {
        [self.awaited().id]
    }

    /// Whether a thread may wait for it.
    #[inline(always)]
    fn is_awaited(self) -> bool {
        self.ids().as_ref().iter().any(|id| agent::is_awaited(*id))
    }

    /// Before the call that lets go of it.
    #[inline(always)]
    fn announce(self, how: How) -> Wake {
        agent::announce(self.ids().as_ref(), self.awaited().is_shared, how)
    }
}

/// What is behind a descriptor, as far as threads wait for each other through it.
pub trait Descriptor: Copy {
    /// What a call waits for that reads or accepts, as [`agent::written`] takes it; `None`: for no other thread.
    fn read(self) -> Option<u64>;
    /// Whether a thread may wait for what is about to be written.
    fn is_awaited(self) -> bool;
    /// Something is about to be written.
    fn writes(self) -> Wake;
    /// It is about to be closed.
    fn closes(self) -> Wake;
    /// From here on its number means something else.
    fn forget(self);
    /// It is the result of a call that opened it by a path; negative: the call failed.
    fn opened(self);
}

/// The end of a child process.
#[derive(Clone, Copy)]
struct Child(pid_t);

impl Object for Child {
    #[inline(always)]
    fn awaited(self) -> Awaited {
        agent::end_of_child(self.0)
    }
}
