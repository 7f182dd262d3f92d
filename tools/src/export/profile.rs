//! Segments added up by thread and stack: what the formats without a time axis are made of.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use stackbeat_core::system_call::SystemCall;
use stackbeat_model::call_tree::Leaf;
use stackbeat_model::{AttributedCalls, Segment, Spent, StackIndex, ThreadIndex, Trace};

use super::feed::{self, Sink};
use super::{Exported, Selection};

/// What one thread spent with one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub thread: ThreadIndex,
    pub stack: StackIndex,
    pub leaf: Leaf,
    pub spent: Spent,
}

/// A whole trace, or what was selected of it, by thread and stack.
#[derive(Debug, Default)]
pub(super) struct Profile {
    /// Ordered by thread, stack and leaf, so that the same trace gives the same file.
    pub entries: Vec<Entry>,
    /// Who makes system calls, by kind.
    pub calls: BTreeMap<(ThreadIndex, StackIndex, SystemCall), u64>,
    pub exported: Exported,
}

impl Profile {
    /// Reads the trace's segments.
    ///
    /// # Errors
    ///
    /// The trace cannot be read.
    pub(super) fn collect(trace: &Trace, selection: &Selection) -> Result<Profile> {
        let mut collector = Collector::default();
        let exported = feed::run(trace, selection, &mut collector)?;
        let mut entries = collector.entries;
        entries.sort_unstable_by_key(|entry| (entry.thread, entry.stack, entry.leaf));
        Ok(Profile {
            entries,
            calls: collector.calls,
            exported,
        })
    }
}

#[derive(Default)]
struct Collector {
    positions: HashMap<(ThreadIndex, StackIndex, Leaf), usize>,
    entries: Vec<Entry>,
    calls: BTreeMap<(ThreadIndex, StackIndex, SystemCall), u64>,
}

impl Sink for Collector {
    fn system_calls(&mut self, attributed: &AttributedCalls) {
        let key = (attributed.thread, attributed.stack, attributed.call);
        let sum = self.calls.entry(key).or_default();
        *sum = sum.saturating_add(attributed.count);
    }

    fn segment(&mut self, _: &Trace, segment: &Segment) -> std::io::Result<()> {
        let leaf = Leaf::of(segment);
        let key = (segment.thread, segment.stack, leaf);
        let position = *self.positions.entry(key).or_insert_with(|| {
            self.entries.push(Entry {
                thread: segment.thread,
                stack: segment.stack,
                leaf,
                spent: Spent::default(),
            });
            self.entries.len() - 1
        });
        self.entries[position].spent.add_segment(segment);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_damaged_file_end_at_the_largest() {
        let mut collector = Collector::default();
        let attributed = AttributedCalls {
            thread: ThreadIndex(0),
            stack: StackIndex::NONE,
            call: SystemCall::Read,
            count: i64::MAX as u64,
            time_ns: 0,
        };
        for _ in 0..3 {
            collector.system_calls(&attributed);
        }
        let sums: Vec<u64> = collector.calls.into_values().collect();
        assert_eq!(sums, [u64::MAX]);
    }
}
