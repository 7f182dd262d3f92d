//! Signals that end a process (`stackbeat_core::crash_signals`). A handler of ours stands where the program
//! has none, for two reasons. Where a recording tells of crashes (`--dump-on-crash`), it notes the thread and
//! its stack (`agent::on_crash`), and lets the signal take its course. Where captures load what may not be
//! there, it catches the faults of that (`fault_guard`): SIGSEGV and SIGBUS. `sigaction` and its relatives
//! ([`super`]) ask here first what to do with such a signal.
//!
//! The program sees the default in its place. Whether a fault is an error at all is the business of a handler
//! of the program's own: before it only [`super::fault_entrance`] runs. Handlers that end the process put the
//! default back and raise the signal again: then ours is there again. Where the kernel itself puts the
//! default back (SA_RESETHAND), where a signal is blocked, and where there is no stack left for a handler,
//! the process dies as ever, and its parent tells of it (`agent::child_ended`). Where a thread sends itself
//! the signal, nothing has to run on its way: a hook notes it before.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use libc::{
    SA_ONSTACK, SA_SIGINFO, SIG_DFL, SIG_ERR, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV,
    sighandler_t, siginfo_t,
};
use stackbeat_core::agent;
use stackbeat_core::crash_signals::CRASH_SIGNALS;
use stackbeat_core::platform::{self, fault_guard};
use stackbeat_core::unwind::Registers;

use super::{fault_entrance, room, sigaction, with_all_blocked};

type Action = libc::sigaction;

/// The signals in whose default's place ours may stand, as a mask of the kernel's.
static WATCHED: AtomicU64 = AtomicU64::new(0);

/// Whether ours may stand where this signal's default would.
pub(crate) fn is_watched(signal: c_int) -> bool {
    WATCHED.load(Ordering::Acquire) & platform::signal_bit(signal as u32) != 0
}

/// Installs ours where nobody else stands, if the session is to tell of crashes, or as soon as captures load
/// what may not be there.
pub(crate) fn start() {
    if !agent::allows_crash_handlers() {
        return;
    }
    if agent::watches_crashes() {
        watch(|_| true);
    }
    static PROVIDER: fault_guard::Provider = fault_guard::Provider {
        install: || watch(fault_entrance::is_raised),
        catches,
    };
    fault_guard::set_provider(Some(&PROVIDER));
}

/// Whether a handler, as the kernel has it, catches faults of our loads.
fn catches(handler: u64) -> bool {
    handler == OURS as usize as u64 || fault_entrance::is_one(handler)
}

/// Installs ours for some of these signals, where nobody else stands.
fn watch(is_watched: impl Fn(c_int) -> bool) {
    let signals = CRASH_SIGNALS.into_iter().map(|(signal, _)| signal);
    for signal in signals.filter(|signal| is_watched(*signal)) {
        WATCHED.fetch_or(platform::signal_bit(signal as u32), Ordering::AcqRel);
        give(signal, SIG_DFL, &ours());
    }
}

/// Puts the default back.
pub(crate) fn stop() {
    fault_guard::set_provider(None);
    let watched = WATCHED.swap(0, Ordering::AcqRel);
    fault_guard::change_handlers(|| {
        for (signal, _) in CRASH_SIGNALS {
            if watched & platform::signal_bit(signal as u32) != 0 {
                give(signal, OURS as usize, &default());
            }
        }
    });
}

/// Gives a signal that has the one handler another one. A handler that another thread installs meanwhile is
/// put back.
fn give(signal: c_int, before: sighandler_t, after: &Action) {
    if platform::signal_handler(signal as u32) != before as u64 {
        return;
    }
    let mut found = default();
    // SAFETY: the original, with a handler of ours or the default, and what it has found.
    unsafe {
        if sigaction::call(signal, after, &mut found) == 0 && found.sa_sigaction != before {
            sigaction::call(signal, &found, null_mut());
        }
    }
}

const OURS: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) = on_crash;

fn default() -> Action {
    // SAFETY: zeros are a valid sigaction: the default.
    unsafe { zeroed() }
}

/// With all signals blocked meanwhile, also those of libc: what the program's other handlers do, they do
/// before or never.
fn ours() -> Action {
    let mut action = default();
    action.sa_sigaction = OURS as usize;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    // SAFETY: a sigset_t begins with the word of signals 1 to 64 (glibc's <bits/types/__sigset_t.h>).
    unsafe { *(&raw mut action.sa_mask).cast::<u64>() = u64::MAX };
    action
}

/// What the program sees where this handler stands.
fn shown(handler: sighandler_t) -> sighandler_t {
    match handler == OURS as usize {
        true => SIG_DFL,
        false => fault_entrance::behind(handler),
    }
}

/// As `sigaction`, for a signal that is watched.
///
/// # Safety
/// As for `sigaction`.
pub(crate) unsafe fn replace(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    let ours = ours();
    // SAFETY: by contract; `new` is read before `old` is written, they may be one.
    unsafe {
        let new = match new.as_ref() {
            // A child of vfork is about to run another program, with the default.
            Some(asked) if asked.sa_sigaction == SIG_DFL && agent::owns_memory() => Some(ours),
            asked => asked.copied().map(|mut asked| {
                asked.sa_sigaction = fault_entrance::to(signal, asked.sa_sigaction, asked.sa_flags);
                asked
            }),
        };
        let call = |new, old| sigaction::call(signal, new, old);
        let install = || room::install(signal, new, old, call);
        let result = match new.is_some_and(|new| !catches(new.sa_sigaction as u64)) {
            true => fault_guard::change_handlers(install),
            false => install(),
        };
        if result == 0
            && let Some(old) = old.as_mut()
        {
            match old.sa_sigaction == OURS as usize {
                true => *old = default(),
                false => old.sa_sigaction = fault_entrance::behind(old.sa_sigaction),
            }
        }
        result
    }
}

/// As `signal` and its relatives, for a signal that is watched: `original` does what they do, with these
/// flags of `sigaction`.
///
/// # Safety
/// As for `signal`.
pub(crate) unsafe fn handle(
    signal: c_int,
    handler: sighandler_t,
    flags: c_int,
    original: impl FnOnce(sighandler_t) -> sighandler_t,
) -> sighandler_t {
    if handler == SIG_DFL && agent::owns_memory() {
        let mut old = default();
        // SAFETY: the original, with a handler of ours.
        return match unsafe { sigaction::call(signal, &ours(), &mut old) } {
            0 => shown(old.sa_sigaction),
            _ => SIG_ERR,
        };
    }
    let to_install = fault_entrance::to(signal, handler, flags);
    shown(match catches(to_install as u64) {
        true => original(to_install),
        false => fault_guard::change_handlers(|| original(to_install)),
    })
}

/// All of it on another stack: alternate ones may have nothing left after the kernel's frame.
unsafe extern "C-unwind" fn on_crash(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel passed.
    if fault_entrance::is_raised(signal) && unsafe { fault_guard::catch(info, context) } {
        return;
    }
    let takes_course = || {
        // SAFETY: what the kernel passed; the original, with the default.
        unsafe {
            let lives = !gives_way(signal);
            if lives && notes() {
                agent::lives_on();
            }
            if !comes_by_itself(signal, (*info).si_code) {
                // The same signal again: it arrives when this handler returns, where it came the first time,
                // so that a core has the registers and the reason of that.
                platform::send_again(signal, info);
            }
        }
    };
    if !notes() {
        takes_course();
        return;
    }
    agent::with_room(|has_room| {
        // SAFETY: what the kernel passed.
        unsafe {
            let interrupted = agent::interrupted(info, context);
            agent::on_crash(signal, (*info).si_code, &interrupted, has_room);
        }
        takes_course();
    });
}

/// Whether a signal that ends this process is noted.
fn notes() -> bool {
    agent::watches_crashes() && agent::owns_memory()
}

/// Puts the default back in the place of ours. False: another thread has installed a handler of the program's
/// meanwhile, which stays.
fn gives_way(signal: c_int) -> bool {
    let mut found = default();
    // SAFETY: the original, with local structures, one of which it has filled.
    unsafe {
        if sigaction::call(signal, &default(), &mut found) != 0
            || shown(found.sa_sigaction) == SIG_DFL
        {
            return true;
        }
        sigaction::call(signal, &found, null_mut());
    }
    false
}

/// Whether the instruction that a handler returns to faults again, so that the kernel's own signal ends the
/// process.
fn comes_by_itself(signal: c_int, code: c_int) -> bool {
    /// A broken page that nobody has touched yet.
    const BUS_MCEERR_AO: c_int = 5;

    match signal {
        SIGSEGV | SIGILL | SIGFPE => code > 0,
        SIGBUS => code > 0 && code != BUS_MCEERR_AO,
        // A breakpoint is behind the thread, a system call that a filter denies as well.
        _ => false,
    }
}

/// Whether a signal that comes now would end the process, and ours would note it.
#[inline]
pub(crate) fn is_ours(signal: c_int) -> bool {
    is_watched(signal) && platform::signal_handler(signal as u32) == OURS as usize as u64
}

/// The calling thread is about to send itself a signal that is ours. Where that will end the process, this
/// notes it and puts the default back: ours would need room for a second frame of the kernel's on a stack
/// that may be a handler's small one. True: it did. `unblocks`: the call does so before.
///
/// Signals are let in on the program's stack only, which the program's handlers may leave by a jump.
fn sends_itself(signal: c_int, registers: &Registers, unblocks: bool) -> bool {
    with_all_blocked(|blocked| {
        let mut ends = unblocks || blocked & 1 << (signal - 1) == 0;
        if ends {
            agent::with_room(|has_room| {
                let is_noted = notes();
                if is_noted {
                    agent::on_crash(signal, libc::SI_TKILL, registers, has_room);
                }
                ends = gives_way(signal);
                if is_noted && !ends {
                    agent::lives_on();
                }
            });
        }
        ends
    })
}

/// Runs a call by which the calling thread sends itself a signal that is ours.
#[inline(never)]
pub(crate) fn send_to_itself<R>(signal: c_int, call: impl FnOnce() -> R) -> R {
    let ends = sends_itself(signal, &Registers::here(), false);
    let result = call();
    if ends && agent::owns_memory() {
        // The first process of a pid namespace is spared, and a debugger or a filter may take the signal
        // away.
        agent::lives_on();
        if is_watched(signal) {
            give(signal, SIG_DFL, &ours());
        }
        // It may have ended in between.
        if !is_watched(signal) {
            give(signal, OURS as usize, &default());
        }
    }
    result
}

original!(fn abort() -> ());

/// The thread is about to call the original, whose address this gives, with these registers.
unsafe extern "C" fn aborting(registers: &mut Registers) -> *mut c_void {
    let original = abort::ORIGINAL.find();
    if is_ours(SIGABRT) {
        registers.pc = original as u64;
        sends_itself(SIGABRT, registers, true);
    }
    original
}

/// Leaves no frame behind: a core shows who called it.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn abort() {
    // `Registers` as they are at the original's first instruction; pc comes later.
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 88",
        ".cfi_adjust_cfa_offset 88",
        "lea rax, [rsp + 88]",
        "mov [rsp + 8], rax",
        "mov [rsp + 16], rbp",
        "mov qword ptr [rsp + 24], 0",
        "mov qword ptr [rsp + 72], 0",
        "mov [rsp + 32], rbx",
        "mov [rsp + 40], r12",
        "mov [rsp + 48], r13",
        "mov [rsp + 56], r14",
        "mov [rsp + 64], r15",
        "mov rdi, rsp",
        "call {aborting}",
        "add rsp, 88",
        ".cfi_adjust_cfa_offset -88",
        "jmp rax",
        ".cfi_endproc",
        aborting = sym aborting,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-96]!",
        ".cfi_def_cfa_offset 96",
        ".cfi_offset x29, -96",
        ".cfi_offset x30, -88",
        "add x1, sp, #96",
        "stp x1, x29, [sp, #24]",
        "stp x30, xzr, [sp, #40]",
        "stp xzr, xzr, [sp, #56]",
        "stp xzr, xzr, [sp, #72]",
        "str xzr, [sp, #88]",
        "mov x29, sp",
        "add x0, sp, #16",
        "bl {aborting}",
        "mov x16, x0",
        "ldp x29, x30, [sp], #96",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "br x16",
        ".cfi_endproc",
        aborting = sym aborting,
    );
}
