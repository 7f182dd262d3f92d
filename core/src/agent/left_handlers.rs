//! Handlers that end by a jump, as a runtime's that turns a fault into an exception.
//!
//! A handler on the program's alternate stack blocks our signals besides (`room` in hooks-linux). Its return
//! takes that back, and a jump does not: the thread would be interrupted no more. Such a handler lets its own
//! signal in again first, which is a call that a hook sees. So the next hook that captures on another stack
//! takes back what was added.
//!
//! Not in the call itself: the handler may still stand on the alternate stack, or need what the kernel has
//! put there. What the program blocks by calls of its own stays blocked.

use super::scratch::Scratch;
use super::tls::{self, thread_bit};
use crate::platform;
use crate::shm::layout::ThreadEntry;
use crate::unwind::Registers;
use core::sync::atomic::{AtomicU8, Ordering};

/// Our signals, with the bits that say of each that the program blocks it, and that a handler that is about
/// to end by a jump was made to.
const SIGNALS: [(i32, u8, u8); 2] = [
    (
        libc::SIGURG,
        thread_bit::PROGRAM_BLOCKS_FIRST,
        thread_bit::LEFT_FIRST,
    ),
    (
        libc::SIGWINCH,
        thread_bit::PROGRAM_BLOCKS_SECOND,
        thread_bit::LEFT_SECOND,
    ),
];

/// Those of the calling thread, if it is one of libc's and its memory is this process'.
fn own_bits() -> Option<&'static AtomicU8> {
    let block = tls::block();
    (super::owns_memory() && !block.has(tls::flag::FOREIGN)).then_some(&block.thread_bits)
}

/// The program has made the calling thread block the first signals, by a call, and let in the second; as
/// masks of the kernel's.
pub fn program_blocks(blocked: u64, open: u64) {
    let Some(bits) = own_bits() else {
        return;
    };
    for (signal, blocks, _) in SIGNALS {
        let bit = platform::signal_bit(signal as u32);
        if blocked & bit != 0 {
            bits.fetch_or(blocks, Ordering::Relaxed);
        } else if open & bit != 0 {
            bits.fetch_and(!blocks, Ordering::Relaxed);
        }
    }
}

/// A handler lets its own signal in again in which these were added to what it blocks.
pub fn handler_leaves(added: u64) {
    let Some(bits) = own_bits() else {
        return;
    };
    for (signal, _, left) in SIGNALS {
        if added & platform::signal_bit(signal as u32) != 0 {
            bits.fetch_or(left, Ordering::Relaxed);
        }
    }
    if let Some((entry, _)) = super::registered(tls::block()) {
        capture_soon(entry);
    }
}

/// Where the kernel samples the thread, hooks do not capture by themselves: the next one does while something
/// is to be taken back.
#[inline]
pub(super) fn capture_soon(entry: &ThreadEntry) {
    let is_left = tls::block().thread_bits.load(Ordering::Relaxed) & thread_bit::LEFT != 0;
    if is_left && entry.has_kernel_clock() {
        // No tick, so that the next hook takes notice.
        entry.last_tick.store(0, crate::sync::Ordering::Relaxed);
    }
}

/// A hook captures, on the thread's own stack, having been called with these registers: takes back what a
/// handler has left, if the thread is not on the handler's stack any more.
#[inline]
pub(super) fn look(registers: &Registers) {
    if tls::block().thread_bits.load(Ordering::Relaxed) & thread_bit::LEFT != 0 {
        take_back(registers.sp as usize);
    }
}

#[cold]
#[inline(never)]
fn take_back(sp: usize) {
    let block = tls::block();
    let scratch = block.scratch.load(Ordering::Relaxed).cast::<Scratch>();
    // SAFETY: sets nothing.
    let Ok(alternate) = (unsafe { platform::alternate_stack(core::ptr::null()) }) else {
        return;
    };
    // One that is switched off may be in use all the same (SS_AUTODISARM).
    let is_there = sp.wrapping_sub(alternate.ss_sp.addr()) <= alternate.ss_size;
    if scratch.is_null() || alternate.ss_size == 0 || is_there {
        return;
    }
    let bits = &block.thread_bits;
    let found = bits.fetch_and(!thread_bit::LEFT, Ordering::Relaxed);
    for (signal, blocks, left) in SIGNALS {
        if found & left != 0 && found & blocks == 0 {
            // SAFETY: the thread's own memory, in use by this capture. What the thread blocks at its end.
            unsafe { (*scratch).program_mask &= !platform::signal_bit(signal as u32) };
        }
    }
    super::mask_changes();
}
