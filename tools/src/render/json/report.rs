//! The report for scripts. docs/json.md describes it; a field never changes its meaning within a
//! schema's version.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use stackbeat_core::probe::Cause;
use stackbeat_core::system_call::SystemCalls;
use stackbeat_model::{Spent, ThreadIndex};

use super::{deadlocks, focus, system_calls, wait_pairs};
use crate::summary::call_bytes::CallBytes;
use crate::summary::call_tree::{Profile, ThreadTime};
use crate::summary::counters::{CounterRow, ScopeRow};
use crate::summary::events::EventRow;
use crate::summary::evidence::{effective_samples, interval};
use crate::summary::functions::{Own, blocking_sites, functions, spent_by};
use crate::summary::labels::label_text;
use crate::summary::load::Report;
use crate::summary::metadata::{
    DropsRow, FunctionName, Metadata, ProcessRow, Recording, ThreadMetadata, by_kind,
};
use crate::summary::sort_key::SortKey;
use crate::summary::system_calls::Counted;

#[derive(Serialize)]
pub(crate) struct ReportJson<'a> {
    schema: &'static str,
    recording: Recording,
    totals: Totals,
    /// The same of system calls, where they are known.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "by_kind")]
    system_calls: Option<SystemCalls>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_bytes: Option<CallBytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_ups: Option<u64>,
    drops: Vec<DropsRow>,
    damage: &'a [String],
    processes: Vec<ProcessRow>,
    threads: Vec<ThreadJson<'a>>,
    functions: Vec<FunctionJson>,
    blocking_sites: Vec<SiteJson>,
    system_call_functions: Vec<system_calls::FunctionJson>,
    system_call_sites: Vec<system_calls::SiteJson>,
    call_byte_functions: Vec<system_calls::FunctionJson>,
    call_byte_sites: Vec<system_calls::SiteJson>,
    wake_up_functions: Vec<system_calls::FunctionJson>,
    wake_up_sites: Vec<system_calls::SiteJson>,
    waits: wait_pairs::WaitsJson,
    deadlocks: Vec<deadlocks::DeadlockJson>,
    scopes: Vec<ScopeJson>,
    counters: Vec<CounterRow>,
    events: Vec<EventJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    focus: Option<FocusJson>,
}

/// Sums over the threads that are shown.
#[derive(Serialize)]
struct Totals {
    #[serde(flatten)]
    time: Time,
    /// Of the CPU time, what captures took.
    capture_ns: u64,
}

#[derive(Serialize)]
struct Time {
    wall_ns: u64,
    running_ns: u64,
    runnable_ns: u64,
    blocked_ns: u64,
    blocked_by_cause_ns: BTreeMap<&'static str, u64>,
    no_evidence_ns: u64,
    no_evidence_cpu_ns: u64,
    cpu_ns: u64,
    allocations: u64,
    allocated_bytes: u64,
    frees: u64,
    minor_faults: u64,
    major_faults: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
    samples: u64,
}

#[derive(Serialize)]
struct ThreadJson<'a> {
    #[serde(flatten)]
    metadata: ThreadMetadata,
    /// Where it was started, innermost function first; empty: not known.
    started_at: &'a [String],
    #[serde(flatten)]
    time: Time,
    /// Of a recording with counters.
    counters: Vec<CounterRow>,
}

#[derive(Serialize)]
struct FunctionJson {
    #[serde(flatten)]
    name: FunctionName,
    #[serde(rename = "self")]
    own: SpentJson,
    running_share: Option<ShareJson>,
    total: SpentJson,
}

/// The part of the running time, and of the CPU time without evidence, that a function has itself.
#[derive(Serialize)]
struct ShareJson {
    share: f64,
    /// Ends of the 95 % interval.
    low: f64,
    high: f64,
}

#[derive(Serialize)]
struct SpentJson {
    wall_ns: u64,
    running_ns: u64,
    runnable_ns: u64,
    blocked_ns: u64,
    no_evidence_ns: u64,
    cpu_ns: u64,
    allocations: u64,
    allocated_bytes: u64,
    samples: u64,
    /// Of these, those that stand for running time.
    running_samples: u64,
}

#[derive(Serialize)]
struct SiteJson {
    call: String,
    cause: &'static str,
    /// The lock's name, where it is a variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_for: Option<String>,
    count: u64,
    total_ns: u64,
    /// Of it, in waits that were not seen apart.
    inferred_ns: u64,
    longest_ns: u64,
    /// Begin of the longest wait, since the recording's start.
    longest_at_ns: u64,
    longest_utid: u32,
    /// Innermost first.
    stack: Vec<String>,
}

#[derive(Serialize)]
struct ScopeJson {
    #[serde(flatten)]
    row: ScopeRow,
    #[serde(flatten)]
    time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "by_kind")]
    system_calls: Option<SystemCalls>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_bytes: Option<CallBytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_ups: Option<u64>,
}

#[derive(Serialize)]
struct EventJson {
    #[serde(flatten)]
    row: EventRow,
    /// Innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stack: Vec<String>,
}

#[derive(Serialize)]
struct FocusJson {
    functions: Vec<FunctionName>,
    callers: Vec<focus::JsonBranch>,
    callees: Vec<focus::JsonBranch>,
}

/// The JSON of a report.
pub(crate) fn report<'a>(
    report: &'a Report,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    sort: SortKey,
    top: usize,
    function: Option<&str>,
) -> Result<ReportJson<'a>> {
    let Report {
        metadata, profile, ..
    } = report;
    let mut totals = ThreadTime::default();
    let mut threads = Vec::new();
    for (index, thread) in metadata.threads.iter().enumerate() {
        if wanted(ThreadIndex(index as u32)) {
            let time = profile.threads.get(index).copied().unwrap_or_default();
            totals.add(&time);
            threads.push(ThreadJson {
                metadata: thread.clone(),
                started_at: (metadata.start_stacks.get(thread.start_stack))
                    .map_or(&[], Vec::as_slice),
                time: (&time).into(),
                counters: (metadata.thread_counters.get(&ThreadIndex(index as u32)))
                    .cloned()
                    .unwrap_or_default(),
            });
        }
    }
    let focus = match function {
        Some(name) => {
            let focus = crate::summary::focus::focus(metadata, profile, wanted, name)?;
            let (callers, callees) = focus::json(&focus, metadata);
            let functions = focus.functions.iter();
            Some(FocusJson {
                functions: functions.map(|f| name_of(metadata, f.0)).collect(),
                callers,
                callees,
            })
        }
        None => None,
    };
    let rows = functions(profile, wanted, sort, Own::Exact)
        .into_iter()
        .take(top);
    let spent = spent_by(profile, wanted);
    let whole = spent.running_ns() + totals.gap_cpu_ns;
    let callers = |what| system_calls::json(&report.calls, what, metadata, profile, wanted, top);
    let (system_call_functions, system_call_sites) = callers(Counted::Calls);
    let (call_byte_functions, call_byte_sites) = callers(Counted::Bytes);
    let (wake_up_functions, wake_up_sites) = callers(Counted::WakeUps);
    Ok(ReportJson {
        schema: "stackbeat.report.v1",
        recording: metadata.recording.clone(),
        totals: Totals {
            capture_ns: (threads.iter())
                .fold(0, |sum, t| sum.saturating_add(t.metadata.capture_ns)),
            time: (&totals).into(),
        },
        system_calls: metadata.system_calls(wanted),
        call_bytes: metadata.call_bytes(wanted),
        wake_ups: metadata.wake_ups(wanted),
        drops: metadata
            .drops
            .iter()
            .filter(|l| l.count > 0)
            .cloned()
            .collect(),
        damage: &report.damage,
        processes: metadata.processes.clone(),
        threads,
        functions: rows
            .map(|row| FunctionJson {
                name: name_of(metadata, row.function.0),
                own: row.own.into(),
                running_share: {
                    let part = row.own.running_ns();
                    let ends = interval(part, whole, effective_samples(&spent));
                    ends.map(|(low, high)| ShareJson {
                        share: part as f64 / whole as f64,
                        low,
                        high,
                    })
                },
                total: row.total.into(),
            })
            .collect(),
        blocking_sites: sites(metadata, profile, wanted, top),
        system_call_functions,
        system_call_sites,
        call_byte_functions,
        call_byte_sites,
        wake_up_functions,
        wake_up_sites,
        waits: wait_pairs::json(report, wanted, top),
        deadlocks: deadlocks::json(&report.deadlocks, metadata, profile),
        scopes: metadata.scopes.iter().map(scope).collect(),
        counters: metadata.counters.clone(),
        events: events(metadata, profile),
        focus,
    })
}

fn name_of(metadata: &Metadata, function: u32) -> FunctionName {
    metadata
        .functions
        .get(function as usize)
        .cloned()
        .unwrap_or_default()
}

fn scope(row: &ScopeRow) -> ScopeJson {
    ScopeJson {
        row: row.clone(),
        time: row.inside.map(|inside| (&inside.time).into()),
        system_calls: (row.inside.map(|inside| inside.system_calls))
            .filter(|calls| calls.sum() > 0),
        call_bytes: (row.call_bytes()).filter(|bytes| *bytes != CallBytes::default()),
        wake_ups: row.wake_ups().filter(|count| *count > 0),
    }
}

fn events(metadata: &Metadata, profile: &Profile) -> Vec<EventJson> {
    let json = |row: &EventRow| EventJson {
        row: row.clone(),
        stack: profile
            .tree
            .outwards(row.place)
            .map(|(_, label)| label_text(metadata, label))
            .collect(),
    };
    metadata.events.iter().map(json).collect()
}

fn sites(
    metadata: &Metadata,
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    top: usize,
) -> Vec<SiteJson> {
    blocking_sites(profile, wanted)
        .into_iter()
        .take(top)
        .map(|site| {
            let callers = profile.tree.outwards(site.place).skip(1);
            SiteJson {
                call: site.probe.name().into_owned(),
                cause: site.cause.name(),
                waited_for: (profile.waited_for).at(profile.caller_of(site.place), site.probe),
                count: site.count,
                total_ns: site.total_ns,
                inferred_ns: site.inferred_ns,
                longest_ns: site.longest_ns,
                longest_at_ns: site
                    .longest_at_ns
                    .saturating_sub(metadata.recording.start_ns),
                longest_utid: metadata.threads[site.longest_thread.0 as usize].utid,
                stack: callers
                    .map(|(_, label)| label_text(metadata, label))
                    .collect(),
            }
        })
        .collect()
}

impl From<&ThreadTime> for Time {
    fn from(t: &ThreadTime) -> Time {
        let causes = Cause::ALL.into_iter().filter(|c| *c != Cause::None);
        Time {
            wall_ns: t.wall_ns(),
            running_ns: t.running_ns,
            runnable_ns: t.metrics.runnable_ns,
            blocked_ns: t.all_blocked_ns(),
            blocked_by_cause_ns: causes
                .map(|c| (c.name(), t.blocked_ns[c as usize]))
                .collect(),
            no_evidence_ns: t.gap_ns,
            no_evidence_cpu_ns: t.gap_cpu_ns,
            cpu_ns: t.metrics.cpu_ns,
            allocations: t.metrics.allocations,
            allocated_bytes: t.metrics.allocated_bytes,
            frees: t.metrics.frees,
            minor_faults: t.metrics.minor_faults,
            major_faults: t.metrics.major_faults,
            voluntary_switches: t.metrics.voluntary_switches,
            involuntary_switches: t.metrics.involuntary_switches,
            samples: t.metrics.samples,
        }
    }
}

impl From<Spent> for SpentJson {
    fn from(spent: Spent) -> SpentJson {
        SpentJson {
            wall_ns: spent.wall_ns,
            running_ns: spent.running_ns(),
            runnable_ns: spent.metrics.runnable_ns,
            blocked_ns: spent.blocked_ns,
            no_evidence_ns: spent.gap_ns,
            cpu_ns: spent.metrics.cpu_ns,
            allocations: spent.metrics.allocations,
            allocated_bytes: spent.metrics.allocated_bytes,
            samples: spent.metrics.samples,
            running_samples: spent.evidence.samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, golden};

    #[test]
    fn the_json_is_as_documented() {
        let made_up = testing::report();
        let json = super::report(&made_up, &|_| true, SortKey::SelfTime, 3, Some("price"));
        let text = serde_json::to_string_pretty(&json.expect("is made")).expect("serializes");
        golden("report.json", &(text + "\n"));
    }
}
