//! System calls by kind, and the bytes that they moved, as far as they pass hooks: of threads, exact; of functions and call
//! paths, by samples.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use stackbeat_core::system_call::{SystemCall, SystemCalls};
use stackbeat_model::{CallsMade, FunctionIndex, ThreadIndex};

use super::facts::{CallBytes, Facts, FunctionName};
use crate::render::text::tables::{Layout, chain, label_text, more, title};
use crate::summary::call_tree::{Label, Profile, ROOT};
use crate::table::{Column, Table};
use crate::units::{bytes, count, percent};

/// What of system calls a table or list is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
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
fn name(kind: SystemCall) -> &'static str {
    match kind {
        SystemCall::BytesRead => "read",
        SystemCall::BytesWritten => "written",
        kind => kind.name(),
    }
}

/// Where system calls are made: by thread, place in the tree of the profile, and kind.
#[derive(Clone, Debug, Default)]
pub struct CallSites {
    sums: HashMap<(ThreadIndex, u32, SystemCall), u64>,
}

impl CallSites {
    /// Adds calls of a thread's row at a place.
    pub fn add(&mut self, row: ThreadIndex, place: u32, made: &CallsMade) {
        add(
            self.sums.entry((row, place, made.call)).or_default(),
            made.count,
        );
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (ThreadIndex, u32, SystemCall, u64)> + '_ {
        let sums = self.sums.iter();
        sums.map(|((row, place, call), count)| (*row, *place, *call, *count))
    }

    /// Who makes the most calls, or moves the most bytes, of each kind, at most so many lines a kind.
    pub fn rows(
        &self,
        what: Counted,
        facts: &Facts,
        profile: &Profile,
        wanted: &dyn Fn(ThreadIndex) -> bool,
        most: usize,
    ) -> Vec<CallRow> {
        let kinds = self.by_kind(what, wanted).into_iter();
        let rows = kinds.flat_map(|kind| {
            let chains = kind.chains(facts, profile).into_iter().take(most);
            chains.map(move |(called_from, count)| CallRow {
                call: name(kind.call),
                count,
                of_kind: kind.sum,
                called_from,
            })
        });
        rows.collect()
    }

    /// Those of the wanted threads, summed over threads, by kind: the kinds with the most calls first, and the places.
    fn by_kind(&self, what: Counted, wanted: &dyn Fn(ThreadIndex) -> bool) -> Vec<OfKind> {
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
pub struct CallRow {
    pub call: &'static str,
    pub count: u64,
    /// All of the kind whose callers are known.
    pub of_kind: u64,
    /// Innermost first.
    pub called_from: String,
}

/// Calls of one kind.
struct OfKind {
    call: SystemCall,
    sum: u64,
    places: BTreeMap<u32, u64>,
}

impl OfKind {
    /// The kind's places that read alike, the most calls first.
    fn chains(&self, facts: &Facts, profile: &Profile) -> Vec<(String, u64)> {
        let mut chains: BTreeMap<String, u64> = BTreeMap::new();
        for (place, count) in &self.places {
            let text = match *place {
                ROOT => label_text(facts, Label::NoStack),
                place => chain(facts, profile.tree.outwards(place)),
            };
            add(chains.entry(text).or_default(), *count);
        }
        let mut chains: Vec<_> = chains.into_iter().collect();
        chains.sort_by_key(|(_, count)| Reverse(*count));
        chains
    }

    /// By function: its own calls, and those with callees, recursion counted once.
    fn functions(&self, profile: &Profile) -> Vec<(FunctionIndex, u64, u64)> {
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

/// Who makes the calls of each kind, or moves the bytes; empty where it is not known.
pub fn site_table(
    sites: &CallSites,
    what: Counted,
    facts: &Facts,
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    layout: &Layout,
) -> String {
    /// Lines of a kind, unless all are shown.
    const OF_KIND: usize = 3;
    let most = match layout.top {
        usize::MAX => usize::MAX,
        _ => OF_KIND,
    };
    let rows = sites.rows(what, facts, profile, wanted, most);
    let (amounts, amount, heading): (fn(u64) -> String, _, _) = match what {
        Counted::Calls => (count, "CALLS", "System calls by who makes them"),
        Counted::Bytes => (bytes, "BYTES", "Bytes read and written, by whose calls"),
        Counted::WakeUps => (count, "WAKE-UPS", "Wake-ups, by whose calls slept"),
    };
    let has_kinds = what != Counted::WakeUps;
    let mut columns = vec![
        Column::number(amount, 0),
        Column::number("SHARE", 1),
        Column::list("CALLED FROM", 0),
    ];
    if has_kinds {
        columns.insert(0, Column::text("KIND", 0));
    }
    let mut table = Table::new(columns);
    for row in rows.iter().take(layout.top) {
        let mut cells = vec![
            amounts(row.count),
            percent(row.count, row.of_kind),
            row.called_from.clone(),
        ];
        if has_kinds {
            cells.insert(0, row.call.into());
        }
        table.row(cells);
    }
    let mut out = String::new();
    if !table.is_empty() {
        title(&mut out, layout, heading);
        out.push_str(&table.render(layout.width, layout.style));
        more(&mut out, layout, rows.len());
    }
    out
}

/// Calls of one kind that a function makes, or bytes that they move.
#[derive(Serialize)]
pub struct FunctionJson {
    #[serde(flatten)]
    kind: Option<KindJson>,
    #[serde(flatten)]
    name: FunctionName,
    #[serde(rename = "self")]
    own: u64,
    total: u64,
}

/// Calls of one kind that are made at a place, or bytes that they move.
#[derive(Serialize)]
pub struct SiteJson {
    #[serde(flatten)]
    kind: Option<KindJson>,
    count: u64,
    /// Innermost first; empty: not known.
    stack: Vec<String>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum KindJson {
    Call(&'static str),
    Bytes(&'static str),
}

/// The functions and the places that make the most calls, or move the most bytes, of each kind.
pub fn json(
    sites: &CallSites,
    what: Counted,
    facts: &Facts,
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    top: usize,
) -> (Vec<FunctionJson>, Vec<SiteJson>) {
    let (mut functions, mut places) = (Vec::new(), Vec::new());
    for kind in sites.by_kind(what, wanted) {
        let json = match what {
            Counted::Calls => Some(KindJson::Call(name(kind.call))),
            Counted::Bytes => Some(KindJson::Bytes(name(kind.call))),
            Counted::WakeUps => None,
        };
        let rows = kind.functions(profile).into_iter().take(top);
        functions.extend(rows.map(|(function, own, total)| FunctionJson {
            kind: json,
            name: (facts.functions.get(function.0 as usize).cloned()).unwrap_or_default(),
            own,
            total,
        }));
        let mut rows: Vec<_> = kind.places.into_iter().collect();
        rows.sort_by_key(|(place, count)| (Reverse(*count), *place));
        places.extend(rows.into_iter().take(top).map(|(place, count)| {
            SiteJson {
                kind: json,
                count,
                stack: (profile.tree.outwards(place))
                    .map(|(_, label)| label_text(facts, label))
                    .collect(),
            }
        }));
    }
    (functions, places)
}

/// The threads that make the most; nothing where none makes any, or none are known.
pub fn table(facts: &Facts, wanted: &dyn Fn(ThreadIndex) -> bool, layout: &Layout) -> String {
    let threads = facts.threads.iter().enumerate();
    let mut rows: Vec<_> = threads
        .filter(|(index, _)| wanted(ThreadIndex(*index as u32)))
        .filter_map(|(_, thread)| Some((thread.system_calls?.sum(), thread)))
        .filter(|(sum, _)| *sum > 0)
        .collect();
    rows.sort_by_key(|(sum, _)| Reverse(*sum));
    let mut table = Table::new(vec![
        Column::number("CALLS", 0),
        Column::text("PROCESS", 2),
        Column::text("THREAD", 0),
        Column::number("READ", 2),
        Column::number("WRITTEN", 2),
        Column::list("KINDS", 1),
    ]);
    let many = facts.processes.len() > 1;
    let are_known = rows.iter().any(|(_, thread)| thread.call_bytes.is_some());
    for (sum, thread) in rows.iter().take(layout.top) {
        let process = &facts.processes[thread.process];
        let moved = |of: fn(CallBytes) -> Option<u64>| match thread.call_bytes.map(of) {
            None if are_known => "?".to_owned(),
            None | Some(None) => String::new(),
            Some(Some(amount)) => bytes(amount),
        };
        table.row(vec![
            count(*sum),
            match many {
                true if thread.process_uid == 0 => "several".to_owned(),
                true => format!("{} {}", process.name, process.pid),
                false => String::new(),
            },
            thread.name.clone(),
            moved(|b| b.read),
            moved(|b| b.written),
            kinds(&thread.system_calls.unwrap_or_default()),
        ]);
    }
    let mut out = String::new();
    if !table.is_empty() {
        title(&mut out, layout, "System calls");
        out.push_str(&table.render(layout.width, layout.style));
        more(&mut out, layout, rows.len());
    }
    out
}

/// `read 1,200, open 3`: the most first.
pub fn kinds(calls: &SystemCalls) -> String {
    let mut kinds: Vec<_> = calls.calls().filter(|(_, count)| *count > 0).collect();
    kinds.sort_by_key(|(_, count)| Reverse(*count));
    let texts = kinds
        .iter()
        .map(|(kind, n)| format!("{} {}", kind.name(), count(*n)));
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use stackbeat_model::StackIndex;

    use super::*;

    #[test]
    fn counts_of_a_damaged_file_end_at_the_largest() {
        let (facts, mut profile) = (Facts::default(), Profile::default());
        let mut sites = CallSites::default();
        let [main, one, other] = [0, 1, 2].map(FunctionIndex);
        for path in [[main, one], [main, other]] {
            let place = profile.tree.path(&path);
            for thread in [0, 1] {
                let thread = ThreadIndex(thread);
                let made = CallsMade {
                    thread,
                    stack: StackIndex::NONE,
                    call: SystemCall::Read,
                    count: i64::MAX as u64,
                    time_ns: 0,
                };
                for _ in 0..3 {
                    sites.add(thread, place, &made);
                }
            }
        }
        let rows = sites.rows(Counted::Calls, &facts, &profile, &|_| true, 9);
        // Nothing has a name here: all places read alike.
        let amounts: Vec<_> = rows.iter().map(|row| (row.count, row.of_kind)).collect();
        assert_eq!(amounts, [(u64::MAX, u64::MAX)]);
        let (functions, places) = json(&sites, Counted::Calls, &facts, &profile, &|_| true, 9);
        let amounts: Vec<_> = functions.iter().map(|f| (f.own, f.total)).collect();
        let max = u64::MAX;
        assert_eq!(amounts, [(max, max), (max, max), (0, max)]);
        assert!(places.iter().all(|place| place.count == max));
    }
}
