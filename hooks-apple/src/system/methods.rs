//! Methods of Objective-C classes, replaced: their calls pass no slot, and are seen wherever they come from.
//!
//! Source: objc4's runtime/runtime.h. A class' method is asked for by class and selector; the runtime gives
//! that of a superclass where the class has none of its own, which stays as it is. Replacing an
//! implementation takes the runtime's lock, so it happens when a session begins and ends, never in a hook.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::symbols::{
    CLASS_LOOK_UP, CLASS_METHOD, CLASS_SUPER, METHOD_GET, METHOD_SET, SELECTOR_REGISTER, Symbol,
};

/// A method and what runs instead.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) class: &'static CStr,
    pub(super) selector: &'static CStr,
    /// For reports.
    pub(super) name: &'static str,
    /// An implementation: the object and the selector come first.
    pub(super) hook: *const c_void,
    pub(super) original: &'static AtomicPtr<c_void>,
    /// The runtime's `Method` that holds the hook; null: none does.
    pub(super) replaced: AtomicPtr<c_void>,
}

// SAFETY: addresses of code and of statics.
unsafe impl Sync for Method {}

/// A method of these names with the module of its hook.
macro_rules! method {
    ($class:literal $selector:literal $hook:ident) => {
        $crate::system::methods::Method {
            class: match core::ffi::CStr::from_bytes_with_nul(concat!($class, "\0").as_bytes()) {
                Ok(class) => class,
                Err(_) => panic!(),
            },
            selector: match core::ffi::CStr::from_bytes_with_nul(
                concat!($selector, "\0").as_bytes(),
            ) {
                Ok(selector) => selector,
                Err(_) => panic!(),
            },
            name: concat!("-[", $class, " ", $selector, "]"),
            hook: $hook::hook as *const core::ffi::c_void,
            original: &$hook::ORIGINAL,
            replaced: core::sync::atomic::AtomicPtr::new(core::ptr::null_mut()),
        }
    };
}
pub(super) use method;

type Pointer = *mut c_void;

/// The runtime's functions.
struct Runtime {
    look_up: unsafe extern "C" fn(*const c_char) -> Pointer,
    super_of: unsafe extern "C" fn(Pointer) -> Pointer,
    method: unsafe extern "C" fn(Pointer, Pointer) -> Pointer,
    selector: unsafe extern "C" fn(*const c_char) -> Pointer,
    get: unsafe extern "C" fn(Pointer) -> Pointer,
    set: unsafe extern "C" fn(Pointer, Pointer) -> Pointer,
}

impl Runtime {
    /// `None`: libobjc is not loaded. On arm64e implementations are signed, which is not done here.
    fn find() -> Option<Runtime> {
        if cfg!(all(target_vendor = "apple", target_feature = "paca")) {
            return None;
        }
        /// # Safety
        /// That of [`Symbol::get`].
        unsafe fn get<F: Copy>(symbol: &Symbol) -> Option<F> {
            // SAFETY: by contract.
            unsafe { symbol.get::<F>() }
        }
        // SAFETY: the types are those of the header.
        unsafe {
            Some(Runtime {
                look_up: get(&CLASS_LOOK_UP)?,
                super_of: get(&CLASS_SUPER)?,
                method: get(&CLASS_METHOD)?,
                selector: get(&SELECTOR_REGISTER)?,
                get: get(&METHOD_GET)?,
                set: get(&METHOD_SET)?,
            })
        }
    }

    /// A class' own method.
    fn own_method(&self, class: &CStr, selector: &CStr) -> Option<Pointer> {
        // SAFETY: names; what the runtime gives is passed on.
        unsafe {
            let class = (self.look_up)(class.as_ptr());
            if class.is_null() {
                return None;
            }
            let selector = (self.selector)(selector.as_ptr());
            let method = (self.method)(class, selector);
            let parent = (self.super_of)(class);
            let is_own = parent.is_null() || (self.method)(parent, selector) != method;
            (!method.is_null() && is_own).then_some(method)
        }
    }
}

impl Method {
    /// Whether its hook is there.
    pub(super) fn is_placed(&self) -> bool {
        !self.replaced.load(Ordering::Acquire).is_null()
    }

    fn place(&self, runtime: &Runtime) {
        if self.is_placed() {
            return;
        }
        let Some(method) = runtime.own_method(self.class, self.selector) else {
            return;
        };
        // SAFETY: a method of the runtime's, which stays; the hook has its type. The original is known before
        // somebody calls the hook.
        unsafe {
            self.original
                .store((runtime.get)(method), Ordering::Release);
            let before = (runtime.set)(method, self.hook.cast_mut());
            // Another tool may have come in between.
            self.original.store(before, Ordering::Release);
        }
        self.replaced.store(method, Ordering::Release);
    }

    fn take_away(&self, runtime: &Runtime) {
        let method = self.replaced.load(Ordering::Acquire);
        if method.is_null() {
            return;
        }
        // SAFETY: as in `place`.
        unsafe {
            // Who has replaced it since calls the hook as its original: it stays.
            if (runtime.get)(method).cast_const() != self.hook {
                return;
            }
            (runtime.set)(method, self.original.load(Ordering::Acquire));
        }
        self.replaced.store(null_mut(), Ordering::Release);
    }
}

/// The selector of a name; null where libobjc is not loaded.
pub(super) fn selector(name: &CStr) -> Pointer {
    // SAFETY: a name.
    Runtime::find().map_or(null_mut(), |runtime| unsafe {
        (runtime.selector)(name.as_ptr())
    })
}

/// # Safety
/// The library stays.
pub(super) unsafe fn place(methods: &[Method]) {
    if let Some(runtime) = Runtime::find() {
        methods.iter().for_each(|method| method.place(&runtime));
    }
}

/// # Safety
/// That of [`place`]: threads may be in a hook.
pub(super) unsafe fn take_away(methods: &[Method]) {
    if let Some(runtime) = Runtime::find() {
        methods.iter().for_each(|method| method.take_away(&runtime));
    }
}
