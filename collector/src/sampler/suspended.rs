//! Interrupting by suspension, where threads cannot be sent signals: a thread that was found running is
//! suspended, what a capture needs is taken, and it goes on. Its stack is walked afterwards, in what was
//! taken.
//!
//! The window: from [`Suspension::suspend`] to [`Suspension::resume`] nothing here allocates, locks, logs, or
//! waits for anybody. Inside the program the suspended thread may hold any lock, that of malloc above all,
//! and whoever waits for it then waits for ever.
//!
//! While a thread is suspended, its entry is ours: the words that only its owner writes are written here
//! then, and only if it is not in a capture or a published wait.

use std::collections::HashMap;

use stackbeat_core::clock;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Pid, Tid, Utid};
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::layout::{
    CLASSES, ClockSource, TICK_BY_CYCLES, TICK_PARKED, ThreadClass, ThreadEntry, entry_state,
};
use stackbeat_core::shm::throttle;
use stackbeat_core::sync::Ordering;
use stackbeat_core::unwind::Registers;
use stackbeat_proto::v1;

use super::{Thread, window};
use crate::drain::seen_waits::{Begin, SeenWait};
use crate::drain::suspended::SuspendedSample;
use crate::host::{Host, Scheduled, Suspended, Suspension, ToWalk, Walked};
use crate::session::orders::Order;
use crate::session::shared::{Shared, count};

/// Bytes of a stack that are taken at most: what lies further out is cut off, or the window would grow with
/// the stack.
const MOST_BYTES: usize = 256 << 10;
/// The same of a stack whose end is not known.
const UNKNOWN_BYTES: usize = 16 << 10;
/// How long a thread that waits outside of hooks has done so when its stack is taken: main threads, others.
const STILL_NS: [u64; CLASSES] = {
    let mut ns = [300_000_000; CLASSES];
    ns[ThreadClass::Main as usize] = 30_000_000;
    ns
};

/// Distance between two polls of a thread that waits while nobody runs, ns; and for each such thread.
const POLL_NS: u64 = 20_000_000;
const POLL_EACH_NS: u64 = 2_000_000;
/// CPU time by which a suspended thread has gone on with its wait, and within which time, ns.
const WAITS_AGAIN_NS: u64 = 500_000;
const WAITS_AGAIN_WITHIN_NS: u64 = 200_000_000;

/// Suspends threads.
#[derive(Debug)]
pub(super) struct Suspender {
    by: Box<dyn Suspension>,
    words: Box<[u64]>,
    /// What suspensions took that their threads' entries do not say yet, cycles.
    owed: HashMap<Utid, Cycles>,
    /// Threads that are found waiting outside of hooks.
    still: HashMap<Utid, Still>,
}

/// A thread that waits outside of hooks.
#[derive(Debug)]
struct Still {
    scheduled: Scheduled,
    since_ns: u64,
    /// When it was last found so.
    seen_ns: u64,
    /// Its wait, once it is in the trace.
    known: Option<SeenWait>,
    /// When it was suspended, ns; 0: it was not, or has run since. Some systems have it run for a moment to
    /// wait again.
    suspended_ns: u64,
}

impl Still {
    /// Whether it has only waited since.
    fn goes_on(&mut self, now: &Scheduled, now_ns: u64) -> bool {
        if now.times == self.scheduled.times {
            return true;
        }
        let ran_ns = now.run_ns.saturating_sub(self.scheduled.run_ns);
        let suspended_ns = std::mem::take(&mut self.suspended_ns);
        suspended_ns != 0
            && now_ns < suspended_ns + WAITS_AGAIN_WITHIN_NS
            && ran_ns < WAITS_AGAIN_NS
    }
}

/// What was taken of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub registers: Registers,
    pub cpu_ns: u64,
    cycles: Cycles,
    /// Words of the stack.
    pub words: usize,
    high: u64,
    /// Number of the thread's next record.
    records: u64,
    allocations: u64,
    allocated_bytes: u64,
    frees: u64,
}

/// What came of an attempt.
pub(super) enum Attempt {
    Taken(Taken),
    /// It could not be suspended, or was where its hooks speak for it.
    NotNow,
    Gone,
}

/// Of whom something is taken.
#[derive(Clone, Copy)]
pub(super) struct Whom<'a> {
    pub entry: &'a ThreadEntry,
    pub utid: Utid,
    pub pid: Pid,
    pub tid: Tid,
    /// The tick that it is to have noticed by this.
    pub tick: Option<u32>,
    /// What is to be added to what captures took of its time.
    pub owed: Cycles,
    pub source: ClockSource,
}

/// The window, and nothing else.
pub(super) fn take(by: &mut dyn Suspension, whom: &Whom, words: &mut [u64]) -> Attempt {
    by.prepare(whom.pid, whom.tid);
    let window = window::enter();
    let attempt = match by.suspend(whom.pid, whom.tid) {
        Suspended::Yes { registers, cpu_ns } => {
            let taken = take_from(by, whom, &registers, cpu_ns, words);
            by.resume();
            taken.map_or(Attempt::NotNow, Attempt::Taken)
        }
        Suspended::NotNow => Attempt::NotNow,
        Suspended::Gone => Attempt::Gone,
    };
    drop(window);
    attempt
}

fn take_from(
    by: &mut dyn Suspension,
    whom: &Whom,
    registers: &Registers,
    cpu_ns: u64,
    words: &mut [u64],
) -> Option<Taken> {
    let entry = whom.entry;
    let is_its_own = entry.state.load(Ordering::Acquire) == entry_state::LIVE
        && entry.utid() == whom.utid
        && entry.capturing.load(Ordering::Acquire) == 0
        && (entry.blocking_section.load(Ordering::Acquire)).is_multiple_of(2);
    if !is_its_own {
        return None;
    }
    let (low, high) = (
        entry.stack_low.load(Ordering::Relaxed),
        entry.stack_high.load(Ordering::Relaxed),
    );
    let from = registers.sp & !7;
    let is_on_it = low <= from && from < high;
    let bytes = match is_on_it {
        true => (high - from).min(MOST_BYTES as u64) as usize,
        false => UNKNOWN_BYTES,
    };
    let room = words.get_mut(..bytes / 8)?;
    let read = match is_on_it {
        // SAFETY: the thread is stopped, its entry says that it has not ended, and the words lie below its
        // stack's end.
        true => unsafe { by.read_own_stack(whom.pid, from, room) },
        false => by.read_stack(whom.pid, from, room),
    };
    if let Some(tick) = whom.tick {
        entry.last_tick.store(tick, Ordering::Relaxed);
    }
    entry.spent_cycles.add_own(whom.owed);
    let cpu_before_ns = entry.cpu_ns.load(Ordering::Relaxed);
    entry
        .cpu_ns
        .store(cpu_before_ns.max(cpu_ns), Ordering::Relaxed);
    Some(Taken {
        registers: *registers,
        cpu_ns,
        cycles: clock::now(whom.source),
        words: read,
        high: if is_on_it { high } else { 0 },
        records: entry.records.load(Ordering::Relaxed),
        allocations: entry.allocations.load(Ordering::Relaxed),
        allocated_bytes: entry.allocated_bytes.load(Ordering::Relaxed),
        frees: entry.frees.load(Ordering::Relaxed),
    })
}

/// The tick that a thread's word shows, or with `is_next` the one that comes next. `None`: the word shows
/// none that a thread notes.
fn tick_of(shared: &Shared, entry: &ThreadEntry, is_next: bool) -> Option<u32> {
    let index = entry.tick_index.load(Ordering::Relaxed);
    let tick = throttle::tick_of(shared.mapping.control(), index);
    match tick.count.load(Ordering::Relaxed) {
        TICK_PARKED | TICK_BY_CYCLES => None,
        tick if is_next => Some(throttle::after(tick)),
        tick => Some(tick),
    }
}

impl Suspender {
    pub(super) fn new(by: Box<dyn Suspension>) -> Suspender {
        Suspender {
            by,
            words: vec![0; MOST_BYTES / 8].into_boxed_slice(),
            owed: HashMap::new(),
            still: HashMap::new(),
        }
    }

    /// Takes something of a thread, and notes what that took of its time.
    fn attempt(
        &mut self,
        shared: &Shared,
        thread: &Thread,
        entry: &ThreadEntry,
        tick: Option<u32>,
    ) -> Attempt {
        let source = shared.clock_source();
        let began = clock::now(source);
        let whom = Whom {
            entry,
            utid: thread.utid,
            pid: thread.pid,
            tid: thread.tid,
            tick,
            owed: self.owed.get(&thread.utid).copied().unwrap_or_default(),
            source,
        };
        let attempt = take(&mut *self.by, &whom, &mut self.words);
        let took = clock::now(source).saturating_sub(began);
        let owed = match attempt {
            Attempt::Taken(_) => took,
            // Nothing was added.
            _ => whom.owed + took,
        };
        self.owed.insert(thread.utid, owed);
        count(&shared.figures.suspensions, 1);
        attempt
    }

    /// A thread was found running: takes a sample of it. `before_tick`: its tick word is about to advance.
    pub(super) fn sample(
        &mut self,
        shared: &Shared,
        thread: &Thread,
        entry: &ThreadEntry,
        before_tick: bool,
    ) {
        // Its wait ends with this sample.
        self.still.remove(&thread.utid);
        let tick = tick_of(shared, entry, before_tick);
        let Attempt::Taken(taken) = self.attempt(shared, thread, entry, tick) else {
            count(&shared.figures.suspensions_without_sample, 1);
            return;
        };
        let epoch = epoch_of(shared, thread);
        let walked = self.walk(shared, thread, epoch, &taken);
        shared.order_later(Order::Suspended {
            modules: walked.modules,
            sample: Box::new(SuspendedSample {
                utid: thread.utid,
                upid: thread.upid,
                epoch,
                record: taken.records.saturating_sub(1),
                cycles: taken.cycles,
                cpu_ns: taken.cpu_ns,
                allocations: taken.allocations,
                allocated_bytes: taken.allocated_bytes,
                frees: taken.frees,
                stack: walked.stack,
            }),
        });
    }

    fn walk(&mut self, shared: &Shared, thread: &Thread, epoch: u32, taken: &Taken) -> Walked {
        self.by.walk(&ToWalk {
            pid: thread.pid,
            upid: thread.upid,
            epoch,
            registers: &taken.registers,
            words: &self.words[..taken.words],
            high: taken.high,
            depth: shared.depth_limit(),
        })
    }

    /// A thread was found waiting outside of hooks. Once it has done so for long its stack is taken, and not
    /// again before it has run.
    pub(super) fn waits(
        &mut self,
        host: &dyn Host,
        shared: &Shared,
        thread: &Thread,
        entry: &ThreadEntry,
        now_ns: u64,
    ) {
        let Some(scheduled) = host.scheduled(thread.pid, thread.tid) else {
            return;
        };
        let mut before = self.still.remove(&thread.utid);
        let goes_on = (before.as_mut()).is_some_and(|still| still.goes_on(&scheduled, now_ns));
        let mut still = match before {
            Some(still) if goes_on => still,
            before => {
                // It ran in between, and no sample says when.
                if let Some(Still {
                    known: Some(wait),
                    seen_ns,
                    ..
                }) = before
                {
                    say(
                        shared,
                        Vec::new(),
                        SeenWait {
                            end_ns: seen_ns,
                            ..wait
                        },
                    );
                }
                Still {
                    scheduled,
                    since_ns: now_ns,
                    seen_ns: now_ns,
                    known: None,
                    suspended_ns: 0,
                }
            }
        };
        still.scheduled = scheduled;
        still.seen_ns = now_ns;
        let class = (entry.class.load(Ordering::Relaxed) as usize).min(CLASSES - 1);
        if still.known.is_none() && now_ns.saturating_sub(still.since_ns) >= STILL_NS[class] {
            still.suspended_ns = now_ns;
            match self.attempt(shared, thread, entry, None) {
                Attempt::Taken(taken) => {
                    let epoch = epoch_of(shared, thread);
                    let walked = self.walk(shared, thread, epoch, &taken);
                    let wait = SeenWait {
                        utid: thread.utid,
                        upid: thread.upid,
                        epoch,
                        probe: Probe::BlockedOutside as u8,
                        system_call: 0,
                        begin: Begin::Ns(still.since_ns),
                        end_ns: 0,
                        arg: 0,
                        is_inferred: false,
                        stack: walked.stack,
                    };
                    say(shared, walked.modules, wait.clone());
                    still.known = Some(wait);
                }
                // Not before it has waited for as long again.
                Attempt::NotNow | Attempt::Gone => still.since_ns = now_ns,
            }
        }
        self.still.insert(thread.utid, still);
    }

    /// Whether it is time to look at a thread that waits: with so many of them, none is looked at all the
    /// time.
    pub(super) fn is_due(&self, thread: &Thread, threads: usize, now_ns: u64) -> bool {
        let distance_ns = POLL_NS.max(POLL_EACH_NS * threads as u64);
        let still = self.still.get(&thread.utid);
        still.is_none_or(|still| now_ns.saturating_sub(still.seen_ns) >= distance_ns)
    }

    pub(super) fn forget(&mut self, utid: Utid) {
        self.owed.remove(&utid);
        self.still.remove(&utid);
    }
}

fn say(shared: &Shared, modules: Vec<v1::Module>, wait: SeenWait) {
    shared.order_later(Order::Waits {
        modules,
        waits: vec![wait],
    });
}

fn epoch_of(shared: &Shared, thread: &Thread) -> u32 {
    let process = shared.mapping.process(thread.process);
    process.map_or(0, |process| process.epoch.load(Ordering::Relaxed))
}
