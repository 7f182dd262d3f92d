//! Ends: totals are written once everything of a thread is stored, entries are freed once these are.

use stackbeat_core::cycles::Cycles;
use stackbeat_core::probe::{Cause, Probe};
use stackbeat_core::shm::layout::{ProcessEntry, ThreadEntry};
use stackbeat_core::sync::AtomicU64;
use stackbeat_core::system_call::SYSTEM_CALLS;

use super::*;

/// How long the parent of a process that has ended without a word may take to say how, ns.
const PARENT_NS: u64 = 500_000_000;

/// How long a process is remembered after its end: what was seen of it from outside may come later, ns.
const MEMORY_NS: u64 = 10_000_000_000;

/// What a thread may have run since the last poll of the clock, ns.
const LATE_NS: u64 = 1_000_000_000;

impl Lifecycle {
    /// Writes the totals of threads and processes that are over.
    pub(crate) fn conclude(&mut self, mapping: &Mapping, converter: &Converter) {
        let mut over = std::mem::take(&mut self.over);
        over.sort_unstable();
        for utid in over {
            if let Some(thread) = self.threads.remove(&utid) {
                self.end_thread(mapping, converter, &thread, true);
                self.dead_owners.remove(&thread.entry);
                self.known_ends.insert(utid);
                self.free_threads.push(Concluded {
                    entry: thread.entry,
                    utid,
                    tid: thread.tid(),
                    upid: thread.upid(),
                });
                self.now.0 = self.now.0.wrapping_sub(thread.now.0);
                self.now.1 = self.now.1.wrapping_sub(thread.now.1);
                if let Some(p) = self.processes.get_mut(&thread.upid())
                    && thread.is_counted
                {
                    p.live_threads = p.live_threads.saturating_sub(1);
                }
            }
        }
        let over: Vec<Upid> = self
            .processes
            .iter()
            .filter(|(_, p)| p.ended && p.live_threads == 0 && !self.may_be_told_of(mapping, p))
            .map(|(upid, _)| *upid)
            .collect();
        for upid in over {
            if let Some(process) = self.processes.remove(&upid) {
                let entry = mapping.process(process.entry);
                // Also of one that was ending already: destructors run late.
                let crash = entry.and_then(Crash::of);
                let packet = &process.packet;
                let file = match packet.started_as.is_empty() {
                    true => &packet.executable,
                    false => &packet.started_as,
                };
                self.crashes
                    .extend(crash.map(|crash| (crash, file.clone())));
                self.ended_processes.insert(upid);
                self.free_processes.push((process.entry, upid));
                self.remembered.push_back((self.now_ns, upid));
                self.say(packet::Body::ProcessEnd(v1::ProcessEnd {
                    upid: upid.0,
                    // Not known to have ended by itself: the last activity of all.
                    end_ns: match process.end_ns {
                        0 => self.last_ns,
                        known => known,
                    },
                    wait_status: self
                        .wait_status
                        .filter(|(pid, _)| *pid == process.pid() && !process.execed)
                        .map(|(_, status)| status),
                    execed: process.execed,
                }));
            }
        }
    }

    /// Whether the parent of a process that is over may still say that it crashed.
    fn may_be_told_of(&self, mapping: &Mapping, process: &Process) -> bool {
        let watches = mapping.control().watch_crashes.load(Ordering::Relaxed) != 0;
        watches
            && !self.closing
            && !process.execed
            && self.now_ns.saturating_sub(process.end_ns) < PARENT_NS
            && mapping.process(process.entry).is_some_and(|entry| {
                is_without_a_word(entry) && entry.fatal_signal.load(Ordering::Acquire) == 0
            })
    }

    /// Writes what is known of those that live on when the session ends.
    pub(crate) fn conclude_living(
        &mut self,
        mapping: &Mapping,
        converter: &Converter,
        host: &dyn Host,
    ) {
        let threads = std::mem::take(&mut self.threads);
        self.now = (0, 0);
        for mut thread in threads.into_values() {
            let process = self.processes.get(&thread.upid());
            if !self.dead_world && !process.is_some_and(|p| p.is_foreign) {
                self.bring_up_to_date(mapping, &mut thread, host);
            }
            self.end_thread(mapping, converter, &thread, false);
        }
    }

    /// Reads what the kernel has counted of a thread that lives on: whether it ran, waited or was kept
    /// waiting after its last record.
    fn bring_up_to_date(&self, mapping: &Mapping, thread: &mut Thread, host: &dyn Host) {
        let process = mapping.thread(thread.entry).and_then(|entry| {
            let index = entry.process.load(Ordering::Relaxed);
            mapping.process(index)
        });
        let (Some(process), Some(last)) = (process, thread.rusage) else {
            return;
        };
        let (pid, tid) = (process.pid(), thread.tid());
        let Some(usage) = host.usage(pid, tid) else {
            return;
        };
        // In another pid namespace these are somebody else's.
        let ran_ns = usage.cpu_ns.checked_sub(thread.last_cpu_ns);
        let since_ns = self.now_ns.saturating_sub(thread.last_ns);
        let is_its_own = ran_ns.is_some_and(|ran| ran <= since_ns.saturating_add(LATE_NS))
            && usage.voluntary_switches >= last.voluntary_switches
            && usage.involuntary_switches >= last.involuntary_switches;
        if is_its_own {
            thread.last_cpu_ns = usage.cpu_ns;
            thread.rusage = Some(Rusage {
                voluntary_switches: usage.voluntary_switches,
                involuntary_switches: usage.involuntary_switches,
                ..last
            });
        }
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
        let end = self.totals(entry, thread, exited, converter);
        let is_odd = |word: &AtomicU64| {
            let count = word.load(Ordering::Relaxed);
            believed(count) != count
        };
        let counters = [&entry.records, &entry.cpu_ns, &entry.allocations];
        let odd = counters.into_iter().chain(&entry.drops).any(is_odd);
        self.contradictions += u64::from(odd);
        add(&mut self.past.written, end.records_written);
        self.past.stored += thread.counts.0;
        self.past.seeded += thread.seeded;
        self.past.damaged += thread.counts.2;
        add(&mut self.past.capture_ns, end.capture_ns);
        // The image that follows an exec goes on with its clock.
        let process = self.processes.get(&thread.upid());
        let goes_on = thread.packet.is_main && process.is_some_and(|p| p.execed);
        if !goes_on {
            self.past.cpu_ns += end.cpu_ns;
        }
        let told_begin_ns = self.told_waits.remove(&thread.utid());
        if (thread.was_cut_off || !exited)
            && let Some(wait) = last_wait(entry, thread, converter, &end)
            && told_begin_ns != Some(wait.wait[0].begin_ns)
        {
            self.say(packet::Body::Waits(wait));
        }
        // It was seen later than the end of its process, maybe: whoever reads the trace takes that.
        let of_process = self.processes.get(&thread.upid());
        let process_end_ns = of_process.filter(|p| p.ended).map_or(0, |p| p.end_ns);
        let end_ns = match process_end_ns {
            0 => end.end_ns,
            known => end.end_ns.min(known),
        };
        self.last_end_ns = self.last_end_ns.max(end_ns).max(thread.last_ns);
        self.say(packet::Body::ThreadEnd(end));
        let get = |word: &AtomicU64| believed(word.load(Ordering::Relaxed));
        for (cause, count) in entry.drops.iter().enumerate() {
            let count = get(count);
            if count > 0 {
                add(&mut self.past.drops[cause], count);
                self.say(packet::Body::Drops(v1::Drops {
                    utid: thread.packet.utid,
                    cause: cause as i32,
                    count,
                }));
            }
        }
    }

    /// The totals of a thread as they are now.
    fn totals(
        &self,
        entry: &ThreadEntry,
        thread: &Thread,
        exited: bool,
        converter: &Converter,
    ) -> v1::ThreadEnd {
        let get = |word: &AtomicU64| believed(word.load(Ordering::Relaxed));
        let spent = entry.spent_cycles.load(Ordering::Relaxed);
        let rusage = thread.rusage;
        let usage = |get: fn(&Rusage) -> u64| rusage.as_ref().map_or(0, get);
        v1::ThreadEnd {
            utid: thread.packet.utid,
            end_ns: match entry.end_cycles.load(Ordering::Relaxed) {
                // Killed: in a mapping that was found later, its last activity is all there is.
                Cycles(0) if self.dead_world => thread.last_ns.max(thread.packet.start_ns),
                Cycles(0) => self.now_ns,
                cycles => past_ns(converter.to_ns(cycles), self.now_ns, self.dead_world),
            },
            exited,
            cpu_ns: get(&entry.cpu_ns).max(thread.last_cpu_ns),
            allocations: get(&entry.allocations),
            allocated_bytes: get(&entry.allocated_bytes),
            frees: get(&entry.frees),
            // A thread that is killed between committing a record and counting it has one more.
            records_written: get(&entry.records).max(thread.next_record),
            minor_faults: usage(|r| r.minor_faults),
            major_faults: usage(|r| r.major_faults),
            voluntary_switches: usage(|r| r.voluntary_switches),
            involuntary_switches: usage(|r| r.involuntary_switches),
            capture_ns: converter.duration_ns(Cycles(believed(spent.0))),
            system_calls: (entry.system_calls[..SYSTEM_CALLS].iter())
                .map(|calls| get(&calls.count))
                .collect(),
        }
    }

    /// The totals of those that live, as if the session ended now, and how many of each one's records
    /// the ring has overwritten.
    pub(crate) fn totals_of_living(
        &self,
        mapping: &Mapping,
        converter: &Converter,
    ) -> Vec<(v1::ThreadEnd, u64)> {
        let threads = self.threads.values();
        threads
            .filter_map(|thread| {
                let entry = mapping.thread(thread.entry)?;
                let overwritten = believed(entry.drops[drops::OVERWRITTEN].load(Ordering::Relaxed));
                let end = self.totals(entry, thread, thread.ended, converter);
                Some((end, overwritten))
            })
            .collect()
    }

    /// What was concluded is stored: its entries may be used again. Where records are kept, some of
    /// these threads may come later: their ends stay known.
    pub(crate) fn release(&mut self, mapping: &Mapping, keep: Keep, host: &dyn Host) {
        for thread in std::mem::take(&mut self.free_threads) {
            if self.is_leaving(&thread, host) {
                self.free_threads.push(thread);
                continue;
            }
            registry::free_thread(mapping, thread.entry);
            if keep == Keep::Nothing {
                self.known_ends.remove(&thread.utid);
            }
        }
        for (entry, upid) in self.free_processes.drain(..) {
            if let Some(entry) = mapping.process(entry) {
                // A process killed without a word is still marked as live.
                registry::end_process(entry, entry.end_cycles.load(Ordering::Relaxed), false);
                registry::free_process(entry);
            }
            if keep == Keep::Nothing {
                self.ended_processes.remove(&upid);
            }
        }
    }

    /// Whether the kernel still has a thread whose end is written. Without its entry the sampler would take
    /// it for one that no hook has registered.
    fn is_leaving(&self, thread: &Concluded, host: &dyn Host) -> bool {
        let process = self.processes.get(&thread.upid);
        !self.dead_world
            && process
                .is_some_and(|p| !p.ended && !p.is_foreign && host.has_thread(p.pid(), thread.tid))
    }

    /// The next process that ended long enough ago to be forgotten at this time, ns.
    pub(crate) fn next_to_forget(&mut self, now_ns: u64) -> Option<Upid> {
        loop {
            let (end_ns, upid) = *self.remembered.front()?;
            if now_ns.saturating_sub(end_ns) < MEMORY_NS {
                return None;
            }
            self.remembered.pop_front();
            // Its modules were seen before it was met.
            if !self.processes.contains_key(&upid) {
                return Some(upid);
            }
        }
    }

    /// Drops what is kept of an ended process, but its pid where it has a perf map, by which that is
    /// removed. Where records are kept only its modules go: the others may still tell of it.
    pub(crate) fn forget(&mut self, upid: Upid, keep: Keep, has_map: bool) {
        self.modules.remove_process(upid);
        self.module_counts.remove(&upid);
        if keep == Keep::Nothing {
            self.off.remove(&upid);
            self.replaced.remove(&upid);
            self.named.remove(&upid);
            if !has_map {
                self.pids.remove(&upid);
            }
        }
    }
}

/// The wait in which a thread was that did not end by itself. It has no stack: the memory that held it is
/// gone.
fn last_wait(
    entry: &ThreadEntry,
    thread: &Thread,
    converter: &Converter,
    end: &v1::ThreadEnd,
) -> Option<v1::Waits> {
    let begin = entry.blocking_section_begin.load(Ordering::Relaxed);
    // One that was left by a jump is followed by samples.
    let is_waiting = !entry
        .blocking_section
        .load(Ordering::Relaxed)
        .is_multiple_of(2)
        && entry.last_capture_cycles.load(Ordering::Relaxed) <= begin;
    let number = entry.blocking_section_probe.load(Ordering::Relaxed);
    let probe = Probe::from_number(u8::try_from(number).ok()?)?;
    let begin_ns = converter.to_ns(begin);
    let is_sound = (thread.packet.start_ns..end.end_ns).contains(&begin_ns);
    (is_waiting && is_sound && probe.cause() != Cause::None).then(|| v1::Waits {
        node: 0,
        probe: number,
        system_call: 0,
        wait: vec![v1::waits::Wait {
            utid: end.utid,
            begin_ns,
            end_ns: 0,
            arg: entry.blocking_section_arg.load(Ordering::Relaxed),
            inferred: false,
        }],
    })
}

/// Whether a process that is over has ended without saying so.
fn is_without_a_word(entry: &ProcessEntry) -> bool {
    entry.end_cycles.load(Ordering::Acquire) == Cycles(0)
}
