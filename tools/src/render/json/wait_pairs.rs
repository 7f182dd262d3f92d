//! Who waited for whom, as JSON.

use serde::Serialize;
use stackbeat_model::ThreadIndex;

use crate::summary::call_tree::Profile;
use crate::summary::labels::label_text;
use crate::summary::load::Report;
use crate::summary::metadata::Metadata;
use crate::summary::wait_rows::{Known, known, rows};

/// Long waits in JSON (docs/json.md).
#[derive(Debug, Serialize)]
pub(crate) struct WaitsJson {
    #[serde(flatten)]
    known: Known,
    pairs: Vec<PairJson>,
}

#[derive(Debug, Serialize)]
struct PairJson {
    call: String,
    cause: &'static str,
    /// The lock's name, where it is a variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_for: Option<String>,
    count: u64,
    total_ns: u64,
    longest_ns: u64,
    /// Begin of the longest, since the recording's start.
    longest_at_ns: u64,
    utid: u32,
    /// Innermost first; so below.
    stack: Vec<String>,
    /// Threads that held the lock when a wait began.
    owner_utids: Vec<u32>,
    /// 0: not known.
    waker_utid: u32,
    /// Empty when not known.
    waker_stack: Vec<String>,
}

/// The pairs by total time, at most `top`.
pub(crate) fn json(report: &Report, wanted: &dyn Fn(ThreadIndex) -> bool, top: usize) -> WaitsJson {
    let Report {
        metadata, profile, ..
    } = report;
    let utid_of = |thread: ThreadIndex| {
        metadata
            .threads
            .get(thread.0 as usize)
            .map_or(0, |t| t.utid)
    };
    let rows = rows(report, wanted, |pair| {
        let waker = pair.waker.map_or(0, utid_of);
        (
            pair.probe,
            pair.waiting,
            pair.waking,
            utid_of(pair.thread),
            waker,
        )
    });
    let pairs = rows.iter().take(top).map(|(key, row)| {
        let (probe, waiting, waking, utid, waker_utid) = *key;
        PairJson {
            call: probe.name().into_owned(),
            cause: probe.cause().name(),
            waited_for: profile.waited_for.at(waiting, probe),
            count: row.sum.count,
            total_ns: row.sum.total_ns,
            longest_ns: row.sum.longest_ns,
            longest_at_ns: (row.sum.longest_at_ns).saturating_sub(metadata.recording.start_ns),
            utid,
            stack: stack(metadata, profile, waiting),
            owner_utids: row.owners.iter().copied().map(utid_of).collect(),
            waker_utid,
            waker_stack: waking.map_or(Vec::new(), |place| stack(metadata, profile, place)),
        }
    });
    WaitsJson {
        known: known(report, wanted),
        pairs: pairs.collect(),
    }
}

fn stack(metadata: &Metadata, profile: &Profile, place: u32) -> Vec<String> {
    let labels = profile.tree.outwards(place);
    labels
        .map(|(_, label)| label_text(metadata, label))
        .collect()
}
