//! Callers and callees of a function as JSON.

use serde::Serialize;

use crate::summary::call_tree::ROOT;
use crate::summary::focus::{Calls, Focus};
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
    (
        json_children(metadata, &focus.callers, ROOT),
        json_children(metadata, &focus.callees, ROOT),
    )
}

fn json_children(metadata: &Metadata, calls: &Calls, place: u32) -> Vec<JsonBranch> {
    (calls.heaviest(place).into_iter())
        .map(|(at, label, spent)| JsonBranch {
            name: label_text(metadata, label),
            wall_ns: spent.wall_ns,
            blocked_ns: spent.blocked_ns,
            cpu_ns: spent.metrics.cpu_ns,
            allocated_bytes: spent.metrics.allocated_bytes,
            samples: spent.metrics.samples,
            children: json_children(metadata, calls, at),
        })
        .collect()
}
