//! What glibc's locks, threads and descriptors are, in the words of `stackbeat_core::posix`.
//!
//! The offsets are those of the 64-bit ABIs, which never change: glibc's <bits/struct_mutex.h>,
//! <bits/struct_rwlock.h> and sysdeps/nptl/internaltypes.h.

use crate::descriptor;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, clockid_t, pthread_barrier_t, pthread_cond_t, pthread_mutex_t,
    pthread_rwlock_t, pthread_t, sem_t, timespec,
};
use stackbeat_core::agent::{Awaited, Wake};
use stackbeat_core::ids::Tid;
use stackbeat_core::posix::{Descriptor, Object, Objects};
use stackbeat_core::shm::waiters::{self, How};

/// The objects of glibc.
pub(crate) struct Glibc;

unsafe extern "C" {
    /// glibc 2.32: not 0 as long as the process has one thread.
    static __libc_single_threaded: core::ffi::c_char;
}

/// A word of a lock or the like.
///
/// # Safety
/// `lock` is what the caller gave as a lock, `offset` lies in it.
#[inline(always)]
unsafe fn word<T>(lock: *const T, offset: usize) -> u32 {
    // SAFETY: by contract; the word is aligned, and other threads store to it atomically.
    unsafe { (*lock.byte_add(offset).cast::<AtomicU32>()).load(Ordering::Relaxed) }
}

impl Objects for Glibc {
    #[inline(always)]
    unsafe fn mutex(lock: *const pthread_mutex_t) -> impl Object {
        Mutex(lock)
    }

    #[inline(always)]
    unsafe fn rwlock(lock: *const pthread_rwlock_t) -> impl Object {
        Rwlock(lock)
    }

    #[inline(always)]
    unsafe fn rwlock_read(lock: *const pthread_rwlock_t) -> impl Object {
        RwlockRead(lock)
    }

    #[inline(always)]
    unsafe fn semaphore(semaphore: *const sem_t) -> impl Object {
        Semaphore(semaphore)
    }

    #[inline(always)]
    unsafe fn condition(condition: *const pthread_cond_t) -> impl Object {
        Condition(condition)
    }

    #[inline(always)]
    unsafe fn thread(thread: pthread_t) -> impl Object {
        Thread(thread)
    }

    #[inline(always)]
    fn descriptor(file: c_int) -> impl Descriptor {
        File(file)
    }

    /// False: the process has one thread, and the lock is free. In this state glibc's lock does without an
    /// atomic instruction, its try does not.
    #[inline(always)]
    unsafe fn may_be_held(lock: *const pthread_mutex_t) -> bool {
        // SAFETY: by contract. The first word of a pthread_mutex_t is its futex.
        unsafe { !(__libc_single_threaded != 0 && *lock.cast::<c_int>() == 0) }
    }

    #[inline(always)]
    unsafe fn accepts(clock: clockid_t, deadline: *const timespec) -> bool {
        // SAFETY: by contract.
        let in_second = || unsafe { (0..1_000_000_000).contains(&(*deadline).tv_nsec) };
        matches!(clock, CLOCK_REALTIME | CLOCK_MONOTONIC) && !deadline.is_null() && in_second()
    }
}

#[derive(Clone, Copy)]
struct Mutex(*const pthread_mutex_t);

impl Object for Mutex {
    #[inline(always)]
    fn awaited(self) -> Awaited {
        /// `__kind` has this bit when processes share it: `PTHREAD_MUTEX_PSHARED_BIT`.
        const SHARED: u32 = 128;
        // SAFETY: by the contract of `Objects::mutex`. `__kind` and `__owner`.
        let (kind, owner_tid) = unsafe { (word(self.0, 16), word(self.0, 8)) };
        Awaited {
            id: self.0 as u64,
            is_shared: kind & SHARED != 0,
            owner_tid: Tid(owner_tid),
            how: How::Release,
        }
    }

    #[inline(always)]
    fn ids(self) -> impl AsRef<[u64]> {
        [self.0 as u64]
    }
}

#[derive(Clone, Copy)]
struct Rwlock(*const pthread_rwlock_t);

impl Rwlock {
    /// The tid of the thread that holds it to write, 0: none.
    #[inline(always)]
    fn writer_tid(self) -> u32 {
        // SAFETY: by the contract of `Objects::rwlock`. `__cur_writer`.
        unsafe { word(self.0, 24) }
    }
}

impl Object for Rwlock {
    #[inline(always)]
    fn awaited(self) -> Awaited {
        Awaited {
            id: self.0 as u64,
            // SAFETY: by the contract of `Objects::rwlock`. `__shared`.
            is_shared: unsafe { word(self.0, 28) != 0 },
            owner_tid: Tid(self.writer_tid()),
            how: How::Release,
        }
    }

    /// Who wrote also lets go of what readers wait for. A writer is there only while it holds the lock alone.
    #[inline(always)]
    fn ids(self) -> impl AsRef<[u64]> {
        let id = self.0 as u64;
        match self.writer_tid() {
            0 => [id; 2],
            _ => [id, waiters::shared(id)],
        }
    }
}

#[derive(Clone, Copy)]
struct RwlockRead(*const pthread_rwlock_t);

impl Object for RwlockRead {
    #[inline(always)]
    fn awaited(self) -> Awaited {
        Awaited {
            id: waiters::shared(self.0 as u64),
            ..Rwlock(self.0).awaited()
        }
    }
}

#[derive(Clone, Copy)]
struct Semaphore(*const sem_t);

impl Object for Semaphore {
    #[inline(always)]
    fn awaited(self) -> Awaited {
        Awaited {
            id: self.0 as u64,
            // SAFETY: by the contract of `Objects::semaphore`. The second word of `struct new_sem`, since
            // 2.21.
            is_shared: unsafe { word(self.0, 8) != 0 },
            owner_tid: Tid(0),
            how: How::Wake(1),
        }
    }

    #[inline(always)]
    fn ids(self) -> impl AsRef<[u64]> {
        [self.0 as u64]
    }
}

#[derive(Clone, Copy)]
struct Condition(*const pthread_cond_t);

/// One that processes share is taken for several: where its flag stands differs between versions of glibc.
impl Object for Condition {
    #[inline(always)]
    fn awaited(self) -> Awaited {
        Awaited {
            id: self.0 as u64,
            is_shared: false,
            owner_tid: Tid(0),
            how: How::Wake(1),
        }
    }
}

#[derive(Clone, Copy)]
struct Thread(pthread_t);

impl Object for Thread {
    #[inline(always)]
    fn awaited(self) -> Awaited {
        Awaited {
            id: self.0,
            is_shared: false,
            owner_tid: Tid(0),
            how: How::Wake(1),
        }
    }
}

#[derive(Clone, Copy)]
struct File(c_int);

impl Descriptor for File {
    #[inline(always)]
    fn read(self) -> Option<u64> {
        descriptor::read(self.0)
    }

    #[inline(always)]
    fn is_awaited(self) -> bool {
        descriptor::is_awaited(self.0)
    }

    #[inline(always)]
    fn writes(self) -> Wake {
        descriptor::writes(self.0)
    }

    #[inline(always)]
    fn closes(self) -> Wake {
        descriptor::closes(self.0)
    }

    #[inline(always)]
    fn forget(self) {
        descriptor::forget(self.0);
    }

    #[inline(always)]
    fn opened(self) {
        descriptor::opened(self.0);
    }
}

/// What threads wait for at a barrier until the last one has come: a round of it. And whether processes share
/// it. The words of `struct pthread_barrier` (since 2.25): how many have come in all rounds, the current
/// round, how many make a round, whether it is shared.
///
/// # Safety
/// `barrier` is what the caller gave as one.
pub(crate) unsafe fn round_of(barrier: *const pthread_barrier_t) -> Awaited {
    // SAFETY: by contract.
    let (came, threads, shared) =
        unsafe { (word(barrier, 0), word(barrier, 8), word(barrier, 12)) };
    let round = u64::from(came / threads.max(1)) & 0xfff;
    Awaited {
        id: barrier as u64 ^ round << 48,
        is_shared: shared != 0,
        owner_tid: Tid(0),
        how: How::Close,
    }
}
