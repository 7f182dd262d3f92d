//! Counters that the recorder reads by itself, at a period of its own: CPU use, memory, faults, threads
//! and descriptors of the program's processes, and what their control group and the machine set against
//! them.
//!
//! A process that used no CPU since the last poll has not changed and costs one read of its clock. Only
//! values that differ from the last one are written. Inside the program, polls end while it does nothing: the
//! drain calls when somebody has captured.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stackbeat_core::ids::{Pid, Upid};
use stackbeat_core::shm::layout::{ThreadEntry, entry_state};
use stackbeat_core::shm::registry;
use stackbeat_proto::v1::packet;

use super::activity::Part;
use super::clocks::now_ns;
use super::kept::Kept;
use super::orders::Order;
use super::shared::Shared;
use crate::drain::counters::Counters;
use crate::host::{Host, Limits, Resources, Whose};

/// Processes that are read; of more, the oldest.
const MOST_PROCESSES: usize = 64;
/// While nobody does anything, or when the recorder is to save processor time, polls get rarer, up to so many
/// periods apart.
const IDLE_PERIODS: u32 = 5;
/// What the kernel says of a process it adds up from all threads (about 0.4 µs for each, for its clock and
/// its file): two polls are at least so far apart for each of them, so that waiting threads cost about 1 ms a
/// second at most.
const EACH_THREAD: Duration = Duration::from_micros(300);
/// Distance between two packets of a counter, ns.
const WRITE_NS: u64 = 2_000_000_000;
/// Shortest distance between two polls of limits and pressure, ns.
const LIMITS_NS: u64 = 1_000_000_000;

/// Reads each `period` until the bell ends it; what was read is handed to the drain. For a session inside the
/// program.
pub(crate) fn run(shared: Arc<Shared>, host: Arc<dyn Host>, period: Duration) {
    let mut meter = Meter::new(shared, host, period);
    let mut calls = 0;
    let mut pauses = false;
    loop {
        let time = (!pauses).then_some(meter.distance);
        if !meter.reader.shared.meter.sleep(calls, time) {
            break;
        }
        calls = meter.reader.shared.meter.calls();
        let was_rarest = meter.distance >= period * IDLE_PERIODS;
        pauses = !meter.read() && was_rarest;
        if pauses {
            meter.distance = period;
            meter.finish();
        }
    }
    meter.finish();
}

/// Reads the counters, at a distance that follows what the program does.
pub(crate) struct Meter {
    reader: Reader,
    period: Duration,
    /// To the next poll.
    distance: Duration,
}

impl Meter {
    pub(crate) fn new(shared: Arc<Shared>, host: Arc<dyn Host>, period: Duration) -> Meter {
        Meter {
            reader: Reader::new(shared, host),
            period,
            distance: period,
        }
    }

    /// Reads once. Gives the distance to the next poll.
    pub(crate) fn poll(&mut self) -> Duration {
        self.read();
        self.distance
    }

    /// False: nobody did anything.
    fn read(&mut self) -> bool {
        let (period, reader) = (self.period, &mut self.reader);
        let leisure = reader.shared.leisure.load(Ordering::Relaxed);
        let is_active = reader.read(now_ns());
        let distance = match is_active {
            true => period * leisure.min(IDLE_PERIODS),
            false => (self.distance * 2).min(period * IDLE_PERIODS),
        };
        self.distance = distance.max(EACH_THREAD * reader.threads());
        is_active
    }

    /// Hands over what was read.
    pub(crate) fn finish(&mut self) {
        self.reader.write(now_ns());
    }
}

/// A process that is read.
#[derive(Debug)]
struct Process {
    pid: Pid,
    /// In another pid namespace: the number is somebody else's here.
    is_foreign: bool,
    /// `None` on the first poll: most processes of a build do not live to see the second.
    resources: Option<Box<dyn Resources>>,
    cpu_ns: u64,
    at_ns: u64,
    faults: [u64; 2],
    /// Numbers that grow, as they were at the last poll.
    sums: HashMap<&'static str, u64>,
    said: HashMap<&'static str, i64>,
}

struct Reader {
    shared: Arc<Shared>,
    host: Arc<dyn Host>,
    processes: HashMap<Upid, Process>,
    /// Allocations and allocated bytes so far.
    allocated: Kept<[u64; 2]>,
    counters: Counters,
    limits: Option<Box<dyn Limits>>,
    next_limits_ns: u64,
    /// Somebody did something since the last poll of them.
    limits_are_due: bool,
    next_write_ns: u64,
}

impl Reader {
    fn new(shared: Arc<Shared>, host: Arc<dyn Host>) -> Reader {
        Reader {
            shared,
            host,
            processes: HashMap::new(),
            allocated: Kept::default(),
            counters: Counters::default(),
            limits: None,
            next_limits_ns: 0,
            limits_are_due: false,
            next_write_ns: now_ns() + WRITE_NS,
        }
    }

    /// False: nobody did anything.
    fn read(&mut self, now: u64) -> bool {
        if self.shared.mapping.control().switch.load(Ordering::Relaxed) != 1 {
            return false;
        }
        let live: HashMap<Upid, Pid> = registry::processes(&self.shared.mapping)
            .filter(|(_, p)| p.state.load(Ordering::Relaxed) == entry_state::LIVE)
            .map(|(_, p)| (p.upid(), p.pid()))
            .take(MOST_PROCESSES)
            .collect();
        self.processes.retain(|upid, _| live.contains_key(upid));
        let mut is_active = false;
        let mut is_new = false;
        let allocated = self.allocated_since(now);
        for (upid, pid) in live {
            let amounts = allocated.get(&upid).copied().unwrap_or_default();
            match self.processes.get_mut(&upid) {
                Some(process) => {
                    if process.resources.is_none() && !process.is_foreign {
                        process.is_foreign = self.host.whose(pid) == Whose::Foreign;
                    }
                    if process.is_foreign {
                        continue;
                    }
                    is_active |= process.read(upid, now, &*self.host, amounts, &mut self.counters);
                }
                None => {
                    is_new = true;
                    self.processes
                        .insert(upid, Process::new(pid, now, &*self.host));
                }
            }
        }
        self.limits_are_due |= is_active;
        if self.limits_are_due && now >= self.next_limits_ns {
            self.limits_are_due = false;
            self.next_limits_ns = now + LIMITS_NS;
            if self.limits.is_none() {
                let known = self.processes.values().filter(|p| p.resources.is_some());
                let first = known.filter(|p| !p.is_foreign).map(|p| p.pid).min();
                self.limits = first.and_then(|pid| self.host.limits(pid));
            }
            if let Some(limits) = &mut self.limits {
                for (name, unit, value) in limits.read(now) {
                    self.counters
                        .push(Upid(0), name.to_owned(), unit, now, value);
                }
            }
        }
        if now >= self.next_write_ns {
            self.write(now);
        }
        is_active || is_new
    }

    /// Threads of the processes that are read.
    fn threads(&self) -> u32 {
        let threads = self
            .processes
            .values()
            .filter_map(|p| p.said.get("threads"));
        u32::try_from(threads.sum::<i64>()).unwrap_or(0)
    }

    /// Allocations and allocated bytes since the last poll, by process, of the threads that live.
    fn allocated_since(&mut self, now_ns: u64) -> HashMap<Upid, [u64; 2]> {
        let mut by_process: HashMap<Upid, [u64; 2]> = HashMap::new();
        let is_first = self.allocated.is_empty();
        let shared = Arc::clone(&self.shared);
        let poll = |_, entry: &ThreadEntry, _, before: Option<&[u64; 2]>| {
            let now =
                [&entry.allocations, &entry.allocated_bytes].map(|w| w.load(Ordering::Relaxed));
            let before = match before {
                Some(before) => *before,
                // Nobody knows when it did what it did before the first poll of all.
                None if is_first => now,
                None => [0; 2],
            };
            let process = entry.process.load(Ordering::Relaxed);
            if let Some(process) = shared.mapping.process(process) {
                let upid = process.upid();
                let sums = by_process.entry(upid).or_default();
                for (sum, (now, before)) in sums.iter_mut().zip(now.into_iter().zip(before)) {
                    *sum = sum.saturating_add(now.saturating_sub(before));
                }
            }
            now
        };
        self.allocated.poll(&shared, Part::Meter, now_ns, poll);
        by_process
    }

    fn write(&mut self, now: u64) {
        self.next_write_ns = now + WRITE_NS;
        for batch in self.counters.finish() {
            self.shared
                .order(Order::Say(Box::new(packet::Body::Counters(batch))));
        }
    }
}

impl Process {
    fn new(pid: Pid, now: u64, host: &dyn Host) -> Process {
        Process {
            pid,
            is_foreign: false,
            resources: None,
            cpu_ns: host.process_cpu_ns(pid),
            at_ns: now,
            faults: [0; 2],
            sums: HashMap::new(),
            said: HashMap::new(),
        }
    }

    /// False: it has done nothing since the last poll.
    fn read(
        &mut self,
        upid: Upid,
        now: u64,
        host: &dyn Host,
        allocated: [u64; 2],
        counters: &mut Counters,
    ) -> bool {
        let cpu_ns = host.process_cpu_ns(self.pid);
        let (used, elapsed) = (cpu_ns.saturating_sub(self.cpu_ns), now - self.at_ns);
        let was_active = self.said.get("CPU").is_some_and(|percent| *percent != 0);
        if used == 0 && self.resources.is_some() && !was_active {
            return false;
        }
        (self.cpu_ns, self.at_ns) = (cpu_ns, now);
        let mut say = |name: &'static str, unit, value: i64| {
            if self.said.insert(name, value) != Some(value) {
                counters.push(upid, name.to_owned(), unit, now, value);
            }
        };
        let per_second =
            |amount: u64| (u128::from(amount) * 1_000_000_000 / u128::from(elapsed.max(1))) as i64;
        say(
            "CPU",
            "%",
            (u128::from(used) * 100 / u128::from(elapsed.max(1))) as i64,
        );
        let is_first = self.resources.is_none();
        if !is_first {
            say("allocations", "/s", per_second(allocated[0]));
            say("allocated", "bytes/s", per_second(allocated[1]));
        }
        if is_first {
            self.resources = host.resources(self.pid);
        }
        let Some(resources) = &mut self.resources else {
            return true;
        };
        let found = resources.read();
        let mut amount = |name, unit, amount: Option<u64>| {
            if let Some(amount) = amount {
                say(name, unit, i64::try_from(amount).unwrap_or(i64::MAX));
            }
        };
        amount("memory", "bytes", found.resident_bytes);
        amount("threads", "", found.threads);
        amount("descriptors", "", found.descriptors);
        if let Some(faults) = found.faults {
            let new = [0, 1].map(|i| faults[i].saturating_sub(self.faults[i]));
            self.faults = faults;
            if !is_first {
                say("minor faults", "/s", per_second(new[0]));
                say("major faults", "/s", per_second(new[1]));
            }
        }
        for other in found.others {
            let Some(before) = (other.divided_by != 0).then(|| {
                self.sums
                    .insert(other.name, other.value)
                    .unwrap_or(other.value)
            }) else {
                say(
                    other.name,
                    other.unit,
                    i64::try_from(other.value).unwrap_or(i64::MAX),
                );
                continue;
            };
            if !is_first {
                let more = per_second(other.value.saturating_sub(before));
                say(
                    other.name,
                    other.unit,
                    more / other.divided_by.cast_signed().max(1),
                );
            }
        }
        true
    }
}
