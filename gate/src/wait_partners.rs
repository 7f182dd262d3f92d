//! Whom threads waited for: who held a lock when a wait for it began, and who ended a wait.
//!
//! Only waits above the recording's threshold (`--long-wait`) are known like that. What is not known stays
//! unknown: nobody is guessed.

use std::collections::{BTreeMap, BTreeSet};

use stackbeat_model::metric::Metric;

use crate::run::RoleId;
use crate::run::wait_sums::{End, Party, WaitKey};
use crate::run_table::{PerRun, RunTable};
use crate::stats::mean;

/// What is said of whom was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tie {
    /// They held the lock when waits for it began. The function is the one that let go of it.
    Held,
    /// They ended waits.
    Ended,
    /// Nobody ended the waits: they timed out or failed.
    Failed,
    /// Nobody is known to have ended them, and they got what they waited for.
    NobodyKnown,
}

impl Tie {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Tie::Held => "held-by",
            Tie::Ended => "ended-by",
            Tie::Failed => "in-vain",
            Tie::NobodyKnown => "nobody-known",
        }
    }
}

/// How long was waited for somebody, in ns a run (means).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitedFor {
    /// What they had to do with the waits.
    pub tie: Tie,
    /// `None` when there is nobody.
    pub party: Option<Party>,
    /// Mean of the baseline's runs.
    pub baseline: f64,
    /// Mean of the candidate's runs.
    pub candidate: f64,
}

impl WaitedFor {
    /// Positive: longer in the candidate.
    pub fn change(&self) -> f64 {
        self.candidate - self.baseline
    }
}

/// Sums of waits that `wanted` accepts, by what `of` makes of them.
fn columns<K: Ord>(
    table: &RunTable,
    wanted: impl Fn(&WaitKey) -> bool,
    of: impl Fn(&WaitKey) -> Option<K>,
) -> BTreeMap<K, PerRun> {
    let mut columns: BTreeMap<K, PerRun> = BTreeMap::new();
    for (at, run) in table.runs.iter().enumerate() {
        for wait in run.waits.iter().filter(|wait| wanted(&wait.key)) {
            if let Some(key) = of(&wait.key) {
                let column = columns.entry(key);
                column.or_insert_with(|| vec![0.0; table.runs.len()])[at] += wait.total_ns as f64;
            }
        }
    }
    columns
}

/// Who held the lock, when that is what was waited for, and otherwise who ended the waits.
fn tie(table: &RunTable, key: &WaitKey) -> Option<(Tie, Option<Party>)> {
    let same = |party: Party| Party {
        function: party.function.map(|name| table.same(name)),
        ..party
    };
    match (key.holder, key.end) {
        (Some(role), End::By(by)) if by.role == role => Some((Tie::Held, Some(same(by)))),
        (Some(role), _) => {
            let party = Party {
                role,
                function: None,
            };
            Some((Tie::Held, Some(party)))
        }
        (None, End::By(by)) => Some((Tie::Ended, Some(same(by)))),
        (None, End::Failed) => Some((Tie::Failed, None)),
        (None, End::NobodyKnown) => Some((Tie::NobodyKnown, None)),
        (None, End::Unknown) => None,
    }
}

/// Whom the waits of one kind are for that became longer, those that grew most first: of a role's threads, or
/// of all.
pub(crate) fn waited_for(table: &RunTable, metric: Metric, role: Option<RoleId>) -> Vec<WaitedFor> {
    /// Of the growth of all.
    const LEAST_SHARE: f64 = 0.1;
    const SHOWN: usize = 3;
    let wanted = |key: &WaitKey| key.metric == metric && role.is_none_or(|role| key.waiter == role);
    let mut list: Vec<WaitedFor> = columns(table, wanted, |key| tie(table, key))
        .into_iter()
        .map(|((tie, party), column)| {
            let (baseline, candidate) = table.split(&column);
            WaitedFor {
                tie,
                party,
                baseline: mean(baseline),
                candidate: mean(candidate),
            }
        })
        .filter(|waited| waited.change() > 0.0)
        .collect();
    let all: f64 = list.iter().map(WaitedFor::change).sum();
    list.retain(|waited| waited.change() >= LEAST_SHARE * all);
    list.sort_by(|a, b| {
        let order = b.change().total_cmp(&a.change());
        order.then((a.tie, a.party).cmp(&(b.tie, b.party)))
    });
    list.truncate(SHOWN);
    list
}

/// Who held the locks that a role's threads waited for longer, by `grown` ns: where that is known of half of
/// it.
pub(crate) fn holders(table: &RunTable, waiter: RoleId, grown: f64) -> Vec<RoleId> {
    const KNOWN: f64 = 0.5;
    const LEAST_SHARE: f64 = 0.1;
    let is_asked = |key: &WaitKey| key.waiter == waiter && key.metric == Metric::Lock;
    let growth = |column: &PerRun| {
        let (baseline, candidate) = table.split(column);
        (mean(candidate) - mean(baseline)).max(0.0)
    };
    let by_holder: Vec<(RoleId, f64)> = columns(table, is_asked, |key| key.holder)
        .into_iter()
        .map(|(holder, column)| (holder, growth(&column)))
        .collect();
    let all: f64 = by_holder.iter().map(|(_, ns)| ns).sum();
    let holders = by_holder
        .into_iter()
        .filter(|(_, ns)| all >= KNOWN * grown && *ns >= LEAST_SHARE * all);
    holders.map(|(holder, _)| holder).collect()
}

/// Who can be the reason for longer waits of some threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answering {
    /// These, as far as is known.
    Roles(BTreeSet<RoleId>),
    /// Nobody was seen to end them: they timed out, because who waited asked again and again, or got
    /// something from nobody who is known. These ended the others.
    Unseen(BTreeSet<RoleId>),
    /// The trace says too little.
    Unknown,
}

/// Who answers the waits of these roles that grew by `grown` ns: those who ended them, those who ended the
/// waits of those, and so on. Half of the growth has to be known.
pub(crate) fn answering(
    table: &RunTable,
    waiters: &[RoleId],
    metrics: &[Metric],
    grown: f64,
) -> Answering {
    const KNOWN: f64 = 0.5;
    // Who ended less than this share of them is no reason.
    const LEAST_SHARE: f64 = 0.1;
    let growth = |column: &PerRun| {
        let (baseline, candidate) = table.split(column);
        (mean(candidate) - mean(baseline)).max(0.0)
    };
    let is_asked = |key: &WaitKey| waiters.contains(&key.waiter) && metrics.contains(&key.metric);
    let by_end = columns(table, is_asked, |key| match key.end {
        // In which function is another question.
        End::By(by) => Some(End::By(Party {
            function: None,
            ..by
        })),
        End::Unknown => None,
        end => Some(end),
    });
    let of = |end: End| by_end.get(&end).map_or(0.0, growth);
    let all: f64 = by_end.values().map(growth).sum();
    if all < KNOWN * grown {
        return Answering::Unknown;
    }
    let half = KNOWN * grown.min(all);
    let ended = |least: f64| {
        let roles = by_end.iter().filter_map(move |(end, column)| match end {
            End::By(by) if growth(column) >= least => Some(by.role),
            _ => None,
        });
        roles.collect::<Vec<_>>()
    };
    if of(End::Failed) >= half {
        // However short the last of many waits was.
        return Answering::Unseen(with_their_enders(table, ended(f64::NEG_INFINITY)));
    }
    let enders = with_their_enders(table, ended(LEAST_SHARE * all));
    match of(End::Failed) + of(End::NobodyKnown) >= half {
        true => Answering::Unseen(enders),
        false => Answering::Roles(enders),
    }
}

/// These roles, those that ended their waits, and so on.
fn with_their_enders(table: &RunTable, mut open: Vec<RoleId>) -> BTreeSet<RoleId> {
    let mut found = BTreeSet::new();
    while let Some(role) = open.pop() {
        if !found.insert(role) {
            continue;
        }
        let of_role = columns(
            table,
            |key| key.waiter == role,
            |key| match key.end {
                End::By(by) => Some(by.role),
                _ => None,
            },
        );
        open.extend(of_role.into_keys());
    }
    found
}
