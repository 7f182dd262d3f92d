//! One record of a thread as what stands in the trace.

use stackbeat_core::clock::{self, Snapshot};
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Upid, Utid};
use stackbeat_core::probe::{Cause, Probe};
use stackbeat_core::shm::record_format::{Sample, Waited, Woke};
use stackbeat_proto::columns::{Rusage, SampleRow};
use stackbeat_proto::v1::{self, ClockSnapshot, Event, packet};

use super::Drainer;

impl Drainer {
    pub(super) fn event(
        &mut self,
        utid: Utid,
        kind: u8,
        cycles: Cycles,
        value: i64,
        name: String,
    ) -> Event {
        Event {
            utid: utid.0,
            time_ns: self.date(cycles),
            name,
            // A kind that this version does not know keeps its number.
            kind: kind.into(),
            value,
            node: 0,
            upid: 0,
        }
    }

    pub(super) fn wait(&mut self, upid: Upid, utid: Utid, wait: &Waited) -> packet::Body {
        self.want_variable(upid, wait.probe, wait.object);
        let end_ns = self.date(wait.end_cycles);
        packet::Body::LongWait(v1::LongWait {
            utid: utid.0,
            begin_ns: self.converter.to_ns(wait.begin_cycles).min(end_ns),
            end_ns,
            node: wait.node,
            probe: wait.probe.into(),
            object: wait.object,
            result: wait.result,
            owner_tid: wait.owner_tid.0,
            waker_utid: wait.waker_utid.0,
            wake_number: wait.wake_number,
        })
    }

    pub(super) fn wake(&mut self, utid: Utid, wake: &Woke) -> packet::Body {
        packet::Body::Wake(v1::Wake {
            utid: utid.0,
            number: wake.number,
            time_ns: self.date(wake.cycles),
            node: wake.node,
            object: wake.object,
        })
    }

    /// The name of the lock, or of what else in memory, that a call has waited for.
    pub(super) fn want_variable(&mut self, upid: Upid, probe: u8, object: u64) {
        /// Far more than a program has variables that are locks. What comes later has no name.
        const MOST: usize = 1 << 16;
        let cause = Probe::from_number(probe).map(Probe::cause);
        if matches!(cause, Some(Cause::Lock | Cause::Wait)) && self.waited_for.len() < MOST {
            self.waited_for.insert((upid, object));
        }
    }

    pub(super) fn row(&mut self, upid: Upid, record: u64, sample: &Sample) -> SampleRow {
        if sample.duration_cycles != Cycles(0)
            && let Some((object, _)) = sample.arg
        {
            self.want_variable(upid, sample.probe, object);
        }
        let time_ns = self.date(sample.end_cycles);
        let begin = sample.end_cycles.saturating_sub(sample.duration_cycles);
        SampleRow {
            record,
            time_ns,
            duration_ns: match sample.duration_cycles {
                Cycles(0) => 0,
                _ => time_ns - self.converter.to_ns(begin).min(time_ns),
            },
            cpu_ns: sample.cpu_ns,
            allocations: sample.allocations,
            allocated_bytes: sample.allocated_bytes,
            frees: sample.frees,
            node: sample.node,
            probe: sample.probe,
            flags: sample.flags,
            arg: sample.arg,
            rusage: sample.usage.map(|usage| Rusage {
                minor_faults: usage.minor_faults,
                major_faults: usage.major_faults,
                voluntary_switches: usage.voluntary_switches,
                involuntary_switches: usage.involuntary_switches,
            }),
            waker_tid: sample.waker_tid.map(|tid| tid.0),
        }
    }

    /// Dates a record. Between two readings of the clocks there is one answer for good, so a record
    /// that is newer than the last reading asks for another one first. One from the future is not to be
    /// believed, and asks for none.
    pub(super) fn date(&mut self, cycles: Cycles) -> u64 {
        if cycles > self.newest_cycles && cycles <= clock::now(self.source) {
            self.take_snapshot();
        }
        self.converter.to_ns(cycles.min(self.newest_cycles))
    }
}

/// A reading of the clocks as a packet.
pub(crate) fn clock_packet(s: &Snapshot) -> ClockSnapshot {
    ClockSnapshot {
        cycles: s.cycles.0,
        monotonic_ns: s.monotonic_ns,
        boottime_ns: s.boottime_ns,
        realtime_ns: s.realtime_ns,
    }
}
