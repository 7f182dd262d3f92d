//! What is hooked in ART: locks, waits and who ends them, the collector, calls of native methods, classes and
//! libraries.
//!
//! In each of them the original is called with what came, and nothing is held meanwhile. What a version has
//! inlined passes no hook: the interpreter and compiled code enter and leave monitors that nobody waits for
//! by themselves.

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use stackbeat_core::platform;

use super::agent::{Agent, Probe, Words};
use super::entry_points;
use super::frames;
use super::heap;
use super::library::Art;
use super::methods;
use super::monitors;
use super::place;
use super::suspend;
use super::threads::{self, Place};
use super::versions::Function;
use crate::doctor;

/// Whose calls hooks count: a tid, [`NOBODY`] or [`ALL_THREADS`]. The counters are all threads' own, and
/// would go from processor to processor if everybody's calls were counted always.
static COUNTED: AtomicI32 = AtomicI32::new(NOBODY);
pub(crate) const NOBODY: i32 = 0;
/// For tests.
#[cfg_attr(not(feature = "rig"), expect(dead_code, reason = "the rig counts"))]
pub(crate) const ALL_THREADS: i32 = -1;

/// From here on calls of these threads are counted: those of one tid, of all or of nobody.
pub(crate) fn count_calls_of(threads: i32) {
    COUNTED.store(threads, Ordering::Relaxed);
}

/// One more, if they are counted.
pub(crate) fn count(counter: &AtomicU64) {
    let counted = COUNTED.load(Ordering::Relaxed);
    if counted != NOBODY && (counted < NOBODY || counted == platform::thread_id() as i32) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A function of ART that is hooked.
pub(crate) struct Hook {
    pub(crate) function: Function,
    pub(crate) name: &'static str,
    by: fn() -> *mut c_void,
    at: AtomicPtr<c_void>,
    original: AtomicPtr<c_void>,
    pub(crate) calls: AtomicU64,
}

impl Hook {
    const fn new(function: Function, name: &'static str, by: fn() -> *mut c_void) -> Hook {
        Hook {
            function,
            name,
            by,
            at: AtomicPtr::new(core::ptr::null_mut()),
            original: AtomicPtr::new(core::ptr::null_mut()),
            calls: AtomicU64::new(0),
        }
    }

    /// What calls the original.
    fn original(&self) -> *mut c_void {
        count(&self.calls);
        self.original.load(Ordering::Acquire)
    }

    /// Whether it is in its place.
    pub(crate) fn is_placed(&self) -> bool {
        !self.at.load(Ordering::Relaxed).is_null()
    }

    /// What became of it.
    ///
    /// # Safety
    /// No thread is at the function's begin.
    pub(crate) unsafe fn place(&'static self, art: &Art) -> doctor::State {
        let Some(code) = art.code_of(self.function) else {
            return doctor::State::NotAvailable("this ART does not have it".to_owned());
        };
        // SAFETY: by contract; the types are those of the table of versions.
        let state = unsafe { place::place(self.name, code, (self.by)(), &self.original) };
        if let doctor::State::Placed(_) = state {
            self.at.store(code.0, Ordering::Release);
        }
        state
    }

    /// # Safety
    /// As `place`.
    pub(crate) unsafe fn remove(&self) {
        let at = self.at.swap(core::ptr::null_mut(), Ordering::AcqRel);
        if !at.is_null() {
            // SAFETY: by contract.
            unsafe { place::remove(at) };
        }
    }
}

static AGENT: AtomicPtr<Agent> = AtomicPtr::new(core::ptr::null_mut());

/// Who is told.
pub(crate) fn begin(agent: &'static Agent) {
    AGENT.store((&raw const *agent).cast_mut(), Ordering::Release);
}

pub(crate) fn agent() -> Option<&'static Agent> {
    // SAFETY: null, or what `begin` has stored for good.
    unsafe { AGENT.load(Ordering::Acquire).as_ref() }
}

type Pointer = *mut c_void;

/// Declares hooks: a static, and the function that stands in the original's place, whose `original` is the
/// original.
macro_rules! hooks {
    ($($name:ident = $function:ident fn $hook:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?
        |$original:ident, $agent:ident| $body:block)*) => {
        $(
            pub(crate) static $name: Hook =
                Hook::new(Function::$function, stringify!($function), || $hook as Pointer);

            unsafe extern "C-unwind" fn $hook($($argument: $type),*) $(-> $result)? {
                type Original = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;
                let $original = $name.original();
                // SAFETY: of this type, as the table of versions has it. Stored before anybody comes here.
                let $original = unsafe { core::mem::transmute::<Pointer, Original>($original) };
                let Some($agent) = agent() else {
                    // SAFETY: the caller's arguments, passed on.
                    return unsafe { $original($($argument),*) };
                };
                $body
            }
        )*

        /// All of them.
        pub(crate) static ALL: &[&Hook] = &[$(&$name),*];
    };
}

/// Tells of something at a place where Java code may be asked for.
fn hit(agent: &Agent, probe: Probe, argument: u64) {
    frames::at_hook();
    threads::at(Place::Hook, || agent.hit(probe, argument));
}

fn end_wait(agent: &Agent, wait: &mut Words) {
    frames::at_hook();
    threads::at(Place::Hook, || agent.end_wait(wait, 0));
}

fn end_wake(agent: &Agent, wake: &mut Words, probe: Probe, object: u64) {
    frames::at_hook();
    threads::at(Place::Hook, || agent.end_wake(wake, probe, object));
}

hooks! {
    MONITOR_LOCK = MonitorLock fn monitor_lock(monitor: Pointer, thread: Pointer) |original, agent| {
        let owner = monitors::owner_tid(monitor, thread);
        let mut wait = Words::new();
        // SAFETY: room for it; the original is called in this function, and the wait ends here.
        unsafe {
            (agent.begin_wait)(&raw mut wait, Probe::MonitorEnter, monitor.addr() as u64, owner);
            original(monitor, thread);
        }
        end_wait(agent, &mut wait);
        monitors::learn(monitor, thread);
    }

    MONITOR_UNLOCK = MonitorUnlock fn monitor_unlock(monitor: Pointer, thread: Pointer) -> bool
    |original, agent| {
        let mut wake = Words::new();
        agent.begin_wake(&mut wake, monitor.addr() as u64, 1);
        // SAFETY: the caller's arguments, passed on.
        let result = unsafe { original(monitor, thread) };
        end_wake(agent, &mut wake, Probe::MonitorExit, monitor.addr() as u64);
        result
    }

    // What a wait is for is learned on the way to the next hook.
    WAIT_FOR_OBJECT = WaitForObject
    fn wait_for_object(thread: Pointer, object: Pointer, ms: i64, ns: i32, throws: bool, state: u32)
    |original, _agent| {
        threads::awaits(monitors::id_of(object));
        // SAFETY: the caller's arguments, passed on.
        unsafe { original(thread, object, ms, ns, throws, state) };
    }

    MONITOR_WAIT = MonitorWait
    fn monitor_wait(monitor: Pointer, thread: Pointer, ms: i64, ns: i32, throws: bool, state: u32)
    |original, agent| {
        monitors::learn_id(monitor, threads::awaited());
        let waiters = monitors::waiters(monitors::id(monitor));
        // It lets the lock go, which somebody else may wait for.
        let (mut wait, mut wake) = (Words::new(), Words::new());
        agent.begin_wake(&mut wake, monitor.addr() as u64, 1);
        // SAFETY: room for it; the original is called in this function, and the wait ends here.
        unsafe {
            (agent.begin_wait)(&raw mut wait, Probe::MonitorWait, waiters, 0);
            original(monitor, thread, ms, ns, throws, state);
        }
        end_wait(agent, &mut wait);
        agent.end_wake(&mut wake, Probe::MonitorExit, monitor.addr() as u64);
    }

    MONITOR_NOTIFY = MonitorNotify fn monitor_notify(thread: Pointer, object: Pointer, all: bool)
    |original, agent| {
        let (mut wake, waiters) = (Words::new(), monitors::waiters(monitors::id_of(object)));
        agent.begin_wake(&mut wake, waiters, if all { u32::MAX } else { 1 });
        // SAFETY: the caller's arguments, passed on.
        unsafe { original(thread, object, all) };
        end_wake(agent, &mut wake, Probe::MonitorNotify, waiters);
    }

    PARK = Park fn park(thread: Pointer, is_absolute: bool, time: i64) |original, agent| {
        let mut wait = Words::new();
        // SAFETY: room for it; the original is called in this function, and the wait ends here.
        unsafe {
            (agent.begin_wait)(&raw mut wait, Probe::Park, thread.addr() as u64, 0);
            original(thread, is_absolute, time);
        }
        end_wait(agent, &mut wait);
    }

    // Its caller holds ART's lock of the list of threads, so no name is asked for.
    UNPARK = Unpark fn unpark(thread: Pointer) |original, agent| {
        let mut wake = Words::new();
        agent.begin_wake(&mut wake, thread.addr() as u64, 1);
        // SAFETY: the caller's arguments, passed on.
        unsafe { original(thread) };
        agent.end_wake(&mut wake, Probe::Unpark, thread.addr() as u64);
    }

    // On its way into a suspension. Until Android 12 there is no second argument, and this passes on what
    // stood in its register.
    FULL_SUSPEND_CHECK = FullSuspendCheck fn full_suspend_check(thread: Pointer, is_implicit: usize)
    |original, agent| {
        frames::at_hook();
        threads::at(Place::Hook, || agent.better_moment(Probe::Safepoint));
        // SAFETY: the caller's arguments, passed on.
        unsafe { original(thread, is_implicit) };
    }

    // Threads come here in any state, so ART is not asked.
    WAIT_FOR_GC = WaitForGc fn wait_for_gc(heap: Pointer, cause: u32, thread: Pointer) -> u32
    |original, agent| {
        let mut wait = Words::new();
        // SAFETY: room for it; the original is called in this function, and the wait ends here.
        let result = unsafe {
            (agent.begin_wait)(&raw mut wait, Probe::GcWait, heap.addr() as u64, 0);
            original(heap, cause, thread)
        };
        agent.end_wait(&mut wait, 0);
        result
    }

    // Those who wait for it go on.
    FINISH_GC = FinishGc fn finish_gc(heap: Pointer, thread: Pointer, kind: u32) |original, agent| {
        let mut wake = Words::new();
        agent.begin_wake(&mut wake, heap.addr() as u64, u32::MAX);
        // SAFETY: the caller's arguments, passed on.
        unsafe { original(heap, thread, kind) };
        agent.end_wake(&mut wake, Probe::GcEnd, heap.addr() as u64);
    }

    JNI = JniMethodStart fn jni_method_start(thread: Pointer) -> u32 |original, agent| {
        hit(agent, Probe::NativeCall, 0);
        // SAFETY: the caller's argument, passed on.
        unsafe { original(thread) }
    }

    // Android 16 has one argument more, which lies on the stack.
    DEFINE_CLASS = DefineClass
    fn define_class(linker: Pointer, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize)
    -> Pointer
    |original, agent| {
        hit(agent, Probe::ClassLoad, 0);
        // SAFETY: the caller's arguments, passed on.
        unsafe { original(linker, a, b, c, d, e, f, g) }
    }

    // Where the heap is.
    REGISTER_NATIVE_ALLOCATION = RegisterNativeAllocation
    fn register_native_allocation(heap: Pointer, env: Pointer, bytes: usize) |original, _agent| {
        heap::found(heap);
        // SAFETY: the caller's arguments, passed on.
        unsafe { original(heap, env, bytes) };
    }

    // Where the list of threads is: the suspension in which this is placed ends here.
    RESUME_ALL = ResumeAllThreads fn resume_all(list: Pointer) |original, _agent| {
        suspend::found(list);
        entry_points::resumed();
        // SAFETY: the caller's argument, passed on.
        unsafe { original(list) };
    }

    SET_ENTRYPOINTS = SetEntrypointsInstrumented
    fn set_entrypoints(instrumentation: Pointer, is_instrumented: bool) |original, _agent| {
        if !entry_points::set_instrumented(is_instrumented) {
            // SAFETY: the caller's arguments, passed on.
            unsafe { original(instrumentation, is_instrumented) };
        }
    }

    DELETE_CLASS_LOADER = DeleteClassLoader
    fn delete_class_loader(linker: Pointer, thread: Pointer, data: Pointer, cleanup: bool)
    |original, _agent| {
        methods::forget();
        // SAFETY: the caller's arguments, passed on.
        unsafe { original(linker, thread, data, cleanup) };
    }
}
