//! System calls by kind, and the bytes that they moved, as far as they pass hooks: of threads, exact; of
//! functions and call paths, by samples.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use stackbeat_core::system_call::{SystemCall, SystemCalls};
use stackbeat_model::{AttributedCalls, FunctionIndex, ThreadIndex};

use super::metadata::Metadata;
use crate::summary::call_tree::{Label, Leaf, Profile, ROOT};
use crate::summary::labels::{chain, label_text};
use crate::summary::own_code::OwnCode;
use crate::units::count;

/// What of system calls a table or list is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Calls,
    Bytes,
    /// Calls in which threads slept.
    WakeUps,
}

impl Counted {
    fn has(self, kind: SystemCall) -> bool {
        match self {
            Counted::Calls => kind.is_call(),
            Counted::Bytes => kind.is_bytes(),
            Counted::WakeUps => kind == SystemCall::WakeUps,
        }
    }
}

/// A damaged file may say any number.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// What a kind is called beside others of its sort.
pub(crate) fn name(kind: SystemCall) -> &'static str {
    match kind {
        SystemCall::BytesRead => "read",
        SystemCall::BytesWritten => "written",
        kind => kind.name(),
    }
}

/// Where system calls are made: by thread, place in the tree of the profile, and kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSites {
    sums: HashMap<(ThreadIndex, u32, SystemCall), u64>,
}

impl CallSites {
    /// Adds calls of a thread's row at a place.
    pub(crate) fn add(&mut self, row: ThreadIndex, place: u32, attributed: &AttributedCalls) {
        add(
            self.sums.entry((row, place, attributed.call)).or_default(),
            attributed.count,
        );
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ThreadIndex, u32, SystemCall, u64)> + '_ {
        let sums = self.sums.iter();
        sums.map(|((row, place, call), count)| (*row, *place, *call, *count))
    }

    /// Who makes the most calls, or moves the most bytes, of each kind, at most so many lines a kind.
    pub(crate) fn rows(
        &self,
        what: Counted,
        metadata: &Metadata,
        profile: &Profile,
        wanted: &dyn Fn(ThreadIndex) -> bool,
        most: usize,
    ) -> Vec<CallRow> {
        let own = OwnCode::new(metadata, &profile.tree);
        let kinds = self.by_kind(what, wanted).into_iter();
        let rows = kinds.flat_map(|kind| {
            let chains = kind.chains(&own).into_iter().take(most);
            chains.map(move |(called_from, count)| CallRow {
                call: name(kind.call),
                count,
                of_kind: kind.sum,
                called_from,
            })
        });
        rows.collect()
    }

    /// Those of the wanted threads, summed over threads, by kind: the kinds with the most calls first, and
    /// the places.
    pub(crate) fn by_kind(
        &self,
        what: Counted,
        wanted: &dyn Fn(ThreadIndex) -> bool,
    ) -> Vec<OfKind> {
        let mut kinds: BTreeMap<SystemCall, OfKind> = BTreeMap::new();
        let of_them = |(row, _, call, _): &(ThreadIndex, u32, SystemCall, u64)| {
            wanted(*row) && what.has(*call)
        };
        for (_, place, call, count) in self.iter().filter(of_them) {
            let kind = kinds.entry(call).or_insert_with(|| OfKind {
                call,
                sum: 0,
                places: BTreeMap::new(),
            });
            add(&mut kind.sum, count);
            add(kind.places.entry(place).or_default(), count);
        }
        let mut kinds: Vec<OfKind> = kinds.into_values().collect();
        kinds.sort_by_key(|kind| (Reverse(kind.sum), kind.call));
        kinds
    }
}

/// Calls of one kind from places that read alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CallRow {
    pub call: &'static str,
    pub count: u64,
    /// All of the kind whose callers are known.
    pub of_kind: u64,
    /// Innermost first.
    pub called_from: String,
}

/// Calls of one kind.
pub(crate) struct OfKind {
    pub(crate) call: SystemCall,
    sum: u64,
    pub(crate) places: BTreeMap<u32, u64>,
}

impl OfKind {
    /// The kind's places that read alike, the most calls first.
    fn chains(&self, own: &OwnCode) -> Vec<(String, u64)> {
        let mut chains: BTreeMap<String, u64> = BTreeMap::new();
        for (place, count) in &self.places {
            let text = match *place {
                ROOT => label_text(own.metadata(), Label::Leaf(Leaf::NoStack)),
                place => chain(own, place),
            };
            add(chains.entry(text).or_default(), *count);
        }
        let mut chains: Vec<_> = chains.into_iter().collect();
        chains.sort_by_key(|(_, count)| Reverse(*count));
        chains
    }

    /// By function: its own calls, and those with callees, recursion counted once.
    pub(crate) fn functions(&self, profile: &Profile) -> Vec<(FunctionIndex, u64, u64)> {
        let mut sums: BTreeMap<FunctionIndex, (u64, u64)> = BTreeMap::new();
        for (place, count) in &self.places {
            let mut seen = Vec::new();
            for (_, label) in profile.tree.outwards(*place) {
                if let Label::Function(function) = label
                    && !seen.contains(&function)
                {
                    let (own, total) = sums.entry(function).or_default();
                    if seen.is_empty() {
                        add(own, *count);
                    }
                    add(total, *count);
                    seen.push(function);
                }
            }
        }
        let sums = sums.into_iter();
        let mut rows: Vec<_> = sums.map(|(f, (own, total))| (f, own, total)).collect();
        rows.sort_by_key(|(_, own, total)| Reverse((*own, *total)));
        rows
    }
}

/// `read 1,200, open 3`: the most first.
pub(crate) fn kinds(calls: &SystemCalls) -> String {
    let mut kinds: Vec<_> = calls.calls().filter(|(_, count)| *count > 0).collect();
    kinds.sort_by_key(|(_, count)| Reverse(*count));
    let texts = kinds
        .iter()
        .map(|(kind, n)| format!("{} {}", kind.name(), count(*n)));
    texts.collect::<Vec<_>>().join(", ")
}
