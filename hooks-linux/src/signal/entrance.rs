//! Entrances to the program's handlers, which note on the thread that one begins.
//!
//! A program may look at a flag that its handler sets and then wait in `poll`. What comes in between is missed: without us within
//! nanoseconds, with us as long as a hook takes before its call, which is long when a sample is taken there. So a hook has to know
//! that a handler ran since it began, and then gives what the call would have given: EINTR.
//!
//! The kernel calls the entrance, which jumps to the handler. What the program asks for the handler is shown to it; the kernel knows
//! all else (flags, mask) as the program gave it. An entrance belongs to its handler for good, so that nothing has to be kept in step.
//!
//! Handlers for faults have none: they are no business of ours, and may have little stack. Nor have those that were installed past
//! the hooks, or before the agent came.

use crate::start;
use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{SA_RESTART, SIG_DFL, SIG_ERR, SIG_IGN, sighandler_t};
use stackbeat_core::fault;

use super::{Action, SIG_HOLD};

/// More handlers than programs have. Those beyond are installed as they are.
const ENTRANCES: usize = 128;
/// Bytes of code from one entrance to the next.
const STRIDE: usize = 16;

/// Bit of a word of `HANDLERS`: the handler was installed with SA_RESTART. No address has it.
const RESTARTS: usize = 1 << 63;

/// Whose entrance it is; 0: nobody's yet.
static HANDLERS: [AtomicUsize; ENTRANCES] = [const { AtomicUsize::new(0) }; ENTRANCES];

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.stackbeat_entrances,\"ax\",@progbits",
    ".p2align 4",
    ".hidden stackbeat_entrances",
    ".globl stackbeat_entrances",
    ".type stackbeat_entrances, @function",
    "stackbeat_entrances:",
    ".cfi_startproc",
    ".set stackbeat_entrance, 0",
    ".rept {entrances}",
    ".p2align 4",
    "movl $stackbeat_entrance, %eax",
    "jmp 2f",
    ".set stackbeat_entrance, stackbeat_entrance + 1",
    ".endr",
    ".p2align 4",
    // The handler's arguments. The way back puts all registers to what the signal found.
    "2:",
    "pushq %rdi",
    ".cfi_adjust_cfa_offset 8",
    "pushq %rsi",
    ".cfi_adjust_cfa_offset 8",
    "pushq %rdx",
    ".cfi_adjust_cfa_offset 8",
    "movl %eax, %edi",
    "call {enter}",
    "popq %rdx",
    ".cfi_adjust_cfa_offset -8",
    "popq %rsi",
    ".cfi_adjust_cfa_offset -8",
    "popq %rdi",
    ".cfi_adjust_cfa_offset -8",
    "jmpq *%rax",
    ".cfi_endproc",
    ".size stackbeat_entrances, . - stackbeat_entrances",
    ".popsection",
    entrances = const ENTRANCES,
    enter = sym enter,
    options(att_syntax),
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    static stackbeat_entrances: [[u8; STRIDE]; ENTRANCES];
}

/// Where the entrances' code begins.
#[cfg(target_arch = "x86_64")]
fn first() -> Option<usize> {
    Some((&raw const stackbeat_entrances).addr())
}

#[cfg(not(target_arch = "x86_64"))]
fn first() -> Option<usize> {
    None
}

/// A handler begins; gives it.
#[cfg(target_arch = "x86_64")]
extern "C" fn enter(index: usize) -> usize {
    let handler = HANDLERS[index].load(Ordering::Relaxed);
    stackbeat_core::agent::handler_begins(handler & RESTARTS != 0);
    handler & !RESTARTS
}

/// The handler whose entrance this is, or what else the kernel knows.
pub(super) fn behind(installed: sighandler_t) -> sighandler_t {
    let place = first().and_then(|first| installed.checked_sub(first));
    match place.and_then(|place| HANDLERS.get(place / STRIDE)) {
        Some(handler) => handler.load(Ordering::Relaxed) & !RESTARTS,
        None => installed,
    }
}

/// What to install for a handler of this signal with these flags: its entrance, if it has one.
pub(super) fn to(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    let is_none = matches!(handler, SIG_DFL | SIG_IGN | SIG_HOLD | SIG_ERR);
    let is_fault = fault::FAULTS.iter().any(|(number, _)| *number == signal);
    let is_entrance = behind(handler) != handler;
    let Some(first) = first() else {
        return handler;
    };
    if is_none || is_fault || is_entrance || !start::was_preloaded() {
        return handler;
    }
    let asked = match flags & SA_RESTART {
        0 => handler,
        _ => handler | RESTARTS,
    };
    let is_its_own = |word: &AtomicUsize| {
        let taken = word.compare_exchange(0, asked, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok() || taken == Err(asked)
    };
    let index = HANDLERS.iter().position(is_its_own);
    index.map_or(handler, |index| first + index * STRIDE)
}

/// Runs a call as `sigaction`, with entrances for what it installs and the program's own handlers in what it gives.
///
/// # Safety
/// As for `sigaction`.
pub(super) unsafe fn install(
    signal: c_int,
    new: *const Action,
    old: *mut Action,
    call: impl FnOnce(*const Action, *mut Action) -> c_int,
) -> c_int {
    // SAFETY: by contract, null or valid; read before written, they may be one.
    unsafe {
        let asked = new.as_ref().map(|new| {
            let mut asked = *new;
            asked.sa_sigaction = to(signal, new.sa_sigaction, new.sa_flags);
            asked
        });
        let result = call(asked.as_ref().map_or(null(), |asked| asked), old);
        if result == 0
            && let Some(old) = old.as_mut()
        {
            old.sa_sigaction = behind(old.sa_sigaction);
        }
        result
    }
}

/// The flags of a signal's handler have changed: it has the entrance for them.
///
/// # Safety
/// `call` is the original of `sigaction`.
pub(super) unsafe fn follow_flags(
    signal: c_int,
    call: impl Fn(*const Action, *mut Action) -> c_int,
) {
    // SAFETY: by contract, with local structures; a sigaction's zeroed value is valid.
    unsafe {
        let mut found: Action = zeroed();
        if call(null(), &mut found) == 0 {
            let handler = behind(found.sa_sigaction);
            let wanted = to(signal, handler, found.sa_flags);
            if handler != found.sa_sigaction && wanted != found.sa_sigaction {
                found.sa_sigaction = wanted;
                call(&found, null_mut());
            }
        }
    }
}
