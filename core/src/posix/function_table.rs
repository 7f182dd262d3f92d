//! Hooks as a table: each function with its names, its hook and the place of its original. A library that
//! rebinds symbols, or patches their slots, takes such a table.
//!
//! [`function_table!`](crate::function_table) is an emitter for the lists: `stackbeat_core::posix_io! {
//! function_table }`, each list in a module of its own. Where it is called, besides what all emitters need,
//! `Here` must be a type that implements [`Objects`](super::Objects), with [`Object`](super::Object) and
//! [`Descriptor`](super::Descriptor) in scope. The module then has `FUNCTIONS`.
//!
//! A hook's original must be in its place before the hook is called.

use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicPtr;

/// A function that is hooked.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Other names of the same function, each with the systems that have it: `linux` or `glibc`.
    pub aliases: &'static [(&'static str, &'static str)],
    /// What runs instead.
    pub hook: *const c_void,
    /// What the hook calls.
    pub original: &'static AtomicPtr<c_void>,
}

// SAFETY: addresses of code.
unsafe impl Sync for Function {}

/// The calling thread's `errno`.
#[doc(hidden)]
#[inline(always)]
pub fn errno() -> *mut c_int {
    // SAFETY: gives an address.
    unsafe {
        #[cfg(target_os = "linux")]
        return libc::__errno_location();
        #[cfg(target_os = "android")]
        return libc::__errno();
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        return libc::__error();
    }
}

/// Cancels the calling thread if that is due. bionic has no cancellation.
#[doc(hidden)]
#[inline(always)]
pub fn test_cancel() {
    #[cfg(not(target_os = "android"))]
    {
        unsafe extern "C-unwind" {
            // A cancelled thread unwinds from here.
            fn pthread_testcancel();
        }
        // SAFETY: hooks that are cancellation points call it, and hold nothing.
        unsafe { pthread_testcancel() }
    }
}

/// Emits the functions of a list, and their table.
#[macro_export]
macro_rules! function_table {
    ($($kind:ident fn $name:ident $arguments:tt -> $result:ty = $probe:ident $value:tt $words:tt $(aka $($libc:ident [$($alias:ident)*])+)?;)*) => {
        $($crate::function_of_table! { $kind fn $name $arguments -> $result = $probe $value $words })*

        pub(super) const FUNCTIONS: &[$crate::posix::function_table::Function] = &[$(
            $crate::posix::function_table::Function {
                name: stringify!($name),
                aliases: &[$($($((stringify!($libc), stringify!($alias))),*),+)?],
                hook: $name::hook as *const core::ffi::c_void,
                original: &$name::ORIGINAL,
            }
        ),*];
    };
}

/// Emits `free` and `realloc`, which no list has: what they do depends on their arguments. `size_t` and
/// `c_void` must be in scope.
#[macro_export]
macro_rules! freeing_functions {
    () => {
        $crate::function_of_table! { @ free(memory: *mut c_void) -> () {
            if !memory.is_null() {
                $crate::agent::freed();
            }
            call(memory)
        } }

        $crate::function_of_table! { @ realloc(old: *mut c_void, size: size_t) -> *mut c_void {
            if !old.is_null() {
                $crate::agent::freed();
            }
            // Otherwise it only frees.
            if size != 0 || old.is_null() {
                $crate::agent::allocated($crate::probe::Probe::Realloc, size);
            }
            call(old, size)
        } }
    };
}

/// The lines of a table for functions that are written by hand.
#[macro_export]
macro_rules! by_hand {
    ($($name:ident)*) => {
        &[$($crate::posix::function_table::Function {
            name: stringify!($name),
            aliases: &[],
            hook: $name::hook as *const core::ffi::c_void,
            original: &$name::ORIGINAL,
        }),*]
    };
}

/// Emits a module with a hook of this body, its original, and the function that calls it.
#[doc(hidden)]
#[macro_export]
macro_rules! function_of_table {
    (@ $name:ident($($arg:ident: $type:ty),*) -> $result:ty $body:block) => {
        pub(super) mod $name {
            #[allow(unused_imports, reason = "not every hook names types, objects and locks")]
            use super::*;

            pub(in super::super) static ORIGINAL: core::sync::atomic::AtomicPtr<core::ffi::c_void> =
                core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());

            /// # Safety
            /// The contract of the function itself.
            pub(in super::super) unsafe fn call($($arg: $type),*) -> $result {
                // SAFETY: whoever uses the table has put the function of this name there.
                unsafe {
                    let original = core::mem::transmute::<
                        *mut core::ffi::c_void,
                        unsafe extern "C-unwind" fn($($type),*) -> $result,
                    >(ORIGINAL.load(core::sync::atomic::Ordering::Relaxed));
                    original($($arg),*)
                }
            }

            /// # Safety
            /// The contract of the function itself.
            #[allow(unused_unsafe, reason = "not every body needs it")]
            pub(in super::super) unsafe extern "C-unwind" fn hook($($arg: $type),*) -> $result {
                // SAFETY: the caller's arguments, passed on.
                unsafe { $body }
            }
        }
    };
    (hit fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) []) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            $crate::agent::count_call($crate::probe::Probe::$probe, $value as u64);
            call($($arg),*)
        } }
    };
    (alloc fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($bytes:expr) []) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            $crate::agent::allocated($crate::probe::Probe::$probe, $bytes);
            call($($arg),*)
        } }
    };
    (release fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [$object:ident($of:expr), by $($how:tt)+]) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            let object = Here::$object($of);
            let wake = object.is_awaited().then(|| object.announce($crate::shm::waiters::How::$($how)+));
            let result = call($($arg),*);
            match wake {
                Some(wake) => wake.end($crate::probe::Probe::$probe, $value as u64),
                None => $crate::agent::hit($crate::probe::Probe::$probe, $value as u64),
            }
            result
        } }
    };
    (lock fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr)
     [try $try:ident($($tried:expr),*) busy $busy:ident $(, for $object:ident($of:expr))? $(, if $condition:ident($($asked:expr),*))?]) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            $crate::agent::hit($crate::probe::Probe::$probe, $value as u64);
            if !(true $(&& Here::$condition($($asked),*))?) {
                return call($($arg),*);
            }
            match super::$try::call($($tried),*) {
                $busy => $crate::function_of_table!(wait $probe, $value, $crate::function_of_table!(awaited $($object($of))?), call($($arg),*)),
                result => result,
            }
        } }
    };
    (lock fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr)
     [try $try:ident($($tried:expr),*) cancellable, for $object:ident($of:expr) $(, if $condition:ident($($asked:expr),*))?]) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            $crate::agent::hit($crate::probe::Probe::$probe, $value as u64);
            if !(true $(&& Here::$condition($($asked),*))?) {
                return call($($arg),*);
            }
            $crate::posix::function_table::test_cancel();
            let error = *$crate::posix::function_table::errno();
            if super::$try::call($($tried),*) == 0 {
                return 0;
            }
            *$crate::posix::function_table::errno() = error;
            $crate::function_of_table!(wait $probe, $value, Some(Here::$object($of).awaited()), call($($arg),*))
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [for $object:ident($of:expr) $(, releases $released:ident($lock:expr))? $(, tells $tell:ident($told:ident))?]) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            $({
                let released = Here::$released($lock);
                if released.is_awaited() {
                    released.announce($crate::shm::waiters::How::Release).end($crate::probe::Probe::$probe, $value as u64);
                }
            })?
            let result = $crate::function_of_table!(wait $probe, $value, Some(Here::$object($of).awaited()), call($($arg),*));
            $($crate::posix::results::$tell(result, $told);)?
            result
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [reads $file:ident $(if $condition:expr)? $(, moves $moved:ident($of:ident))?]) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            let object = Here::descriptor($file).read()$(.filter(|_| $condition))?;
            $crate::function_of_table!(wait $probe, $value, object.map($crate::agent::written), call($($arg),*) $(, $moved($of))?)
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [writes $file:ident $(, moves $moved:ident($of:ident))?]) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            let file = Here::descriptor($file);
            let wake = file.is_awaited().then(|| file.writes());
            let result = $crate::function_of_table!(wait $probe, $value, None, call($($arg),*) $(, $moved($of))?);
            if let Some(wake) = wake {
                wake.end($crate::probe::Probe::$probe, $value as u64);
            }
            result
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [closes $file:ident]) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            let file = Here::descriptor($file);
            let wake = file.is_awaited().then(|| file.closes());
            file.forget();
            let result = $crate::function_of_table!(wait $probe, $value, None, call($($arg),*));
            if let Some(wake) = wake {
                wake.end($crate::probe::Probe::$probe, $value as u64);
            }
            result
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [opens]) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            let file = $crate::function_of_table!(wait $probe, $value, None, call($($arg),*));
            Here::descriptor(file).opened();
            file
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [error $error:ident]) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            let wait = $crate::agent::begin_wait($crate::probe::Probe::$probe, $value as u64);
            let result = call($($arg),*);
            wait.end($crate::posix::results::$error(result));
            result
        } }
    };
    // Signals are no matter here.
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [ended by handlers $(, moves $moved:ident($of:ident))?]) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            $crate::function_of_table!(wait $probe, $value, None, call($($arg),*) $(, $moved($of))?)
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) []) => {
        $crate::function_of_table! { @ $name($($arg: $type),*) -> $result {
            $crate::function_of_table!(wait $probe, $value, None, call($($arg),*))
        } }
    };
    (wait $probe:ident, $value:expr, $awaited:expr, $call:expr $(, $moved:ident($of:ident))?) => {{
        let wait = $crate::agent::begin_wait_for($crate::probe::Probe::$probe, $value as u64, $awaited);
        let result = $call;
        wait.end_moving(result as i64, $crate::function_of_table!(moved result $(, $moved($of))?));
        result
    }};
    (awaited) => { None };
    (awaited $object:ident($of:expr)) => { Some(Here::$object($of).awaited()) };
    (moved $result:ident) => { $crate::posix::results::Moved::bytes($result) };
    (moved $result:ident, $moved:ident($of:ident)) => { $crate::posix::results::$moved($result, $of) };
}
