//! The signal by which the collector interrupts threads that run without passing a hook, and the
//! program's own view of it.
//!
//! It is SIGURG: its default is to be ignored, so one that arrives late, after exec or in a thread we
//! know nothing of, does no harm. Our handler is the installed one; what the program installs is kept
//! here, shown to it again, and called for every SIGURG that is not ours. All other signals are none
//! of our business.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, zeroed};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use libc::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_ERR, SIG_IGN,
    SIGURG, sighandler_t, siginfo_t, sigset_t,
};
use stackbeat_core::agent;

type Action = libc::sigaction;

/// Whether our handler is installed.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// What the program asked for: readable from the handler, so a version around plain words.
static VERSION: AtomicU32 = AtomicU32::new(0);
static HANDLER: AtomicUsize = AtomicUsize::new(SIG_DFL);
static FLAGS: AtomicU32 = AtomicU32::new(0);
/// Signals 1 to 64 of the program's mask for its handler.
static MASK: AtomicUsize = AtomicUsize::new(0);

/// Reads what the program asked for.
fn asked() -> (sighandler_t, c_int, usize) {
    loop {
        let before = VERSION.load(Ordering::Acquire);
        let value = (
            HANDLER.load(Ordering::Acquire),
            FLAGS.load(Ordering::Acquire) as c_int,
            MASK.load(Ordering::Acquire),
        );
        if before & 1 == 0 && VERSION.load(Ordering::Acquire) == before {
            return value;
        }
        core::hint::spin_loop();
    }
}

/// Stores what the program asks for. All signals are blocked meanwhile, so that a handler on this
/// thread never meets an odd version.
fn ask(handler: sighandler_t, flags: c_int, mask: usize) {
    with_all_blocked(|| {
        let free = |v: u32| (v & 1 == 0).then_some(v + 1);
        while VERSION
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, free)
            .is_err()
        {
            core::hint::spin_loop();
        }
        HANDLER.store(handler, Ordering::Release);
        FLAGS.store(flags as u32, Ordering::Release);
        MASK.store(mask, Ordering::Release);
        VERSION.fetch_add(1, Ordering::Release);
    });
}

/// Calls `f` with all signals of the calling thread blocked that a program can block.
pub(crate) fn with_all_blocked<T>(f: impl FnOnce() -> T) -> T {
    let mut old = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: local sets; restored below.
    unsafe {
        let mut all = MaybeUninit::<sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
    }
    let result = f();
    // SAFETY: `old` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), null_mut()) };
    result
}

fn mask_word(set: &sigset_t) -> usize {
    // SAFETY: a sigset_t begins with the word of signals 1 to 64 (glibc's <bits/types/__sigset_t.h>).
    unsafe { *(&raw const *set).cast::<usize>() }
}

/// The signal by which libc cancels a thread (32 in glibc, 33 in musl; `SIGCANCEL` of their pthreadP.h and
/// pthread_impl.h), as a bit of a mask. An asynchronous cancellation inside of our handler would unwind
/// through it, which ends the process.
const CANCELLATION: usize = 0b11 << 31;

/// Installs our handler with the program's wishes about restarting, stacks and masks.
///
/// # Safety
/// Called with the original `sigaction` only.
unsafe fn install() {
    let (handler, flags, mask) = asked();
    // SAFETY: zeros are a valid sigaction.
    let mut action: Action = unsafe { zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = if handler == SIG_DFL || handler == SIG_IGN {
        // Not on the alternate stack: it has a few KiB (8 in every Rust thread), a capture needs more.
        SA_SIGINFO | SA_RESTART
    } else {
        SA_SIGINFO | flags & (SA_RESTART | SA_ONSTACK | SA_NODEFER)
    };
    // SAFETY: as in `mask_word`.
    unsafe {
        *(&raw mut action.sa_mask).cast::<usize>() = mask | CANCELLATION;
        sigaction::call(SIGURG, &action, null_mut());
    }
}

/// Installs our handler; what the process inherited becomes the program's.
pub(crate) fn start() {
    // SAFETY: the original, with local structures.
    unsafe {
        let mut old: Action = zeroed();
        if sigaction::call(SIGURG, core::ptr::null(), &mut old) != 0 {
            return;
        }
        ask(old.sa_sigaction, old.sa_flags, mask_word(&old.sa_mask));
        install();
    }
    ACTIVE.store(true, Ordering::Release);
    agent::handler_installed(SIGURG as u32);
}

/// Installs again what the program asked for; one of our signals that is still on its way is ignored by
/// default.
pub(crate) fn stop() {
    if !ACTIVE.swap(false, Ordering::AcqRel) {
        return;
    }
    let (handler, flags, mask) = asked();
    // SAFETY: the original, with what the program itself installed.
    unsafe {
        let mut action: Action = zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        *(&raw mut action.sa_mask).cast::<usize>() = mask;
        sigaction::call(SIGURG, &action, null_mut());
    }
}

unsafe extern "C-unwind" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel passed.
    if unsafe { agent::on_signal(info, context) } {
        return;
    }
    let (handler, flags, mask) = asked();
    if handler == SIG_DFL || handler == SIG_IGN {
        return;
    }
    if flags & SA_RESETHAND != 0 {
        ask(SIG_DFL, flags, mask);
    }
    // SAFETY: the program's own handler, called with what the kernel gave, under the mask that it
    // asked for.
    unsafe {
        if flags & SA_SIGINFO != 0 {
            let handler: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) =
                core::mem::transmute(handler);
            handler(signal, info, context);
        } else {
            let handler: unsafe extern "C-unwind" fn(c_int) = core::mem::transmute(handler);
            handler(signal);
        }
    }
}

/// In a child after fork: the thread that was storing the program's wishes at that moment is not there.
pub(crate) fn after_fork() {
    if VERSION.load(Ordering::Relaxed) & 1 != 0 {
        VERSION.fetch_add(1, Ordering::Release);
    }
}

/// True for the signal behind whose handler the program's own is kept. A child of `vfork` has handlers of its
/// own, but its parent's memory: there the original is called, and nothing is noted.
fn is_ours(signal: c_int) -> bool {
    signal == SIGURG && ACTIVE.load(Ordering::Acquire)
}

/// As [`is_ours`], for calls that say nothing of what was before.
fn is_kept(signal: c_int) -> bool {
    is_ours(signal) && agent::owns_memory()
}

macro_rules! sigactions {
    ($($name:ident)*) => {$(
        original!(fn $name(signal: c_int, new: *const Action, old: *mut Action) -> c_int);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
            if !is_ours(signal) {
                // SAFETY: the caller's arguments, passed on.
                return unsafe { $name::call(signal, new, old) };
            }
            // SAFETY: by the caller's contract, null or valid; read before written, they may be one.
            unsafe {
                let (handler, flags, mask) = asked();
                if !agent::owns_memory() && !new.is_null() && $name::call(signal, new, null_mut()) != 0 {
                    return -1;
                }
                if let Some(new) = new.as_ref() && agent::owns_memory() {
                    ask(new.sa_sigaction, new.sa_flags, mask_word(&new.sa_mask));
                    install();
                }
                if let Some(old) = old.as_mut() {
                    old.sa_sigaction = handler;
                    old.sa_flags = flags;
                    libc::sigemptyset(&mut old.sa_mask);
                    *(&raw mut old.sa_mask).cast::<usize>() = mask;
                }
            }
            0
        }
    )*};
}
sigactions! { sigaction __sigaction }

macro_rules! handlers {
    ($($name:ident = $flags:expr;)*) => {$(
        original!(fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
            if !is_ours(signal) || handler == SIG_ERR {
                // SAFETY: the caller's arguments, passed on.
                return unsafe { $name::call(signal, handler) };
            }
            let (old, _, _) = asked();
            if !agent::owns_memory() {
                // SAFETY: the caller's arguments, passed on.
                unsafe { $name::call(signal, handler) };
                return old;
            }
            ask(handler, $flags, 1 << (SIGURG - 1));
            // SAFETY: our handler is installed, this changes its flags.
            unsafe { install() };
            old
        }
    )*};
}
// `signal` restarts calls in the BSD way that glibc has; the System V one resets and interrupts.
handlers! {
    signal = SA_RESTART;
    bsd_signal = SA_RESTART;
    ssignal = SA_RESTART;
    sysv_signal = SA_RESETHAND | SA_NODEFER;
    __sysv_signal = SA_RESETHAND | SA_NODEFER;
}

/// `SIG_HOLD` of glibc's <signal.h>.
const SIG_HOLD: sighandler_t = 2;

original!(fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t);
/// Blocks or unblocks the signal besides: the original does that, and then ours is installed again.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's arguments, passed on; then our handler again, with the program's behind it.
    unsafe {
        let result = sigset::call(signal, handler);
        if !is_ours(signal) || result == SIG_ERR {
            return result;
        }
        let (old, _, _) = asked();
        if handler != SIG_HOLD && agent::owns_memory() {
            ask(handler, 0, 0);
            install();
        }
        if result == SIG_HOLD { SIG_HOLD } else { old }
    }
}

original!(fn sigignore(signal: c_int) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigignore(signal: c_int) -> c_int {
    if !is_kept(signal) {
        // SAFETY: the caller's argument, passed on.
        return unsafe { sigignore::call(signal) };
    }
    ask(SIG_IGN, 0, 0);
    // SAFETY: our handler is installed, this changes its flags.
    unsafe { install() };
    0
}

original!(fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int {
    if !is_kept(signal) {
        // SAFETY: the caller's arguments, passed on.
        return unsafe { siginterrupt::call(signal, interrupt) };
    }
    let (handler, flags, mask) = asked();
    let restart = if interrupt == 0 { SA_RESTART } else { 0 };
    ask(handler, flags & !SA_RESTART | restart, mask);
    // SAFETY: our handler is installed, this changes its flags.
    unsafe { install() };
    0
}
