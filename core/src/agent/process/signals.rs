//! The signals that interrupt the process' threads.

use core::sync::atomic::{AtomicU32, Ordering};

use super::{AGENT, Agent, mapping};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::agent::tls;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::agent::{alternate, registered};
use crate::platform;
use crate::shm::mapping::Mapping;

impl Agent {
    /// No thread is interrupted any more.
    pub(in crate::agent) fn forget_signals(&self) {
        self.signal.store(0, Ordering::Relaxed);
        self.second_signal.store(0, Ordering::Relaxed);
    }

    /// The session's signals, as the kernel has sets of them: signal 1 is bit 0.
    pub(in crate::agent) fn signals(&self) -> u64 {
        let bit = |signal: &AtomicU32| platform::signal_bit(signal.load(Ordering::Relaxed));
        bit(&self.signal) | bit(&self.second_signal)
    }
}

/// The handler for the session's signal is in place: running threads may be interrupted from now on. And the same handler for a
/// second signal, for threads that block the first. 0: there is none.
pub fn handlers_installed(first: u32, second: u32) {
    AGENT
        .handler
        .store(platform::signal_handler(first), Ordering::Relaxed);
    AGENT.signal.store(first, Ordering::Relaxed);
    AGENT.second_signal.store(second, Ordering::Relaxed);
    // Threads that begin later do it then.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some((entry, _)) = registered(tls::block()) {
        alternate::install(entry);
    }
    if let Some(mapping) = mapping() {
        publish_signal(mapping);
    }
}

/// From now on `on_mask` is called with the signals that a thread blocks (signal 1 is bit 0) when it begins to take
/// part. That may be in a signal handler.
pub fn watch_masks(on_mask: fn(u64)) {
    AGENT.on_mask.store(on_mask as *mut (), Ordering::Release);
}

/// The calling thread, which blocks these signals, takes part from now on.
pub(in crate::agent) fn look_at_mask(mask: u64) {
    let on_mask = AGENT.on_mask.load(Ordering::Acquire);
    if !on_mask.is_null() {
        // SAFETY: `watch_masks` stored a function of this type.
        let on_mask: fn(u64) = unsafe { core::mem::transmute(on_mask) };
        on_mask(mask);
    }
}

pub(in crate::agent) fn publish_signal(mapping: &Mapping) {
    if let Some(entry) = mapping.process(AGENT.index.load(Ordering::Relaxed)) {
        entry.second_signal.store(
            AGENT.second_signal.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
        entry
            .barrier
            .store(AGENT.barrier.load(Ordering::Relaxed), Ordering::Relaxed);
        entry
            .signal
            .store(AGENT.signal.load(Ordering::Relaxed), Ordering::Release);
    }
}
