//! Deadlocks that the recorder noticed: which threads wait for which of each other's locks, and where.

use std::collections::HashMap;

use stackbeat_model::{ProbeId, Segment, SegmentKind, ThreadIndex, Trace};

use super::thread_rows::Rows;
use crate::summary::call_tree::ROOT;

/// A thread in a deadlock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) thread: ThreadIndex,
    pub(crate) probe: ProbeId,
    pub(crate) lock: u64,
    /// Where it waits, in the tree of the profile.
    pub(crate) place: u32,
}

/// Deadlocks of a trace: when they were noticed, and who is in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlocks {
    pub(crate) found: Vec<(u64, Vec<Member>)>,
}

/// Collects where threads in deadlocks wait, while a trace is read.
#[derive(Debug, Default)]
pub(crate) struct Places {
    of_wait: HashMap<(usize, ThreadIndex), u32>,
}

impl Places {
    /// `path`: the place of the segment's stack.
    pub(crate) fn add(&mut self, trace: &Trace, segment: &Segment, path: u32) {
        if !matches!(segment.kind, SegmentKind::Blocked(_)) {
            return;
        }
        for (i, deadlock) in trace.deadlocks().iter().enumerate() {
            let holds = (segment.begin_ns..=segment.end_ns).contains(&deadlock.time_ns);
            if holds && deadlock.members.iter().any(|m| m.thread == segment.thread) {
                self.of_wait.insert((i, segment.thread), path);
            }
        }
    }

    pub(crate) fn finish(self, trace: &Trace, rows: &Rows) -> Deadlocks {
        let found = trace.deadlocks().iter().enumerate().map(|(i, deadlock)| {
            let member = |m: &stackbeat_model::DeadlockMember| Member {
                thread: rows.row(m.thread),
                probe: m.probe,
                lock: m.lock,
                place: self.of_wait.get(&(i, m.thread)).copied().unwrap_or(ROOT),
            };
            let members = deadlock.members.iter().map(member).collect();
            (deadlock.time_ns.saturating_sub(trace.start_ns()), members)
        });
        Deadlocks {
            found: found.collect(),
        }
    }
}
