//! How threads park on Apple's systems: the file that does is compiled here over stand-ins for the system's
//! functions, which are Linux' futex behind their signatures. What it shows: which functions are used, how,
//! and that nobody polls.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use stackbeat_core::platform::{self, Errno};

#[path = "../src/platform/apple/address_wait.rs"]
mod address_wait;

fn last_error() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// Calls by the public functions, by those that they are made of.
static PUBLIC: AtomicU32 = AtomicU32::new(0);
static ULOCK: AtomicU32 = AtomicU32::new(0);

unsafe fn word<'a>(address: *mut c_void) -> &'a AtomicU32 {
    // SAFETY: by contract of the calls.
    unsafe { &*address.cast::<AtomicU32>() }
}

/// Gives an error's number when the time is over.
fn sleep(word: &AtomicU32, value: u64, timeout_ns: Option<u64>) -> c_int {
    let began = Instant::now();
    platform::wait(word, value as u32, timeout_ns);
    let is_over = timeout_ns.is_some_and(|ns| began.elapsed() >= Duration::from_nanos(ns));
    if is_over { libc::ETIMEDOUT } else { 0 }
}

/// The public call says −1, and what is wrong in errno.
fn public(error: c_int) -> c_int {
    PUBLIC.fetch_add(1, Ordering::SeqCst);
    if error == 0 {
        return 0;
    }
    // SAFETY: the calling thread's.
    unsafe { *libc::__errno_location() = error };
    -1
}

unsafe extern "C" fn os_wait(at: *mut c_void, value: u64, size: usize, flags: u32) -> c_int {
    assert_eq!((size, flags), (4, 1));
    // SAFETY: by contract of the call.
    public(sleep(unsafe { word(at) }, value, None))
}

unsafe extern "C" fn os_wait_with_timeout(
    at: *mut c_void,
    value: u64,
    size: usize,
    flags: u32,
    clock: u32,
    timeout_ns: u64,
) -> c_int {
    assert_eq!((size, flags, clock), (4, 1, 32));
    // SAFETY: by contract of the call.
    public(sleep(unsafe { word(at) }, value, Some(timeout_ns)))
}

unsafe extern "C" fn os_wake_any(at: *mut c_void, size: usize, flags: u32) -> c_int {
    assert_eq!((size, flags), (4, 1));
    // SAFETY: by contract of the call.
    platform::wake(unsafe { word(at) }, 1);
    public(0)
}

unsafe extern "C" fn os_wake_all(at: *mut c_void, size: usize, flags: u32) -> c_int {
    assert_eq!((size, flags), (4, 1));
    // SAFETY: by contract of the call.
    platform::wake(unsafe { word(at) }, i32::MAX as u32);
    public(0)
}

unsafe extern "C" fn ulock_wait(operation: u32, at: *mut c_void, value: u64, us: u32) -> c_int {
    assert_eq!(operation, 3 | 0x0100_0000);
    ULOCK.fetch_add(1, Ordering::SeqCst);
    let timeout_ns = (us != 0).then(|| u64::from(us) * 1000);
    // SAFETY: by contract of the call.
    -sleep(unsafe { word(at) }, value, timeout_ns)
}

unsafe extern "C" fn ulock_wake(operation: u32, at: *mut c_void, _: u64) -> c_int {
    assert_eq!(operation & !0x100, 3 | 0x0100_0000);
    ULOCK.fetch_add(1, Ordering::SeqCst);
    let count = if operation & 0x100 == 0 { 1 } else { i32::MAX };
    // SAFETY: by contract of the call.
    platform::wake(unsafe { word(at) }, count as u32);
    0
}

fn old(name: &CStr) -> usize {
    match name.to_bytes() {
        b"__ulock_wait" => ulock_wait as *const () as usize,
        b"__ulock_wake" => ulock_wake as *const () as usize,
        _ => 0,
    }
}

fn new(name: &CStr) -> usize {
    match name.to_bytes() {
        b"os_sync_wait_on_address" => os_wait as *const () as usize,
        b"os_sync_wait_on_address_with_timeout" => os_wait_with_timeout as *const () as usize,
        b"os_sync_wake_by_address_any" => os_wake_any as *const () as usize,
        b"os_sync_wake_by_address_all" => os_wake_all as *const () as usize,
        _ => old(name),
    }
}

/// How often a thread has gone to sleep.
fn sleeps(tid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status"));
    let status = status.expect("the thread is there");
    let key = "voluntary_ctxt_switches:";
    let count = status.lines().find_map(|line| line.strip_prefix(key));
    count.expect(key).trim().parse().expect("a number")
}

/// Some threads park; the one that changes the word wakes them. Gives how often they slept while nothing
/// happened.
fn park_and_wake(threads: u32) -> u32 {
    const NOTHING: Duration = Duration::from_millis(100);
    let value = &AtomicU32::new(7);
    let tids: Vec<AtomicU32> = (0..threads).map(|_| AtomicU32::new(0)).collect();
    std::thread::scope(|scope| {
        for tid in &tids {
            scope.spawn(move || {
                tid.store(platform::thread_id(), Ordering::SeqCst);
                while value.load(Ordering::SeqCst) == 7 {
                    address_wait::wait(value, 7, None);
                }
            });
        }
        let all = || tids.iter().map(|tid| tid.load(Ordering::SeqCst));
        while all().any(|tid| tid == 0) {
            std::thread::yield_now();
        }
        // They are on their way to sleep.
        std::thread::sleep(NOTHING / 5);
        let before: u32 = all().map(sleeps).sum();
        std::thread::sleep(NOTHING);
        let slept = all().map(sleeps).sum::<u32>() - before;
        value.store(8, Ordering::SeqCst);
        address_wait::wake(value, threads);
        slept
    })
}

fn calls() -> [u32; 2] {
    [&PUBLIC, &ULOCK].map(|calls| calls.swap(0, Ordering::SeqCst))
}

fn times_out() {
    const TIME: Duration = Duration::from_millis(5);
    let value = AtomicU32::new(1);
    let began = Instant::now();
    address_wait::wait(&value, 1, Some(TIME.as_nanos() as u64));
    assert!(began.elapsed() >= TIME);
    // Nobody waits for a value that is not there, or for no time.
    address_wait::wait(&value, 2, None);
    address_wait::wait(&value, 1, Some(0));
}

/// One test: the functions are looked for once in a process.
#[test]
fn threads_park_by_the_public_functions_or_by_what_these_are_made_of() {
    // Without either threads poll, so that nothing stands still.
    assert!(park_and_wake(2) > 20);
    assert_eq!(calls(), [0, 0]);

    address_wait::prepare(old);
    for threads in [1, 3] {
        let slept = park_and_wake(threads);
        assert!(slept <= threads, "{slept} times in 100 ms");
    }
    times_out();
    let [public, ulock] = calls();
    assert!(public == 0 && ulock >= 7, "{public} {ulock}");

    address_wait::prepare(new);
    for threads in [1, 3] {
        let slept = park_and_wake(threads);
        assert!(slept <= threads, "{slept} times in 100 ms");
    }
    times_out();
    let [public, ulock] = calls();
    assert!(public >= 7 && ulock == 0, "{public} {ulock}");
}
