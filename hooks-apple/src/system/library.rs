//! Code that comes and goes. Which images come dyld announces (`crate::rebind::loader`); how long a call of
//! `dlopen` takes, with the initializers that it runs, is a scope in the trace.
//!
//! `dlopen` finds `@rpath` and `@loader_path` by who calls it. So its hook calls `dlopen_from` with the
//! caller's address: that is what `dlopen` does itself (dyld 1378, include/dlfcn_private.h: since macOS 11
//! and iOS 14; dyld/DyldAPIs.cpp). A system that does not have that function gets no hook.
//!
//! The call is no wait: initializers compute, allocate and wait themselves, and that is seen as everywhere
//! else.

use super::*;
use core::ffi::{c_char, c_int};
use core::ptr::null_mut;
use stackbeat_core::function_of_table;

use super::symbols::DLOPEN_FROM;

/// Numbers of `stackbeat.v1.Event.Kind`.
const SCOPE_BEGIN: u8 = 1;
const SCOPE_END: u8 = 2;

/// What a scope is called: this, and the file's name.
const PREFIX: &[u8] = b"dlopen ";
/// Bytes of a scope's name.
const NAME_BYTES: usize = 96;
/// Bytes of a path (sys/syslimits.h, `PATH_MAX`).
const PATH_BYTES: usize = 1024;

static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Whether `dlopen` can have a hook.
pub(super) fn knows_callers() -> bool {
    // SAFETY: an address.
    unsafe { DLOPEN_FROM.get::<*const c_void>() }.is_some()
}

/// The hook of `dlopen`: adds where it returns to behind its two arguments.
#[unsafe(naked)]
unsafe extern "C" fn hook() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rdx, [rsp]", "jmp {load}", load = sym load);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x2, x30", "b {load}", load = sym load);
}

/// # Safety
/// The contract of `dlopen`; `caller` is where it returns to.
unsafe extern "C-unwind" fn load(
    path: *const c_char,
    mode: c_int,
    caller: *const c_void,
) -> *mut c_void {
    type Load = unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void;
    type LoadFrom = unsafe extern "C-unwind" fn(*const c_char, c_int, *const c_void) -> *mut c_void;
    // SAFETY: the types are those of the headers; the caller's arguments, passed on.
    let call = || unsafe {
        match DLOPEN_FROM.get::<LoadFrom>() {
            Some(load_from) => load_from(path, mode, caller),
            None => core::mem::transmute::<*mut c_void, Load>(ORIGINAL.load(Ordering::Relaxed))(
                path, mode,
            ),
        }
    };
    // The program itself, or only a question: nothing is loaded.
    if path.is_null() || mode & libc::RTLD_NOLOAD != 0 {
        return call();
    }
    let mut name = [0; NAME_BYTES];
    // SAFETY: a path of the caller's.
    let bytes = unsafe { name_of(path, &mut name) };
    agent::event(SCOPE_BEGIN, &name[..bytes], 0);
    let library = call();
    agent::event(SCOPE_END, &name[..bytes], 0);
    library
}

/// What the scope of a path is called. Gives its bytes.
///
/// # Safety
/// A text with a NUL.
unsafe fn name_of(path: *const c_char, name: &mut [u8; NAME_BYTES]) -> usize {
    name[..PREFIX.len()].copy_from_slice(PREFIX);
    let mut bytes = PREFIX.len();
    for index in 0..PATH_BYTES {
        // SAFETY: no byte behind the NUL is read.
        let byte = unsafe { *path.cast::<u8>().add(index) };
        match byte {
            0 => break,
            b'/' => bytes = PREFIX.len(),
            byte if bytes < NAME_BYTES => {
                name[bytes] = byte;
                bytes += 1;
            }
            _ => {}
        }
    }
    bytes
}

function_of_table! { @ dlclose(handle: *mut c_void) -> c_int {
    agent::unloading_begins();
    let result = call(handle);
    agent::unloading_ends();
    result
} }

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "dlopen",
        aliases: &[],
        hook: hook as *const c_void,
        original: &ORIGINAL,
    },
    Function {
        name: "dlclose",
        aliases: &[],
        hook: dlclose::hook as *const c_void,
        original: &dlclose::ORIGINAL,
    },
];
