//! Mutexes, reader-writer locks and spin locks.
//!
//! A lock is tried first: only a failed try is a wait. The try functions treat recursive,
//! error-checking, robust and priority locks as the locking ones do, except that they answer EBUSY
//! where those would wait or report a deadlock; then the locking function itself decides.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, EBUSY, clockid_t, pthread_mutex_t, pthread_rwlock_t,
    pthread_spinlock_t, timespec,
};
use stackbeat_core::agent::{self, Awaited};
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::waiters::{self, How};

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

/// A word of a lock or the like. The offsets below are those of the 64-bit ABIs (glibc's <bits/struct_mutex.h> and
/// <bits/struct_rwlock.h>), which never change.
///
/// # Safety
/// `lock` is what the caller gave as a lock, `offset` lies in it.
#[inline(always)]
pub(crate) unsafe fn word<T>(lock: *const T, offset: usize) -> u32 {
    // SAFETY: by contract; the word is aligned, and other threads store to it atomically.
    unsafe { (*lock.byte_add(offset).cast::<AtomicU32>()).load(Ordering::Relaxed) }
}

/// `__kind` of a mutex has this bit when processes share it: `PTHREAD_MUTEX_PSHARED_BIT`.
const SHARED_MUTEX: u32 = 128;

/// # Safety
/// That of [`word`].
pub(crate) unsafe fn is_shared_mutex(lock: *const pthread_mutex_t) -> bool {
    // SAFETY: by contract. `__kind`.
    unsafe { word(lock, 16) & SHARED_MUTEX != 0 }
}

/// # Safety
/// That of [`word`].
unsafe fn mutex(lock: *const pthread_mutex_t) -> Awaited {
    Awaited {
        id: lock as u64,
        // SAFETY: by contract.
        is_shared: unsafe { is_shared_mutex(lock) },
        // SAFETY: by contract. `__owner`.
        owner_tid: unsafe { word(lock, 8) },
        how: How::Release,
    }
}

/// # Safety
/// That of [`word`].
unsafe fn is_shared_rwlock(lock: *const pthread_rwlock_t) -> bool {
    // SAFETY: by contract. `__shared`.
    unsafe { word(lock, 28) != 0 }
}

/// The tid of the thread that holds it to write, 0: none.
///
/// # Safety
/// That of [`word`].
#[inline(always)]
unsafe fn writer(lock: *const pthread_rwlock_t) -> u32 {
    // SAFETY: by contract. `__cur_writer`.
    unsafe { word(lock, 24) }
}

/// # Safety
/// That of [`word`].
unsafe fn rwlock_to_write(lock: *const pthread_rwlock_t) -> Awaited {
    Awaited {
        id: lock as u64,
        // SAFETY: by contract.
        is_shared: unsafe { is_shared_rwlock(lock) },
        // SAFETY: by contract.
        owner_tid: unsafe { writer(lock) },
        how: How::Release,
    }
}

/// # Safety
/// That of [`word`].
unsafe fn rwlock_to_read(lock: *const pthread_rwlock_t) -> Awaited {
    Awaited {
        id: waiters::shared(lock as u64),
        // SAFETY: by contract.
        ..unsafe { rwlock_to_write(lock) }
    }
}

/// What the holder of a rwlock lets go of: who wrote, also of what readers wait for.
///
/// # Safety
/// That of [`word`].
#[inline(always)]
unsafe fn released(lock: *const pthread_rwlock_t) -> [u64; 2] {
    let lock_id = lock as u64;
    // SAFETY: by contract. A writer is there only while it holds the lock alone.
    match unsafe { writer(lock) } {
        0 => [lock_id; 2],
        _ => [lock_id, waiters::shared(lock_id)],
    }
}

/// `thrd_busy` of glibc's <threads.h>.
const THRD_BUSY: c_int = 1;

hooks! {
    lock fn pthread_mutex_lock(lock: *mut pthread_mutex_t) -> c_int = MutexLock(lock) [try pthread_mutex_trylock(lock) busy EBUSY, for mutex(lock), if !alone_with(lock)];
    lock fn __pthread_mutex_lock(lock: *mut pthread_mutex_t) -> c_int = MutexLock(lock) [try pthread_mutex_trylock(lock) busy EBUSY, for mutex(lock)];
    lock fn pthread_mutex_timedlock(lock: *mut pthread_mutex_t, deadline: *const timespec) -> c_int = MutexLock(lock) [try pthread_mutex_trylock(lock) busy EBUSY, for mutex(lock)];
    lock fn pthread_mutex_clocklock(lock: *mut pthread_mutex_t, clock: clockid_t, deadline: *const timespec) -> c_int = MutexLock(lock) [try pthread_mutex_trylock(lock) busy EBUSY, for mutex(lock), if valid(clock, deadline)];
    hit fn pthread_mutex_trylock(lock: *mut pthread_mutex_t) -> c_int = MutexLock(lock);
    hit fn __pthread_mutex_trylock(lock: *mut pthread_mutex_t) -> c_int = MutexLock(lock);
    release fn pthread_mutex_unlock(lock: *mut pthread_mutex_t) -> c_int = MutexUnlock(lock) [of [lock as u64], shared is_shared_mutex(lock), by How::Release];
    release fn __pthread_mutex_unlock(lock: *mut pthread_mutex_t) -> c_int = MutexUnlock(lock) [of [lock as u64], shared is_shared_mutex(lock), by How::Release];

    lock fn mtx_lock(lock: *mut pthread_mutex_t) -> c_int = MutexLock(lock) [try mtx_trylock(lock) busy THRD_BUSY, for mutex(lock)];
    lock fn mtx_timedlock(lock: *mut pthread_mutex_t, deadline: *const timespec) -> c_int = MutexLock(lock) [try mtx_trylock(lock) busy THRD_BUSY, for mutex(lock)];
    hit fn mtx_trylock(lock: *mut pthread_mutex_t) -> c_int = MutexLock(lock);
    release fn mtx_unlock(lock: *mut pthread_mutex_t) -> c_int = MutexUnlock(lock) [of [lock as u64], shared is_shared_mutex(lock), by How::Release];

    lock fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockRead(lock) [try pthread_rwlock_tryrdlock(lock) busy EBUSY, for rwlock_to_read(lock)];
    lock fn __pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockRead(lock) [try pthread_rwlock_tryrdlock(lock) busy EBUSY, for rwlock_to_read(lock)];
    lock fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, deadline: *const timespec) -> c_int = RwlockRead(lock) [try pthread_rwlock_tryrdlock(lock) busy EBUSY, for rwlock_to_read(lock), if valid(CLOCK_REALTIME, deadline)];
    lock fn pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t, deadline: *const timespec) -> c_int = RwlockRead(lock) [try pthread_rwlock_tryrdlock(lock) busy EBUSY, for rwlock_to_read(lock), if valid(clock, deadline)];
    hit fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockRead(lock);
    lock fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockWrite(lock) [try pthread_rwlock_trywrlock(lock) busy EBUSY, for rwlock_to_write(lock)];
    lock fn __pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockWrite(lock) [try pthread_rwlock_trywrlock(lock) busy EBUSY, for rwlock_to_write(lock)];
    lock fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, deadline: *const timespec) -> c_int = RwlockWrite(lock) [try pthread_rwlock_trywrlock(lock) busy EBUSY, for rwlock_to_write(lock), if valid(CLOCK_REALTIME, deadline)];
    lock fn pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t, deadline: *const timespec) -> c_int = RwlockWrite(lock) [try pthread_rwlock_trywrlock(lock) busy EBUSY, for rwlock_to_write(lock), if valid(clock, deadline)];
    hit fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockWrite(lock);
    release fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockUnlock(lock) [of released(lock), shared is_shared_rwlock(lock), by How::Release];
    release fn __pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockUnlock(lock) [of released(lock), shared is_shared_rwlock(lock), by How::Release];

    lock fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int = SpinLock(lock) [try pthread_spin_trylock(lock) busy EBUSY];
    hit fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int = SpinLock(lock);
}
