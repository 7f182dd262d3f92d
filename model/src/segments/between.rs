//! The time between two samples: where it passes from the one's stack to the other's.

use super::GAP_INTERVALS;

/// The time between two samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between {
    pub from: u64,
    pub to: u64,
    /// The interval in force, ns.
    pub interval_ns: u64,
    /// CPU time that the thread used in it.
    pub cpu_ns: u64,
    /// Samples are missing in it.
    pub lost: bool,
    /// The thread gave the CPU up only when another one was given it.
    pub preempted: bool,
    /// It was preempted and interrupted as soon as it came back: all the while it was where B is.
    pub waited_at_b: bool,
    /// A speaks for the time around it; `None`: there is none, the thread begins.
    pub a_speaks: Option<bool>,
    /// B does.
    pub b_speaks: bool,
    /// Nothing is known of where the thread was.
    pub is_unseen: bool,
    /// B lies inside of a wait, which ends later: the time off the CPU is that wait's, however short.
    pub b_is_inside: bool,
    /// In this part of it nothing was captured, because the session was switched off.
    pub off: Option<(u64, u64)>,
    /// When the first wait in it began that was seen from outside.
    pub wait_ns: Option<u64>,
}

impl Between {
    /// Where A's part ends and B's begins. They differ when there is a gap.
    ///
    /// Samples that a tick causes *speak* for the time around them. A wait that is longer than the interval
    /// is always in the trace, whatever the ticks, and so is who ended it: these say nothing but that they
    /// happened.
    pub(super) fn bounds(&self) -> (u64, u64) {
        let Between { from, to, lost, .. } = *self;
        let length = to - from;
        let running = self.cpu_ns.min(length);
        let gap_bound_ns = gap_bound_ns(self.interval_ns);
        if let Some((begin, end)) = self.off {
            let a_part = if self.a_speaks.is_some() {
                begin - from
            } else {
                0
            };
            let b_part = to - end;
            // Off the CPU for long, before or after: that belongs to the gap.
            let idle = (a_part + b_part).saturating_sub(running) > gap_bound_ns;
            let most = if idle && !self.preempted {
                running
            } else {
                length
            };
            let a_left = self
                .wait_ns
                .map_or(most, |at| most.min(at.saturating_sub(from)));
            return (from + a_part.min(a_left), to - b_part.min(most));
        }
        let off = if lost { length } else { length - running };
        let gap =
            self.is_unseen || self.b_is_inside || off > gap_bound_ns && (lost || !self.preempted);
        // Of a gap's surroundings, what is not the gap; without gap, all.
        let evident = match (gap, lost) {
            (false, _) => length,
            _ if self.is_unseen => 0,
            (true, true) if !self.b_is_inside => gap_bound_ns,
            (true, _) => running,
        };
        let a_part = match (self.a_speaks, self.b_speaks) {
            (None, _) | (Some(false), true) => 0,
            // It ran up to there, and waited there.
            (Some(true), false) if self.waited_at_b && !gap => running,
            (Some(true), false) => evident,
            _ if self.waited_at_b && !gap => running / 2,
            _ => evident / 2,
        };
        // A wait that was seen to begin says when A was left.
        let a_part = match self.wait_ns {
            Some(at) if gap => a_part.min(at.saturating_sub(from)),
            _ => a_part,
        };
        let b_part = match gap {
            true => evident - a_part,
            false => length - a_part,
        };
        (from + a_part, to - b_part)
    }
}

/// Time off the CPU without evidence that still counts as part of the way from one sample to the next.
pub(super) fn gap_bound_ns(interval_ns: u64) -> u64 {
    interval_ns.saturating_mul(GAP_INTERVALS)
}
