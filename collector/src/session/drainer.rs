//! The drain's thread: passes at a pace that follows the pool, a summary that is never old, and
//! new attempts while the disk is full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stackbeat_core::ids::Pid;
use stackbeat_core::platform;
use stackbeat_core::shm::layout::Mode;
use stackbeat_proto::v1::{self, Summary, packet, summary};

use super::activity::Part;
use super::clocks::now_ns;
use super::dump::Frozen;
use super::grid;
use super::orders::Order;
use super::shared::{Place, Shared, count};
use super::storage;
use crate::drain::crash::process_name;
use crate::drain::lifecycle::Changed;
use crate::drain::{Drainer, Keep};
use crate::writer::Writer;
use stackbeat_model::UnrecordedSums;

/// Distances between passes: usual, when the pool fills quickly, when nothing happens.
const USUAL: Duration = Duration::from_millis(200);
const FASTEST: Duration = Duration::from_millis(5);
/// When little of the pool is left.
const URGENT: Duration = Duration::from_millis(1);
const IDLE: Duration = Duration::from_millis(500);
/// Distance between attempts while the disk is full.
const AFTER_FAILURE: Duration = Duration::from_millis(500);
/// How much of the pool may be in use at a pass; more makes the next one come sooner.
const COMFORTABLE_FILL: f64 = 0.2;
/// Above it, threads that sleep lose their sub-buffers; above the other, all threads do: those that go on
/// take another one.
const TIGHT_FILL: f64 = 0.5;
const NARROW_FILL: f64 = 0.75;
/// Above [`COMFORTABLE_FILL`], threads that have slept for so long lose theirs: what sleepers hold would make
/// the passes come sooner for nothing, and each pass look at more.
const IDLE_OWNER: Duration = Duration::from_secs(1);
/// Passes come at most so many times later than usual to save processor time: who reads the trace while it
/// grows waits for them.
const MOST_LEISURE: u32 = 4;
/// Inside the program: the first pass after a pause, and the longest distance of passes that find something.
/// Records are safe in the mapping; when few sub-buffers are free, agents ask for a pass.
const FIRST_INSIDE: Duration = Duration::from_secs(1);
const LONGEST_INSIDE: Duration = Duration::from_secs(8);
const SUMMARY_DISTANCE: Duration = Duration::from_secs(1);

/// Everything the drain owns.
#[derive(Debug)]
pub(crate) struct DrainThread {
    shared: Arc<Shared>,
    pub drainer: Drainer,
    pub writer: Writer,
    keep: Keep,
    last_summary: Instant,
    last_revoked: Instant,
    /// The session is over: everything is stored, whatever the mode.
    closing: bool,
    /// What ran without an agent.
    pub unrecorded: UnrecordedSums,
    /// The mapping was cut off.
    pub was_cut: bool,
}

impl DrainThread {
    pub(crate) fn new(shared: Arc<Shared>, drainer: Drainer, writer: Writer) -> DrainThread {
        DrainThread {
            shared,
            drainer,
            writer,
            keep: Keep::Nothing,
            last_summary: Instant::now(),
            last_revoked: Instant::now(),
            closing: false,
            unrecorded: UnrecordedSums::default(),
            was_cut: false,
        }
    }

    /// What the mode in force leaves in the sub-buffers.
    fn keep(&self) -> Keep {
        let mode = self.shared.mapping.control().mode.load(Ordering::Relaxed);
        if mode == Mode::Endless as u32 || self.closing {
            Keep::Nothing
        } else {
            Keep::Records
        }
    }

    /// Until the session stops.
    pub(crate) fn run(mut self) -> DrainThread {
        let (mut shortest, mut distance) = (FASTEST, FASTEST);
        let is_inside = self.shared.place == Place::Inside;
        let mut is_quiet = false;
        while !self.shared.stopping() {
            if is_quiet {
                self.shared.sleep_for_captures();
                self.shared.drain_begins();
                self.shared.meter.ring();
                self.shared.call_clock();
                distance = FIRST_INSIDE;
            }
            if is_inside {
                // The mapping's file is a descriptor of this thread's.
                storage::reserve_threads(&self.shared.mapping);
            }
            let longest = grid::time_to(distance);
            self.shared.sleep(shortest, longest.max(shortest));
            self.shared.drain_begins();
            let stored_before = self.drainer.totals.stored;
            let fill = self.drainer.fill(&self.shared.mapping);
            let is_tight = fill > TIGHT_FILL && self.keep() == Keep::Nothing;
            if is_tight {
                self.drainer
                    .revoke(&self.shared.mapping, fill > NARROW_FILL);
            }
            if fill > COMFORTABLE_FILL
                && self.keep() == Keep::Nothing
                && self.last_revoked.elapsed() >= IDLE_OWNER
            {
                self.last_revoked = Instant::now();
                self.drainer.revoke_idle(&self.shared.mapping);
            }
            let result = self.pass();
            shortest = match result {
                Err(_) => AFTER_FAILURE,
                Ok(()) if is_tight => URGENT,
                Ok(()) => FASTEST,
            };
            let is_empty = self.drainer.totals.stored == stored_before;
            is_quiet = is_inside && result.is_ok() && is_empty;
            if is_inside && !is_empty {
                self.shared.meter.ring();
            }
            distance = match result {
                Err(_) => AFTER_FAILURE,
                // What is kept in the ring is none that waits for a pass.
                Ok(()) if is_inside && (self.keep == Keep::Records || fill <= COMFORTABLE_FILL) => {
                    self.shared.call_clock();
                    (distance * 2).clamp(FIRST_INSIDE, LONGEST_INSIDE)
                }
                Ok(()) if self.keep == Keep::Records => USUAL,
                // Threads that sleep may hold much of the pool: that is no reason to hurry.
                Ok(()) if is_empty => (distance * 2).min(IDLE),
                Ok(()) if fill > COMFORTABLE_FILL => {
                    let slower = distance.mul_f64((COMFORTABLE_FILL / fill).max(0.1));
                    slower.max(FASTEST)
                }
                Ok(()) => {
                    let leisure = self.shared.leisure.load(Ordering::Relaxed);
                    (distance * 2).min(USUAL * leisure.min(MOST_LEISURE))
                }
            };
        }
        self.shared
            .figures
            .drain_cpu_ns
            .store(platform::thread_cpu_ns(), Ordering::Relaxed);
        self
    }

    /// One pass, and what is to be reported about it.
    fn pass(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        if !self.was_cut && shared.was_cut() {
            self.was_cut = true;
            self.drainer.lifecycle.say(packet::Body::Event(v1::Event {
                time_ns: now_ns(),
                name: "somebody has cut the recording's shared memory off: nothing is captured from here on"
                    .to_owned(),
                kind: v1::event::Kind::Note.into(),
                ..v1::Event::default()
            }));
        }
        self.keep = self.keep();
        let mut waiting = Vec::new();
        let mut unrecorded = Vec::new();
        for order in shared.take_orders() {
            match order {
                Order::Say(body) => self.drainer.lifecycle.say(*body),
                Order::MapLines(lines) => {
                    (shared.map_bytes).fetch_sub(lines.bytes.len(), Ordering::Relaxed);
                    self.drainer.generated.take(lines);
                }
                Order::FindCopiesOfCode(upid) => {
                    self.drainer.find_copies_of_code(upid);
                }
                Order::Waits { modules, waits } => {
                    self.drainer.take_waits(&shared.mapping, modules, &waits);
                }
                Order::Suspended { modules, sample } => {
                    let mapping = &shared.mapping;
                    self.drainer.take_suspended(mapping, modules, &sample);
                }
                Order::Unrecorded(seen, since) => unrecorded.push((*seen, since)),
                Order::Freeze(reply) => waiting.push(reply),
            }
        }
        let began = Instant::now();
        let mut changed = Vec::new();
        let is_all = shared.take_activity(Part::Drain, now_ns(), &mut changed) || self.closing;
        let changed = match is_all {
            true => Changed::All,
            false => Changed::Entries(&changed),
        };
        let result =
            self.drainer
                .pass_changed(&shared.mapping, &mut self.writer, self.keep, changed);
        // This pass has met the agents that came and went meanwhile.
        for (seen, since) in unrecorded {
            if !(self.drainer.lifecycle).has_met(Pid(seen.pid), since, seen.end_ns) {
                self.drainer
                    .lifecycle
                    .name(Pid(seen.pid), since, seen.end_ns);
                self.unrecorded.add(&seen);
                self.drainer.lifecycle.say(packet::Body::Unrecorded(seen));
            }
        }
        for (crash, file) in self.drainer.lifecycle.take_crashes() {
            let who = process_name(crash.pid, &file);
            shared.want_dump(shared.reason_of(crash, &who));
        }
        self.drainer.tend_nodes(&shared.mapping);
        let took = began.elapsed().as_nanos() as u64;
        count(&shared.figures.drains, 1);
        shared
            .figures
            .drain_max_ns
            .fetch_max(took, Ordering::Relaxed);
        self.tell(result.as_ref().err());
        for reply in waiting {
            // Who asked may be gone.
            let _ = reply.send(self.freeze(&result));
        }
        result
    }

    fn freeze(&mut self, stored: &io::Result<()>) -> io::Result<Frozen> {
        if let Err(error) = stored {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        let mapping = &self.shared.mapping;
        Frozen::take(mapping, &mut self.drainer, &mut self.writer)
    }

    /// Publishes the status, and now and then the summary.
    pub(crate) fn tell(&mut self, error: Option<&io::Error>) {
        let (written, lost) = self.drainer.lifecycle.written_and_lost();
        // What was written while this pass copied is stored as well.
        let written = written.max(self.drainer.totals.stored.saturating_add(lost));
        let lifecycle = &self.drainer.lifecycle;
        let samples = match self.keep() {
            Keep::Nothing => self.drainer.totals.samples,
            // They are stored at the end. Until then the threads' own counts say how many records there are.
            Keep::Records => written.saturating_sub(lost),
        };
        {
            let mut state = self.shared.state();
            let status = &mut state.status;
            status.live_processes = lifecycle.live_processes;
            status.live_threads = lifecycle.live_threads;
            status.processes = lifecycle.processes_seen;
            status.threads = lifecycle.threads_seen;
            status.samples = samples;
            status.lost = lost;
            status.bytes = self.writer.bytes();
            status.write_failing = error.is_some();
            if error.is_some() {
                count(&self.shared.figures.write_failures, 1);
            }
            state.write_error = error.map(ToString::to_string);
        }
        if error.is_some() || self.last_summary.elapsed() >= SUMMARY_DISTANCE {
            self.last_summary = Instant::now();
            let outcome = match error {
                None => summary::Outcome::Running,
                Some(error) => outcome_of(error),
            };
            // It is tried again with the next one.
            let _ = self.writer.update_summary(&Summary {
                outcome: outcome.into(),
                records_written: written,
                records_stored: self.drainer.totals.stored,
                records_lost: lost,
                padding: Vec::new(),
            });
        }
    }

    /// Everything that is left, whatever the mode.
    pub(crate) fn last_pass(&mut self) -> io::Result<()> {
        self.closing = true;
        self.drainer.lifecycle.closing = true;
        self.pass()
    }
}

/// What a failure means for the summary.
pub(crate) fn outcome_of(error: &io::Error) -> summary::Outcome {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => summary::Outcome::DiskFull,
        _ => summary::Outcome::WriteError,
    }
}
