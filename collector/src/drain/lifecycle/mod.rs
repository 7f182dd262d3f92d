//! Who takes part: follows the registry, announces processes, threads and modules in the trace,
//! notices their ends, writes their totals, and gives their entries back for reuse.
//!
//! An end goes through three steps, so that nothing of a thread is lost or written twice:
//! `poll` notices it before sub-buffers are copied, `conclude` writes the totals once those are
//! stored, `release` frees the entry once the totals are.

mod ends;
mod entries;
mod records;
mod sandbox;
mod seed;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};

use stackbeat_core::clock::{Converter, Snapshot};
use stackbeat_core::ids::{Pid, Tid, Upid, Utid};
use stackbeat_core::shm::buffer::Drained;
use stackbeat_core::shm::layout::{ThreadEntry, drops, entry_state};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::record_format::TextKind;
use stackbeat_core::shm::registry;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::columns::{Rusage, SampleRow};
use stackbeat_proto::v1::{self, packet, process::Origin};

pub(crate) use seed::{Seed, SeedThread};

use super::Keep;
use super::crash::Crash;
use super::decode_record::Record;
use crate::host::{Host, Image, Watch, Whose, name_of_file};
use crate::writer::encode;
use stackbeat_symbolize::Modules;

/// Entries of threads that a poll goes through.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Changed<'a> {
    All,
    /// Those that have shown activity, twice each (`crate::session`, `activity`).
    Entries(&'a [u32]),
}

/// Counts of one stored sub-buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub stored: u64,
    pub samples: u64,
    pub damaged: u64,
}

/// A process image, live or over.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub entry: u32,
    pub packet: v1::Process,
    texts: BTreeMap<u32, Vec<u8>>,
    /// `None`: not opened, or the process was gone before we came.
    watch: Option<Box<dyn Watch>>,
    /// Its pid is one of another namespace: only its agent can tell that it has ended.
    is_foreign: bool,
    /// When the agent said so, ns.
    said_ended_ns: u64,
    dirty: bool,
    ended: bool,
    execed: bool,
    /// Bits of `sandboxed` that have been said.
    sandboxed: u32,
    end_ns: u64,
    live_threads: u32,
}

impl Process {
    fn upid(&self) -> Upid {
        Upid(self.packet.upid)
    }

    fn pid(&self) -> Pid {
        Pid(self.packet.pid)
    }
}

/// Whether an image took the place of another one in its process, which goes on with its main thread.
fn replaces_another(process: &v1::Process) -> bool {
    process.origin() == Origin::Execed
}

/// A thread, live or over.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    pub entry: u32,
    pub packet: v1::Thread,
    dirty: bool,
    /// Number of the record that comes next.
    next_record: u64,
    counts: (u64, u64, u64),
    last_cpu_ns: u64,
    last_ns: u64,
    rusage: Option<Rusage>,
    ended: bool,
    /// Its process ended, and with it the thread, wherever it was.
    was_cut_off: bool,
    /// Records that an earlier life of the trace stored.
    seeded: u64,
    /// Counted among the live threads of its process.
    is_counted: bool,
    /// Its runtime told its name, whatever the system calls it.
    has_own_name: bool,
    /// Polls from one reading of its name in /proc to the next.
    name_distance: u64,
    /// Records that it had written then.
    named_at: u64,
    /// Records written and lost as `Lifecycle::now` counts them.
    now: (u64, u64),
}

impl Thread {
    fn utid(&self) -> Utid {
        Utid(self.packet.utid)
    }

    fn tid(&self) -> Tid {
        Tid(self.packet.tid)
    }

    /// Of its process.
    fn upid(&self) -> Upid {
        Upid(self.packet.upid)
    }
}

/// A thread whose end is written.
#[derive(Clone, Copy, Debug)]
struct Concluded {
    entry: u32,
    utid: Utid,
    tid: Tid,
    upid: Upid,
}

/// When a program without an agent may have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since {
    pub ns: u64,
    /// It came after this image of its process, whenever that began; 0: none is known.
    pub image: Upid,
    /// And before this one; 0: none is known.
    pub until_image: Upid,
}

/// Sums over threads that are over, and those that the session knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub written: u64,
    pub stored: u64,
    /// Stored in an earlier life of the trace.
    pub seeded: u64,
    pub damaged: u64,
    pub drops: [u64; drops::COUNT],
    /// CPU time of the threads that are over.
    pub cpu_ns: u64,
    /// What their captures took, ns.
    pub capture_ns: u64,
}

impl Sums {
    /// Records that are known to be lost.
    pub(crate) fn lost(&self) -> u64 {
        self.drops[drops::BUFFER_FULL]
            .saturating_add(self.drops[drops::OVERWRITTEN])
            .saturating_add(self.damaged)
    }
}

/// The state of following a registry.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    processes: HashMap<Upid, Process>,
    threads: HashMap<Utid, Thread>,
    /// By entry, the process and the thread that were met there last. An entry is another one's only once it
    /// was freed.
    owners: (HashMap<u32, Upid>, HashMap<u32, Utid>),
    /// Entries and sub-buffers that named somebody else all the same: the program has written over them.
    pub contradictions: u64,
    /// By process, start and epoch: one address range can hold several modules in turn.
    modules: Modules,
    /// How many of them a process has.
    module_counts: HashMap<Upid, usize>,
    /// Processes whose agent is off in a sandbox: they run unrecorded.
    off: HashSet<Upid>,
    /// Images, by upid, that exec has replaced by a program without an agent.
    replaced: HashSet<Upid>,
    /// Images, by upid, after which a program without an agent was named: it is not one of those that were
    /// not seen.
    named: HashSet<Upid>,
    /// Pid and start of all processes so far, by upid.
    pids: BTreeMap<Upid, (Pid, u64)>,
    /// Threads whose entry was seen ended, by entry; their sub-buffers have no writer any more.
    dead_owners: HashSet<u32>,
    /// Threads whose entries are freed when what was said is stored.
    free_threads: Vec<Concluded>,
    /// (entry, utid), likewise.
    free_processes: Vec<(u32, Upid)>,
    /// Threads and processes whose end is in the trace.
    known_ends: HashSet<Utid>,
    ended_processes: HashSet<Upid>,
    /// By thread, when the last wait began that was seen from outside, ns.
    told_waits: HashMap<Utid, u64>,
    /// Processes whose end was written, or that were not there when a module of theirs was seen, and when
    /// that was, ns: they are remembered a little longer.
    remembered: VecDeque<(u64, Upid)>,
    out: Vec<u8>,
    packets: u64,
    /// Sums of the threads that are over.
    past: Sums,
    seed: Seed,
    /// Polls so far.
    polls: u64,
    /// When names are to be read: poll, thread.
    names: BinaryHeap<Reverse<(u64, Utid)>>,
    /// Threads of which there is something to say.
    dirty: Vec<Utid>,
    /// Threads that have ended, to be concluded.
    over: Vec<Utid>,
    /// A process has ended: its threads have, too.
    ends_threads: bool,
    /// Processes that crashed, and what they ran.
    crashes: Vec<(Crash, String)>,
    /// Records written and lost by those that live, when they were read.
    now: (u64, u64),
    /// When the registry was read last.
    now_ns: u64,
    /// The last sample of all.
    pub last_ns: u64,
    /// The end of the thread that has ended last, or was there when the session ended.
    pub last_end_ns: u64,
    /// Nobody is waited for any more.
    pub closing: bool,
    /// Images that exec replaced by a program that never reported and that nobody has named.
    pub not_hooked: u64,
    /// Status of the direct child, by pid.
    wait_status: Option<(Pid, i32)>,
    /// Processes, however many images each has had, and threads: a main thread goes on through exec.
    pub processes_seen: u32,
    pub threads_seen: u32,
    pub live_threads: u32,
    pub live_processes: u32,
    /// Whether pids mean anything: false for a mapping from before a reboot or of another machine.
    dead_world: bool,
}

/// A poll takes less; what is dated so far ahead of its begin is from the future, ns.
const FUTURE_NS: u64 = 10_000_000_000;

/// No counter of a thread comes to this: 2 years of CPU time in ns, 72 PB.
const MOST: u64 = 1 << 56;

/// A counter of the mapping; 0 for one that the program must have written over.
pub(crate) fn believed(count: u64) -> u64 {
    match count {
        0..MOST => count,
        _ => 0,
    }
}

/// A date of the mapping, ns; now for one from the future. The clocks of a dead world are not ours.
fn past_ns(ns: u64, now_ns: u64, dead_world: bool) -> u64 {
    match dead_world || ns <= now_ns.saturating_add(FUTURE_NS) {
        true => ns,
        false => now_ns,
    }
}

/// Adds a count from the mapping, which may be anything.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

/// Whether nobody runs under this entry.
pub(crate) fn is_over(entry: &ThreadEntry) -> bool {
    matches!(
        entry.state.load(Ordering::Acquire),
        entry_state::FREE | entry_state::ENDED
    )
}

impl Lifecycle {
    /// The program's own end, as `wait` gave it.
    pub(crate) fn set_wait_status(&mut self, pid: Pid, status: i32) {
        self.wait_status = Some((pid, status));
    }

    /// Processes that crashed since the last call, and what they ran.
    pub(crate) fn take_crashes(&mut self) -> Vec<(Crash, String)> {
        std::mem::take(&mut self.crashes)
    }

    /// Queues a packet for the next flush.
    pub(crate) fn say(&mut self, body: packet::Body) {
        encode(body, &mut self.out);
        self.packets += 1;
    }

    /// The queued packets. They stay queued until [`Lifecycle::heard`].
    pub(crate) fn said(&mut self) -> (Vec<u8>, u64) {
        let mut bodies = Vec::new();
        for process in self.processes.values_mut().filter(|p| p.dirty) {
            process.dirty = false;
            bodies.push(packet::Body::Process(process.packet.clone()));
        }
        for utid in std::mem::take(&mut self.dirty) {
            if let Some(thread) = self.threads.get_mut(&utid).filter(|t| t.dirty) {
                thread.dirty = false;
                bodies.push(packet::Body::Thread(thread.packet.clone()));
            }
        }
        for body in bodies {
            self.say(body);
        }
        (self.out.clone(), self.packets)
    }

    /// What was said is stored.
    pub(crate) fn heard(&mut self) {
        self.out.clear();
        self.packets = 0;
    }

    pub(crate) fn next_record(&self, utid: Utid) -> u64 {
        self.threads.get(&utid).map_or(0, |t| t.next_record)
    }

    pub(crate) fn is_dead_owner(&self, entry: u32) -> bool {
        self.dead_owners.contains(&entry)
    }

    /// Sums over the threads that are over.
    pub(crate) fn past(&self) -> &Sums {
        &self.past
    }

    /// The sums over all threads, those that live included.
    pub(crate) fn sums(&self, mapping: &Mapping) -> Sums {
        let mut sums = self.past.clone();
        for thread in self.threads.values() {
            let Some(entry) = mapping.thread(thread.entry) else {
                continue;
            };
            let written = believed(entry.records.load(Ordering::Relaxed));
            add(&mut sums.written, written.max(thread.next_record));
            sums.stored += thread.counts.0;
            sums.seeded += thread.seeded;
            sums.damaged += thread.counts.2;
            for (sum, count) in sums.drops.iter_mut().zip(&entry.drops) {
                add(sum, believed(count.load(Ordering::Relaxed)));
            }
        }
        sums
    }

    /// Records written and lost so far, by threads that live as they were when they were read last.
    pub(crate) fn written_and_lost(&self) -> (u64, u64) {
        (
            self.past.written.saturating_add(self.now.0),
            self.past.lost().saturating_add(self.now.1),
        )
    }

    /// The pids of all processes that are remembered, by upid.
    pub(crate) fn pids(&self) -> impl Iterator<Item = (Upid, Pid)> {
        self.pids.iter().map(|(upid, (pid, _))| (*upid, *pid))
    }

    /// A wait of a thread is in the trace already.
    pub(crate) fn tells_wait(&mut self, utid: Utid, begin_ns: u64) {
        if !self.known_ends.contains(&utid) {
            self.told_waits.insert(utid, begin_ns);
        }
    }

    /// The pid of a process that is remembered.
    pub(crate) fn pid(&self, upid: Upid) -> Option<Pid> {
        self.pids.get(&upid).map(|(pid, _)| *pid)
    }

    /// Whether an agent was in a program that was seen without one: the process' last image until its end has
    /// an agent, and did not begin before that program may have.
    pub(crate) fn has_met(&self, pid: Pid, since: Since, end_ns: u64) -> bool {
        // A poll from outside may come later than the agent, and the clocks differ by their conversion.
        const TOLERANCE_NS: u64 = 1_000_000;
        self.last_image(pid, end_ns, since.until_image)
            .is_some_and(|(upid, start_ns)| {
                upid > since.image
                    && start_ns + TOLERANCE_NS >= since.ns
                    && !self.off.contains(&upid)
                    && !self.is_replaced(upid)
            })
    }

    /// The last image of a process that an agent was in, that began until `end_ns` and that came before
    /// `until_image` (0: it lives on), and when it began.
    fn last_image(&self, pid: Pid, end_ns: u64, until_image: Upid) -> Option<(Upid, u64)> {
        let until_image = match until_image {
            Upid(0) => Upid(u32::MAX),
            upid => upid,
        };
        let mut images = self.pids.range(..until_image).rev();
        let (upid, (_, start_ns)) = images
            .find(|(_, (met, start_ns))| *met == pid && (end_ns == 0 || *start_ns <= end_ns))?;
        Some((*upid, *start_ns))
    }

    /// A program that ran without an agent under this pid until `end_ns` (0: it lives on) is named.
    pub(crate) fn name(&mut self, pid: Pid, since: Since, end_ns: u64) {
        let Some((upid, _)) = self.last_image(pid, end_ns, since.until_image) else {
            return;
        };
        // It may end, and be counted, later.
        if self.is_replaced(upid) && self.named.insert(upid) && self.replaced.contains(&upid) {
            self.not_hooked -= 1;
        }
    }

    /// Whether an exec has replaced an image, by a program without an agent as far as is known.
    fn is_replaced(&self, upid: Upid) -> bool {
        self.replaced.contains(&upid) || self.processes.get(&upid).is_some_and(|p| p.execed)
    }

    /// The modules of all processes that are remembered.
    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }
}
