//! The table by which a library that knows a runtime of managed code joins this agent
//! (`stackbeat_runtime.h`).

use core::ffi::c_void;

use crate::resolve;
use stackbeat_core::agent;

/// The table of a version; null: it is not known here.
#[unsafe(no_mangle)]
extern "C" fn stackbeat_runtime(version: u32) -> *const c_void {
    agent::runtime_table(version)
}

/// Whether another copy of the agent stands before this one: its functions are those that the program finds.
pub(crate) fn is_second() -> bool {
    resolve::stands_before_us(c"stackbeat_runtime").is_some()
}
