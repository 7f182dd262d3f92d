//! Deadlocks as JSON.

use serde::Serialize;

use crate::summary::call_tree::Profile;
use crate::summary::deadlocks::{Deadlocks, Member};
use crate::summary::labels::label_text;
use crate::summary::metadata::Metadata;

/// A deadlock in JSON (docs/json.md).
#[derive(Debug, Serialize)]
pub(crate) struct DeadlockJson {
    at_ns: u64,
    threads: Vec<MemberJson>,
}

#[derive(Debug, Serialize)]
struct MemberJson {
    utid: u32,
    call: String,
    lock: String,
    /// The variable, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_for: Option<String>,
    /// Innermost first; empty when not known.
    stack: Vec<String>,
}

pub(crate) fn json(
    deadlocks: &Deadlocks,
    metadata: &Metadata,
    profile: &Profile,
) -> Vec<DeadlockJson> {
    let member = |m: &Member| MemberJson {
        utid: metadata
            .threads
            .get(m.thread.0 as usize)
            .map_or(0, |t| t.utid),
        call: m.probe.name().into_owned(),
        lock: format!("{:#x}", m.lock),
        waited_for: (profile.waited_for.name(m.thread, m.lock)).map(str::to_owned),
        stack: profile
            .tree
            .outwards(m.place)
            .map(|(_, label)| label_text(metadata, label))
            .collect(),
    };
    let all = deadlocks.found.iter();
    all.map(|(at_ns, members)| DeadlockJson {
        at_ns: *at_ns,
        threads: members.iter().map(member).collect(),
    })
    .collect()
}
