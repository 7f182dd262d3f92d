//! Reads a trace once and sums it up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::Result;
use stackbeat_core::probe::Category;
use stackbeat_core::system_call::SystemCall;
use stackbeat_model::{
    AttributedCalls, Counter, FrameIndex, LongWait, ProcessIndex, SampleRow, Segment, SegmentKind,
    StackIndex, ThreadIndex, ThreadTotals, Trace, Visitor,
};
use stackbeat_proto::v1::Event;
use stackbeat_proto::v1::config::SamplingClock;
use stackbeat_proto::v1::drops::Cause;
use stackbeat_proto::v1::summary::Outcome;

use super::counters::Collected;
use super::deadlocks::{Deadlocks, Places};
use super::events::Events;
use super::long_waits::LongWaits;
use super::metadata::{DropsRow, FunctionName, Metadata, ProcessRow, Recording, ThreadMetadata};
use super::system_calls::CallSites;
use super::thread_rows::Rows;
use super::wait_kind::{WaitKind, is_for_lock};
use super::wait_pairs::{Held, Waits};
use crate::summary::call_bytes::CallBytes;
use crate::summary::call_tree::{Profile, ROOT};
use crate::summary::timeline::{Bar, Timeline};
use crate::{drop_causes, unrecorded};

/// Name of the session's counter that holds the time of the calibration loop in ns.
pub(crate) const CALIBRATION: &str = "calibration";

/// Python's global interpreter lock, as calls name what they wait for.
const GIL: &str = "GIL";

/// A trace, ready to be shown.
#[derive(Debug)]
pub(crate) struct Report {
    pub metadata: Metadata,
    /// What of the trace cannot be shown, one line each.
    pub damage: Vec<String>,
    pub profile: Profile,
    /// Empty when no page was asked for.
    pub timeline: Timeline,
    /// How long the calibration loop took that ran before the program, when one did.
    pub calibration_ns: Option<u64>,
    /// Long waits and who ended them.
    pub waits: Waits,
    pub deadlocks: Deadlocks,
    /// Who makes system calls.
    pub calls: CallSites,
}

impl Report {
    /// Who held locks while others waited for them.
    pub(crate) fn held(&self) -> Vec<Held> {
        let is_for_lock = |place| is_for_lock(&self.metadata, &self.profile.tree, place);
        self.waits.held(&is_for_lock)
    }
}

/// Opens a trace and sums it up. `bar_budget` is how many bars the timeline may have, 0: none is made.
pub(crate) fn load(path: &Path, bar_budget: usize) -> Result<Report> {
    let trace = Trace::open(path)?;
    warn_of_damage(path, &trace);
    summarize(&trace, bar_budget)
}

/// Says on standard error what of a trace cannot be shown.
pub(crate) fn warn_of_damage(path: &Path, trace: &Trace) {
    for line in damage(trace) {
        crate::terminal::warn(&format!("{}: {line}", path.display()));
    }
}

fn damage(trace: &Trace) -> Vec<String> {
    const SHOWN: usize = 3;
    let known = trace.damage().iter().take(SHOWN);
    let mut lines: Vec<String> = known
        .map(|damage| {
            let (offset, what) = (damage.offset, &damage.what);
            format!("damaged near byte {offset}: {what}; the rest is shown")
        })
        .collect();
    let more = trace.damage().len().saturating_sub(SHOWN);
    if more > 0 {
        lines.push(format!(
            "damaged in {more} more places; `stackbeat info` lists them"
        ));
    }
    lines
}

/// As `load`, for a trace that is open.
pub(crate) fn summarize(trace: &Trace, bar_budget: usize) -> Result<Report> {
    summarize_by(trace, bar_budget, Vec::new())
}

/// As `summarize`, with at most `most_threads` rows for threads (0: any number). Gives also which rows the
/// threads have that `choose` wants.
pub(crate) fn summarize_rows(
    trace: &Trace,
    bar_budget: usize,
    most_threads: usize,
    choose: &dyn Fn(&Metadata) -> Result<Vec<bool>>,
) -> Result<(Report, Vec<bool>)> {
    let mut metadata = metadata(trace);
    let mut chosen = choose(&metadata)?;
    let rows = Rows::limit(&mut metadata, &mut chosen, most_threads);
    let report = sum_up(trace, metadata, Adder::new(bar_budget, rows))?;
    Ok((report, chosen))
}

/// As `summarize`; a thread's cells are those of its owner in this list, by `ThreadIndex`.
pub(crate) fn summarize_by(
    trace: &Trace,
    bar_budget: usize,
    owners: Vec<ThreadIndex>,
) -> Result<Report> {
    let mut adder = Adder::new(bar_budget, Rows::default());
    adder.profile.owners = owners;
    sum_up(trace, metadata(trace), adder)
}

fn sum_up(trace: &Trace, mut metadata: Metadata, mut adder: Adder) -> Result<Report> {
    adder.collected = Collected::new(trace);
    trace.visit(&mut adder)?;
    let rows = adder.rows;
    let mut profile = adder.profile;
    profile.set_layers(metadata.layers());
    profile
        .threads
        .resize_with(metadata.threads.len(), Default::default);
    let tree = &profile.tree;
    profile.waited_for.name_all(GIL, |caller, probe| {
        WaitKind::at(&metadata, tree, caller, probe) == WaitKind::InterpreterLock
    });
    (metadata.events, metadata.events_left_out) = adder.events.finish();
    for event in &mut metadata.events {
        event.utid = rows.utid(event.utid);
    }
    (metadata.scopes, metadata.counters, metadata.thread_counters) = adder.collected.finish(trace);
    for scope in &mut metadata.scopes {
        scope.longest_utid = rows.utid(scope.longest_utid);
    }
    let counters = std::mem::take(&mut metadata.thread_counters).into_iter();
    metadata.thread_counters = counters
        .filter(|(thread, _)| rows.is_single(*thread))
        .map(|(thread, counters)| (rows.row(thread), counters))
        .collect();
    metadata.long_waits = adder.long_waits.finish();
    Ok(Report {
        metadata,
        damage: damage(trace),
        profile,
        timeline: adder.timeline,
        calibration_ns: adder.calibration_ns,
        waits: adder.waits,
        calls: adder.calls,
        deadlocks: adder.places.finish(trace, &rows),
    })
}

fn metadata(trace: &Trace) -> Metadata {
    let start_ns = trace.start_ns();
    let since_start = |ns: u64| ns.saturating_sub(start_ns);
    let images = (0..).map(ProcessIndex).zip(trace.processes());
    let processes = images.map(|(image, p)| ProcessRow {
        upid: p.upid.0,
        replaced_upid: trace
            .image_before(image)
            .map_or(0, |before| trace.process(before).upid.0),
        pid: p.pid.0,
        parent_pid: p.parent_pid.0,
        name: p.name(),
        command: p.command_line.clone(),
        begin_ns: since_start(p.start_ns),
        end_ns: since_start(p.end_ns),
    });
    let mut starts = StartStacks::default();
    let threads = trace.threads().iter().map(|t| {
        let process = trace.process(t.process);
        ThreadMetadata {
            utid: t.utid.0,
            tid: t.tid.0,
            name: match t.name.as_str() {
                "" => process.name(),
                name => name.to_string(),
            },
            process: t.process.0 as usize,
            upid: process.upid.0,
            pid: process.pid.0,
            is_main: t.is_main,
            begin_ns: since_start(t.start_ns),
            end_ns: since_start(t.end_ns),
            started_by_utid: t.creator.map_or(0, |creator| trace.thread(creator).utid.0),
            start_stack: starts.place(trace, t.creator_stack),
            exact_cpu_ns: t.totals.map(|a| a.cpu_ns),
            exact_allocations: t.totals.map(|a| a.allocations),
            exact_allocated_bytes: t.totals.map(|a| a.allocated_bytes),
            system_calls: t.system_calls,
            call_bytes: (t.system_calls.as_ref())
                .filter(|_| t.knows_call_bytes)
                .map(CallBytes::of),
            wake_ups: (t.system_calls.as_ref())
                .filter(|_| t.knows_call_bytes)
                .map(|calls| calls.of(SystemCall::WakeUps)),
            capture_ns: t.capture_ns,
            merged: 0,
        }
    });
    let drops = trace.drops().iter().map(|l| {
        let cause = drop_causes::from_number(l.cause);
        DropsRow {
            utid: l.thread.map_or(0, |t| trace.thread(t).utid.0),
            cause: drop_causes::name(cause),
            count: l.count,
            description: drop_causes::describe(cause),
        }
    });
    let functions = trace.functions().iter().map(|f| FunctionName {
        name: f.name.clone(),
        module: f.module.clone(),
        file: f.file.clone(),
        line: f.line,
    });
    let mut builds: BTreeMap<String, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for module in trace.modules() {
        let known = builds.entry(module.path.clone()).or_default();
        known.insert(module.build_id.clone());
    }
    Metadata {
        recording: recording(trace),
        processes: processes.collect(),
        threads: threads.collect(),
        start_stacks: starts.names,
        drops: drops.collect(),
        functions: functions.collect(),
        builds,
        events: Vec::new(),
        events_left_out: 0,
        scopes: Vec::new(),
        counters: Vec::new(),
        thread_counters: Default::default(),
        long_waits: Vec::new(),
    }
}

/// The stacks in which threads were started, each once.
struct StartStacks {
    names: Vec<Vec<String>>,
    places: HashMap<StackIndex, usize>,
}

impl Default for StartStacks {
    fn default() -> Self {
        StartStacks {
            names: vec![Vec::new()],
            places: HashMap::from([(StackIndex::NONE, 0)]),
        }
    }
}

impl StartStacks {
    fn place(&mut self, trace: &Trace, stack: StackIndex) -> usize {
        *self.places.entry(stack).or_insert_with(|| {
            let frames = trace.stack_frames(stack).into_iter().rev();
            let name = |frame| trace.function(trace.frame(frame).function).name.clone();
            self.names.push(frames.map(name).collect());
            self.names.len() - 1
        })
    }
}

/// What a trace says about how it was made.
pub(crate) fn recording(trace: &Trace) -> Recording {
    let header = trace.header();
    let config = trace.config();
    let summary = trace.summary();
    let start_ns = trace.start_ns();
    let started_unix_ns = header.start.as_ref().map_or(0, |c| {
        // The recording's start is a little before or after the instant of this snapshot.
        (c.realtime_ns + start_ns).saturating_sub(c.monotonic_ns)
    });
    let timer_ns = match config.sampling_clock() {
        SamplingClock::Timer => config.timer_ns,
        _ => 0,
    };
    Recording {
        trace: trace.path().display().to_string(),
        command: header.command_line.clone(),
        hostname: header.hostname.clone(),
        os: header.os.clone(),
        machine: header.machine.clone(),
        cpus: header.cpus,
        cpu_model: header.cpu_model.clone(),
        stackbeat_version: header.stackbeat_version.clone(),
        started_unix_ns,
        start_ns,
        // The file's own end comes later: names are looked up after the program has ended.
        duration_ns: (trace.threads().iter().map(|t| t.end_ns).max())
            .unwrap_or(trace.end_ns())
            .saturating_sub(start_ns),
        interval_ns: config.interval_ns.max(timer_ns),
        main_interval_ns: config.main_interval_ns.max(timer_ns),
        probes: config.probes.clone(),
        outcome: outcome_name(summary.outcome()),
        state: state(trace),
        label: config.label.clone(),
        commit: config.commit.clone(),
        shares_processor: config.shares_processor,
        records_written: summary.records_written,
        records_stored: summary.records_stored,
        records_lost: summary.records_lost,
        hooks_only: trace.config().hooks_only,
        unrecorded: unrecorded::rows(&trace.unrecorded().programs()),
        unseen_cpu_ns: trace.unseen_cpu_ns(),
        counts_end_ns: (trace.settings().counts_end_ns()).map(|ns| ns.saturating_sub(start_ns)),
    }
}

/// How complete a trace is, in words: `complete`, `complete but for` what is missing, or what else it is.
pub(crate) fn state(trace: &Trace) -> String {
    let missing = missing(trace);
    let but_for = |state: &str| match missing.is_empty() {
        true => state.to_owned(),
        false => format!("{state} but for {}", missing.join(", and for ")),
    };
    let state = match trace.summary().outcome() {
        Outcome::Finished if lost(trace, Cause::Damaged) > 0 => {
            "damaged: the program has written over the recording's memory, so figures may be wrong"
                .to_owned()
        }
        Outcome::Finished => but_for("complete"),
        Outcome::Recovered => but_for("put together by `stackbeat recover`"),
        Outcome::Running if trace.config().in_memory => {
            "not finished: still recording, or killed (then there is no more: its records had no file)"
                .to_owned()
        }
        Outcome::Running => {
            "not finished: still recording, or killed (then `stackbeat recover` may find more)"
                .to_owned()
        }
        Outcome::DiskFull => "cut off: the disk was full".to_owned(),
        Outcome::WriteError => "cut off: the trace could not be written".to_owned(),
    };
    if trace.damage().is_empty() {
        return state;
    }
    let damaged = "damaged: parts of the file cannot be read, so figures may be wrong";
    match state.starts_with("complete") {
        true => damaged.to_owned(),
        false => format!("{damaged}; {state}"),
    }
}

/// How often a cause of loss has struck.
fn lost(trace: &Trace, cause: Cause) -> u64 {
    let drops = trace.drops().iter();
    (drops.filter(|dropped| dropped.cause == cause as i32))
        .map(|dropped| dropped.count)
        .fold(0, u64::saturating_add)
}

/// What a trace lacks without which its figures are not those of the whole recording: records, ends of
/// stacks, processes and threads. The other causes of loss are in the list of losses only: they leave out
/// what somebody chose to leave out (`--depth`, `--budget`), or cost a detail (who woke a thread, where a
/// stack began).
fn missing(trace: &Trace) -> Vec<String> {
    let summary = trace.summary();
    let written = summary.records_written;
    // A dump names what its threads have lost, and holds all of its own records.
    let overwritten = lost(trace, Cause::Overwritten).min(summary.records_lost);
    let others = summary.records_lost - overwritten;
    let mut missing = Vec::new();
    if overwritten > 0 {
        missing.push(format!(
            "{overwritten} of {written} records that newer ones have overwritten (it holds the end of the recording)"
        ));
    }
    if others > 0 {
        missing.push(match others {
            1 => format!("1 of {written} records that was lost"),
            _ => format!("{others} of {written} records that were lost"),
        });
    }
    match lost(trace, Cause::TableFull) {
        0 => {}
        1 => missing.push("the end of 1 stack that was cut".to_owned()),
        cut => missing.push(format!("the ends of {cut} stacks that were cut")),
    }
    // Programs without an agent may have come and gone before anybody looked.
    let is_unseen = |cause: &Cause| lost(trace, *cause) > 0;
    if !trace.unrecorded().programs().is_empty() || UNSEEN.iter().any(is_unseen) {
        missing.push("what ran unrecorded".to_owned());
    }
    missing
}

/// Causes that cost processes and threads.
const UNSEEN: [Cause; 5] = [
    Cause::NotHooked,
    Cause::ThreadTableFull,
    Cause::ProcessTableFull,
    Cause::NoAddressSpace,
    Cause::AgentDisabled,
];

/// The name of an outcome in JSON.
pub(crate) fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Running => "running",
        Outcome::Finished => "finished",
        Outcome::DiskFull => "disk_full",
        Outcome::Recovered => "recovered",
        Outcome::WriteError => "write_error",
    }
}

/// The last segment of a thread, to know which calls go on.
#[derive(Clone, Copy)]
struct Last {
    stack: StackIndex,
    place: u32,
    blocked: bool,
}

/// Adds segments to a profile and a timeline.
struct Adder {
    rows: Rows,
    profile: Profile,
    timeline: Timeline,
    events: Events,
    collected: Collected,
    with_timeline: bool,
    /// Place by stack, `u32::MAX` when not yet known.
    paths: Vec<u32>,
    last: HashMap<ThreadIndex, Last>,
    /// Stack of a thread's last wait for events.
    event_loops: HashMap<ThreadIndex, StackIndex>,
    /// Frames that go on from one stack to another.
    continuing: HashMap<(StackIndex, StackIndex), u32>,
    calibration_ns: Option<u64>,
    waits: Waits,
    long_waits: LongWaits,
    calls: CallSites,
    /// Of threads in deadlocks.
    places: Places,
}

impl Adder {
    fn new(bar_budget: usize, rows: Rows) -> Adder {
        Adder {
            rows,
            profile: Profile::default(),
            timeline: Timeline::new(bar_budget),
            events: Events::default(),
            collected: Collected::default(),
            with_timeline: bar_budget > 0,
            paths: Vec::new(),
            last: HashMap::new(),
            event_loops: HashMap::new(),
            continuing: HashMap::new(),
            calibration_ns: None,
            waits: Waits::default(),
            long_waits: LongWaits::default(),
            calls: CallSites::default(),
            places: Places::default(),
        }
    }

    fn path(&mut self, trace: &Trace, stack: StackIndex) -> u32 {
        let index = stack.0 as usize;
        if self.paths.len() <= index {
            self.paths
                .resize((index + 1).max(trace.stack_count() as usize), u32::MAX);
        }
        if self.paths[index] == u32::MAX {
            let frames = trace.stack_frames(stack);
            let functions: Vec<_> = frames.iter().map(|f| trace.frame(*f).function).collect();
            self.paths[index] = self.profile.tree.path(&functions);
        }
        self.paths[index]
    }

    /// The row of the thread in whose cells this one's amounts are summed up.
    fn row_of_owner(&self, thread: ThreadIndex) -> ThreadIndex {
        let owner = self.profile.owners.get(thread.0 as usize).copied();
        self.rows.row(owner.unwrap_or(thread))
    }

    /// Which frames go on from the thread's last segment, when it is not simply those that both places
    /// have in common. The rule is that of slices (docs/slices.md).
    fn common(&mut self, trace: &Trace, segment: &Segment, path: u32, place: u32) -> Option<u32> {
        let last = self.last.insert(
            segment.thread,
            Last {
                stack: segment.stack,
                place,
                blocked: place != path,
            },
        )?;
        let mut frames = self.continuing(trace, last.stack, segment.stack);
        if segment.new_iteration {
            // Calls that the event loop made have returned; the loop itself goes on.
            frames = match self.event_loops.get(&segment.thread).copied() {
                Some(event_loop) => frames.min(self.continuing(trace, event_loop, last.stack)),
                None => 0,
            };
        }
        if let SegmentKind::Blocked(probe) = segment.kind
            && probe.category() == Some(Category::Poll)
        {
            self.event_loops.insert(segment.thread, segment.stack);
        }
        let shared = self.profile.tree.common_depth(last.place, place);
        // A wait that follows a wait is another call.
        let at_most = match last.blocked && last.place == place {
            true => shared - 1,
            false => shared,
        };
        Some(frames.min(at_most)).filter(|common| *common != shared)
    }

    /// How many frames of `before` go on in `after`.
    fn continuing(&mut self, trace: &Trace, before: StackIndex, after: StackIndex) -> u32 {
        if before == after {
            return u32::MAX;
        }
        const REMEMBERED: usize = 1 << 20;
        if self.continuing.len() > REMEMBERED {
            self.continuing.clear();
        }
        *self.continuing.entry((before, after)).or_insert_with(|| {
            let before = trace.stack_frames(before);
            continuing(trace, &before, &trace.stack_frames(after))
        })
    }
}

/// How many frames, outermost first, are the same calls in both stacks: the functions are equal, and
/// so is the call site in each frame further out.
fn continuing(trace: &Trace, before: &[FrameIndex], after: &[FrameIndex]) -> u32 {
    let mut count = 0;
    for (a, b) in before.iter().zip(after) {
        let (a, b) = (trace.frame(*a), trace.frame(*b));
        if a.function != b.function {
            break;
        }
        count += 1;
        if a.address != b.address {
            break;
        }
    }
    count
}

impl Visitor for Adder {
    fn event(
        &mut self,
        trace: &Trace,
        thread: Option<ThreadIndex>,
        event: &Event,
        stack: StackIndex,
    ) {
        let place = match stack {
            StackIndex::NONE => ROOT,
            stack => self.path(trace, stack),
        };
        self.events.add(trace, thread, event, place);
        self.collected.event(trace, thread, event);
    }

    fn long_wait(&mut self, trace: &Trace, wait: &LongWait) {
        let waiting = self.path(trace, wait.stack);
        let waking = wait.wake.map(|wake| self.path(trace, wake.stack));
        let row = |thread: ThreadIndex| self.row_of_owner(thread);
        let wait_of_row = LongWait {
            thread: row(wait.thread),
            owner: wait.owner.map(row),
            waker: wait.waker.map(row),
            ..*wait
        };
        self.waits.add(&wait_of_row, waiting, waking);
        if self.rows.is_single(wait.thread) {
            self.long_waits.add(trace, &wait_of_row, waking);
        }
    }

    fn system_calls(&mut self, trace: &Trace, attributed: &AttributedCalls) {
        let place = self.path(trace, attributed.stack);
        let row = self.row_of_owner(attributed.thread);
        self.calls.add(row, place, attributed);
        self.collected.system_calls(attributed);
    }

    fn sample(&mut self, _: &Trace, thread: ThreadIndex, row: &SampleRow, _: StackIndex) {
        self.collected.sample(thread, row);
    }

    fn counter(&mut self, trace: &Trace, counter: &Counter) {
        if counter.name == CALIBRATION && counter.process.is_none() {
            let last = counter.values.last().map(|(_, value)| *value);
            self.calibration_ns = last.and_then(|ns| u64::try_from(ns).ok());
            return;
        }
        self.collected.counter(trace, counter);
    }

    fn thread_end(&mut self, trace: &Trace, thread: ThreadIndex, _: &ThreadTotals) {
        self.collected.thread_end(trace, thread);
    }

    fn segment(&mut self, trace: &Trace, segment: &Segment) {
        let path = self.path(trace, segment.stack);
        self.places.add(trace, segment, path);
        let row = self.rows.row(segment.thread);
        let segment_of_row = Segment {
            thread: row,
            ..*segment
        };
        let place = self.profile.add(&segment_of_row, path);
        let owner = self.row_of_owner(segment.thread);
        let waited_for = &mut self.profile.waited_for;
        waited_for.add(trace, segment, owner, path);
        self.collected.segment(trace, segment);
        if !self.with_timeline || !self.rows.is_single(segment.thread) {
            return;
        }
        let common = self.common(trace, segment, path, place);
        let length = segment.end_ns - segment.begin_ns;
        self.timeline.push(
            row,
            Bar {
                begin_ns: segment.begin_ns,
                end_ns: segment.end_ns,
                place,
                place_ns: length,
                cpu_ns: segment.metrics.cpu_ns,
                allocated_bytes: segment.metrics.allocated_bytes,
                common,
            },
        );
        debug_assert!(place != ROOT || segment.runs());
    }
}
