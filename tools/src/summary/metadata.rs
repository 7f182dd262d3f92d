//! What a trace says beside its samples, as reports show it. Serialized as it stands into the JSON
//! (docs/json.md) and into the page.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};
use stackbeat_core::system_call::{SystemCall, SystemCalls};
use stackbeat_model::layers::Layer;
use stackbeat_model::{FunctionIndex, ThreadIndex};

use super::counters::{CounterRow, ScopeRow, ThreadCounters};
use super::events::EventRow;
use super::long_waits::LongWaitRow;
use crate::summary::call_bytes::CallBytes;
use crate::unrecorded::{self, UnrecordedRow};

/// How and what was recorded. Times of the other rows are relative to `start_ns`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Recording {
    pub trace: String,
    pub command: Vec<String>,
    pub hostname: String,
    pub os: String,
    pub machine: String,
    pub cpus: u32,
    pub cpu_model: String,
    pub stackbeat_version: String,
    /// Start of the recording, ns since 1970 (CLOCK_REALTIME).
    pub started_unix_ns: u64,
    /// Start by the trace's own clock (CLOCK_MONOTONIC).
    pub start_ns: u64,
    pub duration_ns: u64,
    pub interval_ns: u64,
    pub main_interval_ns: u64,
    pub probes: Vec<String>,
    /// Threads that ran were not interrupted.
    pub hooks_only: bool,
    /// `finished`, `running`, `disk_full`, `recovered`, `write_error`.
    pub outcome: &'static str,
    /// How complete the trace is, in words.
    pub state: String,
    /// What is measured, and the commit of the program, when `record` was told.
    pub label: String,
    pub commit: String,
    /// Another run of a pair shared the processor.
    #[serde(skip)]
    pub shares_processor: bool,
    pub records_written: u64,
    pub records_stored: u64,
    pub records_lost: u64,
    /// Programs that ran without an agent, by CPU time.
    pub unrecorded: Vec<UnrecordedRow>,
    /// CPU time of the program that is neither theirs nor of a recorded thread.
    pub unseen_cpu_ns: u64,
    /// Up to when allocations were counted, from the start, when that is not the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts_end_ns: Option<u64>,
}

impl Recording {
    /// Whether nothing is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.state == "complete"
    }

    /// What ran unrecorded, in one line.
    pub(crate) fn unrecorded_text(&self) -> Option<String> {
        unrecorded::text(&self.unrecorded, self.unseen_cpu_ns)
    }
}

/// One program image in one process.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ProcessRow {
    pub upid: u32,
    /// The image before in the same process, which exec replaced by this one; 0: it is the first.
    #[serde(skip_serializing_if = "is_zero")]
    pub replaced_upid: u32,
    pub pid: u32,
    pub parent_pid: u32,
    pub name: String,
    pub command: Vec<String>,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// One thread, or those of a role. Its place in the list is its `ThreadIndex`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ThreadMetadata {
    pub utid: u32,
    pub tid: u32,
    pub name: String,
    /// Index into the list of processes.
    #[serde(skip)]
    pub process: usize,
    pub upid: u32,
    pub pid: u32,
    pub is_main: bool,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// The thread that started it; 0: not known.
    pub started_by_utid: u32,
    /// Where that was: place in `Metadata::start_stacks`.
    #[serde(skip)]
    pub start_stack: usize,
    /// Exact counters, when the thread's end was recorded.
    pub exact_cpu_ns: Option<u64>,
    pub exact_allocations: Option<u64>,
    pub exact_allocated_bytes: Option<u64>,
    /// System calls that passed hooks, by kind.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "by_kind")]
    pub system_calls: Option<SystemCalls>,
    /// What these have moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_bytes: Option<CallBytes>,
    /// In how many calls that passed hooks the thread slept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_ups: Option<u64>,
    /// What the recording's captures took, by the cycle counter: time in which one lost its processor is in
    /// it, too.
    pub capture_ns: u64,
    /// Threads that this row sums up; 0: it is one thread.
    #[serde(skip_serializing_if = "is_zero")]
    pub merged: u32,
}

/// Kinds of calls that occur, by name.
pub(crate) fn by_kind<S: Serializer>(
    calls: &Option<SystemCalls>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let calls = calls.unwrap_or_default();
    let present = calls.calls().filter(|(_, count)| *count > 0);
    serializer.collect_map(present.map(|(kind, count)| (kind.name(), count)))
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Something the trace does not have.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DropsRow {
    /// 0: the whole session.
    pub utid: u32,
    pub cause: &'static str,
    pub count: u64,
    pub description: &'static str,
}

/// A function's names. Its place in the list is its `FunctionIndex`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct FunctionName {
    pub name: String,
    pub module: String,
    pub file: String,
    pub line: u32,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metadata {
    pub recording: Recording,
    pub processes: Vec<ProcessRow>,
    pub threads: Vec<ThreadMetadata>,
    /// Stacks in which threads were started, innermost function first. The first one is empty.
    pub start_stacks: Vec<Vec<String>>,
    pub drops: Vec<DropsRow>,
    pub functions: Vec<FunctionName>,
    /// Build ids of the files that were mapped as code, by path; empty where a file has none, several where
    /// it was replaced.
    pub builds: BTreeMap<String, BTreeSet<Vec<u8>>>,
    /// Marks and changed settings, in order of time, and how many more there were.
    pub events: Vec<EventRow>,
    pub events_left_out: u64,
    /// The program's own scopes, by total time.
    pub scopes: Vec<ScopeRow>,
    pub counters: Vec<CounterRow>,
    pub thread_counters: ThreadCounters,
    /// The longest waits, by thread and time.
    pub long_waits: Vec<LongWaitRow>,
}

impl FunctionName {
    /// What it is to the program.
    pub(crate) fn layer(&self) -> Layer {
        Layer::of(&self.name, &self.module, &self.file)
    }
}

impl Metadata {
    /// What each function is to the program.
    pub(crate) fn layers(&self) -> impl Fn(FunctionIndex) -> Layer + use<> {
        let layers: Vec<Layer> = self.functions.iter().map(FunctionName::layer).collect();
        move |function| {
            let known = layers.get(function.0 as usize).copied();
            known.unwrap_or(Layer::Program)
        }
    }

    /// Processes: one that executed other programs counts once.
    pub(crate) fn process_count(&self) -> usize {
        let images = self.processes.iter();
        images.filter(|image| image.replaced_upid == 0).count()
    }

    /// Threads: a main thread goes on when its process executes another program.
    pub(crate) fn thread_count(&self) -> usize {
        let goes_on = |thread: &&ThreadMetadata| {
            let image = self.processes.get(thread.process);
            thread.is_main && image.is_some_and(|image| image.replaced_upid != 0)
        };
        self.threads.len() - self.threads.iter().filter(goes_on).count()
    }

    /// System calls of the threads that `wanted` accepts; `None` when those of one are not known.
    pub(crate) fn system_calls(&self, wanted: &dyn Fn(ThreadIndex) -> bool) -> Option<SystemCalls> {
        let mut threads = (self.threads.iter().enumerate())
            .filter(|(index, _)| wanted(ThreadIndex(*index as u32)))
            .peekable();
        threads.peek()?;
        threads.try_fold(SystemCalls::default(), |mut sum, (_, thread)| {
            sum.add(&thread.system_calls?);
            Some(sum)
        })
    }

    /// The same of the bytes that they moved.
    pub(crate) fn call_bytes(&self, wanted: &dyn Fn(ThreadIndex) -> bool) -> Option<CallBytes> {
        let mut threads = self.threads.iter().enumerate();
        let calls = self.system_calls(wanted)?;
        let are_known = threads.all(|(index, thread)| {
            !wanted(ThreadIndex(index as u32)) || thread.call_bytes.is_some()
        });
        are_known.then(|| CallBytes::of(&calls))
    }

    /// The same of calls in which they slept.
    pub(crate) fn wake_ups(&self, wanted: &dyn Fn(ThreadIndex) -> bool) -> Option<u64> {
        self.call_bytes(wanted)?;
        Some(self.system_calls(wanted)?.of(SystemCall::WakeUps))
    }

    /// Losses summed over threads, heaviest first.
    pub(crate) fn drops_by_cause(&self) -> Vec<DropsRow> {
        let mut sums: Vec<DropsRow> = Vec::new();
        for dropped in self.drops.iter().filter(|l| l.count > 0) {
            match sums.iter_mut().find(|s| s.cause == dropped.cause) {
                Some(sum) => sum.count = sum.count.saturating_add(dropped.count),
                None => sums.push(DropsRow {
                    utid: 0,
                    ..dropped.clone()
                }),
            }
        }
        sums.sort_by_key(|s| std::cmp::Reverse(s.count));
        sums
    }
}
