//! Who makes system calls, and who reads and writes: what a thread's counter of each kind grew by, by the
//! samples that its calls caused.
//!
//! The agent captures at calls drawn at random, each kind by itself (`core/src/agent/event_sampling.rs`), and
//! notes how many calls of the kind there were since the last such sample. These belong to the sample's
//! stack. What was made after the last one belongs to that one's stack, as far as it is no more than can lie
//! between two. A thread that made too few calls of a kind to be met has none that belong to a stack.

use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::{SYSTEM_CALLS, SystemCall, SystemCalls};

use super::{ProbeId, SampleRow, StackIndex, ThreadIndex};

/// System calls of one kind that a stack has made, or bytes that they moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributedCalls {
    /// The thread that made them.
    pub thread: ThreadIndex,
    /// From where it made them.
    pub stack: StackIndex,
    /// The kind of call, or of bytes.
    pub call: SystemCall,
    /// How many calls, or bytes.
    pub count: u64,
    /// When the last of them began.
    pub time_ns: u64,
}

/// Whether a sample is one that system calls caused.
pub(super) fn is_of_calls(row: &SampleRow) -> bool {
    ProbeId(row.probe) == ProbeId::from(Probe::SampledCall)
}

/// What one thread's samples said so far, by kind.
#[derive(Debug, Default)]
pub(super) struct Calls {
    given: SystemCalls,
    last: [Option<AttributedCalls>; SYSTEM_CALLS],
}

impl Calls {
    /// What a sample says. `None`: it is of a kind that this version does not know.
    pub(crate) fn sample(
        &mut self,
        thread: ThreadIndex,
        row: &SampleRow,
        stack: StackIndex,
    ) -> Option<AttributedCalls> {
        let (number, count) = row.arg?;
        let attributed = AttributedCalls {
            thread,
            stack,
            call: SystemCall::from_number(number)?,
            count: u64::try_from(count).ok()?,
            time_ns: row.time_ns,
        };
        let given = &mut self.given.0[attributed.call as usize];
        *given = given.saturating_add(attributed.count);
        self.last[attributed.call as usize] = Some(attributed);
        Some(attributed)
    }

    /// What was made after the last samples, given the thread's exact counts.
    pub(crate) fn rest(&self, totals: &SystemCalls) -> impl Iterator<Item = AttributedCalls> {
        // Distances lie between the half and the one and a half of a mean, which may grow a little each time.
        const LONGEST: u64 = 4;
        let kinds = self.last.iter().zip(self.given.0).zip(totals.0);
        kinds.filter_map(|((last, given), total)| {
            let last = (*last)?;
            let most = last.count.saturating_mul(LONGEST);
            let count = total.saturating_sub(given).min(most);
            (count > 0).then_some(AttributedCalls { count, ..last })
        })
    }
}
