//! Mutexes, reader-writer locks and spin locks.
//!
//! A lock is tried first: only a failed try is a wait. The try functions treat recursive,
//! error-checking, robust and priority locks as the locking ones do, except that they answer EBUSY
//! where those would wait or report a deadlock; then the locking function itself decides.

use core::ffi::c_int;
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, EBUSY, clockid_t, pthread_mutex_t, pthread_rwlock_t,
    pthread_spinlock_t, timespec,
};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

/// Whether a deadline is one that the timed functions accept: some of them look at it before they look
/// at the lock, and then a try must not hide their EINVAL.
///
/// # Safety
/// `deadline` is what the caller gave as one.
#[inline(always)]
pub(crate) unsafe fn valid(clock: clockid_t, deadline: *const timespec) -> bool {
    // SAFETY: by contract.
    let in_second = || unsafe { (0..1_000_000_000).contains(&(*deadline).tv_nsec) };
    matches!(clock, CLOCK_REALTIME | CLOCK_MONOTONIC) && !deadline.is_null() && in_second()
}

unsafe extern "C" {
    /// glibc 2.32: not 0 as long as the process has one thread.
    static __libc_single_threaded: core::ffi::c_char;
}

/// Whether nobody can be waited for: the process has one thread, and the lock is free. In this state
/// glibc's lock does without an atomic instruction, its try does not.
///
/// # Safety
/// `lock` is what the caller gave as a mutex.
#[inline(always)]
unsafe fn alone_with(lock: *const pthread_mutex_t) -> bool {
    // SAFETY: the first word of a pthread_mutex_t is its futex (glibc's <bits/struct_mutex.h>).
    unsafe { __libc_single_threaded != 0 && *lock.cast::<c_int>() == 0 }
}

/// `thrd_busy` of glibc's <threads.h>.
const THRD_BUSY: c_int = 1;

hooks! {
    lock fn pthread_mutex_lock(lock: *mut pthread_mutex_t) -> c_int = MutexLock, lock, try pthread_mutex_trylock(lock) busy EBUSY, if !alone_with(lock);
    lock fn __pthread_mutex_lock(lock: *mut pthread_mutex_t) -> c_int = MutexLock, lock, try pthread_mutex_trylock(lock) busy EBUSY;
    lock fn pthread_mutex_timedlock(lock: *mut pthread_mutex_t, deadline: *const timespec) -> c_int = MutexLock, lock, try pthread_mutex_trylock(lock) busy EBUSY;
    lock fn pthread_mutex_clocklock(lock: *mut pthread_mutex_t, clock: clockid_t, deadline: *const timespec) -> c_int = MutexLock, lock, try pthread_mutex_trylock(lock) busy EBUSY, if valid(clock, deadline);
    hit fn pthread_mutex_trylock(lock: *mut pthread_mutex_t) -> c_int = MutexLock, lock;
    hit fn __pthread_mutex_trylock(lock: *mut pthread_mutex_t) -> c_int = MutexLock, lock;
    after fn pthread_mutex_unlock(lock: *mut pthread_mutex_t) -> c_int = MutexUnlock, lock;
    after fn __pthread_mutex_unlock(lock: *mut pthread_mutex_t) -> c_int = MutexUnlock, lock;

    lock fn mtx_lock(lock: *mut pthread_mutex_t) -> c_int = MutexLock, lock, try mtx_trylock(lock) busy THRD_BUSY;
    lock fn mtx_timedlock(lock: *mut pthread_mutex_t, deadline: *const timespec) -> c_int = MutexLock, lock, try mtx_trylock(lock) busy THRD_BUSY;
    hit fn mtx_trylock(lock: *mut pthread_mutex_t) -> c_int = MutexLock, lock;
    after fn mtx_unlock(lock: *mut pthread_mutex_t) -> c_int = MutexUnlock, lock;

    lock fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockRead, lock, try pthread_rwlock_tryrdlock(lock) busy EBUSY;
    lock fn __pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockRead, lock, try pthread_rwlock_tryrdlock(lock) busy EBUSY;
    lock fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, deadline: *const timespec) -> c_int = RwlockRead, lock, try pthread_rwlock_tryrdlock(lock) busy EBUSY, if valid(CLOCK_REALTIME, deadline);
    lock fn pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t, deadline: *const timespec) -> c_int = RwlockRead, lock, try pthread_rwlock_tryrdlock(lock) busy EBUSY, if valid(clock, deadline);
    hit fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockRead, lock;
    lock fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockWrite, lock, try pthread_rwlock_trywrlock(lock) busy EBUSY;
    lock fn __pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockWrite, lock, try pthread_rwlock_trywrlock(lock) busy EBUSY;
    lock fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, deadline: *const timespec) -> c_int = RwlockWrite, lock, try pthread_rwlock_trywrlock(lock) busy EBUSY, if valid(CLOCK_REALTIME, deadline);
    lock fn pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t, deadline: *const timespec) -> c_int = RwlockWrite, lock, try pthread_rwlock_trywrlock(lock) busy EBUSY, if valid(clock, deadline);
    hit fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockWrite, lock;
    after fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockUnlock, lock;
    after fn __pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockUnlock, lock;

    lock fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int = SpinLock, lock, try pthread_spin_trylock(lock) busy EBUSY;
    hit fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int = SpinLock, lock;
}
