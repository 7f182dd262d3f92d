//! Callers and callees of a function as JSON.

use serde::Serialize;

use crate::summary::focus::{Branch, Focus, heaviest};
use crate::summary::labels::label_text;
use crate::summary::metadata::Metadata;

/// A tree as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct JsonBranch {
    name: String,
    wall_ns: u64,
    blocked_ns: u64,
    cpu_ns: u64,
    allocated_bytes: u64,
    samples: u64,
    children: Vec<JsonBranch>,
}

/// The two trees: callers, callees.
pub(crate) fn json(focus: &Focus, metadata: &Metadata) -> (Vec<JsonBranch>, Vec<JsonBranch>) {
    let whole = focus.callees.weights.spent.wall_ns;
    (
        json_children(metadata, &focus.callers, whole),
        json_children(metadata, &focus.callees, whole),
    )
}

fn json_children(metadata: &Metadata, branch: &Branch, whole_ns: u64) -> Vec<JsonBranch> {
    heaviest(branch, whole_ns)
        .into_iter()
        .map(|(label, b)| JsonBranch {
            name: label_text(metadata, label),
            wall_ns: b.weights.spent.wall_ns,
            blocked_ns: b.weights.spent.blocked_ns,
            cpu_ns: b.weights.spent.metrics.cpu_ns,
            allocated_bytes: b.weights.spent.metrics.allocated_bytes,
            samples: b.weights.spent.metrics.samples,
            children: json_children(metadata, b, whole_ns),
        })
        .collect()
}
