//! Mutexes, reader-writer locks and spin locks.

use core::ffi::c_int;
use libc::{
    CLOCK_REALTIME, EBUSY, clockid_t, pthread_mutex_t, pthread_rwlock_t, pthread_spinlock_t,
    timespec,
};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

/// `thrd_busy` of glibc's <threads.h>.
const THRD_BUSY: c_int = 1;

stackbeat_core::posix_locks! { hooks }
stackbeat_core::linux_locks! { hooks }
