//! Reading the registry: newcomers, and ends.

use std::collections::HashMap;

use super::*;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::shm::layout::sandboxed;

/// How long after its agent's last word a process is taken for dead whose pid says nothing.
const FOREIGN_END_NS: u64 = 2_000_000_000;

/// How long after an exec the next image of a process may keep silent before it is taken for one that
/// cannot be seen.
const EXEC_NS: u64 = 1_000_000_000;

/// Pids end below (PID_MAX_LIMIT of Linux' include/linux/threads.h).
const MOST_PIDS: u32 = 1 << 22;

/// Names of threads read from /proc in one poll: a burst of threads must not hold up draining.
const NAMES_PER_POLL: u32 = 256;
/// Distance between two readings, in polls, above which those of a thread are left out that has written
/// nothing since the last one.
const NAMES_OF_SLEEPERS: u64 = 8;
/// Longest distance between two, in polls.
const NAMES_DISTANCE: u64 = 512;

impl Lifecycle {
    /// Goes through the registry: newcomers, and ends.
    pub(crate) fn poll(
        &mut self,
        mapping: &Mapping,
        converter: &Converter,
        now: &Snapshot,
        changed: Changed,
        host: &dyn Host,
    ) {
        self.polls += 1;
        self.now_ns = now.monotonic_ns;
        let images = self.meet_processes(mapping, converter, now, host);
        self.notice_ends_of_processes(mapping, converter, now, &images, host);
        let changed = match std::mem::take(&mut self.ends_threads) {
            true => Changed::All,
            false => changed,
        };
        self.poll_threads(mapping, converter, now, changed, true);
        self.read_names(host);
        self.live_processes = self.processes.values().filter(|p| !p.ended).count() as u32;
    }

    /// Goes through the registry for newcomers only. Who has ended since the last poll may have records that
    /// were not found yet: that is for the next one.
    pub(crate) fn meet_newcomers(
        &mut self,
        mapping: &Mapping,
        converter: &Converter,
        now: &Snapshot,
        host: &dyn Host,
    ) {
        self.meet_processes(mapping, converter, now, host);
        self.poll_threads(mapping, converter, now, Changed::All, false);
    }

    /// The newest image of each pid.
    fn meet_processes(
        &mut self,
        mapping: &Mapping,
        converter: &Converter,
        now: &Snapshot,
        host: &dyn Host,
    ) -> HashMap<Pid, Upid> {
        let mut images: HashMap<Pid, Upid> = HashMap::new();
        for (i, entry) in registry::processes(mapping) {
            let state = entry.state.load(Ordering::Acquire);
            if matches!(state, entry_state::FREE | entry_state::CLAIMED) {
                continue;
            }
            let upid = entry.upid();
            if self.ended_processes.contains(&upid) {
                continue;
            }
            if !self.processes.contains_key(&upid) {
                let owner = self.owners.0.get(&i);
                if owner.is_some_and(|owner| self.processes.contains_key(owner)) {
                    self.contradictions += 1;
                    continue;
                }
                if entry.pid().0 > MOST_PIDS || state > entry_state::ADOPTED {
                    self.contradictions += 1;
                    continue;
                }
                self.owners.0.insert(i, upid);
            }
            let known = self.processes.entry(upid).or_insert_with(|| {
                if let Some(packet) = self.seed.processes.remove(&upid) {
                    return Process {
                        entry: i,
                        packet,
                        ..Default::default()
                    };
                }
                let origin = Origin::try_from(entry.origin.load(Ordering::Relaxed) as i32)
                    .unwrap_or(Origin::Started);
                self.processes_seen += u32::from(origin != Origin::Execed);
                let pid = entry.pid();
                let start_ns = converter.to_ns(entry.start_cycles.load(Ordering::Relaxed));
                self.pids.insert(upid, (pid, start_ns));
                let is_foreign = !self.dead_world
                    && host.whose(pid) == Whose::Foreign
                    && entry.state.load(Ordering::Acquire) == entry_state::LIVE;
                if is_foreign {
                    return Process {
                        entry: i,
                        packet: v1::Process {
                            upid: upid.0,
                            pid: pid.0,
                            parent_upid: entry.parent_upid.load(Ordering::Relaxed),
                            start_ns: converter.to_ns(entry.start_cycles.load(Ordering::Relaxed)),
                            origin: origin.into(),
                            ..Default::default()
                        },
                        dirty: true,
                        is_foreign,
                        ..Default::default()
                    };
                }
                let Image {
                    command_line,
                    executable,
                    started_as,
                } = host.image(pid);
                Process {
                    entry: i,
                    packet: v1::Process {
                        upid: upid.0,
                        pid: pid.0,
                        parent_pid: entry.parent_pid.load(Ordering::Relaxed),
                        parent_upid: entry.parent_upid.load(Ordering::Relaxed),
                        start_ns: converter.to_ns(entry.start_cycles.load(Ordering::Relaxed)),
                        command_line,
                        executable,
                        started_as,
                        origin: origin.into(),
                        ..Default::default()
                    },
                    watch: host.watch(pid),
                    dirty: true,
                    ..Default::default()
                }
            });
            // Each is said once, whatever the program writes there.
            let bits = entry.sandboxed.load(Ordering::Acquire) & !known.sandboxed;
            if bits != 0 {
                let texts = sandbox::texts(bits).map(str::to_owned);
                known.packet.capabilities.extend(texts);
                known.sandboxed |= bits;
                if bits & sandboxed::OFF != 0 {
                    self.off.insert(upid);
                }
                known.dirty = true;
            }
            // An exec that fails takes its word back.
            if !known.ended {
                known.execed = state == entry_state::EXECED;
            }
            // Of one in another pid namespace nobody else will tell.
            let dies = known.is_foreign && entry.fatal_node.load(Ordering::Acquire) != 0;
            let said_so = dies || entry.end_cycles.load(Ordering::Acquire) != Cycles(0);
            if state == entry_state::LIVE && !said_so {
                known.said_ended_ns = 0;
            } else if known.said_ended_ns == 0 {
                known.said_ended_ns = now.monotonic_ns;
            }
            let newest = images.entry(known.pid()).or_default();
            *newest = upid.max(*newest);
        }
        images
    }

    fn notice_ends_of_processes(
        &mut self,
        mapping: &Mapping,
        converter: &Converter,
        now: &Snapshot,
        images: &HashMap<Pid, Upid>,
        host: &dyn Host,
    ) {
        let (now_ns, dead_world) = (self.now_ns, self.dead_world);
        let past_ns = |ns| past_ns(ns, now_ns, dead_world);
        for process in self.processes.values_mut().filter(|p| !p.ended) {
            let is_dead = self.dead_world
                || match &process.watch {
                    // Its other threads may run on for a moment after its agent's last word.
                    _ if process.is_foreign => {
                        process.said_ended_ns != 0
                            && now.monotonic_ns - process.said_ended_ns > FOREIGN_END_NS
                    }
                    Some(watch) => watch.has_ended(),
                    None => !host.exists(process.pid()),
                };
            // An image that exec replaced is over when the next one has reported; one that is no
            // program of ours never does, and the end of the process ends both.
            let is_replaced = process.execed
                && images
                    .get(&process.pid())
                    .is_some_and(|newest| *newest > process.upid());
            if !is_dead && !is_replaced {
                continue;
            }
            // The image after an exec takes a moment to report.
            let is_fresh = now.monotonic_ns - process.said_ended_ns < EXEC_NS;
            if process.execed && !is_replaced && is_fresh && !self.closing && !self.dead_world {
                continue;
            }
            process.ended = true;
            self.ends_threads = true;
            process.watch = None;
            if process.execed && !is_replaced {
                self.not_hooked += u64::from(!self.named.contains(&process.upid()));
                self.replaced.insert(process.upid());
            }
            process.execed &= is_replaced;
            let end_cycles = mapping
                .process(process.entry)
                .map_or(Cycles(0), |e| e.end_cycles.load(Ordering::Relaxed));
            process.end_ns = match end_cycles {
                Cycles(0) if self.dead_world => 0,
                Cycles(0) => now.monotonic_ns,
                cycles => past_ns(converter.to_ns(cycles)),
            };
        }
    }

    fn poll_threads(
        &mut self,
        mapping: &Mapping,
        converter: &Converter,
        now: &Snapshot,
        changed: Changed,
        ends: bool,
    ) {
        match changed {
            Changed::All => {
                for (i, entry) in registry::threads(mapping) {
                    self.poll_thread(mapping, converter, now, (i, entry), ends);
                }
            }
            Changed::Entries(entries) => {
                for i in entries {
                    if let Some(entry) = mapping.thread(*i) {
                        self.poll_thread(mapping, converter, now, (*i, entry), ends);
                    }
                }
            }
        }
    }

    fn poll_thread(
        &mut self,
        mapping: &Mapping,
        converter: &Converter,
        now: &Snapshot,
        (i, entry): (u32, &ThreadEntry),
        ends: bool,
    ) {
        let state = entry.state.load(Ordering::Acquire);
        if matches!(
            state,
            entry_state::FREE | entry_state::CLAIMED | entry_state::OFFERED
        ) {
            return;
        }
        let utid = entry.utid();
        if self.known_ends.contains(&utid) {
            return;
        }
        if !self.threads.contains_key(&utid) {
            let process = entry.process.load(Ordering::Relaxed);
            let process = mapping.process(process);
            let is_live =
                process.is_some_and(|p| p.state.load(Ordering::Acquire) == entry_state::LIVE);
            let upid = process.map_or(Upid(0), |p| p.upid());
            // Its process came after processes were polled: both are met together, by the next poll.
            if !self.processes.contains_key(&upid) {
                self.ends_threads |= is_live && !self.ended_processes.contains(&upid);
                return;
            }
            self.meet(utid, i, upid, entry, converter);
        }
        let Some(thread) = self.threads.get_mut(&utid) else {
            return;
        };
        let Some(process) = self.processes.get_mut(&thread.upid()) else {
            return;
        };
        if !std::mem::replace(&mut thread.is_counted, true) {
            process.live_threads += 1;
            self.live_threads += 1;
        }
        let written = believed(entry.records.load(Ordering::Relaxed)).max(thread.next_record);
        let lost = [drops::BUFFER_FULL, drops::OVERWRITTEN].map(|cause| &entry.drops[cause]);
        let lost = lost.map(|l| believed(l.load(Ordering::Relaxed)));
        let lost = lost[0]
            .saturating_add(lost[1])
            .saturating_add(thread.counts.2);
        let before = std::mem::replace(&mut thread.now, (written, lost));
        self.now.0 = self.now.0.wrapping_sub(before.0).wrapping_add(written);
        self.now.1 = self.now.1.wrapping_sub(before.1).wrapping_add(lost);
        if !ends || thread.ended {
            return;
        }
        if matches!(state, entry_state::LIVE | entry_state::ADOPTED) && process.ended {
            // It may have captured since the clock was read for this poll.
            let last = entry.last_capture_cycles.load(Ordering::Relaxed);
            let end = if self.dead_world {
                Cycles(0)
            } else {
                now.cycles.max(last)
            };
            thread.was_cut_off = true;
            registry::end_thread(entry, end);
            registry::show_activity(mapping, i, entry);
        }
        if entry.state.load(Ordering::Acquire) == entry_state::ENDED {
            thread.ended = true;
            self.live_threads -= 1;
            self.over.push(utid);
            self.dead_owners.insert(i);
        }
    }

    /// A thread that was not known: from the registry, or (its entry is gone) from a sub-buffer.
    fn meet(
        &mut self,
        utid: Utid,
        index: u32,
        upid: Upid,
        entry: &ThreadEntry,
        converter: &Converter,
    ) {
        let owner = self.owners.1.get(&index);
        let is_taken = owner.is_some_and(|owner| self.threads.contains_key(owner));
        // The threads of a dead world left their sub-buffers behind, and their entries to others.
        if is_taken && !self.dead_world {
            self.contradictions += 1;
            return;
        }
        self.owners.1.insert(index, utid);
        let start = entry.start_cycles.load(Ordering::Relaxed);
        let process = self.processes.get(&upid).map(|p| &p.packet);
        let main = process.map_or(Tid(0), |process| Pid(process.pid).main_thread());
        let tid = entry.tid();
        let goes_on = tid == main && process.is_some_and(replaces_another);
        self.threads_seen += u32::from(!goes_on);
        let mut thread = Thread {
            entry: index,
            packet: v1::Thread {
                utid: utid.0,
                upid: upid.0,
                tid: tid.0,
                is_main: tid == main,
                start_ns: past_ns(converter.to_ns(start), self.now_ns, self.dead_world),
                cpu_before_ns: believed(entry.cpu_before_ns.load(Ordering::Relaxed)),
                creator_utid: entry.creator_utid.load(Ordering::Relaxed),
                creator_node: entry.creator_node.load(Ordering::Relaxed),
                ..Default::default()
            },
            dirty: true,
            ..Default::default()
        };
        if let Some(seed) = self.seed.threads.remove(&utid) {
            if seed.packet.utid == utid.0 {
                thread.packet = seed.packet;
                thread.dirty = false;
            }
            thread.next_record = seed.next_record;
            thread.seeded = seed.stored;
            thread.last_cpu_ns = seed.cpu_ns;
            thread.last_ns = seed.last_ns;
            thread.rusage = seed.rusage;
        }
        if thread.dirty {
            self.dirty.push(utid);
        }
        if !self.dead_world {
            self.names.push(Reverse((self.polls, utid)));
        }
        self.threads.insert(utid, thread);
    }

    /// Looks for the names that threads have given themselves, at first sight and at growing distances. What
    /// a thread says itself comes with its records.
    fn read_names(&mut self, host: &dyn Host) {
        for _ in 0..NAMES_PER_POLL {
            let Some(Reverse((poll, utid))) = self.names.peek().copied() else {
                return;
            };
            if poll > self.polls {
                return;
            }
            self.names.pop();
            let is_asked = |thread: &&mut Thread| !thread.ended && !thread.has_own_name;
            let Some(thread) = self.threads.get_mut(&utid).filter(is_asked) else {
                continue;
            };
            let records = thread.now.0;
            let is_asleep = std::mem::replace(&mut thread.named_at, records) == records;
            let distance = (thread.name_distance * 2).clamp(1, NAMES_DISTANCE);
            thread.name_distance = distance;
            self.names.push(Reverse((self.polls + distance, utid)));
            if is_asleep && distance > NAMES_OF_SLEEPERS {
                continue;
            }
            // In another pid namespace the numbers are somebody else's.
            let process = self.processes.get(&thread.upid());
            let pid = process.filter(|p| !p.is_foreign).map(Process::pid);
            let Some(pid) = pid else {
                continue;
            };
            if let Some(name) = host.thread_name(pid, thread.tid())
                && name != thread.packet.name
            {
                thread.packet.name = name;
                thread.dirty = true;
                self.dirty.push(utid);
            }
        }
    }

    /// Whether this process was seen, alive or at its end.
    pub(crate) fn knows_process(&self, upid: Upid) -> bool {
        self.processes.contains_key(&upid) || self.ended_processes.contains(&upid)
    }

    /// Whether this thread was seen, alive or at its end.
    pub(crate) fn knows(&self, utid: Utid) -> bool {
        self.threads.contains_key(&utid) || self.known_ends.contains(&utid)
    }

    /// A sub-buffer names its thread: known by now, unless memory was damaged.
    pub(crate) fn note_thread(
        &mut self,
        mapping: &Mapping,
        drained: &Drained,
        converter: &Converter,
    ) {
        if self.knows(drained.utid) {
            return;
        }
        let entry = mapping.thread(drained.owner);
        let is_its_own = |entry: &&ThreadEntry| self.dead_world || entry.utid() == drained.utid;
        if let Some(entry) = entry.filter(is_its_own) {
            self.meet(drained.utid, drained.owner, drained.upid, entry, converter);
        }
    }
}
