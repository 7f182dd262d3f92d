//! What a trace says of the hooks that it was made by.

use std::collections::BTreeMap;

use anyhow::Result;
use stackbeat_core::probe::{Category, Probe};
use stackbeat_model::{SampleRow, Segment, StackIndex, ThreadIndex, Trace, Visitor};

use crate::summary::load::recording;

/// What came out of the hooks.
#[derive(Debug, Default)]
pub(crate) struct HookFindings {
    pub by_category: BTreeMap<Category, u64>,
    /// As the threads' own counters have it.
    pub allocations: u64,
    pub all_samples: u64,
    /// Of code that passes no hook.
    pub interruptions: u64,
    pub threads: usize,
    pub records_lost: u64,
    /// What the agent said of its hooks when it began.
    pub capabilities: Vec<String>,
}

/// Looks through a trace.
pub(crate) fn look_at(trace: &Trace) -> Result<HookFindings> {
    let mut findings = HookFindings {
        threads: trace.thread_count(),
        records_lost: recording(trace).records_lost,
        capabilities: trace
            .processes()
            .first()
            .map(|p| p.capabilities.clone())
            .unwrap_or_default(),
        ..HookFindings::default()
    };
    trace.visit(&mut findings)?;
    Ok(findings)
}

impl Visitor for HookFindings {
    fn segment(&mut self, _: &Trace, segment: &Segment) {
        self.allocations += segment.metrics.allocations;
    }

    fn sample(&mut self, _: &Trace, _: ThreadIndex, row: &SampleRow, _: StackIndex) {
        self.all_samples += 1;
        let Some(probe) = Probe::from_number(row.probe) else {
            return;
        };
        *self.by_category.entry(probe.category()).or_default() += 1;
        self.interruptions += u64::from(probe == Probe::Running);
    }
}
