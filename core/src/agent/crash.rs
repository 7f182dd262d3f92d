//! A signal is about to end the process: who got it, and where. Only where somebody wants to know
//! (`Control::watch_crashes`).

#[cfg(any(target_os = "linux", target_os = "android"))]
mod fatal_signal;

use super::session;
use crate::crash_signals;
use crate::ids::Pid;
use crate::platform;
use crate::shm::layout::entry_state;
use crate::shm::registry;
use core::sync::atomic::Ordering;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use fatal_signal::{interrupted, lives_on, on_crash, with_room};

/// Whether processes are to say which signal ended them.
pub fn watches_crashes() -> bool {
    session::mapping().is_some_and(|m| m.control().watch_crashes.load(Ordering::Relaxed) != 0)
}

/// A child has ended with this status of `wait`, which its entry says from now on, if it has not noted a
/// signal itself.
pub fn child_ended(pid: Pid, status: i32) {
    let Some(signal) = crash_signals::end_of(status).filter(|_| watches_crashes()) else {
        return;
    };
    let Some(mapping) = session::mapping() else {
        return;
    };
    let live = |pid| {
        registry::processes(mapping).filter(move |(_, entry)| {
            entry.pid() == pid && entry.state.load(Ordering::Acquire) == entry_state::LIVE
        })
    };
    // In another pid namespace the same number is somebody else's child. Orphans end at a process that did
    // not start them.
    let own_pid = Pid(platform::process_id());
    let images = live(pid).filter(|(_, entry)| {
        let parent = Pid(entry.parent_pid.load(Ordering::Relaxed));
        parent == own_pid || live(parent).next().is_none()
    });
    if let Some((_, entry)) = images.max_by_key(|(_, entry)| entry.upid.load(Ordering::Relaxed)) {
        let word = &entry.fatal_signal;
        let _ = word.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Relaxed);
    }
}
