//! The kernel's clock: an event of each thread counts the CPU time that it computes, and sends it a signal after each interval
//! of that (perf_event_open(2), `PERF_COUNT_SW_TASK_CLOCK`). So nobody needs to look who runs, and no process beside the
//! program wakes up for each sample.
//!
//! The signal is the session's first, by way of the descriptor (fcntl(2), `F_SETSIG`, `F_SETOWN_EX`), and not the SIGTRAP that
//! events can raise by themselves since Linux 5.13: where a program installs a handler by a bare system call, as Go's runtime
//! does for every signal, an unknown SIGTRAP ends it, and SIGURG does nothing. The kernel sends the signal from an interrupt
//! that it raises for itself while the one of the clock lasts, so it arrives before the program's next instruction. Time in
//! the kernel must not be counted then (`exclude_kernel`): a signal that is sent in the middle of a system call would end it.
//! The calls that hooks know are recorded with the time that they took (`stackbeat_core::shm::throttle::has_moment`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_TASK_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE, perf_event_attr,
};
use perf_event_open_sys::{ioctls, perf_event_open};
use stackbeat_core::clock;
use stackbeat_core::ids::Tid;
use stackbeat_core::platform;
use stackbeat_core::shm::layout::{CLASSES, CLOCK_ENDED, SamplingClock, ThreadEntry, on_ticks};
use stackbeat_core::shm::registry;
use stackbeat_core::shm::throttle::Ticker;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::{self, packet};

use super::signal_choice::Signals;
use super::{Sampler, Thread, busy, live_entry};
use crate::linux::procfs;
use crate::session::clocks::now_ns;
use crate::session::error::{RecordError, WhyNot};
use crate::session::options::{Chosen, ClockChoice, Options};
use crate::session::orders::Order;
use crate::session::shared::Shared;

/// The session's first signal. Threads that block it by a call that has a hook are only told that they do; those that
/// begin with it blocked are on ticks, where they have the second signal.
const SIGNAL: u32 = libc::SIGURG as u32;
/// Distance between two polls of which threads have ended, and of those that could not have an event, ns.
const POLL_NS: u64 = 100_000_000;
/// Polls in a row that find a thread without an event before it is put on ticks.
const MOST_MISSES: u32 = 2;
/// Polls in a row at which a thread did nothing before the kernel is asked whether it lives.
const FIRST_QUESTION: u32 = 8;
/// A thread that has computed for so many periods, and so long (ns; the kernel may know it to one of its own ticks), without
/// a signal gets none.
const UNHEARD_PERIODS: u64 = 16;
const UNHEARD_NS: u64 = 50_000_000;

/// The events of all threads.
#[derive(Debug, Default)]
pub(crate) struct KernelClock {
    threads: Vec<Clocked>,
    next_poll_ns: u64,
    /// `Control::clock_calls` at the last one.
    calls: u32,
    /// Threads that were active between the last two polls.
    active: usize,
}

#[derive(Debug)]
struct Clocked {
    thread: Thread,
    event: Option<Event>,
    /// Polls in a row that found it without an event.
    polls_without: u32,
    /// What it had written at the last poll, and polls in a row at which that was the same.
    records: u64,
    quiet_polls: u32,
    /// CPU time in user mode when its event or timer began, ns; `None`: its signals have been seen to arrive, or it has not begun.
    unheard_from_ns: Option<u64>,
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
            unheard_from_ns: None,
            has_started: false,
        }
    }

    /// It is time for a poll: whether it was active since the last one. `has_signal`: its process has a handler for the signal.
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
    fn is_gone(&self) -> bool {
        self.quiet_polls >= FIRST_QUESTION
            && self.quiet_polls.is_power_of_two()
            && !procfs::has_thread(self.thread.pid, self.thread.tid)
    }

    /// Whether the event's signals arrive, as far as that is known: a runtime may have replaced our handler by a bare system
    /// call.
    fn is_heard(&mut self, entry: &ThreadEntry, period_ns: u64) -> bool {
        let Some(from_ns) = self.unheard_from_ns else {
            return true;
        };
        if entry.clock_strikes.load(Ordering::Relaxed) != 0 {
            self.unheard_from_ns = None;
            return true;
        }
        let due_ns = (period_ns * UNHEARD_PERIODS).max(UNHEARD_NS);
        let is_early = match &self.event {
            Some(event) => event.counted_ns() < due_ns,
            // Those that wait are asked about more and more rarely.
            None => !self.quiet_polls.is_power_of_two(),
        };
        if is_early {
            return true;
        }
        let user_ns = procfs::user_ns(self.thread.pid, self.thread.tid).unwrap_or(0);
        user_ns.saturating_sub(from_ns) < due_ns
    }

    /// The thread has a timer of its own.
    fn begins(&mut self) {
        if !std::mem::replace(&mut self.has_started, true) {
            self.unheard_from_ns = procfs::user_ns(self.thread.pid, self.thread.tid).ok();
        }
    }

    /// Gives the thread an event, unless it has ended.
    fn begin(&mut self, entry: &ThreadEntry, period_ns: u64) -> io::Result<()> {
        let tid = self.thread.tid;
        let mut opened = Event::open(tid, period_ns);
        let is_full = |error: &io::Error| error.raw_os_error() == Some(libc::EMFILE);
        if opened.as_ref().is_err_and(is_full) {
            make_room();
            opened = Event::open(tid, period_ns);
        }
        match opened.and_then(|event| Ok(event.begin(entry, tid)?.then_some(event))) {
            Ok(Some(event)) => {
                self.event = Some(event);
                self.polls_without = 0;
                entry.clock_strikes.store(0, Ordering::Relaxed);
                self.unheard_from_ns = Some(procfs::user_ns(self.thread.pid, tid).unwrap_or(0));
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

    /// No signal of an event is on its way afterwards, and the thread learns that. A timer is the thread's own to stop.
    fn end(&mut self, entry: &ThreadEntry) {
        self.event = None;
        if entry.has_timer() {
            return;
        }
        let descriptor = &entry.clock_descriptor;
        if descriptor.load(Ordering::Relaxed) != 0 {
            descriptor.fetch_or(CLOCK_ENDED, Ordering::SeqCst);
        }
        platform::wake(&entry.clock_descriptor, 1);
    }
}

/// A thread's event. Ends with its descriptor.
#[derive(Debug)]
struct Event {
    file: OwnedFd,
    period_ns: u64,
}

impl Event {
    /// An event of the thread with this tid, which does not count yet.
    fn open(tid: Tid, period_ns: u64) -> io::Result<Event> {
        let mut attributes = perf_event_attr {
            type_: PERF_TYPE_SOFTWARE,
            config: PERF_COUNT_SW_TASK_CLOCK.into(),
            ..perf_event_attr::default()
        };
        attributes.__bindgen_anon_1.sample_period = period_ns;
        attributes.set_disabled(1);
        attributes.set_exclude_kernel(1);
        attributes.set_exclude_hv(1);
        // Linux 5.13. Where it is missing and this clock is wanted all the same, the signal is ignored from the exec to when
        // we see it.
        attributes.set_remove_on_exec(1);
        let mut opened = open(&mut attributes, tid);
        if opened.as_ref().is_err_and(is_too_new) {
            attributes.set_remove_on_exec(0);
            opened = open(&mut attributes, tid);
        }
        let file = opened?;
        Ok(Event { file, period_ns })
    }

    /// Has it send the signal to the thread, and count, if that still wants it: otherwise false.
    fn begin(&self, entry: &ThreadEntry, tid: Tid) -> io::Result<bool> {
        /// fcntl(2); `libc` lacks them.
        const F_SETSIG: libc::c_int = 10;
        const F_SETOWN_EX: libc::c_int = 15;
        const F_OWNER_TID: libc::c_int = 0;
        #[repr(C)]
        struct Owner {
            kind: libc::c_int,
            pid: libc::pid_t,
        }
        let file = self.file.as_raw_fd();
        let owner = Owner {
            kind: F_OWNER_TID,
            pid: tid.0 as libc::pid_t,
        };
        entry
            .clock_descriptor
            .store(file as u32 + 1, Ordering::SeqCst);
        if entry.wants_clock.load(Ordering::SeqCst) == 0 {
            return Ok(false);
        }
        // SAFETY: the structure is what the kernel reads there, and lives during the call; the others take numbers.
        let results = unsafe {
            [
                libc::fcntl(file, F_SETOWN_EX, &raw const owner),
                libc::fcntl(file, F_SETSIG, SIGNAL as libc::c_int),
                libc::fcntl(file, libc::F_SETFL, libc::O_ASYNC),
                ioctls::ENABLE(file, 0),
            ]
        };
        match results.iter().all(|result| *result >= 0) {
            true => Ok(true),
            false => Err(io::Error::last_os_error()),
        }
    }

    /// Another period takes effect with the interval under way.
    fn set_period(&mut self, period_ns: u64) {
        if period_ns != self.period_ns {
            let mut period = period_ns;
            // SAFETY: reads the number at this address (the bindings take it for the number), which lives during the call.
            unsafe {
                ioctls::PERIOD(
                    self.file.as_raw_fd(),
                    (&raw mut period).expose_provenance() as u64,
                )
            };
            self.period_ns = period_ns;
        }
    }

    /// CPU time that it has counted, ns.
    fn counted_ns(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.file, &mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }
}

fn open(attributes: &mut perf_event_attr, tid: Tid) -> io::Result<OwnedFd> {
    attributes.size = size_of::<perf_event_attr>() as u32;
    // SAFETY: the kernel reads `size` bytes, and writes its own size there if that is smaller.
    let file = unsafe {
        let flags = PERF_FLAG_FD_CLOEXEC.into();
        perf_event_open(attributes, tid.0 as libc::pid_t, -1, -1, flags)
    };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// An older kernel does not know something that was asked for.
fn is_too_new(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::E2BIG))
}

/// Follows what was asked for, as far as the kernel lets us.
///
/// # Errors
/// The kernel's clock was asked for and cannot be had.
pub(crate) fn choose(options: &Options) -> Result<Chosen, RecordError> {
    let of = |clock| Chosen {
        clock,
        begins_on_ticks: false,
        timer_ns: 0,
        why_not: String::new(),
    };
    // Where nobody is interrupted and where calls are only counted, nothing is sampled.
    let is_sampled = options.interrupt_running && !options.count_calls;
    match options.clock {
        _ if !is_sampled => Ok(of(SamplingClock::Tick)),
        ClockChoice::Tick => Ok(of(SamplingClock::Tick)),
        ClockChoice::Timer => {
            let timer_ns = probe_timers().map_err(RecordError::NoTimers)?;
            Ok(Chosen {
                timer_ns,
                ..of(SamplingClock::Timer)
            })
        }
        ClockChoice::Kernel => {
            probe().map_err(RecordError::NoKernelClock)?;
            Ok(of(SamplingClock::Kernel))
        }
        ClockChoice::Auto => Ok(match probe_timers() {
            Ok(timer_ns) => Chosen {
                begins_on_ticks: true,
                timer_ns,
                ..of(SamplingClock::Timer)
            },
            Err(why_not) => Chosen {
                why_not: why_not.to_string(),
                ..of(SamplingClock::Tick)
            },
        }),
    }
}

/// Whether this process may have events, and the kernel is known to send their signals in time.
pub(crate) fn probe() -> Result<(), WhyNot> {
    let opened = Event::open(Tid(0), 1_000_000);
    opened.map_err(|source| WhyNot::Refused {
        advice: advice(&source),
        source,
    })?;
    let release = release();
    if is_older(&release, (5, 13)) {
        return Err(WhyNot::Old(release));
    }
    // There, and 1, on such kernels only (kernel/ksysfs.c).
    let realtime = std::fs::read_to_string("/sys/kernel/realtime").unwrap_or_default();
    match realtime.trim() {
        "1" => Err(WhyNot::RealTime),
        _ => Ok(()),
    }
}

/// The tick of the kernel, ns, where it sends the signals of CPU timers when a thread leaves the kernel.
///
/// # Errors
/// It may send them in the middle of a system call: where it has no `CONFIG_POSIX_CPU_TIMERS_TASK_WORK`. x86 has it since Linux
/// 5.9 (arch/x86/Kconfig); of others that is not known here.
pub(crate) fn probe_timers() -> Result<u64, WhyNot> {
    let release = release();
    match cfg!(target_arch = "x86_64") && !is_older(&release, (5, 9)) {
        true => Ok(tick_ns()),
        false => Err(WhyNot::EndsCalls(release)),
    }
}

/// Distance between two ticks of the kernel, ns: no CPU timer goes off more often.
fn tick_ns() -> u64 {
    let mut resolution = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills in a local structure. The coarse clock advances with the tick (clock_getres(2)).
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    u64::try_from(resolution.tv_nsec).unwrap_or(0)
}

/// The kernel's release, such as 6.18.1.
fn release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Whether a kernel of this release is older than this version.
fn is_older(release: &str, first: (u32, u32)) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next(), numbers.next());
    matches!(version, (Some(major), Some(minor)) if (major, minor) < first)
}

/// What to do about an error of `perf_event_open`.
fn advice(error: &io::Error) -> String {
    const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
    let paranoid = std::fs::read_to_string(PARANOID).unwrap_or_default();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "kernel.perf_event_paranoid is {}, and must be 2 or less without CAP_PERFMON; containers need a seccomp profile \
             that allows the call",
            paranoid.trim()
        ),
        Some(libc::ENOSYS) => "this kernel has no perf events (CONFIG_PERF_EVENTS)".to_owned(),
        _ => "see perf_event_open(2)".to_owned(),
    }
}

/// Each event is a descriptor: raises this process' limit of them as far as it may. The program has been started before.
fn make_room() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads and writes a local structure.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

impl KernelClock {
    /// Gives events to the threads that want one, ends those of others, puts the periods in force, and puts threads that
    /// cannot have one on ticks. Gives how many threads were active between the last two polls.
    pub(crate) fn follow(
        &mut self,
        shared: &Shared,
        sampler: &mut Sampler,
        ticker: &mut Ticker,
        intervals_ns: [u64; CLASSES],
    ) -> usize {
        let control = shared.mapping.control();
        let calls = control.clock_calls.load(Ordering::SeqCst);
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
            let period_ns = period_ns(entry, intervals_ns);
            if is_poll {
                let process = shared.mapping.process(clocked.thread.process);
                let has_signal = process.is_some_and(|p| Signals::of(p).first == SIGNAL);
                self.active += usize::from(clocked.poll(entry, has_signal));
                if sampler.is_ours(clocked.thread.process) && clocked.is_gone() {
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
            let stays = entry.has_kernel_clock()
                && self.may_have_signals(shared, sampler, clocked, entry.has_timer())
                && self.keep(shared, clocked, entry, period_ns);
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

    /// Has the thread's event follow what the thread wants. False: it is to be on ticks.
    fn keep(
        &mut self,
        shared: &Shared,
        clocked: &mut Clocked,
        entry: &ThreadEntry,
        period_ns: u64,
    ) -> bool {
        let process = shared.mapping.process(clocked.thread.process);
        let is_wanted = entry.wants_clock.load(Ordering::SeqCst) != 0
            && process.is_some_and(|process| Signals::of(process).first == SIGNAL);
        match &mut clocked.event {
            None if entry.has_timer() && is_wanted => clocked.begins(),
            None if entry.has_timer() => {}
            Some(event) if is_wanted => event.set_period(period_ns),
            Some(_) => clocked.end(entry),
            None if is_wanted => {
                if let Err(error) = clocked.begin(entry, period_ns) {
                    self.refuse(
                        shared,
                        &clocked.thread,
                        &format!("perf_event_open: {error}"),
                    );
                    return false;
                }
            }
            None => {}
        }
        if clocked.polls_without >= MOST_MISSES {
            return false;
        }
        let is_heard = clocked.is_heard(entry, period_ns);
        if !is_heard {
            self.refuse(shared, &clocked.thread, "the signals do not arrive");
        }
        is_heard
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
        if process.on_ticks.load(Ordering::Relaxed) != on_ticks::NO || !is_ours {
            return false;
        }
        match Signals::of(process).first {
            _ if process.handles_signal.load(Ordering::SeqCst) != 0 => {
                self.refuse(shared, thread, "it handles SIGURG itself");
                false
            }
            SIGNAL => true,
            // Not yet; or not any more: a sandbox does not let handlers return, the agent is off, or the program uses both.
            0 => clocked.event.is_none(),
            _ => {
                self.refuse(shared, thread, "it ignores SIGURG");
                false
            }
        }
    }

    /// Puts the thread's process on ticks, for good.
    fn refuse(&mut self, shared: &Shared, thread: &Thread, reason: &str) {
        let Some(process) = shared.mapping.process(thread.process) else {
            return;
        };
        let before = process.on_ticks.swap(on_ticks::FOR_GOOD, Ordering::SeqCst);
        if before == on_ticks::FOR_GOOD {
            return;
        }
        let begins = &shared.mapping.control().begins_on_ticks;
        if before == on_ticks::NO && begins.load(Ordering::Relaxed) != on_ticks::NO {
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

    /// The session is switched off, or ends: nobody waits for an event to stop any more. [`KernelClock::follow`] opens others.
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
