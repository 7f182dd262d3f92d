//! Hooks of functions that look at their caller, which they know by its return address: `dlopen` and its
//! relatives. The hook must not be that caller. So it is a jump that leaves the return address in place,
//! after a call of ours.

/// Emits hooks: `jump_after! { before: pub(crate) dlopen = ORIGINAL; }`. `before` is an `extern "C" fn()`,
/// `ORIGINAL` a static word with the address of the function, which has at most three arguments.
#[macro_export]
macro_rules! jump_after {
    ($before:path: $($(#[$attribute:meta])* $visibility:vis $name:ident = $original:path;)*) => {$(
        $(#[$attribute])*
        #[unsafe(naked)]
        $visibility unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
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
                original = sym $original,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
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
                original = sym $original,
            );
        }
    )*};
}
