//! The off-CPU sampler: reads the stacks of threads that wait for long, without a signal and without their
//! notice, so that a wait is in the trace before it ends.
//!
//! A hook publishes in the thread's entry what it waits for, since when, and where its frame is. From there
//! the stack is walked in another process' memory (`crate::linux::remote_unwind`); it counts only if the
//! thread is in the same wait afterwards. One walk for each wait: a thread that goes on waiting costs the
//! load of one word from then on, in private memory. Waits outside of any hook: `unhooked`.

mod alarm;
mod computing;
mod unhooked;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Pid, Upid, Utid};
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::layout::{CLASSES, ThreadClass, ThreadEntry, entry_state};
use stackbeat_core::shm::methods::Methods;
use stackbeat_core::shm::registry;
use stackbeat_core::sync::{Ordering, fence};
use stackbeat_core::{clock, platform};

use super::lock_waits::{self, LockWaits};
use super::polls::Poll;
use super::procfs::{self, InCall};
use crate::drain::seen_waits::{Begin, SeenWait};
use crate::host::{Stack, Whose};
use crate::linux::remote_unwind::{Place, Process, Walker};
use crate::session::activity::Part;
use crate::session::clocks::now_ns;
use crate::session::options::Dumps;
use crate::session::orders::Order;
use crate::session::shared::{Shared, count};
use alarm::{Alarms, Waiting};
use computing::Computing;
use stackbeat_proto::v1::{self, packet};
use unhooked::Unhooked;

/// How long a thread has waited when its stack is read: main threads, others.
const DEADLINE_NS: [u64; CLASSES] = {
    let mut ns = [300_000_000; CLASSES];
    ns[ThreadClass::Main as usize] = 30_000_000;
    ns
};
/// Distance between two passes over the threads: while waits are due, and while nothing changes.
pub(super) const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(400);
/// The same while threads have only computed for so long, ns, and a pass finds no other ones: one of them
/// that waits outside hooks for less than this may be missed, the first time.
const COMPUTING: Duration = Duration::from_millis(100);
const COMPUTES_AFTER_NS: u64 = 1_000_000_000;
/// A pass may take this part of the time.
const SHARE: u32 = 100;
/// Threads that wait for each other's locks have got there by beginning to wait for one: so long after one
/// did they are looked for, ns.
const LOCKS_NS: u64 = 2_000_000_000;
/// Work of one pass after which the rest is left for the next one. It may be more, because what is loaded in
/// a process is read with its first stack, in one go. That comes once, and no pass is kept waiting for it:
/// nobody would see the waits of seconds.
const WORK: Duration = Duration::from_millis(1);

/// The off-CPU sampler of a session.
#[derive(Debug)]
pub(super) struct OffCpuSampler {
    off_cpu: OffCpu,
    distance: Duration,
}

impl OffCpuSampler {
    /// `mapping_name` is the file name of the session's mapping; `dumps` says what dumps are wanted for.
    pub(super) fn new(shared: Arc<Shared>, mapping_name: &[u8], dumps: &Dumps) -> OffCpuSampler {
        OffCpuSampler {
            off_cpu: OffCpu::new(shared, mapping_name, dumps),
            distance: SHORTEST,
        }
    }
}

impl Poll for OffCpuSampler {
    fn poll(&mut self) -> Duration {
        self.distance = self.off_cpu.pass(self.distance);
        self.distance
    }

    fn comes_when_called(&self) -> bool {
        true
    }

    fn finish(&mut self) {
        let cpu = &self.off_cpu.shared.figures.off_cpu_sampler_cpu_ns;
        cpu.store(self.off_cpu.cpu_ns, Ordering::Relaxed);
    }
}

/// One look at all threads that wait in hooks at this moment, for a session that has no thread for it and is
/// about to end: its threads' last waits have no end that would say where they waited.
pub(crate) fn look_once(shared: &Arc<Shared>, mapping_name: &[u8]) {
    let mut off_cpu = OffCpu::new(Arc::clone(shared), mapping_name, &Dumps::default());
    let now = Now {
        ns: now_ns(),
        cycles: clock::now(shared.clock_source()),
    };
    for (_, entry) in registry::threads(&shared.mapping) {
        let is_waiting = !(entry.blocking_section.load(Ordering::Relaxed)).is_multiple_of(2);
        if is_waiting {
            off_cpu.examine(entry, &mut Seen::default(), now);
        }
    }
    off_cpu.send_found();
}

/// What is remembered of a thread entry.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    utid: Utid,
    /// The wait that it is in, 0: none.
    blocking_section: u32,
    begin: Cycles,
    /// That one is in the trace.
    is_recorded: bool,
    /// Records that the thread had then.
    records: u64,
    /// What it does between hooked calls.
    unhooked: Unhooked,
}

/// A process and what is loaded in it.
#[derive(Debug)]
struct Known {
    upid: Upid,
    pid: Pid,
    /// `None`: not read so far, or not allowed.
    image: Option<Process>,
    /// We may not read its memory.
    is_closed: bool,
    /// The pid means this process here, too.
    is_ours: bool,
}

/// One moment by both clocks: ours, and the one that dates records.
#[derive(Clone, Copy, Debug)]
struct Now {
    ns: u64,
    cycles: Cycles,
}

/// What a thread does.
#[derive(Clone, Copy, Debug)]
enum Doing {
    /// It has moved since the last pass.
    Changed,
    /// It is to be polled in so many ns.
    Due(u64),
    /// It waits, and that is in the trace.
    Known,
}

#[derive(Debug)]
struct OffCpu {
    shared: Arc<Shared>,
    mapping_name: Vec<u8>,
    /// By entry.
    threads: Vec<Seen>,
    /// By entry, when it is to be polled if it is not active before, ns.
    due_ns: Vec<u64>,
    /// Entries of threads that were active since the last pass.
    activity: Vec<u32>,
    /// Entries of threads that wait for locks, and until when they may have come to wait for each other.
    /// With the number of the blocking section: another wait of the same thread may close a circle.
    at_locks: BTreeMap<u32, u64>,
    locks_until_ns: u64,
    locks_seen_ns: u64,
    processes: HashMap<u32, Known>,
    walker: Walker,
    found: Vec<SeenWait>,
    modules: Vec<v1::Module>,
    /// By thread, waits outside of hooks that are in the trace and go on.
    open: HashMap<Utid, SeenWait>,
    /// Threads that were found waiting outside of hooks by the last pass.
    waiting: usize,
    /// What a pass begins with.
    next: usize,
    alarms: Alarms,
    lock_waits: LockWaits,
    computing: Computing,
    /// CPU time of all passes, ns.
    cpu_ns: u64,
}

impl OffCpu {
    fn new(shared: Arc<Shared>, mapping_name: &[u8], dumps: &Dumps) -> OffCpu {
        OffCpu {
            alarms: Alarms::new(dumps, &shared),
            lock_waits: LockWaits::new(Arc::clone(&shared), mapping_name),
            shared,
            mapping_name: mapping_name.to_vec(),
            threads: Vec::new(),
            due_ns: Vec::new(),
            activity: Vec::new(),
            at_locks: BTreeMap::new(),
            locks_until_ns: 0,
            locks_seen_ns: 0,
            processes: HashMap::new(),
            walker: Walker::default(),
            found: Vec::new(),
            modules: Vec::new(),
            open: HashMap::new(),
            waiting: 0,
            next: 0,
            computing: Computing::default(),
            cpu_ns: 0,
        }
    }

    /// Polls the threads that were active or are due. Gives the distance to the next pass.
    fn pass(&mut self, distance: Duration) -> Duration {
        // By the CPU's clock: others who had the processor meanwhile are no reason to poll less often.
        let began_ns = platform::thread_cpu_ns();
        let worked = || Duration::from_nanos(platform::thread_cpu_ns() - began_ns);
        let shared = Arc::clone(&self.shared);
        if shared.mapping.control().switch.load(Ordering::Relaxed) == 0 {
            return LONGEST;
        }
        let now = Now {
            ns: now_ns(),
            cycles: clock::now(shared.clock_source()),
        };
        let mut due = None;
        let mut changed = Vec::new();
        let mut activity = std::mem::take(&mut self.activity);
        shared.take_activity(Part::OffCpu, now.ns, &mut activity);
        for at in activity.iter().map(|at| *at as usize) {
            if self.due_ns.len() <= at {
                self.due_ns.resize(at + 1, 0);
                self.threads.resize(at + 1, Seen::default());
            }
            self.due_ns[at] = 0;
        }
        self.activity = activity;
        let all = self.due_ns.len();
        let first = std::mem::take(&mut self.next) % all.max(1);
        let mut polls = 0u32;
        for at in (first..all).chain(0..first) {
            if self.due_ns[at] == u64::MAX {
                continue;
            }
            if self.due_ns[at] > now.ns {
                let ns = self.due_ns[at] - now.ns;
                due = Some(due.map_or(ns, |due: u64| due.min(ns)));
                continue;
            }
            let Some(entry) = shared.mapping.thread(at as u32) else {
                continue;
            };
            polls += 1;
            if polls.is_multiple_of(16) && worked() > WORK {
                self.next = at;
                due = Some(0);
                break;
            }
            let doing = self.poll_after(entry, at, now);
            self.due_ns[at] = match doing {
                Doing::Changed => now.ns,
                Doing::Known => u64::MAX,
                Doing::Due(ns) => now.ns.saturating_add(ns),
            };
            match doing {
                Doing::Changed => changed.push(at),
                Doing::Known => {}
                Doing::Due(ns) => due = Some(due.map_or(ns, |due: u64| due.min(ns))),
            }
        }
        self.send_found();
        self.alarms.want_dumps(&shared);
        // Once more at the end, however late that is: a pass may have been kept waiting.
        if self.locks_seen_ns < self.locks_until_ns {
            self.locks_seen_ns = now.ns;
            self.lock_waits.poll(self.at_locks.keys().copied());
        }
        let wanted = match due {
            Some(ns) => Duration::from_nanos(ns),
            None if changed.is_empty() => distance * 2,
            None if self.only_compute(&changed, now.ns) => COMPUTING,
            None => SHORTEST,
        };
        let shortest = match self.alarms.block_ns() {
            u64::MAX => SHORTEST * shared.leisure.load(Ordering::Relaxed),
            _ => SHORTEST,
        };
        let worked = worked();
        self.cpu_ns += worked.as_nanos() as u64;
        distance_after(worked, wanted, shortest)
    }

    /// Whether threads that have moved since the last pass do nothing but compute, for long. A dump that a
    /// wait or an iteration is to set off does not wait.
    fn only_compute(&mut self, entries: &[usize], now_ns: u64) -> bool {
        if self.alarms.is_any() {
            return false;
        }
        let shared = Arc::clone(&self.shared);
        let mut computing = std::mem::take(&mut self.computing);
        let found = |at: usize| {
            let entry = shared.mapping.thread(at as u32)?;
            let pid = self.pid(entry.process.load(Ordering::Relaxed))?;
            let scheduled = procfs::scheduled(pid, entry.tid()).ok()?;
            Some((entry.utid(), scheduled))
        };
        computing.poll(entries, now_ns, found);
        let only = computing
            .since_ns()
            .is_some_and(|ns| now_ns - ns >= COMPUTES_AFTER_NS);
        self.computing = computing;
        only
    }

    /// Polls the thread of an entry: what it waits for, and whether that takes a dump.
    fn poll_after(&mut self, entry: &ThreadEntry, at: usize, now: Now) -> Doing {
        let shared = Arc::clone(&self.shared);
        let mut seen = std::mem::take(&mut self.threads[at]);
        self.waiting -= usize::from(seen.unhooked.waits());
        let doing = self.examine(entry, &mut seen, now);
        self.waiting += usize::from(seen.unhooked.waits());
        self.threads[at] = seen;
        let at_lock = at as u32;
        let blocking_section = u64::from(entry.blocking_section.load(Ordering::Relaxed));
        let is_changed = match lock_waits::is_at_lock(entry) {
            true => self.at_locks.insert(at_lock, blocking_section) != Some(blocking_section),
            false => self.at_locks.remove(&at_lock).is_some(),
        };
        if is_changed {
            self.locks_until_ns = now.ns + LOCKS_NS;
        }
        let known = self.known_wait(entry, &seen, now);
        let alarm = self.alarms.watch(&shared, at, entry, known, now.cycles);
        match (doing, alarm) {
            (Doing::Due(a), Some(b)) => Doing::Due(a.min(b)),
            (Doing::Known, Some(ns)) => Doing::Due(ns),
            (doing, _) => doing,
        }
    }

    /// Polls a thread if it is due.
    fn examine(&mut self, entry: &ThreadEntry, seen: &mut Seen, now: Now) -> Doing {
        let state = entry.state.load(Ordering::Acquire);
        if !matches!(state, entry_state::LIVE | entry_state::ADOPTED) {
            self.forget_unhooked(&mut seen.unhooked);
            return Doing::Known;
        }
        let utid = entry.utid();
        let blocking_section = entry.blocking_section.load(Ordering::Acquire);
        if blocking_section.is_multiple_of(2) {
            return match self.poll_unhooked(entry, &mut seen.unhooked, now) {
                Some(ns) => Doing::Due(ns),
                None => Doing::Changed,
            };
        }
        self.forget_unhooked(&mut seen.unhooked);
        let begin = entry.blocking_section_begin.load(Ordering::Relaxed);
        let records = entry.records.load(Ordering::Relaxed);
        let is_same =
            (seen.utid, seen.blocking_section, seen.begin) == (utid, blocking_section, begin);
        if is_same && seen.is_recorded && seen.records == records {
            return Doing::Known;
        }
        // A signal handler that captures inside of the wait ends the first part of it.
        let since = match is_same && seen.is_recorded {
            true => entry.last_capture_cycles.load(Ordering::Relaxed).max(begin),
            false => begin,
        };
        let class = (entry.class.load(Ordering::Relaxed) as usize).min(CLASSES - 1);
        let waited_ns = self.shared.cycles_to_ns(now.cycles.saturating_sub(since));
        let deadline_ns = DEADLINE_NS[class].min(self.alarms.block_ns());
        let left_ns = deadline_ns.saturating_sub(waited_ns);
        if left_ns > 0 {
            return Doing::Due(left_ns);
        }
        *seen = Seen {
            utid,
            blocking_section,
            begin,
            is_recorded: false,
            records,
            unhooked: Unhooked::default(),
        };
        seen.is_recorded = self.poll(entry, seen, since);
        Doing::Changed
    }

    /// The wait of a thread that is in the trace and goes on.
    fn known_wait(&self, entry: &ThreadEntry, seen: &Seen, now: Now) -> Option<Waiting> {
        if let Some((probe, since_ns)) = seen.unhooked.known_wait() {
            return Some(Waiting {
                probe,
                begin: Begin::Ns(since_ns),
                waited_ns: now.ns.saturating_sub(since_ns),
            });
        }
        let probe = entry.blocking_section_probe.load(Ordering::Relaxed) as u8;
        // What was recorded may be over, and another wait may have begun.
        let goes_on = !seen.blocking_section.is_multiple_of(2)
            && entry.blocking_section_begin.load(Ordering::Relaxed) == seen.begin
            && entry.utid() == seen.utid
            && entry.blocking_section.load(Ordering::Acquire) == seen.blocking_section;
        (seen.is_recorded && goes_on).then(|| Waiting {
            probe,
            begin: Begin::Cycles(seen.begin),
            waited_ns: self
                .shared
                .cycles_to_ns(now.cycles.saturating_sub(seen.begin)),
        })
    }

    /// Walks the stack of a thread in a hooked call. False: it was no longer there.
    fn poll(&mut self, entry: &ThreadEntry, seen: &Seen, since: Cycles) -> bool {
        count(&self.shared.figures.off_cpu_walks, 1);
        let get = |i: usize| entry.registers[i].load(Ordering::Relaxed);
        let process = entry.process.load(Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        let Some(process_entry) = shared.mapping.process(process) else {
            return true;
        };
        let epoch = process_entry.epoch.load(Ordering::Relaxed);
        let mut wait = SeenWait {
            utid: seen.utid,
            upid: process_entry.upid(),
            epoch,
            probe: entry.blocking_section_probe.load(Ordering::Relaxed) as u8,
            system_call: 0,
            begin: Begin::Cycles(since),
            end_ns: 0,
            arg: entry.blocking_section_arg.load(Ordering::Relaxed),
            is_inferred: false,
            stack: Stack::default(),
        };
        let place = Place {
            pc: get(0),
            sp: get(1),
            fp: get(2),
            high: entry.stack_high.load(Ordering::Relaxed),
            // The child of a vfork overwrites its hook's frame: the caller's was published.
            in_hook: wait.probe != Probe::Vfork as u8,
            tid: entry.tid(),
            generated_code: process_entry.generated_code.load(Ordering::Acquire),
            await_chains: self.shared.await_chains(),
        };
        if let Some(stack) = self.walk(process, epoch, &place) {
            wait.stack = stack;
        }
        match self
            .pid(process)
            .map(|pid| where_it_waits(pid, entry, place.sp))
        {
            None | Some(Waits::There) => {}
            Some(Waits::Elsewhere) => return true,
            Some(Waits::NotKnown) => return false,
        }
        fence(Ordering::Acquire);
        let is_same = entry.blocking_section.load(Ordering::Relaxed) == seen.blocking_section
            && entry.blocking_section_begin.load(Ordering::Relaxed) == seen.begin
            && entry.utid() == seen.utid;
        if is_same {
            self.found.push(wait);
        }
        is_same
    }

    /// What is known of the process with this entry; `None`: its pid is not ours.
    fn process(&mut self, process: u32) -> Option<&mut Known> {
        let entry = self.shared.mapping.process(process)?;
        let upid = entry.upid();
        let pid = entry.pid();
        let name = &self.mapping_name;
        let known = self
            .processes
            .entry(process)
            .and_modify(|known| {
                if known.upid != upid {
                    *known = Known::new(upid, pid, name);
                }
            })
            .or_insert_with(|| Known::new(upid, pid, name));
        known.is_ours.then_some(known)
    }

    /// The pid of the process with this entry, if it means the same here.
    fn pid(&mut self, process: u32) -> Option<Pid> {
        self.process(process).map(|known| known.pid)
    }

    /// What is loaded in the process with this entry. That its memory may not be read is reported once.
    fn open(&mut self, process: u32, epoch: u32) -> Option<&mut Known> {
        let maps = self.shared.maps.clone();
        let known = self.process(process).filter(|known| !known.is_closed)?;
        if known.image.is_none() {
            match Process::open(known.pid, epoch) {
                Ok(image) => {
                    let map = maps.of(known.upid);
                    known.image = Some(image.with_source(Box::new(map)));
                }
                Err(error) => {
                    self.refuse(process, &error);
                    return None;
                }
            }
        }
        self.processes.get_mut(&process)
    }

    /// The memory of the process with this entry may not be read.
    fn refuse(&mut self, process: u32, error: &io::Error) {
        if let Some(known) = self.processes.get_mut(&process) {
            known.is_closed = true;
            known.image = None;
            let note = refusal(known.pid, error);
            count(&self.shared.figures.off_cpu_refused, 1);
            self.shared.order(Order::Say(Box::new(note)));
        }
    }

    /// Walks a stack of the process with this entry, if that is allowed.
    fn walk(&mut self, process: u32, epoch: u32, place: &Place) -> Option<Stack> {
        self.open(process, epoch)?;
        let shared = Arc::clone(&self.shared);
        let known = self.processes.get(&process)?;
        let (upid, image) = (known.upid, known.image.as_ref()?);
        let depth = shared.depth_limit();
        let methods = Methods::of(&shared.mapping);
        let found = self.walker.walk(image, epoch, place, depth, Some(&methods));
        self.modules.extend(image.new_modules(upid, epoch));
        match found {
            Ok(stack) => Some(stack),
            Err(error) => {
                // It has closed itself since it was opened.
                if error.kind() == io::ErrorKind::PermissionDenied {
                    self.refuse(process, &error);
                }
                None
            }
        }
    }

    /// Hands what was found to the drain.
    fn send_found(&mut self) {
        if !self.found.is_empty() || !self.modules.is_empty() {
            self.shared.order(Order::Waits {
                modules: std::mem::take(&mut self.modules),
                waits: std::mem::take(&mut self.found),
            });
        }
    }
}

/// Distance to the next pass, after one that has worked for so long. `wanted`: when something is due.
fn distance_after(worked: Duration, wanted: Duration, shortest: Duration) -> Duration {
    let least = shortest.max(worked.min(WORK) * SHARE);
    whole_steps(wanted).clamp(least.min(LONGEST), LONGEST)
}

/// As many of the shortest distance as it takes: passes then come at the moments of other polls.
fn whole_steps(wanted: Duration) -> Duration {
    let step_ns = SHORTEST.as_nanos();
    let steps = wanted.as_nanos().div_ceil(step_ns);
    SHORTEST.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
}

/// Where a thread is that is said to wait in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    There,
    Elsewhere,
    NotKnown,
}

/// Whether a thread waits in the call that began with this stack pointer, as far as the kernel says. A child
/// on its parent's memory and thread-locals (a raw clone with CLONE_VM) publishes its own calls as the
/// parent's.
fn where_it_waits(pid: Pid, entry: &ThreadEntry, sp: u64) -> Waits {
    let own = entry.stack_low.load(Ordering::Relaxed)..entry.stack_high.load(Ordering::Relaxed);
    judge(procfs::in_call(pid, entry.tid()).ok(), sp, &own)
}

fn judge(found: Option<InCall>, sp: u64, own: &Range<u64>) -> Waits {
    /// What a call below a hook takes at most.
    const DEEPEST: u64 = 16 << 20;
    match found {
        Some(InCall::Call { sp: now, .. } | InCall::Elsewhere { sp: now, .. }) => {
            match sp.checked_sub(now) {
                Some(below) if below < DEEPEST => Waits::There,
                _ => Waits::Elsewhere,
            }
        }
        // Of a thread that runs, or could, the kernel does not say where. On its own stack it is nobody else.
        Some(InCall::Running) if own.is_empty() || own.contains(&sp) => Waits::There,
        Some(InCall::Running) => Waits::NotKnown,
        None => Waits::There,
    }
}

/// What the trace says when the memory of a process may not be read.
fn refusal(pid: Pid, error: &io::Error) -> packet::Body {
    packet::Body::Event(v1::Event {
        time_ns: now_ns(),
        name: format!(
            "process {pid} may not be looked into ({error}): threads that wait have no stack until their waits \
             end, waits outside of hooks have none at all, and running threads are found less precisely; \
             record it with CAP_SYS_PTRACE (docker --cap-add=SYS_PTRACE), or do not let it change its user"
        ),
        kind: v1::event::Kind::Note.into(),
        ..v1::Event::default()
    })
}

impl Known {
    fn new(upid: Upid, pid: Pid, mapping_name: &[u8]) -> Known {
        let who = procfs::identify(pid, mapping_name, Pid(std::process::id()));
        Known {
            upid,
            pid,
            image: None,
            is_closed: false,
            // Numbers of another pid namespace are somebody else's here.
            is_ours: who == Whose::Ours,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that shares its parent's entry stands on another stack.
    #[test]
    fn what_a_child_published_is_not_its_parents() {
        let own = 0x7000_0000..0x7080_0000;
        let parents = 0x7070_0000;
        let childs = 0x0040_0000;
        let call = |sp| {
            Some(InCall::Call {
                number: libc::SYS_clock_nanosleep,
                arguments: [0; 6],
                sp,
                pc: 1,
            })
        };
        assert_eq!(judge(call(parents - 200), parents, &own), Waits::There);
        assert_eq!(judge(call(parents - 200), childs, &own), Waits::Elsewhere);
        assert_eq!(judge(Some(InCall::Running), parents, &own), Waits::There);
        assert_eq!(judge(Some(InCall::Running), childs, &own), Waits::NotKnown);
        // Neither the stack is known nor what the thread does.
        assert_eq!(judge(Some(InCall::Running), childs, &(0..0)), Waits::There);
        assert_eq!(judge(None, childs, &own), Waits::There);
    }

    #[test]
    fn passes_take_their_share_of_the_time_but_for_what_comes_once() {
        let ms = Duration::from_millis;
        let us = Duration::from_micros;
        for (worked, wanted, distance) in [
            (us(50), ms(0), ms(20)),
            (us(50), ms(33), ms(40)),
            (us(500), ms(0), ms(50)),
            (us(500), ms(200), ms(200)),
            (us(50), ms(2_000), LONGEST),
            // It has read a large program: waits of a second are not to pass unseen.
            (ms(30), ms(0), ms(100)),
            (ms(30), ms(2_000), LONGEST),
        ] {
            assert_eq!(distance_after(worked, wanted, SHORTEST), distance);
        }
    }
}
