//! What parts of the recorder keep of each live thread, brought up to date from the entries that have given a sign.

use std::collections::HashMap;

use stackbeat_core::shm::layout::{ThreadEntry, entry_state};
use stackbeat_core::sync::Ordering;

use super::shared::Shared;
use super::signs::Part;

/// What a part of the recorder keeps of each live thread.
#[derive(Debug, Default)]
pub struct Kept<T> {
    /// By uid.
    threads: HashMap<u32, T>,
    /// By entry, the thread that it belonged to when it was looked at.
    owners: HashMap<u32, u32>,
}

impl<T> Kept<T> {
    pub fn has(&self, thread_uid: u32) -> bool {
        self.threads.contains_key(&thread_uid)
    }

    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Looks at the entries that have given a sign. `look` gets an entry's number, the entry, its thread's uid and what
    /// was kept of that, and gives what is to be kept. Threads that have ended are forgotten.
    pub fn look(
        &mut self,
        shared: &Shared,
        part: Part,
        now_ns: u64,
        mut look: impl FnMut(u32, &ThreadEntry, u32, Option<&T>) -> T,
    ) {
        let mut changed = Vec::new();
        shared.take_signs(part, now_ns, &mut changed);
        for index in changed {
            let Some(entry) = shared.mapping.thread(index) else {
                continue;
            };
            let is_live = entry.state.load(Ordering::Acquire) == entry_state::LIVE;
            let uid = entry.uid.load(Ordering::Relaxed);
            let owner = match is_live {
                true => self.owners.insert(index, uid),
                false => self.owners.remove(&index),
            };
            if let Some(gone) = owner.filter(|owner| *owner != uid || !is_live) {
                self.threads.remove(&gone);
            }
            if is_live {
                let now = look(index, entry, uid, self.threads.get(&uid));
                self.threads.insert(uid, now);
            }
        }
    }
}
