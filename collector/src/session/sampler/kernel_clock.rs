//! The kernel's clock: an event of each thread counts the CPU time that it computes, and sends it a signal after each interval
//! of that (perf_event_open(2), `PERF_COUNT_SW_TASK_CLOCK`). So nobody needs to look who runs, and no process beside the
//! program wakes up for each sample.
//!
//! The signal is the session's first, by way of the descriptor (fcntl(2), `F_SETSIG`, `F_SETOWN_EX`), and not the SIGTRAP that
//! events can raise by themselves since Linux 5.13: where a program installs a handler by a bare system call, as Go's runtime
//! does for every signal, an unknown SIGTRAP ends it, and SIGURG does nothing. The kernel sends the signal from an interrupt
//! that it raises for itself while the one of the clock lasts, so it arrives before the program's next instruction. Time in
//! the kernel must not be counted then (`exclude_kernel`): a signal that is sent in the middle of a system call would end it.
//! The calls that hooks know are recorded with the time that they took (`stackbeat_core::throttle::has_moment`).

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_TASK_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE, perf_event_attr,
};
use perf_event_open_sys::{ioctls, perf_event_open};
use stackbeat_core::layout::{CLASSES, ThreadEntry};
use stackbeat_core::sync::Ordering;
use stackbeat_core::sys;
use stackbeat_proto::v1::{self, packet};

use super::signals::Signals;
use super::{Sampler, Thread, live_entry};
use crate::session::drainer::Order;
use crate::session::procfs;
use crate::session::shared::Shared;
use crate::session::ticker::now_ns;

/// The session's first signal. The second, for threads that block this one, is not used: they are told that they do.
const SIGNAL: u32 = libc::SIGURG as u32;
/// Distance between two looks at which threads have ended, and at those that could not have an event, ns.
const LOOK_NS: u64 = 100_000_000;

/// The events of all threads.
#[derive(Debug, Default)]
pub struct KernelClock {
    threads: Vec<Clocked>,
    /// Processes in which the kernel refused an event, or that use the signal themselves; said once.
    refused: HashSet<u32>,
    next_look_ns: u64,
    /// `Control::clock_calls` at the last one.
    calls: u32,
    /// Threads that were active between the last two looks.
    active: usize,
}

#[derive(Debug)]
struct Clocked {
    thread: Thread,
    event: Option<Event>,
    /// It did not get one since the last look.
    is_tried: bool,
    /// What it had written at the last look.
    records: u64,
}

impl Clocked {
    fn new(thread: Thread) -> Clocked {
        Clocked {
            thread,
            event: None,
            is_tried: false,
            records: 0,
        }
    }

    /// Gives the thread an event, unless it blocks the signal or has ended.
    fn begin(&mut self, entry: &ThreadEntry, period_ns: u64) -> io::Result<()> {
        let (pid, tid) = (self.thread.pid, self.thread.tid);
        // One that pends would end a later call.
        let blocked = procfs::blocked_signals(pid, tid).unwrap_or(u64::MAX);
        if blocked & sys::signal_bit(SIGNAL) != 0 {
            return Ok(());
        }
        let mut opened = Event::open(tid, period_ns);
        let is_full = |error: &io::Error| error.raw_os_error() == Some(libc::EMFILE);
        if opened.as_ref().is_err_and(is_full) {
            make_room();
            opened = Event::open(tid, period_ns);
        }
        match opened.and_then(|event| Ok(event.begin(entry, tid)?.then_some(event))) {
            Ok(Some(event)) => self.event = Some(event),
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

    /// No signal is on its way afterwards, and the thread learns that.
    fn end(&mut self, entry: &ThreadEntry) {
        self.event = None;
        entry.clock_descriptor.store(0, Ordering::SeqCst);
        sys::wake(&entry.clock_descriptor, 1);
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
    fn open(tid: u32, period_ns: u64) -> io::Result<Event> {
        let mut attributes = perf_event_attr {
            type_: PERF_TYPE_SOFTWARE,
            config: PERF_COUNT_SW_TASK_CLOCK.into(),
            ..perf_event_attr::default()
        };
        attributes.__bindgen_anon_1.sample_period = period_ns;
        attributes.set_disabled(1);
        attributes.set_exclude_kernel(1);
        attributes.set_exclude_hv(1);
        // Linux 5.13. Where it is missing, the signal is ignored from the exec to when we see it.
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
    fn begin(&self, entry: &ThreadEntry, tid: u32) -> io::Result<bool> {
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
            pid: tid as libc::pid_t,
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

    fn count(&self, on: bool) {
        let file = self.file.as_raw_fd();
        // SAFETY: takes no memory.
        unsafe {
            match on {
                true => ioctls::ENABLE(file, 0),
                false => ioctls::DISABLE(file, 0),
            }
        };
    }
}

fn open(attributes: &mut perf_event_attr, tid: u32) -> io::Result<OwnedFd> {
    attributes.size = size_of::<perf_event_attr>() as u32;
    // SAFETY: the kernel reads `size` bytes, and writes its own size there if that is smaller.
    let file = unsafe {
        let flags = PERF_FLAG_FD_CLOEXEC.into();
        perf_event_open(attributes, tid as libc::pid_t, -1, -1, flags)
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

/// Whether this process may have events at all.
pub fn probe() -> io::Result<()> {
    Event::open(0, 1_000_000).map(|_| ())
}

/// What to do about an error of [`probe`].
pub fn advice(error: &io::Error) -> String {
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
    /// Gives events to the threads that want one, ends those of others, and puts the periods in force. Gives how many threads
    /// were active between the last two looks.
    pub fn follow(
        &mut self,
        shared: &Shared,
        sampler: &mut Sampler,
        intervals_ns: [u64; CLASSES],
    ) -> usize {
        let calls = shared.mapping.control().clock_calls.load(Ordering::SeqCst);
        let before = self.threads.len();
        self.threads
            .extend(sampler.take_threads().map(Clocked::new));
        let now = now_ns();
        let is_look = now >= self.next_look_ns;
        if calls == self.calls && self.threads.len() == before && !is_look {
            return self.active;
        }
        self.calls = calls;
        if is_look {
            self.next_look_ns = now + LOOK_NS;
            self.active = 0;
        }
        let mut threads = std::mem::take(&mut self.threads);
        let mut i = 0;
        while let Some(clocked) = threads.get_mut(i) {
            let Some(entry) = live_entry(&shared.mapping, &clocked.thread) else {
                sampler.forget(threads.swap_remove(i).thread);
                continue;
            };
            let period_ns = period_ns(entry, intervals_ns);
            if is_look {
                let records = entry.records.load(Ordering::Relaxed);
                self.active +=
                    usize::from(std::mem::replace(&mut clocked.records, records) != records);
                clocked.is_tried = false;
            }
            let is_wanted = entry.wants_clock.load(Ordering::SeqCst) != 0
                && self.may_have_event(shared, sampler, &clocked.thread);
            match &mut clocked.event {
                Some(event) if is_wanted => event.set_period(period_ns),
                Some(_) => clocked.end(entry),
                None if is_wanted && !clocked.is_tried => {
                    clocked.is_tried = true;
                    if let Err(error) = clocked.begin(entry, period_ns) {
                        let reason = format!("perf_event_open: {error}");
                        self.refuse(shared, clocked.thread.pid, &reason);
                    }
                }
                None => {}
            }
            i += 1;
        }
        self.threads = threads;
        self.active
    }

    /// Whether the process of this thread may get the signals.
    fn may_have_event(&mut self, shared: &Shared, sampler: &Sampler, thread: &Thread) -> bool {
        let Some(process) = shared.mapping.process(thread.process) else {
            return false;
        };
        if self.refused.contains(&thread.pid) || !sampler.is_ours(thread.process) {
            return false;
        }
        match Signals::of(process).first {
            _ if process.handles_signal.load(Ordering::SeqCst) != 0 => {
                self.refuse(shared, thread.pid, "it handles SIGURG itself");
                false
            }
            SIGNAL => true,
            // Not yet, or a sandbox does not let handlers return.
            0 => false,
            _ => {
                self.refuse(shared, thread.pid, "it ignores SIGURG");
                false
            }
        }
    }

    fn refuse(&mut self, shared: &Shared, pid: u32, reason: &str) {
        if self.refused.insert(pid) {
            shared.order(Order::Say(Box::new(packet::Body::Event(v1::Event {
                time_ns: now_ns(),
                name: format!(
                    "process {pid} has no samples of what it computes ({reason}): record it with --clock tick"
                ),
                kind: v1::event::Kind::Note.into(),
                ..v1::Event::default()
            }))));
        }
    }

    /// The session is switched on or off.
    pub fn count(&self, on: bool) {
        let events = self.threads.iter().filter_map(|c| c.event.as_ref());
        events.for_each(|event| event.count(on));
    }
}

/// CPU time between two samples of a thread, ns.
fn period_ns(entry: &ThreadEntry, intervals_ns: [u64; CLASSES]) -> u64 {
    let class = entry.class.load(Ordering::Relaxed) as usize;
    let interval_ns = intervals_ns[class.min(CLASSES - 1)];
    interval_ns * u64::from(entry.every.load(Ordering::Relaxed).clamp(1, 1_000))
}
