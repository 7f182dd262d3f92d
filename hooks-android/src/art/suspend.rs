//! Suspends single threads by ART's means and walks their stacks: what a sampler needs for threads that pass no
//! hook. Here it is a trial, for tests: threads chosen at random, as fast as it goes.
//!
//! Between suspension and resumption the thread may hold any lock. So nothing is allocated there, no lock is
//! taken, and nothing is written.

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use super::library::Art;
use super::monitors;
use super::place;
use super::threads;
use super::versions::Function;
use super::walk::{Frames, Walker};
use crate::doctor::State;

/// Suspensions, their frames, and those that ART gave up.
pub(crate) static SUSPENDED: AtomicU64 = AtomicU64::new(0);
pub(crate) static FRAMES: AtomicU64 = AtomicU64::new(0);
pub(crate) static TIMED_OUT: AtomicU64 = AtomicU64::new(0);

static LIST: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static SUSPEND_ALL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static STOP: AtomicBool = AtomicBool::new(false);
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

type SuspendAll = unsafe extern "C-unwind" fn(*mut c_void, *const c_char, bool);

unsafe extern "C-unwind" fn suspend_all(list: *mut c_void, cause: *const c_char, is_long: bool) {
    LIST.store(list, Ordering::Release);
    // SAFETY: a function of this type; it was stored before anybody could come here.
    unsafe {
        let original: SuspendAll = core::mem::transmute(SUSPEND_ALL.load(Ordering::Acquire));
        original(list, cause, is_long);
    }
}

/// Thread numbers of ART's that are tried.
const IDS: u64 = 32;
/// `SuspendReason::kInternal`.
const INTERNAL: u8 = 0;

/// ART's functions, until Android 14.
#[derive(Clone, Copy)]
struct Functions {
    suspend: SuspendThread,
    resume: ResumeThread,
}

type SuspendThread = unsafe extern "C" fn(*mut c_void, u32, u8, *mut bool) -> *mut c_void;
type ResumeThread = unsafe extern "C" fn(*mut c_void, *mut c_void, u8) -> bool;

/// Begins. False: this ART cannot be asked.
///
/// # Safety
/// `vm` is the machine; `suspend_and_resume` has all threads of ART suspended for a moment.
pub(crate) unsafe fn begin(
    art: &'static Art,
    vm: *mut *const [*mut c_void; 8],
    suspend_and_resume: impl Fn(),
) -> bool {
    let (Some(suspend), Some(resume), Some(all), Some(walker)) = (
        art.address(Function::SuspendThread),
        art.address(Function::ResumeThread),
        art.code_of(Function::SuspendAllThreads),
        Walker::of(art),
    ) else {
        return false;
    };
    if !(9..=14).contains(&art.version) {
        return false;
    }
    // SAFETY: functions of these types; the machine has only begun, and nobody else suspends all.
    let (functions, is_placed) = unsafe {
        let functions = Functions {
            suspend: core::mem::transmute::<*mut c_void, SuspendThread>(suspend),
            resume: core::mem::transmute::<*mut c_void, ResumeThread>(resume),
        };
        let by = suspend_all as *mut c_void;
        (functions, place::place("SuspendAll", all, by, &SUSPEND_ALL))
    };
    if !matches!(is_placed, State::Placed(_)) {
        return false;
    }
    suspend_and_resume();
    // SAFETY: as above.
    unsafe { place::remove(all.0) };
    let list = LIST.load(Ordering::Acquire).expose_provenance();
    let vm = vm.expose_provenance();
    if list == 0 {
        return false;
    }
    let thread = std::thread::spawn(move || {
        // SAFETY: the machine and its list of threads, which stay until this thread is joined.
        unsafe {
            run(
                functions,
                &walker,
                core::ptr::with_exposed_provenance_mut(list),
                core::ptr::with_exposed_provenance_mut(vm),
            );
        }
    });
    *THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    true
}

/// # Safety
/// As `begin`.
unsafe fn run(
    functions: Functions,
    walker: &Walker,
    list: *mut c_void,
    vm: *mut *const [*mut c_void; 8],
) {
    type Attach = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> i32;
    type Detach = unsafe extern "C" fn(*mut c_void) -> i32;
    /// `DetachCurrentThread` and `AttachCurrentThreadAsDaemon` in JNI's table of a machine (jni.h).
    const DETACH: usize = 5;
    const ATTACH: usize = 7;
    let mut env = core::ptr::null_mut();
    // SAFETY: JNI's functions at these places are of these types.
    let detach = unsafe {
        let attach: Attach = core::mem::transmute((**vm)[ATTACH]);
        if attach(vm.cast(), &raw mut env, core::ptr::null_mut()) != 0 {
            return;
        }
        core::mem::transmute::<*mut c_void, Detach>((**vm)[DETACH])
    };
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
        let mut timed_out = false;
        // SAFETY: from here to the resumption nothing is allocated, locked or written.
        unsafe {
            let thread = (functions.suspend)(list, id, INTERNAL, &raw mut timed_out);
            if thread.is_null() {
                TIMED_OUT.fetch_add(u64::from(timed_out), Ordering::Relaxed);
                continue;
            }
            frames.clear();
            walker.walk(thread, 0, &mut frames);
            (functions.resume)(list, thread, INTERNAL);
        }
        SUSPENDED.fetch_add(1, Ordering::Relaxed);
        FRAMES.fetch_add(frames.all().len() as u64, Ordering::Relaxed);
    }
    // SAFETY: attached above.
    unsafe { detach(vm.cast()) };
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
