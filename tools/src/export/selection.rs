//! Which threads and which stretch of time of a trace are exported.

use anyhow::{Result, bail};
use stackbeat_model::{Segment, ThreadIndex, Trace};

use super::Options;
use crate::scopes::Work;
use crate::units::duration;

/// The selected part of a trace.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    threads: Vec<bool>,
    begin_ns: u64,
    end_ns: u64,
    whole: bool,
}

impl Selection {
    /// Applies the options to this trace.
    ///
    /// # Errors
    ///
    /// No thread matches, or the range holds no time.
    pub(super) fn new(trace: &Trace, options: &Options) -> Result<Selection> {
        let threads: Vec<bool> = trace
            .threads()
            .iter()
            .map(|thread| {
                options.threads.is_empty()
                    || options.threads.iter().any(|wanted| {
                        wanted.parse() == Ok(thread.tid.0) || thread.name.contains(wanted.as_str())
                    })
            })
            .collect();
        if !options.threads.is_empty() && !threads.contains(&true) {
            let mut known: Vec<&str> = trace.threads().iter().map(|t| t.name.as_str()).collect();
            known.sort_unstable();
            known.dedup();
            known.truncate(20);
            bail!(
                "no thread matches {}; the trace has {}",
                options.threads.join(", "),
                known.join(", ")
            );
        }
        let (begin_ns, end_ns) = match &options.range_ns {
            None => (0, u64::MAX),
            Some(range) if range.is_empty() => bail!(
                "from {} until {} is no time; give a --from that is before --until",
                duration(range.start),
                duration(range.end)
            ),
            Some(range) => {
                let start_ns = trace.start_ns();
                let length_ns = trace.end_ns().saturating_sub(start_ns);
                if range.start >= length_ns {
                    bail!(
                        "{}: the trace is {} long, so nothing is left from {} on; give an earlier --from",
                        trace.path().display(),
                        duration(length_ns),
                        duration(range.start)
                    );
                }
                (
                    start_ns.saturating_add(range.start),
                    start_ns.saturating_add(range.end),
                )
            }
        };
        Ok(Selection {
            threads,
            begin_ns,
            end_ns,
            whole: options.range_ns.is_none(),
        })
    }

    /// Whether the thread is exported.
    pub(super) fn has_thread(&self, thread: ThreadIndex) -> bool {
        self.threads
            .get(thread.0 as usize)
            .copied()
            .unwrap_or(false)
    }

    /// Whether the moment is exported.
    pub(super) fn has_time(&self, time_ns: u64) -> bool {
        self.whole || (self.begin_ns..self.end_ns).contains(&time_ns)
    }

    /// The part of asynchronous work that is exported: if its begin's thread is, wherever it ends.
    pub(super) fn clip_work(&self, work: Work) -> Option<Work> {
        let (begin_ns, end_ns) = match self.whole {
            true => (work.begin_ns, work.end_ns),
            false => (
                work.begin_ns.max(self.begin_ns),
                work.end_ns.min(self.end_ns),
            ),
        };
        let is_there = match work.begin_ns == work.end_ns {
            true => self.has_time(work.begin_ns),
            false => begin_ns < end_ns,
        };
        (is_there && self.has_thread(work.thread)).then_some(Work {
            begin_ns,
            end_ns,
            ..work
        })
    }

    /// The part of the segment that is exported: a cut one keeps its amounts in proportion.
    pub(super) fn clip(&self, segment: &Segment) -> Option<Segment> {
        if !self.has_thread(segment.thread) {
            return None;
        }
        if self.whole || (segment.begin_ns >= self.begin_ns && segment.end_ns <= self.end_ns) {
            return Some(*segment);
        }
        let begin_ns = segment.begin_ns.max(self.begin_ns);
        let end_ns = segment.end_ns.min(self.end_ns);
        if begin_ns >= end_ns {
            return None;
        }
        let (part, whole) = (end_ns - begin_ns, segment.end_ns - segment.begin_ns);
        let scaled = |amount: u64| {
            let product = u128::from(amount) * u128::from(part);
            (product / u128::from(whole)) as u64
        };
        Some(Segment {
            begin_ns,
            end_ns,
            metrics: segment.metrics.map(scaled),
            ..*segment
        })
    }
}

#[cfg(test)]
mod tests {
    use stackbeat_model::ProcessIndex;

    use super::*;

    #[test]
    fn work_is_of_the_thread_that_began_it_and_is_cut_at_the_edges() {
        let selection = Selection {
            threads: vec![true, false],
            begin_ns: 100,
            end_ns: 200,
            whole: false,
        };
        let clipped = |thread, begin_ns, end_ns| {
            let work = selection.clip_work(Work {
                process: ProcessIndex(0),
                thread: ThreadIndex(thread),
                name: "get".to_owned(),
                id: 1,
                begin_ns,
                end_ns,
            });
            work.map(|work| (work.begin_ns, work.end_ns))
        };
        assert_eq!(clipped(0, 50, 300), Some((100, 200)));
        assert_eq!(clipped(0, 150, 150), Some((150, 150)));
        assert_eq!(clipped(0, 50, 100), None);
        assert_eq!(clipped(0, 200, 300), None);
        assert_eq!(clipped(0, 200, 200), None);
        assert_eq!(clipped(1, 50, 300), None);
    }
}
