//! Which sub-buffers have something to drain.

use std::collections::HashSet;

use stackbeat_core::ids::Utid;
use stackbeat_core::shm::buffer;
use stackbeat_core::shm::layout::buffer_state;
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::sync::Ordering;

use super::Drainer;

/// A sub-buffer with records to drain. Sorts by thread, then by record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    utid: Utid,
    first: u64,
    end: u64,
    buffer: u32,
}

impl Drainer {
    /// Sub-buffers with records that were not drained, each thread's in the order of its records, and
    /// the number of the first record to expect.
    ///
    /// A thread may complete a sub-buffer behind our back, after its place was read, and take
    /// another one that is seen. So where records are missing before a sub-buffer the pool is read
    /// once more: what was completed before the first scan ended is seen then, and a gap that is still
    /// there is a loss.
    pub(super) fn waiting(&self, mapping: &Mapping) -> Vec<(u32, u64)> {
        let first_pass = self.undrained(mapping);
        let is_complete = self.in_sequence(&first_pass, |_| false).len() == first_pass.len();
        let found = if is_complete {
            first_pass.clone()
        } else {
            self.undrained(mapping)
        };
        let seen: HashSet<u32> = first_pass.iter().map(|w| w.buffer).collect();
        self.in_sequence(&found, |buffer| seen.contains(&buffer))
    }

    /// Those that follow each thread's records without a gap, or after one that may be believed.
    fn in_sequence(&self, found: &[Waiting], believe: impl Fn(u32) -> bool) -> Vec<(u32, u64)> {
        let mut ready = Vec::new();
        let mut thread = (Utid(0), 0, false);
        for w in found {
            if thread.0 != w.utid || ready.is_empty() {
                thread = (w.utid, self.lifecycle.next_record(w.utid), true);
            }
            let (_, next, go_on) = &mut thread;
            *go_on &= w.first <= *next || believe(w.buffer);
            if *go_on {
                ready.push((w.buffer, *next));
                *next = w.end.max(*next);
            }
        }
        ready
    }

    /// Reads the pool once: what has records, in the order of threads and their records.
    fn undrained(&self, mapping: &Mapping) -> Vec<Waiting> {
        let mut found = Vec::new();
        for i in 0..mapping.buffers() {
            let Some(header) = mapping.buffer(i) else {
                continue;
            };
            let state = header.state.load(Ordering::Acquire);
            let owner = (state >> 32) as u32;
            match state as u32 {
                buffer_state::FREE => continue,
                buffer_state::COMPLETE => {}
                _ if self.lifecycle.is_dead_owner(owner) => buffer::owner_died(mapping, i),
                buffer_state::REVOKED => {
                    buffer::settle(mapping, i, mapping.thread(owner));
                }
                _ => {}
            }
            let complete = header.state.load(Ordering::Acquire) as u32 == buffer_state::COMPLETE;
            let committed = header.committed.load(Ordering::Acquire);
            let drained = header.drained.load(Ordering::Relaxed);
            if committed != drained || complete {
                let first = header.first_record.load(Ordering::Relaxed);
                found.push(Waiting {
                    utid: header.utid(),
                    first: first.wrapping_add(drained >> 32),
                    end: first.wrapping_add(committed >> 32),
                    buffer: i,
                });
            }
        }
        found.sort_unstable();
        found
    }
}
