//! The table of events.

use std::fmt::Write;

use crate::render::text::table_layout::{Layout, add_table, title};
use crate::summary::call_tree::{Profile, ROOT};
use crate::summary::labels::chain;
use crate::summary::metadata::Metadata;
use crate::summary::own_code::OwnCode;
use crate::table::{Column, Table};
use crate::units::duration;

/// The table, with where its thread was below an event that says so; empty when nothing happened.
pub(crate) fn table(
    metadata: &Metadata,
    profile: &Profile,
    threads: &[(u32, String)],
    layout: &Layout,
) -> String {
    let (rows, left_out) = (&metadata.events, metadata.events_left_out);
    let mut out = String::new();
    if rows.is_empty() {
        return out;
    }
    title(&mut out, layout, "Marks and changes");
    let mut table = Table::new(vec![
        Column::number("AT", 0),
        Column::text("KIND", 2),
        Column::text("THREAD", 1),
        Column::list("WHAT", 0),
    ]);
    let own = OwnCode::new(metadata, &profile.tree);
    for row in rows.iter().take(layout.top) {
        let thread = threads.iter().find(|(utid, _)| *utid == row.utid);
        table.row(vec![
            duration(row.at_ns),
            row.kind.to_owned(),
            thread.map_or(String::new(), |(_, name)| name.clone()),
            row.text.clone(),
        ]);
        if row.place != ROOT {
            let stack = chain(&own, row.place);
            let place = format!("in {stack}");
            table.row(vec![String::new(), String::new(), String::new(), place]);
        }
    }
    add_table(&mut out, layout, &table, rows.len());
    if left_out > 0 {
        let _ = writeln!(out, "  {left_out} later ones are not in this report");
    }
    out
}
