//! Files and pipes.
//!
//! `open`, `openat` and `fcntl` are variadic in C; their optional argument is an integer or a pointer,
//! which every supported ABI passes like a fixed one, so it is passed on whether the caller gave it or
//! not.

use crate::descriptor;
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{iovec, loff_t, mode_t, off_t, sigset_t, size_t, ssize_t, stat as Stat};
use stackbeat_core::agent;
use stackbeat_core::platform::blocking_calls;
use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::SystemCall;

stackbeat_core::posix_io! { hooks }
stackbeat_core::linux_io! { hooks }

// What programs linked against glibc before 2.33 call.
hooks! {
    wait fn __xstat(version: c_int, path: *const c_char, status: *mut Stat) -> c_int = Stat(0) [] aka glibc [__xstat64];
    wait fn __lxstat(version: c_int, path: *const c_char, status: *mut Stat) -> c_int = Stat(0) [] aka glibc [__lxstat64];
    wait fn __fxstat(version: c_int, file: c_int, status: *mut Stat) -> c_int = Stat(file) [] aka glibc [__fxstat64];
    wait fn __fxstatat(version: c_int, directory: c_int, path: *const c_char, status: *mut Stat, flags: c_int) -> c_int = Stat(directory) [] aka glibc [__fxstatat64];
}

/// `fcntl`, which may make a double of a descriptor, or keep it from blocking.
macro_rules! controls {
    ($($name:ident)*) => {$(
        original!(fn $name(file: c_int, command: c_int, argument: *mut c_void) -> c_int = Fcntl);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(file: c_int, command: c_int, argument: *mut c_void) -> c_int {
            if !agent::hit_quietly() {
                $name::called();
            }
            let wait = agent::begin_wait(blocking_calls::control_probe(command), file as u64);
            // SAFETY: the caller's arguments, passed on.
            let result = unsafe { $name::call(file, command, argument) };
            wait.end(result as i64);
            descriptor::controlled(file, command, argument.addr(), result);
            result
        }
    )*};
}
controls! { fcntl fcntl64 __fcntl }

original!(fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = Close);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if !agent::count_quietly(Probe::Close) {
        close_range::called();
        agent::count_call(Probe::Close, first as u64);
    }
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { close_range::call(first, last, flags) };
    descriptor::forget_range(first, last);
    result
}

// What makes descriptors, and doubles of them. None of these blocks.
original!(fn pipe(files: *mut c_int) -> c_int);
original!(fn pipe2(files: *mut c_int, flags: c_int) -> c_int);
original!(fn eventfd(count: c_uint, flags: c_int) -> c_int);
original!(fn dup(file: c_int) -> c_int);
original!(fn dup2(file: c_int, double: c_int) -> c_int = Close);
original!(fn dup3(file: c_int, double: c_int, flags: c_int) -> c_int = Close);

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pipe(files: *mut c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's argument, passed on; after a success both descriptors are there.
    unsafe {
        let result = pipe::call(files);
        if result == 0 {
            descriptor::created_pipe([*files, *files.add(1)], 0);
        }
        result
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pipe2(files: *mut c_int, flags: c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's arguments, passed on; after a success both descriptors are there.
    unsafe {
        let result = pipe2::call(files, flags);
        if result == 0 {
            descriptor::created_pipe([*files, *files.add(1)], flags);
        }
        result
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn eventfd(count: c_uint, flags: c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's arguments, passed on.
    let file = unsafe { eventfd::call(count, flags) };
    descriptor::created_event(file);
    file
}

original!(fn signalfd(file: c_int, mask: *const sigset_t, flags: c_int) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn signalfd(file: c_int, mask: *const sigset_t, flags: c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's arguments, passed on.
    let file = unsafe { signalfd::call(file, mask, flags) };
    descriptor::created_signals(file);
    file
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(file: c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's argument, passed on.
    let double = unsafe { dup::call(file) };
    descriptor::doubled(file, double);
    double
}

/// What makes a double with a number of the program's choice, closing what had it.
macro_rules! doubles {
    ($($name:ident($($flags:ident: $type:ty)?);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(file: c_int, double: c_int $(, $flags: $type)?) -> c_int {
            agent::count(SystemCall::Control);
            let closes = file != double && descriptor::is_awaited(double);
            let wake = closes.then(|| descriptor::closes(double));
            // SAFETY: the caller's arguments, passed on.
            let result = unsafe { $name::call(file, double $(, $flags)?) };
            if result >= 0 {
                descriptor::doubled(file, double);
            }
            if let Some(wake) = wake {
                $name::called();
                wake.end(Probe::Close, double as u64);
            }
            result
        }
    )*};
}
doubles! {
    dup2();
    dup3(flags: c_int);
}

// libc's own calls in them pass no hook.
original!(fn eventfd_read(file: c_int, value: *mut u64) -> c_int = Read);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn eventfd_read(file: c_int, value: *mut u64) -> c_int {
    if !agent::hit_quietly() {
        eventfd_read::called();
    }
    let awaited = descriptor::read(file).map(agent::written);
    let wait = agent::begin_wait_for(Probe::Read, file as u64, awaited);
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { eventfd_read::call(file, value) };
    // What `read` would have said.
    let bytes = if result == 0 { 8 } else { -1 };
    wait.end_moving(bytes, bytes);
    result
}
