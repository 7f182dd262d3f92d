//! Threads that wait for locks, who holds these, and deadlocks among them.
//!
//! A hook that waits for a lock publishes its address in the thread's entry; who holds the lock stands in the
//! lock itself, in the program's memory. A chain of waits that comes back to its begin is a deadlock for
//! certain if no wait of it ended while the owners were read: a thread that waits lets go of nothing.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use stackbeat_core::clock;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Pid, Tid, Upid, Utid};
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::layout::{ThreadEntry, entry_state, node_kind};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::registry;
use stackbeat_core::sync::{Ordering, fence};
use stackbeat_proto::v1::{self, packet};

use super::procfs;
use crate::host::Whose;
use crate::linux::remote_unwind::{self, Place, Process, Walker};
use crate::session::clocks::now_ns;
use crate::session::orders::Order;
use crate::session::protocol::{LockReply, LocksReply, ModuleReply};
use crate::session::shared::{Shared, count};

/// A deadlock is recorded once all of its threads have waited for so long: locks with a deadline get out by
/// themselves.
const DEADLOCK_NS: u64 = 100_000_000;

/// Processes whose memory is kept open.
const MOST_MEMORIES: usize = 64;

/// Waiting threads that a client gets.
const MOST_LISTED: usize = 500;

/// Offsets of the owner's tid in glibc's locks, 64-bit ABIs: `__owner` of <bits/struct_mutex.h>,
/// `__cur_writer` of <bits/struct_rwlock.h>.
const MUTEX_OWNER: u64 = 8;
const RWLOCK_WRITER: u64 = 24;

/// A thread that waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockWait {
    /// Index of its entry, and which wait of it this is.
    pub entry: u32,
    blocking_section: u32,
    begin: Cycles,
    pub utid: Utid,
    pub tid: Tid,
    /// Index of its process' entry.
    pub process: u32,
    pub pid: Pid,
    pub probe: Probe,
    pub lock: u64,
    /// 0: nobody holds it alone, or its memory may not be read.
    pub owner_tid: Tid,
}

impl LockWait {
    /// Whether the thread is still in this wait.
    fn goes_on(&self, mapping: &Mapping) -> bool {
        fence(Ordering::Acquire);
        mapping.thread(self.entry).is_some_and(|entry| {
            entry.utid() == self.utid
                && entry.blocking_section.load(Ordering::Relaxed) == self.blocking_section
                && entry.blocking_section_begin.load(Ordering::Relaxed) == self.begin
        })
    }

    /// How long it has waited, ns.
    pub(super) fn waited_ns(&self, shared: &Shared) -> u64 {
        let now = clock::now(shared.clock_source());
        shared.cycles_to_ns(now.saturating_sub(self.begin))
    }
}

/// Deadlocks that are remembered, so that each is recorded once.
const MOST_RECORDED: usize = 1024;

/// Reads locks in the memory of the session's processes.
#[derive(Debug)]
pub(crate) struct LockWaits {
    shared: Arc<Shared>,
    mapping_name: Vec<u8>,
    /// By upid; `None`: not ours to read.
    memories: HashMap<Upid, Option<File>>,
    /// Threads of deadlocks that are in the trace, with their waits.
    recorded: Vec<Vec<(Utid, Cycles)>>,
}

impl LockWaits {
    /// `mapping_name` is the file name of the session's mapping.
    pub(crate) fn new(shared: Arc<Shared>, mapping_name: &[u8]) -> LockWaits {
        LockWaits {
            shared,
            mapping_name: mapping_name.to_vec(),
            memories: HashMap::new(),
            recorded: Vec::new(),
        }
    }

    /// All threads that wait for a mutex or a rwlock now.
    pub(super) fn waits(&mut self) -> Vec<LockWait> {
        let shared = Arc::clone(&self.shared);
        registry::threads(&shared.mapping)
            .filter_map(|(index, entry)| self.wait(index, entry))
            .collect()
    }

    /// Those of the threads of these entries.
    fn waits_of(&mut self, entries: impl Iterator<Item = u32>) -> Vec<LockWait> {
        let shared = Arc::clone(&self.shared);
        entries
            .filter_map(|index| self.wait(index, shared.mapping.thread(index)?))
            .collect()
    }

    fn wait(&mut self, index: u32, entry: &ThreadEntry) -> Option<LockWait> {
        let blocking_section = entry.blocking_section.load(Ordering::Acquire);
        let (probe, owner_at) = lock_wait(entry)?;
        let shared = Arc::clone(&self.shared);
        let process = entry.process.load(Ordering::Relaxed);
        let of_process = shared.mapping.process(process)?;
        let mut wait = LockWait {
            entry: index,
            blocking_section,
            begin: entry.blocking_section_begin.load(Ordering::Relaxed),
            utid: entry.utid(),
            tid: entry.tid(),
            process,
            pid: of_process.pid(),
            probe,
            lock: entry.blocking_section_arg.load(Ordering::Relaxed),
            owner_tid: Tid(0),
        };
        let memory = self.memory(of_process.upid(), wait.pid);
        let mut owner = [0; 4];
        if memory.is_some_and(|m| {
            let at = wait.lock.wrapping_add(owner_at);
            m.read_exact_at(&mut owner, at).is_ok()
        }) {
            wait.owner_tid = Tid(u32::from_ne_bytes(owner));
        }
        wait.goes_on(&shared.mapping).then_some(wait)
    }

    fn memory(&mut self, upid: Upid, pid: Pid) -> Option<&File> {
        let name = &self.mapping_name;
        let open = || {
            // Numbers of another pid namespace are somebody else's here.
            let who = procfs::identify(pid, name, Pid(std::process::id()));
            (who == Whose::Ours)
                .then(|| remote_unwind::memory(pid).ok())
                .flatten()
        };
        self.memories.entry(upid).or_insert_with(open).as_ref()
    }

    /// Who waits for which lock, and where, for a client.
    pub(crate) fn reply(&mut self) -> LocksReply {
        let mut waits = self.waits();
        let deadlocks: Vec<Vec<usize>> = cycles(&waits)
            .into_iter()
            .filter(|cycle| {
                cycle
                    .iter()
                    .all(|i| waits[*i].goes_on(&self.shared.mapping))
            })
            .collect();
        waits.truncate(MOST_LISTED);
        let mut reply = LocksReply::default();
        let mut walker = Walker::default();
        let mut images: HashMap<u32, Option<Process>> = HashMap::new();
        for wait in &waits {
            let process = self.shared.mapping.process(wait.process);
            let upid = process.map(|process| process.upid());
            // Who is somebody else's has another process' number here.
            let is_ours = upid.is_some_and(|upid| self.memory(upid, wait.pid).is_some());
            let open = || Process::open(wait.pid, 0).ok().filter(|_| is_ours);
            let image = images.entry(wait.process).or_insert_with(open);
            let frames = image
                .as_ref()
                .and_then(|image| self.walk(&mut walker, image, wait));
            let comm = match is_ours {
                true => fs::read_to_string(format!("/proc/{}/task/{}/comm", wait.pid, wait.tid)),
                false => Ok(String::new()),
            };
            reply.waits.push(LockReply {
                pid: wait.pid.0,
                tid: wait.tid.0,
                name: comm.unwrap_or_default().trim_end().to_owned(),
                call: wait.probe.name().to_owned(),
                lock: wait.lock,
                owner_tid: wait.owner_tid.0,
                waited_ns: wait.waited_ns(&self.shared),
                frames: frames.unwrap_or_default(),
            });
            if let Some(image) = image {
                image.each_new_module(|module| {
                    reply.modules.push(ModuleReply {
                        pid: wait.pid.0,
                        path: module.path.clone(),
                        build_id: module.build_id.clone(),
                        start: module.start,
                        end: module.end,
                        bias: module.bias.0,
                    });
                });
            }
        }
        let is_listed = |cycle: &Vec<usize>| cycle.iter().all(|i| *i < waits.len());
        reply.deadlocks = deadlocks.into_iter().filter(is_listed).collect();
        reply
    }

    /// The frames of a thread that is still in this wait.
    fn walk(
        &self,
        walker: &mut Walker,
        image: &Process,
        wait: &LockWait,
    ) -> Option<Vec<(u64, bool)>> {
        let mapping = &self.shared.mapping;
        let entry = mapping.thread(wait.entry)?;
        let register = |i: usize| entry.registers[i].load(Ordering::Relaxed);
        let process = mapping.process(entry.process.load(Ordering::Relaxed));
        let place = Place {
            pc: register(0),
            sp: register(1),
            fp: register(2),
            high: entry.stack_high.load(Ordering::Relaxed),
            in_hook: true,
            tid: wait.tid,
            generated_code: process.map_or(0, |p| p.generated_code.load(Ordering::Acquire)),
            await_chains: false,
        };
        let depth = self.shared.depth_limit();
        // Without the methods of runtimes, which a client could not name.
        let stack = walker.walk(image, 0, &place, depth, None).ok()?;
        let frames = stack.frames.into_iter();
        let frames = frames.map(|(address, kind)| (address, kind == node_kind::LEAF_PC));
        wait.goes_on(mapping).then(|| frames.collect())
    }

    /// Writes the deadlocks among the threads of these entries into the trace, each once.
    pub(super) fn poll(&mut self, entries: impl Iterator<Item = u32>) {
        if self.memories.len() > MOST_MEMORIES {
            self.memories.clear();
        }
        let waits = self.waits_of(entries);
        let shared = Arc::clone(&self.shared);
        for cycle in cycles(&waits) {
            let members: Vec<&LockWait> = cycle.iter().map(|i| &waits[*i]).collect();
            let is_over = |wait: &&LockWait| {
                !wait.goes_on(&shared.mapping) || wait.waited_ns(&shared) < DEADLOCK_NS
            };
            if members.iter().any(is_over) {
                continue;
            }
            let mut key: Vec<_> = members.iter().map(|w| (w.utid, w.begin)).collect();
            key.sort_unstable();
            if self.recorded.contains(&key) {
                continue;
            }
            if self.recorded.len() >= MOST_RECORDED {
                self.recorded.clear();
            }
            self.recorded.push(key);
            count(&shared.figures.deadlocks, 1);
            let member = |wait: &&LockWait| v1::deadlock::Member {
                utid: wait.utid.0,
                probe: wait.probe as u32,
                lock: wait.lock,
            };
            let deadlock = packet::Body::Deadlock(v1::Deadlock {
                time_ns: now_ns(),
                member: members.iter().map(member).collect(),
            });
            shared.order(Order::Say(Box::new(deadlock)));
        }
    }
}

/// Whether the thread of this entry waits for a mutex or a rwlock.
pub(super) fn is_at_lock(entry: &ThreadEntry) -> bool {
    lock_wait(entry).is_some()
}

/// The wait for a lock that the thread is in, and where in the lock its owner's tid lies.
fn lock_wait(entry: &ThreadEntry) -> Option<(Probe, u64)> {
    let is_waiting = entry.blocking_section.load(Ordering::Acquire) % 2 == 1
        && entry.state.load(Ordering::Acquire) == entry_state::LIVE;
    let probe = Probe::from_number(entry.blocking_section_probe.load(Ordering::Relaxed) as u8)?;
    let owner_at = match probe {
        Probe::MutexLock => MUTEX_OWNER,
        Probe::RwlockRead | Probe::RwlockWrite => RWLOCK_WRITER,
        _ => return None,
    };
    is_waiting.then_some((probe, owner_at))
}

/// Waits in a circle, each for a lock that the next one's thread holds. Each thread waits for one lock only,
/// so each is in one circle at most.
pub(super) fn cycles(waits: &[LockWait]) -> Vec<Vec<usize>> {
    let of_tid: HashMap<Tid, usize> = waits.iter().enumerate().map(|(i, w)| (w.tid, i)).collect();
    let next = |i: usize| match waits[i].owner_tid {
        Tid(0) => None,
        tid => of_tid.get(&tid).copied(),
    };
    let mut found = Vec::new();
    // By which walk each was passed.
    let mut passed: Vec<Option<usize>> = vec![None; waits.len()];
    for first in 0..waits.len() {
        let mut at = Some(first);
        while let Some(i) = at
            && passed[i].is_none()
        {
            passed[i] = Some(first);
            at = next(i);
        }
        // Back where this walk has been, not where an earlier one was.
        if let Some(begin) = at
            && passed[begin] == Some(first)
        {
            let rest = std::iter::successors(next(begin), |i| next(*i));
            let mut cycle = vec![begin];
            cycle.extend(rest.take_while(|i| *i != begin));
            found.push(cycle);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(tid: Tid, owner_tid: Tid) -> LockWait {
        LockWait {
            entry: tid.0,
            blocking_section: 1,
            begin: Cycles(5),
            utid: Utid(tid.0),
            tid,
            process: 0,
            pid: Pid(1),
            probe: Probe::MutexLock,
            lock: 0x1000,
            owner_tid,
        }
    }

    fn tids(edges: &[(u32, u32)]) -> Vec<Vec<u32>> {
        let waits: Vec<_> = edges.iter().map(|(a, b)| wait(Tid(*a), Tid(*b))).collect();
        let mut found: Vec<Vec<u32>> = cycles(&waits)
            .into_iter()
            .map(|cycle| cycle.into_iter().map(|i| waits[i].tid.0).collect())
            .collect();
        found.iter_mut().for_each(|cycle| {
            let least = cycle.iter().enumerate().min_by_key(|(_, tid)| **tid);
            let least = least.map_or(0, |(i, _)| i);
            cycle.rotate_left(least);
        });
        found.sort();
        found
    }

    #[test]
    fn only_cycles_are_deadlocks() {
        // A long queue, and a lock that nobody holds.
        assert!(tids(&[(1, 2), (2, 3), (3, 9), (4, 2), (5, 0)]).is_empty());
        // Two threads, and others that wait for one of them.
        assert_eq!(tids(&[(5, 1), (1, 2), (2, 1), (4, 5)]), [[1, 2]]);
        // Three, in this order; and one that waits for what it holds itself.
        assert_eq!(
            tids(&[(3, 1), (7, 7), (1, 2), (2, 3)]),
            [vec![1, 2, 3], vec![7]]
        );
    }
}
