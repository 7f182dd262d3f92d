//! Unregistered threads: threads of the program that no hook has registered. They are interrupted where they
//! run, and the handler registers them. Those that wait get an entry without that (`adopt`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::shm::layout::{ProcessEntry, entry_state};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::registry::NewThread;
use stackbeat_core::shm::{registry, signal_gate};
use stackbeat_core::sync::Ordering;
use stackbeat_core::{clock, platform};

use super::adopt::{self, Wanted};
use super::signal_choice::Handled;
use super::unregistered::{Unregistered, Waits};
use super::{Means, Process, Sampler};
use crate::host::{Host, Signals, State};
use crate::session::shared::{Shared, count};

/// Distance between two searches for threads without an entry, ns, and while some of them are about to be
/// met. A search may take this share.
const UNREGISTERED_POLL_NS: u64 = 100_000_000;
/// The same once so many searches in a row have found none.
const UNREGISTERED_LATER_NS: u64 = 200_000_000;
const SEARCHES_AT_FIRST: u32 = 10;
const MEETING_POLL_NS: u64 = 5_000_000;
const UNREGISTERED_SHARE: u64 = 200;
/// The same while threads are not told apart that were there before their process took part: a few searches
/// each.
const FIRST_SHARE: u64 = 10;
/// Threads without an entry that are interrupted in one poll, and how long each is waited for, because
/// one at a time can be announced.
const MEETINGS_PER_POLL: u32 = 16;
const MEETING: Duration = Duration::from_micros(500);
const MEETING_STEP: Duration = Duration::from_micros(50);
/// After this time a signal that has not arrived and does not pend is taken for lost. Ready threads wait tens
/// of ms for a processor.
const MEETING_LOST_NS: u64 = 100_000_000;

/// CPU time after which a thread that was seen running has left the call that it may have been waking from,
/// ns. A call that began before there were hooks has no gate, and some, select for one, fail with EINTR if a
/// signal comes between the end of their wait and their return.
const OUT_OF_CALL_NS: u64 = 100_000;

impl Sampler {
    /// Looks for threads of live processes that no hook has registered. Gives the time to the next poll, ns.
    pub(super) fn poll_unregistered(&mut self, shared: &Shared, now_ns: u64) -> u64 {
        // By the CPU's clock: others who had the processor meanwhile are no reason to poll less often.
        let began_ns = platform::thread_cpu_ns();
        let mut poll = Poll {
            now_ns,
            now: clock::now(shared.clock_source()),
            meetings: MEETINGS_PER_POLL,
            ..Poll::default()
        };
        self.meet_unregistered(shared, &mut poll);
        self.awaits_unregistered = self
            .unregistered_threads
            .values()
            .any(Unregistered::is_undecided);
        poll.goes_on |= self.awaits_unregistered;
        let took_ns = (platform::thread_cpu_ns() - began_ns).saturating_sub(poll.newcomers_ns);
        let is_first =
            |unregistered: &Unregistered| unregistered.was_there && unregistered.is_undecided();
        let share = match self.unregistered_threads.values().any(is_first) {
            true => FIRST_SHARE,
            false => UNREGISTERED_SHARE,
        };
        self.empty_searches = match self.unregistered_threads.is_empty() {
            true => self.empty_searches.saturating_add(1),
            false => 0,
        };
        let least_ns = match poll.goes_on {
            true => MEETING_POLL_NS,
            false if self.empty_searches < SEARCHES_AT_FIRST => UNREGISTERED_POLL_NS,
            false => UNREGISTERED_LATER_NS,
        };
        (took_ns * share).max(least_ns)
    }

    /// Whether a process has another number of threads than are registered: counting them is cheap, and going
    /// through thousands is not.
    fn may_have_unregistered(&self, shared: &Shared) -> bool {
        let mut ours = self.processes.iter().filter(|(_, p)| p.is_ours);
        ours.any(|(index, process)| {
            let entry = shared.mapping.process(*index);
            self.host.thread_count(process.pid) != Some(process.threads)
                || entry.is_some_and(|e| signal_gate::is_announced(&e.unregistered))
        })
    }

    fn meet_unregistered(&mut self, shared: &Shared, poll: &mut Poll) {
        let host = Arc::clone(&self.host);
        if !self.may_have_unregistered(shared) {
            self.unregistered_threads.retain(|(_, tid), unregistered| {
                unregistered.is_adopted(&*host, shared, *tid, poll.now)
            });
            return;
        }
        let cpu_ns = self.program_cpu_ns();
        let mut unregistered = self.unregistered_threads.values();
        if cpu_ns == self.unregistered_cpu_ns
            && !self.awaits_unregistered
            && !unregistered.any(Unregistered::began_to_wait)
        {
            return;
        }
        self.unregistered_cpu_ns = cpu_ns;
        // Where nobody comes any more, nothing says who went.
        self.processes.retain(|index, process| {
            let entry = shared.mapping.process(*index);
            entry.is_some_and(|e| {
                e.state.load(Ordering::Acquire) == entry_state::LIVE && e.upid() == process.upid
            })
        });
        let registered: HashSet<(Pid, Tid)> = registry::threads(&shared.mapping)
            .filter(|(_, e)| {
                let state = e.state.load(Ordering::Acquire);
                !matches!(state, entry_state::FREE | entry_state::ADOPTED)
            })
            .filter_map(|(_, e)| {
                let process = shared.mapping.process(e.process.load(Ordering::Relaxed))?;
                let pid = process.pid();
                Some((pid, e.tid()))
            })
            .collect();
        let mut unregistered_threads = HashMap::new();
        let mut wanted = Vec::new();
        for (index, process) in self.processes.iter_mut().filter(|(_, p)| p.is_ours) {
            let Some(entry) = shared.mapping.process(*index) else {
                continue;
            };
            if let Some(Means::Signals(signals)) = &self.interruption {
                poll.lose(&**signals, process, entry);
            }
            let tids = host.threads(process.pid).into_iter();
            let tids = tids.filter(|tid| !registered.contains(&(process.pid, *tid)));
            let (upid, pid) = (process.upid, process.pid);
            let was_there = !std::mem::replace(&mut process.is_searched, true);
            let earliest = adopt::earliest(shared, entry, was_there, poll.now);
            let mut found: Vec<(Tid, Unregistered)> = tids
                .map(|tid| {
                    let known = self.unregistered_threads.get(&(upid, tid)).copied();
                    let newcomer = || Unregistered::new(pid, was_there);
                    (tid, known.unwrap_or_else(newcomer))
                })
                .collect();
            // One that holds the signal back must not keep the others from being met.
            found.sort_unstable_by_key(|(_, unregistered)| unregistered.sent);
            for (tid, unregistered) in &mut found {
                unregistered.polls += 1;
                match poll.watch(&*host, unregistered, *tid, earliest) {
                    Some(wait) => wanted.push(Wanted {
                        upid,
                        new: NewThread {
                            tid: *tid,
                            process: *index,
                            is_main: *tid == pid.main_thread(),
                            cycles: wait.since,
                            ..NewThread::default()
                        },
                        cpu_ns: wait.cpu_ns,
                    }),
                    None => {
                        if let Some(Means::Signals(signals)) = &self.interruption {
                            let by = (&*host, &**signals);
                            let process = (*index, &mut *process);
                            poll.meet(shared, by, process, *tid, unregistered);
                        }
                    }
                }
            }
            let found = found.into_iter();
            unregistered_threads
                .extend(found.map(|(tid, unregistered)| ((upid, tid), unregistered)));
        }
        adopt::make_entries(shared, &mut unregistered_threads, &wanted);
        let before = std::mem::replace(&mut self.unregistered_threads, unregistered_threads);
        // A list of threads that change while it is read may lack one, which must not get another entry with
        // the next.
        for (key, unregistered) in before {
            if !self.unregistered_threads.contains_key(&key)
                && unregistered.is_adopted(&*host, shared, key.1, poll.now)
            {
                self.unregistered_threads.insert(key, unregistered);
            }
        }
    }
}

/// One search.
#[derive(Default)]
struct Poll {
    now_ns: u64,
    /// The same by the session's clock.
    now: Cycles,
    /// How many more it may interrupt.
    meetings: u32,
    /// CPU time that it took to ask about newcomers, ns: that is done a few times for each, and no reason to
    /// poll less often.
    newcomers_ns: u64,
    /// Some are to be met soon.
    goes_on: bool,
}

impl Poll {
    /// Gives up a signal that has been on its way for long, unless its thread has blocked it since: then it
    /// would arrive in any later call, and the thread has to know of it when it registers. The others wait
    /// for that.
    fn lose(&mut self, signals: &dyn Signals, process: &Process, entry: &ProcessEntry) {
        let tid = Tid(signal_gate::announced_to(&entry.unregistered));
        if tid == Tid(0) {
            return;
        }
        if self.now_ns.saturating_sub(process.meeting_ns) < MEETING_LOST_NS {
            self.goes_on = true;
            return;
        }
        let pending = signals.pending(process.pid, tid).unwrap_or(0);
        if pending & Handled::of(entry).set() == 0 {
            signal_gate::cancel_meeting(&entry.unregistered);
        }
    }

    /// Whether an unregistered thread without an entry waits: see [`Unregistered::watch`].
    fn watch(
        &mut self,
        host: &dyn Host,
        unregistered: &mut Unregistered,
        tid: Tid,
        since: Cycles,
    ) -> Option<Waits> {
        if unregistered.entry.is_some() {
            return None;
        }
        if !unregistered.is_undecided() {
            return unregistered.watch(host, tid, since, self.now);
        }
        let began_ns = platform::thread_cpu_ns();
        let waits = unregistered.watch(host, tid, since, self.now);
        self.newcomers_ns += platform::thread_cpu_ns() - began_ns;
        waits
    }

    /// Interrupts an unregistered thread that runs, if that is due.
    fn meet(
        &mut self,
        shared: &Shared,
        (host, by): (&dyn Host, &dyn Signals),
        (index, process): (u32, &mut Process),
        tid: Tid,
        unregistered: &mut Unregistered,
    ) {
        let Some(entry) = shared.mapping.process(index) else {
            return;
        };
        let pid = process.pid;
        let signals = Handled::of(entry);
        if signals.first == 0 {
            return;
        }
        let is_running = || host.state(pid, tid) == State::Running;
        // What a call of ours takes says nothing of the call that the thread goes back to.
        if !is_running() || host.makes_our_call(pid, tid) {
            unregistered.awake_ns = None;
            return;
        }
        // Seen twice: not one that is just about to register by itself.
        let has_left_call = match host.scheduled(pid, tid) {
            Some(now) => {
                now.run_ns >= *unregistered.awake_ns.get_or_insert(now.run_ns) + OUT_OF_CALL_NS
            }
            // The system does not count.
            None => unregistered.polls > 1,
        };
        if !has_left_call {
            self.goes_on = true;
            return;
        }
        if self.meetings == 0 || signal_gate::is_announced(&entry.unregistered) {
            self.goes_on |= self.meetings == 0;
            return;
        }
        // Where it is blocked it would pend, and be in the way of the others.
        let open = || signals.open_to(by.blocked(pid, tid)?);
        let Some(signal) = is_running().then(open).flatten() else {
            return;
        };
        if !signal_gate::announce(&entry.unregistered, tid.0, || {
            is_registered(&shared.mapping, index, tid)
        }) {
            return;
        }
        self.meetings -= 1;
        if !signal_gate::commit_meeting(&entry.unregistered, tid.0) {
            return;
        }
        if by.send(pid, tid, signal).is_err() {
            signal_gate::cancel_meeting(&entry.unregistered);
            return;
        }
        signal_gate::meeting_sent(&entry.unregistered, tid.0);
        count(
            &shared.figures.unregistered_threads,
            u64::from(unregistered.sent == 0),
        );
        count(&shared.figures.signals_sent, 1);
        unregistered.sent += 1;
        process.meeting_ns = self.now_ns;
        let sent = Instant::now();
        while signal_gate::is_announced(&entry.unregistered) && sent.elapsed() < MEETING {
            std::thread::sleep(MEETING_STEP);
        }
        self.goes_on |= signal_gate::is_announced(&entry.unregistered);
    }
}

/// Whether a thread has an entry now.
fn is_registered(mapping: &Mapping, process: u32, tid: Tid) -> bool {
    registry::threads(mapping).any(|(_, e)| {
        e.state.load(Ordering::SeqCst) == entry_state::LIVE
            && e.process.load(Ordering::Relaxed) == process
            && e.tid() == tid
    })
}
