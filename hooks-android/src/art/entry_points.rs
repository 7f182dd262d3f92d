//! Entry points of allocation: each thread has its own table of the functions that make objects. Those that
//! tell the heap's listener stand there only while there is one.
//!
//! ART changes the tables of all threads while all of them are suspended. Here they change one by one, each
//! at its next checkpoint: a thread that runs Java code does it itself, and for the others the caller does.
//! So nobody waits, and a thread that is between two checkpoints makes some objects more of which the
//! listener is not told. The functions of either kind may be called whether or not there is a listener.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use stackbeat_core::platform;

use super::library::Art;
use super::start::art;
use super::suspend;
use super::threads;
use super::versions::Function;

/// The thread whose change of the listener is under way.
static CHANGED_BY: AtomicI32 = AtomicI32::new(NOBODY);
const NOBODY: i32 = 0;
/// It was made by a checkpoint.
static IS_BY_CHECKPOINT: AtomicBool = AtomicBool::new(false);

/// Suspensions of all threads by who changes the listener, meanwhile.
pub(crate) static SUSPENSIONS: AtomicU32 = AtomicU32::new(0);
/// Tables that were changed.
pub(crate) static CHANGED: AtomicU64 = AtomicU64::new(0);

fn is_changed_by_this_thread() -> bool {
    CHANGED_BY.load(Ordering::Relaxed) == platform::thread_id() as i32
}

/// Sets or removes the listener, by this call of ART's. False: ART has changed the tables, if that was to be
/// done, and has suspended all threads for it.
pub(crate) fn change(change_listener: impl FnOnce()) -> bool {
    IS_BY_CHECKPOINT.store(false, Ordering::Relaxed);
    CHANGED_BY.store(platform::thread_id() as i32, Ordering::Relaxed);
    change_listener();
    CHANGED_BY.store(NOBODY, Ordering::Relaxed);
    IS_BY_CHECKPOINT.load(Ordering::Relaxed)
}

/// All threads run again.
pub(crate) fn resumed() {
    if is_changed_by_this_thread() {
        SUSPENSIONS.fetch_add(1, Ordering::Relaxed);
    }
}

type SetInstrumented = unsafe extern "C" fn(bool);
type IsShuttingDown = unsafe extern "C" fn(*mut c_void, *mut c_void) -> bool;
type RunCheckpoint = unsafe extern "C" fn(
    *mut c_void,
    *const Closure,
    *const Closure,
    allow_lock_checking: bool,
    acquire_mutator_lock: bool,
) -> usize;
type Reset = unsafe extern "C" fn(*mut c_void, bool);

/// What ART wants to be done: `class Closure`, two destructors and `Run`.
#[repr(C)]
struct Closure {
    vtable: &'static Vtable,
}

#[repr(C)]
struct Vtable {
    destroy: [extern "C" fn(*const Closure); 2],
    run: unsafe extern "C" fn(*const Closure, *mut c_void),
}

extern "C" fn destroy(_: *const Closure) {}

/// For good: a thread may come to it long after the recording has ended.
static CLOSURE: Closure = Closure {
    vtable: &Vtable {
        destroy: [destroy; 2],
        run: reset,
    },
};

static RESET: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Gives a thread, which is the calling one or stands still, the entry points that are wanted.
unsafe extern "C" fn reset(_: *const Closure, thread: *mut c_void) {
    // SAFETY: stored before anybody could come here. From Android 12 on there is no second argument. Until
    // 11 it says whether the collector marks: what a new thread gets, and what is right at all times.
    unsafe {
        let reset: Reset = core::mem::transmute(RESET.load(Ordering::Acquire));
        reset(thread, true);
    }
    CHANGED.fetch_add(1, Ordering::Relaxed);
}

/// In place of ART's change of all threads' entry points. False: ART has to do it, because somebody else
/// asks, or this ART lacks what it takes.
pub(crate) fn set_instrumented(is_instrumented: bool) -> bool {
    let is_ours = is_changed_by_this_thread();
    art().is_some_and(|art| is_ours && by_checkpoint(art, is_instrumented).is_some())
}

fn by_checkpoint(art: &Art, is_instrumented: bool) -> Option<()> {
    let set = art.address(Function::SetAllocationInstrumented)?;
    let run = art.address(Function::RunCheckpoint)?;
    let reset = art.address(Function::ResetEntryPoints)?;
    let is_shutting_down = art.address(Function::IsShuttingDown)?;
    let runtime = art.address(Function::Runtime)?;
    let list = suspend::list()?;
    RESET.store(reset, Ordering::Release);
    // SAFETY: functions of these types, as the table of versions has them; arguments that a version does not
    // know are passed in registers, which it does not read.
    unsafe {
        let set: SetInstrumented = core::mem::transmute(set);
        let run: RunCheckpoint = core::mem::transmute(run);
        let is_shutting_down: IsShuttingDown = core::mem::transmute(is_shutting_down);
        set(is_instrumented);
        // A thread that is born just now may have its entry points from before. It gets them and enters the
        // list under a lock, which this call waits for: it is in the list afterwards.
        let runtime = *runtime.cast::<*mut c_void>();
        is_shutting_down(runtime, threads::current());
        run(list, &raw const CLOSURE, core::ptr::null(), true, false);
    }
    IS_BY_CHECKPOINT.store(true, Ordering::Relaxed);
    Some(())
}
