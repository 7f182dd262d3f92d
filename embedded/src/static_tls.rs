//! Thread-locals without malloc.
//!
//! Those of a library that is loaded later lie in memory that each thread gets by the program's malloc at its
//! first use of one (`__tls_get_addr`), unless the library needs them in the static block, as this variable
//! does: then the dynamic linker places all of the library's there, in the room that it keeps for such
//! (glibc's elf/dl-reloc.c, `_dl_try_allocate_static_tls`).

core::arch::global_asm!(
    ".pushsection .tbss.stackbeat_session_tls,\"awT\",@nobits",
    ".p2align 3",
    ".globl stackbeat_session_tls",
    ".hidden stackbeat_session_tls",
    ".type stackbeat_session_tls, @object",
    ".size stackbeat_session_tls, 8",
    "stackbeat_session_tls:",
    ".zero 8",
    ".popsection",
);

/// Keeps the variable in the library.
#[inline(never)]
pub(crate) fn claim() {
    // SAFETY: loads the variable's offset from the GOT: initial-exec access as the psABI gives it.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov {0}, qword ptr [rip + stackbeat_session_tls@GOTTPOFF]",
            out(reg) _,
            options(nomem, nostack, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "adrp {0}, :gottprel:stackbeat_session_tls",
            "ldr {0}, [{0}, :gottprel_lo12:stackbeat_session_tls]",
            out(reg) _,
            options(readonly, nostack, preserves_flags),
        );
    }
}
