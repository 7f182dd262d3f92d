//! Clocks of single threads that the system keeps: an event of the thread (`crate::linux::thread_clock`) or a
//! timer that it has started itself sends it the signal after each interval of its CPU time. So nobody needs
//! to look who runs, and no process beside the program wakes up for each sample. Here: who has one, whose
//! signals do not arrive, and who is on ticks instead.

use std::io;
use std::sync::Arc;

use stackbeat_core::clock;
use stackbeat_core::ids::Tid;
use stackbeat_core::platform;
use stackbeat_core::shm::layout::{CLASSES, CLOCK_ENDED, ThreadEntry, first_strike, sampled_by};
use stackbeat_core::shm::registry;
use stackbeat_core::shm::throttle::Ticker;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::{self, packet};

use super::signal_choice::Handled;
use super::{Sampler, Thread, busy, live_entry};
use crate::host::{Host, ThreadClock};
use crate::session::clocks::now_ns;
use crate::session::orders::Order;
use crate::session::shared::Shared;

/// The session's first signal. Threads that block it by a call that has a hook are only told that they do;
/// those that begin with it blocked are on ticks, where they have the second signal.
const SIGNAL: u32 = libc::SIGURG as u32;
/// Distance between two polls of which threads have ended, and of those that could not have an event, ns.
const POLL_NS: u64 = 100_000_000;
/// Polls in a row that find a thread without an event before it is put on ticks.
const MOST_MISSES: u32 = 2;
/// Polls in a row at which a thread did nothing before the kernel is asked whether it lives.
const FIRST_QUESTION: u32 = 8;
/// A thread that has computed for so many periods, and so long (ns; the kernel may know it to one of its own
/// ticks), without a signal gets none.
const UNHEARD_PERIODS: u64 = 16;
const UNHEARD_NS: u64 = 50_000_000;
/// Polls in a row without another signal before the kernel is asked how long a thread has computed, which
/// takes some 10 µs, and how often it is asked at least from then on.
const POLLS_UNHEARD: u32 = 2;
const MOST_POLLS_UNHEARD: u32 = 256;

/// Where threads can be on ticks as well: events are opened for one part in so many of the time, after so
/// much at once, ns. A program that begins threads or processes all the time gets no more, and the rest are
/// on ticks.
const OPENING_SHARE: u64 = 50;
const OPENING_AT_ONCE_NS: u64 = 20_000_000;

/// The events of all threads.
#[derive(Debug, Default)]
pub(crate) struct KernelClock {
    threads: Vec<Clocked>,
    /// What it has taken to open events, ns of CPU time, beyond what was to be had by `paid_until_ns`.
    opening_ns: u64,
    paid_until_ns: u64,
    next_poll_ns: u64,
    /// `Control::clock_calls` at the last one.
    calls: u32,
    /// Threads that were active between the last two polls.
    active: usize,
}

#[derive(Debug)]
struct Clocked {
    thread: Thread,
    event: Option<Box<dyn ThreadClock>>,
    /// Polls in a row that found it without an event.
    polls_without: u32,
    /// What it had written at the last poll, and polls in a row at which that was the same.
    records: u64,
    quiet_polls: u32,
    /// Signals that had arrived at the last poll, and polls in a row at which there was no other.
    strikes: u32,
    unheard_polls: u32,
    /// CPU time in user mode since when there was none, ns; `None`: not asked.
    unheard_from_ns: Option<u64>,
    /// The longest period since then, ns.
    longest_ns: u64,
    /// It has begun a timer of its own.
    has_started: bool,
}

impl Clocked {
    fn new(thread: Thread) -> Clocked {
        Clocked {
            thread,
            event: None,
            polls_without: 0,
            records: 0,
            quiet_polls: 0,
            strikes: 0,
            unheard_polls: 0,
            unheard_from_ns: None,
            longest_ns: 0,
            has_started: false,
        }
    }

    /// It is time for a poll: whether it was active since the last one. `has_signal`: its process has a
    /// handler for the signal.
    fn poll(&mut self, entry: &ThreadEntry, has_signal: bool) -> bool {
        let has_timer =
            has_signal && entry.has_timer() && entry.wants_clock.load(Ordering::Relaxed) != 0;
        self.polls_without = match has_timer || self.event.is_some() {
            true => 0,
            false => self.polls_without + 1,
        };
        let records = entry.records.load(Ordering::Relaxed);
        let is_active = std::mem::replace(&mut self.records, records) != records;
        self.quiet_polls = match is_active {
            true => 0,
            false => self.quiet_polls.saturating_add(1),
        };
        is_active
    }

    /// Whether it has ended without its agent's notice (a bare exit system call). Asked more and more rarely.
    fn is_gone(&self, host: &dyn Host) -> bool {
        self.quiet_polls >= FIRST_QUESTION
            && self.quiet_polls.is_power_of_two()
            && !host.has_thread(self.thread.pid, self.thread.tid)
    }

    /// At a poll: whether the clock's signals arrive, as far as that is known. A runtime may have replaced
    /// our handler by a bare system call at any time.
    fn is_heard(&mut self, host: &dyn Host, entry: &ThreadEntry, period_ns: u64) -> bool {
        let strikes = entry.clock_strikes.load(Ordering::Relaxed);
        let period_ns = period_ns.max(entry.clock_period_ns.load(Ordering::Relaxed).into());
        if std::mem::replace(&mut self.strikes, strikes) != strikes {
            self.unheard_polls = 0;
            self.unheard_from_ns = None;
            self.longest_ns = period_ns;
            return true;
        }
        // What is under way may be one of before.
        self.longest_ns = self.longest_ns.max(period_ns);
        self.unheard_polls = self.unheard_polls.saturating_add(1);
        let polls = self.unheard_polls;
        if !polls.is_power_of_two() && !polls.is_multiple_of(MOST_POLLS_UNHEARD) {
            return true;
        }
        let user_ns = || host.user_ns(self.thread.pid, self.thread.tid);
        match self.unheard_from_ns {
            None if polls < POLLS_UNHEARD => true,
            None => {
                self.unheard_from_ns = user_ns();
                true
            }
            Some(from_ns) => {
                let due_ns = (self.longest_ns * UNHEARD_PERIODS).max(UNHEARD_NS);
                user_ns().unwrap_or(from_ns).saturating_sub(from_ns) < due_ns
            }
        }
    }

    /// From now on signals are to arrive.
    fn listens(&mut self, host: &dyn Host, entry: &ThreadEntry) {
        self.strikes = entry.clock_strikes.load(Ordering::Relaxed);
        self.unheard_polls = 0;
        self.longest_ns = 0;
        self.unheard_from_ns = host.user_ns(self.thread.pid, self.thread.tid);
    }

    /// The thread has a timer of its own.
    fn begins(&mut self, host: &dyn Host, entry: &ThreadEntry) {
        if !std::mem::replace(&mut self.has_started, true) {
            self.listens(host, entry);
        }
    }

    /// Gives the thread an event, unless it has ended.
    fn begin(&mut self, host: &dyn Host, entry: &ThreadEntry, period_ns: u64) -> io::Result<()> {
        match self.start_event(host, entry, period_ns) {
            Ok(Some(event)) => {
                self.event = Some(event);
                self.polls_without = 0;
                self.listens(host, entry);
            }
            Ok(None) => self.end(entry),
            Err(error) => {
                self.end(entry);
                if error.raw_os_error() != Some(libc::ESRCH) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// An event that counts; `None`: the thread does not want one any more.
    fn start_event(
        &self,
        host: &dyn Host,
        entry: &ThreadEntry,
        period_ns: u64,
    ) -> io::Result<Option<Box<dyn ThreadClock>>> {
        let tid = self.thread.tid;
        let event = host.thread_clock(tid, period_ns)?;
        entry.clock_strikes.store(0, Ordering::Relaxed);
        let [time, faults] = event.numbers();
        entry.fault_descriptor.store(faults, Ordering::SeqCst);
        entry.clock_descriptor.store(time, Ordering::SeqCst);
        if entry.wants_clock.load(Ordering::SeqCst) == 0 {
            return Ok(None);
        }
        event.start(tid, SIGNAL as i32)?;
        Ok(Some(event))
    }

    /// No signal of its event is on its way afterwards, and the thread learns that. A timer is the thread's
    /// own to stop.
    fn end(&mut self, entry: &ThreadEntry) {
        self.event = None;
        let descriptor = &entry.clock_descriptor;
        if descriptor.load(Ordering::Relaxed) != 0 {
            descriptor.fetch_or(CLOCK_ENDED, Ordering::SeqCst);
        }
        platform::wake(&entry.clock_descriptor, 1);
    }
}

impl KernelClock {
    /// Gives events to the threads that want one, ends those of others, puts the periods in force, and puts
    /// threads that cannot have one on ticks. Gives how many threads were active between the last two polls.
    pub(crate) fn follow(
        &mut self,
        shared: &Shared,
        sampler: &mut Sampler,
        ticker: &mut Ticker,
        intervals_ns: [u64; CLASSES],
    ) -> usize {
        let host = Arc::clone(&sampler.host);
        let control = shared.mapping.control();
        let calls = control.clock_calls.count();
        let before = self.threads.len();
        self.threads
            .extend(sampler.take_threads().map(Clocked::new));
        let now = now_ns();
        let is_poll = now >= self.next_poll_ns;
        if calls == self.calls && self.threads.len() == before && !is_poll {
            return self.active;
        }
        self.calls = calls;
        if is_poll {
            self.next_poll_ns = now + POLL_NS;
            self.active = 0;
        }
        let mut moved = false;
        let mut threads = std::mem::take(&mut self.threads);
        let mut i = 0;
        while let Some(clocked) = threads.get_mut(i) {
            let Some(entry) = live_entry(&shared.mapping, &clocked.thread) else {
                sampler.forget(threads.swap_remove(i).thread);
                continue;
            };
            let later_ns = sampler.event_ns(&clocked.thread);
            let period_ns = period_ns(entry, intervals_ns).max(later_ns.into());
            if entry.has_user_clock() {
                entry.clock_period_ns.store(later_ns, Ordering::Relaxed);
            }
            if is_poll {
                let process = shared.mapping.process(clocked.thread.process);
                let has_signal = process.is_some_and(|p| Handled::of(p).first == SIGNAL);
                self.active += usize::from(clocked.poll(entry, has_signal));
                if sampler.is_ours(clocked.thread.process) && clocked.is_gone(&*host) {
                    registry::end_thread(entry, clock::now(shared.clock_source()));
                    registry::show_activity(&shared.mapping, clocked.thread.entry, entry);
                    continue;
                }
            }
            let still_waits = clocked.polls_without < MOST_MISSES;
            if !entry.has_timer() && !sampler.is_ours(clocked.thread.process) && still_waits {
                // It ends, or is becoming another program, or its numbers are of another pid namespace.
                clocked.end(entry);
                i += 1;
                continue;
            }
            let by = shared
                .mapping
                .process(clocked.thread.process)
                .map(|process| process.sampled_by.load(Ordering::Relaxed));
            if entry.has_timer() && by == Some(sampled_by::EVENTS_AT_FIRST) {
                // The timer ends when it goes off.
                registry::put_on_event(entry);
            }
            let stays = entry.has_kernel_clock()
                && self.may_have_signals(shared, sampler, clocked, entry.has_timer())
                && self.keep(shared, &*host, clocked, entry, period_ns, is_poll);
            if stays {
                i += 1;
                continue;
            }
            // From its next hook on.
            clocked.end(entry);
            registry::put_on_ticks(entry);
            let thread = threads.swap_remove(i).thread;
            sampler.make_active(thread, entry);
            moved = true;
        }
        self.threads = threads;
        if moved {
            ticker.move_still(control);
        }
        self.active
    }

    /// Has the thread's event follow what the thread wants. `is_poll`: it is time to ask whether its signals
    /// arrive. False: it is to be on ticks.
    fn keep(
        &mut self,
        shared: &Shared,
        host: &dyn Host,
        clocked: &mut Clocked,
        entry: &ThreadEntry,
        period_ns: u64,
        is_poll: bool,
    ) -> bool {
        let control = shared.mapping.control();
        let process = shared.mapping.process(clocked.thread.process);
        let is_wanted = entry.wants_clock.load(Ordering::SeqCst) != 0
            && process.is_some_and(|process| Handled::of(process).first == SIGNAL);
        let has_timer = entry.has_timer();
        match &mut clocked.event {
            Some(event) if is_wanted && !has_timer => {
                let struck = entry.fault_descriptor.load(Ordering::Relaxed) & first_strike::ANY;
                if struck != 0 {
                    entry.fault_descriptor.fetch_and(!struck, Ordering::SeqCst);
                    event.go_on(struck);
                }
                event.set_period(period_ns, entry.clock_strikes.load(Ordering::Relaxed));
            }
            Some(_) => clocked.end(entry),
            None => {}
        }
        match clocked.event {
            None if is_wanted && has_timer => clocked.begins(host, entry),
            None if is_wanted && control.has_timers() && !self.may_open() => return false,
            None if is_wanted => {
                let before_ns = platform::thread_cpu_ns();
                let begun = clocked.begin(host, entry, period_ns);
                self.opening_ns += platform::thread_cpu_ns().saturating_sub(before_ns);
                if let Err(error) = begun {
                    let why = format!("perf_event_open: {error}");
                    self.refuse_event(shared, &clocked.thread, &why);
                    return false;
                }
            }
            _ => {}
        }
        if clocked.polls_without >= MOST_MISSES {
            return false;
        }
        let is_heard = !is_poll || clocked.is_heard(host, entry, period_ns);
        if !is_heard {
            self.refuse(shared, &clocked.thread, "the signals do not arrive");
        }
        is_heard
    }

    /// Whether there is time for another event.
    fn may_open(&mut self) -> bool {
        let now = now_ns();
        let since_ns = now.saturating_sub(self.paid_until_ns);
        self.opening_ns = self.opening_ns.saturating_sub(since_ns / OPENING_SHARE);
        self.paid_until_ns = now;
        self.opening_ns < OPENING_AT_ONCE_NS
    }

    /// Whether the process of this thread may get the signals.
    fn may_have_signals(
        &mut self,
        shared: &Shared,
        sampler: &Sampler,
        clocked: &Clocked,
        has_timer: bool,
    ) -> bool {
        let thread = &clocked.thread;
        let Some(process) = shared.mapping.process(thread.process) else {
            return false;
        };
        let is_ours = has_timer || sampler.is_ours(thread.process);
        let by = process.sampled_by.load(Ordering::Relaxed);
        if !matches!(by, sampled_by::SESSION_CLOCK | sampled_by::EVENTS_AT_FIRST) || !is_ours {
            return false;
        }
        match Handled::of(process).first {
            _ if process.handles_signal.load(Ordering::SeqCst) != 0 => {
                self.refuse(shared, thread, "it handles SIGURG itself");
                false
            }
            SIGNAL => true,
            // Not yet; or not any more, because a sandbox does not let handlers return. Where the program has
            // just begun to ignore the first, the second follows.
            0 => clocked.event.is_none() || process.sandboxed.load(Ordering::Relaxed) == 0,
            _ => {
                self.refuse(shared, thread, "it ignores SIGURG");
                false
            }
        }
    }

    /// The thread's process cannot have events: it is on ticks, for good where the session has nothing else.
    fn refuse_event(&mut self, shared: &Shared, thread: &Thread, reason: &str) {
        if !shared.mapping.control().has_timers() {
            return self.refuse(shared, thread, reason);
        }
        if let Some(process) = shared.mapping.process(thread.process) {
            let by = &process.sampled_by;
            by.store(sampled_by::TICKS_AT_FIRST, Ordering::SeqCst);
        }
    }

    /// Puts the thread's process on ticks, for good.
    fn refuse(&mut self, shared: &Shared, thread: &Thread, reason: &str) {
        let Some(process) = shared.mapping.process(thread.process) else {
            return;
        };
        let before = process.sampled_by.swap(sampled_by::TICKS, Ordering::SeqCst);
        if before == sampled_by::TICKS {
            return;
        }
        let begins = &shared.mapping.control().at_first;
        if matches!(
            before,
            sampled_by::SESSION_CLOCK | sampled_by::EVENTS_AT_FIRST
        ) && begins.load(Ordering::Relaxed) != sampled_by::SESSION_CLOCK
        {
            busy::say(shared, thread.upid, 0);
        }
        let pid = thread.pid;
        shared.order(Order::Say(Box::new(packet::Body::Event(v1::Event {
            time_ns: now_ns(),
            name: format!("process {pid} is sampled at ticks, not by the kernel's clock: {reason}"),
            kind: v1::event::Kind::Note.into(),
            ..v1::Event::default()
        }))));
    }

    /// The threads that did something of late: their process' entries, and tids.
    pub(crate) fn active(&self) -> impl Iterator<Item = (u32, Tid)> {
        let active = self.threads.iter().filter(|one| one.quiet_polls == 0);
        active.map(|one| (one.thread.process, one.thread.tid))
    }

    /// The session is switched off, or ends: nobody waits for an event to stop any more.
    /// [`KernelClock::follow`] opens others.
    pub(crate) fn end_all(&mut self, shared: &Shared) {
        for clocked in &mut self.threads {
            match live_entry(&shared.mapping, &clocked.thread) {
                Some(entry) => clocked.end(entry),
                None => clocked.event = None,
            }
        }
        self.next_poll_ns = 0;
    }
}

/// CPU time between two samples of a thread, ns.
fn period_ns(entry: &ThreadEntry, intervals_ns: [u64; CLASSES]) -> u64 {
    let class = entry.class.load(Ordering::Relaxed) as usize;
    let interval_ns = intervals_ns[class.min(CLASSES - 1)];
    interval_ns * u64::from(entry.every.load(Ordering::Relaxed).clamp(1, 1_000))
}
