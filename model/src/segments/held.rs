//! Segments kept back from a gap on: a wait that ends later may turn out to have lasted through it.
//!
//! A signal's handler may run inside of a wait, or the function that waits calls others that pass hooks. A
//! sample there comes before that of the wait, and what lies before the sample looks like a gap.

use std::collections::VecDeque;

use crate::{Metrics, Segment, SegmentKind};

/// Segments that are kept at most: some samples inside of one wait.
const MOST: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Held {
    segments: VecDeque<Segment>,
}

impl Held {
    /// Takes the next segment, and hands out those that wait no longer.
    pub(super) fn push(&mut self, segment: Segment, out: &mut impl FnMut(&Segment)) {
        if self.segments.is_empty() && segment.kind != SegmentKind::Gap {
            return out(&segment);
        }
        self.segments.push_back(segment);
        while let Some(first) = self.segments.front()
            && (self.segments.len() > MOST || first.kind != SegmentKind::Gap)
        {
            out(first);
            self.segments.pop_front();
        }
    }

    /// A wait that began at `begin_ns` went on until after these segments, for `rest_ns`: gaps since then are
    /// `part` of it. A wait is counted where it was longest. Gives whether that is in one of them.
    pub(super) fn fill(
        &mut self,
        begin_ns: u64,
        rest_ns: u64,
        part: impl Fn(Segment) -> Segment,
    ) -> bool {
        let mut longest = (rest_ns, None);
        for mut segment in std::mem::take(&mut self.segments) {
            if segment.kind == SegmentKind::Gap && segment.end_ns > begin_ns {
                if segment.begin_ns < begin_ns {
                    let before = Segment {
                        end_ns: begin_ns,
                        ..segment
                    };
                    self.segments.push_back(before);
                    segment.begin_ns = begin_ns;
                    segment.metrics = Metrics::default();
                    segment.new_iteration = false;
                }
                segment = part(segment);
                let length_ns = segment.end_ns - segment.begin_ns;
                if length_ns > longest.0 {
                    longest = (length_ns, Some(self.segments.len()));
                }
            }
            self.segments.push_back(segment);
        }
        let found = longest.1.and_then(|at| self.segments.get_mut(at));
        found.map(|segment| segment.is_inferred = false).is_some()
    }

    /// Hands out the rest.
    pub(super) fn finish(&mut self, out: &mut impl FnMut(&Segment)) {
        for segment in self.segments.drain(..) {
            out(&segment);
        }
    }
}
