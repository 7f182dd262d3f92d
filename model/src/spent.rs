//! What was spent somewhere: the one record that exports, reports and tables add up and ask by metric.

use stackbeat_core::probe::Cause;

use super::metric::Metric;
use super::{Evidence, Metrics, Segment, SegmentKind};

/// What was spent somewhere: by a stack, a function, a place or a whole trace. Times in ns; sums stop at the
/// highest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Running, blocked and without evidence.
    pub wall_ns: u64,
    /// Blocked, for whatever cause.
    pub blocked_ns: u64,
    /// Time without evidence.
    pub gap_ns: u64,
    /// CPU time, allocations and the other amounts.
    pub metrics: Metrics,
    /// What the running time is known from.
    pub evidence: Evidence,
}

impl Spent {
    /// Adds what a segment says.
    pub fn add_segment(&mut self, segment: &Segment) {
        let wall_ns = segment.wall_ns();
        self.add(&Spent {
            wall_ns,
            blocked_ns: segment.blocked_ns(),
            gap_ns: segment.unseen_ns(),
            metrics: segment.metrics,
            evidence: match segment.kind {
                SegmentKind::Running => segment.evidence,
                SegmentKind::Blocked(_) | SegmentKind::Gap => Evidence::default(),
            },
        });
    }

    /// Adds what was spent elsewhere.
    pub fn add(&mut self, other: &Spent) {
        self.wall_ns = self.wall_ns.saturating_add(other.wall_ns);
        self.blocked_ns = self.blocked_ns.saturating_add(other.blocked_ns);
        self.gap_ns = self.gap_ns.saturating_add(other.gap_ns);
        self.metrics.add(&other.metrics);
        self.evidence += other.evidence;
    }

    /// Time in code: running, or ready to run.
    pub fn running_ns(&self) -> u64 {
        self.wall_ns - self.blocked_ns - self.gap_ns
    }

    /// Of it, the time on a processor: without that for which it is known that others had it.
    pub fn computing_ns(&self) -> u64 {
        self.running_ns().saturating_sub(self.metrics.runnable_ns)
    }

    /// The amount of a metric; 0 for those that are not told apart here.
    pub fn get(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Wall => self.wall_ns,
            Metric::Running => self.running_ns(),
            Metric::Blocked => self.blocked_ns,
            Metric::Gap => self.gap_ns,
            metric => self.metrics.get(metric),
        }
    }
}

impl Metrics {
    /// The amount of a metric; 0 for what stands elsewhere.
    pub fn get(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Cpu => self.cpu_ns,
            Metric::Ready => self.runnable_ns,
            Metric::Allocations => self.allocations,
            Metric::AllocatedBytes => self.allocated_bytes,
            Metric::Frees => self.frees,
            Metric::MinorFaults => self.minor_faults,
            Metric::MajorFaults => self.major_faults,
            Metric::VoluntarySwitches => self.voluntary_switches,
            Metric::InvoluntarySwitches => self.involuntary_switches,
            Metric::Samples => self.samples,
            _ => 0,
        }
    }
}

impl Metric {
    /// The time blocked for this cause.
    pub fn of_cause(cause: Cause) -> Metric {
        match cause {
            Cause::Lock => Metric::Lock,
            Cause::Wait | Cause::Ipc | Cause::Gc | Cause::Safepoint | Cause::Binder => Metric::Wait,
            Cause::Io => Metric::Io,
            Cause::Net => Metric::Net,
            Cause::Poll => Metric::Poll,
            Cause::Sleep => Metric::Sleep,
            Cause::Join => Metric::Join,
            Cause::Process => Metric::Process,
            Cause::None | Cause::Unknown => Metric::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_time_is_part_of_the_whole() {
        let mut spent = Spent {
            wall_ns: 10,
            blocked_ns: 3,
            gap_ns: 2,
            metrics: Metrics {
                cpu_ns: 4,
                samples: 7,
                ..Metrics::default()
            },
            evidence: Evidence::default(),
        };
        assert_eq!(spent.get(Metric::Running), 5);
        spent.add(&spent.clone());
        let kinds = [Metric::Running, Metric::Blocked, Metric::Gap];
        let sum: u64 = kinds
            .iter()
            .map(|kind| spent.get(*kind))
            .fold(0, u64::saturating_add);
        assert_eq!((sum, spent.get(Metric::Wall)), (20, 20));
        assert_eq!(spent.get(Metric::Cpu), 8);
        assert_eq!(spent.get(Metric::Samples), 14);
        assert_eq!(spent.get(Metric::Threads), 0);
    }
}
