//! Hooks of what only Apple's systems have.
//!
//! - `unfair`, `addresses`, `objc`: locks and waits on words
//! - `foundation`: Foundation's locks, by `methods` that are replaced; `owners`: who has one
//! - `dispatch`: queues, groups and semaphores; `blocks`: closures that are handed to them
//! - `run_loop`: iterations of run loops, by observers
//! - `malloc_logger`: allocations, `syscall_logger`: mapped memory, also inside the dyld shared cache;
//!   `logger`: their variables
//! - `library`: code that comes and goes
//! - `symbols`: what hooks call besides their originals
//! - `doctor`: what became of each hook
//!
//! [`functions`] is the table for the rebinder. [`prepare`] looks up the symbols, [`place`] begins what needs
//! no slot, and [`take_away`] ends it.
//!
//! # Not seen
//!
//! Calls inside the dyld shared cache pass no slot: a mutex that Foundation takes, work that UIKit hands to a
//! queue. Allocations, run loops and Foundation's own locks are seen there too, because loggers, observers
//! and methods need no slot.
//! # Signal safety
//!
//! That of the agent's hooks. Nothing here allocates but what Apple's functions do themselves.

mod addresses;
mod blocks;
mod dispatch;
mod doctor;
mod foundation;
mod library;
mod logger;
mod malloc_logger;
mod methods;
mod objc;
mod owners;
mod run_loop;
mod symbols;
mod syscall_logger;
mod unfair;

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

use stackbeat_core::agent::{self, Awaited};
use stackbeat_core::ids::Tid;
use stackbeat_core::posix::function_table::Function;
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::waiters::How;

pub use self::doctor::lines;
use crate::posix;
use crate::rebind::Replacement;

/// All hooks that need no header of POSIX.
pub fn functions() -> Vec<Replacement> {
    let lists = [
        unfair::FUNCTIONS,
        addresses::FUNCTIONS,
        dispatch::FUNCTIONS,
        objc::FUNCTIONS,
        library::FUNCTIONS,
        run_loop::FUNCTIONS,
    ];
    let all = lists.into_iter().flatten();
    all.map(|function| Replacement {
        name: function.name,
        hook: function.hook,
        original: function.original,
    })
    .collect()
}

/// The hooks of a process: these, and those of POSIX. Where libmalloc's logger tells of allocations, no hook
/// does.
///
/// `find` looks symbols up by their names in C. It may be called before a session has begun.
pub fn prepare(find: &dyn Fn(&str) -> Option<u64>) -> Vec<Replacement> {
    symbols::prepare(find);
    blocks::prepare();
    let mut all = match malloc_logger::LOGGER.is_free() {
        true => posix::functions_but_allocation(),
        false => posix::functions(),
    };
    all.extend(functions());
    if !library::knows_callers() {
        all.retain(|replacement| replacement.name != "dlopen");
    }
    all
}

/// From here on what needs no slot is told: after the session has begun.
///
/// # Safety
/// What [`prepare`] has found is there, and this library stays.
pub unsafe fn place() {
    dispatch::begin();
    // SAFETY: by contract.
    unsafe {
        malloc_logger::LOGGER.place();
        syscall_logger::LOGGER.place();
        foundation::place();
        run_loop::place();
    }
}

/// The opposite of [`place`].
///
/// # Safety
/// That of [`place`].
pub unsafe fn take_away() {
    dispatch::end();
    // SAFETY: by contract.
    unsafe {
        malloc_logger::LOGGER.take_away();
        syscall_logger::LOGGER.take_away();
        foundation::take_away();
        run_loop::take_away();
    }
}

/// The table of a list of hooks.
macro_rules! table {
    ($($name:ident)*) => {
        pub(super) const FUNCTIONS: &[Function] = &[$(Function {
            name: stringify!($name),
            aliases: &[],
            hook: $name::hook as *const c_void,
            original: &$name::ORIGINAL,
        }),*];
    };
}
use table;

/// Whether the rebinder has found an original.
fn is_there(original: &AtomicPtr<c_void>) -> bool {
    !original.load(Ordering::Relaxed).is_null()
}

/// What a thread waits for: this address.
fn at(address: u64, owner_tid: Tid, how: How) -> Awaited {
    Awaited {
        id: address,
        is_shared: false,
        owner_tid,
        how,
    }
}

/// Lets go of what is at an address: those that wait are told before, the hook's own capture comes after.
#[inline(always)]
fn release<R>(probe: Probe, address: u64, how: How, call: impl FnOnce() -> R) -> R {
    let wake = agent::is_awaited(address).then(|| agent::announce(&[address], false, how));
    let result = call();
    match wake {
        Some(wake) => wake.end(probe, address),
        None => agent::hit(probe, address),
    }
    result
}
