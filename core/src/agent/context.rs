//! What a signal's handler learns of the thread that it interrupted.

use crate::unwind::Registers;

/// The registers that a signal interrupted.
///
/// # Safety
/// `context` is the third argument of a handler with SA_SIGINFO.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn registers_of(context: *mut core::ffi::c_void) -> Registers {
    // SAFETY: by contract it points to a `ucontext_t`.
    let g = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let register = |i: i32| g[i as usize] as u64;
    Registers {
        pc: register(libc::REG_RIP),
        sp: register(libc::REG_RSP),
        fp: register(libc::REG_RBP),
        lr: 0,
        saved: [
            register(libc::REG_RBX),
            register(libc::REG_R12),
            register(libc::REG_R13),
            register(libc::REG_R14),
            register(libc::REG_R15),
        ],
        is_wild: false,
    }
}

/// The registers that a signal interrupted.
///
/// # Safety
/// `context` is the third argument of a handler with SA_SIGINFO.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn registers_of(context: *mut core::ffi::c_void) -> Registers {
    // SAFETY: by contract it points to a `ucontext_t`.
    let m = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    Registers {
        pc: m.pc,
        sp: m.sp,
        fp: m.regs[29],
        lr: m.regs[30],
        saved: [0; 5],
        is_wild: false,
    }
}

/// What the system call gives that a signal interrupted; anything where it interrupted none.
///
/// # Safety
/// `context` is the third argument of a handler with SA_SIGINFO.
pub(super) unsafe fn result_of(context: *mut core::ffi::c_void) -> i64 {
    // SAFETY: by contract it points to a `ucontext_t`.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    return machine.gregs[libc::REG_RAX as usize];
    #[cfg(target_arch = "aarch64")]
    return machine.regs[0] as i64;
}
