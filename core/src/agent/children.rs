//! Fork, vfork, exec and exit: the calling thread's process becomes two, or another image, or ends.

use super::capture::{self, More, Request};
use super::fork::check_for_fork;
use super::scratch::Scratch;
use super::session;
use super::tls::{self, Block, flag};
use super::{Wait, registered, signal_wait, thread, wakers};
use crate::cycles::Cycles;
use crate::platform;
use crate::probe::Probe;
use crate::shm::layout::entry_state;
use crate::shm::registry;
use crate::shm::signal_gate;
use crate::sync::add_own;
use core::sync::atomic::Ordering;

/// The calling thread is about to fork: until `fork_parent` or `fork_child` its allocations are
/// counted apart, because the child shares the parent's entry until then.
pub fn before_fork() {
    let block = tls::block();
    if !session::is_active() || registered(block).is_none() {
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
    if !session::is_active() || (registered(block).is_none() && !thread::register()) {
        return;
    }
    // A signal's handler that vforks inside a wait is part of that wait.
    let is_waiting =
        registered(block).is_none_or(|(entry, _)| entry.closed.load(Ordering::Relaxed) != 0);
    if !is_waiting {
        let _ = super::begin_wait_from(Probe::Vfork, 0, caller);
        block.set(flag::VFORK_WAIT);
    }
}

/// The child of a vfork, which runs on its parent's memory: not to be touched until its exec.
pub fn vfork_child() {
    let block = tls::block();
    if session::is_active() && !block.has(flag::VFORK_CHILD | flag::FORKING | flag::FOREIGN) {
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
                begin: entry.blocking_section_begin.load(Ordering::Relaxed),
                arg: 0,
                probe: Probe::Vfork,
                signal_gate_before: 0,
            }
            .end_started(result, result);
        }
    }
}

/// [`vfork_begins`] for a platform whose own vfork must be called, and so is left alone with its caller's
/// stack. True: it is to return to the hook, which asks [`caller_of_vfork`] for the way back. False: nothing
/// is noted, and it returns to its caller.
pub fn calls_vfork(caller: [u64; 3]) -> bool {
    let block = tls::block();
    let others = flag::EXITED | flag::OWN;
    if block.has(flag::VFORK_CHILD | flag::FORKING | flag::FOREIGN | others)
        || !session::is_active()
    {
        return false;
    }
    // Without an entry the wait is not seen, but the child is known for one.
    let _ = registered(block).is_some() || thread::register();
    let Some(way_back) = vfork_caller(block) else {
        return false;
    };
    // SAFETY: this thread's memory. What comes in between leaves the word as it found it.
    unsafe {
        // Not in a signal handler that has interrupted another vfork at its begin.
        if *way_back != 0 {
            return false;
        }
        *way_back = caller[0];
    }
    vfork_begins(caller);
    true
}

/// Where the caller of the vfork goes on that has returned, in the child and in the parent.
pub fn caller_of_vfork() -> u64 {
    // SAFETY: this thread's memory, which stays until the thread ends.
    vfork_caller(tls::block()).map_or(0, |way_back| unsafe { *way_back })
}

/// [`vfork_parent`] for a vfork of [`calls_vfork`].
pub fn vfork_returned(result: i64) {
    let block = tls::block();
    if let Some(way_back) = vfork_caller(block) {
        // SAFETY: as above.
        unsafe { *way_back = 0 };
    }
    vfork_parent(result);
}

fn vfork_caller(block: &Block) -> Option<*mut u64> {
    let scratch = block.scratch.load(Ordering::Relaxed).cast::<Scratch>();
    // SAFETY: not null, so this thread's memory; nothing is read.
    (!scratch.is_null()).then(|| unsafe { &raw mut (*scratch).vfork_caller })
}

/// Runs a `clone` whose child has this memory and this thread-local block until its exec or its end, and
/// whose caller stands still meanwhile: what [`vfork_begins`], [`vfork_child`] and [`vfork_parent`] do around
/// a vfork, here by the parent alone, because the child runs on another stack. `call` gives the child's pid
/// or an error (negative).
#[inline(always)]
pub fn lends_memory(call: impl FnOnce() -> i64) -> i64 {
    vfork_begins(crate::unwind::here());
    let block = tls::block();
    let lends =
        session::is_active() && !block.has(flag::VFORK_CHILD | flag::FORKING | flag::FOREIGN);
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

/// The calling thread is about to exec: no signal may be on its way then, because handlers do not
/// survive, and the other threads are about to die.
pub fn before_exec() {
    let Some((entry, _)) = registered(tls::block()) else {
        return;
    };
    if !session::is_active() || check_for_fork() || session::is_another() {
        return;
    }
    signal_gate::close(entry, signal_wait::await_signal);
    capture::slow(&Request {
        exempt: true,
        last: true,
        ..Request::point(Probe::Exec)
    });
    if let Some(process) = session::mapping().and_then(|m| m.process(session::index())) {
        let cpu_ns = platform::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        process.unseen_from_ns.store(cpu_ns, Ordering::Relaxed);
        registry::end_process(process, session::now(), true);
    }
}

/// The exec failed: the process goes on.
pub fn exec_failed() {
    let Some((entry, _)) = registered(tls::block()) else {
        return;
    };
    if session::is_another() {
        return;
    }
    signal_gate::reopen(entry, 0);
    if let Some(mapping) = session::mapping()
        && let Some(process) = mapping.process(session::index())
    {
        process.end_cycles.store(Cycles(0), Ordering::Relaxed);
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

/// The process is about to end; hooks may still be called, and other threads may still run.
pub fn process_exiting() {
    if !session::is_active()
        || registered(tls::block()).is_none()
        || check_for_fork()
        || session::is_another()
    {
        return;
    }
    capture::slow(&Request {
        exempt: true,
        last: true,
        more: wakers::announce_end_of_process().map(More::Woke),
        ..Request::point(Probe::Exit)
    });
    if let Some(process) = session::mapping().and_then(|m| m.process(session::index())) {
        process.end_cycles.store(session::now(), Ordering::Release);
    }
}
