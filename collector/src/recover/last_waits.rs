//! What threads waited for when their process died: their entries say it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stackbeat_core::clock::{Converter, Snapshot};
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::layout::{ThreadClass, entry_state};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::registry;
use stackbeat_core::sync::Ordering;

use super::Partial;

/// A thread that waited in a hook when its process died. The trace has the wait, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastWait {
    /// The thread.
    pub tid: u32,
    /// It is the process' first one.
    pub is_main: bool,
    /// The call, as reports name it.
    pub call: &'static str,
    /// The thread that held the lock when the wait began; 0: not known.
    pub owner_tid: u32,
    /// When the wait began.
    pub since: SystemTime,
}

/// Those of a mapping whose processes are gone, main threads first.
pub(super) fn of(mapping: &Mapping, partial: &Partial, converter: &Converter) -> Vec<LastWait> {
    // Real time goes by the readings of the recording itself, which may have been before a restart.
    let (realtime_ns, monotonic_ns) = match partial.clocks.last() {
        Some(clock) => (clock.realtime_ns, clock.monotonic_ns),
        None => {
            let now = Snapshot::take(stackbeat_core::shm::layout::ClockSource::Monotonic);
            (now.realtime_ns, now.monotonic_ns)
        }
    };
    let since = |cycles| {
        let ns = converter.to_ns(cycles).wrapping_sub(monotonic_ns);
        UNIX_EPOCH + Duration::from_nanos(realtime_ns.wrapping_add(ns))
    };
    let threads = registry::threads(mapping).map(|(_, entry)| entry);
    let waiting = threads.filter(|entry| {
        entry.state.load(Ordering::Relaxed) == entry_state::LIVE
            && !(entry.blocking_section.load(Ordering::Relaxed)).is_multiple_of(2)
    });
    let waits = waiting.filter_map(|entry| {
        let probe = u8::try_from(entry.blocking_section_probe.load(Ordering::Relaxed)).ok()?;
        Some(LastWait {
            tid: entry.tid().0,
            is_main: entry.class.load(Ordering::Relaxed) == ThreadClass::Main as u32,
            call: Probe::from_number(probe)?.name(),
            owner_tid: entry.wait_owner.load(Ordering::Relaxed),
            since: since(entry.blocking_section_begin.load(Ordering::Relaxed)),
        })
    });
    let mut waits: Vec<LastWait> = waits.collect();
    waits.sort_by_key(|wait| (!wait.is_main, wait.since));
    waits
}
