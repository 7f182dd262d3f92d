//! The table of who waited for whom.

use stackbeat_model::ThreadIndex;

use crate::render::text::table_layout::{Layout, add_table, sentences, title};
use crate::summary::labels::chain;
use crate::summary::load::Report;
use crate::summary::wait_rows::{known, names, rows};
use crate::table::{Column, Table};
use crate::units::{count, duration, percent};

/// The table; empty when nothing waited for long.
pub(crate) fn table(
    report: &Report,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    layout: &Layout,
) -> String {
    let Report {
        metadata, profile, ..
    } = report;
    let known = known(report, wanted);
    let mut out = String::new();
    if known.count == 0 {
        return out;
    }
    title(&mut out, layout, "Who makes whom wait");
    let sums = format!(
        "  {} long waits that another thread could end, {} with that thread; {} more timed out or failed",
        count(known.count - known.failed),
        percent(known.with_waker, known.count - known.failed),
        count(known.failed)
    );
    sentences(&mut out, layout, &sums, |_, line| line.to_owned());
    let place = |place: Option<u32>| {
        place.map_or(String::new(), |p| chain(metadata, profile.tree.outwards(p)))
    };
    let rows = rows(report, wanted, |pair| {
        (pair.probe, place(Some(pair.waiting)), place(pair.waking))
    });
    let mut table = Table::new(vec![
        Column::number("TOTAL", 0),
        Column::number("LONGEST", 4),
        Column::number("COUNT", 5),
        Column::text("WAITS", 1),
        Column::text("IN", 3),
        Column::list("CALLED FROM", 0),
        Column::text("HELD BY", 6),
        Column::text("ENDED BY", 0),
        Column::list("AT", 2),
    ]);
    for ((probe, waiting, waking), row) in rows.iter().take(layout.top) {
        table.row(vec![
            duration(row.sum.total_ns),
            duration(row.sum.longest_ns),
            count(row.sum.count),
            names(metadata, &row.threads),
            probe.name().into_owned(),
            waiting.clone(),
            names(metadata, &row.owners),
            names(metadata, &row.wakers),
            waking.clone(),
        ]);
    }
    add_table(&mut out, layout, &table, rows.len());
    out
}
