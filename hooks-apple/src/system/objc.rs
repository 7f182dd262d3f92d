//! `@synchronized`: the compiler makes calls of these two of it (objc4, runtime/objc-sync.h).
//! `objc_sync_try_enter` is in no header; where it is missing each call is a wait, of which only a long one
//! is recorded.

use super::*;
use core::ffi::c_int;
use stackbeat_core::function_of_table;

use super::symbols::SYNC_TRY_ENTER;

/// `BOOL`: a `signed char` on Intel, a `bool` on arm64; one byte either way.
type TryEnter = unsafe extern "C" fn(*mut c_void) -> u8;

function_of_table! { @ objc_sync_enter(object: *mut c_void) -> c_int {
    agent::hit(Probe::MonitorEnter, object as u64);
    // With nil it does nothing.
    if object.is_null() {
        return call(object);
    }
    // As objc_sync_enter does: `OBJC_SYNC_SUCCESS` is 0.
    if SYNC_TRY_ENTER.get::<TryEnter>().is_some_and(|try_enter| try_enter(object) != 0) {
        return 0;
    }
    let awaited = at(object as u64, Tid(0), How::Release);
    let wait = agent::begin_wait_for(Probe::MonitorEnter, object as u64, awaited);
    let result = call(object);
    wait.end(result.into());
    result
} }

function_of_table! { @ objc_sync_exit(object: *mut c_void) -> c_int {
    release(Probe::MonitorExit, object as u64, How::Release, || call(object))
} }

table! { objc_sync_enter objc_sync_exit }
