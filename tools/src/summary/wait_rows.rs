//! Long waits in rows: by call, with the threads that read alike together.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use stackbeat_model::ThreadIndex;

use super::metadata::Metadata;
use crate::summary::load::Report;
use crate::summary::wait_pairs::{Pair, Sum};

/// Threads that a line names.
const NAMED: usize = 3;

/// Waits of one call, with all pairs of threads that read alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) sum: Sum,
    pub(crate) threads: BTreeSet<ThreadIndex>,
    pub(crate) owners: BTreeSet<ThreadIndex>,
    pub(crate) wakers: BTreeSet<ThreadIndex>,
}

impl Row {
    fn add(&mut self, pair: &Pair, sum: &Sum) {
        self.sum.count += sum.count;
        self.sum.total_ns += sum.total_ns;
        if sum.longest_ns >= self.sum.longest_ns {
            self.sum.longest_ns = sum.longest_ns;
            self.sum.longest_at_ns = sum.longest_at_ns;
        }
        self.owners.extend(pair.owner);
        self.threads.insert(pair.thread);
        self.wakers.extend(pair.waker);
    }
}

/// Sums by what `key` makes of a pair, by total time.
pub(crate) fn rows<K: std::hash::Hash + Eq + Ord + Clone>(
    report: &Report,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    key: impl Fn(&Pair) -> K,
) -> Vec<(K, Row)> {
    let mut rows: HashMap<K, Row> = HashMap::new();
    for (pair, sum) in &report.waits.sums {
        if wanted(pair.thread) {
            rows.entry(key(pair)).or_default().add(pair, sum);
        }
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|a, b| (b.1.sum.total_ns, &a.0).cmp(&(a.1.sum.total_ns, &b.0)));
    rows
}

/// Number and time of waits, and of those whose waker is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Known {
    pub count: u64,
    pub total_ns: u64,
    pub with_waker: u64,
    pub with_waker_stack: u64,
    /// Nobody ended them: they timed out or failed.
    pub failed: u64,
}

pub(crate) fn known(report: &Report, wanted: &dyn Fn(ThreadIndex) -> bool) -> Known {
    let mut known = Known::default();
    for (pair, sum) in report
        .waits
        .sums
        .iter()
        .filter(|(pair, _)| wanted(pair.thread))
    {
        known.count += sum.count;
        known.total_ns += sum.total_ns;
        known.with_waker += sum.count * u64::from(pair.waker.is_some());
        known.failed += sum.count * u64::from(pair.failed);
        known.with_waker_stack += sum.count * u64::from(pair.waking.is_some());
    }
    known
}

/// The names of some threads.
pub(crate) fn names(metadata: &Metadata, threads: &BTreeSet<ThreadIndex>) -> String {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for thread in threads {
        names.extend(
            metadata
                .threads
                .get(thread.0 as usize)
                .map(|t| t.name.as_str()),
        );
    }
    let shown: Vec<&str> = names.iter().copied().take(NAMED).collect();
    match names.len() > NAMED {
        true => format!("{} and {} more", shown.join(" "), names.len() - NAMED),
        false => shown.join(" "),
    }
}
