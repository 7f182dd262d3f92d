//! The `svc 0` instruction on AArch64: number in x8, arguments in x0–x5, result in x0 (Linux
//! `arch/arm64/kernel/entry.S`).

/// Makes a system call and gives the kernel's own result: −4095..0 is an errno.
///
/// # Safety
/// As the system call says.
#[inline(always)]
pub unsafe fn syscall(number: i64, a: [usize; 6]) -> isize {
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
/// `top` is a multiple of 16, the end of memory that nobody else uses and that is enough for the function; it takes
/// `argument`.
#[inline(never)]
pub unsafe fn call_on(
    top: *mut u8,
    function: extern "C" fn(*mut core::ffi::c_void),
    argument: *mut core::ffi::c_void,
) {
    // SAFETY: by contract; the stack pointer is put back before anything else of this function runs.
    unsafe {
        core::arch::asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {function}",
            "mov sp, x20",
            top = in(reg) top,
            function = in(reg) function,
            in("x0") argument,
            // Callee-saved, so it outlives the call.
            out("x20") _,
            clobber_abi("C"),
        );
    }
}
