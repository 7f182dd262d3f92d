//! What parts of the recorder keep of each live thread, brought up to date from the entries that have shown
//! activity.

use std::collections::HashMap;

use stackbeat_core::ids::Utid;
use stackbeat_core::shm::layout::{ThreadEntry, entry_state};
use stackbeat_core::sync::Ordering;

use super::activity::Part;
use super::shared::Shared;

/// What a part of the recorder keeps of each live thread.
#[derive(Debug, Default)]
pub(crate) struct Kept<T> {
    /// By utid.
    threads: HashMap<Utid, T>,
    /// By entry, the thread that it belonged to when it was looked at.
    owners: HashMap<u32, Utid>,
}

impl<T> Kept<T> {
    pub(crate) fn has(&self, utid: Utid) -> bool {
        self.threads.contains_key(&utid)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Polls the entries that have shown activity. `poll` gets an entry's number, the entry, its thread's
    /// utid and what was kept of that, and gives what is to be kept. Threads that have ended are forgotten.
    pub(crate) fn poll(
        &mut self,
        shared: &Shared,
        part: Part,
        now_ns: u64,
        mut poll: impl FnMut(u32, &ThreadEntry, Utid, Option<&T>) -> T,
    ) {
        let mut changed = Vec::new();
        shared.take_activity(part, now_ns, &mut changed);
        for index in changed {
            let Some(entry) = shared.mapping.thread(index) else {
                continue;
            };
            let is_live = entry.state.load(Ordering::Acquire) == entry_state::LIVE;
            let utid = entry.utid();
            let owner = match is_live {
                true => self.owners.insert(index, utid),
                false => self.owners.remove(&index),
            };
            if let Some(gone) = owner.filter(|owner| *owner != utid || !is_live) {
                self.threads.remove(&gone);
            }
            if is_live {
                let now = poll(index, entry, utid, self.threads.get(&utid));
                self.threads.insert(utid, now);
            }
        }
    }
}
