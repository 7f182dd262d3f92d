//! Mutexes, reader-writer locks and spin locks. `mod.rs` says what a line means.
//!
//! A lock is tried first: only a failed try is a wait. The try functions treat recursive, error-checking,
//! robust and priority locks as the locking ones do, except that they answer EBUSY where those would wait or
//! report a deadlock. Then the locking function itself decides.

/// Locks: what all platforms have.
#[macro_export]
macro_rules! posix_locks {
    ($emit:ident) => {
        $emit! {
            lock fn pthread_mutex_lock(lock: *mut pthread_mutex_t) -> c_int = MutexLock(lock) [try pthread_mutex_trylock(lock) busy EBUSY, for mutex(lock), if may_be_held(lock)] aka glibc [__pthread_mutex_lock];
            hit fn pthread_mutex_trylock(lock: *mut pthread_mutex_t) -> c_int = MutexLock(lock) [] aka glibc [__pthread_mutex_trylock];
            release fn pthread_mutex_unlock(lock: *mut pthread_mutex_t) -> c_int = MutexUnlock(lock) [mutex(lock), by Release] aka glibc [__pthread_mutex_unlock];
            lock fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockRead(lock) [try pthread_rwlock_tryrdlock(lock) busy EBUSY, for rwlock_read(lock)] aka glibc [__pthread_rwlock_rdlock];
            hit fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockRead(lock) [];
            lock fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockWrite(lock) [try pthread_rwlock_trywrlock(lock) busy EBUSY, for rwlock(lock)] aka glibc [__pthread_rwlock_wrlock];
            hit fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockWrite(lock) [];
            release fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int = RwlockUnlock(lock) [rwlock(lock), by Release] aka glibc [__pthread_rwlock_unlock];
        }
    };
}

/// Locks: what glibc and bionic have.
#[macro_export]
macro_rules! linux_locks {
    ($emit:ident) => {
        $emit! {
            lock fn pthread_mutex_timedlock(lock: *mut pthread_mutex_t, deadline: *const timespec) -> c_int = MutexLock(lock) [try pthread_mutex_trylock(lock) busy EBUSY, for mutex(lock)];
            lock fn pthread_mutex_clocklock(lock: *mut pthread_mutex_t, clock: clockid_t, deadline: *const timespec) -> c_int = MutexLock(lock) [try pthread_mutex_trylock(lock) busy EBUSY, for mutex(lock), if accepts(clock, deadline)];
            lock fn mtx_lock(lock: *mut pthread_mutex_t) -> c_int = MutexLock(lock) [try mtx_trylock(lock) busy THRD_BUSY, for mutex(lock)];
            lock fn mtx_timedlock(lock: *mut pthread_mutex_t, deadline: *const timespec) -> c_int = MutexLock(lock) [try mtx_trylock(lock) busy THRD_BUSY, for mutex(lock)];
            hit fn mtx_trylock(lock: *mut pthread_mutex_t) -> c_int = MutexLock(lock) [];
            release fn mtx_unlock(lock: *mut pthread_mutex_t) -> c_int = MutexUnlock(lock) [mutex(lock), by Release];
            lock fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, deadline: *const timespec) -> c_int = RwlockRead(lock) [try pthread_rwlock_tryrdlock(lock) busy EBUSY, for rwlock_read(lock), if accepts(CLOCK_REALTIME, deadline)];
            lock fn pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t, deadline: *const timespec) -> c_int = RwlockRead(lock) [try pthread_rwlock_tryrdlock(lock) busy EBUSY, for rwlock_read(lock), if accepts(clock, deadline)];
            lock fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, deadline: *const timespec) -> c_int = RwlockWrite(lock) [try pthread_rwlock_trywrlock(lock) busy EBUSY, for rwlock(lock), if accepts(CLOCK_REALTIME, deadline)];
            lock fn pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t, deadline: *const timespec) -> c_int = RwlockWrite(lock) [try pthread_rwlock_trywrlock(lock) busy EBUSY, for rwlock(lock), if accepts(clock, deadline)];
            lock fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int = SpinLock(lock) [try pthread_spin_trylock(lock) busy EBUSY];
            hit fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int = SpinLock(lock) [];
        }
    };
}
