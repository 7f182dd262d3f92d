//! `os_unfair_lock`: a word that holds the port of the thread that has it.
//!
//! Source: os/lock.h of libplatform (`os_unfair_lock_lock_with_flags` since macOS 15), and its src/os/lock.c:
//! the owner is the word with its lowest bit set, which is clear while somebody waits
//! (`OS_ULOCK_NOWAITERS_BIT`). Swift's `OSAllocatedUnfairLock` and `Mutex` use these functions.

use super::*;
use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use stackbeat_core::function_of_table;

use super::symbols::THREAD_INFO;

/// xnu, bsd/sys/ulock.h, `ulock_owner_value_to_port_name`: the two lowest bits of a port are set, and locks
/// use them.
const FLAGS: u32 = 3;
/// mach/thread_info.h, `THREAD_IDENTIFIER_INFO` and its size in words of four bytes.
const IDENTIFIER_INFO: c_int = 4;
const IDENTIFIER_INFO_COUNT: u32 = 6;

/// The thread that has a lock, by the value of the lock's word: one message to the kernel.
pub(super) fn owner_of(value: u32) -> Tid {
    type ThreadInfo = unsafe extern "C" fn(u32, c_int, *mut u64, *mut u32) -> c_int;
    if value & !FLAGS == 0 {
        return Tid(0);
    }
    // The first of `struct thread_identifier_info` is the thread's number.
    let mut info = [0u64; 3];
    let mut count = IDENTIFIER_INFO_COUNT;
    // SAFETY: the type of mach/thread_act.h; there is room for what is written.
    let result = unsafe {
        let Some(thread_info) = THREAD_INFO.get::<ThreadInfo>() else {
            return Tid(0);
        };
        thread_info(
            value | FLAGS,
            IDENTIFIER_INFO,
            info.as_mut_ptr(),
            &raw mut count,
        )
    };
    match result {
        0 => Tid(info[0] as u32),
        _ => Tid(0),
    }
}

/// The owner of a lock that a thread is about to wait for.
///
/// # Safety
/// The caller's lock.
unsafe fn awaited(lock: *mut u32) -> Awaited {
    // SAFETY: by contract; others change it meanwhile.
    let value = unsafe { AtomicU32::from_ptr(lock) }.load(Ordering::Relaxed);
    at(lock as u64, owner_of(value), How::Release)
}

macro_rules! locks {
    ($($name:ident($($more:ident: $type:ty)?);)*) => {
        $(function_of_table! { @ $name(lock: *mut u32 $(, $more: $type)?) -> () {
            agent::hit(Probe::UnfairLock, lock as u64);
            // A system that has the one has the other.
            if !is_there(&os_unfair_lock_trylock::ORIGINAL) {
                return call(lock $(, $more)?);
            }
            if os_unfair_lock_trylock::call(lock) {
                return;
            }
            // A thread that has it already is ended by the function itself.
            let wait = agent::begin_wait_for(Probe::UnfairLock, lock as u64, awaited(lock));
            call(lock $(, $more)?);
            wait.end(0);
        } })*
    };
}
locks! {
    os_unfair_lock_lock();
    os_unfair_lock_lock_with_options(options: u32);
    os_unfair_lock_lock_with_flags(flags: u32);
}

function_of_table! { @ os_unfair_lock_trylock(lock: *mut u32) -> bool {
    agent::hit(Probe::UnfairLock, lock as u64);
    call(lock)
} }

function_of_table! { @ os_unfair_lock_unlock(lock: *mut u32) -> () {
    release(Probe::UnfairUnlock, lock as u64, How::Release, || call(lock))
} }

table! {
    os_unfair_lock_lock os_unfair_lock_lock_with_options os_unfair_lock_lock_with_flags os_unfair_lock_trylock os_unfair_lock_unlock
}
