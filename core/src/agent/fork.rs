//! A forked child becomes a process of its own: announced by the hook of `fork`, or found out at its first
//! capture.

use super::session::{self, AGENT, origin, state};
use super::tls::{self, flag};
use super::{process_entry, registration, systrace, texts};
use crate::ids::Pid;
use crate::platform;
use crate::shm::registry::NewProcess;
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

/// The calling thread is the only one of a forked child: becomes a process of its own.
pub fn fork_child() {
    // Whether or not there is a recording: runtimes tell of themselves in any case.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        crate::native::generated_code::after_fork();
        platform::fault_guard::after_fork();
    }
    if !session::is_active() {
        return;
    }
    let Some(mapping) = session::mapping() else {
        return;
    };
    let block = tls::block();
    if block.has(flag::FOREIGN) {
        AGENT.state.store(state::DISABLED, Ordering::Release);
        return;
    }
    let (parent_pid, parent_upid) = (session::pid(), session::upid());
    if let Some(word) =
        // SAFETY: null or the page that `make_own_page` mapped and nobody unmaps.
        unsafe { AGENT.own_page.load(Ordering::Relaxed).as_ref() }
    {
        word.store(1, Ordering::Relaxed);
    }
    registration::forget(block);
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
    crate::native::own_modules::after_fork();
    #[cfg(any(target_os = "linux", target_os = "android"))]
    crate::platform::sandbox::after_fork();
    let new = NewProcess {
        pid: Pid(platform::forked_process_id()),
        parent_pid,
        parent_upid,
        origin: origin::FORKED,
        cycles: session::now(),
    };
    if process_entry::join(mapping, &new) {
        registration::start(None, registration::Creator::UNKNOWN, || {});
        texts::write_texts(mapping);
    }
}
