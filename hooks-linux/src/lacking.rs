//! Functions of libc that some lack: musl, and glibc before the version that is named. The loader ends a
//! program that is preloaded with a library whose symbols it does not find. So the agent's calls of these
//! lead here, and the real ones are looked for as the originals of hooks are.

use core::arch::global_asm;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use libc::{pthread_attr_t, pthread_key_t, size_t};

use crate::resolve;

original!(fn pthread_key_create(key: *mut pthread_key_t, destructor: *mut c_void) -> c_int);
original!(fn pthread_setspecific(key: pthread_key_t, value: *const c_void) -> c_int);
original!(fn pthread_testcancel() -> ());
original!(fn pthread_attr_getstacksize(attributes: *const pthread_attr_t, bytes: *mut size_t) -> c_int);

/// Hidden functions that jump to what was found: for calls in this library only.
macro_rules! forward {
    ($($name:ident)*) => {$(
        global_asm!(
            concat!(".globl ", stringify!($name)),
            concat!(".hidden ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            concat!(stringify!($name), ":"),
            #[cfg(target_arch = "x86_64")]
            "jmp [rip + {original}]",
            #[cfg(target_arch = "aarch64")]
            "adrp x16, {original}",
            #[cfg(target_arch = "aarch64")]
            "ldr x16, [x16, :lo12:{original}]",
            #[cfg(target_arch = "aarch64")]
            "br x16",
            original = sym $name::ORIGINAL,
        );
    )*};
}
// In libpthread before 2.34, which a program without threads does not load.
forward! { pthread_key_create pthread_setspecific pthread_attr_getstacksize }

type ForkHandler = extern "C" fn();

original!(fn __register_atfork(before: ForkHandler, parent: ForkHandler, child: ForkHandler, library: *mut c_void) -> c_int);

/// As `pthread_atfork`, which is no function of libc.so but of what is linked with it.
pub(crate) fn at_fork(before: ForkHandler, parent: ForkHandler, child: ForkHandler) {
    // SAFETY: the handlers are fit for a fork, and this library is not unloaded.
    unsafe { __register_atfork::call(before, parent, child, null_mut()) };
}

// libgcc's unwinder leaves out its lock while this says that there is one thread (2.32).
global_asm!(
    ".pushsection .rodata.stackbeat_single_threaded,\"a\",@progbits",
    ".globl __libc_single_threaded",
    ".hidden __libc_single_threaded",
    ".type __libc_single_threaded, @object",
    ".size __libc_single_threaded, 1",
    "__libc_single_threaded:",
    ".byte 0",
    ".popsection",
);

/// glibc's `struct dl_find_object` (dlfcn.h, 2.35) on processors without `DLFO_STRUCT_HAS_EH_DBASE`.
#[repr(C)]
struct Found {
    flags: u64,
    start: usize,
    end: usize,
    link_map: usize,
    unwind_table: usize,
    reserved: [u64; 7],
}

/// `_dl_find_object` for libgcc's unwinder: panics of the agent's end inside of it, so this library is all
/// that it asks for.
extern "C" fn find_object(address: usize, found: &mut Found) -> c_int {
    match resolve::own_image() {
        Some((start, end, unwind_table)) if (start..end).contains(&address) => {
            *found = Found {
                flags: 0,
                start,
                end,
                link_map: 0,
                unwind_table,
                reserved: [0; 7],
            };
            0
        }
        _ => -1,
    }
}

global_asm!(
    ".globl _dl_find_object",
    ".hidden _dl_find_object",
    ".type _dl_find_object, @function",
    "_dl_find_object:",
    #[cfg(target_arch = "x86_64")]
    "jmp {find}",
    #[cfg(target_arch = "aarch64")]
    "b {find}",
    find = sym find_object,
);
