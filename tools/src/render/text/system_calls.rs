//! The tables of system calls.

use std::cmp::Reverse;

use stackbeat_model::ThreadIndex;

use crate::render::text::table_layout::{Layout, add_table, title};
use crate::summary::call_bytes::CallBytes;
use crate::summary::call_tree::Profile;
use crate::summary::metadata::Metadata;
use crate::summary::system_calls::{CallSites, Counted, kinds};
use crate::table::{Column, Table};
use crate::units::{bytes, count, percent};

/// Who makes the calls of each kind, or moves the bytes; empty where it is not known.
pub(crate) fn site_table(
    sites: &CallSites,
    what: Counted,
    metadata: &Metadata,
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
    let rows = sites.rows(what, metadata, profile, wanted, most);
    let (metrics, amount, heading): (fn(u64) -> String, _, _) = match what {
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
            metrics(row.count),
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
        add_table(&mut out, layout, &table, rows.len());
    }
    out
}

/// The threads that make the most; nothing where none makes any, or none are known.
pub(crate) fn table(
    metadata: &Metadata,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    layout: &Layout,
) -> String {
    let threads = metadata.threads.iter().enumerate();
    let mut rows: Vec<_> = threads
        .filter(|(index, _)| wanted(ThreadIndex(*index as u32)))
        .filter_map(|(_, thread)| Some((thread.system_calls?.sum(), thread)))
        .filter(|(sum, _)| *sum > 0)
        .collect();
    rows.sort_by_key(|(sum, _)| Reverse(*sum));
    let mut table = Table::new(vec![
        Column::number("CALLS", 0),
        Column::number("TID", 3),
        Column::text("PROCESS", 2),
        Column::text("THREAD", 0),
        Column::number("READ", 2),
        Column::number("WRITTEN", 2),
        Column::list("KINDS", 1),
    ]);
    const TID: usize = 1;
    const NAME: usize = 3;
    let many = metadata.processes.len() > 1;
    let are_known = rows.iter().any(|(_, thread)| thread.call_bytes.is_some());
    for (sum, thread) in rows.iter().take(layout.top) {
        let process = &metadata.processes[thread.process];
        let moved = |of: fn(CallBytes) -> Option<u64>| match thread.call_bytes.map(of) {
            None if are_known => "?".to_owned(),
            None | Some(None) => String::new(),
            Some(Some(amount)) => bytes(amount),
        };
        table.row(vec![
            count(*sum),
            match thread.merged {
                0 => thread.tid.to_string(),
                _ => String::new(),
            },
            match many {
                true if thread.upid == 0 => "several".to_owned(),
                true => format!("{} {}", process.name, process.pid),
                false => String::new(),
            },
            thread.name.clone(),
            moved(|b| b.read),
            moved(|b| b.written),
            kinds(&thread.system_calls.unwrap_or_default()),
        ]);
    }
    table.add_to_names(NAME, TID, layout.width);
    let mut out = String::new();
    if !table.is_empty() {
        title(&mut out, layout, "System calls");
        add_table(&mut out, layout, &table, rows.len());
    }
    out
}
