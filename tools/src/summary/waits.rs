//! Who makes whom wait: long waits by the stack that waited and the stack that ended the wait.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use serde::Serialize;
use stackbeat_model::{LongWait, ProbeId, ThreadIndex};

use super::facts::Facts;
use crate::render::text::tables::{Layout, chain, label_text, more, title};
use crate::summary::call_tree::Profile;
use crate::summary::load::Report;
use crate::table::{Column, Table};
use crate::units::{count, duration, percent};

/// Different pairs that a report keeps; what comes later is summed up without stacks.
const MOST: usize = 100_000;
/// Threads that a line names.
const NAMED: usize = 3;

/// What one line sums up: the call, where it was made, and where the wait was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pair {
    probe: ProbeId,
    waiting: u32,
    /// `None`: the waker, or its stack, is not known.
    waking: Option<u32>,
    thread: ThreadIndex,
    waker: Option<ThreadIndex>,
    /// Who held the lock when the wait began.
    owner: Option<ThreadIndex>,
    /// Nobody ended it: it timed out or failed.
    in_vain: bool,
}

#[derive(Clone, Debug, Default)]
struct Sum {
    count: u64,
    total_ns: u64,
    longest_ns: u64,
    longest_at_ns: u64,
}

/// Long waits that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSum {
    pub probe: ProbeId,
    pub thread: ThreadIndex,
    /// Place of the waiting stack in the tree of the profile.
    pub waiting: u32,
    pub owner: Option<ThreadIndex>,
    pub waker: Option<ThreadIndex>,
    /// Place of the waker's stack.
    pub waking: Option<u32>,
    /// Nobody ended them: they timed out or failed.
    pub in_vain: bool,
    pub count: u64,
    pub total_ns: u64,
}

/// Collects long waits while a trace is read.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    sums: HashMap<Pair, Sum>,
}

impl Waits {
    /// Adds a wait. `waiting`, `waking`: places of the two stacks in the tree of the profile.
    pub fn add(&mut self, wait: &LongWait, waiting: u32, waking: Option<u32>) {
        let mut pair = Pair {
            probe: wait.probe,
            waiting,
            waking,
            thread: wait.thread,
            waker: wait.waker,
            owner: wait.owner,
            // A signal whose sender is known ends a wait, though the call fails.
            in_vain: !wait.succeeded() && wait.waker.is_none(),
        };
        if self.sums.len() >= MOST && !self.sums.contains_key(&pair) {
            (pair.waiting, pair.waking) = (crate::summary::call_tree::ROOT, None);
        }
        let sum = self.sums.entry(pair).or_default();
        sum.count += 1;
        sum.total_ns += wait.wall_ns();
        if wait.wall_ns() >= sum.longest_ns {
            (sum.longest_ns, sum.longest_at_ns) = (wait.wall_ns(), wait.begin_ns);
        }
    }

    /// All of them, in no order.
    pub fn sums(&self) -> impl Iterator<Item = WaitSum> + '_ {
        self.sums.iter().map(|(pair, sum)| WaitSum {
            probe: pair.probe,
            thread: pair.thread,
            waiting: pair.waiting,
            owner: pair.owner,
            waker: pair.waker,
            waking: pair.waking,
            in_vain: pair.in_vain,
            count: sum.count,
            total_ns: sum.total_ns,
        })
    }
}

/// Waits of one call, with all pairs of threads that read alike.
#[derive(Clone, Debug, Default)]
struct Row {
    sum: Sum,
    threads: BTreeSet<ThreadIndex>,
    owners: BTreeSet<ThreadIndex>,
    wakers: BTreeSet<ThreadIndex>,
}

impl Row {
    fn add(&mut self, pair: &Pair, sum: &Sum) {
        self.sum.count += sum.count;
        self.sum.total_ns += sum.total_ns;
        if sum.longest_ns >= self.sum.longest_ns {
            self.sum.longest_ns = sum.longest_ns;
            self.sum.longest_at_ns = sum.longest_at_ns;
        }
        self.owners.extend(pair.owner);
        self.threads.insert(pair.thread);
        self.wakers.extend(pair.waker);
    }
}

/// Sums by what `key` makes of a pair, by total time.
fn rows<K: std::hash::Hash + Eq + Ord + Clone>(
    report: &Report,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    key: impl Fn(&Pair) -> K,
) -> Vec<(K, Row)> {
    let mut rows: HashMap<K, Row> = HashMap::new();
    for (pair, sum) in &report.waits.sums {
        if wanted(pair.thread) {
            rows.entry(key(pair)).or_default().add(pair, sum);
        }
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|a, b| (b.1.sum.total_ns, &a.0).cmp(&(a.1.sum.total_ns, &b.0)));
    rows
}

/// Number and time of waits, and of those whose waker is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Known {
    pub count: u64,
    pub total_ns: u64,
    pub with_waker: u64,
    pub with_waker_stack: u64,
    /// Nobody ended them: they timed out or failed.
    pub in_vain: u64,
}

fn known(report: &Report, wanted: &dyn Fn(ThreadIndex) -> bool) -> Known {
    let mut known = Known::default();
    for (pair, sum) in report
        .waits
        .sums
        .iter()
        .filter(|(pair, _)| wanted(pair.thread))
    {
        known.count += sum.count;
        known.total_ns += sum.total_ns;
        known.with_waker += sum.count * u64::from(pair.waker.is_some());
        known.in_vain += sum.count * u64::from(pair.in_vain);
        known.with_waker_stack += sum.count * u64::from(pair.waking.is_some());
    }
    known
}

/// The names of some threads.
fn names(facts: &Facts, threads: &BTreeSet<ThreadIndex>) -> String {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for thread in threads {
        names.extend(
            facts
                .threads
                .get(thread.0 as usize)
                .map(|t| t.name.as_str()),
        );
    }
    let shown: Vec<&str> = names.iter().copied().take(NAMED).collect();
    match names.len() > NAMED {
        true => format!("{} and {} more", shown.join(" "), names.len() - NAMED),
        false => shown.join(" "),
    }
}

/// The table; empty when nothing waited for long.
pub fn table(report: &Report, wanted: &dyn Fn(ThreadIndex) -> bool, layout: &Layout) -> String {
    let Report { facts, profile, .. } = report;
    let known = known(report, wanted);
    let mut out = String::new();
    if known.count == 0 {
        return out;
    }
    title(&mut out, layout, "Who makes whom wait");
    let _ = writeln!(
        out,
        "  {} long waits that another thread could end, {} with that thread; {} more timed out or failed",
        count(known.count - known.in_vain),
        percent(known.with_waker, known.count - known.in_vain),
        count(known.in_vain)
    );
    let place = |place: Option<u32>| {
        place.map_or(String::new(), |p| chain(facts, profile.tree.outwards(p)))
    };
    let rows = rows(report, wanted, |pair| {
        (pair.probe, place(Some(pair.waiting)), place(pair.waking))
    });
    let mut table = Table::new(vec![
        Column::number("TOTAL", 0),
        Column::number("LONGEST", 3),
        Column::number("COUNT", 4),
        Column::text("WAITS", 1),
        Column::text("IN", 2),
        Column::list("CALLED FROM", 0),
        Column::text("HELD BY", 5),
        Column::text("ENDED BY", 0),
        Column::list("AT", 0),
    ]);
    for ((probe, waiting, waking), row) in rows.iter().take(layout.top) {
        table.row(vec![
            duration(row.sum.total_ns),
            duration(row.sum.longest_ns),
            count(row.sum.count),
            names(facts, &row.threads),
            probe.name().into_owned(),
            waiting.clone(),
            names(facts, &row.owners),
            names(facts, &row.wakers),
            waking.clone(),
        ]);
    }
    out.push_str(&table.render(layout.width, layout.style));
    more(&mut out, layout, rows.len());
    out
}

/// Long waits in JSON (docs/json.md).
#[derive(Debug, Serialize)]
pub struct WaitsJson {
    #[serde(flatten)]
    known: Known,
    pairs: Vec<PairJson>,
}

#[derive(Debug, Serialize)]
struct PairJson {
    call: String,
    cause: &'static str,
    count: u64,
    total_ns: u64,
    longest_ns: u64,
    /// Begin of the longest, since the recording's start.
    longest_at_ns: u64,
    thread_uid: u32,
    /// Innermost first; so below.
    stack: Vec<String>,
    /// Threads that held the lock when a wait began.
    owner_uids: Vec<u32>,
    /// 0: not known.
    waker_uid: u32,
    /// Empty when not known.
    waker_stack: Vec<String>,
}

/// The pairs by total time, at most `top`.
pub fn json(report: &Report, wanted: &dyn Fn(ThreadIndex) -> bool, top: usize) -> WaitsJson {
    let Report { facts, profile, .. } = report;
    let uid = |thread: ThreadIndex| facts.threads.get(thread.0 as usize).map_or(0, |t| t.uid);
    let rows = rows(report, wanted, |pair| {
        let waker = pair.waker.map_or(0, uid);
        (
            pair.probe,
            pair.waiting,
            pair.waking,
            uid(pair.thread),
            waker,
        )
    });
    let pairs = rows.iter().take(top).map(|(key, row)| {
        let (probe, waiting, waking, thread_uid, waker_uid) = *key;
        PairJson {
            call: probe.name().into_owned(),
            cause: probe.cause().name(),
            count: row.sum.count,
            total_ns: row.sum.total_ns,
            longest_ns: row.sum.longest_ns,
            longest_at_ns: (row.sum.longest_at_ns).saturating_sub(facts.recording.start_ns),
            thread_uid,
            stack: stack(facts, profile, waiting),
            owner_uids: row.owners.iter().copied().map(uid).collect(),
            waker_uid,
            waker_stack: waking.map_or(Vec::new(), |place| stack(facts, profile, place)),
        }
    });
    WaitsJson {
        known: known(report, wanted),
        pairs: pairs.collect(),
    }
}

fn stack(facts: &Facts, profile: &Profile, place: u32) -> Vec<String> {
    let labels = profile.tree.outwards(place);
    labels.map(|(_, label)| label_text(facts, label)).collect()
}
