//! The malloc family. Counts are exact: each call counts, only some are captured.
//!
//! The original is the next definition after ours, so that a program's own allocator (tcmalloc,
//! jemalloc, preloaded after us or linked) stays in use. `reallocarray` is not hooked: it calls
//! `realloc` through the PLT. `operator new` calls `malloc`.

use core::ffi::{c_int, c_void};
use libc::size_t;
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

stackbeat_core::posix_allocation! { hooks }
stackbeat_core::linux_allocation! { hooks }

hooks! {
    alloc fn valloc(size: size_t) -> *mut c_void = Memalign(size) [];
    alloc fn pvalloc(size: size_t) -> *mut c_void = Memalign(size) [];
}

original!(fn realloc(old: *mut c_void, size: size_t) -> *mut c_void = Realloc);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn realloc(old: *mut c_void, size: size_t) -> *mut c_void {
    #[cold]
    #[inline(never)]
    unsafe extern "C-unwind" fn due(old: *mut c_void, size: size_t) -> *mut c_void {
        if !agent::hit_quietly() {
            realloc::called();
        }
        if !old.is_null() {
            agent::freed();
        }
        if size != 0 || old.is_null() {
            agent::allocated(Probe::Realloc, size);
        }
        // SAFETY: the caller's arguments, passed on.
        unsafe { realloc::call(old, size) }
    }
    // SAFETY: the caller's arguments, passed on. Both are jumps, so that no stack frame is made.
    unsafe {
        let is_quiet = match (old.is_null(), size) {
            (true, _) => agent::allocated_quietly(size),
            // It only frees.
            (false, 0) => false,
            (false, _) => agent::replaced_quietly(size),
        };
        if is_quiet {
            realloc::call(old, size)
        } else {
            due(old, size)
        }
    }
}

original!(fn free(memory: *mut c_void) -> () = Free);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn free(memory: *mut c_void) {
    #[cold]
    #[inline(never)]
    unsafe extern "C-unwind" fn due(memory: *mut c_void) {
        free::called();
        agent::freed();
        // SAFETY: the caller's argument, passed on.
        unsafe { free::call(memory) }
    }
    // SAFETY: the caller's argument, passed on. Both are jumps, so that no stack frame is made.
    unsafe {
        if memory.is_null() || agent::freed_quietly() {
            free::call(memory);
        } else {
            due(memory);
        }
    }
}
