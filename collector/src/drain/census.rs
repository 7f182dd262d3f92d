//! Who takes part: follows the registry, announces processes, threads and modules in the trace,
//! notices their ends, writes their totals, and gives their entries back for reuse.
//!
//! An end goes through three steps, so that nothing of a thread is lost or written twice:
//! `look` notices it before sub-buffers are copied, `conclude` writes the totals once those are
//! stored, `release` frees the entry once the totals are.

use std::collections::{BTreeMap, HashMap, HashSet};

use stackbeat_core::buffer::Drained;
use stackbeat_core::clock::{Converter, Snapshot};
use stackbeat_core::layout::{ThreadEntry, entry_state, loss};
use stackbeat_core::mapping::Mapping;
use stackbeat_core::record::TextKind;
use stackbeat_core::registry;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::columns::{Rusage, SampleRow};
use stackbeat_proto::v1::{self, packet, process::Origin};

use super::Keep;
use super::decode::Record;
use crate::session::procfs::{self, Identity};
use crate::writer::encode;

/// Longest text that an agent may tell in parts (a command line).
const MAX_TEXT_BYTES: usize = 1 << 20;

/// How long after its agent's last word a process is taken for dead whose pid says nothing.
const FOREIGN_END_NS: u64 = 2_000_000_000;

/// How long after an exec the next image of a process may keep silent before it is taken for one that
/// cannot be seen.
const EXEC_NS: u64 = 1_000_000_000;

/// Names of threads read from /proc in one look: a burst of threads must not hold up draining.
const NAMES_PER_LOOK: u32 = 256;

/// Counts of one stored sub-buffer.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pub stored: u64,
    pub samples: u64,
    pub damaged: u64,
}

/// A process image, live or over.
#[derive(Debug, Default)]
pub struct Process {
    pub entry: u32,
    pub packet: v1::Process,
    texts: BTreeMap<u32, Vec<u8>>,
    /// `None`: not opened, or the process was gone before we came.
    watch: Option<procfs::Watch>,
    /// Its pid is one of another namespace: only its agent can tell that it has ended.
    is_foreign: bool,
    /// When the agent said so, ns.
    said_ended_ns: u64,
    dirty: bool,
    ended: bool,
    execed: bool,
    end_ns: u64,
    live_threads: u32,
}

/// A thread, live or over.
#[derive(Debug, Default)]
pub struct Thread {
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
    /// Records below were dealt with in an earlier life of the trace.
    seed_end: u64,
    /// Looked for its name in /proc so often.
    name_reads: u32,
}

/// A thread as a partial trace knows it.
#[derive(Debug, Default)]
pub struct SeedThread {
    pub packet: v1::Thread,
    pub end: Option<v1::ThreadEnd>,
    /// Records below are in the trace or lost.
    pub next_record: u64,
    pub losses: [u64; loss::COUNT],
    pub cpu_ns: u64,
    pub last_ns: u64,
    pub rusage: Option<Rusage>,
}

/// What a partial trace holds.
#[derive(Debug, Default)]
pub struct Seed {
    pub processes: HashMap<u32, v1::Process>,
    pub ended_processes: HashSet<u32>,
    threads: HashMap<u32, SeedThread>,
    pub modules: BTreeMap<(u32, u64, u32), v1::Module>,
    pub events: HashSet<(u32, u64, String)>,
}

impl Seed {
    /// The thread with this uid.
    pub fn thread(&mut self, uid: u32) -> &mut SeedThread {
        self.threads.entry(uid).or_default()
    }
}

/// Sums over threads that are over, and those that the session knows.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub written: u64,
    pub stored: u64,
    /// Stored in an earlier life of the trace.
    pub seeded: u64,
    pub damaged: u64,
    pub losses: [u64; loss::COUNT],
}

impl Sums {
    /// Records that are known to be lost.
    pub fn lost(&self) -> u64 {
        self.losses[loss::BUFFER_FULL] + self.losses[loss::OVERWRITTEN] + self.damaged
    }
}

/// The state of following a registry.
#[derive(Debug, Default)]
pub struct Census {
    processes: HashMap<u32, Process>,
    threads: HashMap<u32, Thread>,
    /// By process, start and epoch: one address range can hold several modules in turn.
    modules: BTreeMap<(u32, u64, u32), v1::Module>,
    /// By uid, of all processes so far.
    pids: BTreeMap<u32, u32>,
    /// Threads whose entry was seen ended, by entry; their sub-buffers have no writer any more.
    dead_owners: HashSet<u32>,
    /// (entry, uid) to free when what was said is stored.
    free_threads: Vec<(u32, u32)>,
    free_processes: Vec<(u32, u32)>,
    /// Threads and processes whose end is in the trace.
    known_ends: HashSet<u32>,
    ended_processes: HashSet<u32>,
    out: Vec<u8>,
    packets: u64,
    /// Sums of the threads that are over.
    past: Sums,
    seed: Seed,
    /// File name of the mapping and pid of the program: they tell whose pids are ours.
    mapping_name: Vec<u8>,
    first_pid: u32,
    /// Names that this look may still read.
    name_budget: u32,
    /// When the registry was looked at last.
    now_ns: u64,
    /// The last sample of all.
    pub last_ns: u64,
    /// Nobody is waited for any more.
    pub closing: bool,
    /// Images that exec replaced by a program that never reported.
    pub not_hooked: u64,
    /// Status of the direct child, by pid.
    wait_status: Option<(u32, i32)>,
    pub processes_seen: u32,
    pub threads_seen: u32,
    pub live_threads: u32,
    pub live_processes: u32,
    /// Whether pids mean anything: false for a mapping from before a reboot or of another machine.
    dead_world: bool,
}

/// Whether nobody runs under this entry.
pub fn is_over(entry: &ThreadEntry) -> bool {
    matches!(
        entry.state.load(Ordering::Acquire),
        entry_state::FREE | entry_state::ENDED
    )
}

impl Census {
    /// A census over a mapping whose processes are all taken for dead, after a partial trace.
    pub fn of_the_dead(mut seed: Seed) -> Census {
        let mut census = Census {
            dead_world: true,
            ended_processes: std::mem::take(&mut seed.ended_processes),
            modules: std::mem::take(&mut seed.modules),
            processes_seen: seed.processes.len() as u32,
            ..Default::default()
        };
        for (uid, process) in &seed.processes {
            census.pids.insert(*uid, process.pid);
        }
        for (uid, thread) in &seed.threads {
            census.last_ns = census.last_ns.max(thread.last_ns);
            if let Some(end) = &thread.end {
                census.known_ends.insert(*uid);
                let past = &mut census.past;
                let lost = thread.losses[loss::BUFFER_FULL] + thread.losses[loss::OVERWRITTEN];
                past.written += end.records_written;
                past.seeded += end.records_written.saturating_sub(lost);
            }
            for (sum, count) in census.past.losses.iter_mut().zip(&thread.losses) {
                *sum += if thread.end.is_some() { *count } else { 0 };
            }
        }
        seed.threads
            .retain(|uid, thread| *uid != 0 && thread.end.is_none());
        census.threads_seen = census.known_ends.len() as u32;
        census.seed = seed;
        census
    }

    /// Whether a partial trace holds this event already.
    pub fn event_is_known(&self, event: &v1::Event) -> bool {
        !self.seed.events.is_empty()
            && self
                .seed
                .events
                .contains(&(event.thread_uid, event.time_ns, event.name.clone()))
    }

    /// A census of a session that is about to begin: pids from here on are the program's.
    pub fn of_session(mapping_name: &[u8]) -> Census {
        Census {
            mapping_name: mapping_name.to_vec(),
            first_pid: std::process::id(),
            ..Default::default()
        }
    }

    /// The program's own end, as `wait` gave it.
    pub fn set_wait_status(&mut self, pid: u32, status: i32) {
        self.wait_status = Some((pid, status));
    }

    /// Queues a packet for the next flush.
    pub fn say(&mut self, body: packet::Body) {
        encode(body, &mut self.out);
        self.packets += 1;
    }

    pub fn has_nothing_to_say(&self) -> bool {
        self.out.is_empty() && !self.anybody_dirty()
    }

    fn anybody_dirty(&self) -> bool {
        self.processes.values().any(|p| p.dirty) || self.threads.values().any(|t| t.dirty)
    }

    /// The queued packets. They stay queued until [`Census::heard`].
    pub fn said(&mut self) -> (Vec<u8>, u64) {
        let mut bodies = Vec::new();
        for process in self.processes.values_mut().filter(|p| p.dirty) {
            process.dirty = false;
            bodies.push(packet::Body::Process(process.packet.clone()));
        }
        for thread in self.threads.values_mut().filter(|t| t.dirty) {
            thread.dirty = false;
            bodies.push(packet::Body::Thread(thread.packet.clone()));
        }
        for body in bodies {
            self.say(body);
        }
        (self.out.clone(), self.packets)
    }

    /// What was said is stored.
    pub fn heard(&mut self) {
        self.out.clear();
        self.packets = 0;
    }

    pub fn next_record(&self, thread_uid: u32) -> u64 {
        self.threads.get(&thread_uid).map_or(0, |t| t.next_record)
    }

    pub fn is_dead_owner(&self, entry: u32) -> bool {
        self.dead_owners.contains(&entry)
    }

    /// Goes through the registry: newcomers, and ends.
    pub fn look(&mut self, mapping: &Mapping, converter: &Converter, now: &Snapshot) {
        self.name_budget = NAMES_PER_LOOK;
        self.now_ns = now.monotonic_ns;
        self.look_at_processes(mapping, converter, now);
        self.look_at_threads(mapping, converter, now);
        self.live_processes = self.processes.values().filter(|p| !p.ended).count() as u32;
    }

    fn look_at_processes(&mut self, mapping: &Mapping, converter: &Converter, now: &Snapshot) {
        let mut images: HashMap<u32, u32> = HashMap::new();
        for (i, entry) in registry::processes(mapping) {
            let state = entry.state.load(Ordering::Acquire);
            if matches!(state, entry_state::FREE | entry_state::CLAIMED) {
                continue;
            }
            let uid = entry.uid.load(Ordering::Relaxed);
            if self.ended_processes.contains(&uid) {
                continue;
            }
            let known = self.processes.entry(uid).or_insert_with(|| {
                if let Some(packet) = self.seed.processes.remove(&uid) {
                    return Process {
                        entry: i,
                        packet,
                        ..Default::default()
                    };
                }
                self.processes_seen += 1;
                let pid = entry.pid.load(Ordering::Relaxed);
                self.pids.insert(uid, pid);
                let is_foreign = !self.dead_world
                    && procfs::identify(pid, &self.mapping_name, self.first_pid)
                        == Identity::Foreign
                    && entry.state.load(Ordering::Acquire) == entry_state::LIVE;
                if is_foreign {
                    return Process {
                        entry: i,
                        packet: v1::Process {
                            uid,
                            pid,
                            parent_uid: entry.parent_uid.load(Ordering::Relaxed),
                            start_ns: converter.to_ns(entry.start_cycles.load(Ordering::Relaxed)),
                            ..Default::default()
                        },
                        dirty: true,
                        is_foreign,
                        ..Default::default()
                    };
                }
                Process {
                    entry: i,
                    packet: v1::Process {
                        uid,
                        pid,
                        parent_pid: entry.parent_pid.load(Ordering::Relaxed),
                        parent_uid: entry.parent_uid.load(Ordering::Relaxed),
                        start_ns: converter.to_ns(entry.start_cycles.load(Ordering::Relaxed)),
                        command_line: procfs::command_line(pid),
                        executable: procfs::executable(pid),
                        origin: Origin::try_from(entry.origin.load(Ordering::Relaxed) as i32)
                            .unwrap_or(Origin::Started)
                            .into(),
                        ..Default::default()
                    },
                    watch: procfs::Watch::open(pid),
                    dirty: true,
                    ..Default::default()
                }
            });
            known.execed |= state == entry_state::EXECED;
            if state != entry_state::LIVE && known.said_ended_ns == 0 {
                known.said_ended_ns = now.monotonic_ns;
            }
            let newest = images.entry(known.packet.pid).or_default();
            *newest = uid.max(*newest);
        }
        for process in self.processes.values_mut().filter(|p| !p.ended) {
            let is_dead = self.dead_world
                || match &process.watch {
                    // Its other threads may run on for a moment after its agent's last word.
                    _ if process.is_foreign => {
                        process.said_ended_ns != 0
                            && now.monotonic_ns - process.said_ended_ns > FOREIGN_END_NS
                    }
                    Some(watch) => watch.has_ended(),
                    None => !procfs::exists(process.packet.pid),
                };
            // An image that exec replaced is over when the next one has reported; one that is no
            // program of ours never does, and the end of the process ends both.
            let is_replaced = process.execed
                && images
                    .get(&process.packet.pid)
                    .is_some_and(|newest| *newest > process.packet.uid);
            if !is_dead && !is_replaced {
                continue;
            }
            // The image after an exec takes a moment to report.
            let is_fresh = now.monotonic_ns - process.said_ended_ns < EXEC_NS;
            if process.execed && !is_replaced && is_fresh && !self.closing && !self.dead_world {
                continue;
            }
            process.ended = true;
            process.watch = None;
            self.not_hooked += u64::from(process.execed && !is_replaced);
            process.execed &= is_replaced;
            let end_cycles = mapping
                .process(process.entry)
                .map_or(0, |e| e.end_cycles.load(Ordering::Relaxed));
            process.end_ns = match end_cycles {
                0 if self.dead_world => 0,
                0 => now.monotonic_ns,
                cycles => converter.to_ns(cycles),
            };
        }
    }

    fn look_at_threads(&mut self, mapping: &Mapping, converter: &Converter, now: &Snapshot) {
        self.live_threads = 0;
        for process in self.processes.values_mut() {
            process.live_threads = 0;
        }
        for (i, entry) in registry::threads(mapping) {
            let state = entry.state.load(Ordering::Acquire);
            if matches!(state, entry_state::FREE | entry_state::CLAIMED) {
                continue;
            }
            let uid = entry.uid.load(Ordering::Relaxed);
            if self.known_ends.contains(&uid) {
                continue;
            }
            if !self.threads.contains_key(&uid) {
                let process = entry.process.load(Ordering::Relaxed);
                let process_uid = mapping
                    .process(process)
                    .map_or(0, |p| p.uid.load(Ordering::Relaxed));
                self.meet(uid, i, process_uid, entry, converter);
            }
            let Some(thread) = self.threads.get_mut(&uid) else {
                continue;
            };
            let Some(process) = self.processes.get_mut(&thread.packet.process_uid) else {
                continue;
            };
            process.live_threads += 1;
            if state == entry_state::LIVE && process.ended {
                let end = if self.dead_world { 0 } else { now.cycles };
                registry::end_thread(entry, end);
            }
            if entry.state.load(Ordering::Acquire) == entry_state::ENDED {
                thread.ended = true;
                self.dead_owners.insert(i);
            } else {
                self.live_threads += 1;
                if self.name_budget > 0 && thread.read_name(process.packet.pid) {
                    self.name_budget -= 1;
                }
            }
        }
    }

    /// A thread that was not known: from the registry, or (its entry is gone) from a sub-buffer.
    fn meet(
        &mut self,
        uid: u32,
        index: u32,
        process_uid: u32,
        entry: &ThreadEntry,
        converter: &Converter,
    ) {
        self.threads_seen += 1;
        let start = entry.start_cycles.load(Ordering::Relaxed);
        let pid = self.processes.get(&process_uid).map_or(0, |p| p.packet.pid);
        let tid = entry.tid.load(Ordering::Relaxed);
        let mut thread = Thread {
            entry: index,
            packet: v1::Thread {
                uid,
                process_uid,
                tid,
                is_main: tid == pid,
                start_ns: converter.to_ns(start),
                creator_uid: entry.creator_uid.load(Ordering::Relaxed),
                creator_node: entry.creator_node.load(Ordering::Relaxed),
                ..Default::default()
            },
            dirty: true,
            ..Default::default()
        };
        if let Some(seed) = self.seed.threads.remove(&uid) {
            if seed.packet.uid == uid {
                thread.packet = seed.packet;
                thread.dirty = false;
            }
            thread.next_record = seed.next_record;
            thread.seed_end = seed.next_record;
            thread.last_cpu_ns = seed.cpu_ns;
            thread.last_ns = seed.last_ns;
            thread.rusage = seed.rusage;
        }
        self.threads.insert(uid, thread);
    }

    /// A sub-buffer names its thread: known by now, unless memory was damaged.
    pub fn note_thread(&mut self, mapping: &Mapping, drained: &Drained, converter: &Converter) {
        let uid = drained.thread_uid;
        if self.threads.contains_key(&uid) || self.known_ends.contains(&uid) {
            return;
        }
        if let Some(entry) = mapping.thread(drained.owner) {
            self.meet(
                drained.thread_uid,
                drained.owner,
                drained.process_uid,
                entry,
                converter,
            );
        }
    }

    /// The last sample so far of a thread.
    pub fn note_sample(&mut self, thread_uid: u32, row: &SampleRow) {
        if let Some(thread) = self.threads.get_mut(&thread_uid) {
            thread.last_cpu_ns = thread.last_cpu_ns.max(row.cpu_ns);
            thread.last_ns = thread.last_ns.max(row.time_ns);
            self.last_ns = self.last_ns.max(row.time_ns);
            if row.rusage.is_some() {
                thread.rusage = row.rusage;
            }
        }
    }

    /// A module's path as the program gave it to the dynamic linker may be relative to where the program
    /// was then; the kernel knows the whole.
    fn absolute(&self, process_uid: u32, path: String, start: u64) -> String {
        if path.starts_with(['/', '[']) || path.is_empty() {
            return path;
        }
        self.processes
            .get(&process_uid)
            .and_then(|process| procfs::mapped_file(process.packet.pid, start))
            // By now something else may lie there.
            .filter(|found| found.rsplit('/').next() == path.rsplit('/').next())
            .or_else(|| {
                let from_here = std::env::current_dir().ok()?.join(&path);
                from_here
                    .canonicalize()
                    .ok()?
                    .into_os_string()
                    .into_string()
                    .ok()
            })
            .unwrap_or(path)
    }

    /// A record that says something about a thread or its process. Saying it again changes nothing.
    pub fn take(&mut self, drained: &Drained, record: Record) {
        match record {
            Record::Module {
                start,
                end,
                bias,
                epoch,
                path,
                build_id,
            } => {
                let path = self.absolute(drained.process_uid, path, start);
                let module = v1::Module {
                    process_uid: drained.process_uid,
                    epoch,
                    end_epoch: 0,
                    path,
                    build_id,
                    start,
                    end,
                    bias,
                };
                let key = (drained.process_uid, start, epoch);
                let is_known = self.modules.get(&key).is_some_and(|known| {
                    v1::Module {
                        end_epoch: 0,
                        ..known.clone()
                    } == module
                });
                if !is_known {
                    self.modules.insert(key, module.clone());
                    self.say(packet::Body::Module(module));
                }
            }
            Record::ModuleGone { start, epoch } => {
                let process = drained.process_uid;
                // What came in its place has this epoch, and may have been announced before.
                let there = (process, start, 0)..(process, start, epoch);
                if let Some((_, module)) = self.modules.range_mut(there).next_back()
                    && module.end_epoch == 0
                {
                    module.end_epoch = epoch;
                    let gone = module.clone();
                    self.say(packet::Body::Module(gone));
                }
            }
            Record::Name(name) => {
                if let Some(thread) = self.threads.get_mut(&drained.thread_uid)
                    && thread.packet.name != name
                {
                    thread.packet.name = name;
                    thread.dirty = true;
                }
            }
            Record::Text {
                kind,
                offset,
                bytes,
            } => {
                if let Some(process) = self.processes.get_mut(&drained.process_uid) {
                    process.take_text(kind, offset, &bytes);
                }
            }
            Record::Sample(_) | Record::Mark { .. } | Record::Unknown => {}
        }
    }

    /// Records of a thread up to `end` are in the trace, or known to be lost.
    pub fn stored(&mut self, thread_uid: u32, end: u64, counts: &Counts) {
        if let Some(thread) = self.threads.get_mut(&thread_uid) {
            thread.next_record = thread.next_record.max(end);
            thread.counts.0 += counts.stored;
            thread.counts.1 += counts.samples;
            thread.counts.2 += counts.damaged;
        } else {
            // Its totals are written already: a ring that is stored after its threads' ends.
            self.past.stored += counts.stored;
            self.past.damaged += counts.damaged;
        }
    }

    /// Writes the totals of threads and processes that are over.
    pub fn conclude(&mut self, mapping: &Mapping, converter: &Converter) {
        let mut over: Vec<u32> = self
            .threads
            .iter()
            .filter(|(_, t)| t.ended)
            .map(|(uid, _)| *uid)
            .collect();
        over.sort_unstable();
        for uid in over {
            if let Some(thread) = self.threads.remove(&uid) {
                self.end_thread(mapping, converter, &thread, true);
                self.dead_owners.remove(&thread.entry);
                self.known_ends.insert(uid);
                self.free_threads.push((thread.entry, uid));
                if let Some(p) = self.processes.get_mut(&thread.packet.process_uid) {
                    p.live_threads = p.live_threads.saturating_sub(1);
                }
            }
        }
        let over: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, p)| p.ended && p.live_threads == 0)
            .map(|(uid, _)| *uid)
            .collect();
        for uid in over {
            if let Some(process) = self.processes.remove(&uid) {
                self.ended_processes.insert(uid);
                self.free_processes.push((process.entry, uid));
                self.say(packet::Body::ProcessEnd(v1::ProcessEnd {
                    uid,
                    // Not known to have ended by itself: the last sign of life of all.
                    end_ns: match process.end_ns {
                        0 => self.last_ns,
                        known => known,
                    },
                    wait_status: self
                        .wait_status
                        .filter(|(pid, _)| *pid == process.packet.pid && !process.execed)
                        .map(|(_, status)| status),
                    execed: process.execed,
                }));
            }
        }
    }

    /// Writes what is known of those that live on when the session ends.
    pub fn conclude_living(&mut self, mapping: &Mapping, converter: &Converter) {
        let threads = std::mem::take(&mut self.threads);
        for thread in threads.values() {
            self.end_thread(mapping, converter, thread, false);
        }
    }

    /// Writes the ends of threads that a partial trace knows and the mapping does not.
    pub fn conclude_unmet(&mut self) {
        for (uid, thread) in std::mem::take(&mut self.seed.threads) {
            let lost = thread.losses[loss::BUFFER_FULL] + thread.losses[loss::OVERWRITTEN];
            self.past.written += thread.next_record;
            self.past.seeded += thread.next_record.saturating_sub(lost);
            self.threads_seen += 1;
            self.say(packet::Body::ThreadEnd(v1::ThreadEnd {
                uid,
                end_ns: thread.last_ns,
                cpu_ns: thread.cpu_ns,
                records_written: thread.next_record,
                ..Default::default()
            }));
        }
    }

    /// Sums over the threads that are over.
    pub fn past(&self) -> &Sums {
        &self.past
    }

    fn end_thread(
        &mut self,
        mapping: &Mapping,
        converter: &Converter,
        thread: &Thread,
        exited: bool,
    ) {
        let Some(entry) = mapping.thread(thread.entry) else {
            return;
        };
        if thread.dirty {
            self.say(packet::Body::Thread(thread.packet.clone()));
        }
        let get = |word: &stackbeat_core::sync::AtomicU64| word.load(Ordering::Relaxed);
        // A thread that is killed between committing a record and counting it has one more.
        let written = get(&entry.records).max(thread.next_record);
        self.past.written += written;
        self.past.stored += thread.counts.0;
        self.past.seeded += thread.seeded(entry);
        self.past.damaged += thread.counts.2;
        let rusage = thread.rusage;
        let usage = |get: fn(&Rusage) -> u64| rusage.as_ref().map_or(0, get);
        self.say(packet::Body::ThreadEnd(v1::ThreadEnd {
            uid: thread.packet.uid,
            end_ns: match get(&entry.end_cycles) {
                // Killed: in a mapping that was found later, its last sign of life is all there is.
                0 if self.dead_world => thread.last_ns.max(thread.packet.start_ns),
                0 => self.now_ns,
                cycles => converter.to_ns(cycles),
            },
            exited,
            cpu_ns: get(&entry.cpu_ns).max(thread.last_cpu_ns),
            allocations: get(&entry.allocations),
            allocated_bytes: get(&entry.allocated_bytes),
            frees: get(&entry.frees),
            records_written: written,
            minor_faults: usage(|r| r.minor_faults),
            major_faults: usage(|r| r.major_faults),
            voluntary_switches: usage(|r| r.voluntary_switches),
            involuntary_switches: usage(|r| r.involuntary_switches),
        }));
        for (cause, count) in entry.losses.iter().enumerate() {
            let count = get(count);
            if count > 0 {
                self.past.losses[cause] += count;
                self.say(packet::Body::Loss(v1::Loss {
                    thread_uid: thread.packet.uid,
                    cause: cause as i32,
                    count,
                }));
            }
        }
    }

    /// What was concluded is stored: its entries may be used again. Where records are kept, some of
    /// these threads may come later: their ends stay known.
    pub fn release(&mut self, mapping: &Mapping, keep: Keep) {
        for (entry, uid) in self.free_threads.drain(..) {
            registry::free_thread(mapping, entry);
            if keep == Keep::Nothing {
                self.known_ends.remove(&uid);
            }
        }
        for (entry, uid) in self.free_processes.drain(..) {
            if let Some(entry) = mapping.process(entry) {
                // A process killed without a word is still marked as live.
                registry::end_process(entry, entry.end_cycles.load(Ordering::Relaxed), false);
                registry::free_process(entry);
            }
            if keep == Keep::Nothing {
                self.ended_processes.remove(&uid);
            }
        }
    }

    /// The sums over all threads, those that live included.
    pub fn sums(&self, mapping: &Mapping) -> Sums {
        let mut sums = self.past.clone();
        for thread in self.threads.values() {
            let Some(entry) = mapping.thread(thread.entry) else {
                continue;
            };
            sums.written += entry
                .records
                .load(Ordering::Relaxed)
                .max(thread.next_record);
            sums.stored += thread.counts.0;
            sums.seeded += thread.seeded(entry);
            sums.damaged += thread.counts.2;
            for (sum, count) in sums.losses.iter_mut().zip(&entry.losses) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        sums
    }

    /// Processes that were not seen to end.
    pub fn living(&self) -> impl Iterator<Item = &Process> {
        self.processes.values().filter(|p| !p.ended)
    }

    /// The pids of all processes so far, by uid.
    pub fn pids(&self) -> impl Iterator<Item = (u32, u32)> {
        self.pids.iter().map(|(uid, pid)| (*uid, *pid))
    }

    /// The modules so far.
    pub fn modules(&self) -> impl Iterator<Item = &v1::Module> {
        self.modules.values()
    }
}

impl Process {
    fn take_text(&mut self, kind: u32, offset: usize, bytes: &[u8]) {
        let text = self.texts.entry(kind).or_default();
        let end = offset.saturating_add(bytes.len());
        if end > MAX_TEXT_BYTES {
            return;
        }
        if text.len() < end {
            text.resize(end, 0);
        }
        text[offset..end].copy_from_slice(bytes);
        let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if kind == TextKind::Executable as u32 {
            self.packet.executable = read(text);
        } else if kind == TextKind::CommandLine as u32 {
            let text = text.strip_suffix(b"\0").unwrap_or(text);
            self.packet.command_line = text.split(|b| *b == 0).map(read).collect();
        } else if kind == TextKind::Capability as u32 {
            let said = read(bytes);
            if !self.packet.capabilities.contains(&said) {
                self.packet.capabilities.push(said);
            }
        }
        self.dirty = true;
    }
}

impl Thread {
    /// Records that an earlier life of the trace stored: those before its end, less the lost ones
    /// that did not come later.
    fn seeded(&self, entry: &ThreadEntry) -> u64 {
        let load = |cause: usize| entry.losses[cause].load(Ordering::Relaxed);
        let lost = load(loss::BUFFER_FULL);
        let written = entry.records.load(Ordering::Relaxed).max(self.next_record);
        let lost_later = (written - self.seed_end).saturating_sub(self.counts.0);
        self.seed_end
            .saturating_sub(lost.saturating_sub(lost_later))
    }

    /// Looks for the name that the thread has given itself, at first sight and at growing distances.
    /// False when it was not the time.
    fn read_name(&mut self, pid: u32) -> bool {
        self.name_reads = self.name_reads.saturating_add(1);
        if !self.name_reads.is_power_of_two() && !self.name_reads.is_multiple_of(512) {
            return false;
        }
        if let Some(name) = procfs::thread_name(pid, self.packet.tid)
            && name != self.packet.name
        {
            self.packet.name = name;
            self.dirty = true;
        }
        true
    }
}
