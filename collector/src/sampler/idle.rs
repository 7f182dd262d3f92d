//! Newcomers and idle threads: those that were not active of late. One that waits in a hook shows activity
//! when it leaves that wait, and costs nothing until then. One that is blocked outside hooks may begin to
//! compute without setting its activity bit: it is polled at growing distances.

use std::cmp::Reverse;
use std::time::Duration;

use stackbeat_core::shm::layout::{ThreadEntry, entry_state};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::registry;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::process::Origin;

use super::contention::Contention;
use super::{HOOK_SHARE_WORTH, Means, Process, Sampler, Thread, live_entry};
use crate::host::{State, Whose};
use crate::session::activity::Part;
use crate::session::clocks;
use crate::session::grid;
use crate::session::shared::Shared;

/// Distance between two polls of idle threads, ns, where many show activity. Few are polled with each tick:
/// who waited for long is met from the begin of what it does then.
const IDLE_POLL_NS: u64 = 5_000_000;
const FEW_ACTIVE: usize = 64;
/// Searches for newcomers take no more than one part in so many of the time, while they are that far apart at
/// most, ns.
const REFRESH_SHARE: u64 = 16;
const LONGEST_REFRESH_NS: u64 = 2_000_000;
/// Threads blocked outside hooks that are asked about in one poll.
const DUE_PER_POLL: u32 = 16;
/// So many threads that are blocked outside hooks are due at once after a pause.
const DUE_AT_ONCE: usize = 64;
/// More are now and then only: distance for each of them, ns.
const POLL_OF_ALL_EACH_NS: u64 = 4_000_000;
/// So many are asked about one by one while the ticker is parked, where the clock of the program is costly.
const FEW: usize = 8;
/// Polls of threads that are gone which may be kept.
const MOST_STALE: usize = 4096;

impl Sampler {
    /// Takes newcomers in.
    pub(crate) fn refresh(&mut self, shared: &Shared, now_ns: u64) {
        let mapping = &shared.mapping;
        let announced = mapping.control().announced.load(Ordering::Acquire);
        if announced == self.announced || now_ns < self.next_refresh_ns {
            return;
        }
        self.announced = announced;
        for (i, entry) in registry::processes(mapping) {
            let pid = entry.pid();
            match entry.state.load(Ordering::Acquire) {
                entry_state::LIVE => {
                    let upid = entry.upid();
                    if self.processes.get(&i).is_none_or(|p| p.upid != upid) {
                        // Numbers of another pid namespace are somebody else's here.
                        let is_ours = self.host.whose(pid) == Whose::Ours;
                        self.has_kernel_clock = mapping.control().has_kernel_clock();
                        let by = entry.sampled_by.load(Ordering::Relaxed);
                        let process = Process {
                            upid,
                            pid,
                            is_ours,
                            meeting_ns: 0,
                            is_searched: false,
                            threads: 0,
                            cpu_before_ns: self.host.process_cpu_ns(pid),
                            next_cpu_poll_ns: 0,
                            sampled_by: by,
                            at_first: by,
                            is_new: true,
                            contention: Contention::default(),
                        };
                        // Its threads were there before us.
                        if entry.origin.load(Ordering::Relaxed) == Origin::Attached as u32 {
                            self.next_unregistered_poll_ns = 0;
                        }
                        self.processes.insert(i, process);
                    }
                }
                _ => {
                    self.processes.remove(&i);
                }
            }
        }
        let mut unmet = std::mem::take(&mut self.unmet);
        unmet.extend(self.take_activity(shared, now_ns));
        unmet.sort_unstable();
        unmet.dedup();
        for i in unmet {
            self.meet(mapping, i);
        }
        // A program that starts threads all the time must not make us search all the time. But what a
        // newcomer computes until it is met has no samples.
        let ended_ns = clocks::now_ns();
        let took_ns = ended_ns.saturating_sub(now_ns);
        self.next_refresh_ns = ended_ns + (took_ns * REFRESH_SHARE).min(LONGEST_REFRESH_NS);
    }

    /// The entries that have shown activity; kept for the next poll of idle threads as well.
    fn take_activity(&mut self, shared: &Shared, now_ns: u64) -> Vec<u32> {
        let mut activity = Vec::new();
        shared.take_activity(Part::Sampler, now_ns, &mut activity);
        self.activity.extend(&activity);
        activity
    }

    /// Takes a newcomer in.
    fn meet(&mut self, mapping: &Mapping, i: u32) {
        let Some(entry) = mapping.thread(i) else {
            return;
        };
        let utid = entry.utid();
        if entry.state.load(Ordering::Acquire) != entry_state::LIVE || self.known.contains(&utid) {
            return;
        }
        let index = entry.process.load(Ordering::Relaxed);
        // The entry may have become another process' since: with that one comes another announcement.
        let of_now = mapping.process(index).map(|p| p.upid());
        let process = self.processes.get_mut(&index);
        let Some(process) = process.filter(|p| of_now == Some(p.upid)) else {
            self.unmet.push(i);
            return;
        };
        process.threads += 1;
        let thread = Thread {
            entry: i,
            utid,
            process: index,
            upid: process.upid,
            pid: process.pid,
            tid: entry.tid(),
            tick_seen: entry.last_tick.load(Ordering::Relaxed),
            misses: 0,
            captured_at: None,
            next_poll_ns: 0,
            backoff_ns: 0,
            hook_share: HOOK_SHARE_WORTH + 1,
            is_announced: false,
            sent_ns: 0,
            blocking_section_sent: entry.blocking_section.load(Ordering::Relaxed),
            followed: None,
            due_ns: 0,
            stays_on_ticks: false,
        };
        self.known.insert(utid);
        self.make_active(thread, entry);
    }

    /// Takes newcomers in, and looks for threads that have no entry, where no thread is on ticks. Gives when
    /// to do so again, ns.
    pub(crate) fn find_threads(&mut self, shared: &Shared, now_ns: u64) -> u64 {
        self.refresh(shared, now_ns);
        // Who wakes up is sampled without being polled.
        self.activity.clear();
        self.poll_unregistered_in_time(shared, now_ns);
        let announced = shared.mapping.control().announced.load(Ordering::Acquire);
        // Those that are unmet wait for another announcement.
        match announced == self.announced {
            true => self.next_unregistered_poll_ns,
            false => self.next_refresh_ns.min(self.next_unregistered_poll_ns),
        }
    }

    /// Looks for threads that have no entry, when it is time.
    pub(crate) fn poll_unregistered_in_time(&mut self, shared: &Shared, now_ns: u64) {
        if now_ns >= self.next_unregistered_poll_ns {
            let distance = Duration::from_nanos(self.poll_unregistered(shared, now_ns));
            self.next_unregistered_poll_ns = grid::moment_ns(now_ns, distance);
        }
    }

    /// Polls idle threads, and looks for those that have no entry, when it is time.
    pub(crate) fn poll_all(&mut self, shared: &Shared, now_ns: u64) -> bool {
        let mut active = false;
        if now_ns >= self.next_activity_poll_ns {
            for i in self.take_activity(shared, now_ns) {
                self.meet(&shared.mapping, i);
            }
            let activity = std::mem::take(&mut self.activity);
            if activity.len() > FEW_ACTIVE {
                self.next_activity_poll_ns = now_ns + IDLE_POLL_NS;
            }
            for entry in activity {
                active |= self.poll_idle(shared, entry, now_ns);
            }
        }
        if now_ns >= self.next_idle_poll_ns {
            self.next_idle_poll_ns = now_ns + IDLE_POLL_NS;
            let mut due = DUE_PER_POLL;
            while let Some(Reverse((due_ns, entry))) = self.blocked_outside_hooks.peek().copied()
                && due_ns <= now_ns
                && due > 0
            {
                self.blocked_outside_hooks.pop();
                // It may have been polled since, or be another thread's.
                if self.idle.get(&entry).is_some_and(|t| t.due_ns == due_ns) {
                    due -= 1;
                    active |= self.poll_idle(shared, entry, now_ns);
                }
            }
            // Others may be due: the ticker does not park until all have been polled.
            active |= due == 0;
        }
        self.poll_unregistered_in_time(shared, now_ns);
        active || self.awaits_unregistered
    }

    /// Polls a thread, if it is an idle one. True when it is none any more.
    fn poll_idle(&mut self, shared: &Shared, entry: u32, now_ns: u64) -> bool {
        let Some(mut thread) = self.idle.remove(&entry) else {
            return false;
        };
        let Some(entry) = live_entry(&shared.mapping, &thread) else {
            self.forget(thread);
            return false;
        };
        let woke = entry.last_tick.load(Ordering::Relaxed) != thread.tick_seen;
        if woke || self.interrupt(shared, &mut thread, entry, now_ns) {
            self.make_active(thread, entry);
            return true;
        }
        self.make_idle(thread, entry, now_ns);
        false
    }

    /// Puts a thread to the idle ones. Outside of a published wait it may begin to compute without setting
    /// its activity bit.
    pub(super) fn make_idle(&mut self, mut thread: Thread, entry: &ThreadEntry, now_ns: u64) {
        if self.is_to_have_timer(&thread, entry) {
            return self.await_timer(thread);
        }
        let waits = entry.blocking_section.load(Ordering::Relaxed);
        let is_blocked_outside_hooks = self.interruption.is_some() && waits.is_multiple_of(2);
        let was_blocked_outside_hooks = thread.due_ns != 0;
        self.blocked_count = self.blocked_count + usize::from(is_blocked_outside_hooks)
            - usize::from(was_blocked_outside_hooks);
        if !is_blocked_outside_hooks {
            thread.due_ns = 0;
        } else if thread.due_ns <= now_ns {
            thread.due_ns = thread.next_poll_ns.max(now_ns + IDLE_POLL_NS);
            self.blocked_outside_hooks
                .push(Reverse((thread.due_ns, thread.entry)));
            self.forget_stale();
        }
        // The entry's thread before may have ended without anybody noticing.
        if let Some(before) = self.idle.insert(thread.entry, thread) {
            self.forget(before);
        }
    }

    /// Polls of threads that are gone stay until they are due: there are never many more than threads.
    fn forget_stale(&mut self) {
        if self.blocked_outside_hooks.len() > MOST_STALE + 2 * self.idle.len() {
            let idle = &self.idle;
            let is_one = |due_ns, entry| idle.get(&entry).is_some_and(|t| t.due_ns == due_ns);
            self.blocked_outside_hooks
                .retain(|Reverse((due_ns, entry))| is_one(*due_ns, *entry));
        }
    }

    /// Looks at idle threads that wait outside of hooks, for a host where nobody else does.
    pub(crate) fn find_waits(&mut self, shared: &Shared, now_ns: u64) {
        let Some(Means::Suspender(suspender)) = &mut self.interruption else {
            return;
        };
        let host = &self.host;
        let count = self.blocked_count;
        for thread in self.idle.values_mut().filter(|t| t.due_ns != 0) {
            if !suspender.is_due(thread, count, now_ns) {
                continue;
            }
            let Some(entry) = live_entry(&shared.mapping, thread) else {
                continue;
            };
            let (pid, tid) = (thread.pid, thread.tid);
            let followed = thread.followed.get_or_insert_with(|| host.follow(pid, tid));
            if followed.state() == State::Blocked {
                suspender.waits(&**host, shared, thread, entry, now_ns);
            }
        }
    }

    /// CPU time of the threads that may run without setting their activity bit, ns, when these are few and of
    /// processes that we may ask about.
    pub(crate) fn blocked_outside_hooks_cpu_ns(&mut self) -> Option<u64> {
        let active = || self.active.iter().flatten().flatten();
        if self.interruption.is_none() || self.blocked_count + active().count() > FEW {
            return None;
        }
        let idle = &self.idle;
        if self.blocked_outside_hooks.len() > self.blocked_count {
            let is_one = |due_ns, entry| idle.get(&entry).is_some_and(|t| t.due_ns == due_ns);
            self.blocked_outside_hooks
                .retain(|Reverse((due_ns, entry))| is_one(*due_ns, *entry));
        }
        let due = self.blocked_outside_hooks.iter();
        let threads = due.filter_map(|Reverse((due_ns, entry))| {
            self.idle.get(entry).filter(|t| t.due_ns == *due_ns)
        });
        threads
            .chain(active())
            .map(|t| self.host.scheduled(t.pid, t.tid).map(|s| s.run_ns))
            .sum()
    }

    /// After a pause: anybody may be running who does not wait in a hook. `somebody_does`: the program's
    /// clocks say so, which is a reason to ask about thousands, too, though not all the time.
    pub(crate) fn make_all_due(&mut self, somebody_does: bool, now_ns: u64) {
        self.next_idle_poll_ns = 0;
        self.next_activity_poll_ns = 0;
        if self.blocked_count > DUE_AT_ONCE {
            if !somebody_does || now_ns < self.next_poll_of_all_ns {
                return;
            }
            self.next_poll_of_all_ns = now_ns + POLL_OF_ALL_EACH_NS * self.blocked_count as u64;
        }
        for Reverse((due_ns, entry)) in std::mem::take(&mut self.blocked_outside_hooks) {
            let thread = self.idle.get_mut(&entry);
            if let Some(thread) = thread.filter(|t| t.due_ns == due_ns) {
                thread.next_poll_ns = 0;
                thread.backoff_ns = 0;
                thread.due_ns = 1;
                self.blocked_outside_hooks.push(Reverse((1, entry)));
            }
        }
    }
}
