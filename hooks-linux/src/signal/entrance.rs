//! Entrances to the program's handlers, which note on the thread that one begins.
//!
//! A program may look at a flag that its handler sets and then wait in `poll`. A signal that comes in between
//! is missed: without us within nanoseconds, with us as long as a hook takes before its call, which is long
//! when a sample is taken there. So a hook has to know that a handler ran since it began (`interrupted`).
//!
//! The kernel calls the entrance, which jumps to the handler. What the program asks for the handler is shown
//! to it; the kernel knows all else (flags, mask) as the program gave it. An entrance belongs to its handler
//! for good, so that nothing has to be kept in step.
//!
//! Handlers for faults have others ([`fault_entrance`]): they may have little stack. Those that were
//! installed past the hooks, or before the agent came, have none.

use core::ffi::c_int;
use libc::sighandler_t;
use stackbeat_core::crash_signals;

use super::entrance_table::EntranceTable;
use super::{Action, fault_entrance, room};

/// More handlers than programs have. Those beyond are installed as they are.
const ENTRANCES: usize = 128;

static TABLE: EntranceTable<ENTRANCES> = EntranceTable::new();

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
    "movl %eax, %esi",
    "call {enter}",
    "popq %rdx",
    ".cfi_adjust_cfa_offset -8",
    "popq %rsi",
    ".cfi_adjust_cfa_offset -8",
    "popq %rdi",
    ".cfi_adjust_cfa_offset -8",
    // As the kernel has it, for handlers without a prototype.
    "movq %rax, %r11",
    "xorl %eax, %eax",
    "jmpq *%r11",
    ".cfi_endproc",
    ".size stackbeat_entrances, . - stackbeat_entrances",
    ".popsection",
    entrances = const ENTRANCES,
    enter = sym enter,
    options(att_syntax),
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    static stackbeat_entrances: [[u8; super::entrance_table::STRIDE]; ENTRANCES];
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

/// A handler for this signal begins; gives it.
#[cfg(target_arch = "x86_64")]
extern "C" fn enter(signal: c_int, index: usize) -> usize {
    stackbeat_core::agent::handler_begins(signal);
    TABLE.handler(index)
}

/// The handler whose entrance this is, or what else the kernel knows.
pub(super) fn behind(installed: sighandler_t) -> sighandler_t {
    let installed = fault_entrance::behind(installed);
    TABLE.behind(first(), installed).unwrap_or(installed)
}

/// What to install for a handler of this signal, with these flags: its entrance, if it has one.
pub(super) fn to(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    let is_crash_signal = crash_signals::CRASH_SIGNALS
        .iter()
        .any(|(number, _)| *number == signal);
    if is_crash_signal {
        return fault_entrance::to(signal, handler, flags);
    }
    TABLE.of(first(), handler).unwrap_or(handler)
}

/// Runs a call as `sigaction`, with entrances for what it installs and the program's own handlers in what it
/// gives.
///
/// # Safety
/// As for `sigaction`.
pub(super) unsafe fn install(
    signal: c_int,
    new: *const Action,
    old: *mut Action,
    call: impl FnOnce(*const Action, *mut Action) -> c_int,
) -> c_int {
    // The original fails for these without a look at the rest.
    if !(1..=64).contains(&signal) || is_libcs(signal) {
        return call(new, old);
    }
    // SAFETY: by contract, null or valid; read before written, they may be one.
    unsafe {
        let asked = new.as_ref().map(|new| {
            let mut asked = *new;
            asked.sa_sigaction = to(signal, new.sa_sigaction, new.sa_flags);
            asked
        });
        let result = room::install(signal, asked, old, call);
        if result == 0
            && let Some(old) = old.as_mut()
        {
            old.sa_sigaction = behind(old.sa_sigaction);
        }
        result
    }
}

/// Whether libc keeps a signal to itself (`SIGCANCEL` and `SIGSETXID` of glibc's internal-signals.h).
fn is_libcs(signal: c_int) -> bool {
    matches!(signal, 32 | 33)
}
