//! Turns of the main thread's run loop, by two observers: one that comes before all others and one that comes
//! after them. Between two sleeps is a turn, which stands in the trace as asynchronous work with a number and
//! the mode. The sleep is a wait with its exact begin and end.
//!
//! Source: CoreFoundation's CFRunLoop.h (activities, prototypes), CFBase.h, CFString.h. CFRunLoop.c
//! (CF-1153.18) announces `kCFRunLoopBeforeWaiting` and `kCFRunLoopAfterWaiting` in pairs, in the same call.
//! Other threads' loops are not observed.

use core::cell::Cell;
use core::ffi::{c_char, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use stackbeat_core::agent::{self, Wait};
use stackbeat_core::probe::Probe;

use super::symbols::{
    OBSERVER_ADD, OBSERVER_CREATE, OBSERVER_REMOVE, RELEASE, RUN_LOOP_COMMON_MODES, RUN_LOOP_MAIN,
    RUN_LOOP_MODE, STRING_GET,
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

/// Bytes of a turn's name.
const NAME_BYTES: usize = 96;
const PREFIX: &[u8] = b"run loop ";

/// What the main thread knows of its loop. Only that thread uses it.
struct MainThread {
    /// How deep loops run inside of each other.
    depth: Cell<u32>,
    /// The number of the turn that is under way; 0: none is.
    turn: Cell<u64>,
    wait: Cell<Option<Wait>>,
    /// What the turn is called.
    name: Cell<([u8; NAME_BYTES], usize)>,
}

// SAFETY: only callbacks of the main thread's loop use it.
unsafe impl Sync for MainThread {}

static MAIN: MainThread = MainThread {
    depth: Cell::new(0),
    turn: Cell::new(0),
    wait: Cell::new(None),
    name: Cell::new(([0; NAME_BYTES], 0)),
};

/// The observers: the first and the last.
static OBSERVERS: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
static TURNS: AtomicU64 = AtomicU64::new(0);

/// Whether observers are there.
pub(super) fn is_placed() -> bool {
    (OBSERVERS.iter()).all(|place| !place.load(Ordering::Acquire).is_null())
}

/// # Safety
/// The library stays.
pub(super) unsafe fn place() {
    type Create =
        unsafe extern "C" fn(Object, usize, u8, isize, Callback, *mut c_void) -> *mut c_void;
    type Add = unsafe extern "C" fn(Object, Object, Object);
    type Main = unsafe extern "C" fn() -> Object;
    // SAFETY: the types are those of the headers. Loops and observers may be used by all threads.
    unsafe {
        let (Some(create), Some(add), Some(main), Some(modes), Some(_)) = (
            OBSERVER_CREATE.get::<Create>(),
            OBSERVER_ADD.get::<Add>(),
            RUN_LOOP_MAIN.get::<Main>(),
            RUN_LOOP_COMMON_MODES.get::<*const Object>(),
            OBSERVER_REMOVE.get::<Add>(),
        ) else {
            return;
        };
        let kinds: [(usize, isize, Callback); 2] = [
            (ENTRY | AFTER_WAITING, isize::MIN, wakes),
            (BEFORE_WAITING | EXIT, isize::MAX, sleeps),
        ];
        for (place, (activities, order, callback)) in OBSERVERS.iter().zip(kinds) {
            if !place.load(Ordering::Acquire).is_null() {
                continue;
            }
            let observer = create(null(), activities, 1, order, callback, null_mut());
            if !observer.is_null() {
                add(main(), observer, *modes);
                place.store(observer, Ordering::Release);
            }
        }
    }
}

/// # Safety
/// That of [`place`].
pub(super) unsafe fn take_away() {
    type Remove = unsafe extern "C" fn(Object, Object, Object);
    type Release = unsafe extern "C" fn(Object);
    type Main = unsafe extern "C" fn() -> Object;
    for place in &OBSERVERS {
        let observer = place.swap(null_mut(), Ordering::AcqRel);
        if observer.is_null() {
            continue;
        }
        // SAFETY: the types are those of the headers; the observer is ours.
        unsafe {
            if let (Some(remove), Some(main), Some(modes), Some(release)) = (
                OBSERVER_REMOVE.get::<Remove>(),
                RUN_LOOP_MAIN.get::<Main>(),
                RUN_LOOP_COMMON_MODES.get::<*const Object>(),
                RELEASE.get::<Release>(),
            ) {
                remove(main(), observer, *modes);
                release(observer);
            }
        }
    }
}

/// A loop begins, or has slept: before all other observers.
unsafe extern "C" fn wakes(_: Object, activity: usize, _: *mut c_void) {
    if activity == ENTRY {
        MAIN.depth.set(MAIN.depth.get().saturating_add(1));
        // One inside of another one belongs to that one's turn, until it sleeps itself.
        if MAIN.turn.get() != 0 {
            return;
        }
    }
    is_inside();
    if let Some(wait) = MAIN.wait.take() {
        wait.end(0);
    }
    begin_turn();
}

/// A loop is about to sleep, or ends: after all other observers.
unsafe extern "C" fn sleeps(_: Object, activity: usize, _: *mut c_void) {
    if activity == EXIT {
        let depth = MAIN.depth.get().saturating_sub(1);
        MAIN.depth.set(depth);
        if depth > 0 {
            return;
        }
    }
    end_turn();
    if activity == BEFORE_WAITING {
        is_inside();
        MAIN.wait
            .set(Some(agent::begin_wait(Probe::RunLoopWait, 0)));
    }
}

/// A loop runs, also where it has begun before the observers came.
fn is_inside() {
    MAIN.depth.set(MAIN.depth.get().max(1));
}

fn begin_turn() {
    end_turn();
    let turn = TURNS.fetch_add(1, Ordering::Relaxed) + 1;
    MAIN.turn.set(turn);
    read_mode();
    say(ASYNC_BEGIN, turn);
}

fn end_turn() {
    let turn = MAIN.turn.replace(0);
    if turn != 0 {
        say(ASYNC_END, turn);
    }
}

/// Begin and end of a turn have one name: the mode's is read when it begins.
fn say(kind: u8, turn: u64) {
    let (name, bytes) = MAIN.name.get();
    agent::event(kind, &name[..bytes.min(NAME_BYTES)], turn as i64);
}

/// Reads the name of the mode.
fn read_mode() {
    type Mode = unsafe extern "C" fn(Object) -> Object;
    type Main = unsafe extern "C" fn() -> Object;
    type Get = unsafe extern "C" fn(Object, *mut c_char, isize, u32) -> u8;
    type Release = unsafe extern "C" fn(Object);
    let (mut name, mut bytes) = ([0; NAME_BYTES], PREFIX.len());
    name[..bytes].copy_from_slice(PREFIX);
    // SAFETY: the types are those of the headers; what is copied is released. There is room for so many
    // bytes.
    unsafe {
        let (Some(mode), Some(main), Some(get), Some(release)) = (
            RUN_LOOP_MODE.get::<Mode>(),
            RUN_LOOP_MAIN.get::<Main>(),
            STRING_GET.get::<Get>(),
            RELEASE.get::<Release>(),
        ) else {
            return;
        };
        let current = mode(main());
        if current.is_null() {
            return;
        }
        let room = &mut name[bytes..];
        if get(current, room.as_mut_ptr().cast(), room.len() as isize, UTF8) != 0 {
            bytes += room.iter().position(|byte| *byte == 0).unwrap_or(0);
        }
        release(current);
    }
    MAIN.name.set((name, bytes));
}
