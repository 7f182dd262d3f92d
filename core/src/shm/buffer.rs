//! Sub-buffers: how a thread's records get from it to the collector.
//!
//! ```text
//!            take (CAS)           set up              complete (CAS)
//!   FREE ───────────────▶ TAKING ────────▶ WRITING ─────────────────▶ COMPLETE
//!    ▲                      ▲                 │ revoke (collector, CAS)   │ │
//!    │                      └── overwrite (CAS, ring mode) ───────────────│─┘
//!    │                                        ▼                           │
//!    └──── free (collector, when drained) ── REVOKED ◀────────────────────┘
//! ```
//!
//! A thread owns one at a time, writes plain words behind the committed length and commits them by
//! one release store. It touches its sub-buffer only between `begin` and the end of a capture, while
//! `ThreadEntry::capturing` is not 0; so the collector can take an idle thread's away: it revokes it
//! and uses it once it has seen the thread outside of a capture.
//!
//! Records in a sub-buffer are numbered without gaps from `first_record` on. A record that found no
//! room consumes a number all the same, so each gap between sub-buffers is a loss that is seen.

use crate::cycles::Cycles;
use crate::ids::{Upid, Utid};
use crate::shm::layout::{BufferHeader, Mode, ThreadEntry, buffer_state as state, drops};
use crate::shm::record_format::MAX_RECORD_WORDS;
use crate::sync::{AtomicU64, Ordering, add_own, fence};

/// A state word: the owner's entry and one of `buffer_state`.
pub const fn state_word(owner: u32, state: u32) -> u64 {
    (owner as u64) << 32 | state as u64
}

/// Both halves of a commit word: words in the low half, records in the high.
const fn commit_word(words: u32, records: u32) -> u64 {
    (records as u64) << 32 | words as u64
}

/// Where sub-buffers lie: the shared mapping, or plain memory in models and tests.
pub trait Pool {
    /// Number of sub-buffers.
    fn count(&self) -> u32;
    /// The head of one.
    fn header(&self, i: u32) -> Option<&BufferHeader>;
    /// The words of one.
    fn words(&self, i: u32) -> Option<&[AtomicU64]>;
    /// Has the collector drain soon, because few are free.
    fn want_drain(&self) {}
}

/// How many sub-buffers a thread that takes one reads to see how full the pool is, and of how many
/// that are taken on it asks for a drain. Threads that start at once fill the pool faster than the
/// collector reads it.
const FILL_SAMPLE: u32 = 8;
const FILL_WANTED: usize = 5;

#[cfg(not(loom))]
impl Pool for crate::shm::mapping::Mapping {
    fn count(&self) -> u32 {
        self.buffers()
    }
    fn header(&self, i: u32) -> Option<&BufferHeader> {
        self.buffer(i)
    }
    fn words(&self, i: u32) -> Option<&[AtomicU64]> {
        self.buffer_words(i)
    }
    fn want_drain(&self) {
        let word = &self.control().drain;
        if word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::SeqCst) != 0 {
            crate::platform::wake(word, 1);
        }
    }
}

/// Owner: begins a capture that uses a generation of the CallstackTable. From here until
/// [`end_capture`] the collector neither takes the thread's sub-buffer nor recycles that generation,
/// unless it had done so before: read both again after this.
#[inline(always)]
pub fn begin_capture(entry: &ThreadEntry, generation: u32) {
    entry
        .capturing
        .store(generation.wrapping_add(1).max(1), Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// Owner: the capture is over.
#[inline(always)]
pub fn end_capture(entry: &ThreadEntry) {
    entry.capturing.store(0, Ordering::Release);
}

/// The writing side: one thread with its entry.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a, P: Pool> {
    /// The sub-buffers to write into.
    pub pool: &'a P,
    /// The thread's own entry.
    pub entry: &'a ThreadEntry,
    /// Index of the entry.
    pub index: u32,
    /// The thread's process.
    pub upid: Upid,
    /// What happens when no sub-buffer is free.
    pub mode: Mode,
    /// Generation of the CallstackTable that the records' nodes belong to.
    pub generation: u32,
}

impl<P: Pool> Writer<'_, P> {
    /// Writes a record; false when it was lost (and counted). Call only while
    /// `ThreadEntry::capturing` is set.
    pub fn append(&self, record: &[u64], now_cycles: Cycles) -> bool {
        let number = self.entry.records.load(Ordering::Relaxed);
        let written = record.len() <= MAX_RECORD_WORDS
            && (self.append_current(record)
                || (self.take(number, now_cycles) && self.append_current(record)));
        if !written && let Some(lost) = self.entry.drops.get(drops::BUFFER_FULL) {
            add_own(lost, 1);
        }
        self.entry
            .records
            .store(number.wrapping_add(1), Ordering::Release);
        written
    }

    /// Writes into the sub-buffer that the thread has, if it has one with room.
    fn append_current(&self, record: &[u64]) -> bool {
        let Some(i) = self.entry.buffer.load(Ordering::Relaxed).checked_sub(1) else {
            return false;
        };
        let (Some(header), Some(words)) = (self.pool.header(i), self.pool.words(i)) else {
            return false;
        };
        let writing = state_word(self.index, state::WRITING);
        if header.state.load(Ordering::Relaxed) != writing {
            self.entry.buffer.store(0, Ordering::Relaxed);
            return false;
        }
        let committed = header.committed.load(Ordering::Relaxed);
        let used = committed as u32 as usize;
        let Some(room) = words.get(used..used.saturating_add(record.len())) else {
            self.complete();
            return false;
        };
        for (word, value) in room.iter().zip(record) {
            word.store(*value, Ordering::Relaxed);
        }
        let records = (committed >> 32) as u32;
        header.committed.store(
            commit_word((used + record.len()) as u32, records.wrapping_add(1)),
            Ordering::Release,
        );
        true
    }

    /// Hands the thread's sub-buffer over to the collector.
    pub fn complete(&self) {
        let Some(i) = self.entry.buffer.load(Ordering::Relaxed).checked_sub(1) else {
            return;
        };
        if let Some(header) = self.pool.header(i) {
            // Fails when the collector has revoked it: then it is no longer this thread's.
            let _ = header.state.compare_exchange(
                state_word(self.index, state::WRITING),
                state_word(self.index, state::COMPLETE),
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
        self.entry.buffer.store(0, Ordering::Relaxed);
    }

    /// Takes a free sub-buffer, or in ring mode the oldest complete one.
    fn take(&self, first_record: u64, now_cycles: Cycles) -> bool {
        let count = self.pool.count();
        // Threads begin their searches apart from each other.
        let start = self.index.wrapping_mul(0x9e37_79b9) % count.max(1);
        if self.mode == Mode::Endless && self.is_tight(start, count) {
            self.pool.want_drain();
        }
        for step in 0..count {
            let i = (start + step) % count;
            if let Some(header) = self.pool.header(i) {
                let seen = header.state.load(Ordering::Relaxed);
                if seen as u32 == state::FREE && self.claim(header, seen) {
                    return self.set_up(i, header, first_record, now_cycles);
                }
            }
        }
        self.mode == Mode::Ring && self.overwrite_oldest(first_record, now_cycles)
    }

    /// More than half of the pool is taken, by a few polls.
    fn is_tight(&self, start: u32, count: u32) -> bool {
        let is_taken = |at: u32| {
            let i = start.wrapping_add(at * ((count / FILL_SAMPLE) | 1)) % count.max(1);
            let header = self.pool.header(i);
            header.is_some_and(|h| h.state.load(Ordering::Relaxed) as u32 != state::FREE)
        };
        (0..FILL_SAMPLE).filter(|at| is_taken(*at)).count() >= FILL_WANTED
    }

    fn claim(&self, header: &BufferHeader, seen: u64) -> bool {
        header
            .state
            .compare_exchange(
                seen,
                state_word(self.index, state::TAKING),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    fn overwrite_oldest(&self, first_record: u64, now_cycles: Cycles) -> bool {
        // A few attempts: another thread may be faster each time.
        for _ in 0..8 {
            let mut oldest: Option<(Cycles, u32, u64)> = None;
            for i in 0..self.pool.count() {
                let Some(header) = self.pool.header(i) else {
                    continue;
                };
                let seen = header.state.load(Ordering::Acquire);
                let taken = header.taken_cycles.load(Ordering::Relaxed);
                if seen as u32 == state::COMPLETE && oldest.is_none_or(|o| taken < o.0) {
                    oldest = Some((taken, i, seen));
                }
            }
            let Some((_, i, seen)) = oldest else {
                return false;
            };
            let Some(header) = self.pool.header(i) else {
                return false;
            };
            if self.claim(header, seen) {
                let lost = header.committed.load(Ordering::Relaxed) >> 32;
                if let Some(counter) = self.entry.drops.get(drops::OVERWRITTEN) {
                    add_own(counter, lost);
                }
                return self.set_up(i, header, first_record, now_cycles);
            }
        }
        false
    }

    /// Makes a claimed sub-buffer this thread's.
    fn set_up(&self, i: u32, header: &BufferHeader, first_record: u64, now_cycles: Cycles) -> bool {
        // A reader that still copies what was there sees that `uses` has changed.
        header.uses.store(
            header.uses.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
        fence(Ordering::Release);
        header.committed.store(0, Ordering::Relaxed);
        header.drained.store(0, Ordering::Relaxed);
        header
            .utid
            .store(self.entry.utid.load(Ordering::Relaxed), Ordering::Relaxed);
        header.upid.store(self.upid.0, Ordering::Relaxed);
        header.first_record.store(first_record, Ordering::Relaxed);
        header.taken_cycles.store(now_cycles, Ordering::Relaxed);
        header.generation.store(self.generation, Ordering::Relaxed);
        header
            .state
            .store(state_word(self.index, state::WRITING), Ordering::Release);
        self.entry.buffer.store(i + 1, Ordering::Relaxed);
        true
    }
}

/// What a sub-buffer holds beyond what was drained before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Index of the sub-buffer.
    pub buffer: u32,
    /// Index of the owner's entry.
    pub owner: u32,
    /// The owning thread.
    pub utid: Utid,
    /// Its process.
    pub upid: Upid,
    /// Number of the first record copied.
    pub first_record: u64,
    /// Records copied.
    pub records: u32,
    /// Generation of the CallstackTable when the sub-buffer was taken: its records' nodes are of this
    /// one or a later one.
    pub generation: u32,
    /// When the owner took the sub-buffer, in cycles.
    pub taken_cycles: Cycles,
    /// Nothing can be added any more: free it once this is stored.
    pub complete: bool,
    state: u64,
    uses: u32,
    committed: u64,
}

/// Copies the records of a sub-buffer that were not drained yet into `into` (replacing what is
/// there). `None` when there is nothing new and it is not complete, or when it was overwritten
/// meanwhile.
///
/// `after_drained` false reads everything from its start (`recover`, ring dumps).
pub fn drain<P: Pool>(
    pool: &P,
    i: u32,
    after_drained: bool,
    into: &mut std::vec::Vec<u64>,
) -> Option<Drained> {
    let (header, words) = (pool.header(i)?, pool.words(i)?);
    let seen = header.state.load(Ordering::Acquire);
    let complete = match seen as u32 {
        state::WRITING | state::REVOKED => false,
        state::COMPLETE => true,
        _ => return None,
    };
    let uses = header.uses.load(Ordering::Relaxed);
    let committed = header.committed.load(Ordering::Acquire);
    let end = committed as u32 as usize;
    let (start, before) = if after_drained {
        let drained = header.drained.load(Ordering::Relaxed);
        (drained as u32 as usize, (drained >> 32) as u32)
    } else {
        (0, 0)
    };
    let first_record = header.first_record.load(Ordering::Relaxed);
    let drained = Drained {
        buffer: i,
        owner: (seen >> 32) as u32,
        utid: header.utid(),
        upid: header.upid(),
        first_record: first_record.wrapping_add(before as u64),
        records: ((committed >> 32) as u32).checked_sub(before)?,
        generation: header.generation.load(Ordering::Relaxed),
        taken_cycles: header.taken_cycles.load(Ordering::Relaxed),
        complete,
        state: seen,
        uses,
        committed,
    };
    let new = words.get(start..end)?;
    if new.is_empty() && !complete {
        return None;
    }
    into.clear();
    into.extend(new.iter().map(|w| w.load(Ordering::Relaxed)));
    // What was copied counts only if the sub-buffer is still in the same use.
    fence(Ordering::Acquire);
    let now = header.state.load(Ordering::Relaxed);
    let same_use = header.uses.load(Ordering::Relaxed) == uses
        && (now >> 32) == (seen >> 32)
        && now as u32 != state::TAKING
        && now as u32 != state::FREE;
    same_use.then_some(drained)
}

/// Collector: what [`drain`] gave is in the trace now. Frees the sub-buffer if it was complete.
pub fn stored<P: Pool>(pool: &P, drained: &Drained) {
    let Some(header) = pool.header(drained.buffer) else {
        return;
    };
    header.drained.store(drained.committed, Ordering::Relaxed);
    if drained.complete {
        free(header, drained.state);
    }
}

fn free(header: &BufferHeader, seen: u64) {
    let _ = header.state.compare_exchange(
        seen,
        state_word(0, state::FREE),
        Ordering::Release,
        Ordering::Relaxed,
    );
}

/// Collector: takes the sub-buffer of an idle thread away. It becomes complete by [`settle`].
pub fn revoke<P: Pool>(pool: &P, i: u32) -> bool {
    let Some(header) = pool.header(i) else {
        return false;
    };
    let seen = header.state.load(Ordering::Relaxed);
    seen as u32 == state::WRITING
        && header
            .state
            .compare_exchange(
                seen,
                state_word((seen >> 32) as u32, state::REVOKED),
                Ordering::SeqCst,
                Ordering::Relaxed,
            )
            .is_ok()
}

/// Collector: makes a revoked sub-buffer complete if its owner is outside of a capture, or is known
/// to be dead. The owner sets `capturing` before it reads the state (both sequentially
/// consistent), so one that is seen outside cannot be writing.
pub fn settle<P: Pool>(pool: &P, i: u32, owner: Option<&ThreadEntry>) -> bool {
    let Some(header) = pool.header(i) else {
        return false;
    };
    let seen = header.state.load(Ordering::Relaxed);
    if seen as u32 != state::REVOKED {
        return false;
    }
    fence(Ordering::SeqCst);
    if owner.is_some_and(|o| o.capturing.load(Ordering::SeqCst) != 0) {
        return false;
    }
    header
        .state
        .compare_exchange(
            seen,
            state_word((seen >> 32) as u32, state::COMPLETE),
            Ordering::AcqRel,
            Ordering::Relaxed,
        )
        .is_ok()
}

/// Collector: the owner of this sub-buffer is dead. What it committed becomes complete; one that it
/// was setting up becomes free.
pub fn owner_died<P: Pool>(pool: &P, i: u32) {
    let Some(header) = pool.header(i) else {
        return;
    };
    let seen = header.state.load(Ordering::Acquire);
    match seen as u32 {
        state::WRITING | state::REVOKED => {
            let _ = header.state.compare_exchange(
                seen,
                state_word((seen >> 32) as u32, state::COMPLETE),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
        state::TAKING => free(header, seen),
        _ => {}
    }
}

/// How many sub-buffers are free.
pub fn free_count<P: Pool>(pool: &P) -> u32 {
    (0..pool.count())
        .filter_map(|i| pool.header(i))
        .filter(|h| h.state.load(Ordering::Relaxed) as u32 == state::FREE)
        .count() as u32
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests;
