//! Condition variables, semaphores, barriers, System V and POSIX queues, and waiting for a signal.

use crate::interrupted::Handlers;
use crate::objects::round_of;
use crate::signal::crash;
use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use core::mem::zeroed;
use core::ptr::null;
use libc::{
    CLOCK_REALTIME, clockid_t, mqd_t, pthread_barrier_t, pthread_cond_t, pthread_mutex_t, sem_t,
    sembuf, siginfo_t, sigset_t, size_t, ssize_t, timespec,
};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::SystemCall;

stackbeat_core::posix_waits! { hooks }
stackbeat_core::linux_waits! { hooks }

hooks! {
    wait fn mq_receive(queue: mqd_t, message: *mut c_char, bytes: size_t, priority: *mut c_uint) -> ssize_t = QueueReceive(queue) [];
    wait fn mq_timedreceive(queue: mqd_t, message: *mut c_char, bytes: size_t, priority: *mut c_uint, deadline: *const timespec) -> ssize_t = QueueReceive(queue) [];
    wait fn mq_send(queue: mqd_t, message: *const c_char, bytes: size_t, priority: c_uint) -> c_int = QueueSend(queue) [moves all(bytes)];
    wait fn mq_timedsend(queue: mqd_t, message: *const c_char, bytes: size_t, priority: c_uint, deadline: *const timespec) -> c_int = QueueSend(queue) [moves all(bytes)];
}

original!(fn raise(signal: c_int) -> c_int = SignalWait);
/// A wait: while one of our signals pends in a thread that blocks it, the kernel would drop the thread's own.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn raise(signal: c_int) -> c_int {
    // SAFETY: the caller's argument, passed on.
    let call = || unsafe { raise::call(signal) };
    if crash::is_ours(signal) {
        agent::count(SystemCall::Signal);
        return crash::send_to_itself(signal, call);
    }
    if !agent::hit_quietly() {
        raise::called();
    }
    let wait = agent::begin_wait(Probe::SignalWait, signal as u64);
    let result = call();
    wait.end(result.into());
    result
}

/// The calls that take a signal. Where the condition holds for their result, one came.
macro_rules! signal_waits {
    ($($name:ident($($arg:ident: $type:ty),*) came if |$result:ident| $came:expr;)*) => {$(
        original!(fn $name($($arg: $type),*) -> c_int = SignalWait);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            if !agent::hit_quietly() {
                $name::called();
            }
            let wait = agent::begin_wait_for(Probe::SignalWait, 0, agent::written(agent::signals()));
            // SAFETY: the caller's arguments, passed on.
            let $result = unsafe { $name::call($($arg),*) };
            let came = $came;
            wait.end(if came { 0 } else { $result.into() });
            $result
        }
    )*};
}

signal_waits! {
    sigwait(set: *const sigset_t, signal: *mut c_int) came if |result| result == 0;
    sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) came if |result| result > 0;
    sigtimedwait(set: *const sigset_t, info: *mut siginfo_t, timeout: *const timespec) came if |result| result > 0;
}

/// The calls that wait for a handler to run, and always fail. `under`: the signals that they block meanwhile.
macro_rules! handler_waits {
    ($($name:ident($($arg:ident: $type:ty)?) under $mask:expr;)*) => {$(
        original!(fn $name($($arg: $type)?) -> c_int = SignalWait);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type)?) -> c_int {
            let handlers = Handlers::so_far();
            if !agent::hit_quietly() {
                $name::called();
            }
            let wait = agent::begin_wait_for(Probe::SignalWait, 0, agent::written(agent::signals()));
            // SAFETY: the caller's argument, passed on.
            let result = unsafe { handlers.run_masked($mask, || $name::call($($arg)?)) };
            wait.end(if result == -1 { 0 } else { result.into() });
            result
        }
    )*};
}

handler_waits! {
    sigsuspend(mask: *const sigset_t) under mask;
    __sigsuspend(mask: *const sigset_t) under mask;
    sigpause(mask: c_int) under &first_signals(mask);
    __xpg_sigpause(signal: c_int) under null();
    pause() under null();
}

/// A set of these of the signals 1 to 32; signal 1 is bit 0.
fn first_signals(mask: c_int) -> sigset_t {
    // SAFETY: zeros are a valid set, which begins with the word of signals 1 to 64 (glibc's
    // <bits/types/__sigset_t.h>).
    unsafe {
        let mut set: sigset_t = zeroed();
        (&raw mut set).cast::<u64>().write(u64::from(mask as u32));
        set
    }
}

original!(fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int = BarrierWait);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    if !agent::hit_quietly() {
        pthread_barrier_wait::called();
    }
    // SAFETY: the caller's argument, a barrier.
    let round = unsafe { round_of(barrier) };
    let wake = agent::is_awaited(round.id)
        .then(|| agent::announce(&[round.id], round.is_shared, round.how));
    let wait = agent::begin_wait_for(Probe::BarrierWait, barrier as u64, round);
    // SAFETY: the caller's argument, passed on.
    let result = unsafe { pthread_barrier_wait::call(barrier) };
    wait.end(result as i64);
    if let Some(wake) = wake {
        wake.end(Probe::BarrierWait, barrier as u64);
    }
    result
}

// On x86-64 glibc still has the condition variables of its first years beside those of today.
#[cfg(target_arch = "x86_64")]
versions! {
    pthread_cond_wait = "GLIBC_2.3.2";
    pthread_cond_timedwait = "GLIBC_2.3.2";
    pthread_cond_signal = "GLIBC_2.3.2";
    pthread_cond_broadcast = "GLIBC_2.3.2";
}
