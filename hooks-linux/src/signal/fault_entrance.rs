//! Entrances to the program's handlers for SIGSEGV and SIGBUS, which catch faults of our own loads
//! (`stackbeat_core::platform::fault_guard`). All other faults are the program's, and its handler finds them
//! as if nothing stood before it: an entrance takes no stack and changes no register that carries anything.
//!
//! What the program asks for is shown to it, as with other entrances ([`super::entrance`]).

use core::ffi::c_int;
use libc::{SA_RESETHAND, SIGBUS, SIGSEGV, sighandler_t};

use super::entrance_table::EntranceTable;

/// More handlers than programs have. Those beyond are installed as they are.
const ENTRANCES: usize = 32;

static TABLE: EntranceTable<ENTRANCES> = EntranceTable::new();

/// Where the context of a signal has a register.
#[cfg(target_arch = "x86_64")]
const fn register(number: c_int) -> usize {
    core::mem::offset_of!(libc::ucontext_t, uc_mcontext.gregs) + 8 * number as usize
}

/// The trap of addresses that are none (X86_TRAP_GP of the kernel's asm/trapnr.h).
#[cfg(target_arch = "x86_64")]
const GENERAL_PROTECTION: u32 = 13;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.stackbeat_fault_entrances,\"ax\",@progbits",
    ".p2align 4",
    ".hidden stackbeat_fault_entrances",
    ".globl stackbeat_fault_entrances",
    ".type stackbeat_fault_entrances, @function",
    "stackbeat_fault_entrances:",
    ".cfi_startproc",
    ".set stackbeat_fault_entrance, 0",
    ".rept {entrances}",
    ".p2align 4",
    "movl $stackbeat_fault_entrance, %eax",
    "jmp 2f",
    ".set stackbeat_fault_entrance, stackbeat_fault_entrance + 1",
    ".endr",
    ".p2align 4",
    // The third argument is the context, also of a handler without SA_SIGINFO (arch/x86/kernel/signal_64.c).
    "2:",
    "leaq stackbeat_guarded_load(%rip), %r11",
    "cmpq %r11, {pc}(%rdx)",
    "je 3f",
    "2:",
    "leaq {handlers}(%rip), %r11",
    "movq (%r11,%rax,8), %r11",
    // As the kernel has it, for handlers without a prototype.
    "xorl %eax, %eax",
    "jmpq *%r11",
    // A signal that somebody has sent may come there, too: a fault was a refused address, or says the one
    // that was loaded.
    "3:",
    "cmpq ${refused}, {trap}(%rdx)",
    "je 4f",
    "movq {fault_address}(%rdx), %r11",
    "cmpq %r11, {first_argument}(%rdx)",
    "jne 2b",
    "4:",
    "leaq stackbeat_guarded_load_failed(%rip), %r11",
    "movq %r11, {pc}(%rdx)",
    "ret",
    ".cfi_endproc",
    ".size stackbeat_fault_entrances, . - stackbeat_fault_entrances",
    ".popsection",
    entrances = const ENTRANCES,
    handlers = sym TABLE,
    pc = const register(libc::REG_RIP),
    trap = const register(libc::REG_TRAPNO),
    fault_address = const register(libc::REG_CR2),
    first_argument = const register(libc::REG_RDI),
    refused = const GENERAL_PROTECTION,
    options(att_syntax),
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    static stackbeat_fault_entrances: [[u8; super::entrance_table::STRIDE]; ENTRANCES];
}

/// Where the entrances' code begins.
#[cfg(target_arch = "x86_64")]
fn first() -> Option<usize> {
    Some((&raw const stackbeat_fault_entrances).addr())
}

#[cfg(not(target_arch = "x86_64"))]
fn first() -> Option<usize> {
    None
}

/// Whether faults of our own loads raise this signal.
pub(super) fn is_raised(signal: c_int) -> bool {
    matches!(signal, SIGSEGV | SIGBUS)
}

/// Whether a handler, as the kernel has it, is an entrance.
pub(super) fn is_one(installed: u64) -> bool {
    TABLE.behind(first(), installed as usize).is_some()
}

/// The handler whose entrance this is, or what else the kernel knows.
pub(super) fn behind(installed: sighandler_t) -> sighandler_t {
    TABLE.behind(first(), installed).unwrap_or(installed)
}

/// What to install for a handler of this signal, with these flags: its entrance, if it has one.
pub(super) fn to(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    // The kernel takes such a handler away as it comes: a fault of ours would use it up.
    let comes_once = flags & SA_RESETHAND != 0;
    let entrance = (is_raised(signal) && !comes_once).then(|| TABLE.of(first(), handler));
    entrance.flatten().unwrap_or(handler)
}
