//! From the samples of one thread to its segments: a state machine that sees one sample after the other and
//! keeps only the last one, and what ticks met in bursts between waits. `docs/slices.md` says why it decides
//! as it does.
//!
//! Two neighbouring samples A and B leave an interval between the end of A and the begin of B:
//!
//! ```text
//!        A's end                                             B's begin   B's end
//!   ────────┤  A's stack  ├──── gap, if any ────┤  B's stack  ├─ the call ─┤
//! ```

mod between;
mod bursts;
mod held;
mod metrics;

use stackbeat_core::probe::{Category, Cause, Probe};
use stackbeat_core::shm::record_format::flags;

use self::between::{Between, gap_bound_ns};
pub(super) use self::bursts::Bursts;
use self::bursts::{Burst, Found};
use self::held::Held;
use self::metrics::{difference, share, split_off_call, take_share};
use super::inferred_waits::{self, Wait};
use super::sampled_events::{self, Moment, SampledEvents};
use super::settings_in_force::Identity;
use super::{
    Evidence, Metrics, ProbeId, Rusage, SampleRow, Segment, SegmentKind, Settings, StackIndex,
    ThreadIndex, Trace,
};

/// Interval assumed when the file does not say one.
const DEFAULT_INTERVAL_NS: u64 = 1_000_000;

/// Intervals that a thread may spend off the CPU between two samples and still count as running (or
/// ready to run) its neighbours' code.
const GAP_INTERVALS: u64 = 2;

/// So many intervals of CPU time at most between two samples of which the second is a hook's, in a thread
/// that can be interrupted.
const MOST_UNMET_INTERVALS: u64 = 16;

/// A tick that a longer call takes notice of came inside of it, not in front: hooks that come to a tick later
/// than within some microseconds are interrupted.
const SHORT_CALL_NS: u64 = 50_000;

/// What is remembered of the last sample.
#[derive(Clone, Copy, Debug)]
struct Last {
    end_ns: u64,
    stack: StackIndex,
    record: u64,
    /// Speaks for the time around it, see `Between::bounds`.
    speaks: bool,
    /// A tick found it waiting: it speaks for time off the CPU only.
    waits: bool,
    is_of_life: bool,
    /// It waited for a processor there, in the middle of a burst.
    is_in_burst: bool,
    /// The running time that it stands for so far.
    weight_ns: u64,
}

/// A sample (B), and the time since the one before it (A).
#[derive(Clone, Copy, Debug)]
struct Step {
    /// A's end; B's begin and end.
    from: u64,
    begin: u64,
    end: u64,
    probe: ProbeId,
    /// Samples are missing between them.
    lost: bool,
    /// When the session was switched off between them.
    off: Option<(u64, u64)>,
    /// What the thread used since A, but for `inside`.
    delta: Metrics,
    /// What it used in B, a call that blocks.
    inside: Metrics,
    /// B is a call that waits.
    blocks: bool,
    /// B was taken by a tick that found it waiting: it speaks for time off the CPU only.
    waits: bool,
    /// B speaks for the time around it, see `Between::bounds`.
    speaks: bool,
    /// B lies inside of a wait that ends later.
    is_inside: bool,
    /// How often the thread gave the CPU up since A, and how often by B's own wait.
    voluntary: u64,
    own_waits: u64,
    /// The thread gave the CPU up only when others were given it, and how often it was taken away.
    preempted: bool,
    /// A thread that was there before waited when it was met first.
    came_waiting: bool,
    /// The first wait since A that was seen from outside.
    wait: Option<Wait>,
    /// B is a call whose wait is counted where it was longest, before A.
    is_counted: bool,
}

impl Step {
    /// It was kept waiting for the CPU, and interrupted as soon as it came back: all the while it was where B
    /// is.
    fn waited_at_b(&self) -> bool {
        self.preempted && self.probe == ProbeId::from(Probe::Running)
    }

    /// It waited for a processor in the middle of what it did: nothing ends there.
    fn is_in_burst(&self) -> bool {
        !self.speaks && !self.blocks && self.waited_at_b()
    }

    /// Nothing between A and B can be told apart.
    fn is_torn(&self) -> bool {
        self.lost || self.off.is_some()
    }
}

/// How the time between two samples is cut.
#[derive(Debug)]
struct Cut {
    /// A's end and B's begin, without time off the CPU that belongs to their waits.
    from: u64,
    begin: u64,
    /// Where A's part ends, and B's begins; between them is a gap.
    a_end: u64,
    b_begin: u64,
    /// Whose A's part is, where no tick met A.
    found: Option<Found>,
    /// Ticks met that one in other bursts only.
    is_of_another_burst: bool,
    /// Nothing tells whose work the gap was.
    is_nobodys: bool,
}

/// What a thread used between two samples: in A's part, in the gap, in B's part.
#[derive(Debug)]
struct Shares {
    a: Metrics,
    gap: Metrics,
    b: Metrics,
}

/// Cuts one thread's time. Segments go to the closure that each call gets, in order of time.
#[derive(Debug)]
pub(super) struct Segmenter {
    thread: ThreadIndex,
    identity: Identity,
    start_ns: u64,
    end_ns: u64,
    /// The interval in force around the last sample.
    interval_ns: u64,
    last: Option<Last>,
    /// Highest totals seen, as a base for differences.
    seen: Metrics,
    /// CPU time that the thread had used before `start_ns`.
    pub cpu_before_start_ns: u64,
    /// The last segment, still growing while the stack stays the same.
    pending: Option<Segment>,
    /// Those before it, from a gap on.
    held: Held,
    /// The next segment begins an iteration of an event loop.
    iteration: bool,
    sampled_events: SampledEvents,
    /// Samples are missing before a counted one.
    lost: bool,
    /// All records so far are there: numbers that no sample has are those of other records.
    pub is_complete: bool,
    /// The samples since the last one that does not speak, and the stack of that one.
    burst: Burst,
    burst_from: Option<StackIndex>,
    /// That one is a wait that a tick met, or others had the processor since.
    burst_is_by_chance: bool,
    /// How often the thread gave the CPU up in the stretch at hand.
    sleeps: u64,
    /// Running time that no sample speaks for. It follows one rule, so it counts as one sample.
    guessed_ns: u64,
}

impl Segmenter {
    /// `times`: its start and end; `cpu_before_ns`: CPU
    /// time that it is known to have used before.
    pub(crate) fn new(
        thread: ThreadIndex,
        identity: Identity,
        times: (u64, u64),
        cpu_before_ns: u64,
    ) -> Segmenter {
        Segmenter {
            thread,
            identity,
            start_ns: times.0,
            end_ns: times.1,
            interval_ns: DEFAULT_INTERVAL_NS,
            last: None,
            seen: Metrics {
                cpu_ns: cpu_before_ns,
                ..Metrics::default()
            },
            cpu_before_start_ns: cpu_before_ns,
            pending: None,
            held: Held::default(),
            iteration: false,
            sampled_events: SampledEvents::default(),
            lost: false,
            is_complete: false,
            burst: Burst::default(),
            burst_from: None,
            burst_is_by_chance: false,
            sleeps: 0,
            guessed_ns: 0,
        }
    }

    /// Takes a sample that allocations caused: it says who allocates, and nothing about time.
    pub(crate) fn sampled_event(
        &mut self,
        kind: sampled_events::Kind,
        row: &SampleRow,
        stack: StackIndex,
    ) {
        self.pass(row);
        let allocations = row.allocations.saturating_sub(self.seen.allocations);
        let bytes = row
            .allocated_bytes
            .saturating_sub(self.seen.allocated_bytes);
        self.seen.allocations += allocations;
        self.seen.allocated_bytes += bytes;
        let grown = sampled_events::Grown { allocations, bytes };
        self.sampled_events
            .sample(kind, (row.time_ns, stack), grown);
    }

    /// Takes a sample that a call caused: it says where the thread was then.
    pub(crate) fn seen(&mut self, row: &SampleRow, stack: StackIndex) {
        self.pass(row);
        self.sampled_events.seen(row.time_ns, stack);
    }

    /// Takes a sample that says nothing about time: no sample is missing in its place.
    fn pass(&mut self, row: &SampleRow) {
        if let Some(last) = &mut self.last {
            self.lost |= !self.is_complete && row.record > last.record.saturating_add(1);
            last.record = row.record;
        }
    }

    /// Takes the next sample. `iteration_ns`: a moment since the last sample at which an event loop began
    /// an iteration, if the file marks one.
    pub(crate) fn sample(
        &mut self,
        row: &SampleRow,
        stack: StackIndex,
        iteration_ns: Option<u64>,
        trace: &Trace,
        bursts: &mut Bursts,
        out: &mut impl FnMut(&Segment),
    ) {
        let mut step = self.step(row, trace);
        let call_ns = step.end.saturating_sub(row.duration_ns);
        if step.blocks && call_ns < step.from {
            let part = |gap| blocked(gap, step.probe, row.arg, stack);
            let rest_ns = step.end - step.begin;
            step.is_counted = self.held.fill(call_ns, rest_ns, part);
        }
        let mut has_iterated = row.flags & flags::LOOP_ITERATION != 0 || iteration_ns.is_some();
        let hooks_only = trace.config.hooks_only;
        let cut = self.cut(&step, stack, iteration_ns, hooks_only, bursts, out);
        let shares = self.share_out(&step, &cut);
        if cut.found.is_some() {
            self.iteration |= std::mem::take(&mut has_iterated);
        }
        self.end_last(&cut, shares.a, out);
        self.hand_out_sampled(cut.b_begin, cut.a_end, out);
        if cut.b_begin > cut.a_end {
            let common = match self.last {
                Some(last) => trace.stacks.common(last.stack, stack),
                None => StackIndex::NONE,
            };
            // B's own wait is none of those between.
            self.sleeps = step.voluntary.saturating_sub(u64::from(step.blocks));
            let between = (cut.a_end, cut.b_begin);
            self.gap(common, between, shares.gap, &trace.waits, out);
        }
        self.iteration |= has_iterated;
        if step.is_torn() {
            self.burst = Burst::default();
            self.burst_from = None;
        }
        self.burst.run(shares.b.cpu_ns);
        self.meet_burst(&step, stack, bursts);
        let weight_ns = self.begin_next(row, &step, &cut, shares.b, stack, out);
        if step.probe.category() == Some(Category::Poll) {
            self.iteration = true;
        }
        self.last = Some(Last {
            end_ns: step.end,
            stack,
            record: row.record,
            speaks: step.speaks,
            waits: step.waits,
            is_of_life: is_of_life(step.probe),
            is_in_burst: step.is_in_burst(),
            weight_ns,
        });
    }

    /// Where the time between two samples is A's, and where B's.
    fn cut(
        &mut self,
        step: &Step,
        stack: StackIndex,
        iteration_ns: Option<u64>,
        hooks_only: bool,
        bursts: &mut Bursts,
        out: &mut impl FnMut(&Segment),
    ) -> Cut {
        let (mut from, mut begin) = (step.from, step.begin);
        // A burst that no tick met is that of a stack which one has met there; the rest of one that was met
        // is that of the stack where it was.
        let busy_ns = step.delta.cpu_ns.min(begin - from);
        let unmet = (self.last)
            .filter(|last| !last.speaks && !step.speaks && !step.is_torn() && begin > from);
        let goes_on = match unmet {
            Some(last) if last.is_in_burst && step.preempted => self.burst.more(busy_ns),
            _ => None,
        };
        let elsewhere = match (unmet, goes_on) {
            (Some(last), None) => {
                // Between two waits for a processor it is a part of the burst, whose end nobody knows yet.
                let begun = self.burst_from.filter(|_| last.is_in_burst);
                let anybodys = (last.is_of_life, is_of_life(step.probe));
                let to = (!step.is_in_burst()).then_some(stack);
                bursts.spend((begun.unwrap_or(last.stack), to), anybodys, busy_ns)
            }
            _ => None,
        };
        let found = goes_on.or(elsewhere);
        let a_waits = self.last.is_some_and(|last| last.waits);
        let a_speaks = self.last.map(|last| last.speaks || found.is_some());
        let is_known = step.speaks || a_speaks == Some(true);
        if is_known && !step.preempted && !step.is_torn() && iteration_ns.is_none() {
            (from, begin) = self.idle_beside_waits(step, a_waits, out);
        }
        // Where nobody interrupts, a hook says where the thread was then, and nothing of the time before. A
        // thread that computes for so long without an interruption cannot be interrupted.
        let is_unmet = step.probe != ProbeId::from(Probe::Running)
            && self.last.is_some()
            && busy_ns > self.interval_ns.saturating_mul(MOST_UNMET_INTERVALS);
        let is_unknown = step.lost || hooks_only || is_unmet;
        // No tick met it between its begin or end and another sample that does not speak.
        let is_unseen = a_speaks == Some(false)
            && !step.speaks
            && (is_of_life(step.probe) || self.last.is_some_and(|last| last.is_of_life));
        let (mut a_end, mut b_begin) = Between {
            from,
            to: begin,
            interval_ns: self.interval_ns,
            cpu_ns: step.delta.cpu_ns,
            lost: is_unknown,
            preempted: step.preempted,
            waited_at_b: step.waited_at_b(),
            // Where nothing is known of the time on it, waits speak for all.
            a_speaks: a_speaks.map(|speaks| speaks || !is_known && a_waits),
            b_speaks: step.speaks || !is_known && step.waits,
            is_unseen,
            b_is_inside: step.is_inside,
            off: step.off,
            wait_ns: (step.wait.map(|wait| wait.begin_ns)).filter(|at| *at < begin),
        }
        .bounds();
        if let Some(iteration_ns) = iteration_ns
            && a_end == b_begin
            && found.is_none()
        {
            // The iteration's begin tells better than the middle where the change lies.
            a_end = iteration_ns.clamp(from, begin);
            b_begin = a_end;
        }
        Cut {
            from,
            begin,
            a_end,
            b_begin,
            found,
            is_of_another_burst: elsewhere.is_some(),
            is_nobodys: is_unknown || is_unseen,
        }
    }

    /// What happened between the samples, shared out over A's part, the gap and B's part.
    fn share_out(&mut self, step: &Step, cut: &Cut) -> Shares {
        let mut delta = step.delta;
        let whole = cut.begin - cut.from;
        let (a_wall, b_wall) = (cut.a_end - cut.from, cut.begin - cut.b_begin);
        let gap_wall = cut.b_begin - cut.a_end;
        let mut gap = Metrics::default();
        if let Some((begin, end)) = step.off {
            let begin = if self.last.is_some() { begin } else { cut.from };
            gap = take_share(&mut delta, (end - begin).min(gap_wall), whole);
        } else if cut.is_nobodys && gap_wall != 0 {
            gap.cpu_ns = share(delta.cpu_ns, gap_wall, whole);
            delta.cpu_ns -= gap.cpu_ns;
        }
        self.sampled_events.keep(&mut delta);
        let mut a = Metrics::default();
        if self.last.is_some() && a_wall + b_wall != 0 {
            let part = |amount: u64| share(amount, a_wall, a_wall + b_wall);
            // A thread that was kept waiting for the CPU did not run in all of its time.
            a.cpu_ns = match step.waited_at_b() {
                true => delta.cpu_ns.min(a_wall),
                false => part(delta.cpu_ns),
            };
            // A sample taken by an allocation is itself evidence of who allocates.
            if step.probe.category() != Some(Category::Alloc) {
                a.allocations = part(delta.allocations);
                a.allocated_bytes = part(delta.allocated_bytes);
                a.frees = part(delta.frees);
            }
            delta = difference(&delta, &a);
        }
        let never_waited =
            !step.lost && !step.is_inside && step.voluntary <= step.own_waits && !step.came_waiting;
        if never_waited && gap_wall == 0 && step.off.is_none() {
            // Off the CPU without having given it up: others had it, or the host, or an interrupt.
            let b_end = if step.blocks { cut.begin } else { step.end };
            a.runnable_ns = a_wall.saturating_sub(a.cpu_ns);
            delta.runnable_ns = (b_end - cut.b_begin).saturating_sub(delta.cpu_ns);
        }
        Shares { a, gap, b: delta }
    }

    /// A's part.
    fn end_last(&mut self, cut: &Cut, metrics: Metrics, out: &mut impl FnMut(&Segment)) {
        let Some(last) = self.last else {
            return;
        };
        if cut.a_end == cut.from && metrics == Metrics::default() {
            return;
        }
        let (stack, evidence) = match &cut.found {
            Some(found) => (found.stack, found.evidence),
            None => (last.stack, self.evidence_of_last(metrics.cpu_ns)),
        };
        self.push_known(stack, evidence, (cut.from, cut.a_end), metrics, out);
        // What is paid to others is not of those that ticks meet in it later.
        if !cut.is_of_another_burst {
            self.burst.run(metrics.cpu_ns);
        }
    }

    /// B's part, and B itself. Gives the CPU time that B stands for so far.
    fn begin_next(
        &mut self,
        row: &SampleRow,
        step: &Step,
        cut: &Cut,
        mut metrics: Metrics,
        stack: StackIndex,
        out: &mut impl FnMut(&Segment),
    ) -> u64 {
        let mut weight_ns = 0;
        let cpu_ns = metrics.cpu_ns;
        if step.blocks {
            if step.begin > cut.b_begin || metrics != Metrics::default() {
                let evidence = self.evidence_of(&mut weight_ns, step.speaks, cpu_ns);
                self.push_known(stack, evidence, (cut.b_begin, step.begin), metrics, out);
            }
            self.hand_out_sampled(u64::MAX, step.begin, out);
            self.push_call(row, step, stack, out);
        } else {
            // A call that does not wait is known from its begin to its end.
            let to = match row.duration_ns {
                0 => cut.begin,
                _ => step.end,
            };
            metrics.samples += 1;
            let evidence = self.evidence_of(&mut weight_ns, step.speaks, cpu_ns);
            self.push_known(stack, evidence, (cut.b_begin, to), metrics, out);
            self.hand_out_sampled(u64::MAX, to, out);
        }
        weight_ns
    }

    /// What there is to say of a sample before its time is shared out.
    fn step(&mut self, row: &SampleRow, trace: &Trace) -> Step {
        let from = self.last.map_or(self.start_ns, |last| last.end_ns);
        let end = row.time_ns.clamp(from, self.end_ns.max(from));
        let begin = end.saturating_sub(row.duration_ns).max(from);
        let probe = ProbeId(row.probe);
        self.take_interval(&trace.settings, from, end);
        let is_next = |last: Last| row.record <= last.record.saturating_add(1);
        let lost = std::mem::take(&mut self.lost)
            || !self.is_complete && self.last.is_some_and(|last| !is_next(last));

        let mut delta = self.delta(row);
        let voluntary = delta.voluntary_switches;
        if self.last.is_none() {
            // A thread that is older than its first image here, by exec or attach, comes with CPU
            // time that belongs to before.
            let before = delta.cpu_ns.saturating_sub(end - from);
            self.cpu_before_start_ns += before;
            delta.cpu_ns -= before;
        }
        let blocks = row.duration_ns != 0 && probe.cause() != Cause::None;
        let own_waits = u64::from(blocks && has_given_up(row, probe.cause(), &delta));
        let wait = self.next_wait(&trace.waits, from);
        // Of a thread that was there before, the switches are not told apart from those of before.
        let came_waiting = self.last.is_none() && wait.is_some_and(|wait| wait.begin_ns < begin);
        let inside = if blocks {
            // A timer may be over before its thread is switched away. A read or a write that was not, or only
            // for others, has worked. Not every system counts switches.
            let Metrics {
                voluntary_switches,
                involuntary_switches,
                ..
            } = self.seen;
            let works = matches!(probe.cause(), Cause::Io | Cause::Net)
                && voluntary == 0
                && voluntary_switches.saturating_add(involuntary_switches) > 0
                && !lost
                && !came_waiting;
            split_off_call(&mut delta, row, works, begin - from, end - begin)
        } else {
            Metrics::default()
        };

        let is_of_tick =
            row.flags & flags::FORCED == 0 && (!blocks || row.duration_ns < self.interval_ns);
        let waits = is_of_tick && blocks && voluntary > 0 && row.duration_ns >= SHORT_CALL_NS;
        let speaks = is_of_tick && !waits && !is_of_life(probe);
        // B's own wait is a voluntary switch, but not one between A and B. One that lies inside of a wait
        // comes after the switch of that, if there was one. A single switch is of who was off the CPU for
        // longer: a handler's own call may have lost it.
        let off_before_ns = (begin - from).saturating_sub(delta.cpu_ns);
        let is_inside = row.flags & flags::INSIDE != 0
            && (voluntary > own_waits || voluntary != 0 && off_before_ns > row.duration_ns);
        let preempted =
            !is_inside && row.rusage.is_some() && voluntary <= own_waits && !came_waiting;
        Step {
            from,
            begin,
            end,
            probe,
            lost,
            off: trace.settings.off_between(from, begin),
            delta,
            inside,
            blocks,
            waits,
            speaks,
            is_inside,
            voluntary,
            own_waits,
            preempted,
            came_waiting,
            wait,
            is_counted: false,
        }
    }

    /// Time off the CPU is that of waits, as far as nobody else is known to have had it: A's and B's, where
    /// ticks found them waiting. Gives where the time between them begins and ends without it.
    fn idle_beside_waits(
        &mut self,
        step: &Step,
        a_waits: bool,
        out: &mut impl FnMut(&Segment),
    ) -> (u64, u64) {
        let Step { from, begin, .. } = *step;
        let idle_ns = (begin - from).saturating_sub(step.delta.cpu_ns);
        if !(a_waits || step.waits) || idle_ns > gap_bound_ns(self.interval_ns) {
            return (from, begin);
        }
        let after_a = match (a_waits, step.waits) {
            (true, true) => idle_ns / 2,
            (true, false) => idle_ns,
            (false, _) => 0,
        };
        let begin = begin - (idle_ns - after_a);
        let Some(last) = self.last.filter(|_| after_a != 0) else {
            return (from, begin);
        };
        let (to, nothing) = (from + after_a, Metrics::default());
        self.push(last.stack, SegmentKind::Running, from, to, nothing, out);
        (to, begin)
    }

    /// A burst ends at a sample that does not speak, and another one begins; one that speaks lies in it, and
    /// so does a wait for a processor.
    fn meet_burst(&mut self, step: &Step, stack: StackIndex, bursts: &mut Bursts) {
        if step.speaks {
            self.burst.met(stack);
            // Where no tick met it, its time is in the burst.
            self.burst.run(step.inside.cpu_ns);
            return;
        }
        if step.is_in_burst() {
            // It may be of any length, and ticks meet it only while it has a processor.
            self.burst_is_by_chance = true;
            if let Some(last) = self.last.filter(|last| last.speaks) {
                self.burst.goes_on_from(last.weight_ns);
            }
            return;
        }
        if let Some(from) = self.burst_from {
            let by_chance = step.waits || self.burst_is_by_chance;
            bursts.keep((from, stack), &self.burst, self.interval_ns, by_chance);
        }
        self.burst_is_by_chance = step.waits;
        self.burst = Burst::default();
        self.burst_from = Some(stack);
    }

    /// The call that blocked.
    fn push_call(
        &mut self,
        row: &SampleRow,
        step: &Step,
        stack: StackIndex,
        out: &mut impl FnMut(&Segment),
    ) {
        let call = Segment {
            thread: self.thread,
            begin_ns: step.begin,
            end_ns: step.end,
            stack,
            kind: SegmentKind::Blocked(step.probe),
            metrics: Metrics {
                samples: 1,
                ..step.inside
            },
            evidence: Evidence::default(),
            arg: row.arg.map(|(arg, _)| arg),
            result: row.arg.map(|(_, result)| result),
            waker_tid: row.waker_tid,
            new_iteration: std::mem::take(&mut self.iteration),
            is_inferred: step.is_counted,
        };
        self.flush(out);
        self.pending = Some(call);
    }

    /// The thread has no more samples. `totals` are its exact counters at its end, if known.
    pub(crate) fn finish(
        &mut self,
        totals: Option<&Metrics>,
        trace: &Trace,
        out: &mut impl FnMut(&Segment),
    ) {
        let (settings, waits) = (&trace.settings, &trace.waits);
        let from = self.last.map_or(self.start_ns, |last| last.end_ns);
        let end = self.end_ns.max(from);
        self.take_interval(settings, from, end);
        let mut rest = Metrics::default();
        if let Some(totals) = totals {
            rest = difference(totals, &self.seen);
            if self.last.is_none() {
                let before = rest.cpu_ns.saturating_sub(end - from);
                self.cpu_before_start_ns += before;
                rest.cpu_ns -= before;
            }
        }
        let off = match self.last {
            Some(_) => settings.off_between(from, end),
            None => None,
        };
        let mut in_gap = Metrics::default();
        // It had the CPU taken away, never gave it up, and nobody saw it wait.
        let hooks_only = trace.config.hooks_only;
        self.sleeps = rest.voluntary_switches;
        let is_preempted = self.last.is_some()
            && !hooks_only
            && off.is_none()
            && rest.voluntary_switches == 0
            && rest.involuntary_switches > 0
            && self.next_wait(waits, from).is_none();
        if is_preempted {
            rest.runnable_ns = (end - from).saturating_sub(rest.cpu_ns);
        }
        let until = match off {
            _ if is_preempted => end,
            // Switched off and perhaps on again, without a sample since.
            Some((at, _)) => {
                in_gap = take_share(&mut rest, end - at, end - from);
                at
            }
            None if hooks_only && end - from > gap_bound_ns(self.interval_ns) => {
                let at = from + gap_bound_ns(self.interval_ns) / 2;
                in_gap = take_share(&mut rest, end - at, end - from);
                at
            }
            None => {
                let until = self.evident_until((from, end), rest.cpu_ns, waits);
                // What does not fit before a wait that was seen comes behind it.
                let fits = match until < end {
                    true => rest.cpu_ns.min(until - from),
                    false => rest.cpu_ns,
                };
                in_gap.cpu_ns = rest.cpu_ns - fits;
                rest.cpu_ns = fits;
                until
            }
        };
        self.sampled_events.keep(&mut rest);
        self.sampled_events.close();
        match self.last {
            None => {
                self.hand_out_sampled(u64::MAX, from, out);
                rest.add(&in_gap);
                if end > from || rest != Metrics::default() {
                    self.gap(StackIndex::NONE, (from, end), rest, waits, out);
                }
            }
            Some(last) => {
                if until > from || rest != Metrics::default() || off.is_some() {
                    let evidence = self.evidence_of_last(rest.cpu_ns);
                    self.push_known(last.stack, evidence, (from, until), rest, out);
                }
                self.hand_out_sampled(u64::MAX, until, out);
                if end > until || off.is_some() {
                    let stack = match off {
                        Some(_) => StackIndex::NONE,
                        None => last.stack,
                    };
                    self.gap(stack, (until, end), in_gap, waits, out);
                }
            }
        }
        self.flush(out);
        self.held.finish(out);
    }

    /// How far the last sample speaks for a thread that has no more, and used this CPU time since.
    fn evident_until(&self, (from, end): (u64, u64), cpu_ns: u64, waits: &[Wait]) -> u64 {
        let off = (end - from).saturating_sub(cpu_ns);
        if off <= gap_bound_ns(self.interval_ns) {
            return end;
        }
        let until = end - off;
        let soon = until.saturating_add(gap_bound_ns(self.interval_ns));
        if let Some(wait) = self.next_wait(waits, until)
            && wait.begin_ns <= soon
        {
            // It says when the place was left.
            return wait.begin_ns.min(end);
        }
        // In a wait at its end, the thread has used the rest of its CPU time while it waited: a handler did,
        // or we.
        let last = inferred_waits::between(waits, self.thread, from, end).last();
        last.filter(|wait| wait.end_ns >= end)
            .map_or(until, |wait| wait.begin_ns.clamp(from, until))
    }

    /// Gives what counted samples up to a moment got to their stacks: segments without length, at a boundary.
    fn hand_out_sampled(&mut self, to: u64, at: u64, out: &mut impl FnMut(&Segment)) {
        while let Some(moment) = self.sampled_events.take_until(to) {
            self.push_moment(&moment, at, out);
        }
    }

    fn push_moment(&mut self, moment: &Moment, at: u64, out: &mut impl FnMut(&Segment)) {
        let (stack, metrics) = (moment.stack, moment.metrics);
        self.push(stack, SegmentKind::Running, at, at, metrics, out);
    }

    fn take_interval(&mut self, settings: &Settings, from: u64, to: u64) {
        self.interval_ns = match settings.interval_ns(self.identity, from, to) {
            0 => DEFAULT_INTERVAL_NS,
            ns => ns,
        };
    }

    /// Totals that `row` adds to what has been seen.
    fn delta(&mut self, row: &SampleRow) -> Metrics {
        let usage = row.rusage.unwrap_or(Rusage {
            minor_faults: self.seen.minor_faults,
            major_faults: self.seen.major_faults,
            voluntary_switches: self.seen.voluntary_switches,
            involuntary_switches: self.seen.involuntary_switches,
        });
        let now = Metrics {
            cpu_ns: row.cpu_ns.max(self.seen.cpu_ns),
            allocations: row.allocations.max(self.seen.allocations),
            allocated_bytes: row.allocated_bytes.max(self.seen.allocated_bytes),
            frees: row.frees.max(self.seen.frees),
            minor_faults: usage.minor_faults.max(self.seen.minor_faults),
            major_faults: usage.major_faults.max(self.seen.major_faults),
            voluntary_switches: usage.voluntary_switches.max(self.seen.voluntary_switches),
            involuntary_switches: usage
                .involuntary_switches
                .max(self.seen.involuntary_switches),
            runnable_ns: 0,
            samples: 0,
        };
        let delta = difference(&now, &self.seen);
        self.seen = now;
        delta
    }

    /// The first wait from a moment on that was seen from outside.
    fn next_wait(&self, waits: &[Wait], from: u64) -> Option<Wait> {
        let waits = inferred_waits::of_thread(waits, self.thread);
        let at = waits.partition_point(|wait| wait.begin_ns < from);
        waits.get(at).copied()
    }

    /// A stretch without evidence of the thread's own: what was seen of it from outside, the rest is a gap.
    /// Waits that began before are those of its samples.
    fn gap(
        &mut self,
        stack: StackIndex,
        (mut at, to): (u64, u64),
        mut metrics: Metrics,
        waits: &[Wait],
        out: &mut impl FnMut(&Segment),
    ) {
        // Each wait is a switch: where there were more, waits in the same place were seen as one.
        let seen = inferred_waits::between(waits, self.thread, at, to).count() as u64;
        // Of a thread without a sample so far they are those of all its life.
        let are_more = self.last.is_some() && self.sleeps > seen;
        for wait in inferred_waits::between(waits, self.thread, at, to) {
            if wait.begin_ns > at {
                let mut before = std::mem::take(&mut metrics);
                // CPU time that has no room there lies behind the waits, or is theirs.
                metrics.cpu_ns = before.cpu_ns.saturating_sub(wait.begin_ns - at);
                before.cpu_ns -= metrics.cpu_ns;
                // Shortly before is part of the way there.
                let (stack, kind) = match self.last {
                    Some(last) if wait.begin_ns - at <= gap_bound_ns(self.interval_ns) => {
                        (last.stack, SegmentKind::Running)
                    }
                    _ => (stack, SegmentKind::Gap),
                };
                self.push(stack, kind, at, wait.begin_ns, before, out);
            }
            self.flush(out);
            let mut during = std::mem::take(&mut metrics);
            metrics.cpu_ns = std::mem::take(&mut during.cpu_ns);
            self.pending = Some(Segment {
                thread: self.thread,
                begin_ns: wait.begin_ns,
                end_ns: wait.end_ns,
                stack: wait.stack,
                kind: SegmentKind::Blocked(wait.probe),
                metrics: during,
                evidence: Evidence::default(),
                arg: Some(wait.arg),
                result: None,
                waker_tid: None,
                new_iteration: std::mem::take(&mut self.iteration),
                is_inferred: wait.is_inferred || (are_more && !wait.is_hooked),
            });
            self.iteration = wait.probe.category() == Some(Category::Poll);
            at = wait.end_ns;
        }
        if at < to || metrics != Metrics::default() {
            self.push(stack, SegmentKind::Gap, at, to, metrics, out);
        }
    }

    /// What so much CPU time after the last sample stands on.
    fn evidence_of_last(&mut self, cpu_ns: u64) -> Evidence {
        let Some(mut last) = self.last else {
            return Evidence::default();
        };
        let evidence = self.evidence_of(&mut last.weight_ns, last.speaks, cpu_ns);
        self.last = Some(last);
        evidence
    }

    /// What so much CPU time around a sample stands on. That in which others had the processor counts for no
    /// function, so no sample weighs more by it.
    fn evidence_of(&mut self, weight_ns: &mut u64, speaks: bool, cpu_ns: u64) -> Evidence {
        match speaks {
            true => Evidence::of_more(weight_ns, cpu_ns),
            false => Evidence {
                samples: 0,
                ..Evidence::of_more(&mut self.guessed_ns, cpu_ns)
            },
        }
    }

    fn push_known(
        &mut self,
        stack: StackIndex,
        evidence: Evidence,
        (mut begin_ns, end_ns): (u64, u64),
        mut metrics: Metrics,
        out: &mut impl FnMut(&Segment),
    ) {
        // Where the thread was seen elsewhere in between, it was not here then. The sample is one, and stays
        // whole.
        let samples = std::mem::take(&mut metrics.samples);
        while let Some(moment) = self.sampled_events.take_until(end_ns) {
            let at = moment.at_ns.max(begin_ns);
            if at > begin_ns {
                let before = take_share(&mut metrics, at - begin_ns, end_ns - begin_ns);
                self.push(stack, SegmentKind::Running, begin_ns, at, before, out);
                begin_ns = at;
            }
            self.push_moment(&moment, at, out);
        }
        metrics.samples = samples;
        self.push(stack, SegmentKind::Running, begin_ns, end_ns, metrics, out);
        if let Some(pending) = &mut self.pending {
            pending.evidence += evidence;
        }
    }

    fn push(
        &mut self,
        stack: StackIndex,
        kind: SegmentKind,
        begin_ns: u64,
        end_ns: u64,
        metrics: Metrics,
        out: &mut impl FnMut(&Segment),
    ) {
        if let Some(pending) = &mut self.pending
            && pending.stack == stack
            && pending.kind == kind
            && !self.iteration
        {
            pending.end_ns = end_ns;
            pending.metrics.add(&metrics);
            return;
        }
        self.flush(out);
        self.pending = Some(Segment {
            thread: self.thread,
            begin_ns,
            end_ns,
            stack,
            kind,
            metrics,
            evidence: Evidence::default(),
            arg: None,
            result: None,
            waker_tid: None,
            new_iteration: std::mem::take(&mut self.iteration),
            is_inferred: false,
        });
    }

    fn flush(&mut self, out: &mut impl FnMut(&Segment)) {
        if let Some(segment) = self.pending.take() {
            self.held.push(segment, out);
        }
    }
}

/// Such samples come where a thread's life has them, whatever the ticks: at its begin and its end.
fn is_of_life(probe: ProbeId) -> bool {
    matches!(
        probe.known(),
        Some(Probe::ThreadStart | Probe::ThreadExit | Probe::Exit | Probe::Exec | Probe::Crash)
    )
}

/// Whether a call that blocks has surely given the CPU up itself: it was off it for most of its time, and not
/// because others had it. `delta`: what was used since the sample before, the call included.
fn has_given_up(row: &SampleRow, cause: Cause, delta: &Metrics) -> bool {
    let was_off = row.duration_ns >= SHORT_CALL_NS && delta.cpu_ns <= row.duration_ns / 2;
    // Files and sockets may be at work for long.
    let may_be_preempted =
        matches!(cause, Cause::Io | Cause::Net) && delta.involuntary_switches > 0;
    was_off && !may_be_preempted
}

/// What was taken for a gap, and is part of a wait.
fn blocked(gap: Segment, probe: ProbeId, arg: Option<(u64, i64)>, stack: StackIndex) -> Segment {
    Segment {
        stack,
        kind: SegmentKind::Blocked(probe),
        arg: arg.map(|(arg, _)| arg),
        // A wait is counted once.
        is_inferred: true,
        ..gap
    }
}
