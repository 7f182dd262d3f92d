//! Threads: when they are made, begin, are met first, and end.

use super::capture::{self, More, Request};
use super::registration::{self, Creator, has_memory, may_register, register_as};
use super::tls::{self, Block, flag};
use super::{fork, kernel_clock, own_stack, requests, session, signal_wait, wakers};
use crate::ids::Utid;
use crate::platform;
use crate::probe::Probe;
use crate::shm::registry;
use crate::shm::signal_gate;
use crate::shm::wait_table;
use core::sync::atomic::Ordering;

/// Registers the calling thread; true when it is registered and may be used now.
#[cold]
#[inline(never)]
pub(super) fn register() -> bool {
    if !session::is_active() {
        return false;
    }
    let block = tls::block();
    if !may_register(block) || !has_memory(block) {
        return false;
    }
    let mut is_registered = false;
    own_stack::run(|_| {
        fork::check_for_fork();
        // Of a session that has ended, as in `requests`.
        if super::registered(block).is_some_and(|(entry, _)| session::is_stale(entry)) {
            is_registered = registration::rejoin(block);
        } else if let Some(_guard) = capture::Guard::enter(block) {
            let is_new = block.entry.load(Ordering::Relaxed).is_null();
            is_registered = !is_new || register_as(block, None, Creator::UNKNOWN);
        }
    });
    is_registered
}

/// The calling thread is the session's own: hooks pass straight through on it from here on.
pub fn own_thread() {
    tls::block().set(flag::OWN);
}

/// The calling thread is about to create one.
pub fn creating_thread() -> Creator {
    let block = tls::block();
    if block.entry.load(Ordering::Relaxed).is_null() && !register() {
        return Creator::UNKNOWN;
    }
    let node = requests::slow(&Request {
        forced: true,
        spare: true,
        ..Request::point(Probe::ThreadCreate)
    });
    let utid = super::registered(block).map_or(Utid(0), |(e, _)| e.utid());
    Creator {
        utid,
        node,
        blocks_signal: super::blocks_signal(),
    }
}

/// The calling thread begins. `stack`: lowest address and end of what a walk may read.
pub fn thread_started(stack: Option<(usize, usize)>, creator: Creator) {
    registration::start(stack, creator, || {
        fork::check_for_fork();
    });
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
    let is_known = session::is_active() && !fork::check_for_fork() && !session::is_stale(entry);
    if is_known {
        // For good: what a signal captured after the last capture would be lost.
        signal_gate::close(entry, signal_wait::await_signal);
        if let Some(mapping) = session::mapping() {
            let index = block.entry_index.load(Ordering::Relaxed);
            wait_table::leave(mapping, index, entry);
        }
        capture::slow(&Request {
            exempt: true,
            last: true,
            more: wakers::announce_end_of_thread(id).map(More::Woke),
            ..Request::point(Probe::ThreadExit)
        });
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    super::call_timer::cancel();
    if session::has_kernel_clock() && super::owns_memory() {
        // What comes from here on would find the thread without a stack of ours.
        platform::block_signals(platform::blocked_signals() | session::AGENT.signals());
        if let Some(mapping) = session::mapping() {
            kernel_clock::leave(mapping.control(), entry);
        }
    }
    // First no handler finds the entry any more, then it may become another thread's.
    block.set(flag::EXITED);
    block.entry.store(core::ptr::null_mut(), Ordering::Relaxed);
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    if is_known {
        registry::end_thread(entry, session::now());
        if let Some(mapping) = session::mapping() {
            registry::show_activity(mapping, block.entry_index.load(Ordering::Relaxed), entry);
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
