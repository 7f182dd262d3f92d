//! System calls by thread and kind: exact, as far as they pass hooks.

use std::cmp::Reverse;

use stackbeat_collector::model::ThreadIndex;
use stackbeat_core::system_call::SystemCalls;

use super::facts::Facts;
use super::tables::{Layout, more, title};
use crate::table::{Column, Table};
use crate::units::count;

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
        Column::list("KINDS", 1),
    ]);
    let many = facts.processes.len() > 1;
    for (sum, thread) in rows.iter().take(layout.top) {
        let process = &facts.processes[thread.process];
        table.row(vec![
            count(*sum),
            match many {
                true if thread.process_uid == 0 => "several".to_owned(),
                true => format!("{} {}", process.name, process.pid),
                false => String::new(),
            },
            thread.name.clone(),
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
    let mut kinds: Vec<_> = calls.iter().filter(|(_, count)| *count > 0).collect();
    kinds.sort_by_key(|(_, count)| Reverse(*count));
    let texts = kinds
        .iter()
        .map(|(kind, n)| format!("{} {}", kind.name(), count(*n)));
    texts.collect::<Vec<_>>().join(", ")
}
