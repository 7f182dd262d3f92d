//! `execl`, `execle` and `execlp`: the arguments of the new program are those of the call, as many as there
//! are. A hook finds them where they came, in registers and on the caller's stack, and hands them on as an
//! array. That holds on Linux and Android, not on Apple's arm64, where all of them lie on the stack.

use core::ffi::{c_char, c_int};
use core::ptr;

use super::function_table::errno;
use crate::agent;

/// Strings with a null behind the last one.
pub type Strings = *const *const c_char;

/// What `exec_lists!` tells its function: `execl`, `execle`, `execlp`.
pub const PLAIN: usize = 0;
/// The environment follows the list.
pub const WITH_ENVIRONMENT: usize = 1;
/// The program is looked for in `PATH`.
pub const SEARCH_PATH: usize = 2;

/// How many of the arguments after the first come in registers.
const REGISTER_ARGUMENTS: usize = if cfg!(target_arch = "x86_64") { 5 } else { 7 };

/// Calls `exec` with the list as an array, and with the environment that follows the list where it does
/// (`execle`), else with null. The array lies in memory that a vfork child may use, too.
///
/// # Safety
/// `registers` are the call's arguments after the first that came in registers, `stack` those on the stack.
/// The list ends with a null.
pub unsafe fn with_list(
    registers: Strings,
    stack: Strings,
    has_environment: bool,
    exec: impl FnOnce(Strings, Strings) -> c_int,
) -> c_int {
    let argument = |i: usize| {
        // SAFETY: nothing behind the null is asked for, but for `execle`'s one more.
        unsafe {
            match i.checked_sub(REGISTER_ARGUMENTS) {
                None => *registers.add(i),
                Some(i) => *stack.add(i),
            }
        }
    };
    let mut count = 0;
    while !argument(count).is_null() {
        count += 1;
    }
    let environment = match has_environment {
        true => argument(count + 1).cast(),
        false => ptr::null(),
    };
    agent::lend(count + 1, |memory| {
        let Some(array) = memory else {
            // SAFETY: the calling thread's own.
            unsafe { *errno() = libc::ENOMEM };
            return -1;
        };
        for i in 0..=count {
            // SAFETY: there is room for the list and its null.
            unsafe { *array.add(i) = argument(i) };
        }
        exec(array, environment)
    })
}

/// Emits hooks: `exec_lists! { run: execl = PLAIN; … }`. `run` is an `unsafe extern "C-unwind" fn(path,
/// registers, stack, kind)`: the first argument, the two of [`with_list`], and the constant, a `usize`.
#[macro_export]
macro_rules! exec_lists {
    ($run:path: $($(#[$attribute:meta])* $name:ident = $kind:ident;)*) => {$(
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 56",
                ".cfi_adjust_cfa_offset 56",
                "mov [rsp], rsi",
                "mov [rsp + 8], rdx",
                "mov [rsp + 16], rcx",
                "mov [rsp + 24], r8",
                "mov [rsp + 32], r9",
                "mov rsi, rsp",
                // Above this frame and the return address.
                "lea rdx, [rsp + 64]",
                "mov ecx, {kind}",
                "call {run}",
                "add rsp, 56",
                ".cfi_adjust_cfa_offset -56",
                "ret",
                ".cfi_endproc",
                kind = const $kind,
                run = sym $run,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-80]!",
                ".cfi_def_cfa_offset 80",
                ".cfi_offset x29, -80",
                ".cfi_offset x30, -72",
                "mov x29, sp",
                "stp x1, x2, [sp, #16]",
                "stp x3, x4, [sp, #32]",
                "stp x5, x6, [sp, #48]",
                "str x7, [sp, #64]",
                "add x1, sp, #16",
                "add x2, sp, #80",
                "mov x3, {kind}",
                "bl {run}",
                "ldp x29, x30, [sp], #80",
                "ret",
                ".cfi_endproc",
                kind = const $kind,
                run = sym $run,
            );
        }
    )*};
}
