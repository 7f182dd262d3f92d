//! The list of hooked functions, and where a hook says that it was called.
//!
//! Each function has an entry in a section of its own, in which the collector finds all of them without
//! running anything (`collector/src/hooked_calls.rs`); its place there is the function's number.

use core::ffi::CStr;

use stackbeat_core::agent;
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::layout::{FUNCTIONS, HookedFunction};

/// An entry of the list.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Function(HookedFunction);

unsafe extern "C" {
    /// Both ends are defined by the linker, for every section whose name is an identifier.
    #[link_name = "__start_stackbeat_functions"]
    static FIRST: Function;
    #[link_name = "__stop_stackbeat_functions"]
    static END: Function;
}

impl Function {
    pub(crate) const fn new(name: &str, probe: Probe) -> Function {
        let mut entry = HookedFunction {
            probe: probe as u8,
            name: [0; 47],
        };
        let bytes = name.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            entry.name[i] = bytes[i];
            i += 1;
        }
        Function(entry)
    }

    /// Its name.
    pub(crate) fn name(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.0.name).ok()
    }

    /// Its number.
    fn number(&self) -> usize {
        (core::ptr::from_ref(self).addr() - (&raw const FIRST).addr()) / size_of::<Function>()
    }
}

/// The program has called a hooked function, and something may be due.
#[cold]
#[inline(never)]
pub(crate) fn called(function: &'static Function) {
    agent::called(function.number());
}

/// All of them.
pub(crate) fn all() -> &'static [Function] {
    let bytes = (&raw const END).addr() - (&raw const FIRST).addr();
    let count = (bytes / size_of::<Function>()).min(FUNCTIONS);
    // SAFETY: the section holds nothing but entries, which never change.
    unsafe { core::slice::from_raw_parts(&raw const FIRST, count) }
}

/// Declares a function's entry, and `called()` that counts a call.
macro_rules! function {
    ($name:ident = $probe:ident) => {
        #[used]
        #[unsafe(link_section = "stackbeat_functions")]
        static FUNCTION: $crate::hooked_functions::Function =
            $crate::hooked_functions::Function::new(
                stringify!($name),
                stackbeat_core::probe::Probe::$probe,
            );

        /// The program has called it.
        #[inline(always)]
        pub(crate) fn called() {
            $crate::hooked_functions::called(&FUNCTION);
        }
    };
}
pub(crate) use function;
