//! The alternate signal stack on which our signals arrive: ours, unless the program has given the thread one.
//! The kernel's frame alone takes up to 11 KiB (AVX-512, AMX), which a coroutine or a thread near its stack's
//! end does not have.
//!
//! The program does not see ours: its hook of `sigaltstack` shows none. Its handlers that ask for an
//! alternate stack run on ours in threads that have no other.

use super::kernel_clock;
use super::own_stack;
use super::registered;
use super::session::{self, AGENT};
use super::tls;
use crate::platform;
use crate::shm::layout::{OUT_OF_REACH, ThreadEntry};
use crate::shm::registry;
use core::sync::atomic::{AtomicUsize, Ordering};

/// What our handler takes of a stack, the kernel's frame aside. It takes 0.6 KiB until it goes to a stack of
/// ours.
const HANDLER_BYTES: usize = 1536;

/// What the kernel's frame may take; 0: not asked yet.
static FRAME_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What one of our signals may take.
fn needed() -> usize {
    let frame = match FRAME_BYTES.load(Ordering::Relaxed) {
        0 => {
            let bytes = platform::signal_frame_bytes();
            FRAME_BYTES.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    };
    frame + HANDLER_BYTES
}

/// Ours, in the calling thread, as `sigaltstack` takes it; `None`: it has none, or this is another process'
/// memory.
pub fn alternate_stack() -> Option<libc::stack_t> {
    let block = tls::block();
    if !session::owns_memory() || AGENT.signals() == 0 {
        return None;
    }
    let place = own_stack::alternate(block)?;
    Some(libc::stack_t {
        ss_sp: core::ptr::with_exposed_provenance_mut(place.start),
        ss_flags: 0,
        ss_size: place.len(),
    })
}

/// Gives the calling thread ours if it has none.
pub(super) fn install(entry: &ThreadEntry) {
    let Some(ours) = alternate_stack() else {
        return;
    };
    // SAFETY: asks, and names memory that is the thread's own until `remove`.
    unsafe {
        let Ok(found) = platform::alternate_stack(core::ptr::null()) else {
            return;
        };
        if found.ss_flags & libc::SS_DISABLE == 0 {
            note(entry, &found);
        } else {
            let _ = platform::alternate_stack(&ours);
        }
    }
}

/// The program is about to give the calling thread an alternate stack, or to take its own away; the address
/// may be a bad one. Stops the thread's clock, unless its signals will have room: that takes the collector
/// some time, and threads that Rust starts make two such calls each.
pub fn alternate_stack_changes(new: *const libc::stack_t) {
    let mut bytes = [0; size_of::<libc::stack_t>()];
    let read = platform::read_memory(platform::process_id(), new.addr() as u64, &mut bytes);
    // SAFETY: plain integers and a pointer, which is not followed.
    let stack: libc::stack_t = unsafe { core::mem::transmute(bytes) };
    let is_disabled = stack.ss_flags & libc::SS_DISABLE != 0;
    let has_room = read == Ok(bytes.len()) && (is_disabled || stack.ss_size >= needed());
    if !has_room {
        kernel_clock::stop_kernel_clock();
    }
}

/// The program has given the calling thread this alternate stack, by a call that succeeded, or taken its own
/// away.
pub fn alternate_stack_changed(new: &libc::stack_t) {
    if let Some((entry, _)) = registered(tls::block()) {
        note(entry, new);
        if let Some(mapping) = session::mapping()
            && entry.has_kernel_clock()
            && !entry.is_out_of_reach(Ordering::Relaxed)
            && entry.wants_clock.load(Ordering::Relaxed) == 0
        {
            kernel_clock::want(mapping.control(), entry);
        }
    }
}

/// One that is too small for our signals keeps them away.
fn note(entry: &ThreadEntry, stack: &libc::stack_t) {
    let bytes = match stack.ss_flags & libc::SS_DISABLE {
        0 => stack.ss_size.clamp(1, OUT_OF_REACH as usize - 1),
        _ => 0,
    };
    let is_small = bytes != 0 && bytes < needed();
    let out_of_reach = if is_small { OUT_OF_REACH } else { 0 };
    let word = bytes as u32 | out_of_reach;
    entry.alternate.store(word, Ordering::SeqCst);
}

/// The program is about to ask the kernel for registers that a frame has room for only then (AMX;
/// `ARCH_REQ_XCOMP_PERM`).
#[cold]
#[inline(never)]
pub fn frames_grow() {
    FRAME_BYTES.store(platform::largest_signal_frame_bytes(), Ordering::SeqCst);
    let Some(mapping) = session::mapping() else {
        return;
    };
    let own = registry::threads(mapping)
        .filter(|(_, entry)| entry.process.load(Ordering::Relaxed) == session::index());
    for (_, entry) in own {
        let bytes = entry.alternate.load(Ordering::SeqCst) & !OUT_OF_REACH;
        if bytes != 0 && (bytes as usize) < needed() {
            entry.alternate.fetch_or(OUT_OF_REACH, Ordering::SeqCst);
        }
    }
    kernel_clock::stop_where(|entry| entry.is_out_of_reach(Ordering::SeqCst));
}

/// The calling thread's end: true when the kernel does not know ours any more.
pub(super) fn remove() -> bool {
    let none = libc::stack_t {
        ss_sp: core::ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    let Some(place) = own_stack::alternate(tls::block()) else {
        return true;
    };
    // SAFETY: asks, and sets none.
    unsafe {
        match platform::alternate_stack(core::ptr::null()) {
            // Fails where the thread ends in a handler that runs on it.
            Ok(found) if found.ss_sp.addr() == place.start => {
                platform::alternate_stack(&none).is_ok()
            }
            Ok(_) => true,
            // A filter does not let us ask.
            Err(_) => false,
        }
    }
}

/// One of our signals has come to a thread that has no alternate stack: a handler's end takes away what was
/// installed in it, because the kernel puts back what it found (`restore_altstack`, kernel/signal.c). This
/// lets it put back ours.
///
/// # Safety
/// `context` is the third argument of a handler with SA_SIGINFO.
pub(super) unsafe fn put_back(context: *mut core::ffi::c_void) {
    // SAFETY: by contract it points to a `ucontext_t`, which the kernel reads when the handler returns.
    let found = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_stack };
    if found.ss_flags & libc::SS_DISABLE != 0
        && let Some(ours) = alternate_stack()
    {
        *found = ours;
    }
}
