//! A trial of suspensions, for tests: threads chosen at random are suspended and walked, as fast as it goes.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use super::jni::Vm;
use super::library::Art;
use super::monitors;
use super::start::while_suspended;
use super::suspend::{Suspended, Suspension};
use super::threads;
use super::walk::{Frames, Walker};

/// Suspensions, their frames, and those that ART gave up.
pub(crate) static SUSPENDED: AtomicU64 = AtomicU64::new(0);
pub(crate) static FRAMES: AtomicU64 = AtomicU64::new(0);
pub(crate) static GIVEN_UP: AtomicU64 = AtomicU64::new(0);

static STOP: AtomicBool = AtomicBool::new(false);
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// Thread numbers of ART's that are tried.
const IDS: u64 = 32;

/// Begins. False: this ART cannot be asked.
///
/// # Safety
/// `vm` is the machine.
pub(crate) unsafe fn begin(art: &'static Art, vm: *mut *const [*mut c_void; 8]) -> bool {
    let found = Suspension::find(art, |f| while_suspended(art, f));
    let Some((suspension, walker)) = found.ok().zip(Walker::of(art)) else {
        return false;
    };
    let vm = Vm::new(vm);
    let thread = std::thread::spawn(move || {
        // SAFETY: the machine, which stays until this thread is joined.
        unsafe { vm.attached(c"stackbeat trial", |_| run(suspension, &walker)) };
    });
    *THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    true
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

/// Ends it, and waits for its end.
pub(crate) fn end() {
    STOP.store(true, Ordering::Relaxed);
    let thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(thread) = thread {
        // A panic there is a failure of the test that asked for it.
        let _ = thread.join();
    }
}
