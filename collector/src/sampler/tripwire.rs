//! Ends the test process when something is called in the window in which a thread is suspended that may not
//! be: malloc and its relatives, also by libc's own functions, and writing. A lock of the standard library
//! makes no call while it is free, so it is not seen.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

thread_local! {
    static IN_WINDOW: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread enters the window, or leaves it.
pub(super) fn set(is_in_window: bool) {
    IN_WINDOW.set(is_in_window);
}

/// Something is called that may not be called there.
fn check(what: &str) {
    if IN_WINDOW.replace(false) {
        for text in ["called while a thread is suspended: ", what, "\n"] {
            // SAFETY: writes from a text.
            unsafe { libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len()) };
        }
        std::process::abort();
    }
}

// Under these names glibc has its own as well (malloc/malloc.c), and calls ours when a program defines them.
unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    fn __libc_realloc(at: *mut c_void, bytes: usize) -> *mut c_void;
    fn __libc_free(at: *mut c_void);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    check("malloc");
    // SAFETY: as the caller calls it.
    unsafe { __libc_malloc(bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    check("calloc");
    // SAFETY: as the caller calls it.
    unsafe { __libc_calloc(count, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(at: *mut c_void, bytes: usize) -> *mut c_void {
    check("realloc");
    // SAFETY: as the caller calls it.
    unsafe { __libc_realloc(at, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(at: *mut c_void) {
    check("free");
    // SAFETY: as the caller calls it.
    unsafe { __libc_free(at) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(file: c_int, from: *const c_void, bytes: usize) -> isize {
    check("write");
    // SAFETY: as the caller calls it.
    unsafe { libc::syscall(libc::SYS_write, file, from, bytes) as isize }
}
