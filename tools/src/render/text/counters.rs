//! The tables of counters and of scopes.

use crate::render::text::table_layout::{Layout, add_table, title};
use crate::summary::call_bytes::CallBytes;
use crate::summary::counters::{CounterRow, ScopeRow};
use crate::summary::scope_sums::Inside;
use crate::summary::system_calls;
use crate::table::{Column, Table};
use crate::units::{bytes, count, duration, percent};

/// The table of scopes; empty when there are none.
pub(crate) fn scope_table(rows: &[ScopeRow], layout: &Layout) -> String {
    let mut out = String::new();
    if rows.is_empty() {
        return out;
    }
    title(&mut out, layout, "Scopes of the program");
    let moved = |row: &ScopeRow, of: fn(CallBytes) -> Option<u64>| {
        let amount = row.call_bytes().and_then(of);
        amount.map_or_else(String::new, bytes)
    };
    let mut table = Table::new(vec![
        Column::number("TOTAL", 0),
        Column::number("LONGEST", 1),
        Column::number("MEAN", 2),
        Column::number("COUNT", 0),
        Column::number("CPU", 1),
        Column::number("BLOCKED", 1),
        Column::number("ALLOCATED", 2),
        Column::number("READ", 2),
        Column::number("WRITTEN", 2),
        Column::text("SCOPE", 0),
        Column::list("SYSTEM CALLS", 2),
    ]);
    for row in rows.iter().take(layout.top) {
        let inside = row.inside.as_ref();
        let of = |cell: &dyn Fn(&Inside) -> String| inside.map_or("-".to_owned(), cell);
        table.row(vec![
            duration(row.total_ns),
            duration(row.longest_ns),
            duration(row.total_ns / row.count.max(1)),
            count(row.count),
            of(&|inside| duration(inside.time.metrics.cpu_ns)),
            of(&|inside| duration(inside.time.all_blocked_ns())),
            of(&|inside| bytes(inside.time.metrics.allocated_bytes)),
            moved(row, |b| b.read),
            moved(row, |b| b.written),
            row.name.clone(),
            of(&|inside| system_calls::kinds(&inside.system_calls)),
        ]);
    }
    add_table(&mut out, layout, &table, rows.len());
    out
}

/// The table of counters; empty when there are none.
pub(crate) fn counter_table(
    rows: &[CounterRow],
    processes: &[(u32, String)],
    layout: &Layout,
) -> String {
    let mut out = String::new();
    if rows.is_empty() {
        return out;
    }
    title(&mut out, layout, "Counters");
    let mut table = Table::new(vec![
        Column::number("LAST", 0),
        Column::number("LOWEST", 1),
        Column::number("HIGHEST", 0),
        Column::text("PROCESS", 2),
        Column::text("COUNTER", 0),
    ]);
    for row in rows.iter().take(layout.top) {
        let process = processes.iter().find(|(upid, _)| *upid == row.upid);
        table.row(vec![
            amount(row.last, &row.unit),
            amount(row.min, &row.unit),
            amount(row.max, &row.unit),
            process.map_or(String::new(), |(_, name)| name.clone()),
            row.name.clone(),
        ]);
    }
    add_table(&mut out, layout, &table, rows.len());
    out
}

/// A value with its unit, in one that people read.
fn amount(value: i64, unit: &str) -> String {
    let Ok(positive) = u64::try_from(value) else {
        return format!("{value} {unit}").trim_end().to_owned();
    };
    match unit {
        "bytes" => bytes(positive),
        "bytes/s" => bytes(positive) + "/s",
        "ns" => duration(positive),
        // Parts of the program's CPU time, and microseconds of each second.
        "ppm" | "us/s" if positive < 10_000 => format!("{:.2} %", value as f64 / 1e4),
        "ppm" | "us/s" => percent(positive, 1_000_000),
        "" => value.to_string(),
        unit => format!("{value} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units_that_people_read() {
        for (value, unit, text) in [
            (305_099, "ppm", "30.5 %"),
            (3_140, "ppm", "0.31 %"),
            (4_000_000, "ns", "4.00 ms"),
            (1 << 20, "bytes", "1.00 MiB"),
            (2048, "bytes/s", "2.00 KiB/s"),
            (12, "%", "12 %"),
            (-3, "", "-3"),
        ] {
            assert_eq!(amount(value, unit), text);
        }
    }
}
