//! Counters and scopes of a trace, summed up.

use std::collections::BTreeMap;

use serde::Serialize;
use stackbeat_collector::model::{Counter, ThreadIndex, Trace};
use stackbeat_proto::v1::{Event, event};

use super::tables::{Layout, more, title};
use crate::scopes::{Open, Scope};
use crate::table::{Column, Table};
use crate::units::{bytes, count, duration};

/// Values that a report keeps of one counter: more than a screen has pixels.
const MOST_POINTS: usize = 4096;

/// One counter of one process, or of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CounterRow {
    pub name: String,
    /// `%`, `bytes`, `/s`, `us/s` or empty.
    pub unit: String,
    /// 0: the machine, or the whole program.
    pub process_uid: u32,
    pub values: u64,
    pub min: i64,
    pub max: i64,
    pub last: i64,
    #[serde(skip)]
    pub last_ns: u64,
    /// Times since the recording's start, ns, and values; of a long row the highest of neighbours.
    #[serde(skip)]
    pub points: Vec<(u64, i64)>,
}

/// All scopes with one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScopeRow {
    pub name: String,
    pub count: u64,
    /// Scopes inside themselves count once for each.
    pub total_ns: u64,
    pub longest_ns: u64,
    /// Begin of the longest one, since the recording's start.
    pub longest_at_ns: u64,
    pub longest_thread_uid: u32,
}

/// Collects both while a trace is read.
#[derive(Debug, Default)]
pub struct Collected {
    counters: BTreeMap<(u32, String, String), CounterRow>,
    scopes: BTreeMap<String, ScopeRow>,
    open: Open,
}

impl CounterRow {
    /// Batches of a counter need not come in order of time.
    fn add_point(&mut self, at_ns: u64, value: i64) {
        let at = self.points.partition_point(|(before, _)| *before <= at_ns);
        self.points.insert(at, (at_ns, value));
        if self.points.len() >= MOST_POINTS {
            let pairs = self.points.chunks(2);
            self.points = pairs
                .map(|pair| (pair[0].0, pair.iter().map(|(_, v)| *v).max().unwrap_or(0)))
                .collect();
        }
    }
}

impl Collected {
    pub fn counter(&mut self, trace: &Trace, counter: &Counter) {
        let process_uid = counter.process.map_or(0, |p| trace.process(p).uid);
        let key = (process_uid, counter.name.clone(), counter.unit.clone());
        let row = self.counters.entry(key).or_insert_with(|| CounterRow {
            name: counter.name.clone(),
            unit: counter.unit.clone(),
            process_uid,
            min: i64::MAX,
            max: i64::MIN,
            ..CounterRow::default()
        });
        for (at_ns, value) in &counter.values {
            row.values += 1;
            row.min = row.min.min(*value);
            row.max = row.max.max(*value);
            if *at_ns >= row.last_ns {
                (row.last_ns, row.last) = (*at_ns, *value);
            }
            row.add_point(at_ns.saturating_sub(trace.start_ns()), *value);
        }
    }

    pub fn event(&mut self, trace: &Trace, thread: Option<ThreadIndex>, event: &Event) {
        let Some(thread) = thread else { return };
        match event.kind() {
            event::Kind::ScopeBegin => self.open.begin(thread, &event.name, event.time_ns),
            event::Kind::ScopeEnd => {
                if let Some(scope) = self.open.end(thread, event.time_ns) {
                    self.scope(trace, &scope);
                }
            }
            _ => {}
        }
    }

    fn scope(&mut self, trace: &Trace, scope: &Scope) {
        let row = self.scopes.entry(scope.name.clone()).or_default();
        let length_ns = scope.end_ns - scope.begin_ns;
        row.count += 1;
        row.total_ns += length_ns;
        if length_ns >= row.longest_ns {
            row.longest_ns = length_ns;
            row.longest_at_ns = scope.begin_ns.saturating_sub(trace.start_ns());
            row.longest_thread_uid = trace.thread(scope.thread).uid;
        }
    }

    /// Scopes by total time, counters by process and name.
    pub fn finish(mut self, trace: &Trace) -> (Vec<ScopeRow>, Vec<CounterRow>) {
        for scope in self.open.rest(|thread| trace.thread(thread).end_ns) {
            self.scope(trace, &scope);
        }
        let named = self.scopes.into_iter();
        let mut scopes: Vec<_> = named.map(|(name, row)| ScopeRow { name, ..row }).collect();
        scopes.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
        let counters = self.counters.into_values();
        (scopes, counters.filter(|row| row.values > 0).collect())
    }
}

/// The table of scopes; empty when there are none.
pub fn scope_table(rows: &[ScopeRow], layout: &Layout) -> String {
    let mut out = String::new();
    if rows.is_empty() {
        return out;
    }
    title(&mut out, layout, "Scopes of the program");
    let mut table = Table::new(vec![
        Column::number("TOTAL", 0),
        Column::number("LONGEST", 1),
        Column::number("MEAN", 2),
        Column::number("COUNT", 0),
        Column::text("SCOPE", 0),
    ]);
    for row in rows.iter().take(layout.top) {
        table.row(vec![
            duration(row.total_ns),
            duration(row.longest_ns),
            duration(row.total_ns / row.count.max(1)),
            count(row.count),
            row.name.clone(),
        ]);
    }
    out.push_str(&table.render(layout.width, layout.style));
    more(&mut out, layout, rows.len());
    out
}

/// The table of counters; empty when there are none.
pub fn counter_table(rows: &[CounterRow], processes: &[(u32, String)], layout: &Layout) -> String {
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
        let process = processes.iter().find(|(uid, _)| *uid == row.process_uid);
        table.row(vec![
            amount(row.last, &row.unit),
            amount(row.min, &row.unit),
            amount(row.max, &row.unit),
            process.map_or(String::new(), |(_, name)| name.clone()),
            row.name.clone(),
        ]);
    }
    out.push_str(&table.render(layout.width, layout.style));
    more(&mut out, layout, rows.len());
    out
}

fn amount(value: i64, unit: &str) -> String {
    match (unit, u64::try_from(value)) {
        ("bytes", Ok(value)) => bytes(value),
        ("", _) => value.to_string(),
        ("%", _) => format!("{value} %"),
        (unit, _) => format!("{value} {unit}"),
    }
}
