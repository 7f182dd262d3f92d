//! Our handler, and the program's own behind it.
//!
//! Signals arrive on the alternate stack. A handler of the program's that did not ask for that runs on the
//! stack that was interrupted, as if ours were not there: what the kernel needs for the way back is moved to
//! where the kernel would have put it, and the alternate stack is free for the next signal. The program's
//! handler is jumped to, so that nothing of ours lies on any stack while it runs, and it may leave by its
//! return or by a jump.

use super::{CANCELLATION, OURS, mask, mask_word};
use core::ffi::{c_int, c_void};
use libc::{SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SIG_DFL, SIG_IGN, sighandler_t, siginfo_t};
use stackbeat_core::agent;
use stackbeat_core::platform;

/// A call of a handler of the program's.
#[repr(C)]
struct Onward {
    handler: sighandler_t,
    signal: usize,
    info: *mut siginfo_t,
    context: *mut c_void,
    /// What the stack pointer is when it begins: that of the kernel's frame.
    sp: usize,
    /// What the thread blocks then.
    mask: u64,
    /// The stack stays aligned.
    _unused: usize,
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(super) unsafe extern "C-unwind" fn on_signal(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    // Saved registers are free here: the way back puts all of them to what the signal found.
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, {bytes}",
        ".cfi_def_cfa_offset {bytes} + 8",
        "mov rcx, rsp",
        "call {look}",
        "test al, al",
        "jnz 2f",
        "add rsp, {bytes}",
        ".cfi_def_cfa_offset 8",
        "ret",
        "2:",
        ".cfi_def_cfa_offset {bytes} + 8",
        "mov r12, [rsp + {handler}]",
        "mov r13, [rsp + {signal}]",
        "mov r14, [rsp + {info}]",
        "mov r15, [rsp + {context}]",
        "mov rdi, [rsp + {mask}]",
        "mov rsp, [rsp + {sp}]",
        ".cfi_def_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_def_cfa_offset 16",
        "call {block}",
        "add rsp, 8",
        ".cfi_def_cfa_offset 8",
        "mov edi, r13d",
        "mov rsi, r14",
        "mov rdx, r15",
        "jmp r12",
        ".cfi_endproc",
        bytes = const size_of::<Onward>(),
        handler = const core::mem::offset_of!(Onward, handler),
        signal = const core::mem::offset_of!(Onward, signal),
        info = const core::mem::offset_of!(Onward, info),
        context = const core::mem::offset_of!(Onward, context),
        mask = const core::mem::offset_of!(Onward, mask),
        sp = const core::mem::offset_of!(Onward, sp),
        look = sym look,
        block = sym block,
    );
}

/// The program's handler runs on the alternate stack here, above our frame.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe extern "C-unwind" fn on_signal(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    let mut onward = core::mem::MaybeUninit::uninit();
    // SAFETY: what the kernel passed; the handler takes what the kernel would pass to it.
    unsafe {
        if look(signal, info, context, onward.as_mut_ptr()) {
            let onward = onward.assume_init();
            block(onward.mask);
            let handler: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) =
                core::mem::transmute(onward.handler);
            handler(signal, onward.info, onward.context);
        }
    }
}

/// On the stack of the program's handler: signals arrive from here on as they would without us.
extern "C-unwind" fn block(mask: u64) {
    platform::block_signals(mask);
}

/// Captures if the signal is one of ours. True: it is the program's, and `onward` says which handler it goes
/// to.
///
/// # Safety
/// The first three are what the kernel passed to [`on_signal`], in whose frame the last one lies.
unsafe extern "C-unwind" fn look(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
    onward: *mut Onward,
) -> bool {
    // SAFETY: what the kernel passed.
    if unsafe { agent::Alarm::is(info, context) || agent::on_signal(info, context) } {
        return false;
    }
    let Some(kept) = OURS.into_iter().find(|k| k.signal == signal) else {
        return false;
    };
    if signal == libc::SIGURG && agent::blocks_signal() {
        // SAFETY: what the kernel passed; it stays blocked for as long as we are here.
        unsafe { mask::take_back(info, context.cast()) };
        return false;
    }
    let (handler, flags, mask) = kept.asked();
    if handler == SIG_DFL || handler == SIG_IGN {
        return false;
    }
    if flags & SA_RESETHAND != 0 {
        kept.ask(SIG_DFL, flags, mask);
    }
    let own = if flags & SA_NODEFER == 0 {
        kept.bit()
    } else {
        0
    };
    // As `room` has it for other signals.
    let away = match flags & SA_ONSTACK {
        0 => 0,
        _ => OURS.into_iter().fold(0, |set, kept| set | kept.bit()),
    };
    // SAFETY: the context is the kernel's.
    let interrupted = unsafe { &*context.cast::<libc::ucontext_t>() };
    let mut call = Onward {
        handler,
        signal: signal as usize,
        info,
        context,
        sp: onward.addr() + size_of::<Onward>(),
        mask: (mask_word(&interrupted.uc_sigmask) | mask | own | away | CANCELLATION) as u64,
        _unused: 0,
    };
    if flags & SA_ONSTACK == 0 {
        // SAFETY: as above.
        if let Some(moved) = unsafe { moved(info, context) } {
            (call.sp, call.info, call.context) = moved;
        }
    }
    agent::handler_begins(signal);
    // SAFETY: by contract.
    unsafe { onward.write(call) };
    true
}

/// Moves what the kernel has put on the alternate stack to below what was interrupted: the stack pointer, the
/// information and the context there. `None`: it came there from the same stack, or lies in no way that is
/// known.
///
/// The frame is `struct rt_sigframe` (arch/x86/include/asm/sigframe.h): the address of libc's restorer, the
/// context, the information. The context refers to the state of the floating-point unit, which lies above it
/// (uapi/asm/sigcontext.h).
///
/// # Safety
/// Both are what the kernel passed to a handler that has not changed them.
#[cfg(target_arch = "x86_64")]
unsafe fn moved(
    info: *mut siginfo_t,
    context: *mut c_void,
) -> Option<(usize, *mut siginfo_t, *mut c_void)> {
    const RESTORER_BYTES: usize = 8;
    /// The kernel's context ends where glibc's is longer.
    const CONTEXT_BYTES: usize = 304;
    const FRAME_BYTES: usize = RESTORER_BYTES + CONTEXT_BYTES + size_of::<siginfo_t>();
    /// Below the stack pointer a function may use these without moving it (psABI, 3.2.2).
    const RED_ZONE: usize = 128;
    /// FXSAVE's area; what tells of more lies in it (`struct _fpx_sw_bytes`).
    const FLOATING_BYTES: usize = 512;
    const SOFTWARE_OFFSET: usize = 464;
    const EXTENDED_MAGIC: u32 = 0x4650_5853;
    /// More than any processor has: AMX takes 11 KiB.
    const MOST_FLOATING_BYTES: usize = 64 << 10;
    /// Alignment of XSAVE, and that of a stack at a call.
    const STATE: usize = 64;
    const CALL: usize = 16;

    // SAFETY: by contract.
    unsafe {
        let found = &*context.cast::<libc::ucontext_t>();
        let sp = found.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
        let is_known = info.addr() == context.addr() + CONTEXT_BYTES;
        if !is_known || !has_moved(&found.uc_stack, sp) || agent::is_own_stack(sp) {
            return None;
        }
        let state = found.uc_mcontext.fpregs.cast::<u8>();
        let state_bytes = match state.is_null() {
            true => 0,
            false => {
                let software = state.add(SOFTWARE_OFFSET).cast::<u32>();
                match software.read_unaligned() {
                    EXTENDED_MAGIC => software.add(1).read_unaligned() as usize,
                    _ => FLOATING_BYTES,
                }
            }
        };
        if state_bytes > MOST_FLOATING_BYTES {
            return None;
        }
        let new_state = (sp.checked_sub(RED_ZONE + state_bytes)?) & !(STATE - 1);
        let new_sp = (new_state.checked_sub(FRAME_BYTES)? & !(CALL - 1)) - RESTORER_BYTES;
        let place = core::ptr::with_exposed_provenance_mut::<u8>(new_sp);
        let new_context = place.add(RESTORER_BYTES);
        let frame = context.cast::<u8>().sub(RESTORER_BYTES);
        core::ptr::copy_nonoverlapping(frame, place, FRAME_BYTES);
        if !state.is_null() {
            let new_state = core::ptr::with_exposed_provenance_mut::<u8>(new_state);
            core::ptr::copy_nonoverlapping(state, new_state, state_bytes);
            (*new_context.cast::<libc::ucontext_t>()).uc_mcontext.fpregs = new_state.cast();
        }
        let new_info = new_context.add(CONTEXT_BYTES).cast();
        Some((new_sp, new_info, new_context.cast()))
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn moved(
    _info: *mut siginfo_t,
    _context: *mut c_void,
) -> Option<(usize, *mut siginfo_t, *mut c_void)> {
    None
}

/// Whether a signal that found the thread with this stack pointer has come to the alternate stack from
/// another one. The flags say what was asked for, not where the thread was (`sas_ss_flags`; kernel/signal.c,
/// `__on_sig_stack`).
#[cfg(target_arch = "x86_64")]
fn has_moved(alternate: &libc::stack_t, sp: usize) -> bool {
    let distance = sp.wrapping_sub(alternate.ss_sp.addr());
    alternate.ss_size != 0 && !(1..=alternate.ss_size).contains(&distance)
}
