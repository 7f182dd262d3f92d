//! What is kept for a thread, and which thread of ART's the calling one is. By keys of pthread and not by
//! thread-local variables: those of a library that was loaded later are made at the first use, with malloc,
//! and a capture may be in the middle of that.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A key that is not made.
const NONE: u32 = u32::MAX;
static OWN_KEY: AtomicU32 = AtomicU32::new(NONE);
/// Where ART keeps the key of its threads.
static ART_KEY: AtomicPtr<libc::pthread_key_t> = AtomicPtr::new(core::ptr::null_mut());

/// What a hook of ours lets a capture do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Any capture: ART may be in the middle of anything.
    Anywhere,
    /// In the agent's call from a hook, with nothing of ART's or of malloc's under way. The thread runs Java
    /// code there, by ART's word: it has the right to look at objects, and holds no lock that ART's own walks
    /// take. A signal that comes in the agent's code finds the same.
    Hook,
}

/// Of one thread.
pub(crate) struct Own {
    pub(crate) place: Cell<Place>,
    /// Where its stack ends, and where it begins.
    stack_low: usize,
    stack_high: usize,
    /// The monitor that it is about to wait for, by its number.
    awaits: Cell<u32>,
}

extern "C" fn free(own: *mut c_void) {
    // SAFETY: `own` made it for this thread, which ends.
    drop(unsafe { Box::from_raw(own.cast::<Own>()) });
}

fn key_of(number: u32) -> libc::pthread_key_t {
    libc::pthread_key_t::from_ne_bytes(number.to_ne_bytes())
}

/// Prepares for threads of an ART that keeps their key here. False: there are no keys left.
pub(crate) fn begin(art_key: *mut libc::pthread_key_t) -> bool {
    let mut key = 0;
    // SAFETY: a new key, with a function that frees its values.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(free)) } != 0 {
        return false;
    }
    // It has a sign on Android and none elsewhere.
    let key = u32::from_ne_bytes(key.to_ne_bytes());
    OWN_KEY.store(key, Ordering::Release);
    ART_KEY.store(art_key, Ordering::Release);
    true
}

/// The calling thread's `Thread*`; null: it is none of ART's.
pub(crate) fn current() -> *mut c_void {
    let key = ART_KEY.load(Ordering::Acquire);
    if key.is_null() {
        return core::ptr::null_mut();
    }
    #[cfg(target_os = "android")]
    return in_slot();
    // SAFETY: a key that ART made before it began.
    #[cfg(not(target_os = "android"))]
    unsafe {
        libc::pthread_getspecific(*key)
    }
}

/// On bionic ART does not set its key, but a slot behind the thread pointer: `TLS_SLOT_ART_THREAD_SELF`, 7 on
/// arm and x86 of 64 bits (libc/platform/bionic/tls_defines.h; runtime/thread.cc, `Thread::Init`, from
/// Android 8 to 16).
#[cfg(target_os = "android")]
fn in_slot() -> *mut c_void {
    const SLOT: usize = 7;
    let thread_pointer: *const *mut c_void;
    // SAFETY: reads the thread pointer, behind which bionic has this slot.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) thread_pointer, options(nomem, nostack));
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, fs:0", out(reg) thread_pointer, options(nostack, readonly));
        *thread_pointer.add(SLOT)
    }
}

/// What is kept for the calling thread, if it has passed a hook.
pub(crate) fn own_if_any() -> Option<&'static Own> {
    let key = OWN_KEY.load(Ordering::Acquire);
    if key == NONE {
        return None;
    }
    // SAFETY: null, or what `own` has stored for this thread.
    unsafe {
        libc::pthread_getspecific(key_of(key))
            .cast::<Own>()
            .as_ref()
    }
}

/// The same; the first time it is made.
pub(crate) fn own() -> Option<&'static Own> {
    own_if_any().or_else(|| {
        let key = OWN_KEY.load(Ordering::Acquire);
        let (stack_low, stack_high) = stack();
        let own = Box::into_raw(Box::new(Own {
            place: Cell::new(Place::Anywhere),
            stack_low,
            stack_high,
            awaits: Cell::new(0),
        }));
        // SAFETY: a key of ours, and a box that `free` takes.
        let is_set =
            key != NONE && unsafe { libc::pthread_setspecific(key_of(key), own.cast()) } == 0;
        if !is_set {
            free(own.cast());
            return None;
        }
        own_if_any()
    })
}

/// From where to where the calling thread's stack goes; of no bytes at the highest address: it is not known.
fn stack() -> (usize, usize) {
    const NOT_KNOWN: (usize, usize) = (usize::MAX, usize::MAX);
    let mut attributes = core::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut bytes) = (core::ptr::null_mut(), 0);
    // SAFETY: filled by the first call, and given back.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return NOT_KNOWN;
        }
        let got = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        match got {
            0 => (low.addr(), low.addr().saturating_add(bytes)),
            _ => NOT_KNOWN,
        }
    }
}

/// What a hook leaves of the program's stack: ART makes errors of overflown stacks in the last kilobytes.
const LEFT_OF_STACK: usize = 64 << 10;

impl Own {
    /// Whether there is room for more than the hook itself. Captures have a stack of the agent's.
    pub(crate) fn has_room(&self) -> bool {
        let here = 0u8;
        let left = (&raw const here).addr().checked_sub(self.stack_low);
        left.is_some_and(|left| left > LEFT_OF_STACK)
    }
}

/// The calling thread's stack, if it has passed a hook.
pub(crate) fn own_stack() -> Option<core::ops::Range<u64>> {
    own_if_any().map(|own| own.stack_low as u64..own.stack_high as u64)
}

/// Runs this with what a hook knows of the thread, for captures inside of it.
pub(crate) fn at<R>(place: Place, f: impl FnOnce() -> R) -> R {
    let Some(own) = own() else {
        return f();
    };
    let before = own.place.replace(place);
    let result = f();
    own.place.set(before);
    result
}

/// The thread is about to wait for the monitor with this number; 0: it is not known.
pub(crate) fn awaits(monitor: u32) {
    if let Some(own) = own() {
        own.awaits.set(monitor);
    }
}

/// The number of the monitor that the thread is about to wait for, once.
pub(crate) fn awaited() -> u32 {
    own_if_any().map_or(0, |own| own.awaits.take())
}
