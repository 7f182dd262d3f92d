//! Waiting and waking on a word.
//!
//! Public since macOS 14.4 and iOS 17.4 is `os_sync_wait_on_address` (os/os_sync_wait_on_address.h). Before
//! there is what it is made of, `__ulock_wait` (xnu, bsd/sys/ulock.h; libpthread and libc++ use it): it
//! exists since macOS 10.12 and iOS 10, and is no public interface, so it is used where the public one is
//! missing only. Both are looked for by name at the start, because an import that is missing keeps a program
//! from starting, and `dlsym` takes locks.

use super::{Errno, last_error};
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// os/os_sync_wait_on_address.h: the word may lie in memory that is shared with others.
const OS_SYNC_SHARED: u32 = 1;
/// os/clock.h: `OS_CLOCK_MACH_ABSOLUTE_TIME`.
const OS_CLOCK_MACH_ABSOLUTE_TIME: u32 = 32;
/// bsd/sys/ulock.h: `UL_COMPARE_AND_WAIT_SHARED`, a 32-bit word, `ULF_WAKE_ALL` and `ULF_NO_ERRNO`.
const COMPARE_AND_WAIT_SHARED: u32 = 3;
const WAKE_ALL: u32 = 0x100;
const NO_ERRNO: u32 = 0x0100_0000;

const WORD_BYTES: usize = size_of::<AtomicU32>();
const _: () = assert!(WORD_BYTES == 4);

type OsWait = unsafe extern "C" fn(*mut c_void, u64, usize, u32) -> c_int;
type OsWaitTimeout = unsafe extern "C" fn(*mut c_void, u64, usize, u32, u32, u64) -> c_int;
type OsWake = unsafe extern "C" fn(*mut c_void, usize, u32) -> c_int;
type UlockWait = unsafe extern "C" fn(u32, *mut c_void, u64, u32) -> c_int;
type UlockWake = unsafe extern "C" fn(u32, *mut c_void, u64) -> c_int;

/// Addresses of functions; 0: not there, or not looked for yet.
static OS_WAIT: AtomicUsize = AtomicUsize::new(0);
static OS_WAIT_TIMEOUT: AtomicUsize = AtomicUsize::new(0);
static OS_WAKE_ANY: AtomicUsize = AtomicUsize::new(0);
static OS_WAKE_ALL: AtomicUsize = AtomicUsize::new(0);
static ULOCK_WAIT: AtomicUsize = AtomicUsize::new(0);
static ULOCK_WAKE: AtomicUsize = AtomicUsize::new(0);

/// Looks for the functions by their names. May lock and allocate.
pub(super) fn prepare(find: impl Fn(&CStr) -> usize) {
    let public: [(&AtomicUsize, &CStr); 4] = [
        (&OS_WAIT, c"os_sync_wait_on_address"),
        (&OS_WAIT_TIMEOUT, c"os_sync_wait_on_address_with_timeout"),
        (&OS_WAKE_ANY, c"os_sync_wake_by_address_any"),
        (&OS_WAKE_ALL, c"os_sync_wake_by_address_all"),
    ];
    let found = public.map(|(_, name)| find(name));
    // One kind for all: a waiter of the one is not woken by the other.
    if found.iter().all(|address| *address != 0) {
        for ((place, _), address) in public.iter().zip(found) {
            place.store(address, Ordering::Release);
        }
        return;
    }
    let (wait, wake) = (find(c"__ulock_wait"), find(c"__ulock_wake"));
    if wait != 0 && wake != 0 {
        ULOCK_WAKE.store(wake, Ordering::Release);
        ULOCK_WAIT.store(wait, Ordering::Release);
    }
}

/// The function that was found, if it was.
///
/// # Safety
/// `F` is the type of the function whose address the place holds.
unsafe fn found<F: Copy>(place: &AtomicUsize) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    let address = place.load(Ordering::Acquire);
    let pointer = core::ptr::with_exposed_provenance::<c_void>(address);
    // SAFETY: by contract.
    (address != 0).then(|| unsafe { core::mem::transmute_copy(&pointer) })
}

/// Wakes up to `count` waiters.
pub(super) fn wake(word: &AtomicU32, count: u32) {
    let at = word.as_ptr().cast();
    let is_one = count == 1;
    let place = if is_one { &OS_WAKE_ANY } else { &OS_WAKE_ALL };
    // SAFETY: the types are those of the headers; the kernel only uses the word's address.
    unsafe {
        if let Some(wake) = found::<OsWake>(place) {
            wake(at, WORD_BYTES, OS_SYNC_SHARED);
        } else if let Some(wake) = found::<UlockWake>(&ULOCK_WAKE) {
            let all = if is_one { 0 } else { WAKE_ALL };
            wake(COMPARE_AND_WAIT_SHARED | NO_ERRNO | all, at, 0);
        }
    }
}

/// Sleeps while the word holds `value`, at most `timeout_ns`. Returns for any reason. Without the functions
/// it sleeps in short steps, and nobody is woken.
pub(super) fn wait(word: &AtomicU32, value: u32, timeout_ns: Option<u64>) {
    const STEP_NS: u64 = 1_000_000;
    if word.load(Ordering::SeqCst) != value || timeout_ns == Some(0) {
        return;
    }
    let at: *mut c_void = word.as_ptr().cast();
    let value_word = u64::from(value);
    // SAFETY: the types are those of the headers; the word lives during the call.
    let waited = unsafe {
        match timeout_ns {
            None => found::<OsWait>(&OS_WAIT)
                .map(|wait| wait(at, value_word, WORD_BYTES, OS_SYNC_SHARED)),
            Some(ns) => found::<OsWaitTimeout>(&OS_WAIT_TIMEOUT).map(|wait| {
                let clock = OS_CLOCK_MACH_ABSOLUTE_TIME;
                wait(at, value_word, WORD_BYTES, OS_SYNC_SHARED, clock, ns)
            }),
        }
    };
    let waited = waited.or_else(|| {
        // Microseconds; 0 means for ever.
        let us = timeout_ns.map_or(0, |ns| ns.div_ceil(1000).min(u32::MAX.into()) as u32);
        // SAFETY: as above.
        unsafe {
            let wait = found::<UlockWait>(&ULOCK_WAIT)?;
            Some(wait(COMPARE_AND_WAIT_SHARED | NO_ERRNO, at, value_word, us))
        }
    });
    // A kernel that refuses must not make the caller spin.
    let is_refused = match waited {
        None => true,
        Some(0..) => false,
        // ULF_NO_ERRNO gives the negative number itself, the public call −1 and errno.
        Some(-1) => is_no_wait(last_error()),
        Some(error) => is_no_wait(Errno(-error)),
    };
    if is_refused {
        let ns = timeout_ns.unwrap_or(STEP_NS).min(STEP_NS);
        std::thread::sleep(core::time::Duration::from_nanos(ns));
    }
}

/// Whether the call has failed otherwise than by time, a signal, or a page that had to come in first.
fn is_no_wait(error: Errno) -> bool {
    !matches!(
        error.0,
        libc::ETIMEDOUT | libc::EINTR | libc::EFAULT | libc::EAGAIN
    )
}
