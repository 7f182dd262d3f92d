//! The `svc 0` instruction on AArch64: number in x8, arguments in x0–x5, result in x0 (Linux
//! `arch/arm64/kernel/entry.S`).

/// Makes a system call and gives the kernel's own result: −4095..0 is an errno.
///
/// # Safety
/// As the system call says.
#[inline(always)]
pub(super) unsafe fn syscall(number: i64, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the registers are those of the ABI; what the call does is up to the caller.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3],
            in("x4") a[4], in("x5") a[5],
            options(nostack),
        );
    }
    result
}

/// Calls a function on another stack.
///
/// # Safety
/// `top` is a multiple of 16, the end of memory that nobody else uses and that is enough for the function; it
/// may be called with `argument`.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn call_on(
    top: *mut u8,
    function: unsafe extern "C-unwind" fn(*mut core::ffi::c_void),
    argument: *mut core::ffi::c_void,
) {
    // The frame is found by x29, so that debuggers and unwinders get from the one stack to the other.
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        "ret",
        ".cfi_endproc",
    );
}
