//! Strangers that wait: they pass a hook when their wait is over, which may be never. So that they have a row in the
//! trace, and are looked at from outside like others that wait, they get an entry from us
//! (`stackbeat_core::shm::registry::found`).

use std::collections::{HashMap, HashSet};

use stackbeat_core::shm::handover;
use stackbeat_core::shm::layout::ProcessEntry;
use stackbeat_core::shm::registry::{self, NewThread, found};
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::process::Origin;

use super::stranger::{Entry, Stranger};
use crate::session::shared::{Shared, count};

/// A process that began to take part so long ago has threads that were there before, ns: what is found waiting now
/// has waited since.
const SINCE_BEGIN_NS: u64 = 1_000_000_000;

/// A stranger that is to have an entry.
#[derive(Debug)]
pub(super) struct Wanted {
    pub process_uid: u32,
    pub new: NewThread,
    pub cpu_ns: u64,
}

/// Since when threads of a process may have waited that are seen for the first time, in cycles. `was_there`: it is the
/// first search there. What a process that was started with the agent has then may be as new as the search.
pub(super) fn earliest(shared: &Shared, process: &ProcessEntry, was_there: bool, now: u64) -> u64 {
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
    strangers: &mut HashMap<(u32, u32), Stranger>,
    wanted: &[Wanted],
) {
    let mapping = &shared.mapping;
    if wanted.is_empty() {
        return;
    }
    // The others are wanted again with the next search.
    let wanted = wanted.iter().take(found::room(mapping) as usize);
    let offers = wanted.filter_map(|wanted| {
        let i = found::offer(mapping, &wanted.new, wanted.cpu_ns)?;
        Some((i, wanted))
    });
    let offers: Vec<(u32, &Wanted)> = offers.collect();
    if offers.is_empty() {
        return;
    }
    let own: HashSet<(u32, u32)> = registry::threads(mapping)
        .filter(|(_, entry)| handover::has_entry(entry))
        .map(|(_, entry)| {
            let process = entry.process.load(Ordering::Relaxed);
            (process, entry.tid.load(Ordering::Relaxed))
        })
        .collect();
    for (
        i,
        Wanted {
            process_uid, new, ..
        },
    ) in offers
    {
        if own.contains(&(new.process, new.tid)) {
            found::take_back(mapping, i);
            continue;
        }
        let uid = mapping
            .thread(i)
            .map(|entry| entry.uid.load(Ordering::Relaxed));
        found::keep(mapping, i);
        count(&shared.figures.strangers_waiting, 1);
        if let Some(stranger) = strangers.get_mut(&(*process_uid, new.tid)) {
            stranger.entry = uid.map(|uid| Entry(i, uid));
        }
    }
}
