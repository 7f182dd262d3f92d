//! What is known of a thread that no hook has registered, and whether it waits.

use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Pid, Tid, Utid};
use stackbeat_core::shm::layout::entry_state;
use stackbeat_core::shm::registry::adopted;
use stackbeat_core::sync::Ordering;

use crate::host::{Host, Scheduled};
use crate::session::shared::Shared;

/// Polls that are made soon after one another, to find out whether an unregistered thread waits.
const POLLS: u64 = 3;

/// A thread that no hook has registered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unregistered {
    pub pid: Pid,
    pub polls: u64,
    /// Signals sent to it.
    pub sent: u64,
    /// CPU time that it had used when it was first seen running without a wait since, ns.
    pub awake_ns: Option<u64>,
    seen: Seen,
    /// The first search of its process found it.
    pub was_there: bool,
    /// What was made for it. It may have taken that over since.
    pub entry: Option<Entry>,
}

/// A wait of an unregistered thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    /// Since when it has waited.
    pub since: Cycles,
    /// CPU time that it had used by then, ns.
    pub cpu_ns: u64,
}

/// What an unregistered thread was last seen doing.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    waits: bool,
    scheduled: Scheduled,
    /// It has done nothing else since.
    since: Cycles,
}

/// The entry that was made for an unregistered thread: its number and utid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry(pub u32, pub Utid);

impl Unregistered {
    pub(super) fn new(pid: Pid, was_there: bool) -> Unregistered {
        Unregistered {
            pid,
            was_there,
            ..Unregistered::default()
        }
    }

    /// Whether one more poll is to come soon.
    pub(super) fn is_undecided(&self) -> bool {
        self.entry.is_none() && self.polls < POLLS
    }

    /// Polls whether it waits; gives the wait if it did with the poll before, too. `since` is the earliest
    /// that it may have begun, for the first poll; `now` is this poll.
    pub(super) fn watch(
        &mut self,
        host: &dyn Host,
        tid: Tid,
        since: Cycles,
        now: Cycles,
    ) -> Option<Waits> {
        let before = self.seen;
        let scheduled = host.scheduled(self.pid, tid).unwrap_or_default();
        let waits = host.is_waiting(self.pid, tid);
        let goes_on = before.waits && before.scheduled.times == scheduled.times;
        self.seen = Seen {
            waits,
            scheduled,
            since: match self.polls {
                1 => since,
                _ if goes_on => before.since,
                _ => now,
            },
        };
        (waits && before.waits).then_some(Waits {
            since: self.seen.since,
            cpu_ns: scheduled.run_ns,
        })
    }

    /// Whether it has an entry from us that it has not taken over. Where the thread is gone it never will:
    /// that is its end.
    pub(super) fn is_adopted(
        &self,
        host: &dyn Host,
        shared: &Shared,
        tid: Tid,
        now: Cycles,
    ) -> bool {
        let Some(Entry(i, utid)) = self.entry else {
            return false;
        };
        let entry = shared.mapping.thread(i);
        let is_adopted = entry.is_some_and(|entry| {
            entry.state.load(Ordering::Acquire) == entry_state::ADOPTED && entry.utid() == utid
        });
        if is_adopted && !host.has_thread(self.pid, tid) {
            adopted::end(&shared.mapping, i, now);
            return false;
        }
        is_adopted
    }
}
