//! A thread takes part: it gets an entry, and memory of its own.

use super::capture::{self, Guard, Request};
use super::scratch::scratch;
use super::tls::{self, Block, flag};
use super::{kernel_clock, main_stack, own_stack, session, signal_wait};
use crate::cycles::Cycles;
use crate::ids::{Tid, Utid};
use crate::platform;
use crate::probe::Probe;
use crate::shm::buffer::Pool;
use crate::shm::record_format::NAME_BYTES;
use crate::shm::registry::{self, NewThread};
use crate::shm::signal_gate;
use crate::shm::throttle;
use core::sync::atomic::Ordering;

/// With fewer thread entries in reserve the collector is called, which may sleep for long. It keeps more than
/// that in reserve where it does not.
const FEW_ENTRIES: u32 = 128;

/// Gives the thread memory of its own.
pub(super) fn has_memory(block: &Block) -> bool {
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
    let Some(_guard) = Guard::enter(block) else {
        return false;
    };
    block.entry.store(core::ptr::null_mut(), Ordering::Relaxed);
    may_register(block) && register_as(block, None, Creator::UNKNOWN)
}

/// Nothing keeps the thread from being registered, or not any longer.
pub(super) fn may_register(block: &Block) -> bool {
    if block.has(flag::REFUSED) && session::mapping().is_some_and(registry::may_have_room) {
        block.clear(flag::REFUSED);
    }
    !block.has(flag::ANY)
}

/// Registers with what is known of the thread. Holding the guard.
pub(super) fn register_as(block: &Block, stack: Option<(u64, u64)>, creator: Creator) -> bool {
    let Some(mapping) = session::mapping() else {
        return false;
    };
    let tid = Tid(platform::thread_id());
    if tid == Tid(0) {
        // A filter keeps the number from us.
        block.set(flag::NO_MEMORY);
        misses_thread();
        return false;
    }
    let is_main = tid == session::pid().main_thread();
    // SAFETY: the guard is held.
    let Some(scratch) = (unsafe { scratch(block) }) else {
        return false;
    };
    let stack = stack.unwrap_or_else(|| {
        if scratch.stack_high != 0 {
            (scratch.stack_low, scratch.stack_high)
        } else if is_main {
            session::main_stack()
        } else if session::is_late() {
            main_stack::of_other_thread()
        } else {
            (0, 0)
        }
    });
    (scratch.stack_low, scratch.stack_high) = stack;
    scratch.nodes_generation = 0;
    scratch.name = [0; NAME_BYTES];
    scratch.managed.forget();
    scratch.usage.reset();
    scratch.long_capture_ns = [0; 2];
    #[cfg(any(target_os = "linux", target_os = "android"))]
    scratch.unseen_calls.reset();
    scratch
        .event_sampling
        .reset(block, session::now().0 ^ u64::from(tid.0) << 32);
    let new = NewThread {
        tid,
        process: session::index(),
        is_main,
        creator_utid: creator.utid,
        creator_node: creator.node,
        stack,
        cycles: session::now(),
    };
    // Before anybody can interrupt it.
    session::look_at_mask(scratch.program_mask);
    let Some((index, entry)) = registry::add_thread(mapping, &new) else {
        block.set(flag::REFUSED);
        return false;
    };
    let limit = mapping.control().threads_limit.load(Ordering::Relaxed);
    if limit.saturating_sub(index) < FEW_ENTRIES {
        kernel_clock::call_if_asleep(mapping.control());
        mapping.want_drain();
    }
    // The first signal, whose handler the main thread has not installed yet.
    let first = platform::signal_bit(libc::SIGURG as u32);
    if scratch.program_mask & first != 0 && entry.has_kernel_clock() {
        // Its signals would pend, and end a later call.
        registry::put_on_ticks(entry);
    }
    let tick = throttle::tick_of(mapping.control(), entry.tick_index.load(Ordering::Relaxed));
    block.entry_index.store(index, Ordering::Relaxed);
    // That of another session may be by another clock.
    block.short_until.store(Cycles(0), Ordering::Relaxed);
    block
        .tick
        .store(core::ptr::from_ref(tick).cast_mut(), Ordering::Relaxed);
    block
        .entry
        .store(core::ptr::from_ref(entry).cast_mut(), Ordering::Relaxed);
    if let Some(own) = mapping.process(session::index()) {
        let word = &own.unregistered;
        signal_gate::introduce(word, tid.0, |attempt| {
            signal_wait::await_meeting(word, tid.0, attempt)
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
    pub(super) utid: Utid,
    pub(super) node: u32,
    /// It believes to block the session's first signal, and so will the new one.
    pub(super) blocks_signal: bool,
}

impl Creator {
    /// A thread of unknown origin.
    pub const UNKNOWN: Creator = Creator {
        utid: Utid(0),
        node: 0,
        blocks_signal: false,
    };
}

/// The calling thread begins, and is captured. `stack`: lowest address and end of what a walk may read.
/// `first` is done before, on the thread's own stack.
pub(super) fn start(stack: Option<(usize, usize)>, creator: Creator, first: impl Fn()) {
    if !session::is_active() {
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
        first();
        begin(block, stack, creator);
    });
    capture::slow(&Request {
        exempt: true,
        ..Request::point(Probe::ThreadStart)
    });
}

fn begin(block: &Block, stack: Option<(usize, usize)>, creator: Creator) {
    let Some(_guard) = Guard::enter(block) else {
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
