//! Which threads and which stretch of time of a trace are exported.

use anyhow::{Result, bail};
use stackbeat_collector::model::{Amounts, Segment, ThreadIndex, Trace};

use super::Options;

/// The selected part of a trace.
#[derive(Clone, Debug)]
pub struct Selection {
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
    pub fn new(trace: &Trace, options: &Options) -> Result<Selection> {
        let threads: Vec<bool> = trace
            .threads()
            .iter()
            .map(|thread| {
                options.threads.is_empty()
                    || options.threads.iter().any(|wanted| {
                        wanted.parse() == Ok(thread.tid) || thread.name.contains(wanted.as_str())
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
            Some(range) if range.is_empty() => bail!("the time range is empty"),
            Some(range) => {
                let start_ns = trace.start_ns();
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
    pub fn has_thread(&self, thread: ThreadIndex) -> bool {
        self.threads
            .get(thread.0 as usize)
            .copied()
            .unwrap_or(false)
    }

    /// Whether the moment is exported.
    pub fn has_time(&self, time_ns: u64) -> bool {
        self.whole || (self.begin_ns..self.end_ns).contains(&time_ns)
    }

    /// The part of the segment that is exported: a cut one keeps its amounts in proportion.
    pub fn clip(&self, segment: &Segment) -> Option<Segment> {
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
        Some(Segment {
            begin_ns,
            end_ns,
            amounts: scale(&segment.amounts, part, whole),
            ..*segment
        })
    }
}

fn scale(amounts: &Amounts, part: u64, whole: u64) -> Amounts {
    let scaled = |amount: u64| (u128::from(amount) * u128::from(part) / u128::from(whole)) as u64;
    Amounts {
        cpu_ns: scaled(amounts.cpu_ns),
        allocations: scaled(amounts.allocations),
        allocated_bytes: scaled(amounts.allocated_bytes),
        frees: scaled(amounts.frees),
        minor_faults: scaled(amounts.minor_faults),
        major_faults: scaled(amounts.major_faults),
        voluntary_switches: scaled(amounts.voluntary_switches),
        involuntary_switches: scaled(amounts.involuntary_switches),
        runnable_ns: scaled(amounts.runnable_ns),
        samples: scaled(amounts.samples),
    }
}
