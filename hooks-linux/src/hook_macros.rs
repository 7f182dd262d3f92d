//! The macros that make a hook out of one line: signature, probe, argument.
//!
//! ```text
//!   original!(fn name(arguments) -> result);     only the original, as `name::call(arguments)`
//!   original!(fn … = Probe);                     and `name::called()`, for hooks that are written by hand
//!   hooks! { LINES }                             a hook for each line
//! ```
//!
//! `stackbeat_core::posix` says what stands in a line, and has the lists of what other platforms share. What
//! only glibc has is listed in the files of this crate.
//!
//! Hooks are `extern "C-unwind"` and hold nothing that would need a landing pad: a C++ exception, a
//! cancelled thread and a longjmp pass through them. None of them touches errno.

/// Declares a module `name` with the function's type and its original.
macro_rules! original {
    (fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty $(= $probe:ident)?) => {
        #[allow(non_snake_case, reason = "named like the function, `_Exit` for one")]
        pub(crate) mod $name {
            #[allow(unused_imports)]
            use super::*;
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
            pub(crate) static ORIGINAL: $crate::resolve::Original = {
                let name = concat!(stringify!($name), "\0");
                match core::ffi::CStr::from_bytes_with_nul(name.as_bytes()) {
                    Ok(name) => $crate::resolve::Original::new(name, first as *mut core::ffi::c_void),
                    Err(_) => panic!("a name without NUL inside"),
                }
            };
            $($crate::hooked_functions::function!($name = $probe);)?
            unsafe extern "C-unwind" fn first($($arg: $type),*) -> $result {
                // SAFETY: `find` returns the function of this name, or one that ignores its arguments.
                unsafe {
                    let function: Function = core::mem::transmute(ORIGINAL.find());
                    function($($arg),*)
                }
            }
            /// Calls the original.
            ///
            /// # Safety
            /// The contract of the function itself.
            #[allow(dead_code, reason = "assembly jumps to the address instead")]
            #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
            #[inline(always)]
            pub(crate) unsafe fn call($($arg: $type),*) -> $result {
                // SAFETY: the address is that of the function of this name, or of `first`.
                unsafe {
                    let function: Function = core::mem::transmute(ORIGINAL.address());
                    function($($arg),*)
                }
            }
        }
    };
}

/// Gives hooks the version of the only definition in libc that they may stand for: older ones of the
/// same name have another layout or meaning (`pthread_cond_wait@GLIBC_2.2.5`), and their callers must
/// reach them. The build script declares the versions to the linker.
macro_rules! versions {
    ($($name:ident = $version:literal;)*) => {$(
        core::arch::global_asm!(concat!(
            ".symver ", stringify!($name), ", ", stringify!($name), "@@@", $version
        ));
    )*};
}

/// Gives hooks of functions that are not libc's the version of their own library, hidden: callers that were
/// linked with that library ask for it and reach them. To all others (weak references, `dlsym`) the function
/// is not there, as without us. The build script declares the versions to the linker.
macro_rules! hidden_versions {
    ($($name:ident = $version:literal;)*) => {$(
        core::arch::global_asm!(concat!(
            ".symver ", stringify!($name), ", ", stringify!($name), "@", $version, ", remove"
        ));
    )*};
}

/// Calls the original as a wait, for something that another thread lets go of when that is given.
macro_rules! waited {
    ($name:ident($($arg:ident),*) = $probe:ident, $value:expr $(, for $awaited:expr)? $(, moves $moved:ident($of:ident))?) => {{
        let wait = waited!(begin Probe::$probe, $value as u64 $(, $awaited)?);
        // SAFETY: the arguments of the hook's caller, passed on.
        let result = unsafe { $name::call($($arg),*) };
        wait.end_moving(result as i64, waited!(moved result $(, $moved($of))?));
        result
    }};
    (moved $result:ident) => {
        stackbeat_core::posix::results::Moved::bytes($result)
    };
    (moved $result:ident, $moved:ident($of:ident)) => {
        // SAFETY: the call has ended with this result for this argument of its caller's.
        unsafe { stackbeat_core::posix::results::$moved($result, $of) }
    };
    (begin $probe:expr, $value:expr) => {
        agent::begin_wait($probe, $value)
    };
    (begin $probe:expr, $value:expr, $awaited:expr) => {
        agent::begin_wait_for($probe, $value, $awaited)
    };
}

/// Asks this platform about an object of the program's.
macro_rules! object {
    ($word:ident($($of:expr),*)) => {
        <$crate::objects::Glibc as stackbeat_core::posix::Objects>::$word($($of),*)
    };
}

/// Makes the hooks of a list.
macro_rules! hooks {
    ($($kind:ident fn $name:ident $arguments:tt -> $result:ty = $probe:ident $value:tt $words:tt $(aka $($libc:ident [$($alias:ident)*])+)?;)*) => {
        #[allow(unused_imports, reason = "not every list names objects")]
        use stackbeat_core::posix::{Descriptor as _, Object as _};
        $(
            hook! { $kind fn $name $arguments -> $result = $probe $value $words }
            $($($(
                hook! { $kind fn $alias $arguments -> $result = $probe $value $words }
            )*)+)?
        )*
    };
}

/// Makes one hook.
macro_rules! hook {
    (hit fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) []) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            #[cold]
            #[inline(never)]
            unsafe extern "C-unwind" fn due($($arg: $type),*) -> $result {
                $name::called();
                agent::count_call(Probe::$probe, $value as u64);
                // SAFETY: the caller's arguments, passed on.
                unsafe { $name::call($($arg),*) }
            }
            // SAFETY: the caller's arguments, passed on. Both are jumps, so that no stack frame is made.
            unsafe {
                if agent::count_quietly(Probe::$probe) {
                    $name::call($($arg),*)
                } else {
                    due($($arg),*)
                }
            }
        }
    };
    (alloc fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($bytes:expr) []) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            #[cold]
            #[inline(never)]
            unsafe extern "C-unwind" fn due($($arg: $type),*) -> $result {
                $name::called();
                agent::allocated(Probe::$probe, $bytes);
                // SAFETY: the caller's arguments, passed on.
                unsafe { $name::call($($arg),*) }
            }
            // SAFETY: the caller's arguments, passed on. Both are jumps, so that no stack frame is made.
            unsafe {
                if agent::allocated_quietly($bytes) {
                    $name::call($($arg),*)
                } else {
                    due($($arg),*)
                }
            }
        }
    };
    (release fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [$object:ident($of:expr), by $($how:tt)+]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            #[cold]
            #[inline(never)]
            unsafe extern "C-unwind" fn awaited($($arg: $type),*) -> $result {
                $name::called();
                // SAFETY: the caller's arguments: an object that is there until it is let go of.
                unsafe {
                    let wake = object!($object($of)).announce(stackbeat_core::shm::waiters::How::$($how)+);
                    let result = $name::call($($arg),*);
                    wake.end(Probe::$probe, $value as u64);
                    result
                }
            }
            // SAFETY: the caller's arguments, passed on.
            unsafe {
                if object!($object($of)).is_awaited() {
                    return awaited($($arg),*);
                }
                let result = $name::call($($arg),*);
                if !agent::hit_quietly() {
                    $name::called();
                    agent::hit(Probe::$probe, $value as u64);
                }
                result
            }
        }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [$(moves $moved:ident($of:ident))?]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            if !agent::hit_quietly() {
                $name::called();
            }
            waited!($name($($arg),*) = $probe, $value $(, moves $moved($of))?)
        }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [for $object:ident($of:expr)]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            if !agent::hit_quietly() {
                $name::called();
            }
            // SAFETY: the caller's argument.
            waited!($name($($arg),*) = $probe, $value, for unsafe { object!($object($of)).awaited() })
        }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [ended by handlers $(, moves $moved:ident($of:ident))?]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            let handlers = $crate::interrupted::Handlers::so_far();
            if !agent::hit_quietly() {
                $name::called();
            }
            let wait = agent::begin_wait(Probe::$probe, $value as u64);
            // SAFETY: the caller's arguments, passed on.
            let result = handlers.run(|| unsafe { $name::call($($arg),*) });
            wait.end_moving(result as i64, waited!(moved result $(, $moved($of))?));
            result
        }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [for $object:ident($of:expr), releases $released:ident($lock:expr)]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            if !agent::hit_quietly() {
                $name::called();
            }
            // SAFETY: the caller's arguments, and it holds what it lets go of.
            let (released, object) = unsafe { (object!($released($lock)), object!($object($of))) };
            if released.is_awaited() {
                let wake = released.announce(stackbeat_core::shm::waiters::How::Release);
                wake.end(Probe::$probe, $value as u64);
            }
            waited!($name($($arg),*) = $probe, $value, for object.awaited())
        }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [for $object:ident($of:expr), tells $tell:ident($told:ident)]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            if !agent::hit_quietly() {
                $name::called();
            }
            // SAFETY: the caller's argument.
            let result = waited!($name($($arg),*) = $probe, $value, for unsafe { object!($object($of)).awaited() });
            // SAFETY: the call has succeeded or failed with this argument of its caller's.
            unsafe { stackbeat_core::posix::results::$tell(result, $told) };
            result
        }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [reads $file:ident $(if $may_wait:expr)? $(, moves $moved:ident($of:ident))?]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            #[cold]
            #[inline(never)]
            unsafe extern "C-unwind" fn waiting($($arg: $type,)* object: u64) -> $result {
                waited!($name($($arg),*) = $probe, $value, for agent::written(object) $(, moves $moved($of))?)
            }
            if !agent::hit_quietly() {
                $name::called();
            }
            if true $(&& $may_wait)?
                && let Some(object) = object!(descriptor($file)).read()
            {
                // SAFETY: the caller's arguments, passed on.
                return unsafe { waiting($($arg,)* object) };
            }
            waited!($name($($arg),*) = $probe, $value $(, moves $moved($of))?)
        }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [writes $file:ident $(, moves $moved:ident($of:ident))?]) => {
        hook! { ends fn $name($($arg: $type),*) -> $result = $probe($value) [by writes($file) $(, moves $moved($of))?] }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [closes $file:ident]) => {
        hook! { ends fn $name($($arg: $type),*) -> $result = $probe($value) [by closes($file), then forget] }
    };
    (ends fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [by $announce:ident($file:ident) $(, then $before:ident)? $(, moves $moved:ident($of:ident))?]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            #[cold]
            #[inline(never)]
            unsafe extern "C-unwind" fn awaited($($arg: $type),*) -> $result {
                let wake = object!(descriptor($file)).$announce();
                $(object!(descriptor($file)).$before();)?
                let result = waited!($name($($arg),*) = $probe, $value $(, moves $moved($of))?);
                wake.end(Probe::$probe, $value as u64);
                result
            }
            if !agent::hit_quietly() {
                $name::called();
            }
            if object!(descriptor($file)).is_awaited() {
                // SAFETY: the caller's arguments, passed on.
                return unsafe { awaited($($arg),*) };
            }
            $(object!(descriptor($file)).$before();)?
            waited!($name($($arg),*) = $probe, $value $(, moves $moved($of))?)
        }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [opens]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            if !agent::hit_quietly() {
                $name::called();
            }
            let result = waited!($name($($arg),*) = $probe, $value);
            object!(descriptor(result)).opened();
            result
        }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [error $error:ident]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            if !agent::hit_quietly() {
                $name::called();
            }
            let wait = agent::begin_wait(Probe::$probe, $value as u64);
            // SAFETY: the caller's arguments, passed on.
            let result = unsafe { $name::call($($arg),*) };
            wait.end(stackbeat_core::posix::results::$error(result));
            result
        }
    };
    (lock fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [try $try:ident($($try_arg:expr),*) busy $busy:ident $(, for $object:ident($of:expr))? $(, if $condition:ident($($asked:expr),*))?]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            #[cold]
            #[inline(never)]
            unsafe extern "C-unwind" fn contended($($arg: $type),*) -> $result {
                // SAFETY: the caller's arguments; the lock is there.
                waited!($name($($arg),*) = $probe, $value $(, for unsafe { object!($object($of)).awaited() })?)
            }
            if !agent::hit_quietly() {
                $name::called();
                agent::hit(Probe::$probe, $value as u64);
            }
            // SAFETY: the caller's arguments; the try function takes the same lock.
            unsafe {
                if !(true $(&& object!($condition($($asked),*)))?) {
                    return $name::call($($arg),*);
                }
                let result = $try::call($($try_arg),*);
                if result == $busy {
                    return contended($($arg),*);
                }
                result
            }
        }
    };
    (lock fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty = $probe:ident($value:expr) [try $try:ident($($try_arg:expr),*) cancellable, for $object:ident($of:expr) $(, if $condition:ident($($asked:expr),*))?]) => {
        original!(fn $name($($arg: $type),*) -> $result = $probe);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            if !agent::hit_quietly() {
                $name::called();
                agent::hit(Probe::$probe, $value as u64);
            }
            // SAFETY: the caller's arguments, passed on; errno of the calling thread is always there.
            unsafe {
                if !(true $(&& object!($condition($($asked),*)))?) {
                    return $name::call($($arg),*);
                }
                $crate::lacking::pthread_testcancel::call();
                let error = *libc::__errno_location();
                if $try::call($($try_arg),*) == 0 {
                    return 0;
                }
                *libc::__errno_location() = error;
            }
            // SAFETY: the caller's argument.
            waited!($name($($arg),*) = $probe, $value, for unsafe { object!($object($of)).awaited() })
        }
    };
}
