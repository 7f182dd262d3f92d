//! Threads: taking part, private memory, and leaving.

use super::capture::{self, More, Request};
use super::main_stack;
use super::tls::{self, Block, flag};
use super::{children, kernel_clock, own_stack, patience, process, wake};
use crate::native::ThreadWalker;
use crate::platform::{self, Usage};
use crate::probe::Probe;
use crate::shm::gate;
use crate::shm::record::{self, RecordBuffer};
use crate::shm::registry::{self, NewThread};
use crate::shm::throttle;
use crate::shm::waiters;
use crate::unwind::{Registers, StackBounds};
use core::ops::Range;
use core::sync::atomic::Ordering;

/// A thread's private memory: mapped zeroed at its first capture, never constructed.
#[repr(C)]
pub(super) struct Scratch {
    /// While the thread runs on its own stack: the signals that the program blocks, and where it left the program's.
    pub program_mask: u64,
    pub program_registers: Registers,
    /// Bounds of the thread's own stack; 0, 0: not known.
    pub stack_low: u64,
    pub stack_high: u64,
    /// The name last written down.
    pub name: [u8; 16],
    /// For which generation + 1 and root the walker's frames have their nodes.
    pub nodes_generation: u64,
    pub nodes_root: u64,
    /// Budget of forced captures: from when on it is full again, in cycles.
    pub forced_until: u64,
    /// Signals passed over since the last capture.
    pub passed_over: u32,
    pub usage: super::rusage::State,
    pub counted: super::counted::State,
    pub record: RecordBuffer,
    pub lent: super::lent::Lent,
    /// A line for the trace_marker (`systrace`).
    pub line: [u8; super::systrace::LINE_BYTES],
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub frames: crate::unwind::Frames,
    pub walker: ThreadWalker,
}

impl Scratch {
    /// The part of the stack that a walk may read directly.
    pub fn bounds(&self) -> StackBounds {
        // SAFETY: the bounds are those of the calling thread's own stack, which outlives the
        // capture. A walk reads only at or above its stack pointer, and looks whether that lies
        // inside first.
        unsafe { StackBounds::of_stack(self.stack_low, self.stack_high) }
    }
}

/// The calling thread's scratch memory.
///
/// # Safety
/// Only while holding the guard, and only one at a time.
pub(super) unsafe fn scratch(block: &Block) -> Option<&'static mut Scratch> {
    // SAFETY: the pointer is null or a mapping that `register` made for this thread and that stays
    // until `thread_exiting`; the guard makes the reference the only one.
    unsafe {
        block
            .scratch
            .load(Ordering::Relaxed)
            .cast::<Scratch>()
            .as_mut()
    }
}

/// Bounds of the calling thread's own stack, as far as they are known.
pub(super) fn own_bounds(block: &Block) -> Option<Range<usize>> {
    let scratch = block.scratch.load(Ordering::Relaxed).cast::<Scratch>();
    // SAFETY: null or this thread's memory; only two words are read, which change under the guard.
    (!scratch.is_null())
        .then(|| unsafe { (*scratch).stack_low as usize..(*scratch).stack_high as usize })
}

/// Registers the calling thread; true when it is registered and may be used now.
#[cold]
#[inline(never)]
pub(super) fn register() -> bool {
    if !process::is_active() {
        return false;
    }
    let block = tls::block();
    if !may_register(block) || !has_memory(block) {
        return false;
    }
    let mut is_registered = false;
    own_stack::run(|_| {
        children::check_for_fork();
        if let Some(_guard) = capture::Guard::enter(block) {
            let is_new = block.entry.load(Ordering::Relaxed).is_null();
            is_registered = !is_new || register_as(block, None, Creator::UNKNOWN);
        }
    });
    is_registered
}

/// Gives the thread memory of its own.
fn has_memory(block: &Block) -> bool {
    let is_there = own_stack::provide(block);
    if !is_there {
        block.set(flag::NO_MEMORY);
        misses_thread();
    }
    is_there
}

/// Gives up an entry of an earlier session and registers with the one under way.
#[cold]
#[inline(never)]
pub(super) fn rejoin(block: &Block) -> bool {
    let Some(_guard) = capture::Guard::enter(block) else {
        return false;
    };
    block.entry.store(core::ptr::null_mut(), Ordering::Relaxed);
    may_register(block) && register_as(block, None, Creator::UNKNOWN)
}

/// Nothing keeps the thread from being registered, or not any longer.
fn may_register(block: &Block) -> bool {
    if block.has(flag::REFUSED) && process::mapping().is_some_and(registry::may_have_room) {
        block.clear(flag::REFUSED);
    }
    !block.has(flag::ANY)
}

/// Registers with what is known of the thread. Holding the guard.
pub(super) fn register_as(block: &Block, stack: Option<(u64, u64)>, creator: Creator) -> bool {
    let Some(mapping) = process::mapping() else {
        return false;
    };
    let tid = platform::thread_id();
    if tid == 0 {
        // A filter keeps the number from us.
        block.set(flag::NO_MEMORY);
        misses_thread();
        return false;
    }
    let is_main = tid == process::pid();
    // SAFETY: the guard is held.
    let Some(scratch) = (unsafe { scratch(block) }) else {
        return false;
    };
    let stack = stack.unwrap_or_else(|| {
        if scratch.stack_high != 0 {
            (scratch.stack_low, scratch.stack_high)
        } else if is_main {
            process::main_stack()
        } else if process::is_late() {
            main_stack::of_other_thread()
        } else {
            (0, 0)
        }
    });
    (scratch.stack_low, scratch.stack_high) = stack;
    scratch.nodes_generation = 0;
    scratch.name = [0; 16];
    scratch.usage.reset();
    scratch
        .counted
        .reset(block, process::now() ^ u64::from(tid) << 32);
    let new = NewThread {
        tid,
        process: process::index(),
        is_main,
        creator_uid: creator.uid,
        creator_node: creator.node,
        stack,
        cycles: process::now(),
    };
    // Before anybody can interrupt it.
    process::look_at_mask(scratch.program_mask);
    let Some((index, entry)) = registry::add_thread(mapping, &new) else {
        block.set(flag::REFUSED);
        return false;
    };
    // The first signal, whose handler the main thread has not installed yet.
    let first = platform::signal_bit(libc::SIGURG as u32);
    if scratch.program_mask & first != 0 && entry.has_kernel_clock() {
        // Its signals would pend, and end a later call.
        registry::put_on_ticks(entry);
    }
    let tick = throttle::tick_of(mapping.control(), entry.tick_index.load(Ordering::Relaxed));
    block.entry_index.store(index, Ordering::Relaxed);
    block
        .tick
        .store(core::ptr::from_ref(tick).cast_mut(), Ordering::Relaxed);
    block
        .entry
        .store(core::ptr::from_ref(entry).cast_mut(), Ordering::Relaxed);
    if let Some(own) = mapping.process(process::index()) {
        let word = &own.stranger;
        gate::introduce(word, tid, |attempt| {
            patience::await_meeting(word, tid, attempt)
        });
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    super::alternate::install(entry);
    if !entry.is_out_of_reach(Ordering::Relaxed) {
        kernel_clock::want(mapping.control(), entry);
    }
    true
}

/// The calling thread cannot take part.
fn misses_thread() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    super::sandbox::misses_thread();
}

/// Who creates a thread, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creator {
    uid: u32,
    node: u32,
    /// It believes to block the session's first signal, and so will the new one.
    blocks_signal: bool,
}

impl Creator {
    /// A thread of unknown origin.
    pub const UNKNOWN: Creator = Creator {
        uid: 0,
        node: 0,
        blocks_signal: false,
    };
}

/// The calling thread is about to create one.
pub fn creating_thread() -> Creator {
    let block = tls::block();
    if block.entry.load(Ordering::Relaxed).is_null() && !register() {
        return Creator::UNKNOWN;
    }
    let node = capture::slow(&Request {
        forced: true,
        spare: true,
        ..Request::point(Probe::ThreadCreate)
    });
    let uid = super::registered(block).map_or(0, |(e, _)| e.uid.load(Ordering::Relaxed));
    Creator {
        uid,
        node,
        blocks_signal: super::blocks_signal(),
    }
}

/// The calling thread begins. `stack`: lowest address and end of what a walk may read.
pub fn thread_started(stack: Option<(usize, usize)>, creator: Creator) {
    if !process::is_active() {
        return;
    }
    let block = tls::block();
    if !may_register(block) || !has_memory(block) {
        return;
    }
    if creator.blocks_signal {
        super::set_blocks_signal(true);
    }
    own_stack::run(|_| {
        children::check_for_fork();
        begin(block, stack, creator);
    });
    capture::slow(&Request {
        exempt: true,
        ..Request::point(Probe::ThreadStart)
    });
}

fn begin(block: &Block, stack: Option<(usize, usize)>, creator: Creator) {
    let Some(_guard) = capture::Guard::enter(block) else {
        return;
    };
    let stack = stack.map(|(low, high)| (low as u64, high as u64));
    if block.entry.load(Ordering::Relaxed).is_null() {
        register_as(block, stack, creator);
    } else if let (Some(stack), Some(scratch)) =
        // SAFETY: the guard is held.
        (stack, unsafe { scratch(block) })
    {
        // An earlier call on this thread has registered it.
        (scratch.stack_low, scratch.stack_high) = stack;
    }
}

/// The calling thread is about to end: it will not be seen any more. `id`: what a thread waits for that
/// joins it ([`super::begin_wait_for`]).
pub fn thread_exiting(id: u64) {
    let block = tls::block();
    let Some((entry, _)) = super::registered(block) else {
        if !block.has(flag::VFORK_CHILD | flag::FOREIGN | flag::FORKING) {
            block.set(flag::EXITED);
            give_memory_back(block);
        }
        return;
    };
    let is_known = process::is_active() && !children::check_for_fork() && !process::is_stale(entry);
    if is_known {
        // For good: what a signal captured after the last capture would be lost.
        gate::close(entry, patience::await_signal);
        if let Some(mapping) = process::mapping() {
            let index = block.entry_index.load(Ordering::Relaxed);
            waiters::leave(mapping, index, entry);
        }
        capture::slow(&Request {
            exempt: true,
            last: true,
            more: wake::announce_end_of_thread(id).map(More::Woke),
            ..Request::point(Probe::ThreadExit)
        });
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    super::alarm::cancel();
    if process::has_kernel_clock() && super::owns_memory() {
        // What comes from here on would find the thread without a stack of ours.
        platform::block_signals(platform::blocked_signals() | process::AGENT.signals());
        if let Some(mapping) = process::mapping() {
            kernel_clock::leave(mapping.control(), entry);
        }
    }
    // First no handler finds the entry any more, then it may become another thread's.
    block.set(flag::EXITED);
    block.entry.store(core::ptr::null_mut(), Ordering::Relaxed);
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    if is_known {
        registry::end_thread(entry, process::now());
        if let Some(mapping) = process::mapping() {
            registry::show_sign(mapping, block.entry_index.load(Ordering::Relaxed), entry);
        }
    }
    give_memory_back(block);
}

/// The calling thread's memory, unless the kernel still knows its alternate stack.
fn give_memory_back(block: &Block) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if !super::alternate::remove() {
        return;
    }
    own_stack::take_away(block);
}

/// Writes the thread's name down if it has changed.
pub(super) fn write_name(writer: &capture::ThreadWriter, scratch: &mut Scratch, now: u64) {
    if let Some(name) = platform::thread_name()
        && name != scratch.name
    {
        scratch.name = name;
        let words = record::write_name(&name, &mut scratch.record);
        capture::append(writer, &scratch.record, words, now);
    }
}

/// Faults and switches as they are now.
pub(super) fn usage_now() -> Option<Usage> {
    platform::thread_usage()
}

/// Gives a thread's entry up without ending it: the process is another one now.
pub(super) fn forget(block: &Block) {
    block.entry.store(core::ptr::null_mut(), Ordering::Relaxed);
    block
        .saved_entry
        .store(core::ptr::null_mut(), Ordering::Relaxed);
    block.flags.store(0, Ordering::Relaxed);
    block.guard.store(0, Ordering::Relaxed);
    // Timers stay with the parent.
    block.alarm.store(0, Ordering::Relaxed);
}
