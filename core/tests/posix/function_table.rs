//! A second platform for the lists of `stackbeat_core::posix`: a table of functions, each with the name, the hook and the place
//! where the original is to be put. A library that rebinds symbols takes such a table.

use core::ffi::{c_char, c_int, c_long, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::*;
use stackbeat_core::agent::{self, Awaited, Wake};
use stackbeat_core::ids::Tid;
use stackbeat_core::posix::{Descriptor, Object, Objects, results};
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::waiters::How;

use libc::stat as Stat;

unsafe extern "C" {
    fn pthread_testcancel();
}

/// A function that is hooked.
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) hook: *const c_void,
    pub(super) original: &'static AtomicPtr<c_void>,
}

/// All of them.
pub(super) fn functions() -> impl Iterator<Item = &'static Function> {
    let lists = [
        allocation::FUNCTIONS,
        mapping::FUNCTIONS,
        io::FUNCTIONS,
        net::FUNCTIONS,
        locks::FUNCTIONS,
        waits::FUNCTIONS,
        sleeps::FUNCTIONS,
        clocks::FUNCTIONS,
        threads::FUNCTIONS,
        processes::FUNCTIONS,
    ];
    lists.into_iter().flatten()
}

/// A platform that knows objects by their addresses only, and nothing of descriptors.
struct Addresses;

#[derive(Clone, Copy)]
struct Address(u64, How);

impl Object for Address {
    fn awaited(self) -> Awaited {
        Awaited {
            id: self.0,
            is_shared: false,
            owner_tid: Tid(0),
            how: self.1,
        }
    }
}

#[derive(Clone, Copy)]
struct Unknown;

impl Descriptor for Unknown {
    fn read(self) -> Option<u64> {
        None
    }
    fn is_awaited(self) -> bool {
        false
    }
    fn writes(self) -> Wake {
        unreachable!("nobody is known to wait")
    }
    fn closes(self) -> Wake {
        unreachable!("nobody is known to wait")
    }
    fn forget(self) {}
    fn opened(self) {}
}

impl Objects for Addresses {
    unsafe fn mutex(lock: *const pthread_mutex_t) -> impl Object {
        Address(lock as u64, How::Release)
    }
    unsafe fn rwlock(lock: *const pthread_rwlock_t) -> impl Object {
        Address(lock as u64, How::Release)
    }
    unsafe fn rwlock_read(lock: *const pthread_rwlock_t) -> impl Object {
        Address(lock as u64, How::Release)
    }
    unsafe fn semaphore(semaphore: *const sem_t) -> impl Object {
        Address(semaphore as u64, How::Wake(1))
    }
    unsafe fn condition(condition: *const pthread_cond_t) -> impl Object {
        Address(condition as u64, How::Wake(1))
    }
    unsafe fn thread(thread: pthread_t) -> impl Object {
        Address(thread, How::Wake(1))
    }
    fn descriptor(_file: c_int) -> impl Descriptor {
        Unknown
    }
    unsafe fn accepts(_clock: clockid_t, deadline: *const timespec) -> bool {
        !deadline.is_null()
    }
}

/// Emits the functions of a list, and their table.
macro_rules! function_table {
    ($($kind:ident fn $name:ident $arguments:tt -> $result:ty = $probe:ident $value:tt $words:tt $(aka $($libc:ident $aliases:tt)+)?;)*) => {
        $(function! { $kind fn $name $arguments -> $result = $probe $value $words })*

        pub(super) const FUNCTIONS: &[Function] = &[$(Function {
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

            pub(in super::super) static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

            /// # Safety
            /// The contract of the function itself.
            pub(in super::super) unsafe fn call($($arg: $type),*) -> $result {
                // SAFETY: the test has put the function of this name there.
                unsafe {
                    let original = core::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C" fn($($type),*) -> $result,
                    >(ORIGINAL.load(Ordering::Relaxed));
                    original($($arg),*)
                }
            }

            /// # Safety
            /// The contract of the function itself.
            #[allow(unused_unsafe, reason = "not every body needs it")]
            pub(in super::super) unsafe extern "C" fn hook($($arg: $type),*) -> $result {
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
            let object = Addresses::$object($of);
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
            if !(true $(&& Addresses::$condition($($asked),*))?) {
                return call($($arg),*);
            }
            match super::$try::call($($tried),*) {
                $busy => function!(wait $probe, $value, Some(Addresses::$object($of).awaited()), call($($arg),*)),
                result => result,
            }
        } }
    };
    (lock fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr)
     [try $try:ident($($tried:expr),*) cancellable, for $object:ident($of:expr) $(, if $condition:ident($($asked:expr),*))?]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            agent::hit(Probe::$probe, $value as u64);
            if !(true $(&& Addresses::$condition($($asked),*))?) {
                return call($($arg),*);
            }
            pthread_testcancel();
            let error = *__errno_location();
            if super::$try::call($($tried),*) == 0 {
                return 0;
            }
            *__errno_location() = error;
            function!(wait $probe, $value, Some(Addresses::$object($of).awaited()), call($($arg),*))
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [for $object:ident($of:expr) $(, releases $released:ident($lock:expr))? $(, tells $tell:ident($told:ident))?]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            $({
                let released = Addresses::$released($lock);
                if released.is_awaited() {
                    released.announce(How::Release).end(Probe::$probe, $value as u64);
                }
            })?
            let result = function!(wait $probe, $value, Some(Addresses::$object($of).awaited()), call($($arg),*));
            $(results::$tell(result, $told);)?
            result
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [reads $file:ident $(if $condition:expr)? $(, moves $moved:ident($of:ident))?]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            let object = Addresses::descriptor($file).read()$(.filter(|_| $condition))?;
            function!(wait $probe, $value, object.map(agent::written), call($($arg),*) $(, $moved($of))?)
        } }
    };
    (wait fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $probe:ident($value:expr) [writes $file:ident $(, moves $moved:ident($of:ident))?]) => {
        function! { @ $name($($arg: $type),*) -> $result {
            let file = Addresses::descriptor($file);
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
            let file = Addresses::descriptor($file);
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
            Addresses::descriptor(file).opened();
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

/// Each list in a module of its own.
macro_rules! lists {
    ($($module:ident = $list:ident;)*) => {$(
        mod $module {
            use super::*;
            stackbeat_core::$list! { function_table }
        }
    )*};
}

lists! {
    allocation = posix_allocation;
    mapping = posix_mapping;
    io = posix_io;
    net = posix_net;
    locks = posix_locks;
    waits = posix_waits;
    sleeps = posix_sleeps;
    clocks = posix_clocks;
    threads = posix_threads;
    processes = posix_processes;
}
