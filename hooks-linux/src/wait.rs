//! Condition variables, semaphores, barriers, System V and POSIX queues, and waiting for a signal.

use crate::lock::valid;
use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use libc::{
    CLOCK_REALTIME, clockid_t, mqd_t, pthread_barrier_t, pthread_cond_t, pthread_mutex_t, sem_t,
    sembuf, siginfo_t, sigset_t, size_t, ssize_t, timespec,
};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

hooks! {
    wait fn pthread_cond_wait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t) -> c_int = CondWait, condition;
    wait fn pthread_cond_timedwait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t, deadline: *const timespec) -> c_int = CondWait, condition;
    wait fn pthread_cond_clockwait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t, clock: clockid_t, deadline: *const timespec) -> c_int = CondWait, condition;
    after fn pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int = CondSignal, condition;
    after fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int = CondSignal, condition;
    wait fn cnd_wait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t) -> c_int = CondWait, condition;
    wait fn cnd_timedwait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t, deadline: *const timespec) -> c_int = CondWait, condition;
    after fn cnd_signal(condition: *mut pthread_cond_t) -> c_int = CondSignal, condition;
    after fn cnd_broadcast(condition: *mut pthread_cond_t) -> c_int = CondSignal, condition;

    hit fn sem_trywait(semaphore: *mut sem_t) -> c_int = SemWait, semaphore;
    after fn sem_post(semaphore: *mut sem_t) -> c_int = SemPost, semaphore;
    wait fn semop(set: c_int, operations: *mut sembuf, count: size_t) -> c_int = SemWait, set;
    wait fn semtimedop(set: c_int, operations: *mut sembuf, count: size_t, timeout: *const timespec) -> c_int = SemWait, set;

    wait fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int = BarrierWait, barrier;

    wait fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int = SignalWait, 0;
    wait fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int = SignalWait, 0;
    wait fn sigtimedwait(set: *const sigset_t, info: *mut siginfo_t, timeout: *const timespec) -> c_int = SignalWait, 0;
    wait fn sigsuspend(mask: *const sigset_t) -> c_int = SignalWait, 0;
    wait fn __sigsuspend(mask: *const sigset_t) -> c_int = SignalWait, 0;
    wait fn sigpause(mask: c_int) -> c_int = SignalWait, 0;
    wait fn __xpg_sigpause(signal: c_int) -> c_int = SignalWait, signal;
    wait fn pause() -> c_int = SignalWait, 0;

    wait fn msgrcv(queue: c_int, message: *mut c_void, bytes: size_t, kind: c_long, flags: c_int) -> ssize_t = Read, queue;
    wait fn msgsnd(queue: c_int, message: *const c_void, bytes: size_t, flags: c_int) -> c_int = Write, queue;
    wait fn mq_receive(queue: mqd_t, message: *mut c_char, bytes: size_t, priority: *mut c_uint) -> ssize_t = Read, queue;
    wait fn mq_timedreceive(queue: mqd_t, message: *mut c_char, bytes: size_t, priority: *mut c_uint, deadline: *const timespec) -> ssize_t = Read, queue;
    wait fn mq_send(queue: mqd_t, message: *const c_char, bytes: size_t, priority: c_uint) -> c_int = Write, queue;
    wait fn mq_timedsend(queue: mqd_t, message: *const c_char, bytes: size_t, priority: c_uint, deadline: *const timespec) -> c_int = Write, queue;
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// The semaphore waits, which try first. POSIX makes them cancellation points even if they do not
/// wait, and a failed try leaves its EAGAIN in errno.
macro_rules! semaphore_waits {
    ($($name:ident($first:ident: $first_type:ty $(, $arg:ident: $type:ty)*) if $valid:expr;)*) => {$(
        original!(fn $name($first: $first_type $(, $arg: $type)*) -> c_int);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($first: $first_type $(, $arg: $type)*) -> c_int {
            agent::hit(Probe::SemWait, $first as u64);
            // SAFETY: the caller's arguments, passed on; errno of the calling thread is always there.
            unsafe {
                if !$valid {
                    return $name::call($first $(, $arg)*);
                }
                pthread_testcancel();
                let error = *libc::__errno_location();
                if sem_trywait::call($first) == 0 {
                    return 0;
                }
                *libc::__errno_location() = error;
                let wait = agent::begin_wait(Probe::SemWait, $first as u64);
                let result = $name::call($first $(, $arg)*);
                wait.end(result as i64);
                result
            }
        }
    )*};
}

semaphore_waits! {
    sem_wait(semaphore: *mut sem_t) if true;
    sem_timedwait(semaphore: *mut sem_t, deadline: *const timespec) if valid(CLOCK_REALTIME, deadline);
    sem_clockwait(semaphore: *mut sem_t, clock: clockid_t, deadline: *const timespec) if valid(clock, deadline);
}

// On x86-64 glibc still has the condition variables of its first years beside those of today.
#[cfg(target_arch = "x86_64")]
versions! {
    pthread_cond_wait = "GLIBC_2.3.2";
    pthread_cond_timedwait = "GLIBC_2.3.2";
    pthread_cond_signal = "GLIBC_2.3.2";
    pthread_cond_broadcast = "GLIBC_2.3.2";
}
