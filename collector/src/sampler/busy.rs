//! Processes that have computed for long: their threads leave the events or ticks that they began with for
//! timers of their own, which cost less and go off less often (`ClockChoice::Auto`). Each thread does that by
//! itself, at its next capture. While threads wait for processors they have events or ticks again
//! (`contention`), which are as far apart as timers go off: ticks while no thread of a process in its first
//! second needs nearer ones. A process that computes in system calls which neither events nor hooks see
//! leaves its events early, and has none again.

use std::collections::HashMap;

use stackbeat_core::ids::{Tid, Upid};
use stackbeat_core::shm::layout::{NO_TIMER, ProcessEntry, ThreadEntry, sampled_by};
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::{Event, event, packet};

use super::contention::MOST_THREADS;
use super::signal_choice::Handled;
use super::{Sampler, Thread, live_entry};
use crate::session::clocks::now_ns;
use crate::session::orders::Order;
use crate::session::shared::Shared;

/// How long the threads of a process compute or wait for processors, ns, before they leave the ticks: short
/// runs have many samples, long ones have enough.
pub(super) const AT_FIRST_NS: u64 = 1_000_000_000;
/// Distance between two polls, ns; and for each thread that is to be asked about.
const POLL_NS: u64 = 50_000_000;
const POLL_EACH_NS: u64 = 2_000_000;
/// Distance between two looks at whether the threads of a process with timers wait for processors, ns.
const CONTENTION_POLL_NS: u64 = 1_000_000_000;
/// Polls that find a thread active without a timer before it is on ticks again.
const MOST_MISSES: u32 = 3;

impl Sampler {
    /// Finds, when it is time, which processes have computed for long, and which of those with timers had
    /// better be on ticks again. `timed`: threads with timers, those that were active of late, by the entry
    /// of their process.
    pub(crate) fn poll_busy(
        &mut self,
        shared: &Shared,
        timed: impl Iterator<Item = (u32, Tid)>,
        now_ns: u64,
    ) {
        if now_ns < self.next_busy_poll_ns {
            return;
        }
        self.next_busy_poll_ns = now_ns + POLL_NS;
        let control = shared.mapping.control();
        self.has_timers = control.has_timers();
        let timer_ns = control.timer_ns.load(Ordering::Relaxed);
        let at_first = control.at_first.load(Ordering::Relaxed);
        self.stays_as_it_begins |= at_first != sampled_by::SESSION_CLOCK
            && shared.keeps_interval.load(Ordering::Relaxed)
            && (control.interval_ns.iter()).any(|ns| ns.load(Ordering::Relaxed) < timer_ns);
        let stays = self.stays_as_it_begins;
        self.later_interval_ns = match at_first {
            sampled_by::SESSION_CLOCK => 0,
            _ if stays => 0,
            _ => timer_ns,
        };
        let mut found = Vec::new();
        let threads = self.threads_to_ask(shared, timed, now_ns);
        for (i, process) in &mut self.processes {
            let Some(entry) = shared.mapping.process(*i) else {
                continue;
            };
            let by = entry.sampled_by.load(Ordering::Relaxed);
            process.sampled_by = by;
            if by == sampled_by::TICKS_AT_FIRST {
                // Events may have been refused.
                process.at_first = by;
            }
            let is_unseen = is_unseen(entry);
            if is_unseen {
                process.at_first = sampled_by::TICKS_AT_FIRST;
            }
            let at_first = process.at_first;
            let is_due = process.is_ours && (is_unseen || now_ns >= process.next_cpu_poll_ns);
            if by == sampled_by::TICKS {
                process.next_cpu_poll_ns = u64::MAX;
            }
            if by == sampled_by::TICKS || !is_due || !has_signal(entry) {
                continue;
            }
            if stays {
                // Those that begin meanwhile as well.
                process.next_cpu_poll_ns = u64::MAX;
                if by == sampled_by::SESSION_CLOCK || is_unseen {
                    entry.sampled_by.store(at_first, Ordering::SeqCst);
                    process.sampled_by = at_first;
                    process.is_new = true;
                    say(shared, process.upid, 0);
                }
                continue;
            }
            let threads = threads.get(i).map_or(&[][..], |tids| tids);
            let cpu_ns = self.host.process_cpu_ns(process.pid);
            let contention = &mut process.contention;
            contention.poll(&*self.host, process.pid, threads, timer_ns.into());
            if by == sampled_by::SESSION_CLOCK {
                process.next_cpu_poll_ns = now_ns + CONTENTION_POLL_NS;
                if contention.take() && at_first != sampled_by::SESSION_CLOCK {
                    entry.sampled_by.store(at_first, Ordering::SeqCst);
                    process.sampled_by = at_first;
                    process.cpu_before_ns = cpu_ns;
                    if at_first != sampled_by::EVENTS_AT_FIRST {
                        say(shared, process.upid, 0);
                    }
                }
                continue;
            }
            // Ticks cost as much while a thread waits for a processor.
            let used_ns = cpu_ns.saturating_sub(process.cpu_before_ns) + contention.ready_ns();
            if used_ns < AT_FIRST_NS && !is_unseen {
                // One thread needs that long for the rest; many are found somewhat later.
                process.next_cpu_poll_ns = now_ns + (AT_FIRST_NS - used_ns) / 4;
                continue;
            }
            let was_new = std::mem::replace(&mut process.is_new, false);
            let has_events = by == sampled_by::EVENTS_AT_FIRST;
            if was_new && has_events {
                // From here on its events are as far apart as its timers would go off.
                say(shared, process.upid, timer_ns);
            }
            if contention.take() {
                process.cpu_before_ns = cpu_ns;
                if is_unseen {
                    entry.sampled_by.store(at_first, Ordering::SeqCst);
                    process.sampled_by = at_first;
                    say(shared, process.upid, 0);
                }
                continue;
            }
            entry
                .sampled_by
                .store(sampled_by::SESSION_CLOCK, Ordering::SeqCst);
            process.sampled_by = sampled_by::SESSION_CLOCK;
            if !has_events {
                say(shared, process.upid, timer_ns);
            }
            found.push(*i);
        }
        let idle = (self.idle).extract_if(|_, thread| found.contains(&thread.process));
        for thread in idle.map(|(_, thread)| thread).collect::<Vec<_>>() {
            self.await_timer(thread);
        }
    }

    /// What lies at least between two signals of the thread's event, if it has one, ns.
    pub(super) fn event_ns(&self, thread: &Thread) -> u32 {
        let process = self.processes.get(&thread.process);
        let is_new = process.is_none_or(|process| process.is_new || process.upid != thread.upid);
        if is_new { 0 } else { self.later_interval_ns }
    }

    /// What ticks may be apart at this moment, ns: as far as timers would, while all active threads on ticks
    /// are of processes that have computed for long.
    pub(super) fn least_interval_ns(&self) -> u64 {
        if self.later_interval_ns == 0 {
            return 0;
        }
        let mut active = self.active.iter().flatten().flatten();
        let has_new = active.any(|thread| {
            let process = self.processes.get(&thread.process);
            process.is_none_or(|process| process.is_new || process.upid != thread.upid)
        });
        if has_new {
            0
        } else {
            self.later_interval_ns.into()
        }
    }

    /// Of the processes that are due, some threads: by the process' entry. Those that were active come first.
    fn threads_to_ask(
        &self,
        shared: &Shared,
        timed: impl Iterator<Item = (u32, Tid)>,
        now_ns: u64,
    ) -> HashMap<u32, Vec<Tid>> {
        let due = self.processes.iter().filter(|(i, process)| {
            let is_unseen = || shared.mapping.process(**i).is_some_and(is_unseen);
            process.is_ours && (now_ns >= process.next_cpu_poll_ns || is_unseen())
        });
        let mut threads: HashMap<u32, Vec<Tid>> = due.map(|(i, _)| (*i, Vec::new())).collect();
        if threads.is_empty() {
            return threads;
        }
        let active = self.active.iter().flatten().flatten();
        let on_ticks = active.chain(self.idle.values()).chain(&self.untimed);
        for (process, tid) in timed.chain(on_ticks.map(|thread| (thread.process, thread.tid))) {
            if let Some(tids) = threads.get_mut(&process)
                && tids.len() < MOST_THREADS
            {
                tids.push(tid);
            }
        }
        threads
    }

    /// Whether the thread, which is on ticks, is to leave them.
    pub(super) fn is_to_have_timer(&self, thread: &Thread, entry: &ThreadEntry) -> bool {
        let process = self.processes.get(&thread.process);
        self.has_timers
            && process
                .is_some_and(|p| p.upid == thread.upid && p.sampled_by == sampled_by::SESSION_CLOCK)
            && !thread.stays_on_ticks
            && entry.timer.load(Ordering::Relaxed) & NO_TIMER == 0
    }

    /// A thread that is to have a timer and was not active of late: no ticks are needed for it any more.
    pub(super) fn await_timer(&mut self, mut thread: Thread) {
        thread.misses = 0;
        self.blocked_count -= usize::from(std::mem::take(&mut thread.due_ns) != 0);
        self.untimed.push(thread);
    }

    /// Whether threads are waited for to start their timers: their tick words are to move now and then, so
    /// that their next hook captures.
    pub(crate) fn awaits_timers(&self) -> bool {
        !self.untimed.is_empty()
    }

    /// Polls those, and interrupts the ones that run.
    pub(crate) fn poll_untimed(&mut self, shared: &Shared, now_ns: u64) {
        if now_ns < self.next_untimed_poll_ns {
            return;
        }
        let each_ns = POLL_EACH_NS * self.untimed.len() as u64;
        self.next_untimed_poll_ns = now_ns + POLL_NS.max(each_ns);
        for mut thread in std::mem::take(&mut self.untimed) {
            let Some(entry) = live_entry(&shared.mapping, &thread) else {
                self.forget(thread);
                continue;
            };
            let is_awaited = !entry.has_kernel_clock() && self.is_to_have_timer(&thread, entry);
            thread.stays_on_ticks = is_awaited && thread.misses >= MOST_MISSES;
            if !is_awaited || thread.stays_on_ticks {
                self.make_active(thread, entry);
                continue;
            }
            let seen = entry.last_tick.load(Ordering::Relaxed);
            let has_captured = std::mem::replace(&mut thread.tick_seen, seen) != seen;
            let runs = self.interrupt(shared, &mut thread, entry, now_ns);
            thread.misses += u32::from(has_captured || runs);
            self.untimed.push(thread);
        }
    }
}

/// Whether the process has events, which do not see what it computes.
fn is_unseen(process: &ProcessEntry) -> bool {
    process.sampled_by.load(Ordering::Relaxed) == sampled_by::EVENTS_AT_FIRST
        && process.has_unseen_calls.load(Ordering::Relaxed) != 0
}

/// Whether timers may send their signal to the process.
fn has_signal(process: &ProcessEntry) -> bool {
    Handled::of(process).first == libc::SIGURG as u32
        && process.handles_signal.load(Ordering::Relaxed) == 0
}

/// Says in the trace that a process' threads are sampled by timers from here on, which go off no more often
/// than this, ns; 0: not any more.
pub(super) fn say(shared: &Shared, upid: Upid, timer_ns: u32) {
    shared.order(Order::Say(Box::new(packet::Body::Event(Event {
        upid: upid.0,
        time_ns: now_ns(),
        name: "process".to_owned(),
        kind: event::Kind::IntervalChanged.into(),
        value: timer_ns.into(),
        ..Event::default()
    }))));
}
