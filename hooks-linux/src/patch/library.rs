//! Loading and unloading of libraries (`dlopen`, `dlmopen`, `dlclose`). After each load [`super`] looks for
//! new modules; in a process that was attached to, after `dlsym` and `dlvsym` too.
//!
//! `dlopen` searches the RUNPATH of whoever called it, which it knows by its return address: the hook
//! must not be that caller. So it is a jump that leaves the return address in place.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

original!(fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void);
original!(fn dlmopen(namespace: isize, path: *const c_char, flags: c_int) -> *mut c_void);

/// `dlopen` and `dlmopen`.
mod load {
    crate::hooked_functions::function!(dlopen = LibraryLoad);
}

extern "C" fn loading() {
    load::called();
    agent::hit(Probe::LibraryLoad, 0);
    super::look_for_new();
}

/// What was loaded is about to be used.
extern "C" fn using() {
    super::look_for_new();
}

macro_rules! jump_after {
    ($before:ident: $($(#[$attribute:meta])* $name:ident = $original:ident;)*) => {$(
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                // Three arguments and the stack's alignment.
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                ".cfi_adjust_cfa_offset 24",
                "call {before}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -24",
                "jmp [rip + {original}]",
                ".cfi_endproc",
                before = sym $before,
                original = sym $original::ORIGINAL,
            );
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-48]!",
                ".cfi_def_cfa_offset 48",
                ".cfi_offset x29, -48",
                ".cfi_offset x30, -40",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "bl {before}",
                "ldr x2, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #48",
                "adrp x16, {original}",
                "ldr x16, [x16, :lo12:{original}]",
                "br x16",
                ".cfi_endproc",
                before = sym $before,
                original = sym $original::ORIGINAL,
            );
        }
    )*};
}

jump_after! { loading:
    #[unsafe(no_mangle)]
    dlopen = dlopen;
    #[unsafe(no_mangle)]
    dlmopen = dlmopen;
}

// These look at their caller too (RTLD_NEXT). Hooked only in a process that was attached to: the first use
// of a library means that it has been loaded and has slots to be patched.
original!(fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void);
original!(fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void);

jump_after! { using:
    dlsym_when_late = dlsym;
    dlvsym_when_late = dlvsym;
}

original!(fn dlclose(handle: *mut c_void) -> c_int = LibraryLoad);
/// `dlclose` does not look at its caller. Captures meanwhile, and the next one, trust nothing that is
/// known of the library.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    dlclose::called();
    agent::hit(Probe::LibraryLoad, handle as u64);
    agent::unloading_begins();
    // SAFETY: the caller's argument, passed on.
    let result = unsafe { dlclose::call(handle) };
    agent::unloading_ends();
    result
}
