//! Iterations of run loops, by two observers on each: one that comes before all others and one that comes
//! after them. Between two sleeps is an iteration, which stands in the trace as asynchronous work with a
//! number and the mode. The sleep is a wait with its exact begin and end.
//!
//! The main loop gets its observers when a session begins. Another thread's gets them when the thread enters
//! it: by `CFRunLoopRun` and `CFRunLoopRunInMode`, and by the methods of `NSRunLoop`, which are replaced.
//!
//! Source: CoreFoundation's CFRunLoop.h (activities, prototypes, contexts), CFBase.h, CFString.h,
//! Foundation's NSRunLoop.h. CFRunLoop.c (CF-1153.18) announces `kCFRunLoopBeforeWaiting` and
//! `kCFRunLoopAfterWaiting` in pairs, in the same call. A loop goes with its thread, and gives its observers
//! back, which give their contexts back.
//!
//! Observers of other threads' loops stay until then: between sessions they do nothing.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use stackbeat_core::agent::{self, Wait};
use stackbeat_core::function_of_table;
use stackbeat_core::posix::function_table::Function;
use stackbeat_core::probe::Probe;

use super::methods::{self, Method, method};
use super::symbols::{
    OBSERVER_ADD, OBSERVER_CREATE, OBSERVER_REMOVE, RELEASE, RUN_LOOP_COMMON_MODES,
    RUN_LOOP_CURRENT, RUN_LOOP_MAIN, RUN_LOOP_MODE, STRING_GET,
};

/// CFRunLoop.h, `CFRunLoopActivity`.
const ENTRY: usize = 1 << 0;
const BEFORE_WAITING: usize = 1 << 5;
const AFTER_WAITING: usize = 1 << 6;
const EXIT: usize = 1 << 7;
/// CFString.h, `kCFStringEncodingUTF8`.
const UTF8: u32 = 0x0800_0100;

/// Numbers of `stackbeat.v1.Event.Kind`.
const ASYNC_BEGIN: u8 = 11;
const ASYNC_END: u8 = 12;

type Object = *const c_void;
type Callback = unsafe extern "C" fn(Object, usize, *mut c_void);

/// CFRunLoop.h, `CFRunLoopObserverContext`.
#[repr(C)]
struct Context {
    version: isize,
    info: *const c_void,
    retain: Option<unsafe extern "C" fn(Object) -> Object>,
    release: Option<unsafe extern "C" fn(Object)>,
    description: Option<unsafe extern "C" fn(Object) -> Object>,
}

/// Bytes of an iteration's name.
const NAME_BYTES: usize = 96;
const PREFIX: &[u8] = b"run loop ";

/// A thread's loop, and what that thread knows of it. Only callbacks of the loop use the cells, so its thread
/// does.
struct Loop {
    /// Whose it is; null: nobody's.
    of: AtomicPtr<c_void>,
    /// Observers that still have this as their context.
    observers: AtomicUsize,
    /// How deep loops run inside of each other.
    depth: Cell<u32>,
    /// The number of the iteration that is under way; 0: none is.
    iteration: Cell<u64>,
    wait: Cell<Option<Wait>>,
    /// What the iteration is called.
    name: Cell<([u8; NAME_BYTES], usize)>,
}

// SAFETY: the cells are used by one thread, that of the loop.
unsafe impl Sync for Loop {}

/// The first is the main loop. Loops of more threads at a time are not observed.
static LOOPS: [Loop; 64] = [const {
    Loop {
        of: AtomicPtr::new(null_mut()),
        observers: AtomicUsize::new(0),
        depth: Cell::new(0),
        iteration: Cell::new(0),
        wait: Cell::new(None),
        name: Cell::new(([0; NAME_BYTES], 0)),
    }
}; 64];

/// The main loop's observers: the first and the last.
static OBSERVERS: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
static ITERATIONS: AtomicU64 = AtomicU64::new(0);
/// Callbacks do something.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// CoreFoundation's functions.
struct Foundation {
    create: unsafe extern "C" fn(Object, usize, u8, isize, Callback, *const Context) -> *mut c_void,
    add: unsafe extern "C" fn(Object, Object, Object),
    remove: unsafe extern "C" fn(Object, Object, Object),
    release: unsafe extern "C" fn(Object),
    main: unsafe extern "C" fn() -> Object,
    current: unsafe extern "C" fn() -> Object,
    common_modes: Object,
}

impl Foundation {
    /// `None`: it is not loaded.
    fn find() -> Option<Foundation> {
        // SAFETY: the types are those of the headers.
        unsafe {
            Some(Foundation {
                create: OBSERVER_CREATE.get()?,
                add: OBSERVER_ADD.get()?,
                remove: OBSERVER_REMOVE.get()?,
                release: RELEASE.get()?,
                main: RUN_LOOP_MAIN.get()?,
                current: RUN_LOOP_CURRENT.get()?,
                common_modes: *RUN_LOOP_COMMON_MODES.get::<*const Object>()?,
            })
        }
    }

    /// Makes the two observers of a loop, which are the caller's; null in place of one if there is no memory.
    fn observers(&self, of: &'static Loop) -> [*mut c_void; 2] {
        let context = Context {
            version: 0,
            info: (&raw const *of).cast(),
            retain: None,
            release: Some(is_given_back),
            description: None,
        };
        let kinds: [(usize, isize, Callback); 2] = [
            (ENTRY | AFTER_WAITING, isize::MIN, wakes),
            (BEFORE_WAITING | EXIT, isize::MAX, sleeps),
        ];
        // Before one is given back. One of before may still be in use.
        of.observers.fetch_add(kinds.len(), Ordering::AcqRel);
        kinds.map(|(activities, order, callback)| {
            // SAFETY: the type is that of the header; the context is copied.
            let made = unsafe { (self.create)(null(), activities, 1, order, callback, &context) };
            if made.is_null() {
                of.observers.fetch_sub(1, Ordering::AcqRel);
            }
            made
        })
    }
}

/// An observer has gone: its loop has, or nobody has added it.
unsafe extern "C" fn is_given_back(info: Object) {
    // SAFETY: the context that an observer was made with.
    let of = unsafe { &*info.cast::<Loop>() };
    if of.observers.fetch_sub(1, Ordering::AcqRel) == 1 {
        of.of.store(null_mut(), Ordering::Release);
    }
}

/// Whether the main loop has observers.
pub(super) fn is_placed() -> bool {
    (OBSERVERS.iter()).all(|place| !place.load(Ordering::Acquire).is_null())
}

/// # Safety
/// The library stays.
pub(super) unsafe fn place() {
    IS_ON.store(true, Ordering::Release);
    // SAFETY: by contract; each hook has the type of its method.
    unsafe { methods::place(&METHODS) };
    let Some(foundation) = Foundation::find() else {
        return;
    };
    if is_placed() {
        return;
    }
    // SAFETY: loops and observers may be used by all threads.
    unsafe {
        let main = (foundation.main)();
        let main_loop = &LOOPS[0];
        let made = foundation.observers(main_loop);
        main_loop.of.store(main.cast_mut(), Ordering::Release);
        for (place, observer) in OBSERVERS.iter().zip(made) {
            if !observer.is_null() {
                (foundation.add)(main, observer, foundation.common_modes);
                place.store(observer, Ordering::Release);
            }
        }
    }
}

/// # Safety
/// That of [`place`].
pub(super) unsafe fn take_away() {
    IS_ON.store(false, Ordering::Release);
    // SAFETY: by contract.
    unsafe { methods::take_away(&METHODS) };
    let Some(foundation) = Foundation::find() else {
        return;
    };
    for place in &OBSERVERS {
        let observer = place.swap(null_mut(), Ordering::AcqRel);
        if !observer.is_null() {
            // SAFETY: the observer is ours.
            unsafe {
                (foundation.remove)((foundation.main)(), observer, foundation.common_modes);
                (foundation.release)(observer);
            }
        }
    }
}

/// The calling thread is about to run its loop, in a mode; null: the default mode.
#[inline(always)]
fn enters(mode: Object) {
    if IS_ON.load(Ordering::Acquire) {
        observe(mode);
    }
}

#[cold]
#[inline(never)]
fn observe(mode: Object) {
    let Some(foundation) = Foundation::find() else {
        return;
    };
    // SAFETY: a loop of the calling thread's, which lives as long as that; what was made here is released
    // here, and the loop holds it.
    unsafe {
        let current = (foundation.current)();
        let is_known = |of: &Loop| of.of.load(Ordering::Acquire).cast_const() == current;
        if current.is_null() || current == (foundation.main)() || LOOPS.iter().any(is_known) {
            return;
        }
        // The place stays the main loop's while there is none.
        let free = LOOPS[1..].iter().find(|of| {
            let current = current.cast_mut();
            let (order, none) = (Ordering::AcqRel, Ordering::Relaxed);
            (of.of.compare_exchange(null_mut(), current, order, none)).is_ok()
        });
        let Some(of) = free else {
            return;
        };
        of.depth.set(0);
        of.iteration.set(0);
        of.wait.set(None);
        for observer in foundation.observers(of) {
            if observer.is_null() {
                continue;
            }
            (foundation.add)(current, observer, foundation.common_modes);
            // One of its own, that is no common one.
            if !mode.is_null() {
                (foundation.add)(current, observer, mode);
            }
            (foundation.release)(observer);
        }
        if of.observers.load(Ordering::Acquire) == 0 {
            of.of.store(null_mut(), Ordering::Release);
        }
    }
}

/// A loop begins, or has slept: before all other observers.
unsafe extern "C" fn wakes(_: Object, activity: usize, info: *mut c_void) {
    // SAFETY: the context of its observer.
    let of = unsafe { &*info.cast_const().cast::<Loop>() };
    if activity == ENTRY {
        of.depth.set(of.depth.get().saturating_add(1));
        // One inside of another one belongs to that one's iteration, until it sleeps itself.
        if of.iteration.get() != 0 {
            return;
        }
    }
    of.is_inside();
    if let Some(wait) = of.wait.take() {
        wait.end(0);
    }
    of.begin_turn();
}

/// A loop is about to sleep, or ends: after all other observers.
unsafe extern "C" fn sleeps(_: Object, activity: usize, info: *mut c_void) {
    // SAFETY: the context of its observer.
    let of = unsafe { &*info.cast_const().cast::<Loop>() };
    if activity == EXIT {
        let depth = of.depth.get().saturating_sub(1);
        of.depth.set(depth);
        if depth > 0 {
            return;
        }
    }
    of.end_turn();
    if activity == BEFORE_WAITING && IS_ON.load(Ordering::Acquire) {
        of.is_inside();
        of.wait.set(Some(agent::begin_wait(Probe::RunLoopWait, 0)));
    }
}

impl Loop {
    /// It runs, also where it has begun before the observers came.
    fn is_inside(&self) {
        self.depth.set(self.depth.get().max(1));
    }

    fn begin_turn(&self) {
        self.end_turn();
        if !IS_ON.load(Ordering::Acquire) {
            return;
        }
        let iteration = ITERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        self.iteration.set(iteration);
        self.read_mode();
        self.say(ASYNC_BEGIN, iteration);
    }

    fn end_turn(&self) {
        let iteration = self.iteration.replace(0);
        if iteration != 0 && IS_ON.load(Ordering::Acquire) {
            self.say(ASYNC_END, iteration);
        }
    }

    /// Begin and end of an iteration have one name: the mode's is read when it begins.
    fn say(&self, kind: u8, iteration: u64) {
        let (name, bytes) = self.name.get();
        agent::event(kind, &name[..bytes.min(NAME_BYTES)], iteration as i64);
    }

    /// Reads the name of the mode.
    fn read_mode(&self) {
        type Mode = unsafe extern "C" fn(Object) -> Object;
        type Get = unsafe extern "C" fn(Object, *mut c_char, isize, u32) -> u8;
        type Release = unsafe extern "C" fn(Object);
        let (mut name, mut bytes) = ([0; NAME_BYTES], PREFIX.len());
        name[..bytes].copy_from_slice(PREFIX);
        // SAFETY: the types are those of the headers; what is copied is released. There is room for so many
        // bytes.
        unsafe {
            let (Some(mode), Some(get), Some(release)) = (
                RUN_LOOP_MODE.get::<Mode>(),
                STRING_GET.get::<Get>(),
                RELEASE.get::<Release>(),
            ) else {
                return;
            };
            let current = mode(self.of.load(Ordering::Acquire));
            if current.is_null() {
                return;
            }
            let room = &mut name[bytes..];
            if get(current, room.as_mut_ptr().cast(), room.len() as isize, UTF8) != 0 {
                bytes += room.iter().position(|byte| *byte == 0).unwrap_or(0);
            }
            release(current);
        }
        self.name.set((name, bytes));
    }
}

function_of_table! { @ loop_run() -> () {
    enters(null());
    call()
} }
function_of_table! { @ loop_run_in_mode(mode: Object, time_s: f64, returns_early: u8) -> c_int {
    enters(mode);
    call(mode, time_s, returns_early)
} }

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "CFRunLoopRun",
        aliases: &[],
        hook: loop_run::hook as *const c_void,
        original: &loop_run::ORIGINAL,
    },
    Function {
        name: "CFRunLoopRunInMode",
        aliases: &[],
        hook: loop_run_in_mode::hook as *const c_void,
        original: &loop_run_in_mode::ORIGINAL,
    },
];

function_of_table! { @ run(object: Object, selector: Object) -> () {
    enters(null());
    call(object, selector)
} }
function_of_table! { @ run_until(object: Object, selector: Object, date: Object) -> () {
    enters(null());
    call(object, selector, date)
} }
// A mode's name is an `NSString`, which is a `CFString`.
function_of_table! { @ run_mode(object: Object, selector: Object, mode: Object, date: Object) -> u8 {
    enters(mode);
    call(object, selector, mode, date)
} }
function_of_table! { @ accept_input(object: Object, selector: Object, mode: Object, date: Object) -> () {
    enters(mode);
    call(object, selector, mode, date)
} }

/// The methods that are replaced.
pub(super) static METHODS: [Method; 4] = [
    method!("NSRunLoop" "run" run),
    method!("NSRunLoop" "runUntilDate:" run_until),
    method!("NSRunLoop" "runMode:beforeDate:" run_mode),
    method!("NSRunLoop" "acceptInputForMode:beforeDate:" accept_input),
];
