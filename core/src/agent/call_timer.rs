//! A signal that a thread sends itself into a call that it is about to make, by a timer.

use super::session;
use super::session::AGENT;
use super::tls::{self, flag};
use super::{context, registered};
use crate::platform;
use core::ffi::c_int;
use core::sync::atomic::Ordering;

/// When the signal comes. The call begins within a microsecond, unless the thread loses its processor: so the
/// signal comes again.
const SOON_NS: u64 = 50_000;
const AGAIN_NS: u64 = 1_000_000;

/// The handler of a signal interrupts what lies so many bytes above it at most: the kernel's frame (11 KiB
/// with AMX) and what a hook calls.
const REACH: usize = 64 << 10;

/// Bits of `Block::handlers` below the count.
const SIGNAL_BITS: u32 = 8;

/// Its address says that a signal is one of these.
static MARK: u8 = 0;

/// A handler of the program's for this signal begins on the calling thread.
pub fn handler_begins(signal: c_int) {
    if !tls::has_thread_pointer() {
        return;
    }
    let block = tls::block();
    if block.has(flag::FOREIGN) {
        return;
    }
    let here = 0u8;
    let count = (block.handlers.load(Ordering::Relaxed) >> SIGNAL_BITS).wrapping_add(1);
    let handlers = count << SIGNAL_BITS | signal as u32 & ((1 << SIGNAL_BITS) - 1);
    block.handlers.store(handlers, Ordering::Relaxed);
    block
        .handler_sp
        .store((&raw const here).addr(), Ordering::Relaxed);
}

/// Changes whenever a handler begins on the calling thread.
#[inline(always)]
pub fn handlers_entered() -> u32 {
    tls::block().handlers.load(Ordering::Relaxed)
}

/// A signal of ours that will come soon.
#[derive(Debug)]
#[must_use]
pub struct Alarm(());

impl Alarm {
    /// Sends the calling thread a signal soon, for one whose handler has just run. `None`: that one would not
    /// have come into a call that blocks the signals in `mask` (signal 1 is bit 0), or none of ours may.
    pub fn set(mask: u64) -> Option<Alarm> {
        let block = tls::block();
        let (entry, _) = registered(block)?;
        let last = block.handlers.load(Ordering::Relaxed) & ((1 << SIGNAL_BITS) - 1);
        if last == 0 || mask & 1 << (last - 1) != 0 || !was_here(block) {
            return None;
        }
        // Of a child that shares memory, the timer would be left in the parent's.
        if entry.is_out_of_reach(Ordering::Relaxed) || !session::owns_memory() {
            return None;
        }
        // No handler jumps away with a timer that nobody knows.
        let held = platform::hold_signals(u64::MAX)?;
        let free = AGENT.signals() & !held.before() & !mask;
        let timer = match free {
            0 => None,
            _ => {
                let signal = free.trailing_zeros() + 1;
                platform::create_timer(libc::CLOCK_MONOTONIC, signal, (&raw const MARK).addr())
            }
        };
        if let Some(timer) = timer {
            cancel();
            block.alarm.store(timer as u32 + 1, Ordering::Relaxed);
            platform::start_timer(timer, SOON_NS, AGAIN_NS);
        }
        held.release();
        timer.map(|_| Alarm(()))
    }

    /// The call is over.
    pub fn end(self) {
        cancel();
    }

    /// Whether a signal is one of these.
    ///
    /// # Safety
    /// `info` and `context` are what the kernel passed to a handler with SA_SIGINFO.
    pub unsafe fn is(info: *const libc::siginfo_t, context: *mut core::ffi::c_void) -> bool {
        // SAFETY: by contract; the value is meaningful for SI_TIMER, which is checked first.
        let is_alarm = unsafe {
            (*info).si_code == libc::SI_TIMER
                && (*info).si_value().sival_ptr.addr() == (&raw const MARK).addr()
        };
        if is_alarm && tls::has_thread_pointer() {
            let is_at_signal_gate = registered(tls::block())
                .is_some_and(|(entry, _)| entry.closed.load(Ordering::Relaxed) != 0);
            // SAFETY: by contract.
            let result = unsafe { context::result_of(context) };
            // The call has ended, or the thread has left it by a jump.
            if result == -i64::from(libc::EINTR) || !is_at_signal_gate {
                cancel();
            }
        }
        is_alarm
    }
}

/// No signal of these comes any more: the calling thread has left the call, or a handler runs in it, which
/// ends it too.
pub(super) fn cancel() {
    let word = &tls::block().alarm;
    let timer = word.load(Ordering::Relaxed);
    if timer != 0 {
        platform::delete_timer(timer as i32 - 1);
        let _ = word.compare_exchange(timer, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Whether the last handler ran on this thread's stack, below what runs now, or on its alternate stack: a
/// child that shares the thread's memory may have the same thread pointer, and has another stack.
fn was_here(block: &tls::Block) -> bool {
    let here = 0u8;
    let sp = block.handler_sp.load(Ordering::Relaxed);
    if (&raw const here)
        .addr()
        .wrapping_sub(sp)
        .wrapping_add(REACH / 4)
        < REACH
    {
        return true;
    }
    // SAFETY: sets nothing.
    let alternate = unsafe { platform::alternate_stack(core::ptr::null()) };
    alternate.is_ok_and(|stack| sp.wrapping_sub(stack.ss_sp.addr()) < stack.ss_size)
}
