//! Makes hooks of the lines of a list. The lines are those of `stackbeat_core::posix`.

/// Emits the functions of a list, and their table.
macro_rules! function_table {
    ($($kind:ident fn $name:ident $arguments:tt -> $result:ty = $probe:ident $value:tt $words:tt $(aka $($libc:ident $aliases:tt)+)?;)*) => {
        $(function! { $kind fn $name $arguments -> $result = $probe $value $words })*

        pub(in crate::posix) const FUNCTIONS: &[Function] = &[$(Function {
            name: stringify!($name),
            hook: $name::hook as *const c_void,
            original: &$name::ORIGINAL,
        }),*];
    };
}

/// Emits a module with a hook of this body, its original, and the function that calls it.
macro_rules! function {
    (@ $name:ident($($arg:ident: $type:ty),*) -> $result:ty $body:block) => {
        pub(super) mod $name {
            #[allow(unused_imports, reason = "not every hook names types, objects and locks")]
            use super::*;

            pub(in crate::posix) static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

            /// # Safety
            /// The contract of the function itself.
            pub(in crate::posix) unsafe fn call($($arg: $type),*) -> $result {
                // SAFETY: the rebinder has put the function of this name there before it rebound a slot.
                unsafe {
                    let original = core::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C-unwind" fn($($type),*) -> $result,
                    >(ORIGINAL.load(Ordering::Relaxed));
                    original($($arg),*)
                }
            }

            /// # Safety
            /// The contract of the function itself.
            #[allow(unused_unsafe, reason = "not every body needs it")]
            pub(in crate::posix) unsafe extern "C-unwind" fn hook($($arg: $type),*) -> $result {
                // SAFETY: the caller's arguments, passed on.
                unsafe { $body }
            }
        }
    };
    (hit fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) []) => {
        function! { @ $name($($arg: $type),*) -> $result {
            agent::count_call(Probe::$probe, $value as u64);
            call($($arg),*)
        } }
    };
    (alloc fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($bytes:expr) []) => {
        function! { @ $name($($arg: $type),*) -> $result {
            agent::allocated(Probe::$probe, $bytes);
            call($($arg),*)
        } }
    };
    (release fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [$object:ident($of:expr), by $($how:tt)+]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            let object = Darwin::$object($of);
            let wake = object.is_awaited().then(|| object.announce(How::$($how)+));
            let result = call($($arg),*);
            match wake {
                Some(wake) => wake.end(Probe::$probe, $value as u64),
                None => agent::hit(Probe::$probe, $value as u64),
            }
            result
        } }
    };
    (lock fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr)
     [try $try:ident($($tried:expr),*) busy $busy:ident, for $object:ident($of:expr) $(, if $condition:ident($($asked:expr),*))?]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            agent::hit(Probe::$probe, $value as u64);
            if !(true $(&& Darwin::$condition($($asked),*))?) {
                return call($($arg),*);
            }
            match super::$try::call($($tried),*) {
                $busy => function!(wait $probe, $value, Some(Darwin::$object($of).awaited()), call($($arg),*)),
                result => result,
            }
        } }
    };
    (lock fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr)
     [try $try:ident($($tried:expr),*) cancellable, for $object:ident($of:expr) $(, if $condition:ident($($asked:expr),*))?]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            agent::hit(Probe::$probe, $value as u64);
            if !(true $(&& Darwin::$condition($($asked),*))?) {
                return call($($arg),*);
            }
            pthread_testcancel();
            let error = *errno();
            if super::$try::call($($tried),*) == 0 {
                return 0;
            }
            *errno() = error;
            function!(wait $probe, $value, Some(Darwin::$object($of).awaited()), call($($arg),*))
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [for $object:ident($of:expr) $(, releases $released:ident($lock:expr))? $(, tells $tell:ident($told:ident))?]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            $({
                let released = Darwin::$released($lock);
                if released.is_awaited() {
                    released.announce(How::Release).end(Probe::$probe, $value as u64);
                }
            })?
            let result = function!(wait $probe, $value, Some(Darwin::$object($of).awaited()), call($($arg),*));
            $(results::$tell(result, $told);)?
            result
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [reads $file:ident $(if $condition:expr)? $(, moves $moved:ident($of:ident))?]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            let object = Darwin::descriptor($file).read()$(.filter(|_| $condition))?;
            function!(wait $probe, $value, object.map(agent::written), call($($arg),*) $(, $moved($of))?)
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [writes $file:ident $(, moves $moved:ident($of:ident))?]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            let file = Darwin::descriptor($file);
            let wake = file.is_awaited().then(|| file.writes());
            let result = function!(wait $probe, $value, None, call($($arg),*) $(, $moved($of))?);
            if let Some(wake) = wake {
                wake.end(Probe::$probe, $value as u64);
            }
            result
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [closes $file:ident]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            let file = Darwin::descriptor($file);
            let wake = file.is_awaited().then(|| file.closes());
            file.forget();
            let result = function!(wait $probe, $value, None, call($($arg),*));
            if let Some(wake) = wake {
                wake.end(Probe::$probe, $value as u64);
            }
            result
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [opens]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            let file = function!(wait $probe, $value, None, call($($arg),*));
            Darwin::descriptor(file).opened();
            file
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [error $error:ident]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            let wait = agent::begin_wait(Probe::$probe, $value as u64);
            let result = call($($arg),*);
            wait.end(results::$error(result));
            result
        } }
    };
    // Signals are no matter here.
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [ended by handlers $(, moves $moved:ident($of:ident))?]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            function!(wait $probe, $value, None, call($($arg),*) $(, $moved($of))?)
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) []) => {
        function! { @ $name($($arg: $type),*) -> $result {
            function!(wait $probe, $value, None, call($($arg),*))
        } }
    };
    (wait $probe:ident, $value:expr, $awaited:expr, $call:expr $(, $moved:ident($of:ident))?) => {{
        let wait = agent::begin_wait_for(Probe::$probe, $value as u64, $awaited);
        let result = $call;
        wait.end_moving(result as i64, function!(moved result $(, $moved($of))?));
        result
    }};
    (moved $result:ident) => { results::Moved::bytes($result) };
    (moved $result:ident, $moved:ident($of:ident)) => { results::$moved($result, $of) };
}
