//! The `syscall` instruction on x86-64: number in rax, arguments in rdi rsi rdx r10 r8 r9, result in
//! rax, rcx and r11 are clobbered (Linux `Documentation/arch/x86/entry_64.rst`, psABI A.2.1).

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
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
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
    // The frame is found by rbp, so that debuggers and unwinders get from the one stack to the other.
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    );
}
