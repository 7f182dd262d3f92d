//! Hooks for Darwin's POSIX calls: those of `stackbeat_core::posix`, and Darwin's own lines in the same form.
//!
//! [`functions`] is the table for the rebinder: symbol, hook, and where the original is put. Nothing has a
//! symbol of a C function here, so linking this in changes nobody's calls.
//!
//! - `darwin`: lines that only Darwin has, and hooks by hand
//!
//! A function that a system does not have is not there for the rebinder either: `preadv` came with macOS 11
//! and iOS 14, `timespec_get` with macOS 10.15 and iOS 13.
//!
//! # Signal safety
//!
//! That of the agent's hooks: nothing allocates, locks or calls a hooked function. Originals are called
//! through their addresses.

mod darwin;

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::*;
use stackbeat_core::agent;
use stackbeat_core::posix::function_table::Function;
use stackbeat_core::posix::{ByAddress as Here, Descriptor, Object, Objects};
use stackbeat_core::probe::Probe;
use stackbeat_core::{function_of_table, function_table};

use crate::rebind::Replacement;
use libc::stat as Stat;

/// All hooks of functions, for [`crate::rebind::Rebinder::new`].
pub fn functions() -> Vec<Replacement> {
    let mut all = functions_but_allocation();
    let allocation = allocation::FUNCTIONS.iter().chain(darwin::ALLOCATION);
    all.extend(allocation.map(replacement));
    all
}

/// The same without those that allocate and free: where libmalloc tells of all allocations itself.
pub fn functions_but_allocation() -> Vec<Replacement> {
    let lists = [
        mapping::FUNCTIONS,
        io::FUNCTIONS,
        net::FUNCTIONS,
        locks::FUNCTIONS,
        waits::FUNCTIONS,
        sleeps::FUNCTIONS,
        clocks::FUNCTIONS,
        threads::FUNCTIONS,
        processes::FUNCTIONS,
        darwin::LISTED,
        darwin::BY_HAND,
    ];
    lists.into_iter().flatten().map(replacement).collect()
}

fn replacement(function: &Function) -> Replacement {
    Replacement {
        name: darwin::symbol(function.name),
        hook: function.hook,
        original: function.original,
    }
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
