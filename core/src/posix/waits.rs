//! Condition variables, semaphores, System V queues. `mod.rs` says what a line means.

/// Conditions, semaphores and queues: what all platforms have.
#[macro_export]
macro_rules! posix_waits {
    ($emit:ident) => {
        $emit! {
            release fn pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int = CondSignal(condition) [condition(condition), by Wake(1)];
            release fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int = CondSignal(condition) [condition(condition), by Wake(u32::MAX)];
            wait fn pthread_cond_wait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t) -> c_int = CondWait(condition) [for condition(condition), releases mutex(lock)];
            wait fn pthread_cond_timedwait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t, deadline: *const timespec) -> c_int = CondWait(condition) [for condition(condition), releases mutex(lock)];
            hit fn sem_trywait(semaphore: *mut sem_t) -> c_int = SemWait(semaphore) [];
            lock fn sem_wait(semaphore: *mut sem_t) -> c_int = SemWait(semaphore) [try sem_trywait(semaphore) cancellable, for semaphore(semaphore)];
            release fn sem_post(semaphore: *mut sem_t) -> c_int = SemPost(semaphore) [semaphore(semaphore), by Wake(1)];
            wait fn semop(set: c_int, operations: *mut sembuf, count: size_t) -> c_int = SemaphoreSet(set) [ended by handlers];
            wait fn msgrcv(queue: c_int, message: *mut c_void, bytes: size_t, kind: c_long, flags: c_int) -> ssize_t = MessageReceive(queue) [ended by handlers];
            wait fn msgsnd(queue: c_int, message: *const c_void, bytes: size_t, flags: c_int) -> c_int = MessageSend(queue) [ended by handlers, moves all(bytes)];
        }
    };
}

/// Conditions, semaphores and queues: what glibc and bionic have.
#[macro_export]
macro_rules! linux_waits {
    ($emit:ident) => {
        $emit! {
            release fn cnd_signal(condition: *mut pthread_cond_t) -> c_int = CondSignal(condition) [condition(condition), by Wake(1)];
            release fn cnd_broadcast(condition: *mut pthread_cond_t) -> c_int = CondSignal(condition) [condition(condition), by Wake(u32::MAX)];
            wait fn pthread_cond_clockwait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t, clock: clockid_t, deadline: *const timespec) -> c_int = CondWait(condition) [for condition(condition), releases mutex(lock)];
            wait fn cnd_wait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t) -> c_int = CondWait(condition) [for condition(condition), releases mutex(lock)];
            wait fn cnd_timedwait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t, deadline: *const timespec) -> c_int = CondWait(condition) [for condition(condition), releases mutex(lock)];
            lock fn sem_timedwait(semaphore: *mut sem_t, deadline: *const timespec) -> c_int = SemWait(semaphore) [try sem_trywait(semaphore) cancellable, for semaphore(semaphore), if accepts(CLOCK_REALTIME, deadline)];
            lock fn sem_clockwait(semaphore: *mut sem_t, clock: clockid_t, deadline: *const timespec) -> c_int = SemWait(semaphore) [try sem_trywait(semaphore) cancellable, for semaphore(semaphore), if accepts(clock, deadline)];
            wait fn semtimedop(set: c_int, operations: *mut sembuf, count: size_t, timeout: *const timespec) -> c_int = SemaphoreSet(set) [ended by handlers];
        }
    };
}
