//! Trials for tests, each in a thread of its own: threads chosen at random are suspended and walked, as fast
//! as it goes; the heap's listener comes and goes.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::heap;
use super::jni::{Env, Vm};
use super::library::Art;
use super::monitors;
use super::suspend::{Suspended, Suspension};
use super::threads;
use super::walk::{Frames, Walker};

/// Suspensions, their frames, and those that ART gave up.
pub(crate) static SUSPENDED: AtomicU64 = AtomicU64::new(0);
pub(crate) static FRAMES: AtomicU64 = AtomicU64::new(0);
pub(crate) static GIVEN_UP: AtomicU64 = AtomicU64::new(0);
/// How often the listener came, and how long the longest change of it took.
pub(crate) static LISTENED: AtomicU64 = AtomicU64::new(0);
pub(crate) static LONGEST_MS: AtomicU64 = AtomicU64::new(0);

static STOP: AtomicBool = AtomicBool::new(false);
static THREADS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Thread numbers of ART's that are tried.
const IDS: u64 = 32;

/// Begins to suspend. False: this ART cannot be asked.
///
/// # Safety
/// `vm` is the machine.
pub(crate) unsafe fn begin_to_suspend(art: &'static Art, vm: *mut *const [*mut c_void; 8]) -> bool {
    let found = Suspension::find(art).ok();
    let Some((suspension, walker)) = found.zip(Walker::of(art)) else {
        return false;
    };
    // SAFETY: by contract; from a thread of the machine's.
    unsafe { begin(vm, move |_| run(suspension, &walker)) };
    true
}

/// Begins to set and remove the heap's listener.
///
/// # Safety
/// `vm` is the machine.
pub(crate) unsafe fn begin_to_listen(art: &'static Art, vm: *mut *const [*mut c_void; 8]) {
    // SAFETY: by contract; from a thread of the machine's.
    unsafe { begin(vm, move |_| listen(art)) };
}

/// # Safety
/// `vm` is the machine.
unsafe fn begin(vm: *mut *const [*mut c_void; 8], run: impl FnOnce(Env) + Send + 'static) {
    let vm = Vm::new(vm);
    let thread = std::thread::spawn(move || {
        // SAFETY: the machine, which stays until this thread is joined.
        unsafe { vm.attached(c"stackbeat trial", run) };
    });
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    threads.push(thread);
}

/// # Safety
/// The calling thread is one of the machine's, and runs native code.
unsafe fn listen(art: &'static Art) {
    while !STOP.load(Ordering::Relaxed) {
        let begin = Instant::now();
        // SAFETY: by contract.
        unsafe {
            heap::end(art);
            let _ = heap::listen(art);
        }
        let ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        LONGEST_MS.fetch_max(ms, Ordering::Relaxed);
        LISTENED.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// # Safety
/// The calling thread is one of the machine's.
unsafe fn run(suspension: Suspension, walker: &Walker) {
    let this = threads::current();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut frames = Frames::new();
    while !STOP.load(Ordering::Relaxed) {
        let Some(own) = monitors::thin_lock_id(this) else {
            // Which thread is its own is not known before the first monitors.
            std::thread::yield_now();
            continue;
        };
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let id = (random % IDS) as u32 + 1;
        if id == own {
            continue;
        }
        // SAFETY: from here to the resumption nothing is allocated, locked or written.
        unsafe {
            match suspension.suspend(id) {
                Suspended::Yes(thread) => {
                    frames.clear();
                    walker.walk(thread, 0, &mut frames);
                    suspension.resume(thread);
                }
                Suspended::Gone => continue,
                Suspended::GivenUp => {
                    GIVEN_UP.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            }
        }
        SUSPENDED.fetch_add(1, Ordering::Relaxed);
        FRAMES.fetch_add(frames.all().len() as u64, Ordering::Relaxed);
    }
}

/// Ends them, and waits for their ends.
pub(crate) fn end() {
    STOP.store(true, Ordering::Relaxed);
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    for thread in threads.drain(..) {
        // A panic there is a failure of the test that asked for it.
        let _ = thread.join();
    }
}
