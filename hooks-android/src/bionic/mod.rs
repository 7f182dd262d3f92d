//! Hooks of bionic, Android's C library: the calls of `stackbeat_core::posix`, placed in the slots of loaded
//! libraries.
//!
//! - [`table`]: the functions, each with its hook
//! - `by_hand`: hooks that need more than a line
//! - `libraries`: what is loaded later
//! - `raw_call`: `syscall()`
//! - `threads`: threads that begin and end
//! - `vfork`: by a jump
//! - [`since`]: which Android has which
//!
//! glibc has the same functions, so all of it runs in tests on Linux.
//!
//! Not in the table: signals, and `clone`, which no app's code calls by itself.

/// The lines of a table for hooks that are jumps: `NAME = ORIGINAL;`, both in scope.
macro_rules! functions {
    ($($(#[$attribute:meta])* $name:ident = $original:ident;)*) => {
        &[$($(#[$attribute])* stackbeat_core::posix::function_table::Function {
            name: stringify!($name),
            aliases: &[],
            hook: $name as *const core::ffi::c_void,
            original: &$original,
        }),*]
    };
}
use functions;

mod by_hand;
mod libraries;
mod raw_call;
pub mod since;
pub mod table;
mod threads;
mod vfork;

use core::ffi::c_void;
use core::sync::atomic::Ordering;
use std::ffi::CString;

use crate::backend::slots::{self, Slots};
use crate::backend::{self, HookBackend, HookError, Report, Request};
use crate::doctor::{Hooks, State};

/// What [`place`] did.
#[must_use]
#[derive(Debug)]
pub struct Bionic {
    /// The hooks that are there, and those that are not.
    pub report: Report,
    /// Functions that this C library does not have.
    pub absent: Vec<&'static str>,
}

impl Bionic {
    /// What became of each.
    pub fn hooks(&self) -> Hooks {
        let mut hooks = Hooks::new("bionic".to_owned());
        for placed in &self.report.placed {
            hooks.add(placed.name, State::Placed(placed.backend));
        }
        for (name, reasons) in &self.report.refused {
            // Two functions may be one piece of code: its slots are changed already.
            let shares = reasons.iter().find_map(HookError::hooked_already);
            let state = shares.map_or_else(|| State::refused(reasons), State::Placed);
            hooks.add(name, state);
        }
        for name in &self.absent {
            let since = since::since(name);
            let why =
                format!("this C library does not have it; bionic has it since API level {since}");
            hooks.add(name, State::NotAvailable(why));
        }
        hooks
    }
}

/// Places the hooks of all functions that loaded libraries call.
///
/// # Safety
///
/// The agent is part of a session, or never will be. Nobody else changes slots meanwhile.
pub unsafe fn place(backend: &'static Slots) -> Bionic {
    threads::watch_ends();
    libraries::begin(backend);
    by_hand::begin();
    let (mut requests, mut absent) = (Vec::<Request>::new(), Vec::new());
    for function in table::functions() {
        let mut first: *mut c_void = core::ptr::null_mut();
        for name in table::names(function) {
            let Ok(c_name) = CString::new(name) else {
                continue;
            };
            let target = slots::function(&c_name);
            match target.is_null() {
                true => absent.push(name),
                // Another name of the same code: its slots hold the same address.
                false if target == first => {}
                false => {
                    requests.push(Request {
                        name,
                        target,
                        size: 0,
                        replacement: function.hook.cast_mut(),
                        original: function.original,
                    });
                    if first.is_null() {
                        first = target;
                    }
                }
            }
        }
        // Hooks call each other's originals: a lock tries first.
        function.original.store(first, Ordering::Release);
    }
    let backends: [&dyn HookBackend; 1] = [backend];
    // SAFETY: a hook has the signature of its function, and stays with the library that has it.
    let report = unsafe { backend::place_all(&backends, &requests) };
    Bionic { report, absent }
}
