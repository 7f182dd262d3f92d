//! Code that goes. What comes is announced by dyld (`crate::rebind::loader`).

use super::*;
use core::ffi::c_int;
use stackbeat_core::function_of_table;

function_of_table! { @ dlclose(handle: *mut c_void) -> c_int {
    agent::unloading_begins();
    let result = call(handle);
    agent::unloading_ends();
    result
} }

table! { dlclose }
