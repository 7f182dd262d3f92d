//! `vfork`: a wait until the child is another program or ends.
//!
//! bionic's function must run, and not its system call alone: it tells `getpid` and the checks of descriptors
//! that they are in a child, and with memory tagging of stacks it copies the memory, as `fork` does
//! (libc/arch-arm64/bionic/vfork.S). It returns twice, and the child overwrites what lies on the stack below
//! its caller's frame. So the hook has no frame while it runs: it is a jump, with another return address.
//! Behind that the way back is looked up in memory of the thread's own, by the child and by the parent.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;

use stackbeat_core::agent;
use stackbeat_core::posix::function_table::{Function, errno};

static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

pub(super) const FUNCTIONS: &[Function] = super::functions! { vfork = ORIGINAL; };

/// Whether the call is recorded, and returns to us.
extern "C" fn begins(pc: u64, sp: u64, fp: u64) -> bool {
    agent::calls_vfork([pc, sp, fp])
}

extern "C" fn caller() -> u64 {
    agent::caller_of_vfork()
}

extern "C" fn returned(result: c_int) {
    match result {
        0 => agent::vfork_child(),
        // SAFETY: the calling thread's own.
        -1 => agent::vfork_returned(-i64::from(unsafe { *errno() })),
        child => agent::vfork_returned(child.into()),
    }
}

#[unsafe(naked)]
unsafe extern "C" fn vfork() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rdi, [rsp]",
        "lea rsi, [rsp + 8]",
        "mov rdx, rbp",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {begins}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "test al, al",
        "jz 2f",
        "lea rax, [rip + 3f]",
        "mov [rsp], rax",
        "2: jmp [rip + {original}]",
        // Unwinders look up the instruction before a return address.
        ".cfi_def_cfa_offset 0",
        ".cfi_undefined rip",
        "nop",
        "3:",
        "sub rsp, 16",
        ".cfi_adjust_cfa_offset 16",
        "mov [rsp], rax",
        "call {caller}",
        "mov [rsp + 8], rax",
        ".cfi_offset rip, -8",
        "mov edi, [rsp]",
        "call {returned}",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        begins = sym begins,
        caller = sym caller,
        returned = sym returned,
        original = sym ORIGINAL,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov x0, x30",
        "mov x1, sp",
        "mov x2, x29",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        "bl {begins}",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "tbz w0, #0, 2f",
        "adr x30, 3f",
        "2: adrp x16, {original}",
        "ldr x16, [x16, :lo12:{original}]",
        "br x16",
        ".cfi_undefined x30",
        "nop",
        "3:",
        "stp x29, xzr, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        "str x0, [sp, #16]",
        "bl {caller}",
        "str x0, [sp, #8]",
        ".cfi_offset x30, -24",
        "mov x29, sp",
        "ldr x0, [sp, #16]",
        "bl {returned}",
        "ldr x0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "ret",
        ".cfi_endproc",
        begins = sym begins,
        caller = sym caller,
        returned = sym returned,
        original = sym ORIGINAL,
    );
}
