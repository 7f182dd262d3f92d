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
