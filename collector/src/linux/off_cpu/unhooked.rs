//! Threads that wait where no hook is: raw system calls, waits inside libc, page faults.
//!
//! Nothing is published of these. A thread that was not active for a while is polled in /proc: what the
//! scheduler counted says whether it has run since the last poll; only if it has, or at the first poll, its
//! system call is read. Polls of a thread that goes on waiting get rarer. Between two polls that find it in
//! the same place, with next to no CPU time used, it is taken to have waited there all the time.

use std::sync::Arc;

use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Pid, Tid, Utid};
use stackbeat_core::platform::blocking_calls;
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::layout::ThreadEntry;
use stackbeat_core::sync::Ordering;

use super::super::procfs::{self, InCall};
use super::{Now, OffCpu};
use crate::drain::seen_waits::{Begin, SeenWait};
use crate::host::{Scheduled, Stack};
use crate::linux::remote_unwind::Place;
use crate::session::shared::count;

/// How long a thread is not active before it is polled, and then has waited before its stack is walked: not
/// quite as long as passes are apart, which do not come at equal distances to the microsecond.
const DEADLINE_NS: u64 = 19_000_000;
/// Longest distance between two polls of a thread that waits: this, or so much for each thread that does.
const LONGEST_NS: u64 = 1_000_000_000;
const EACH_NS: u64 = 500_000;
/// The share of the time between two polls that a thread may have run and still count as waiting.
const RAN_SHARE: u64 = 8;

/// What changes while a thread runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Footprint {
    utid: Utid,
    blocking_section: u32,
    records: u64,
    allocations: u64,
    frees: u64,
}

/// Where a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Where {
    probe: Probe,
    /// Number of the system call + 1.
    system_call: u32,
    arg: u64,
    /// Stack pointer and pc; 0 when the kernel does not say.
    sp: u64,
    pc: u64,
}

/// What is remembered of a thread that is in no hooked call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unhooked {
    footprint: Footprint,
    /// When it is polled next, and how far that is from the poll before; 0: with the next pass.
    next_ns: u64,
    distance_ns: u64,
    last_ns: u64,
    scheduled: Scheduled,
    waits: Option<Where>,
    since_ns: u64,
    /// It has run since, so it may be several waits in the same place.
    is_inferred: bool,
    /// The wait is in the trace.
    is_recorded: bool,
}

impl Unhooked {
    /// The probe and the begin of a wait that is in the trace.
    pub(super) fn known_wait(&self) -> Option<(u8, u64)> {
        let place = self.waits.filter(|_| self.is_recorded)?;
        Some((place.probe as u8, self.since_ns))
    }

    /// Whether it is known to wait.
    pub(super) fn waits(&self) -> bool {
        self.waits.is_some()
    }
}

impl OffCpu {
    /// A thread that is in no hooked call. Gives when it is to be polled again, ns from now; `None`: it
    /// was about just now.
    pub(super) fn poll_unhooked(
        &mut self,
        entry: &ThreadEntry,
        unhooked: &mut Unhooked,
        now: Now,
    ) -> Option<u64> {
        let footprint = Footprint {
            utid: entry.utid(),
            blocking_section: entry.blocking_section.load(Ordering::Relaxed),
            records: entry.records.load(Ordering::Relaxed),
            allocations: entry.allocations.load(Ordering::Relaxed),
            frees: entry.frees.load(Ordering::Relaxed),
        };
        if footprint != unhooked.footprint {
            self.forget_unhooked(unhooked);
            *unhooked = Unhooked {
                footprint,
                next_ns: now.ns + DEADLINE_NS,
                ..Unhooked::default()
            };
            return None;
        }
        if now.ns >= unhooked.next_ns {
            self.poll_procfs(entry, unhooked, now);
        }
        Some(unhooked.next_ns.saturating_sub(now.ns))
    }

    /// The thread goes on: how long it waited follows from its next record.
    pub(super) fn forget_unhooked(&mut self, unhooked: &mut Unhooked) {
        if unhooked.is_recorded {
            self.open.remove(&unhooked.footprint.utid);
        }
        *unhooked = Unhooked::default();
    }

    fn poll_procfs(&mut self, entry: &ThreadEntry, unhooked: &mut Unhooked, moment: Now) {
        let now_ns = moment.ns;
        let process = entry.process.load(Ordering::Relaxed);
        let tid = entry.tid();
        count(&self.shared.figures.off_cpu_polls, 1);
        let pid = self.pid(process);
        let found = pid.and_then(|pid| procfs::scheduled(pid, tid).ok());
        let (Some(pid), Some(scheduled)) = (pid, found) else {
            // Gone, or a kernel without these counts.
            unhooked.next_ns = now_ns + LONGEST_NS;
            return;
        };
        let ran_ns = scheduled.run_ns.saturating_sub(unhooked.scheduled.run_ns);
        let passed_ns = now_ns - unhooked.last_ns;
        let place = match unhooked.waits {
            Some(place) if scheduled.times == unhooked.scheduled.times => Some(place),
            _ => locate(pid, tid),
        };
        match (unhooked.waits, place) {
            (Some(before), Some(now)) if before == now && ran_ns < passed_ns / RAN_SHARE => {
                if scheduled.times != unhooked.scheduled.times && !unhooked.is_inferred {
                    unhooked.is_inferred = true;
                    if let Some(wait) = self.open.get_mut(&unhooked.footprint.utid) {
                        wait.is_inferred = true;
                        self.found.push(wait.clone());
                    }
                }
            }
            (before, now) => {
                if before.is_some() {
                    // It went on running until now, or the change lies in the middle for all we know.
                    let until = match now {
                        None => now_ns - ran_ns.min(passed_ns),
                        Some(_) => now_ns - passed_ns / 2,
                    };
                    self.close(unhooked, until);
                }
                unhooked.since_ns = match before {
                    Some(_) => now_ns - passed_ns / 2,
                    None => self.since_ns(entry, unhooked, &scheduled, moment),
                };
                unhooked.waits = now;
                unhooked.is_recorded = false;
                unhooked.is_inferred = false;
                unhooked.distance_ns = 0;
            }
        }
        unhooked.scheduled = scheduled;
        unhooked.last_ns = now_ns;
        if unhooked.waits() && !unhooked.is_recorded && now_ns - unhooked.since_ns >= DEADLINE_NS {
            unhooked.is_recorded = self.walk_unhooked(entry, unhooked, pid, tid);
        }
        let longest = LONGEST_NS.max(EACH_NS * self.waiting as u64);
        unhooked.distance_ns = (unhooked.distance_ns * 2).clamp(DEADLINE_NS, longest);
        unhooked.next_ns = now_ns + unhooked.distance_ns;
    }

    /// Since when a thread that is found waiting has not run: it has used up the CPU time that it had at its
    /// last capture, and what it used since was spent at once, for all we know.
    fn since_ns(
        &self,
        entry: &ThreadEntry,
        unhooked: &Unhooked,
        scheduled: &Scheduled,
        now: Now,
    ) -> u64 {
        let last_cycles = match entry.last_capture_cycles.load(Ordering::Relaxed) {
            Cycles(0) => entry.start_cycles.load(Ordering::Relaxed),
            last => last,
        };
        let ago_ns = self
            .shared
            .cycles_to_ns(now.cycles.saturating_sub(last_cycles));
        let ran_ns = (scheduled.run_ns).saturating_sub(entry.cpu_ns.load(Ordering::Relaxed));
        let since = (now.ns - ago_ns.min(now.ns)).saturating_add(ran_ns);
        since.max(unhooked.last_ns).min(now.ns)
    }

    /// Walks the stack of a waiting thread. False: it was no longer there.
    fn walk_unhooked(
        &mut self,
        entry: &ThreadEntry,
        unhooked: &Unhooked,
        pid: Pid,
        tid: Tid,
    ) -> bool {
        let Some(place) = unhooked.waits else {
            return true;
        };
        let process = entry.process.load(Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        let Some(process_entry) = shared.mapping.process(process) else {
            return true;
        };
        let epoch = process_entry.epoch.load(Ordering::Relaxed);
        let start = Place {
            pc: place.pc,
            sp: place.sp,
            fp: 0,
            high: entry.stack_high.load(Ordering::Relaxed),
            in_hook: false,
            tid: entry.tid(),
            generated_code: process_entry.generated_code.load(Ordering::Acquire),
            await_chains: self.shared.await_chains(),
        };
        count(&shared.figures.off_cpu_walks, 1);
        let stack = match place.sp {
            0 => {
                // If that is because we may not read it, that is reported.
                self.open(process, epoch);
                None
            }
            _ => self.walk(process, epoch, &start),
        };
        let is_there = |now: Scheduled| now.times == unhooked.scheduled.times;
        if !procfs::scheduled(pid, tid).is_ok_and(is_there) {
            return false;
        }
        let wait = SeenWait {
            utid: unhooked.footprint.utid,
            upid: process_entry.upid(),
            epoch,
            probe: place.probe as u8,
            system_call: place.system_call,
            begin: Begin::Ns(unhooked.since_ns),
            end_ns: 0,
            arg: place.arg,
            is_inferred: unhooked.is_inferred,
            stack: stack.unwrap_or_else(Stack::default),
        };
        self.open.insert(wait.utid, wait.clone());
        self.found.push(wait);
        true
    }

    /// The end of a wait that is in the trace.
    fn close(&mut self, unhooked: &Unhooked, end_ns: u64) {
        if let Some(mut wait) = self.open.remove(&unhooked.footprint.utid) {
            wait.end_ns = end_ns.max(unhooked.since_ns + 1);
            self.found.push(wait);
        }
    }
}

/// Where a thread waits; `None`: it runs.
fn locate(pid: Pid, tid: Tid) -> Option<Where> {
    let nowhere = Where {
        probe: Probe::BlockedOutside,
        system_call: 0,
        arg: 0,
        sp: 0,
        pc: 0,
    };
    match procfs::in_call(pid, tid) {
        Ok(InCall::Running) => None,
        Ok(InCall::Call {
            number,
            arguments,
            sp,
            pc,
        }) => {
            // After a stop, with what is left of its timeout.
            let number = match number {
                libc::SYS_restart_syscall => procfs::restarted_call(pid, tid).unwrap_or(number),
                number => number,
            };
            let probe =
                blocking_calls::probe_of(number as libc::c_long, arguments[1] as libc::c_int);
            Some(Where {
                probe: probe.unwrap_or(Probe::BlockedOutside),
                system_call: number as u32 + 1,
                // Of calls without a probe of their own the number is all there is.
                arg: probe.map_or(number as u64, |_| arguments[0]),
                sp,
                pc,
            })
        }
        Ok(InCall::Elsewhere { sp, pc }) => match procfs::state(pid, tid) {
            Ok(b'S' | b'D') => Some(Where {
                probe: Probe::PageFault,
                sp,
                pc,
                ..nowhere
            }),
            Ok(b'R') | Err(_) => None,
            Ok(_) => Some(Where { sp, pc, ..nowhere }),
        },
        // Not allowed: only whether it sleeps is known.
        Err(_) => match procfs::state(pid, tid) {
            Ok(b'S' | b'D' | b'T' | b't') => Some(nowhere),
            _ => None,
        },
    }
}
