//! Memory: the malloc family, and mappings. `mod.rs` says what a line means.
//!
//! `realloc` and `free` are no lines: what they count depends on their arguments.

/// Allocation: what all platforms have.
#[macro_export]
macro_rules! posix_allocation {
    ($emit:ident) => {
        $emit! {
            alloc fn malloc(size: size_t) -> *mut c_void = Malloc(size) [];
            alloc fn calloc(count: size_t, size: size_t) -> *mut c_void = Calloc(count.wrapping_mul(size)) [];
            alloc fn aligned_alloc(alignment: size_t, size: size_t) -> *mut c_void = Memalign(size) [];
            alloc fn posix_memalign(result: *mut *mut c_void, alignment: size_t, size: size_t) -> c_int = Memalign(size) [];
        }
    };
}

/// Allocation: what glibc and bionic have.
#[macro_export]
macro_rules! linux_allocation {
    ($emit:ident) => {
        $emit! {
            alloc fn memalign(alignment: size_t, size: size_t) -> *mut c_void = Memalign(size) [];
        }
    };
}

/// Mapping memory: what all platforms have.
#[macro_export]
macro_rules! posix_mapping {
    ($emit:ident) => {
        $emit! {
            hit fn mmap(address: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, file: c_int, offset: off_t) -> *mut c_void = Mmap(bytes) [] aka linux [mmap64];
            hit fn munmap(address: *mut c_void, bytes: size_t) -> c_int = Munmap(bytes) [];
            hit fn mprotect(address: *mut c_void, bytes: size_t, protection: c_int) -> c_int = Mprotect(bytes) [];
            hit fn madvise(address: *mut c_void, bytes: size_t, advice: c_int) -> c_int = Madvise(bytes) [];
            hit fn posix_madvise(address: *mut c_void, bytes: size_t, advice: c_int) -> c_int = Madvise(bytes) [];
        }
    };
}

/// Mapping memory: what glibc and bionic have.
#[macro_export]
macro_rules! linux_mapping {
    ($emit:ident) => {
        $emit! {
            hit fn mremap(address: *mut c_void, old_bytes: size_t, bytes: size_t, flags: c_int, new_address: *mut c_void) -> *mut c_void = Mremap(bytes) [];
        }
    };
}
