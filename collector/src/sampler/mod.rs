//! The sampler, running part: interrupts threads where they run, so that a sample is as likely at one moment
//! as at any other.
//!
//! With each tick the threads that are due fall into two kinds. Those that pass hooks all the time are left
//! to them, and are overdue when they took no notice of the tick in the time that hooks are given. The others
//! are polled before the tick advances. Threads inside a published wait are left alone; of the others the
//! host is asked. To a running one a signal is announced, if its gate is open, and then sent. One that waits
//! in a hook shows activity when it leaves that wait, and costs nothing until then; one that is blocked
//! outside hooks is polled at growing distances.

mod adopt;
mod busy;
mod contention;
mod idle;
mod kernel_clock;
mod signal_choice;
mod suspended;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
pub(crate) mod ticker;
#[cfg(test)]
mod tripwire;
mod unregistered;
mod unregistered_threads;
pub(crate) mod window;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::io;
use std::sync::Arc;

use stackbeat_core::clock;
use stackbeat_core::ids::{Pid, Tid, Upid, Utid};
use stackbeat_core::shm::layout::{
    CLASSES, PHASES, TICK_RUNNING, ThreadEntry, entry_state, sampled_by,
};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::{registry, signal_gate, throttle};
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::{self, packet};

use crate::host::{Followed, Host, Interruption, Signals, State};
use crate::session::clocks::now_ns;
use crate::session::orders::Order;
use crate::session::shared::{Shared, count};
use contention::Contention;
use signal_choice::{Handled, Mask, open_signal};
use suspended::Suspender;
use unregistered::Unregistered;

/// Longest distance between two polls of a thread that was found blocked outside hooks, ns: this, or so much
/// for each such thread, because each poll is a question to the kernel (2 to 8 µs).
const MAX_BACKOFF_NS: u64 = 30_000_000;
const BACKOFF_EACH_NS: u64 = 2_000_000;
/// Overdue intervals after which a thread that is not seen running is no longer active.
const IDLE_AFTER: u32 = 4;
/// The share of ticks that a thread takes notice of by itself, of 256: an average over about eight. Above
/// three quarters its hooks are so dense that they capture for it; the other threads get time for their
/// hooks only now and then, at each so many ticks, to see whether that has changed.
const HOOK_SHARE_WHOLE: u32 = 256;
const HOOK_SHARE_WORTH: u32 = 192;
pub(super) const HOOK_TRIAL: u64 = 16;
/// A signal that was not handled for so long and does not pend will not come any more: the program took it by
/// sigwait or signalfd. ns.
const SIGNAL_LOST_NS: u64 = 200_000_000;
/// Waits without a signal after which a thread's gate gets an asymmetric barrier: what they saved together by
/// then is what the kernel's barrier costs that the next signal needs (about 25 µs, of both sides).
const ASYMMETRIC_AFTER_WAITS: u32 = 1_000;

/// A registered thread as the sampler sees it.
#[derive(Debug)]
struct Thread {
    entry: u32,
    utid: Utid,
    /// Its process: entry, upid and pid.
    process: u32,
    upid: Upid,
    pid: Pid,
    tid: Tid,
    tick_seen: u32,
    misses: u32,
    /// Records that it had written when the last step found it capturing.
    captured_at: Option<u64>,
    /// Not asked about before, ns, and the distance that led there.
    next_poll_ns: u64,
    backoff_ns: u64,
    /// How many of the ticks of late it took notice of in the time that hooks are given.
    hook_share: u32,
    /// The signal for the next step is sent already.
    is_announced: bool,
    /// When the last signal was sent, ns.
    sent_ns: u64,
    /// What its count of waits was then.
    blocking_section_sent: u32,
    /// `None`: nobody has asked about it.
    followed: Option<Box<dyn Followed>>,
    /// When it is polled next, ns, if it is idle and blocked outside hooks; 0: it is not.
    due_ns: u64,
    /// It was to start a timer and did not.
    stays_on_ticks: bool,
}

impl Thread {
    /// Still in the capture in which the last step found it: stopped there, or without a processor. It
    /// tells nothing, and a signal would find it busy.
    fn is_stuck(&mut self, entry: &ThreadEntry) -> bool {
        let is_capturing = entry.capturing.load(Ordering::Relaxed) != 0;
        let records = is_capturing.then(|| entry.records.load(Ordering::Relaxed));
        let before = std::mem::replace(&mut self.captured_at, records);
        is_capturing && before == records
    }

    fn is_worth_waiting_for(&self) -> bool {
        self.hook_share > HOOK_SHARE_WORTH
    }
}

/// A thread that was found running, to be interrupted by one of these signals.
#[derive(Debug)]
struct Running {
    entry: u32,
    pid: Pid,
    tid: Tid,
    /// `Followed::run_ns` when it was found; 0: not known.
    run_ns: u64,
    signals: Handled,
}

/// A live process of the program.
#[derive(Debug)]
struct Process {
    upid: Upid,
    pid: Pid,
    /// The pid means this process here, too.
    is_ours: bool,
    /// When a thread of it without an entry was last interrupted.
    meeting_ns: u64,
    /// Its threads have been searched for such.
    is_searched: bool,
    /// Registered threads that are not known to have ended.
    threads: u64,
    /// Its CPU time when it was met, and when it is asked for again, ns.
    cpu_before_ns: u64,
    next_cpu_poll_ns: u64,
    /// What samples its threads, but for single ones (`ProcessEntry::sampled_by`), and what did at first.
    sampled_by: u32,
    at_first: u32,
    /// It has not computed for long yet, or is on ticks for good.
    is_new: bool,
    contention: Contention,
}

/// What threads are interrupted by.
#[derive(Debug)]
enum Means {
    Signals(Box<dyn Signals>),
    Suspender(Box<Suspender>),
}

/// The sampler's state.
#[derive(Debug)]
pub(crate) struct Sampler {
    host: Arc<dyn Host>,
    /// `None`: nobody is interrupted.
    interruption: Option<Means>,
    /// By class and phase: threads that were active of late.
    active: [[Vec<Thread>; PHASES]; CLASSES],
    /// Those that the kernel's clock is to sample, and that it does not know yet.
    unclocked: Vec<Thread>,
    /// By entry.
    idle: HashMap<u32, Thread>,
    /// Threads that are blocked outside hooks: when each is polled next, and its entry. Stale ones are among
    /// them.
    blocked_outside_hooks: BinaryHeap<Reverse<(u64, u32)>>,
    blocked_count: usize,
    /// Entries that have shown activity, and those of them whose process was not known.
    activity: Vec<u32>,
    unmet: Vec<u32>,
    known: HashSet<Utid>,
    processes: HashMap<u32, Process>,
    /// By the upid of the process, and tid.
    unregistered_threads: HashMap<(Upid, Tid), Unregistered>,
    /// Searches in a row that found none.
    empty_searches: u32,
    /// Some of them are to be polled once more, soon.
    awaits_unregistered: bool,
    running: Vec<Running>,
    /// What threads block, by utid, of processes with a second signal.
    masks: HashMap<Utid, Mask>,
    /// Pids that the kernel did not let us signal; said once.
    unreachable: HashSet<Pid>,
    next_idle_poll_ns: u64,
    next_activity_poll_ns: u64,
    next_poll_of_all_ns: u64,
    next_refresh_ns: u64,
    next_unregistered_poll_ns: u64,
    next_busy_poll_ns: u64,
    /// Threads on ticks that are to have a timer and were not active of late.
    untimed: Vec<Thread>,
    next_untimed_poll_ns: u64,
    /// Threads have events or timers in this session.
    has_kernel_clock: bool,
    /// They have timers, at least later.
    has_timers: bool,
    /// What ticks may be apart once a process has computed for long, ns; 0: no more than at first.
    later_interval_ns: u32,
    /// Processes stay on what they begin with, because the interval in force is shorter than a timer's.
    stays_as_it_begins: bool,
    /// `Control::announced` when the registry was read.
    announced: u32,
    /// The system runs barriers for us, so that gates may use asymmetric ones.
    has_barriers: bool,
    /// CPU time of the program when unregistered threads were last looked for.
    unregistered_cpu_ns: u64,
}

impl Sampler {
    /// `interrupt` false: only keeps the books that ticking needs.
    ///
    /// # Errors
    /// Those of [`Host::interruption`].
    pub(crate) fn new(interrupt: bool, host: Arc<dyn Host>) -> io::Result<Sampler> {
        let interruption = match interrupt.then(|| host.interruption()).transpose()? {
            Some(Interruption::BySignal(signals)) => Some(Means::Signals(signals)),
            Some(Interruption::BySuspension(by)) => {
                Some(Means::Suspender(Box::new(Suspender::new(by))))
            }
            None => None,
        };
        let has_barriers = match &interruption {
            Some(Means::Signals(signals)) => signals.barrier(),
            Some(Means::Suspender(_)) | None => false,
        };
        Ok(Sampler {
            host,
            interruption,
            active: Default::default(),
            unclocked: Vec::new(),
            idle: HashMap::new(),
            blocked_outside_hooks: BinaryHeap::new(),
            blocked_count: 0,
            activity: Vec::new(),
            unmet: Vec::new(),
            known: HashSet::new(),
            processes: HashMap::new(),
            unregistered_threads: HashMap::new(),
            empty_searches: 0,
            awaits_unregistered: false,
            running: Vec::new(),
            masks: HashMap::new(),
            unreachable: HashSet::new(),
            next_idle_poll_ns: 0,
            next_activity_poll_ns: 0,
            next_poll_of_all_ns: 0,
            next_refresh_ns: 0,
            next_unregistered_poll_ns: 0,
            next_busy_poll_ns: 0,
            untimed: Vec::new(),
            next_untimed_poll_ns: 0,
            has_kernel_clock: false,
            has_timers: false,
            later_interval_ns: 0,
            stays_as_it_begins: false,
            announced: 0,
            has_barriers,
            unregistered_cpu_ns: 0,
        })
    }

    /// Bit set of the phases of a class that have threads.
    pub(super) fn phases(&self, class: usize) -> u32 {
        let occupied = self.active[class].iter().enumerate();
        occupied.fold(0, |mask, (phase, threads)| {
            mask | u32::from(!threads.is_empty()) << phase
        })
    }

    fn make_active(&mut self, mut thread: Thread, entry: &ThreadEntry) {
        thread.misses = 0;
        self.blocked_count -= usize::from(std::mem::take(&mut thread.due_ns) != 0);
        if entry.has_kernel_clock() {
            // Nobody asks for its state any more.
            thread.followed = None;
            self.unclocked.push(thread);
            return;
        }
        let index = entry.tick_index.load(Ordering::Relaxed) as usize;
        let class = (index / PHASES).min(CLASSES - 1);
        self.active[class][index % PHASES].push(thread);
    }

    /// The new threads that the kernel's clock is to sample. Hand them back to [`Sampler::forget`], or to
    /// [`Sampler::make_active`] when they are on ticks.
    fn take_threads(&mut self) -> impl Iterator<Item = Thread> + use<> {
        std::mem::take(&mut self.unclocked).into_iter()
    }

    /// Whether ticks are any thread's.
    pub(super) fn has_ticks(&self) -> bool {
        !self.idle.is_empty()
            || self
                .active
                .iter()
                .flatten()
                .any(|threads| !threads.is_empty())
    }

    /// Whether the pids of the process with this entry mean its threads here.
    fn is_ours(&self, process: u32) -> bool {
        self.processes.get(&process).is_some_and(|p| p.is_ours)
    }

    /// Threads of a class that were active of late.
    pub(super) fn active_threads(&self, class: usize) -> usize {
        self.active[class].iter().map(Vec::len).sum()
    }

    /// Whether hooks are worth waiting for: threads of this class and phase captured by one of late,
    /// or may have begun to.
    pub(super) fn expects_hooks(&self, class: usize, phase: usize, is_trial: bool) -> bool {
        let threads = &self.active[class][phase];
        !threads.is_empty() && (is_trial || threads.iter().any(Thread::is_worth_waiting_for))
    }

    /// Whether all those have taken notice of the last tick for whose hooks it is worth waiting.
    pub(super) fn hooks_came(
        &self,
        mapping: &Mapping,
        class: usize,
        phase: usize,
        is_trial: bool,
    ) -> bool {
        let tick = mapping.control().ticks[class][phase]
            .count
            .load(Ordering::Relaxed);
        self.active[class][phase]
            .iter()
            .filter(|t| is_trial || t.is_worth_waiting_for())
            .filter_map(|t| mapping.thread(t.entry))
            .all(|entry| has_noticed(entry, tick))
    }

    /// The tick word of this class and phase is about to advance: looks for running threads whose next
    /// hook would come too late. Follow with [`Sampler::announce`], and when the words have advanced with
    /// [`Sampler::send`].
    pub(super) fn poll_running(
        &mut self,
        shared: &Shared,
        (class, phase): (usize, usize),
        is_trial: bool,
        now_ns: u64,
    ) {
        if is_trial {
            return;
        }
        let word = &shared.mapping.control().ticks[class][phase];
        let tick = throttle::after(word.count.load(Ordering::Relaxed));
        let mut threads = std::mem::take(&mut self.active[class][phase]);
        for thread in threads.iter_mut().filter(|t| !t.is_worth_waiting_for()) {
            let entry = live_entry(&shared.mapping, thread);
            if let Some(entry) = entry.filter(|e| e.is_due(tick) && !e.has_kernel_clock()) {
                let before = self.running.len();
                let runs = self.attend(shared, thread, entry, true, now_ns);
                let is_suspended = matches!(self.interruption, Some(Means::Suspender(_)));
                thread.is_announced = self.running.len() > before || is_suspended && runs;
            }
        }
        threads.append(&mut self.active[class][phase]);
        self.active[class][phase] = threads;
    }

    /// Tells the threads that were found running that a signal is on its way. Those that are in front of a
    /// call that it would disturb get none.
    pub(super) fn announce(&mut self, shared: &Shared) {
        let Some(Means::Signals(signals)) = &self.interruption else {
            return;
        };
        self.running.retain(|thread| {
            let entry = shared.mapping.thread(thread.entry);
            let may_send = entry.is_some_and(|e| signal_gate::try_send(e, || signals.barrier()));
            count(&shared.figures.signals_held_back, u64::from(!may_send));
            may_send
        });
    }

    /// Sends the signals that were announced, to those who still wait for them.
    pub(super) fn send(&mut self, shared: &Shared) {
        let Some(Means::Signals(signals)) = &self.interruption else {
            return;
        };
        for thread in self.running.drain(..) {
            let Some(entry) = shared.mapping.thread(thread.entry) else {
                continue;
            };
            // While it is announced the thread does not change what it blocks by a call that has a hook.
            let signal = open_signal(&mut self.masks, &**signals, entry, &thread, now_ns());
            if !signal_gate::commit(entry) {
                continue;
            }
            let Some(signal) = signal else {
                signal_gate::cancel(entry);
                continue;
            };
            let now = clock::now(shared.clock_source());
            entry.sent_run_ns.store(thread.run_ns, Ordering::Relaxed);
            entry.sent_cycles.store(now, Ordering::Relaxed);
            match signals.send(thread.pid, thread.tid, signal) {
                Ok(()) => {
                    signal_gate::sent(entry);
                    count(&shared.figures.signals_sent, 1);
                }
                Err(error) => {
                    signal_gate::cancel(entry);
                    if error.0 == libc::EPERM && self.unreachable.insert(thread.pid) {
                        shared.order(Order::Say(Box::new(unreachable(thread.pid))));
                    }
                }
            }
        }
    }

    /// The tick word of this class and phase advanced a moment ago: interrupts those that took no
    /// notice of it. `waited`: they were given the time for hooks. Gives how many were active.
    pub(super) fn step(
        &mut self,
        shared: &Shared,
        (class, phase): (usize, usize),
        waited: bool,
        now_ns: u64,
    ) -> usize {
        let tick = shared.mapping.control().ticks[class][phase]
            .count
            .load(Ordering::Relaxed);
        let mut active = 0;
        let mut threads = std::mem::take(&mut self.active[class][phase]);
        let mut i = 0;
        while i < threads.len() {
            let thread = &mut threads[i];
            let Some(entry) = live_entry(&shared.mapping, thread) else {
                let gone = threads.swap_remove(i);
                self.forget(gone);
                continue;
            };
            if entry.has_kernel_clock() {
                let clocked = threads.swap_remove(i);
                self.make_active(clocked, entry);
                active += 1;
                continue;
            }
            let seen = entry.last_tick.load(Ordering::Relaxed);
            if std::mem::take(&mut thread.is_announced) {
                thread.misses = 0;
                thread.tick_seen = seen;
                active += 1;
                i += 1;
                continue;
            }
            if !entry.is_due(tick) {
                active += usize::from(seen != thread.tick_seen);
                thread.tick_seen = seen;
                i += 1;
                continue;
            }
            let is_stuck = thread.is_stuck(entry);
            // Woke the ticker with its last hook, long ago.
            let is_old = seen == TICK_RUNNING && thread.tick_seen == seen;
            if has_noticed(entry, tick) && !is_stuck && !is_old {
                thread.hook_share += (HOOK_SHARE_WHOLE - thread.hook_share) / 8;
                thread.misses = 0;
                thread.backoff_ns = 0;
                active += 1;
                let waits = entry.blocking_section.load(Ordering::Relaxed);
                if self.has_barriers
                    && waits.wrapping_sub(thread.blocking_section_sent) / 2 > ASYMMETRIC_AFTER_WAITS
                {
                    use_asymmetric_barrier(&shared.mapping, thread, entry);
                }
            } else {
                if waited {
                    thread.hook_share -= thread.hook_share.div_ceil(8);
                }
                if seen != thread.tick_seen {
                    // It captured since the last step: it lives, only not at this moment.
                    thread.misses = 0;
                    thread.next_poll_ns = 0;
                }
                thread.misses += 1;
                let runs = !is_stuck && self.interrupt(shared, thread, entry, now_ns);
                if runs {
                    thread.misses = 1;
                }
                active += usize::from(runs || seen != thread.tick_seen);
            }
            thread.tick_seen = seen;
            if thread.misses > IDLE_AFTER {
                let idle = threads.swap_remove(i);
                self.make_idle(idle, entry, now_ns);
                continue;
            }
            i += 1;
        }
        // Threads may have been added meanwhile.
        threads.append(&mut self.active[class][phase]);
        self.active[class][phase] = threads;
        active
    }

    /// Interrupts an overdue thread if it runs. True when it runs.
    fn interrupt(
        &mut self,
        shared: &Shared,
        thread: &mut Thread,
        entry: &ThreadEntry,
        now_ns: u64,
    ) -> bool {
        let runs = self.attend(shared, thread, entry, false, now_ns);
        self.announce(shared);
        self.send(shared);
        runs
    }

    /// Asks the host about an overdue thread. One that runs is noted, to be sent a signal, or is suspended
    /// and sampled. True when it runs. `before_tick`: its tick word is about to advance.
    fn attend(
        &mut self,
        shared: &Shared,
        thread: &mut Thread,
        entry: &ThreadEntry,
        before_tick: bool,
        now_ns: u64,
    ) -> bool {
        // Odd: inside a call that says itself when it ends.
        let process = entry.process.load(Ordering::Relaxed);
        let Some(means) = &mut self.interruption else {
            return false;
        };
        if entry.capturing.load(Ordering::Relaxed) != 0
            || !self.processes.get(&process).is_some_and(|p| p.is_ours)
            || entry.blocking_section.load(Ordering::Relaxed) % 2 == 1
            || now_ns < thread.next_poll_ns
        {
            return false;
        }
        let signals = || {
            let process = shared.mapping.process(process);
            process.map_or_else(Handled::default, Handled::of)
        };
        if let Means::Signals(by) = means
            && entry.in_flight.load(Ordering::Relaxed) != 0
        {
            // It was running when the signal was sent and has not gone on since.
            if now_ns.saturating_sub(thread.sent_ns) < SIGNAL_LOST_NS {
                return true;
            }
            // A thread that blocks it has it still, and waits for it before its next call that it could
            // disturb.
            let pending = by.pending(thread.pid, thread.tid).unwrap_or(0);
            if pending & signals().set() != 0 {
                thread.sent_ns = now_ns;
                return false;
            }
            signal_gate::cancel(entry);
        }
        count(&shared.figures.state_reads, 1);
        let host = &self.host;
        let (pid, tid) = (thread.pid, thread.tid);
        let followed = thread.followed.get_or_insert_with(|| host.follow(pid, tid));
        match followed.state() {
            State::Gone => {
                // It ended without its agent's notice (a bare exit system call).
                registry::end_thread(entry, clock::now(shared.clock_source()));
                registry::show_activity(&shared.mapping, thread.entry, entry);
                false
            }
            State::Blocked => {
                let longest_ns = MAX_BACKOFF_NS.max(BACKOFF_EACH_NS * self.blocked_count as u64);
                thread.backoff_ns = (thread.backoff_ns * 2).clamp(1_000_000, longest_ns);
                thread.next_poll_ns = now_ns + thread.backoff_ns;
                if let Means::Suspender(suspender) = means {
                    suspender.waits(&**host, shared, thread, entry, now_ns);
                }
                false
            }
            State::Running => {
                thread.backoff_ns = 0;
                thread.sent_ns = now_ns;
                thread.blocking_section_sent = entry.blocking_section.load(Ordering::Relaxed);
                if let Means::Suspender(suspender) = means {
                    // One that is gone is noticed with the next question.
                    suspender.sample(shared, thread, entry, before_tick);
                    return true;
                }
                let signals = signals();
                if signals.first != 0 {
                    self.running.push(Running {
                        entry: thread.entry,
                        pid: thread.pid,
                        tid: thread.tid,
                        run_ns: followed.run_ns().unwrap_or(0),
                        signals,
                    });
                }
                true
            }
        }
    }

    /// The program's live processes: upid and pid.
    pub(super) fn processes(&self) -> impl Iterator<Item = (Upid, Pid)> {
        let ours = self.processes.values().filter(|p| p.is_ours);
        ours.map(|p| (p.upid, p.pid))
    }

    /// CPU time of each by its upid, ns: a clock is read when its process is asked for.
    pub(super) fn cpu_by_process(&self) -> impl Iterator<Item = (Upid, u64)> {
        self.processes()
            .map(|(upid, pid)| (upid, self.host.process_cpu_ns(pid)))
    }

    /// CPU time of the program's live processes, ns. Lags by a scheduler tick.
    pub(super) fn program_cpu_ns(&self) -> u64 {
        self.cpu_ns_of(|_| true)
    }

    /// The same of threads on ticks that may run without setting their activity bit. Where single threads of
    /// a process are on ticks, only these.
    pub(super) fn cpu_ns_on_ticks(&self) -> u64 {
        let is_clocked = |process: &u32| {
            let process = self.processes.get(process);
            process.is_some_and(|process| self.is_clocked(process))
        };
        let active = self.active.iter().flatten().flatten();
        let blocked_outside_hooks = self.idle.values().filter(|thread| thread.due_ns != 0);
        let single = active
            .chain(blocked_outside_hooks)
            .filter(|thread| is_clocked(&thread.process));
        let of_single = single.map(|thread| self.host.scheduled(thread.pid, thread.tid));
        let single_ns: u64 = of_single.flatten().map(|scheduled| scheduled.run_ns).sum();
        single_ns + self.cpu_ns_of(|process| !self.is_clocked(process) || process.threads == 0)
    }

    /// Whether the kernel samples the threads of a process, but for single ones.
    fn is_clocked(&self, process: &Process) -> bool {
        use sampled_by::{EVENTS_AT_FIRST, SESSION_CLOCK};
        self.has_kernel_clock && matches!(process.sampled_by, SESSION_CLOCK | EVENTS_AT_FIRST)
    }

    fn cpu_ns_of(&self, is_one: impl Fn(&Process) -> bool) -> u64 {
        self.processes
            .values()
            .filter(|p| p.is_ours && is_one(p))
            .map(|p| self.host.process_cpu_ns(p.pid))
            .sum()
    }

    fn forget(&mut self, thread: Thread) {
        self.known.remove(&thread.utid);
        self.masks.remove(&thread.utid);
        if let Some(Means::Suspender(suspender)) = &mut self.interruption {
            suspender.forget(thread.utid);
        }
        self.blocked_count -= usize::from(thread.due_ns != 0);
        let process = self.processes.get_mut(&thread.process);
        if let Some(process) = process.filter(|p| p.upid == thread.upid) {
            process.threads = process.threads.saturating_sub(1);
        }
    }
}

/// What the trace says when a process may not be signalled.
fn unreachable(pid: Pid) -> packet::Body {
    packet::Body::Event(v1::Event {
        time_ns: now_ns(),
        name: format!(
            "process {pid} may not be signalled: only its hooks capture, so there is no evidence of what computes \
             between them; record it with CAP_KILL (docker --cap-add=KILL), or do not let it change its user"
        ),
        kind: v1::event::Kind::Note.into(),
        ..v1::Event::default()
    })
}

/// The entry of a thread, if it is still the same thread's and that lives.
fn live_entry<'a>(mapping: &'a Mapping, thread: &Thread) -> Option<&'a ThreadEntry> {
    mapping.thread(thread.entry).filter(|entry| {
        entry.state.load(Ordering::Acquire) == entry_state::LIVE && entry.utid() == thread.utid
    })
}

/// Spares a thread the expensive half of closing its gate until the next signal, where the kernel can
/// stand in for it.
fn use_asymmetric_barrier(mapping: &Mapping, thread: &Thread, entry: &ThreadEntry) {
    let process = mapping.process(entry.process.load(Ordering::Relaxed));
    if process.is_some_and(|p| p.barrier.load(Ordering::Relaxed) != 0) {
        signal_gate::use_asymmetric_barrier(entry, thread.utid);
    }
}

/// Whether a thread captured at this tick, or does so at this moment.
fn has_noticed(entry: &ThreadEntry, tick: u32) -> bool {
    let seen = entry.last_tick.load(Ordering::Relaxed);
    seen == tick || seen == TICK_RUNNING || entry.capturing.load(Ordering::Relaxed) != 0
}
