//! Fork, vfork and exec: the calling thread's process becomes two, or another image.

use super::capture::{self, Request};
use super::process::{self, AGENT, origin, state};
use super::tls::{self, Block, flag};
use super::{Wait, patience, registered, systrace, thread};
use crate::platform;
use crate::probe::Probe;
use crate::shm::gate;
use crate::shm::layout::entry_state;
use crate::shm::registry::{self, NewProcess};
use crate::sync::add_own;
use core::sync::atomic::Ordering;

/// In a child that nobody announced (a raw clone): makes it a process of its own. True when it was.
#[inline(always)]
pub(super) fn check_for_fork() -> bool {
    let page = AGENT.own_page.load(Ordering::Relaxed);
    // SAFETY: null or the page that `make_own_page` mapped and nobody unmaps.
    match unsafe { page.as_ref() } {
        Some(word) if word.load(Ordering::Relaxed) == 0 => {
            fork_child();
            true
        }
        _ => false,
    }
}

/// The calling thread is about to fork: until [`fork_parent`] or [`fork_child`] its allocations are
/// counted apart, because the child shares the parent's entry until then.
pub fn before_fork() {
    let block = tls::block();
    if !process::is_active() || registered(block).is_none() {
        return;
    }
    block.set(flag::FORKING);
    take_entry_away(block);
}

/// The fork is over, in the parent.
pub fn fork_parent() {
    let block = tls::block();
    if !block.has(flag::FORKING) {
        return;
    }
    block.clear(flag::FORKING);
    give_entry_back(block);
    if let Some((entry, _)) = registered(block) {
        for (counter, pending) in [
            (&entry.allocations, &block.pending_allocations),
            (&entry.allocated_bytes, &block.pending_bytes),
            (&entry.frees, &block.pending_frees),
        ] {
            add_own(counter, pending.swap(0, Ordering::Relaxed));
        }
    }
}

fn take_entry_away(block: &Block) {
    let entry = block.entry.swap(core::ptr::null_mut(), Ordering::Relaxed);
    block.saved_entry.store(entry, Ordering::Relaxed);
}

fn give_entry_back(block: &Block) {
    let entry = block
        .saved_entry
        .swap(core::ptr::null_mut(), Ordering::Relaxed);
    block.entry.store(entry, Ordering::Relaxed);
}

/// The calling thread is the only one of a forked child: becomes a process of its own.
pub fn fork_child() {
    if !process::is_active() {
        return;
    }
    let Some(mapping) = process::mapping() else {
        return;
    };
    let block = tls::block();
    if block.has(flag::FOREIGN) {
        AGENT.state.store(state::DISABLED, Ordering::Release);
        return;
    }
    let (parent_pid, parent_uid) = (process::pid(), process::uid());
    if let Some(word) =
        // SAFETY: null or the page that `make_own_page` mapped and nobody unmaps.
        unsafe { AGENT.own_page.load(Ordering::Relaxed).as_ref() }
    {
        word.store(1, Ordering::Relaxed);
    }
    thread::forget(block);
    for pending in [
        &block.pending_allocations,
        &block.pending_bytes,
        &block.pending_frees,
    ] {
        pending.store(0, Ordering::Relaxed);
    }
    if mapping.control().follow_children.load(Ordering::Relaxed) == 0 {
        AGENT.state.store(state::DISABLED, Ordering::Release);
        systrace::stop();
        return;
    }
    crate::native::modules::after_fork();
    #[cfg(any(target_os = "linux", target_os = "android"))]
    crate::platform::sandbox::after_fork();
    let new = NewProcess {
        pid: platform::forked_process_id(),
        parent_pid,
        parent_uid,
        origin: origin::FORKED,
        cycles: process::now(),
    };
    if process::join(mapping, &new) {
        thread::thread_started(None, thread::Creator::UNKNOWN);
        process::write_texts(mapping);
    }
}

/// The calling thread is about to vfork, which is a wait until the child execs or ends. `caller`: where the
/// hook returns to, the stack pointer that it leaves, and the frame pointer. Nothing on the stack below that
/// outlives the child, so what the wait began with stands in the thread's entry, which the child leaves
/// alone.
pub fn vfork_begins(caller: [u64; 3]) {
    let block = tls::block();
    if block.has(flag::VFORK_CHILD | flag::FORKING | flag::FOREIGN) {
        return;
    }
    block
        .vfork_pid
        .store(platform::process_id(), Ordering::Relaxed);
    if !process::is_active() || (registered(block).is_none() && !thread::register()) {
        return;
    }
    // A signal's handler that vforks inside a wait is part of that wait.
    let is_waiting =
        registered(block).is_none_or(|(entry, _)| entry.closed.load(Ordering::Relaxed) != 0);
    if !is_waiting {
        let _ = super::begin_wait_at(Probe::Vfork, 0, caller);
        block.set(flag::VFORK_WAIT);
    }
}

/// The child of a vfork, which runs on its parent's memory: not to be touched until its exec.
pub fn vfork_child() {
    let block = tls::block();
    if process::is_active() && !block.has(flag::VFORK_CHILD | flag::FORKING | flag::FOREIGN) {
        block.set(flag::VFORK_CHILD);
        take_entry_away(block);
    }
}

/// The parent goes on after its vfork, with the child's pid or an error (negative).
pub fn vfork_parent(result: i64) {
    let block = tls::block();
    // What failed has no child that took it away. The caller may be one itself, on whose memory another ran.
    let is_mine = || block.vfork_pid.load(Ordering::Relaxed) == platform::process_id();
    if result > 0 && block.has(flag::VFORK_CHILD) && is_mine() {
        block.clear(flag::VFORK_CHILD);
        give_entry_back(block);
    }
    if block.has(flag::VFORK_WAIT) && !block.has(flag::VFORK_CHILD) {
        block.clear(flag::VFORK_WAIT);
        if let Some((entry, _)) = registered(block) {
            Wait {
                entry,
                begin: entry.episode_begin.load(Ordering::Relaxed),
                arg: 0,
                probe: Probe::Vfork,
                gate_before: 0,
            }
            .end_started(result, result);
        }
    }
}

/// Runs a `clone` whose child has this memory and this thread-local block until its exec or its end, and whose caller stands
/// still meanwhile: what [`vfork_begins`], [`vfork_child`] and [`vfork_parent`] do around a vfork, here by the parent alone,
/// because the child runs on another stack. `call` gives the child's pid or an error (negative).
#[inline(always)]
pub fn lends_memory(call: impl FnOnce() -> i64) -> i64 {
    vfork_begins(crate::unwind::here());
    let block = tls::block();
    let lends =
        process::is_active() && !block.has(flag::VFORK_CHILD | flag::FORKING | flag::FOREIGN);
    if lends {
        block.set(flag::VFORK_CHILD);
        take_entry_away(block);
    }
    let result = call();
    if lends {
        block.clear(flag::VFORK_CHILD);
        give_entry_back(block);
    }
    vfork_parent(result);
    result
}

/// In a child on its parent's memory that nobody announced (a raw clone): it is not the process that takes part.
pub(super) fn is_another() -> bool {
    platform::process_id() != process::pid()
}

/// The calling thread is about to exec: no signal may be on its way then, because handlers do not
/// survive, and the other threads are about to die.
pub fn before_exec() {
    let Some((entry, _)) = registered(tls::block()) else {
        return;
    };
    if !process::is_active() || check_for_fork() || is_another() {
        return;
    }
    gate::close(entry, patience::await_signal);
    capture::slow(&Request {
        exempt: true,
        last: true,
        ..Request::point(Probe::Exec)
    });
    if let Some(process) = process::mapping().and_then(|m| m.process(process::index())) {
        let cpu_ns = platform::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        process.unseen_from_ns.store(cpu_ns, Ordering::Relaxed);
        registry::end_process(process, process::now(), true);
    }
}

/// The exec failed: the process goes on.
pub fn exec_failed() {
    let Some((entry, _)) = registered(tls::block()) else {
        return;
    };
    if is_another() {
        return;
    }
    gate::reopen(entry, 0);
    if let Some(mapping) = process::mapping()
        && let Some(process) = mapping.process(process::index())
    {
        process.end_cycles.store(0, Ordering::Relaxed);
        process.unseen_from_ns.store(0, Ordering::Relaxed);
        let _ = process.state.compare_exchange(
            entry_state::EXECED,
            entry_state::LIVE,
            Ordering::Release,
            Ordering::Relaxed,
        );
        registry::announce(mapping);
    }
}
