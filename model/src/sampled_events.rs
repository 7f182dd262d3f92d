//! Who allocates: what a thread's counters grew by, shared out by the samples that its allocations caused.
//!
//! A tick seldom meets a thread in front of an allocation, and the time between two of its samples does not
//! say who allocated meanwhile. The agent therefore also captures at allocations and at bytes drawn at random
//! (`core/src/agent/event_sampling.rs`). A stack is among these samples as often as it allocates, so the
//! growth of the counter from one of them to the next, given to the stack of the latter, is in the long run
//! what each stack allocated. A thread that has no such sample yet, or a trace without any, is left to the
//! rule of time.
//!
//! Such samples, and those that system calls caused, are also moments at which the thread was seen
//! ([`Moment`]): they cut the stretch of time in which they lie, and have none of it.

use std::collections::VecDeque;

use stackbeat_core::probe::Probe;

use super::{Metrics, ProbeId, StackIndex};

/// What was counted up to a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Allocations,
    Bytes,
}

/// The kind of samples that allocations caused; `None` for all others.
pub(super) fn kind_of(probe: ProbeId) -> Option<Kind> {
    if probe == ProbeId::from(Probe::SampledAllocation) {
        Some(Kind::Allocations)
    } else if probe == ProbeId::from(Probe::SampledByte) {
        Some(Kind::Bytes)
    } else {
        None
    }
}

/// Most moments that are held back between two samples of time. The agent takes a few dozen in a burst; of
/// more, the amounts go to the last one.
const HELD: usize = 1024;

/// A moment at which the thread was seen beside the samples of time, and what it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub at_ns: u64,
    pub stack: StackIndex,
    pub metrics: Metrics,
}

/// What a thread's counters have grown by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grown {
    pub allocations: u64,
    pub bytes: u64,
}

/// What one thread allocated and nobody has been given yet.
#[derive(Debug, Default)]
pub(super) struct SampledEvents {
    allocations: Account,
    bytes: Account,
    /// Moments since the last sample of time, in order.
    held: VecDeque<Moment>,
}

#[derive(Debug, Default)]
struct Account {
    /// Since the last counted sample.
    open: u64,
    /// The stack of that one.
    last: Option<StackIndex>,
}

impl Account {
    /// Keeps an amount for the next counted sample, or gives back all if there was none yet.
    fn keep(&mut self, amount: u64) -> u64 {
        self.open += amount;
        match self.last {
            Some(_) => 0,
            None => std::mem::take(&mut self.open),
        }
    }
}

impl SampledEvents {
    /// A counted sample with what the counters have grown by since the thread's sample before it.
    pub(crate) fn sample(&mut self, kind: Kind, (at_ns, stack): (u64, StackIndex), grown: Grown) {
        self.allocations.open += grown.allocations;
        self.bytes.open += grown.bytes;
        let mut metrics = Metrics::default();
        match kind {
            Kind::Allocations => {
                self.allocations.last = Some(stack);
                metrics.allocations = std::mem::take(&mut self.allocations.open);
            }
            Kind::Bytes => {
                self.bytes.last = Some(stack);
                metrics.allocated_bytes = std::mem::take(&mut self.bytes.open);
            }
        }
        self.hold(Moment {
            at_ns,
            stack,
            metrics,
        });
    }

    /// A sample that says where the thread was, and nothing of amounts.
    pub(crate) fn seen(&mut self, at_ns: u64, stack: StackIndex) {
        self.hold(Moment {
            at_ns,
            stack,
            metrics: Metrics::default(),
        });
    }

    /// Takes out of `delta`, which comes with a sample of time, what belongs to a counted sample yet to come.
    pub(crate) fn keep(&mut self, delta: &mut Metrics) {
        delta.allocations = self.allocations.keep(delta.allocations);
        delta.allocated_bytes = self.bytes.keep(delta.allocated_bytes);
    }

    /// No counted sample comes any more: what is open goes to the last ones' stacks.
    pub(crate) fn close(&mut self) {
        let allocations = Metrics {
            allocations: std::mem::take(&mut self.allocations.open),
            ..Metrics::default()
        };
        let bytes = Metrics {
            allocated_bytes: std::mem::take(&mut self.bytes.open),
            ..Metrics::default()
        };
        for (account, metrics) in [(&self.allocations, allocations), (&self.bytes, bytes)] {
            if let Some(stack) = account.last
                && metrics != Metrics::default()
            {
                self.held.push_back(Moment {
                    at_ns: u64::MAX,
                    stack,
                    metrics,
                });
            }
        }
    }

    /// The next moment that is to be handed out, if it lies at this time (ns) or before.
    pub(crate) fn take_until(&mut self, to_ns: u64) -> Option<Moment> {
        let next = self.held.front()?;
        match next.at_ns <= to_ns {
            true => self.held.pop_front(),
            false => None,
        }
    }

    fn hold(&mut self, moment: Moment) {
        let is_full = self.held.len() >= HELD;
        match self.held.back_mut() {
            Some(last) if last.stack == moment.stack || is_full => {
                last.metrics.add(&moment.metrics)
            }
            _ => self.held.push_back(moment),
        }
    }
}
