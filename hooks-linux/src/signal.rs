//! The signals by which the collector interrupts threads that run without passing a hook, and the
//! program's own view of them.
//!
//! The first is SIGURG. The second, SIGWINCH, is for threads that block the first; its handler is installed
//! when a thread is seen to do that, and only if the program has none. And it is for programs that handle the
//! first themselves, as Go's do. The default of both is to be ignored, so one that arrives late, after exec
//! or in a thread we know nothing of, does no harm: of the other signals that are hardly used, all end the
//! process. Our handler is the installed one; what the program installs is kept here, shown to it again, and
//! called for every one of these signals that is not ours. All other signals are none of our business, but
//! those that end a process where crashes are to be recorded (`crash`).
//!
//! - this file: which of our handlers are installed, what the program asked for, and the calls by which it
//!   asks (`sigaction`, `signal`, …)
//! - `handler`: our handler, and the program's own behind it
//! - `entrance`: notes on the thread that a handler of another signal begins
//! - `fault_entrance`: catches our own faults before a handler of the program's for such signals
//! - `entrance_table`: which handler each entrance of both belongs to
//! - `room`: handlers on the program's alternate stack block our signals
//! - `mask`: calls by which a thread changes which signals it blocks (`pthread_sigmask`, …)
//! - `crash`: handlers for the signals that end a process, and `abort`
//!
//! A signal that the program ignores rests: it is ignored in truth, because what the program starts inherits
//! that, by ways that no hook sees (libc's own in `system` and `posix_spawn`). While the first rests, the
//! second stands in for it.

pub(crate) mod crash;
mod entrance;
mod entrance_table;
mod fault_entrance;
mod handler;
mod mask;
mod room;

use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use libc::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_ERR, SIG_IGN,
    SIGURG, SIGWINCH, sighandler_t, sigset_t,
};
use stackbeat_core::agent;
use stackbeat_core::crash_signals::CRASH_SIGNALS;
use stackbeat_core::platform;

type Action = libc::sigaction;

/// A signal of ours, and what the program asked for: readable from the handler, so a version around plain
/// words.
struct Kept {
    signal: c_int,
    /// Whether our handler is installed.
    is_active: AtomicBool,
    /// Whether it is not, because the program ignores the signal.
    rests: AtomicBool,
    version: AtomicU32,
    handler: AtomicUsize,
    flags: AtomicU32,
    /// Signals 1 to 64 of the program's mask for its handler.
    mask: AtomicUsize,
}

static FIRST: Kept = Kept::of(SIGURG);
static SECOND: Kept = Kept::of(SIGWINCH);
static OURS: [&Kept; 2] = [&FIRST, &SECOND];

impl Kept {
    const fn of(signal: c_int) -> Kept {
        Kept {
            signal,
            is_active: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            version: AtomicU32::new(0),
            handler: AtomicUsize::new(SIG_DFL),
            flags: AtomicU32::new(0),
            mask: AtomicUsize::new(0),
        }
    }

    /// Its bit in a mask.
    const fn bit(&self) -> usize {
        1 << (self.signal - 1)
    }

    /// Reads what the program asked for.
    fn asked(&self) -> (sighandler_t, c_int, usize) {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let value = (
                self.handler.load(Ordering::Acquire),
                self.flags.load(Ordering::Acquire) as c_int,
                self.mask.load(Ordering::Acquire),
            );
            if before & 1 == 0 && self.version.load(Ordering::Acquire) == before {
                return value;
            }
            core::hint::spin_loop();
        }
    }

    /// Stores what the program asks for. All signals are blocked meanwhile, so that a handler on this
    /// thread never meets an odd version.
    fn ask(&self, handler: sighandler_t, flags: c_int, mask: usize) {
        with_all_blocked(|_| {
            let free = |v: u32| (v & 1 == 0).then_some(v + 1);
            while self
                .version
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, free)
                .is_err()
            {
                core::hint::spin_loop();
            }
            self.handler.store(handler, Ordering::Release);
            self.flags.store(flags as u32, Ordering::Release);
            self.mask.store(mask, Ordering::Release);
            self.version.fetch_add(1, Ordering::Release);
        });
    }

    /// Installs our handler with the program's wishes about restarting, stacks and masks, unless it ignores
    /// the signal.
    fn install(&self) {
        let (handler, flags, mask) = self.asked();
        let is_ignored = handler == SIG_IGN;
        self.rests.store(is_ignored, Ordering::Release);
        if is_ignored {
            // One that is on its way now is lost, as one is that the program takes.
            self.is_active.store(false, Ordering::Release);
            publish();
        }
        // SAFETY: zeros are a valid sigaction.
        let mut action: Action = unsafe { zeroed() };
        action.sa_sigaction = match is_ignored {
            true => SIG_IGN,
            false => handler::on_signal as *const () as usize,
        };
        let is_own = handler != SIG_DFL && handler != SIG_IGN;
        let asked = if is_own { flags } else { SA_RESTART };
        // Always on the alternate stack, where our signals take nothing of the program's own.
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | asked & SA_RESTART;
        // SAFETY: as in `mask_word`; the original, with a local structure.
        unsafe {
            *(&raw mut action.sa_mask).cast::<usize>() = mask | undisturbed();
            sigaction::call(self.signal, &action, null_mut());
        }
        if core::ptr::eq(self, &FIRST) {
            // First: where another signal comes in its place, it is known why.
            if is_own {
                agent::signal_is_handled();
                mask::close_first();
            }
            if is_ignored || is_own {
                start_second();
            }
            if self.is_active.load(Ordering::Acquire) {
                publish();
            }
        }
    }

    /// What is installed now: the handler, flags and mask.
    fn installed(&self) -> Option<(sighandler_t, c_int, usize)> {
        // SAFETY: the original, with a local structure.
        unsafe {
            let mut action: Action = zeroed();
            let found = sigaction::call(self.signal, core::ptr::null(), &mut action) == 0;
            found.then(|| {
                (
                    entrance::behind(action.sa_sigaction),
                    action.sa_flags,
                    mask_word(&action.sa_mask),
                )
            })
        }
    }

    /// Installs our handler; what is there becomes the program's.
    fn start(&self, (handler, flags, mask): (sighandler_t, c_int, usize)) {
        self.ask(handler, flags, mask);
        self.install();
        self.is_active.store(handler != SIG_IGN, Ordering::Release);
    }

    /// Installs again what the program asked for; one of our signals that is still on its way is ignored by
    /// default.
    fn stop(&self) {
        self.rests.store(false, Ordering::Release);
        if !self.is_active.swap(false, Ordering::AcqRel) {
            return;
        }
        if !platform::allows(
            libc::SYS_rt_sigaction,
            [self.signal as usize, 0, 0, 8, 0, 0],
        ) {
            // Ours stays, and calls the program's.
            return;
        }
        let (handler, flags, mask) = self.asked();
        // SAFETY: the original, with what the program itself installed.
        unsafe {
            let mut action: Action = zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = flags;
            *(&raw mut action.sa_mask).cast::<usize>() = mask;
            sigaction::call(self.signal, &action, null_mut());
        }
    }
}

/// Calls `f` with all signals of the calling thread blocked, also those of libc; it gets the mask of before.
/// What has come meanwhile is delivered at the end, on the stack of the caller.
pub(crate) fn with_all_blocked<T>(f: impl FnOnce(u64) -> T) -> T {
    let held = platform::hold_signals(u64::MAX);
    let result = f(held.as_ref().map_or(0, |held| held.before()));
    if let Some(held) = held {
        held.release();
    }
    result
}

pub(crate) fn mask_word(set: &sigset_t) -> usize {
    // SAFETY: a sigset_t begins with the word of signals 1 to 64 (glibc's <bits/types/__sigset_t.h>).
    unsafe { *(&raw const *set).cast::<usize>() }
}

/// The signal by which libc cancels a thread (32 in glibc, 33 in musl; `SIGCANCEL` of their pthreadP.h and
/// pthread_impl.h), as a bit of a mask. An asynchronous cancellation inside of our handler would unwind
/// through it, which ends the process.
const CANCELLATION: usize = 0b11 << 31;

/// What is blocked while our handler captures: a handler of the program's that calls `pthread_exit` would
/// unwind through it as well, and two of ours would need room for two frames. Not the signals of faults.
fn undisturbed() -> usize {
    let crash_signals = CRASH_SIGNALS
        .iter()
        .fold(0, |set, (signal, _)| set | 1 << (signal - 1));
    !crash_signals
}

/// Installs our handler for the first signal; what the process inherited becomes the program's.
pub(crate) fn start() {
    if !agent::allows_handlers() {
        return;
    }
    let Some(found) = FIRST.installed() else {
        return;
    };
    FIRST.start(found);
    publish();
    let look = |mask: u64| {
        agent::program_blocks(mask, !mask);
        look_at_mask(mask as usize);
    };
    agent::watch_masks(look);
    // The calling thread takes part already.
    look(agent::mask());
}

/// Whether the program has a handler of its own for the first signal.
fn is_first_handled() -> bool {
    !matches!(FIRST.asked().0, SIG_DFL | SIG_IGN)
}

/// Whether the first signal means nothing to the program, so that it may come where the program blocks it.
pub(crate) fn is_first_free() -> bool {
    FIRST.is_active.load(Ordering::Acquire) && FIRST.asked().0 == SIG_DFL
}

/// Whether a thread with this mask can be reached by the second signal only.
pub(crate) fn blocks_first_only(mask: usize) -> bool {
    mask & FIRST.bit() != 0 && mask & SECOND.bit() == 0
}

/// Somebody is installing our handler for the second signal.
static BUSY: AtomicBool = AtomicBool::new(false);

/// A thread blocks these signals, or is about to: installs our handler for the second one if that can reach
/// it and the program has no use for it. May be called in handlers.
pub(crate) fn look_at_mask(mask: usize) {
    if !blocks_first_only(mask)
        || SECOND.is_active.load(Ordering::Acquire)
        || !FIRST.is_active.load(Ordering::Acquire)
        || !agent::owns_memory()
    {
        return;
    }
    start_second();
}

/// Installs our handler for the second signal, if the program has no use for it, or has one for the first as
/// well.
fn start_second() {
    if !platform::allows(libc::SYS_rt_sigaction, [SIGWINCH as usize, 0, 0, 8, 0, 0]) {
        return;
    }
    // A handler that comes in between would find it busy.
    with_all_blocked(|_| {
        if BUSY.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(found) = SECOND.installed()
            && (found.0 == SIG_DFL || found.0 != SIG_IGN && is_first_handled())
            && !SECOND.is_active.load(Ordering::Acquire)
        {
            SECOND.start(found);
            // Another thread may have installed one of its own at the same moment.
            if SECOND
                .installed()
                .is_some_and(|now| now.0 == handler::on_signal as *const () as usize)
            {
                publish();
            } else {
                SECOND.is_active.store(false, Ordering::Release);
            }
        }
        BUSY.store(false, Ordering::Release);
    });
}

/// Tells which signals may be sent: not the first where the program handles it. One of the program's own that
/// is sent to a thread in which ours pends is lost, and Go's runtime waits for each of its own.
fn publish() {
    let may_be_sent = |kept: &&Kept| {
        let is_shared = core::ptr::eq(*kept, &FIRST) && is_first_handled();
        kept.is_active.load(Ordering::Acquire) && !is_shared
    };
    let active = OURS.into_iter().filter(may_be_sent);
    let mut signals = active.map(|kept| kept.signal as u32);
    agent::handlers_installed(
        signals.next().unwrap_or_default(),
        signals.next().unwrap_or_default(),
    );
}

/// The program has asked for something with a signal that rests: where it does not ignore it any more, ours
/// is installed.
#[cold]
fn look_again(kept: &Kept) {
    if agent::owns_memory()
        && let Some(found) = kept.installed()
        && found.0 != SIG_IGN
    {
        kept.start(found);
        publish();
    }
}

/// Calls the original for a signal that rests.
fn of_resting<T>(signal: c_int, original: impl FnOnce() -> T) -> Option<T> {
    let mut resting = OURS.into_iter();
    let kept = resting.find(|k| k.signal == signal && k.rests.load(Ordering::Acquire))?;
    let result = original();
    look_again(kept);
    Some(result)
}

/// Installs again what the program asked for.
pub(crate) fn stop() {
    for kept in OURS {
        kept.stop();
    }
}

/// In a child after fork: the thread that was storing the program's wishes at that moment, or installing a
/// handler, is not there.
pub(crate) fn after_fork() {
    BUSY.store(false, Ordering::Relaxed);
    for kept in OURS {
        if kept.version.load(Ordering::Relaxed) & 1 != 0 {
            kept.version.fetch_add(1, Ordering::Release);
        }
    }
}

/// The signal of this number, if it is one behind whose handler the program's own is kept. A child of `vfork`
/// has handlers of its own, but its parent's memory: there the original is called, and nothing is noted.
fn ours(signal: c_int) -> Option<&'static Kept> {
    let mut ours = OURS.into_iter();
    ours.find(|k| k.signal == signal && k.is_active.load(Ordering::Acquire))
}

/// As [`ours`], for calls that say nothing of what was before.
fn kept(signal: c_int) -> Option<&'static Kept> {
    ours(signal).filter(|_| agent::owns_memory())
}

macro_rules! sigactions {
    ($($name:ident)*) => {$(
        original!(fn $name(signal: c_int, new: *const Action, old: *mut Action) -> c_int);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
            if crash::is_watched(signal) {
                // SAFETY: the caller's arguments, passed on.
                return unsafe { crash::replace(signal, new, old) };
            }
            // SAFETY: the caller's arguments, passed on.
            let call = |new, old| unsafe { $name::call(signal, new, old) };
            if let Some(result) = of_resting(signal, || call(new, old)) {
                return result;
            }
            let Some(kept) = ours(signal) else {
                // SAFETY: as above.
                return unsafe { entrance::install(signal, new, old, call) };
            };
            // SAFETY: by the caller's contract, null or valid; read before written, they may be one.
            unsafe {
                let (handler, flags, mask) = kept.asked();
                if !agent::owns_memory() && !new.is_null() && $name::call(signal, new, null_mut()) != 0 {
                    return -1;
                }
                if let Some(new) = new.as_ref() && agent::owns_memory() {
                    kept.ask(new.sa_sigaction, new.sa_flags, mask_word(&new.sa_mask));
                    kept.install();
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
            if crash::is_watched(signal) {
                // SAFETY: the caller's arguments, passed on.
                return unsafe { crash::handle(signal, handler, $flags, |handler| $name::call(signal, handler)) };
            }
            // SAFETY: the caller's arguments, passed on.
            let call = |handler| unsafe { $name::call(signal, handler) };
            if let Some(result) = of_resting(signal, || call(handler)) {
                return result;
            }
            let Some(kept) = ours(signal).filter(|_| handler != SIG_ERR) else {
                return entrance::behind(call(entrance::to(signal, handler, $flags)));
            };
            let (old, _, _) = kept.asked();
            if !agent::owns_memory() {
                // SAFETY: the caller's arguments, passed on.
                unsafe { $name::call(signal, handler) };
                return old;
            }
            kept.ask(handler, $flags, kept.bit());
            kept.install();
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
    if crash::is_watched(signal) {
        // SAFETY: the caller's arguments, passed on.
        return unsafe {
            crash::handle(signal, handler, 0, |handler| sigset::call(signal, handler))
        };
    }
    // SAFETY: the caller's arguments, passed on. Our handler comes back below, with the program's behind it.
    let call = |handler| unsafe { sigset::call(signal, handler) };
    if let Some(result) = of_resting(signal, || call(handler)) {
        return result;
    }
    let Some(kept) = ours(signal) else {
        return entrance::behind(call(entrance::to(signal, handler, 0)));
    };
    let result = call(handler);
    if result == SIG_ERR {
        return result;
    }
    let (old, _, _) = kept.asked();
    if handler != SIG_HOLD && agent::owns_memory() {
        kept.ask(handler, 0, 0);
        kept.install();
    }
    if result == SIG_HOLD { SIG_HOLD } else { old }
}

original!(fn sigignore(signal: c_int) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigignore(signal: c_int) -> c_int {
    let Some(kept) = kept(signal) else {
        // SAFETY: the caller's argument, passed on.
        return unsafe { sigignore::call(signal) };
    };
    kept.ask(SIG_IGN, 0, 0);
    kept.install();
    0
}

original!(fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int {
    let Some(kept) = kept(signal) else {
        // SAFETY: the caller's arguments, passed on.
        return unsafe { siginterrupt::call(signal, interrupt) };
    };
    let (handler, flags, mask) = kept.asked();
    let restart = if interrupt == 0 { SA_RESTART } else { 0 };
    kept.ask(handler, flags & !SA_RESTART | restart, mask);
    kept.install();
    0
}
