//! Unregistered threads that wait: they pass a hook when their wait is over, which may be never. So that they
//! have a row in the trace, and the off-CPU sampler polls them like others that wait, they get an entry from
//! us (`stackbeat_core::shm::registry::adopted`).

use std::collections::{HashMap, HashSet};

use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Tid, Upid};
use stackbeat_core::shm::adoption;
use stackbeat_core::shm::layout::ProcessEntry;
use stackbeat_core::shm::registry::{self, NewThread, adopted};
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::process::Origin;

use super::unregistered::{Entry, Unregistered};
use crate::session::shared::{Shared, count};

/// A process that began to take part so long ago has threads that were there before, ns: what is found
/// waiting now has waited since.
const SINCE_BEGIN_NS: u64 = 1_000_000_000;

/// An unregistered thread that is to have an entry.
#[derive(Debug)]
pub(super) struct Wanted {
    pub upid: Upid,
    pub new: NewThread,
    pub cpu_ns: u64,
}

/// Since when threads of a process may have waited that are seen for the first time. `was_there`: it is the
/// first search there. What a process that was started with the agent has then may be as new as the search.
pub(super) fn earliest(
    shared: &Shared,
    process: &ProcessEntry,
    was_there: bool,
    now: Cycles,
) -> Cycles {
    let start = process.start_cycles.load(Ordering::Relaxed);
    let is_new = shared.cycles_to_ns(now.saturating_sub(start)) < SINCE_BEGIN_NS;
    let is_attached = process.origin.load(Ordering::Relaxed) == Origin::Attached as u32;
    match is_new && was_there && is_attached {
        true => start.min(now),
        false => now,
    }
}

/// Makes entries, for those that have not got one meanwhile.
pub(super) fn make_entries(
    shared: &Shared,
    unregistered_threads: &mut HashMap<(Upid, Tid), Unregistered>,
    wanted: &[Wanted],
) {
    let mapping = &shared.mapping;
    if wanted.is_empty() {
        return;
    }
    // The others are wanted again with the next search.
    let wanted = wanted.iter().take(adopted::room(mapping) as usize);
    let offers = wanted.filter_map(|wanted| {
        let i = adopted::offer(mapping, &wanted.new, wanted.cpu_ns)?;
        Some((i, wanted))
    });
    let offers: Vec<(u32, &Wanted)> = offers.collect();
    if offers.is_empty() {
        return;
    }
    let own: HashSet<(u32, Tid)> = registry::threads(mapping)
        .filter(|(_, entry)| adoption::has_entry(entry))
        .map(|(_, entry)| {
            let process = entry.process.load(Ordering::Relaxed);
            (process, entry.tid())
        })
        .collect();
    for (i, Wanted { upid, new, .. }) in offers {
        if own.contains(&(new.process, new.tid)) {
            adopted::take_back(mapping, i);
            continue;
        }
        let utid = mapping.thread(i).map(|entry| entry.utid());
        adopted::keep(mapping, i);
        count(&shared.figures.unregistered_waiting, 1);
        if let Some(unregistered) = unregistered_threads.get_mut(&(*upid, new.tid)) {
            unregistered.entry = utid.map(|utid| Entry(i, utid));
        }
    }
}
