//! Loading and unloading of libraries.
//!
//! `dlopen` searches the RUNPATH of whoever called it, which it knows by its return address: the hook
//! must not be that caller. So it is a jump that leaves the return address in place.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

original!(fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void);
original!(fn dlmopen(namespace: isize, path: *const c_char, flags: c_int) -> *mut c_void);

extern "C" fn loading() {
    agent::hit(Probe::LibraryLoad, 0);
}

macro_rules! jump_after_loading {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                // Three arguments and the stack's alignment.
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                ".cfi_adjust_cfa_offset 24",
                "call {loading}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -24",
                "jmp [rip + {original}]",
                ".cfi_endproc",
                loading = sym loading,
                original = sym $name::ORIGINAL,
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
                "bl {loading}",
                "ldr x2, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #48",
                "adrp x16, {original}",
                "ldr x16, [x16, :lo12:{original}]",
                "br x16",
                ".cfi_endproc",
                loading = sym loading,
                original = sym $name::ORIGINAL,
            );
        }
    )*};
}

jump_after_loading! { dlopen dlmopen }

original!(fn dlclose(handle: *mut c_void) -> c_int);
/// `dlclose` does not look at its caller. Captures meanwhile, and the next one, trust nothing that is
/// known of the library.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    agent::hit(Probe::LibraryLoad, handle as u64);
    agent::unloading_begins();
    // SAFETY: the caller's argument, passed on.
    let result = unsafe { dlclose::call(handle) };
    agent::unloading_ends();
    result
}
