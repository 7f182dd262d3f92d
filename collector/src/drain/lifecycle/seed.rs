//! Going on after a partial trace: what it holds already, for `recover`.

use super::*;

/// A thread as a partial trace knows it.
#[derive(Debug, Default)]
pub(crate) struct SeedThread {
    pub packet: v1::Thread,
    pub end: Option<v1::ThreadEnd>,
    /// Records below are in the trace or lost.
    pub next_record: u64,
    /// Records in the trace.
    pub stored: u64,
    pub drops: [u64; drops::COUNT],
    pub cpu_ns: u64,
    pub last_ns: u64,
    pub rusage: Option<Rusage>,
}

/// What a partial trace holds.
#[derive(Debug, Default)]
pub(crate) struct Seed {
    pub processes: HashMap<Upid, v1::Process>,
    pub ended_processes: HashSet<Upid>,
    pub(super) threads: HashMap<Utid, SeedThread>,
    pub modules: Modules,
    pub events: HashSet<(Utid, u64, String)>,
}

impl Seed {
    /// The thread with this utid.
    pub(crate) fn thread(&mut self, utid: Utid) -> &mut SeedThread {
        self.threads.entry(utid).or_default()
    }
}

impl Lifecycle {
    /// A lifecycle over a mapping whose processes are all taken for dead, after a partial trace.
    pub(crate) fn of_the_dead(mut seed: Seed) -> Lifecycle {
        let mut lifecycle = Lifecycle {
            dead_world: true,
            ended_processes: std::mem::take(&mut seed.ended_processes),
            modules: std::mem::take(&mut seed.modules),
            processes_seen: (seed.processes.values())
                .filter(|process| !replaces_another(process))
                .count() as u32,
            ..Default::default()
        };
        for (upid, process) in &seed.processes {
            lifecycle
                .pids
                .insert(*upid, (Pid(process.pid), process.start_ns));
        }
        let goes_on = |thread: &v1::Thread| {
            let process = seed.processes.get(&Upid(thread.upid));
            thread.is_main && process.is_some_and(replaces_another)
        };
        for (utid, thread) in &seed.threads {
            lifecycle.last_ns = lifecycle.last_ns.max(thread.last_ns);
            if let Some(end) = &thread.end {
                lifecycle.known_ends.insert(*utid);
                lifecycle.threads_seen += u32::from(!goes_on(&thread.packet));
                let past = &mut lifecycle.past;
                past.written += end.records_written;
                past.seeded += thread.stored;
            }
            for (sum, count) in lifecycle.past.drops.iter_mut().zip(&thread.drops) {
                *sum += if thread.end.is_some() { *count } else { 0 };
            }
        }
        seed.threads
            .retain(|utid, thread| *utid != Utid(0) && thread.end.is_none());
        lifecycle.seed = seed;
        lifecycle
    }

    /// Whether a partial trace holds this event already.
    pub(crate) fn event_is_known(&self, event: &v1::Event) -> bool {
        !self.seed.events.is_empty()
            && self
                .seed
                .events
                .contains(&(Utid(event.utid), event.time_ns, event.name.clone()))
    }

    /// Writes the ends of threads that a partial trace knows and the mapping does not.
    pub(crate) fn conclude_unmet(&mut self) {
        for (utid, thread) in std::mem::take(&mut self.seed.threads) {
            self.past.written += thread.next_record;
            self.past.seeded += thread.stored;
            self.threads_seen += 1;
            self.say(packet::Body::ThreadEnd(v1::ThreadEnd {
                utid: utid.0,
                end_ns: thread.last_ns,
                cpu_ns: thread.cpu_ns,
                records_written: thread.next_record,
                ..Default::default()
            }));
        }
    }
}
