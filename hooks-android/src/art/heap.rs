//! Allocations of Java objects: ART's heap has room for one listener, and calls it for each object.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::frames;
use super::hooks;
use super::library::Art;
use super::place;
use super::threads::{self, Place};
use super::versions::Function;

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

static REGISTER: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

type Register = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize);

unsafe extern "C-unwind" fn register(heap: *mut c_void, env: *mut c_void, bytes: usize) {
    HEAP.store(heap, Ordering::Release);
    // SAFETY: a function of this type; it was stored before anybody could come here.
    unsafe {
        let original: Register = core::mem::transmute(REGISTER.load(Ordering::Acquire));
        original(heap, env, bytes);
    }
}

/// JNI's functions by their places in the table (jni.h).
mod jni {
    pub(super) const FIND_CLASS: usize = 6;
    pub(super) const EXCEPTION_CLEAR: usize = 17;
    pub(super) const DELETE_LOCAL_REF: usize = 23;
    pub(super) const GET_METHOD_ID: usize = 33;
    pub(super) const CALL_VOID_METHOD_A: usize = 63;
    pub(super) const GET_STATIC_METHOD_ID: usize = 113;
    pub(super) const CALL_STATIC_OBJECT_METHOD_A: usize = 116;
}

/// Calls `VMRuntime.getRuntime().registerNativeAllocation(0)`, which asks for nothing and comes to the heap.
///
/// # Safety
/// `env` is the calling thread's, which runs native code.
unsafe fn come_to_the_heap(env: *mut c_void) {
    type Pointer = *mut c_void;
    type FindClass = unsafe extern "C" fn(Pointer, *const c_char) -> Pointer;
    type GetMethod =
        unsafe extern "C" fn(Pointer, Pointer, *const c_char, *const c_char) -> Pointer;
    type CallObject = unsafe extern "C" fn(Pointer, Pointer, Pointer, *const u64) -> Pointer;
    type CallVoid = unsafe extern "C" fn(Pointer, Pointer, Pointer, *const u64);
    type OfReference = unsafe extern "C" fn(Pointer, Pointer);
    type Plain = unsafe extern "C" fn(Pointer);
    // SAFETY: JNI's table, whose functions at these places are of these types.
    unsafe {
        let table = *env.cast::<*const *mut c_void>();
        let function = |place: usize| *table.add(place);
        let find_class: FindClass = core::mem::transmute(function(jni::FIND_CLASS));
        let get_static: GetMethod = core::mem::transmute(function(jni::GET_STATIC_METHOD_ID));
        let get_method: GetMethod = core::mem::transmute(function(jni::GET_METHOD_ID));
        let call_object: CallObject =
            core::mem::transmute(function(jni::CALL_STATIC_OBJECT_METHOD_A));
        let call_void: CallVoid = core::mem::transmute(function(jni::CALL_VOID_METHOD_A));
        let delete: OfReference = core::mem::transmute(function(jni::DELETE_LOCAL_REF));
        let clear: Plain = core::mem::transmute(function(jni::EXCEPTION_CLEAR));
        let text = |text: &'static CStr| text.as_ptr();
        let class = find_class(env, text(c"dalvik/system/VMRuntime"));
        if class.is_null() {
            return clear(env);
        }
        let get_runtime = get_static(
            env,
            class,
            text(c"getRuntime"),
            text(c"()Ldalvik/system/VMRuntime;"),
        );
        if !get_runtime.is_null() {
            let runtime = call_object(env, class, get_runtime, core::ptr::null());
            // Of 64 bits from Android 10 on.
            for signature in [c"(J)V", c"(I)V"] {
                let register = get_method(
                    env,
                    class,
                    text(c"registerNativeAllocation"),
                    text(signature),
                );
                if register.is_null() {
                    clear(env);
                } else if !runtime.is_null() {
                    call_void(env, runtime, register, &0);
                    break;
                }
            }
            delete(env, runtime);
        }
        clear(env);
        delete(env, class);
    }
}

/// Looks where the heap is.
///
/// # Safety
/// `env` is the calling thread's, which runs native code.
pub(crate) unsafe fn find(art: &Art, env: *mut c_void, while_suspended: impl Fn(&mut dyn FnMut())) {
    let Some(code) = art.code_of(Function::RegisterNativeAllocation) else {
        return;
    };
    let mut is_placed = false;
    while_suspended(&mut || {
        let by = register as *mut c_void;
        // SAFETY: whoever runs this function is suspended.
        is_placed =
            unsafe { place::place("RegisterNativeAllocation", code, by, &REGISTER) }.is_ok();
    });
    if is_placed {
        // SAFETY: by contract.
        unsafe { come_to_the_heap(env) };
        while_suspended(&mut || {
            // SAFETY: as above.
            unsafe { place::remove(code.0) };
        });
    }
}

type Set = unsafe extern "C" fn(*mut c_void, *mut c_void);
type Remove = unsafe extern "C" fn(*mut c_void);

/// Listens. False: it is not known where the heap is, or how.
///
/// # Safety
/// The calling thread runs native code, because ART suspends all others for a moment.
pub(crate) unsafe fn listen(art: &Art) -> bool {
    let heap = HEAP.load(Ordering::Acquire);
    let Some(set) = art
        .address(Function::SetAllocationListener)
        .filter(|_| !heap.is_null())
    else {
        return false;
    };
    let vtable = match art.version {
        ..=10 => (&raw const UNTIL_10).cast_mut().cast(),
        11.. => (&raw const FROM_11).cast_mut().cast(),
    };
    LISTENER.store(vtable, Ordering::Release);
    // SAFETY: a function of this type; the listener stays.
    unsafe {
        let set: Set = core::mem::transmute(set);
        set(heap, LISTENER.as_ptr().cast());
    }
    IS_LISTENING.store(true, Ordering::Relaxed);
    true
}

/// Whether allocations are told of.
#[cfg(feature = "rig")]
pub(crate) fn is_listening() -> bool {
    IS_LISTENING.load(Ordering::Relaxed)
}

/// Listens no more.
///
/// # Safety
/// As `listen`.
pub(crate) unsafe fn end(art: &Art) {
    if let Some(remove) = art.address(Function::RemoveAllocationListener)
        && IS_LISTENING.swap(false, Ordering::Relaxed)
    {
        // SAFETY: a function of this type.
        unsafe {
            let remove: Remove = core::mem::transmute(remove);
            remove(HEAP.load(Ordering::Acquire));
        }
    }
}
