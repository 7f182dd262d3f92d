//! The table of who waited for whom.

use stackbeat_model::ThreadIndex;

use crate::render::text::table_layout::{Layout, add_table, sentences, title};
use crate::summary::labels::chain;
use crate::summary::load::Report;
use crate::summary::own_code::OwnCode;
use crate::summary::wait_rows::{Known, known, names, rows};
use crate::table::{Column, Table};
use crate::units::{count, duration, plural, share};

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
    let sums = sums(&known);
    sentences(&mut out, layout, &sums, |_, line| line.to_owned());
    let own = OwnCode::new(metadata, &profile.tree);
    let place = |place: Option<u32>| place.map_or(String::new(), |place| chain(&own, place));
    let rows = rows(report, wanted, |pair| {
        let call = profile.waited_for.call(pair.waiting, pair.probe);
        (call, place(Some(pair.waiting)), place(pair.waking))
    });
    let mut table = Table::new(vec![
        Column::number("TOTAL", 0),
        Column::number("LONGEST", 4),
        Column::number("WAITS", 5),
        Column::text("WAITING", 2),
        Column::call("IN", 1),
        Column::list("CALLED FROM", 0),
        Column::text("HELD BY", 6),
        Column::text("ENDED BY", 0),
        Column::list("AT", 3),
    ]);
    for ((call, waiting, waking), row) in rows.iter().take(layout.top) {
        table.row(vec![
            duration(row.sum.total_ns),
            duration(row.sum.longest_ns),
            count(row.sum.count),
            names(metadata, &row.threads),
            call.clone(),
            waiting.clone(),
            names(metadata, &row.owners),
            names(metadata, &row.wakers),
            waking.clone(),
        ]);
    }
    add_table(&mut out, layout, &table, rows.len());
    out
}

/// How many waits there were, and of how many it is known who ended them.
fn sums(known: &Known) -> String {
    let waits = |n| plural(n, "long wait", "long waits");
    let failed = known.failed;
    match known.count - failed {
        0 => format!("  {} timed out or failed", waits(failed)),
        ended => {
            let with_waker = share(known.with_waker, ended);
            let more = match failed {
                0 => String::new(),
                _ => format!("; {} more timed out or failed", count(failed)),
            };
            let waits = waits(ended);
            format!("  {waits} that another thread could end, {with_waker} with that thread{more}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wait_is_one() {
        let text = |count, with_waker, failed| {
            let known = Known {
                count,
                with_waker,
                failed,
                ..Known::default()
            };
            sums(&known)
        };
        let could = "that another thread could end";
        assert_eq!(
            text(1, 1, 0),
            format!("  1 long wait {could}, 100 % with that thread")
        );
        let some =
            format!("  8 long waits {could}, 12.5 % with that thread; 1 more timed out or failed");
        assert_eq!(text(9, 1, 1), some);
        assert_eq!(text(1, 0, 1), "  1 long wait timed out or failed");
    }
}
