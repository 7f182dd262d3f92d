//! Allocations of Java objects: ART's heap has room for one listener, and calls it for each object.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::entry_points;
use super::frames;
use super::hooks;
use super::jni::Env;
use super::library::Art;
use super::threads::{self, Place};
use super::versions::Function;
use crate::doctor::State;

/// Objects that the listener was told of, where they are counted.
pub(crate) static OBJECTS: AtomicU64 = AtomicU64::new(0);
static HEAP: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static IS_LISTENING: AtomicBool = AtomicBool::new(false);

/// runtime/gc/allocation_listener.h: two destructors and `ObjectAllocated` until Android 10; from 11 on
/// `PreObjectAllocated` and `HasPreAlloc` stand before it.
#[repr(C)]
struct Vtable<const BEFORE: usize> {
    before: [*const c_void; BEFORE],
    object_allocated: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, usize),
}

// SAFETY: addresses of functions.
unsafe impl<const BEFORE: usize> Sync for Vtable<BEFORE> {}

extern "C" fn nothing(_: *mut c_void) {}

extern "C" fn no(_: *mut c_void) -> bool {
    false
}

static UNTIL_10: Vtable<2> = Vtable {
    before: [nothing as *const c_void; 2],
    object_allocated,
};
static FROM_11: Vtable<4> = Vtable {
    before: [
        nothing as *const c_void,
        nothing as *const c_void,
        nothing as *const c_void,
        no as *const c_void,
    ],
    object_allocated,
};

/// An object with nothing but its table of virtual functions.
static LISTENER: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// ART calls it when the object is there. It may not suspend the thread, and holds no lock: an allocation may
/// collect.
unsafe extern "C" fn object_allocated(
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    bytes: usize,
) {
    hooks::count(&OBJECTS);
    if let Some(agent) = hooks::agent() {
        frames::at_hook();
        threads::at(Place::Hook, || agent.allocated(bytes as u64));
    }
}

/// Whether a hook has seen the heap.
pub(crate) fn is_known() -> bool {
    !HEAP.load(Ordering::Acquire).is_null()
}

/// A hook has seen the heap.
pub(crate) fn found(heap: *mut c_void) {
    HEAP.store(heap, Ordering::Release);
}

/// Calls `VMRuntime.getRuntime().registerNativeAllocation(0)`, which asks for nothing and comes to the heap.
pub(crate) fn come_to_the_heap(env: Env) {
    let Some(class) = env.class(c"dalvik/system/VMRuntime") else {
        return;
    };
    let runtime = class.object(c"getRuntime", c"()Ldalvik/system/VMRuntime;", &[]);
    if !runtime.is_null() {
        // Of 64 bits from Android 10 on.
        let signatures = [c"(J)V", c"(I)V"].into_iter();
        let mut found = signatures.filter(|s| class.has(c"registerNativeAllocation", s));
        if let Some(signature) = found.next() {
            class.run_of(runtime, c"registerNativeAllocation", signature, &[0]);
        }
    }
    env.delete(runtime);
    class.delete();
}

type Set = unsafe extern "C" fn(*mut c_void, *mut c_void);
type Remove = unsafe extern "C" fn(*mut c_void);

/// Listens. Says what became of that.
///
/// # Safety
/// The calling thread runs native code, because ART may suspend all others for a moment.
pub(crate) unsafe fn listen(art: &Art) -> State {
    let heap = HEAP.load(Ordering::Acquire);
    let missing = |why: &str| State::NotAvailable(why.to_owned());
    let Some(set) = art.address(Function::SetAllocationListener) else {
        return missing("this ART does not have it");
    };
    if heap.is_null() {
        return missing("the heap was not found");
    }
    let vtable = match art.version {
        ..=10 => (&raw const UNTIL_10).cast_mut().cast(),
        11.. => (&raw const FROM_11).cast_mut().cast(),
    };
    LISTENER.store(vtable, Ordering::Release);
    // SAFETY: a function of this type; the listener stays.
    let by_checkpoint = entry_points::change(|| unsafe {
        let set: Set = core::mem::transmute(set);
        set(heap, LISTENER.as_ptr().cast());
    });
    IS_LISTENING.store(true, Ordering::Relaxed);
    State::Placed(match by_checkpoint {
        true => "its listener",
        false => "its listener (set while all threads were suspended)",
    })
}

/// Whether ART calls the listener at allocations.
pub(crate) fn is_listening() -> bool {
    IS_LISTENING.load(Ordering::Relaxed)
}

/// Listens no more.
///
/// # Safety
/// The calling thread runs native code.
pub(crate) unsafe fn end(art: &Art) {
    if let Some(remove) = art.address(Function::RemoveAllocationListener)
        && IS_LISTENING.swap(false, Ordering::Relaxed)
    {
        // SAFETY: a function of this type.
        entry_points::change(|| unsafe {
            let remove: Remove = core::mem::transmute(remove);
            remove(HEAP.load(Ordering::Acquire));
        });
    }
}
