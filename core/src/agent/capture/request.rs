//! What asks for a capture.

use crate::agent::event_sampling::Kind;
use crate::cycles::Cycles;
use crate::probe::Probe;
use crate::shm::record_format::{Waited, Woke};
use crate::system_call::SystemCall;
use crate::unwind::Registers;

/// Why and how to capture.
#[derive(Clone, Copy)]
pub(in crate::agent) struct Request<'a> {
    pub probe: Probe,
    /// Argument and result of the call.
    pub arg: Option<(u64, i64)>,
    /// When a call that has just ended began; 0: none.
    pub begin: Cycles,
    /// Bypasses the throttle, within the budget.
    pub forced: bool,
    /// A wait that has lasted for the interval: bypasses throttle and budget.
    pub overdue: bool,
    /// The sampling clock has met it, without a tick: bypasses the throttle.
    pub is_met: bool,
    /// Nobody asked for it: no loss when the budget refuses it.
    pub spare: bool,
    /// Bypasses throttle, budget and mask: starts, ends and crashes.
    pub exempt: bool,
    /// The thread writes nothing any more: hand its sub-buffer over.
    pub last: bool,
    /// Where a signal interrupted the thread.
    pub interrupted: Option<&'a Registers>,
    /// What to write down behind the sample.
    pub more: Option<More>,
}

/// A record that goes with a sample and takes its stack.
#[derive(Clone, Copy, Debug)]
pub(in crate::agent) enum More {
    Waited(Waited),
    Woke(Woke),
}

impl Request<'_> {
    /// A throttled capture at a moment.
    pub(crate) fn point(probe: Probe) -> Self {
        Request {
            probe,
            arg: None,
            begin: Cycles(0),
            forced: false,
            overdue: false,
            is_met: false,
            spare: false,
            exempt: false,
            last: false,
            interrupted: None,
            more: None,
        }
    }

    /// The session's signal asks for it, which comes for a tick.
    pub(super) fn is_of_sampler(&self) -> bool {
        self.interrupted.is_some() && !self.exempt && !self.is_met
    }

    /// A sampling clock asks for it, by a tick or without, wherever the thread is.
    pub(super) fn is_of_clock(&self) -> bool {
        self.interrupted.is_some() && !self.exempt
    }

    /// An interruption by the clock was left to it ([`super::super::better_moment`]), neither now nor at the
    /// end of a call. Where none was, nothing is captured.
    pub(super) fn is_at_better_moment(&self) -> bool {
        self.is_met && self.interrupted.is_none() && self.begin == Cycles(0)
    }

    /// Whether it may come inside of a wait that goes on around it. The gate keeps the sampler's signals away
    /// from there, and nothing is done about one in a crash.
    pub(super) fn may_be_in_wait(&self) -> bool {
        self.interrupted.is_none() || self.is_met
    }

    /// What was counted to ask for it.
    pub(super) fn sampled_event(&self) -> Option<Kind> {
        match self.probe {
            Probe::SampledAllocation => Some(Kind::Allocations),
            Probe::SampledByte => Some(Kind::Bytes),
            Probe::SampledCall => SystemCall::from_number(self.arg?.0).map(Kind::Calls),
            _ => None,
        }
    }

    /// Nothing but the throttle asks for it.
    pub(super) fn is_plain(&self) -> bool {
        let is_called_for = self.exempt || self.forced || self.overdue;
        !(is_called_for || self.interrupted.is_some() || self.sampled_event().is_some())
    }

    /// The program chose the moment, no tick and no wait that is over.
    pub(super) fn is_chosen(&self) -> bool {
        self.forced && !self.exempt && self.begin == Cycles(0)
    }
}
