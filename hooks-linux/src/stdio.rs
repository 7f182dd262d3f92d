//! Streams (`FILE`). libc reads, writes and closes their files by functions to which only tables of its own
//! point: these tables get the hooks (`patch`). What opens a stream is hooked by its name.

use crate::{descriptor, resolve};
use core::ffi::{CStr, c_char, c_int, c_void};
use libc::{FILE, ssize_t};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

/// The functions in glibc's `struct _IO_jump_t` that make system calls which may block (libio/libioP.h,
/// libio/fileops.c). All are of libc's ABI, so their addresses can be asked for.
pub(crate) const IN_TABLES: [&CStr; 3] = [c"_IO_file_read", c"_IO_file_write", c"_IO_file_close"];

/// The part of glibc's `struct _IO_FILE` up to the descriptor (bits/types/struct_FILE.h); programs were
/// compiled for it.
#[repr(C)]
struct Stream {
    flags: c_int,
    pointers: [*mut c_void; 13],
    file: c_int,
}

/// The descriptor of a stream; -1: it has none, or the C library is another one. Not by `fileno`, which a
/// program may define itself.
///
/// # Safety
/// `stream` is null or a stream of libc.
unsafe fn file_of(stream: *mut FILE) -> c_int {
    if stream.is_null() || !resolve::is_glibc() {
        return -1;
    }
    // SAFETY: by contract.
    unsafe { (*stream.cast::<Stream>()).file }
}

original!(fn _IO_file_read(stream: *mut FILE, buffer: *mut c_void, bytes: ssize_t) -> ssize_t = Read);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _IO_file_read(
    stream: *mut FILE,
    buffer: *mut c_void,
    bytes: ssize_t,
) -> ssize_t {
    /// Apart, so that other reads need no room for what it notes.
    #[cold]
    #[inline(never)]
    unsafe extern "C-unwind" fn waiting(
        stream: *mut FILE,
        buffer: *mut c_void,
        bytes: ssize_t,
        file: c_int,
        object: u64,
    ) -> ssize_t {
        let wait = agent::begin_wait_for(Probe::Read, file as u64, agent::written(object));
        // SAFETY: the caller's arguments, passed on.
        let result = unsafe { _IO_file_read::call(stream, buffer, bytes) };
        wait.end_moving(result as i64, result as i64);
        result
    }
    if !agent::hit_quietly() {
        _IO_file_read::called();
    }
    // SAFETY: libc gives an open stream of a file.
    let file = unsafe { file_of(stream) };
    if let Some(object) = descriptor::read(file) {
        // SAFETY: the caller's arguments, passed on.
        return unsafe { waiting(stream, buffer, bytes, file, object) };
    }
    let wait = agent::begin_wait(Probe::Read, file as u64);
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { _IO_file_read::call(stream, buffer, bytes) };
    wait.end_moving(result as i64, result as i64);
    result
}

original!(fn _IO_file_write(stream: *mut FILE, buffer: *const c_void, bytes: ssize_t) -> ssize_t = Write);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _IO_file_write(
    stream: *mut FILE,
    buffer: *const c_void,
    bytes: ssize_t,
) -> ssize_t {
    if !agent::hit_quietly() {
        _IO_file_write::called();
    }
    // SAFETY: libc gives an open stream of a file.
    let file = unsafe { file_of(stream) };
    let wake = descriptor::is_awaited(file).then(|| descriptor::writes(file));
    let wait = agent::begin_wait(Probe::Write, file as u64);
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { _IO_file_write::call(stream, buffer, bytes) };
    // What was written before an error, never the error itself.
    let has_failed = result < bytes;
    wait.end_moving(if has_failed { -1 } else { result as i64 }, result as i64);
    if let Some(wake) = wake {
        wake.end(Probe::Write, file as u64);
    }
    result
}

original!(fn _IO_file_close(stream: *mut FILE) -> c_int = Close);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _IO_file_close(stream: *mut FILE) -> c_int {
    if !agent::hit_quietly() {
        _IO_file_close::called();
    }
    // SAFETY: libc gives an open stream of a file.
    let file = unsafe { file_of(stream) };
    let wake = descriptor::is_awaited(file).then(|| descriptor::closes(file));
    descriptor::forget(file);
    let wait = agent::begin_wait(Probe::Close, file as u64);
    // SAFETY: the caller's argument, passed on.
    let result = unsafe { _IO_file_close::call(stream) };
    wait.end(result.into());
    if let Some(wake) = wake {
        wake.end(Probe::Close, file as u64);
    }
    result
}

/// What opens a file by its path and gives a stream for it, or null.
macro_rules! opens {
    ($($name:ident($($arg:ident: $type:ty),*) $(, $closes:ident)?;)*) => {$(
        original!(fn $name($($arg: $type),*) -> *mut FILE = Open);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> *mut FILE {
            if !agent::hit_quietly() {
                $name::called();
            }
            let wait = agent::begin_wait(Probe::Open, 0);
            // SAFETY: the caller's arguments, passed on.
            let stream = unsafe { $name::call($($arg),*) };
            // SAFETY: a stream that has just been opened.
            let file = unsafe { file_of(stream) };
            $(agent::$closes();)?
            wait.end(file.into());
            descriptor::opened(file);
            stream
        }
    )*};
}

opens! {
    fopen(path: *const c_char, mode: *const c_char);
    fopen64(path: *const c_char, mode: *const c_char);
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE), has_let_go;
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE), has_let_go;
}

original!(fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE);
/// Its stream has a pipe that libc has made.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's arguments, passed on.
    let stream = unsafe { popen::call(command, mode) };
    // SAFETY: null, or a stream that has just been opened.
    descriptor::forget(unsafe { file_of(stream) });
    stream
}

original!(fn pclose(stream: *mut FILE) -> c_int = Wait);
/// Closes the pipe past the tables, and waits for the child.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pclose(stream: *mut FILE) -> c_int {
    if !agent::hit_quietly() {
        pclose::called();
    }
    // SAFETY: the caller's argument, a stream of `popen`.
    let file = unsafe { file_of(stream) };
    let wake = descriptor::is_awaited(file).then(|| descriptor::closes(file));
    descriptor::forget(file);
    let wait = agent::begin_wait_for(Probe::Wait, 0, agent::end_of_child(0));
    // SAFETY: the caller's argument, passed on.
    let result = unsafe { pclose::call(stream) };
    wait.end(result.into());
    if let Some(wake) = wake {
        wake.end(Probe::Close, file as u64);
    }
    result
}
