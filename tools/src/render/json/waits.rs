//! Who waited for whom, as JSON.

use serde::Serialize;
use stackbeat_model::ThreadIndex;

use crate::summary::call_tree::Profile;
use crate::summary::facts::Facts;
use crate::summary::labels::label_text;
use crate::summary::load::Report;
use crate::summary::wait_rows::{Known, known, rows};

/// Long waits in JSON (docs/json.md).
#[derive(Debug, Serialize)]
pub struct WaitsJson {
    #[serde(flatten)]
    known: Known,
    pairs: Vec<PairJson>,
}

#[derive(Debug, Serialize)]
struct PairJson {
    call: String,
    cause: &'static str,
    count: u64,
    total_ns: u64,
    longest_ns: u64,
    /// Begin of the longest, since the recording's start.
    longest_at_ns: u64,
    thread_uid: u32,
    /// Innermost first; so below.
    stack: Vec<String>,
    /// Threads that held the lock when a wait began.
    owner_uids: Vec<u32>,
    /// 0: not known.
    waker_uid: u32,
    /// Empty when not known.
    waker_stack: Vec<String>,
}

/// The pairs by total time, at most `top`.
pub fn json(report: &Report, wanted: &dyn Fn(ThreadIndex) -> bool, top: usize) -> WaitsJson {
    let Report { facts, profile, .. } = report;
    let uid = |thread: ThreadIndex| facts.threads.get(thread.0 as usize).map_or(0, |t| t.uid);
    let rows = rows(report, wanted, |pair| {
        let waker = pair.waker.map_or(0, uid);
        (
            pair.probe,
            pair.waiting,
            pair.waking,
            uid(pair.thread),
            waker,
        )
    });
    let pairs = rows.iter().take(top).map(|(key, row)| {
        let (probe, waiting, waking, thread_uid, waker_uid) = *key;
        PairJson {
            call: probe.name().into_owned(),
            cause: probe.cause().name(),
            count: row.sum.count,
            total_ns: row.sum.total_ns,
            longest_ns: row.sum.longest_ns,
            longest_at_ns: (row.sum.longest_at_ns).saturating_sub(facts.recording.start_ns),
            thread_uid,
            stack: stack(facts, profile, waiting),
            owner_uids: row.owners.iter().copied().map(uid).collect(),
            waker_uid,
            waker_stack: waking.map_or(Vec::new(), |place| stack(facts, profile, place)),
        }
    });
    WaitsJson {
        known: known(report, wanted),
        pairs: pairs.collect(),
    }
}

fn stack(facts: &Facts, profile: &Profile, place: u32) -> Vec<String> {
    let labels = profile.tree.outwards(place);
    labels.map(|(_, label)| label_text(facts, label)).collect()
}
