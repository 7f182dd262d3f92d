//! Hooks of Android's framework: message loops, frames and Binder. They need an agent of this library and,
//! for the waits of message loops, the hooks of bionic.
//!
//! - [`table`]: the functions by Android's version
//! - `looper`: iterations of message loops
//! - `vsync`: frames
//! - `binder`: calls of other processes
//!
//! Two of the functions are called from one library into another, or as if: by slots that is enough. The
//! third is called through a table of virtual functions, so its code is changed.

mod binder;
pub(crate) mod looper;
pub mod table;
mod vsync;

use core::ffi::c_void;
use core::sync::atomic::AtomicPtr;
use std::io;
use std::path::PathBuf;

use crate::art::symbols::{Library, Symbols};
use crate::backend::slots::Slots;
use crate::backend::{self, HookBackend, Placed, Request};
use crate::doctor::{Hooks, State};

use table::{Function, ROWS, Row};

/// What [`place`] did.
#[must_use]
#[derive(Debug)]
pub struct Framework {
    /// The hooks that are there. [`backends`] remove them.
    pub placed: Vec<Placed>,
    /// What became of each.
    pub hooks: Hooks,
}

/// Those that place these hooks, in the order in which they are tried. `slots` are the process' own.
pub fn backends(slots: &'static Slots) -> Vec<&'static dyn HookBackend> {
    let slots: &'static dyn HookBackend = slots;
    [slots]
        .into_iter()
        .chain(backend::inline::backends())
        .collect()
}

/// What runs in a function's place, and where its original goes.
fn hook(function: Function) -> (*mut c_void, &'static AtomicPtr<c_void>) {
    match function {
        Function::PollOnce => (looper::poll_once as *mut c_void, &looper::ORIGINAL),
        Function::DispatchVsync => (vsync::dispatch_vsync as *mut c_void, &vsync::ORIGINAL),
        Function::Transact => (binder::transact as *mut c_void, &binder::ORIGINAL),
    }
}

/// Why a function of the framework is not hooked.
#[derive(Debug, thiserror::Error)]
enum NotFound {
    #[error("{0} is not loaded")]
    NoLibrary(&'static str),
    #[error("{}: {why}", path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    /// By none of its names.
    #[error("this {0} does not have it")]
    NoFunction(&'static str),
}

/// A function of this process, and the row that it is of.
fn find(function: Function) -> Result<(Request, &'static Row), NotFound> {
    let name = function.library();
    // The first one is the system's; libraries of a device's maker may have loaded another one since.
    let library = Library::loaded(name).ok_or(NotFound::NoLibrary(name))?;
    let rows = || ROWS.iter().filter(|row| row.function == function);
    let names: Vec<&str> = rows().map(|row| row.symbol).collect();
    let symbols = Symbols::any_of_file(&library.path, &names);
    let symbols = symbols.map_err(|why| NotFound::Unreadable {
        path: library.path.clone(),
        why,
    })?;
    let found = rows().find_map(|row| symbols.get(row.symbol).map(|place| (row, place)));
    let (row, (address, size)) = found.ok_or(NotFound::NoFunction(name))?;
    let (replacement, original) = hook(function);
    let request = Request {
        name: function.name(),
        target: core::ptr::with_exposed_provenance_mut(library.bias.wrapping_add(address) as usize),
        size: usize::try_from(size).unwrap_or(0),
        replacement,
        original,
    };
    Ok((request, row))
}

/// Places the hooks.
///
/// # Safety
///
/// The agent of this library is part of a session. `slots` are the process' own, and nobody else changes
/// slots meanwhile. What a thread risks that is at a function's first instructions, the backends say.
pub unsafe fn place(slots: &'static Slots) -> Framework {
    let mut hooks = Hooks::new("framework".to_owned());
    let mut requests = Vec::new();
    for function in Function::ALL {
        match find(function) {
            Ok((request, row)) => {
                if function == Function::DispatchVsync {
                    vsync::begin(row.data);
                }
                requests.push(request);
            }
            Err(why) => hooks.add(function.name(), State::NotAvailable(why.to_string())),
        }
    }
    looper::begin();
    // SAFETY: a hook has the signature of its function, by its row, and stays with this library.
    let report = unsafe { backend::place_all(&backends(slots), &requests) };
    for placed in &report.placed {
        hooks.add(placed.name, State::Placed(placed.backend));
    }
    for (name, reasons) in &report.refused {
        hooks.add(name, State::refused(reasons));
    }
    Framework {
        placed: report.placed,
        hooks,
    }
}

/// When the hooks are gone: threads that are still in one tell nothing any more.
pub fn end() {
    looper::end();
}
