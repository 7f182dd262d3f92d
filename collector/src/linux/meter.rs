//! Counters that the collector reads by itself, at a period of its own: CPU use, memory, faults, threads
//! and descriptors of the program's processes, and what their control group and the machine set against
//! them.
//!
//! A process that used no CPU since the last poll has not changed and costs one read of its clock. Only
//! values that differ from the last one are written.

mod limits;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stackbeat_core::ids::{Pid, Upid};
use stackbeat_core::platform;
use stackbeat_core::shm::layout::{ThreadEntry, entry_state};
use stackbeat_core::shm::registry;
use stackbeat_proto::v1::packet;

use super::procfs::{self, process_clock};
use crate::drain::counters::Counters;
use crate::host::Whose;
use crate::session::activity::Part;
use crate::session::clocks::now_ns;
use crate::session::kept::Kept;
use crate::session::orders::Order;
use crate::session::shared::Shared;
use limits::Limits;

/// Processes that are read; of more, the oldest.
const MOST_PROCESSES: usize = 64;
/// While nobody does anything, or when the recorder is to save processor time, polls get rarer, up to so many periods apart.
const IDLE_PERIODS: u32 = 5;
/// What the kernel says of a process it adds up from all threads (about 0.4 µs for each, for its clock and its file):
/// two polls are at least so far apart for each of them, so that waiting threads cost about 1 ms a second at most.
const EACH_THREAD: Duration = Duration::from_micros(300);
/// Distance between two packets of a counter, ns.
const WRITE_NS: u64 = 2_000_000_000;
/// Shortest distance between two polls of limits and pressure, ns.
const LIMITS_NS: u64 = 1_000_000_000;

/// The thread that reads.
#[derive(Debug)]
pub(super) struct Meter {
    thread: JoinHandle<()>,
    /// Dropped to end it.
    go_on: mpsc::Sender<()>,
}

impl Meter {
    /// Begins to read each `period`. `mapping_name` is the file name of the session's mapping.
    pub(super) fn start(
        shared: Arc<Shared>,
        mapping_name: &[u8],
        period: Duration,
    ) -> io::Result<Meter> {
        let (go_on, stop) = mpsc::channel();
        let mapping_name = mapping_name.to_vec();
        let thread = thread::Builder::new()
            .name("stackbeat meter".to_owned())
            .spawn(move || {
                let mut reader = Reader::new(shared, mapping_name);
                let mut distance = period;
                while stop.recv_timeout(distance) == Err(mpsc::RecvTimeoutError::Timeout) {
                    let leisure = reader.shared.leisure.load(Ordering::Relaxed);
                    distance = match reader.read(now_ns()) {
                        true => period * leisure.min(IDLE_PERIODS),
                        false => (distance * 2).min(period * IDLE_PERIODS),
                    };
                    distance = distance.max(EACH_THREAD * reader.threads());
                }
                reader.write(now_ns());
            })?;
        Ok(Meter { thread, go_on })
    }

    /// Ends it; what was read is handed to the drain.
    pub(super) fn stop(self) {
        drop(self.go_on);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A process that is read.
#[derive(Debug)]
struct Process {
    pid: Pid,
    /// In another pid namespace: the number is somebody else's here.
    is_foreign: bool,
    /// `None` on the first poll: most processes of a build do not live to see the second.
    stat: Option<File>,
    cpu_ns: u64,
    at_ns: u64,
    faults: [u64; 2],
    said: HashMap<&'static str, i64>,
}

/// What /proc/PID/stat says (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    minor_faults: u64,
    major_faults: u64,
    threads: i64,
    resident_pages: i64,
}

struct Reader {
    shared: Arc<Shared>,
    mapping_name: Vec<u8>,
    processes: HashMap<Upid, Process>,
    /// Allocations and allocated bytes so far.
    allocated: Kept<[u64; 2]>,
    counters: Counters,
    limits: Option<Limits>,
    next_limits_ns: u64,
    /// Somebody did something since the last poll of them.
    limits_are_due: bool,
    next_write_ns: u64,
    page_bytes: i64,
}

impl Reader {
    fn new(shared: Arc<Shared>, mapping_name: Vec<u8>) -> Reader {
        Reader {
            shared,
            mapping_name,
            processes: HashMap::new(),
            allocated: Kept::default(),
            counters: Counters::default(),
            limits: None,
            next_limits_ns: 0,
            limits_are_due: false,
            next_write_ns: now_ns() + WRITE_NS,
            // SAFETY: asks for a constant of the system.
            page_bytes: unsafe { libc::sysconf(libc::_SC_PAGESIZE) },
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
                    if process.stat.is_none() && !process.is_foreign {
                        let name = &self.mapping_name;
                        let who = procfs::identify(pid, name, Pid(std::process::id()));
                        process.is_foreign = who == Whose::Foreign;
                    }
                    if process.is_foreign {
                        continue;
                    }
                    is_active |=
                        process.read(upid, now, self.page_bytes, amounts, &mut self.counters);
                }
                None => {
                    is_new = true;
                    self.processes.insert(upid, Process::new(pid, now));
                }
            }
        }
        self.limits_are_due |= is_active;
        if self.limits_are_due && now >= self.next_limits_ns {
            self.limits_are_due = false;
            self.next_limits_ns = now + LIMITS_NS;
            if self.limits.is_none() {
                let known = self.processes.values().filter(|p| p.stat.is_some());
                let first = known.filter(|p| !p.is_foreign).map(|p| p.pid).min();
                self.limits = first.map(Limits::of);
            }
            if let Some(limits) = &mut self.limits {
                limits.read(now, &mut self.counters);
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
    fn new(pid: Pid, now: u64) -> Process {
        Process {
            pid,
            is_foreign: false,
            stat: None,
            cpu_ns: platform::clock_ns(process_clock(pid)),
            at_ns: now,
            faults: [0; 2],
            said: HashMap::new(),
        }
    }

    /// False: it has done nothing since the last poll.
    fn read(
        &mut self,
        upid: Upid,
        now: u64,
        page_bytes: i64,
        allocated: [u64; 2],
        counters: &mut Counters,
    ) -> bool {
        let cpu_ns = platform::clock_ns(process_clock(self.pid));
        let (used, elapsed) = (cpu_ns.saturating_sub(self.cpu_ns), now - self.at_ns);
        let was_active = self.said.get("CPU").is_some_and(|percent| *percent != 0);
        if used == 0 && self.stat.is_some() && !was_active {
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
        let is_first = self.stat.is_none();
        if !is_first {
            say("allocations", "/s", per_second(allocated[0]));
            say("allocated", "bytes/s", per_second(allocated[1]));
        }
        if is_first {
            self.stat = File::open(format!("/proc/{}/stat", self.pid)).ok();
        }
        if let Some(stat) = self.stat.as_ref().and_then(read_stat) {
            say("memory", "bytes", stat.resident_pages * page_bytes);
            say("threads", "", stat.threads);
            let faults = [stat.minor_faults, stat.major_faults];
            let new = [0, 1].map(|i| faults[i].saturating_sub(self.faults[i]));
            self.faults = faults;
            if !is_first {
                say("minor faults", "/s", per_second(new[0]));
                say("major faults", "/s", per_second(new[1]));
            }
        }
        if let Some(count) = descriptors(self.pid) {
            say("descriptors", "", count);
        }
        true
    }
}

fn read_stat(file: &File) -> Option<Stat> {
    let mut text = [0; 512];
    let length = file.read_at(&mut text, 0).ok()?;
    parse_stat(std::str::from_utf8(&text[..length]).ok()?)
}

/// Fields are counted behind the name, which may hold anything but a later `)`. `None` of a process that has ended and
/// nobody has waited for: it has no memory and no threads any more.
fn parse_stat(text: &str) -> Option<Stat> {
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let mut field = |skip: usize| fields.nth(skip)?.parse::<i64>().ok();
    Some(Stat {
        minor_faults: field(6)? as u64,
        major_faults: field(1)? as u64,
        threads: field(7)?,
        resident_pages: field(3)?,
    })
}

/// Open descriptors: the size of the folder since Linux 6.2, its entries before.
fn descriptors(pid: Pid) -> Option<i64> {
    let folder = format!("/proc/{pid}/fd");
    match fs::metadata(&folder).ok()?.len() {
        0 => Some(fs::read_dir(folder).ok()?.count() as i64),
        count => Some(count as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_stat_are_found_behind_any_name() {
        let text = "77 (a) b) c) S 1 77 77 0 -1 4194560 1234 9 5 0 30 4 0 0 20 0 12 0 99 \
                    1000000 321 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 0 0 0 0 0 0";
        let expected = Stat {
            minor_faults: 1234,
            major_faults: 5,
            threads: 12,
            resident_pages: 321,
        };
        assert_eq!(parse_stat(text), Some(expected));
        assert_eq!(parse_stat("77 (x) S 1"), None);
        assert_eq!(parse_stat(&text.replace(") S ", ") Z ")), None);
    }

    #[test]
    fn this_process_is_read() {
        let pid = Pid(std::process::id());
        let mut counters = Counters::default();
        let mut process = Process::new(pid, now_ns());
        let opened: Vec<_> = (0..10).map(|_| File::open("/proc/self/stat")).collect();
        assert!(process.read(Upid(1), now_ns() + 1, 4096, [0; 2], &mut counters));
        drop(opened);
        let batches: HashMap<String, i64> = counters
            .finish()
            .map(|b| (b.name, b.value.iter().sum()))
            .collect();
        assert!(batches["memory"] > 1 << 20, "{batches:?}");
        assert!(
            batches["threads"] >= 1 && batches["descriptors"] >= 10,
            "{batches:?}"
        );
    }
}
