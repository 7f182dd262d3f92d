//! Waits on words: `os_sync_wait_on_address` (os/os_sync_wait_on_address.h of libplatform, since macOS 14.4
//! and iOS 17.4), and what it is made of, `__ulock_wait` and `__ulock_wake` (xnu, bsd/sys/ulock.h;
//! `__ulock_wait2` since macOS 11). libc++ and Rust's standard library call the one or the other.

use super::*;
use core::ffi::c_int;
use stackbeat_core::function_of_table;

/// bsd/sys/ulock.h: the operation's code, that of unfair locks, and the flag of a wake.
const OPCODE_MASK: u32 = 0xff;
const UNFAIR_LOCK: u32 = 2;
const WAKE_ALL: u32 = 0x100;
/// How many a wake may end that ends all.
const ALL: How = How::Wake(u32::MAX);

macro_rules! waits {
    ($($name:ident($address:ident; $($arg:ident: $type:ty),*) $owner:expr;)*) => {
        $(function_of_table! { @ $name($($arg: $type),*) -> c_int {
            let awaited = at($address as u64, $owner, How::Wake(1));
            let wait = agent::begin_wait_for(Probe::AddressWait, $address as u64, awaited);
            let result = call($($arg),*);
            // Otherwise the number of threads that still wait there.
            wait.end(result.min(0).into());
            result
        } })*
    };
}
waits! {
    __ulock_wait(address; operation: u32, address: *mut c_void, value: u64, timeout_us: u32) owner_of(operation, value);
    __ulock_wait2(address; operation: u32, address: *mut c_void, value: u64, timeout_ns: u64, value2: u64) owner_of(operation, value);
    os_sync_wait_on_address(address; address: *mut c_void, value: u64, size: usize, flags: u32) Tid(0);
    os_sync_wait_on_address_with_deadline(address; address: *mut c_void, value: u64, size: usize, flags: u32, clock: u32, deadline: u64) Tid(0);
    os_sync_wait_on_address_with_timeout(address; address: *mut c_void, value: u64, size: usize, flags: u32, clock: u32, timeout: u64) Tid(0);
}

/// A thread that waits for an unfair lock gives the word as it has seen it.
fn owner_of(operation: u32, value: u64) -> Tid {
    match operation & OPCODE_MASK {
        UNFAIR_LOCK => unfair::owner_of(value as u32),
        _ => Tid(0),
    }
}

function_of_table! { @ __ulock_wake(operation: u32, address: *mut c_void, value: u64) -> c_int {
    let how = match operation & WAKE_ALL {
        0 => How::Wake(1),
        _ => ALL,
    };
    release(Probe::AddressWake, address as u64, how, || call(operation, address, value))
} }

function_of_table! { @ os_sync_wake_by_address_any(address: *mut c_void, size: usize, flags: u32) -> c_int {
    release(Probe::AddressWake, address as u64, How::Wake(1), || call(address, size, flags))
} }

function_of_table! { @ os_sync_wake_by_address_all(address: *mut c_void, size: usize, flags: u32) -> c_int {
    release(Probe::AddressWake, address as u64, ALL, || call(address, size, flags))
} }

table! {
    __ulock_wait __ulock_wait2 __ulock_wake os_sync_wait_on_address os_sync_wait_on_address_with_deadline
    os_sync_wait_on_address_with_timeout os_sync_wake_by_address_any os_sync_wake_by_address_all
}
