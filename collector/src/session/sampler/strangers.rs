//! Strangers: threads of the program that no hook has registered. They are interrupted where they run, and the
//! handler registers them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use stackbeat_core::layout::entry_state;
use stackbeat_core::mapping::Mapping;
use stackbeat_core::sync::Ordering;
use stackbeat_core::{gate, registry, sys};

use super::Sampler;
use super::kernel::{Kernel, open_state};
use crate::session::shared::{Shared, count};

/// Distance between two searches for threads without an entry, ns. A search may take this share.
const STRANGER_LOOK_NS: u64 = 100_000_000;
const STRANGER_SHARE: u64 = 200;
/// Threads without an entry that are interrupted in one look, and how long each is waited for, because
/// one at a time can be announced.
const MEETINGS_PER_LOOK: u32 = 16;
const MEETING: Duration = Duration::from_micros(500);

impl Sampler {
    /// Looks for threads of live processes that no hook has registered: the handler does it. Gives the time to the
    /// next look, ns.
    pub(super) fn look_for_strangers(&mut self, shared: &Shared) -> u64 {
        let began = Instant::now();
        self.meet_strangers(shared);
        let took = began.elapsed().as_nanos() as u64;
        (took * STRANGER_SHARE).max(STRANGER_LOOK_NS)
    }

    fn meet_strangers(&mut self, shared: &Shared) {
        let cpu_ns = self.program_cpu_ns();
        if cpu_ns == self.stranger_cpu_ns {
            return;
        }
        self.stranger_cpu_ns = cpu_ns;
        let registered: HashSet<(u32, u32)> = registry::threads(&shared.mapping)
            .filter(|(_, e)| e.state.load(Ordering::Acquire) != entry_state::FREE)
            .filter_map(|(_, e)| {
                let process = shared.mapping.process(e.process.load(Ordering::Relaxed))?;
                let pid = process.pid.load(Ordering::Relaxed);
                Some((pid, e.tid.load(Ordering::Relaxed)))
            })
            .collect();
        let mut met = HashMap::new();
        let mut meetings = MEETINGS_PER_LOOK;
        for (index, process) in self.processes.iter().filter(|(_, p)| p.is_ours) {
            let Some(entry) = shared.mapping.process(*index) else {
                continue;
            };
            let signal = entry.signal.load(Ordering::Relaxed) as i32;
            // What was announced at the last look and has not arrived since is lost.
            gate::withdraw(&entry.stranger);
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", process.pid)) else {
                continue;
            };
            for task in tasks.flatten() {
                let tid = task.file_name().to_str().and_then(|t| t.parse().ok());
                let Some(tid) = tid.filter(|tid| !registered.contains(&(process.pid, *tid))) else {
                    continue;
                };
                let looks = self
                    .strangers
                    .get(&(process.pid, tid))
                    .map_or(1, |looks| looks + 1);
                met.insert((process.pid, tid), looks);
                // Seen twice: not one that is just about to register by itself.
                if looks > 1
                    && signal != 0
                    && meetings > 0
                    && !gate::is_announced(&entry.stranger)
                    && open_state(process.pid, tid)
                        .is_ok_and(|(_, kernel)| kernel == Kernel::Running)
                    && gate::announce(&entry.stranger, tid, || {
                        is_registered(&shared.mapping, *index, tid)
                    })
                {
                    meetings -= 1;
                    if !gate::commit_meeting(&entry.stranger, tid) {
                        continue;
                    }
                    if sys::signal_thread(process.pid, tid, signal).is_err() {
                        gate::withdraw(&entry.stranger);
                        continue;
                    }
                    gate::meeting_sent(&entry.stranger, tid);
                    count(&shared.figures.strangers, u64::from(looks == 2));
                    count(&shared.figures.signals_sent, 1);
                    let deadline = Instant::now() + MEETING;
                    while gate::is_announced(&entry.stranger) && Instant::now() < deadline {
                        std::thread::yield_now();
                    }
                }
            }
        }
        self.strangers = met;
    }
}

/// Whether a thread has an entry now.
fn is_registered(mapping: &Mapping, process: u32, tid: u32) -> bool {
    registry::threads(mapping).any(|(_, e)| {
        e.state.load(Ordering::SeqCst) == entry_state::LIVE
            && e.process.load(Ordering::Relaxed) == process
            && e.tid.load(Ordering::Relaxed) == tid
    })
}
