//! The process takes part: it gets an entry, and what it needs once.

use super::session::{self, AGENT, state};
use super::tls;
use super::{PROBE_MASK, main_stack, wakers};
use crate::native::{generated_code, own_modules};
use crate::platform::{self, Backing};
use crate::shm::mapping::Mapping;
use crate::shm::registry::{self, NewProcess};
use core::sync::atomic::{AtomicU32, Ordering};

/// Makes a mapping the session's. This thread alone is between STARTING and ACTIVE. It is never dropped:
/// threads may look at it at any time.
pub(super) fn take_up(mapping: Mapping) -> &'static Mapping {
    let mapping: &'static Mapping = std::boxed::Box::leak(std::boxed::Box::new(mapping));
    AGENT
        .mapping
        .store(core::ptr::from_ref(mapping).cast_mut(), Ordering::Release);
    AGENT.clock.store(
        mapping.control().clock_source.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    AGENT.collector_pid.store(
        mapping.header().collector_pid.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    mapping
}

/// What is done once in a process.
pub(super) fn prepare() {
    if AGENT.prepared.swap(true, Ordering::Relaxed) {
        return;
    }
    silence_own_panics();
    platform::rseq::init();
    AGENT
        .barrier
        .store(platform::accept_barriers().into(), Ordering::Relaxed);
    own_modules::init();
    let (low, high) = main_stack::find();
    AGENT.main_stack[0].store(low, Ordering::Relaxed);
    AGENT.main_stack[1].store(high, Ordering::Relaxed);
}

/// Makes the page that tells a forked child from its parent, or says that this process is no such child.
pub(super) fn mark_own_page() {
    // SAFETY: null or the page that `make_own_page` mapped and nobody unmaps.
    match unsafe { AGENT.own_page.load(Ordering::Relaxed).as_ref() } {
        None => make_own_page(),
        Some(word) => {
            if word.swap(1, Ordering::Relaxed) == 0 {
                own_modules::after_fork();
            }
        }
    }
}

/// Takes a process entry and becomes active, then writes down what the process is.
pub(super) fn join(mapping: &'static Mapping, new: &NewProcess) -> bool {
    let Some((index, upid)) = registry::add_process(mapping, new) else {
        AGENT.state.store(state::DISABLED, Ordering::Release);
        return false;
    };
    AGENT.index.store(index, Ordering::Relaxed);
    AGENT.upid.store(upid.0, Ordering::Relaxed);
    AGENT.pid.store(new.pid.0, Ordering::Relaxed);
    session::publish_signal(mapping);
    if let Some(process) = mapping.process(index) {
        let handles = super::HANDLES_SIGNAL.load(Ordering::SeqCst);
        process.handles_signal.store(handles, Ordering::SeqCst);
        let directory = generated_code::elsewhere::directory();
        process.generated_code.store(directory, Ordering::Release);
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    super::sandbox::show(mapping);
    let mask = core::ptr::from_ref(&mapping.control().probe_mask);
    PROBE_MASK.store(mask.cast_mut(), Ordering::Relaxed);
    wakers::use_tables(mapping);
    AGENT.state.store(state::ACTIVE, Ordering::Release);
    true
}

/// A panic of the agent's is no message on the program's standard error.
fn silence_own_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(std::boxed::Box::new(move |info| {
        let block = tls::block();
        if [&block.guard, &block.away]
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == 0)
        {
            before(info);
        }
    }));
}

/// Maps the page that tells a forked child from its parent.
pub(super) fn make_own_page() {
    let bytes = platform::page_bytes();
    let Ok(page) = platform::map(bytes, Backing::Anonymous, 0) else {
        return;
    };
    // SAFETY: the page is this module's own; `check_for_fork` expects it zeroed in children.
    if unsafe { platform::wipe_on_fork(page, bytes) }.is_err() {
        // SAFETY: nothing refers to it.
        unsafe { platform::unmap(page, bytes) };
        return;
    }
    let word = page.cast::<AtomicU32>();
    // SAFETY: a mapped page, aligned, zeroed.
    unsafe { (*word).store(1, Ordering::Relaxed) };
    AGENT.own_page.store(word, Ordering::Relaxed);
}
