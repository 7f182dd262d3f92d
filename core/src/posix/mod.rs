//! The POSIX calls that are hooked, as data: signature, probe, what the arguments mean. A platform's hooks
//! are code that is emitted from these lists, however that platform catches a call.
//!
//! - `io`, `net`, `locks`, `waits`, `memory`, `time`, `processes`: the lists
//! - [`Objects`]: what a platform says of locks, threads and descriptors, so that no list knows a C library's
//!   layouts
//! - [`ByAddress`]: the answer of platforms whose C library says no more than addresses
//! - [`function_table`](mod@function_table): an emitter, for systems that rebind functions
//! - `jump`: hooks of functions that look at their caller
//! - [`exec_list`], [`raw_call`]: what the hooks of variadic functions have in common on Linux and Android
//! - [`results`]: what the results of calls say
//!
//! # Lists
//!
//! A list is a macro that hands its lines to a macro of the platform's, all at once:
//! `stackbeat_core::posix_io! { hooks }` calls `hooks! { LINES }`. Lists named `posix_…` hold on Linux,
//! Android and Apple's systems; those named `linux_…` only with glibc and bionic. What only one C library has
//! is listed in that platform's crate, in lines of the same form:
//!
//! ```text
//! KIND fn NAME(ARGUMENT: TYPE, …) -> RESULT = PROBE(VALUE) [WORDS] aka linux [NAMES] glibc [NAMES];
//! ```
//!
//! `VALUE` is what the probe records. `aka` gives other names of the same function, those of all Linux
//! systems and those of glibc. Types are those of `libc` and `core::ffi`; where the lines are emitted these
//! must be in scope, with libc's `stat` as `Stat` and `THRD_BUSY` as `threads.h` has it.
//!
//! | line | what a hook does |
//! |---|---|
//! | `hit []` | counts, maybe captures, then calls the original |
//! | `alloc []` | the same for what allocates `VALUE` bytes |
//! | `release [OBJECT, by HOW]` | tells those that wait for the object; the original; then counts and maybe captures |
//! | `wait []` | may block: begin, the original, end |
//! | `wait [ended by handlers]` | the same; ends after any signal handler, whatever SA_RESTART says |
//! | `wait [for OBJECT]` | waits for something that another thread lets go of |
//! | `wait [for OBJECT, releases OBJECT]` | the same; the original lets go of another object first: who waits for that is noted before |
//! | `wait [for OBJECT, tells RESULT(ARGUMENT)]` | the same; the function gets the result and an argument |
//! | `wait [reads FILE if CONDITION]` | waits until somebody writes to what is behind the descriptor |
//! | `wait [writes FILE]`, `[closes FILE]` | tells those that wait for what is written, or for the end |
//! | `wait [opens]` | the result is a descriptor of what has a path |
//! | `wait [error RESULT]` | fails with another number than -1 and an `errno`: the function says which |
//! | `lock [try NAME(ARGUMENTS) busy CODE, for OBJECT, if CONDITION]` | tries first; only a failed try is a wait. Where the condition fails only the original is called |
//! | `lock [try NAME(ARGUMENTS) cancellable, for OBJECT, if CONDITION]` | the same for a cancellation point that gives 0, or -1 and an `errno`: it is one also where the try succeeds |
//!
//! `wait [ended by handlers]`, `[reads …]`, `[writes …]` and `wait []` can also say `moves RESULT(ARGUMENT)`:
//! how many bytes were moved, where the result itself does not say it.
//!
//! `OBJECT` and the condition of a lock are functions of [`Objects`], `HOW` is one of [`How`], `RESULT` one
//! of [`results`]. Other conditions are expressions.
//!
//! # Differences between platforms
//!
//! - Not every system has every function: `preadv` came with macOS 11, System V queues with Android 8. A
//!   platform must do without what it does not find.
//! - All is for 64 bits: where `off_t` is smaller, `mmap64` is no other name of `mmap`.
//! - Apple's x86-64 has `stat`, `lstat`, `fstat` and `fstatat` with other layouts under other names
//!   (`stat$INODE64`).
//! - Variadic functions: see `io` and `exec_list`.

mod by_address;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod exec_list;
pub mod function_table;
mod io;
mod jump;
mod locks;
mod memory;
mod net;
mod processes;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod raw_call;
pub mod results;
mod time;
mod waits;

use crate::agent::{self, Awaited, Wake};
use crate::shm::waiters::How;
pub use by_address::ByAddress;
use core::ffi::c_int;

use libc::{
    clockid_t, pid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_t, timespec,
};

/// The words by which the lines of a list name what a call's arguments are. Each gives an [`Object`] that is
/// to be used before the call returns.
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

    /// Whether a mutex is worth a try. False: nobody can hold it, and the locking function is cheaper than a
    /// try.
    ///
    /// # Safety
    /// That of [`Objects::mutex`].
    #[inline(always)]
    unsafe fn may_be_held(_lock: *const pthread_mutex_t) -> bool {
        true
    }

    /// Whether timed functions accept a deadline. Some of them look at it before they look at the lock: then
    /// a try must not hide their EINVAL.
    ///
    /// # Safety
    /// `deadline` is what the caller of the hook gave as one.
    unsafe fn accepts(clock: clockid_t, deadline: *const timespec) -> bool;
}

/// Something that threads wait for until another one lets go of it.
pub trait Object: Copy {
    /// What a thread waits for that waits for it. May read the object.
    fn awaited(self) -> Awaited;

    /// What those wait for whose wait ends when it is let go of: as little work as possible, hooks ask this
    /// in each call.
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
    /// What a call waits for that reads or accepts, as [`agent::written`] takes it; `None`: for no other
    /// thread.
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
