//! What the threads of a session share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use stackbeat_core::cycles::Cycles;
use stackbeat_core::shm::buffer::Pool;
use stackbeat_core::shm::layout::ClockSource;
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::{clock, platform};

use super::activity::{Activity, Part};
use super::bell::Bell;
use super::clocks::now_ns;
use super::options::{MAX_DEPTH, Status};
use super::orders::{Order, Reason};
use super::runtime_folders::Folders;
use super::sigbus_guard::Guard;
use crate::drain::crash::Crash;
use crate::drain::generated_code::PerfMaps;

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the collector measures about itself.
        #[derive(Debug, Default)]
        pub(crate) struct Figures {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Figures {
            /// Names and values, for the footer.
            pub(crate) fn all(&self) -> Vec<(String, u64)> {
                vec![$((stringify!($name).to_owned(), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

figures! {
    /// Times the ticker woke up to advance ticks.
    ticks,
    /// Steps that came so late that the next one was due.
    ticks_late,
    /// Sums over these of the shortest interval asked for and of what it was stretched to, ns.
    intervals_asked_ns,
    intervals_kept_ns,
    /// The same of what the budget alone stretched it to, ns.
    intervals_by_budget_ns,
    /// What the recording cost until the ticker ended, its own start included, all of it, of it captures in
    /// the program's threads and hooks that captured nothing (estimated), and the program's CPU time beside
    /// it, ns.
    cost_ns,
    cost_captures_ns,
    cost_hooks_ns,
    cost_of_ns,
    /// The part of the program's CPU time that was not read but inferred, because processes came and went
    /// between two polls, ns.
    cost_of_inferred_ns,
    /// Times hooks were taken away from the program because they cost more than the budget.
    unpatches,
    /// Times the ticker parked because nothing ran.
    parks,
    /// Threads interrupted.
    signals_sent,
    /// Attempts to suspend a thread, where that takes the place of signals.
    suspensions,
    /// Those of running threads that gave no sample: the thread was where its hooks speak for it, or could
    /// not be stopped soon.
    suspensions_without_sample,
    /// Threads that were inside a call that must not be interrupted.
    signals_held_back,
    /// Thread entries that parts of the recorder polled because something had happened there, and in polls of
    /// all of them.
    entries_polled,
    entries_swept,
    /// Looks at /proc whether a thread runs.
    state_reads,
    /// Threads of the program that had no entry when they were first interrupted.
    unregistered_threads,
    /// Those that waited, and got one from the recorder.
    unregistered_waiting,
    /// Stacks of waiting threads that were walked from outside, and processes that did not allow it.
    off_cpu_walks,
    off_cpu_refused,
    /// Threads that wait for each other's locks: how many such circles there were.
    deadlocks,
    /// Looks at /proc for threads that wait outside of hooks.
    off_cpu_polls,
    /// Passes over the sub-buffers.
    drains,
    /// Longest pass.
    drain_max_ns,
    /// Bytes of records read.
    bytes_drained,
    /// Bytes written to the trace.
    bytes_written,
    /// Passes that could not store what they had.
    write_failures,
    /// Nodes of the CallstackTable.
    nodes,
    /// Generations of the CallstackTable.
    generations,
    /// CPU time of the collector, without symbolization.
    cpu_ns,
    /// CPU time of the ticker's thread, of the drain's, and of the one that polls waiting threads.
    ticker_cpu_ns,
    drain_cpu_ns,
    off_cpu_sampler_cpu_ns,
    /// Events written to the trace_marker or pipe as they happened, and those that could not be.
    systrace_written,
    systrace_failed,
    /// CPU time of the collector after the end of the program: the last pass, and names.
    after_cpu_ns,
    /// From the end of the program to the end of the trace, without symbolization.
    finish_ns,
    /// Time of symbolization.
    symbolize_ns,
    /// How long a thread of the program was kept from its work to attach and to detach, and how long all of
    /// it took.
    attach_pause_ns,
    attach_ns,
    detach_pause_ns,
    detach_ns,
    /// CPU time of the program and its waited-for children, as the kernel gave it at the end.
    program_cpu_ns,
    /// CPU time of processes that ran without an agent, as far as they were seen, and what of the program's
    /// CPU time is neither theirs nor of a recorded thread: processes too short to be seen, and starts and
    /// ends of all.
    unrecorded_cpu_ns,
    unseen_cpu_ns,
}

/// Adds to a figure.
pub(crate) fn count(figure: &AtomicU64, amount: u64) {
    figure.fetch_add(amount, Ordering::Relaxed);
}

/// What the supervising thread wants to know.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub status: Status,
    pub write_error: Option<String>,
    /// What the drain is to do besides, in this order.
    orders: Vec<Order>,
    /// What dumps are wanted for.
    reasons: Vec<Reason>,
}

/// Where a session's threads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a process of their own.
    Outside,
    /// In the program: they wake up for nothing but captures, and leave its signals alone.
    Inside,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Goes before the mapping does. A program keeps its own handler of SIGBUS.
    guard: Option<Guard>,
    pub place: Place,
    /// Files that are older are not of the program.
    pub program_began_at: SystemTime,
    pub mapping: Mapping,
    pub figures: Figures,
    /// Polls that nobody waits for may come so many times later than usual, because the recorder is to save
    /// processor time. At least 1.
    pub leisure: AtomicU32,
    /// What the nearest ticks are apart, as last settled, ns; 0: not yet.
    pub ticks_apart_ns: AtomicU64,
    /// An interval was asked for while recording: ticks keep it where timers cannot.
    pub keeps_interval: AtomicBool,
    /// Where runtimes may have left what goes with the recording.
    pub folders: Folders,
    /// The perf maps of the program's processes.
    pub maps: PerfMaps,
    /// Bytes of maps of generated code that were read and wait for the drain.
    pub map_bytes: AtomicUsize,
    /// Calls the thread that reads counters.
    pub meter: Bell,
    /// Calls the thread of polls when capturing begins.
    pub polls: Arc<Bell>,
    activity: Activity,
    stop: AtomicBool,
    state: Mutex<State>,
}

impl Shared {
    pub(crate) fn new(mapping: Mapping, place: Place, program_began_at: SystemTime) -> Shared {
        Shared {
            guard: (place == Place::Outside).then(|| Guard::new(&mapping)),
            place,
            program_began_at,
            mapping,
            figures: Figures::default(),
            leisure: AtomicU32::new(1),
            ticks_apart_ns: AtomicU64::new(0),
            keeps_interval: AtomicBool::new(false),
            folders: Folders::default(),
            maps: PerfMaps::default(),
            map_bytes: AtomicUsize::new(0),
            meter: Bell::default(),
            polls: Arc::default(),
            activity: Activity::default(),
            stop: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// What dates records.
    pub(crate) fn clock_source(&self) -> ClockSource {
        match self.mapping.control().clock_source.load(Ordering::Relaxed) {
            0 => ClockSource::Cycles,
            _ => ClockSource::Monotonic,
        }
    }

    /// Whether somebody has cut the mapping's file off. Nothing is captured from then on.
    pub(crate) fn was_cut(&self) -> bool {
        let was_cut = self.guard.as_ref().is_some_and(Guard::was_cut);
        if was_cut {
            self.mapping.control().switch.store(0, Ordering::SeqCst);
        }
        was_cut
    }

    /// See [`Options::await_chains`](super::options::Options::await_chains).
    pub(crate) fn await_chains(&self) -> bool {
        self.mapping.control().await_chains.load(Ordering::Relaxed) != 0
    }

    /// Most frames of a stack.
    pub(crate) fn depth_limit(&self) -> usize {
        let depth = self.mapping.control().depth_limit.load(Ordering::Relaxed);
        // The program can write there, too.
        depth.min(MAX_DEPTH) as usize
    }

    /// The thread entries that a part of the recorder should poll now ([`Activity::take`]), counted.
    pub(crate) fn take_activity(&self, part: Part, now_ns: u64, into: &mut Vec<u32>) -> bool {
        let is_all = self.activity.take(&self.mapping, part, now_ns, into);
        let figure = match is_all {
            true => &self.figures.entries_swept,
            false => &self.figures.entries_polled,
        };
        count(figure, into.len() as u64);
        is_all
    }

    /// A length by the session's clock, in ns.
    pub(crate) fn cycles_to_ns(&self, cycles: Cycles) -> u64 {
        let control = self.mapping.control();
        let ns = control.interval_ns[0].load(Ordering::Relaxed);
        let Cycles(of_interval) = control.interval_cycles[0].load(Ordering::Relaxed);
        (u128::from(cycles.0) * u128::from(ns) / u128::from(of_interval.max(1))) as u64
    }

    /// Why a dump of a crash is wanted. `who`: the process.
    pub(crate) fn reason_of(&self, crash: Crash, who: &str) -> Reason {
        let mut reason = Reason {
            text: format!("{who} died of {}{}", crash.signal, crash.place()),
            ..Reason::default()
        };
        if let Some(thread) = &crash.thread {
            reason.utid = thread.utid;
            reason.node = thread.node;
            let now = clock::now(self.clock_source());
            let since_ns = self.cycles_to_ns(now.saturating_sub(thread.cycles));
            reason.at_ns = Some(now_ns().saturating_sub(since_ns));
        }
        reason.crash = Some(crash);
        reason
    }

    /// A length in ns, by the session's clock.
    pub(crate) fn ns_to_cycles(&self, ns: u64) -> Cycles {
        let control = self.mapping.control();
        let Cycles(of_interval) = control.interval_cycles[0].load(Ordering::Relaxed);
        let interval_ns = control.interval_ns[0].load(Ordering::Relaxed).max(1);
        Cycles((u128::from(ns) * u128::from(of_interval) / u128::from(interval_ns)) as u64)
    }

    /// A panic of another thread of ours leaves plain numbers behind: they stay usable.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Asks the session's threads to come to their end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake_ticker();
        self.want_drain();
    }

    /// Ends the ticker's sleep while parked or switched off, so that it looks at the control block.
    pub(crate) fn wake_ticker(&self) {
        let control = self.mapping.control();
        control.parked.store(0, Ordering::SeqCst);
        platform::wake(&control.parked, 1);
        platform::wake(&control.switch, 1);
        control.clock_calls.call();
    }

    /// Asks the drain for something; it is done with its next pass, which comes soon.
    pub(crate) fn order(&self, order: Order) {
        self.state().orders.push(order);
        self.want_drain();
    }

    /// As [`Shared::order`]; the next pass is early enough.
    pub(crate) fn order_later(&self, order: Order) {
        self.state().orders.push(order);
    }

    /// Wants a dump.
    pub(crate) fn want_dump(&self, reason: Reason) {
        self.state().reasons.push(reason);
    }

    /// Why dumps were wanted since the last call.
    pub(crate) fn take_reasons(&self) -> Vec<Reason> {
        std::mem::take(&mut self.state().reasons)
    }

    /// What was ordered since the last call.
    pub(crate) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut self.state().orders)
    }

    /// Wakes the drain. Agents do the same.
    pub(crate) fn want_drain(&self) {
        self.mapping.want_drain();
    }

    /// Sleeps until something is captured or somebody wants the drain; only inside the program.
    pub(crate) fn sleep_for_captures(&self) {
        let control = self.mapping.control();
        self.drain_begins();
        control.asleep.store(1, Ordering::SeqCst);
        while control.drain.load(Ordering::SeqCst) != 0 && !self.stopping() {
            platform::wait(&control.drain, 1, None);
        }
        control.asleep.store(0, Ordering::SeqCst);
    }

    /// Has the ticker look at threads that came or went, where none is on ticks.
    pub(crate) fn call_clock(&self) {
        self.mapping.control().clock_calls.call();
    }

    /// The drain begins a pass: who wants one from here on wants another.
    pub(crate) fn drain_begins(&self) {
        self.mapping.control().drain.store(1, Ordering::SeqCst);
    }

    /// The drain's sleep: at least `shortest`, and `longest` unless it is wanted.
    pub(crate) fn sleep(&self, shortest: Duration, longest: Duration) {
        /// So soon is a stop noticed.
        const STEP: Duration = Duration::from_millis(5);
        let began = Instant::now();
        let word = &self.mapping.control().drain;
        loop {
            let slept = began.elapsed();
            let is_wanted = word.load(Ordering::SeqCst) == 0;
            if self.stopping() || slept >= longest || (is_wanted && slept >= shortest) {
                return;
            }
            if is_wanted {
                std::thread::sleep((shortest - slept).min(STEP));
            } else {
                platform::wait(word, 1, Some((longest - slept).as_nanos() as u64));
            }
        }
    }
}
