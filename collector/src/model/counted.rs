//! Who allocates: what a thread's counters grew by, shared out by the samples that its allocations caused.
//!
//! A tick seldom meets a thread in front of an allocation, and the time between two of its samples does not say
//! who allocated meanwhile. The agent therefore also captures at allocations and at bytes drawn at random
//! (`core/src/agent/counted.rs`). A stack is among these samples as often as it allocates, so the growth of
//! the counter from one of them to the next, given to the stack of the latter, is in the long run what each
//! stack allocated. A thread that has no such sample yet, or a trace without any, is left to the rule of time.

use stackbeat_core::probe::Probe;

use super::{Amounts, ProbeId, StackIndex};

/// What was counted up to a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Allocations,
    Bytes,
}

/// The kind of samples that allocations caused; `None` for all others.
pub(super) fn kind_of(probe: ProbeId) -> Option<Kind> {
    if probe == ProbeId::from(Probe::CountedAllocation) {
        Some(Kind::Allocations)
    } else if probe == ProbeId::from(Probe::CountedByte) {
        Some(Kind::Bytes)
    } else {
        None
    }
}

/// Most stacks that are held back between two samples of time. The agent takes a few dozen in a burst; of more,
/// the amounts go to the last one.
const HELD: usize = 1024;

/// What one thread allocated and nobody has been given yet.
#[derive(Debug, Default)]
pub(super) struct Counted {
    allocations: Account,
    bytes: Account,
    /// Stacks and their amounts since the last sample of time.
    held: Vec<(StackIndex, Amounts)>,
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

impl Counted {
    /// A counted sample with what the counters have grown by since the thread's sample before it.
    pub fn sample(&mut self, kind: Kind, stack: StackIndex, allocations: u64, bytes: u64) {
        self.allocations.open += allocations;
        self.bytes.open += bytes;
        let mut amounts = Amounts::default();
        match kind {
            Kind::Allocations => {
                self.allocations.last = Some(stack);
                amounts.allocations = std::mem::take(&mut self.allocations.open);
            }
            Kind::Bytes => {
                self.bytes.last = Some(stack);
                amounts.allocated_bytes = std::mem::take(&mut self.bytes.open);
            }
        }
        self.hold(stack, amounts);
    }

    /// Takes out of `delta`, which comes with a sample of time, what belongs to a counted sample yet to come.
    pub fn keep(&mut self, delta: &mut Amounts) {
        delta.allocations = self.allocations.keep(delta.allocations);
        delta.allocated_bytes = self.bytes.keep(delta.allocated_bytes);
    }

    /// No counted sample comes any more: what is open goes to the last ones' stacks.
    pub fn close(&mut self) {
        if let Some(stack) = self.allocations.last {
            let allocations = std::mem::take(&mut self.allocations.open);
            self.hold(
                stack,
                Amounts {
                    allocations,
                    ..Amounts::default()
                },
            );
        }
        if let Some(stack) = self.bytes.last {
            let allocated_bytes = std::mem::take(&mut self.bytes.open);
            self.hold(
                stack,
                Amounts {
                    allocated_bytes,
                    ..Amounts::default()
                },
            );
        }
    }

    /// What is to be handed out now, in order.
    pub fn take_held(&mut self) -> Vec<(StackIndex, Amounts)> {
        std::mem::take(&mut self.held)
    }

    fn hold(&mut self, stack: StackIndex, amounts: Amounts) {
        if amounts == Amounts::default() {
            return;
        }
        let is_full = self.held.len() >= HELD;
        match self.held.last_mut() {
            Some((last, held)) if *last == stack || is_full => held.add(&amounts),
            _ => self.held.push((stack, amounts)),
        }
    }
}
