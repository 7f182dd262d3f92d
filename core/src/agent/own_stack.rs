//! The stack that captures run on. A hook may run on a coroutine's few KiB, or just above a guard that the
//! program has put into its own stack, and a capture takes more than 10 KiB. So each thread has a stack of
//! ours, and what a capture needs of the program's is a few hundred bytes (`hooks-linux/tests/stack_use.rs`).
//!
//! All signals but those of faults are blocked meanwhile. A handler of the program would run on this stack,
//! which is too small for it. A collector that stops threads by a signal would take it for the thread's own
//! and scan from there.
//!
//! One mapping holds what a thread has for itself, from low to high: a guard, the alternate signal stack
//! (`super::alternate`), this stack, the scratch memory.
//!
//! # Signal safety
//! Nothing here allocates or locks. The mapping is made when the thread registers, which is on the program's
//! stack.

use super::scratch::Scratch;
use super::session;
use super::tls::{self, Block};
use crate::crash_signals::CRASH_SIGNALS;
use crate::platform::{self, Backing};
use crate::shm::layout::LARGEST_PAGE;
use crate::unwind::Registers;
#[cfg(any(target_os = "linux", target_os = "android"))]
use core::ops::Range;
use core::sync::atomic::{Ordering, compiler_fence};

const GUARD_BYTES: usize = LARGEST_PAGE;
/// Go's runtime adopts the alternate stack that it finds on a thread of C's, and gives its own handlers 32
/// KiB (`malg(32 * 1024)` in src/runtime/os_linux.go).
///
/// Handlers of the program's that ask for an alternate stack and have none run on it, too, where they had the
/// thread's own stack before: hence the rest. Pages exist when they are used.
const ALTERNATE_BYTES: usize = 256 << 10;
/// A capture takes 12 KiB in a release build; frames of a build without optimization are several times as
/// large.
const STACK_BYTES: usize = if cfg!(debug_assertions) {
    256 << 10
} else {
    64 << 10
};
const SCRATCH_OFFSET: usize = GUARD_BYTES + ALTERNATE_BYTES + STACK_BYTES;
const MAPPING_BYTES: usize = SCRATCH_OFFSET + size_of::<Scratch>();

/// Gives the calling thread its memory, unless it has it. False: there is none.
pub(super) fn provide(block: &Block) -> bool {
    if !block.scratch.load(Ordering::Relaxed).is_null() {
        return true;
    }
    let Ok(low) = platform::map(MAPPING_BYTES, Backing::Anonymous, 0) else {
        return false;
    };
    // SAFETY: the first pages of a mapping that nobody uses yet.
    unsafe { platform::forbid(low, GUARD_BYTES) };
    // SAFETY: inside the mapping.
    let scratch = unsafe { low.add(SCRATCH_OFFSET) };
    let (null, relaxed) = (core::ptr::null_mut(), Ordering::Relaxed);
    let placed = block
        .scratch
        .compare_exchange(null, scratch, relaxed, relaxed);
    if placed.is_err() {
        // A signal's handler has done it in between.
        // SAFETY: nobody has seen this one.
        unsafe { platform::unmap(low, MAPPING_BYTES) };
    }
    true
}

/// Takes the calling thread's memory away for good.
pub(super) fn take_away(block: &Block) {
    let scratch = block.scratch.swap(core::ptr::null_mut(), Ordering::Relaxed);
    if !scratch.is_null() {
        // SAFETY: `provide` made the mapping for this thread; nothing refers to it outside of captures, and
        // none comes any more.
        unsafe { platform::unmap(scratch.sub(SCRATCH_OFFSET), MAPPING_BYTES) };
    }
}

/// Where the alternate signal stack lies, if the thread has memory.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn alternate(block: &Block) -> Option<Range<usize>> {
    let scratch = block.scratch.load(Ordering::Relaxed).addr();
    let high = (scratch != 0).then(|| scratch - STACK_BYTES)?;
    Some(high - ALTERNATE_BYTES..high)
}

/// Whether this lies on the calling thread's own stack.
pub fn is_own_stack(address: usize) -> bool {
    let top = tls::block().scratch.load(Ordering::Relaxed).addr();
    top != 0 && (top - STACK_BYTES..=top).contains(&address)
}

/// Where the stack pointer of the program stands in the calling thread, also while the thread runs on its own
/// stack.
#[inline(always)]
pub(super) fn program_sp(block: &Block) -> usize {
    let here = 0u8;
    match block.away.load(Ordering::Relaxed) {
        0 => (&raw const here).addr(),
        sp => sp,
    }
}

/// What is let in while the thread runs on its own stack: signals of faults, which cannot wait.
const LET_IN: u64 = {
    let (mut set, mut i) = (0, 0);
    while i < CRASH_SIGNALS.len() {
        set |= 1 << (CRASH_SIGNALS[i].0 - 1);
        i += 1;
    }
    set
};

/// Runs a hook's rare work on the calling thread's own stack. `None`: this is a handler that has interrupted
/// something there.
pub fn on_own_stack<R>(mut f: impl FnMut() -> R) -> Option<R> {
    let mut result = None;
    run(|_| result = Some(f()));
    result
}

/// Runs `f` on the thread's own stack, with the registers of this function on the program's. False: it was
/// not run, or it panicked, because this is a handler that has interrupted something on that stack. A thread
/// without memory runs it where it stands. A panic disables the agent.
///
/// A thread that can be cancelled at any instruction is cancelled at the end of this, when no frame with a
/// landing pad is left: Rust's personality routine ends an unwinding at any instruction of such a frame that
/// is no call. So `f` may hold nothing that is to be dropped, and what catches panics is never inlined.
#[inline(never)]
pub(super) fn run<F: FnMut(&Registers)>(mut f: F) -> bool {
    let block = tls::block();
    let scratch = block.scratch.load(Ordering::Relaxed).cast::<Scratch>();
    if scratch.is_null() {
        return run_here(&mut f);
    }
    let mut task = Task {
        f: &mut f,
        // SAFETY: inside the thread's memory.
        registers: unsafe { &raw const (*scratch).program_registers },
        panicked: false,
    };
    let task_pointer = (&raw mut task).cast::<core::ffi::c_void>();
    let here = task_pointer.addr();
    let held = block.away.load(Ordering::Relaxed);
    if held != 0 {
        if is_own_stack(here) {
            // SAFETY: the task of above.
            unsafe { perform::<F>(task_pointer) };
            return !task.panicked;
        }
        if !is_left(block, held, here) {
            return false;
        }
    }
    // Where a filter does not let us, a handler of the program's may run on this stack.
    let held_signals = platform::hold_signals(!LET_IN);
    // A child by a raw `clone` may share this block and this stack, and run at the same time.
    let claimed = block
        .away
        .compare_exchange(held, here, Ordering::Acquire, Ordering::Relaxed);
    if claimed.is_err() {
        if let Some(held) = held_signals {
            held.release();
        }
        return false;
    }
    // SAFETY: the stack ends where the scratch memory begins, at the start of a page. Nobody uses either:
    // `away` is ours. `perform` takes the task, which lives until it returns.
    unsafe {
        (*scratch).program_mask = held_signals.as_ref().map_or(0, |held| held.before());
        Registers::store_here(&raw mut (*scratch).program_registers);
        compiler_fence(Ordering::SeqCst);
        platform::call_on(scratch.cast(), perform::<F>, task_pointer);
        compiler_fence(Ordering::SeqCst);
    }
    // Found again: no register is to be saved for it on the program's stack.
    let scratch = block.scratch.load(Ordering::Relaxed).cast::<Scratch>();
    // `left_handlers` may have changed it.
    // SAFETY: null or the thread's own memory, as above; read before others may use it.
    let mask = unsafe { scratch.as_ref() }.map(|scratch| scratch.program_mask);
    block.away.store(0, Ordering::Release);
    if let Some(mut held) = held_signals {
        if let Some(mask) = mask {
            held.change(mask);
        }
        held.release();
    }
    !task.panicked
}

/// In a thread that has no memory.
#[cold]
#[inline(never)]
fn run_here<F: FnMut(&Registers)>(f: &mut F) -> bool {
    let registers = Registers::here();
    let mut task = Task {
        f,
        registers: &raw const registers,
        panicked: false,
    };
    // SAFETY: a local task.
    unsafe { perform::<F>((&raw mut task).cast()) };
    !task.panicked
}

/// What was run has been left by a jump out of a fault's handler: the program's stack pointer is above where
/// it stood, on the same stack.
#[cold]
fn is_left(block: &Block, held: usize, here: usize) -> bool {
    // A child that shares this block may stand above its parent on one stack.
    let is_own = super::registered(block)
        .is_some_and(|(entry, _)| entry.tid.load(Ordering::Relaxed) == platform::thread_id());
    is_own
        && super::scratch::own_bounds(block)
            .is_some_and(|own| own.contains(&held) && own.contains(&here) && here > held)
}

struct Task<'a, F> {
    f: &'a mut F,
    registers: *const Registers,
    panicked: bool,
}

/// # Safety
/// `task` is a `Task<F>` that lives and that nobody else uses.
#[inline(never)]
unsafe extern "C-unwind" fn perform<F: FnMut(&Registers)>(task: *mut core::ffi::c_void) {
    // SAFETY: by contract.
    let task = unsafe { &mut *task.cast::<Task<F>>() };
    // SAFETY: set before the task was made, and not again while it lives.
    let registers = unsafe { &*task.registers };
    let work = core::panic::AssertUnwindSafe(|| (task.f)(registers));
    if let Err(payload) = std::panic::catch_unwind(work) {
        // Dropping an unknown payload might panic again.
        core::mem::forget(payload);
        session::disable();
        task.panicked = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_on_a_stack_of_its_own_and_signals_wait() {
        let block = tls::block();
        assert!(provide(block));
        let (mut place, mut nested, mut mask) = (0, 0, 0);
        let before = platform::blocked_signals();
        let program = program_sp(block);
        let ran = run(|_| {
            let here = 0u8;
            place = (&raw const here).addr();
            mask = platform::blocked_signals();
            let scratch = block.scratch.load(Ordering::Relaxed).cast::<Scratch>();
            // SAFETY: the thread's own memory, which nobody has borrowed.
            assert_eq!(unsafe { (*scratch).program_mask }, before);
            assert!(program_sp(block).abs_diff(program) < 4096);
            run(|_| {
                let here = 0u8;
                nested = (&raw const here).addr();
            });
        });
        assert!(ran);
        let top = block.scratch.load(Ordering::Relaxed).addr();
        let own = top - STACK_BYTES..top;
        assert!(
            own.contains(&place) && own.contains(&nested),
            "{own:x?} {place:x} {nested:x}"
        );
        assert_eq!(mask & LET_IN, before & LET_IN);
        assert_eq!(platform::blocked_signals(), before);
        let alternate = alternate(block).expect("the thread has memory");
        assert_eq!(alternate.end, own.start);
        take_away(block);
    }

    #[test]
    fn without_memory_it_runs_where_it_stands() {
        let mut ran = false;
        assert!(run(|_| ran = true));
        assert!(ran);
    }

    #[test]
    fn a_handler_in_between_does_not_use_it() {
        let block = tls::block();
        assert!(provide(block));
        // As if the thread were on it.
        block.away.store(1, Ordering::Relaxed);
        let mut ran = false;
        assert!(!run(|_| ran = true));
        assert!(!ran);
        block.away.store(0, Ordering::Relaxed);
        take_away(block);
    }
}
