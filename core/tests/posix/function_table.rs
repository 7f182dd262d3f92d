//! A second platform for the lists of `stackbeat_core::posix`: a table of functions, each with the name, the
//! hook and the place where the original is to be put. A library that rebinds symbols takes such a table.

use core::ffi::{c_char, c_int, c_long, c_void};
use libc::*;
use stackbeat_core::function_table;
use stackbeat_core::posix::function_table::Function;
use stackbeat_core::posix::{ByAddress as Here, Descriptor, Object, Objects};

use libc::stat as Stat;

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
