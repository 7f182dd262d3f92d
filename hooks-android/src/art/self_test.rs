//! Which hooks their calls pass on this ART: what a version has inlined passes none. A thread of its own
//! calls each function some times through JNI, and the hooks count that thread's calls.
//!
//! Collections and class loads are not tried: they cost the program something.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::PoisonError;

use stackbeat_core::platform;

use super::heap;
use super::hooks::{self, Hook};
use super::jni::{Class, Env};
use super::library::Art;
use super::place;
use super::start::{IS_STARTED, art, while_suspended};
use super::versions::Function;
use crate::doctor::State;

/// How often each function is called.
const TRIES: u64 = 8;

/// Calls of `Monitor::MonitorEnter`, by which ART's own code enters monitors that nobody has.
static ENTERS: AtomicU64 = AtomicU64::new(0);
static ENTER: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

type Enter = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, bool) -> *mut c_void;

unsafe extern "C-unwind" fn enter(
    thread: *mut c_void,
    object: *mut c_void,
    tries: bool,
) -> *mut c_void {
    hooks::count(&ENTERS);
    // SAFETY: a function of this type; it was stored before anybody could come here.
    unsafe {
        let original: Enter = core::mem::transmute(ENTER.load(Ordering::Acquire));
        original(thread, object, tries)
    }
}

/// Tries the hooks that are in their places. Gives lines as those of [`crate::doctor`]; none: the adapter has
/// not begun.
///
/// # Safety
/// `env` is the calling thread's, which runs native code. `in_own_thread` runs what it gets in a thread that
/// is none of the machine's, and returns when that is done.
pub unsafe fn run(
    env: *mut c_void,
    in_own_thread: impl FnOnce(Box<dyn FnOnce() -> Vec<String> + Send>) -> Vec<String>,
) -> Vec<String> {
    let is_started = IS_STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: by contract.
    let vm = unsafe { Env::new(env) }.vm();
    let Some((art, vm)) = art().filter(|_| *is_started).zip(vm) else {
        return Vec::new();
    };
    in_own_thread(Box::new(move || {
        hooks::count_calls_of(platform::thread_id() as i32);
        // SAFETY: the machine of a thread that waits for this.
        let lines = unsafe { vm.attached(c"stackbeat doctor", |env| try_all(art, env)) };
        hooks::count_calls_of(hooks::NOBODY);
        lines.unwrap_or_else(|| vec![format!("art {}: its machine takes no thread", art.version)])
    }))
}

/// What was tried: a name, and how many of [`TRIES`] calls passed.
struct Passed(Vec<(&'static str, u64)>);

impl Passed {
    /// Calls this some times, and looks how many calls each hook has seen.
    fn tries(&mut self, hooks: &[&'static Hook], call: impl Fn() -> bool) {
        let before: Vec<u64> = hooks.iter().map(|hook| calls(hook)).collect();
        if !(0..TRIES).all(|_| call()) {
            // This core library has it otherwise.
            return;
        }
        for (hook, before) in hooks.iter().zip(before) {
            if hook.is_placed() {
                self.0.push((hook.name, calls(hook) - before));
            }
        }
    }
}

fn calls(hook: &Hook) -> u64 {
    hook.calls.load(Ordering::Relaxed)
}

fn try_all(art: &'static Art, env: Env) -> Vec<String> {
    let mut passed = Passed(Vec::new());
    let thread = env.class(c"java/lang/Thread");
    let object = env.class(c"java/lang/Object");
    if let Some(thread) = thread {
        let yields = || thread.run(c"yield", c"()V", &[]);
        passed.tries(&[&hooks::JNI], yields);
        try_parks(env, thread, &mut passed);
    }
    let enters = object.and_then(|object| {
        try_allocation(object, &mut passed);
        try_monitors(env, object, &mut passed);
        try_free_monitors(art, env)
    });
    for class in [thread, object].into_iter().flatten() {
        class.delete();
    }
    let of = format!("art {}", art.version);
    let mut lines = Vec::new();
    let count = passed.0.len();
    let (all, some): (Vec<_>, Vec<_>) = passed.0.into_iter().partition(|(_, n)| *n >= TRIES);
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    lines.push(format!(
        "{of}: {} of {count} hooks that were tried are passed by their calls: {}",
        names.len(),
        names.join(", ")
    ));
    let inlined = |(name, n): (&str, u64)| {
        format!(
            "{of}, not available: {name} ({n} of {TRIES} calls passed its hook: the others are inlined)"
        )
    };
    lines.extend(some.into_iter().map(inlined));
    lines.push(match enters {
        None => format!("{of}, not available: monitors that nobody waits for (whether they pass a function cannot be told)"),
        Some(0) => format!(
            "{of}, not available: monitors that nobody waits for (inlined: 0 of {TRIES} came to Monitor::MonitorEnter)"
        ),
        Some(n) => format!(
            "{of}, not available: monitors that nobody waits for (not hooked: {n} of {TRIES} came to \
             Monitor::MonitorEnter)"
        ),
    });
    lines
}

/// The thread's own permit, which nobody else uses.
fn try_parks(env: Env, thread: Class, passed: &mut Passed) {
    let Some(support) = env.class(c"java/util/concurrent/locks/LockSupport") else {
        return;
    };
    let own = thread.object(c"currentThread", c"()Ljava/lang/Thread;", &[]);
    passed.tries(&[&hooks::UNPARK, &hooks::PARK], || {
        let argument = [own.addr() as u64];
        support.run(c"unpark", c"(Ljava/lang/Thread;)V", &argument)
            && support.run(c"park", c"()V", &[])
    });
    env.delete(own);
    support.delete();
}

fn try_allocation(object: Class, passed: &mut Passed) {
    let before = heap::OBJECTS.load(Ordering::Relaxed);
    if !heap::is_listening() {
        return;
    }
    for _ in 0..TRIES {
        object.free(object.allocate());
    }
    let objects = heap::OBJECTS.load(Ordering::Relaxed) - before;
    passed.0.push(("ObjectAllocated", objects));
}

/// A monitor that has a hash is entered by ART's function also where nobody has it.
fn try_monitors(env: Env, object: Class, passed: &mut Passed) {
    let (one, system) = (object.allocate(), env.class(c"java/lang/System"));
    let Some(system) = system.filter(|_| !one.is_null()) else {
        return;
    };
    let argument = [one.addr() as u64];
    let hash = system.int(c"identityHashCode", c"(Ljava/lang/Object;)I", &argument);
    if hash.is_some() {
        let enters = || env.with_monitor(one, || {});
        passed.tries(&[&hooks::MONITOR_LOCK, &hooks::MONITOR_UNLOCK], enters);
        passed.tries(&[&hooks::WAIT_FOR_OBJECT, &hooks::MONITOR_WAIT], || {
            env.with_monitor(one, || _ = object.run_of(one, c"wait", c"(J)V", &[1]))
        });
        passed.tries(&[&hooks::MONITOR_NOTIFY], || {
            env.with_monitor(one, || _ = object.run_of(one, c"notify", c"()V", &[]))
        });
    }
    env.delete(one);
    system.delete();
}

/// How many of [`TRIES`] calls came to ART's function for monitors that nobody has; `None`: there is no such
/// call.
fn came(call: &dyn Fn() -> bool) -> Option<u64> {
    let before = ENTERS.load(Ordering::Relaxed);
    let is_called = (0..TRIES).all(|_| call());
    is_called.then(|| ENTERS.load(Ordering::Relaxed) - before)
}

/// Java code that enters a monitor which nobody has. Gives how many of [`TRIES`] calls came to ART's function
/// for that; `None`: it cannot be tried.
fn try_free_monitors(art: &'static Art, env: Env) -> Option<u64> {
    let code = art.code_of(Function::MonitorEnter)?;
    let collections = env.class(c"java/util/Collections")?;
    let list = collections.object(c"emptyList", c"()Ljava/util/List;", &[]);
    let signature = c"(Ljava/util/Collection;)Ljava/util/Collection;";
    let name = c"synchronizedCollection";
    let locked = collections.object(name, signature, &[list.addr() as u64]);
    let collection = env.class(c"java/util/Collection");
    let count = collection
        .filter(|_| !locked.is_null())
        .and_then(|collection| {
            let mut is_placed = false;
            while_suspended(art, || {
                let by = enter as *mut c_void;
                // SAFETY: whoever runs this function is suspended.
                let state = unsafe { place::place("MonitorEnter", code, by, &ENTER) };
                is_placed = matches!(state, State::Placed(_));
            });
            if !is_placed {
                return None;
            }
            // JNI always comes there: else nothing can be said.
            let by_jni = came(&|| env.with_monitor(list, || {}));
            let by_java = came(&|| collection.int_of(locked, c"size", c"()I").is_some());
            while_suspended(art, || {
                // SAFETY: as above.
                unsafe { place::remove(code.0) };
            });
            collection.delete();
            by_java.filter(|_| by_jni == Some(TRIES))
        });
    env.delete(locked);
    env.delete(list);
    collections.delete();
    count
}
