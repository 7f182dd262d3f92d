//! When a capture reads the thread's faults and switches: a system call that most can do without.
//!
//! Switches and major faults cannot have changed when the kernel has not switched the thread
//! (`platform::rseq`). Minor faults can: they are brought up to date at the next read.

use super::tls;
use crate::cycles::Cycles;
use crate::platform::{self, Usage, rseq};
use crate::sync::Ordering;

/// Most captures between two reads.
const CAPTURES_BETWEEN: u32 = 64;
/// The same where switches cannot be seen.
const CAPTURES_BETWEEN_BLIND: u32 = 8;

/// What a thread remembers of its last read.
#[repr(C)]
pub(super) struct State {
    captures: u32,
    /// The moment and the CPU time at the last capture.
    cycles: Cycles,
    cpu_ns: u64,
}

impl State {
    /// Forgets: the next capture reads.
    pub(super) fn reset(&mut self) {
        self.captures = 0;
    }

    /// Now and then, more often at first: for what changes rarely (the thread's name).
    pub(super) fn is_time_for_rare_reads(&self) -> bool {
        self.captures.is_multiple_of(128) || self.captures.is_power_of_two()
    }

    /// Faults and switches if this capture, at `cycles` with `cpu_ns`, is to read them. `waited`: the
    /// call may have slept. `interval`: the thread's, in ns and cycles.
    ///
    /// Where switches cannot be seen: a thread that was off the CPU since the last capture has been
    /// switched away from, and only its counters tell whether it gave the CPU up or had it taken away.
    pub(super) fn read(
        &mut self,
        waited: bool,
        cycles: Cycles,
        cpu_ns: u64,
        interval: (u32, Cycles),
    ) -> Option<Usage> {
        let wall = cycles.wrapping_sub(self.cycles);
        let cpu = cpu_ns.wrapping_sub(self.cpu_ns);
        (self.cycles, self.cpu_ns) = (cycles, cpu_ns);
        let (ns, interval) = interval;
        let cpu = interval.saturating_mul(cpu) / u64::from(ns.max(1));
        let was_off = wall.saturating_sub(cpu) > interval / 4;
        let count = self.captures;
        self.captures = count.wrapping_add(1);
        let before = tls::block().switched.load(Ordering::Relaxed) != 0;
        let due = match rseq::was_switched() {
            Some(switched) => switched || before || count.is_multiple_of(CAPTURES_BETWEEN),
            None => waited || was_off || count.is_multiple_of(CAPTURES_BETWEEN_BLIND),
        };
        if !due {
            return None;
        }
        // First, so that a switch from here on is seen next time.
        rseq::arm();
        tls::block().switched.store(0, Ordering::Relaxed);
        platform::thread_usage()
    }
}
