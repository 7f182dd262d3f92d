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
    /// It waits, and did not with the poll before.
    began: bool,
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

    /// Whether the last poll was the first one that found it waiting. Where it waits for good, nothing else
    /// says that there is one more poll to make.
    pub(super) fn began_to_wait(&self) -> bool {
        self.entry.is_none() && self.seen.began
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
        let scheduled = host.scheduled(self.pid, tid).unwrap_or_default();
        self.saw(host.is_waiting(self.pid, tid), scheduled, since, now)
    }

    fn saw(
        &mut self,
        waits: bool,
        scheduled: Scheduled,
        since: Cycles,
        now: Cycles,
    ) -> Option<Waits> {
        let before = self.seen;
        let goes_on = before.waits && before.scheduled.times == scheduled.times;
        self.seen = Seen {
            waits,
            began: waits && !before.waits,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// After its first polls only CPU time of the program calls for more, and a thread that waits uses none.
    #[test]
    fn a_thread_that_waits_for_good_after_its_first_polls_is_polled_once_more() {
        let mut thread = Unregistered::new(Pid(1), true);
        let mut found = Vec::new();
        for waits in [false, false, false, true, true, true] {
            thread.polls += 1;
            let now = Cycles(thread.polls);
            let wait = thread.saw(waits, Scheduled::default(), Cycles(0), now);
            let is_one_more_due = thread.is_undecided() || thread.began_to_wait();
            found.push((is_one_more_due, wait.map(|wait| wait.since)));
        }
        let since = Some(Cycles(4));
        let wanted = [
            (true, None),
            (true, None),
            (false, None),
            (true, None),
            (false, since),
            (false, since),
        ];
        assert_eq!(found, wanted);
    }
}
