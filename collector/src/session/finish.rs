//! The end of a session: the last pass, names, footer and summary, and the removal of the mapping.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stackbeat_core::clock::Snapshot;
use stackbeat_core::ids::Pid;
use stackbeat_core::shm::layout::drops;
use stackbeat_proto::v1::drops::Cause;
use stackbeat_proto::v1::{self, CounterBatch, Footer, Summary, footer, packet, summary};

use super::clocks::own_cpu;
use super::drainer::{DrainThread, outcome_of};
use super::error::Warning;
use super::jit_maps;
use super::options::{Options, Outcome, Progress};
use super::own_threads;
use super::shared::{Shared, count};
use super::storage::Storage;
use crate::drain::generated_code::in_sources;
use crate::drain::lifecycle::believed;
use crate::drain::methods;
use crate::drain::{Drainer, clock_packet};
use crate::hooked_calls;
use crate::writer::{self, Writer};
use stackbeat_symbolize::{NameSources, Symbolizer};

/// How the program ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub pid: Pid,
    /// `None`: it was not our child, so nobody told us.
    pub wait_status: Option<i32>,
    pub cpu: Duration,
    /// What it has read and written.
    pub transfers: Option<Vec<CounterBatch>>,
}

/// The parts of a session that its end needs.
#[derive(Debug)]
pub(crate) struct Finisher<'a> {
    pub options: &'a Options,
    pub shared: &'a Shared,
    pub storage: Storage,
    pub warnings: Vec<Warning>,
    /// When the recording began, ns.
    pub start_ns: u64,
    pub cpu_before: Duration,
    pub preloaded: bool,
    /// Programs were told to write `perf-PID.map` files, which go with the recording.
    pub removes_jit_maps: bool,
}

impl Finisher<'_> {
    /// Writes what is left. A failure to write leaves the mapping for `recover`.
    pub(crate) fn finish(
        mut self,
        mut drain: DrainThread,
        ended: Ended,
        progress: &mut dyn FnMut(&Progress),
        leave: &mut dyn FnMut() -> bool,
    ) -> Outcome {
        let (began, cpu_at_end) = (Instant::now(), own_cpu());
        self.shared
            .mapping
            .control()
            .switch
            .store(0, Ordering::SeqCst);
        if let Some(status) = ended.wait_status {
            drain.drainer.lifecycle.set_wait_status(ended.pid, status);
        }
        if self.options.counters_ns.is_some()
            && let Some(transfers) = ended.transfers
        {
            for batch in transfers {
                drain.drainer.lifecycle.say(packet::Body::Counters(batch));
            }
        }
        let stored = self.store_the_rest(&mut drain);
        let figures = &self.shared.figures;
        let cpu = own_cpu().saturating_sub(self.cpu_before);
        let set = |figure: &std::sync::atomic::AtomicU64, value| {
            figure.store(value, Ordering::Relaxed);
        };
        set(&figures.cpu_ns, cpu.as_nanos() as u64);
        set(&figures.program_cpu_ns, ended.cpu.as_nanos() as u64);
        set(&figures.finish_ns, began.elapsed().as_nanos() as u64);
        set(&figures.bytes_drained, drain.drainer.totals.bytes_drained);
        set(&figures.nodes, drain.drainer.nodes.count);
        set(&figures.generations, drain.drainer.nodes.generations.into());

        let control = self.shared.mapping.control();
        let counted = |counter: &AtomicU64| believed(counter.load(Ordering::Relaxed));
        set(&figures.systrace_written, counted(&control.markers_written));
        set(&figures.systrace_failed, counted(&control.markers_failed));

        // Of a program that ran before, nobody tells what its children used.
        if ended.wait_status.is_some() {
            let known_ns = drain.drainer.lifecycle.past().cpu_ns + drain.unrecorded.cpu_ns();
            let unseen_ns = (ended.cpu.as_nanos() as u64).saturating_sub(known_ns);
            set(&figures.unseen_cpu_ns, unseen_ns);
        }
        set(&figures.unrecorded_cpu_ns, drain.unrecorded.cpu_ns());
        let captures_ns = drain.drainer.lifecycle.past().capture_ns;
        let cpu_ns = ended.wait_status.map(|_| ended.cpu.as_nanos() as u64);
        self.correct_cost(cpu_ns, captures_ns);

        // The recording ends here; looking names up is not part of it.
        let end = drain.drainer.take_snapshot();
        let duration = self.duration(&drain, &end);
        let finished = stored.and_then(|()| {
            self.add_names_and_footer(&mut drain, &end, cpu_at_end, progress, leave)
        });
        let after_cpu = own_cpu().saturating_sub(cpu_at_end);
        let finished = finished.map(|(skipped, without_names)| {
            let skipped = (skipped > 0).then_some(Warning::NamesSkipped { count: skipped });
            let without_names = without_names.into_iter().map(Warning::WithoutNames);
            for warning in skipped.into_iter().chain(without_names) {
                progress(&Progress::Warning(warning.clone()));
                self.warnings.push(warning);
            }
        });
        let outcome = match &finished {
            Ok(()) => summary::Outcome::Finished,
            Err(error) => outcome_of(error),
        };
        let summary = self.summary(&drain, outcome);
        let finished = finished.and(drain.writer.update_summary(&summary));
        if finished.is_err() {
            self.storage.keep();
        }
        if self.preloaded && drain.drainer.lifecycle.processes_seen == 0 {
            self.warnings.push(Warning::NoAgent);
        }
        let unrecorded = drain.unrecorded.programs();
        let not_hooked = drain.drainer.lifecycle.not_hooked;
        if not_hooked > 0 {
            self.warnings
                .push(Warning::ChildrenNotHooked { count: not_hooked });
        }
        let damaged = damaged(&drain.drainer);
        let without_room = u64::from(control.processes_without_room.load(Ordering::Relaxed));
        for warning in [
            drain.was_cut.then_some(Warning::Cut),
            (damaged > 0).then_some(Warning::Damaged { count: damaged }),
            (damaged == 0 && without_room > 0).then_some(Warning::NoAddressSpace {
                count: without_room,
            }),
        ]
        .into_iter()
        .flatten()
        {
            progress(&Progress::Warning(warning.clone()));
            self.warnings.push(warning);
        }
        let deadlocks = self.shared.figures.deadlocks.load(Ordering::Relaxed);
        if deadlocks > 0 {
            self.warnings.push(Warning::Deadlock { count: deadlocks });
        }
        for warning in [
            self.slowed(),
            self.unpatched(),
            self.over_budget(),
            self.systrace_failed(),
        ]
        .into_iter()
        .flatten()
        {
            progress(&Progress::Warning(warning.clone()));
            self.warnings.push(warning);
        }
        let mut status = self.shared.state().status;
        status.elapsed = duration;
        status.bytes = drain.writer.bytes();
        status.lost = summary.records_lost;
        status.write_failing = finished.is_err();
        Outcome {
            wait_status: ended.wait_status.unwrap_or(0),
            pid: ended.pid.0,
            duration,
            program_cpu: ended.cpu,
            collector_cpu: cpu,
            after_cpu,
            status,
            records_written: summary.records_written,
            records_stored: summary.records_stored,
            records_lost: summary.records_lost,
            drops: drops(&drain.drainer, self.shared),
            unrecorded,
            write_error: finished.err().map(|error| self.explain(&error)),
            figures: figures.all(),
            attach_session: None,
            warnings: self.warnings,
        }
    }

    /// As whoever reads the trace has it: to the end of the last thread.
    fn duration(&self, drain: &DrainThread, end: &Snapshot) -> Duration {
        let end_ns = match drain.drainer.lifecycle.last_end_ns {
            0 => end.monotonic_ns,
            last => last,
        };
        Duration::from_nanos(end_ns.saturating_sub(self.start_ns))
    }

    fn summary(&self, drain: &DrainThread, outcome: summary::Outcome) -> Summary {
        let sums = drain.drainer.lifecycle.sums(&self.shared.mapping);
        let stored = drain.drainer.totals.stored;
        let written = sums.written.max(stored);
        Summary {
            outcome: outcome.into(),
            records_written: written,
            records_stored: stored,
            records_lost: written - stored,
            padding: Vec::new(),
        }
    }

    /// Whether the budget kept captures further apart than was asked for.
    fn slowed(&self) -> Option<Warning> {
        let figures = &self.shared.figures;
        let mean_ns = |sum: &AtomicU64| {
            sum.load(Ordering::Relaxed) / figures.ticks.load(Ordering::Relaxed).max(1)
        };
        let asked_ns = mean_ns(&figures.intervals_asked_ns);
        let kept_ns = mean_ns(&figures.intervals_by_budget_ns);
        (kept_ns > asked_ns + asked_ns / 4).then_some(Warning::Slowed {
            asked_us: asked_ns / 1000,
            kept_us: kept_ns / 1000,
            percent: self.options.budget()?.percent,
        })
    }

    /// What the cost was by the ends of processes: polls know nothing of those that came and went between
    /// two. `cpu_ns`: the program's CPU time, where its parent was told; `captures_ns`: of all threads that
    /// are over.
    fn correct_cost(&self, cpu_ns: Option<u64>, captures_ns: u64) {
        let figures = &self.shared.figures;
        let polled_ns = figures
            .cost_captures_ns
            .fetch_max(captures_ns, Ordering::Relaxed);
        count(&figures.cost_ns, captures_ns.saturating_sub(polled_ns));
        if let Some(cpu_ns) = cpu_ns {
            let inferred_ns = figures.cost_of_inferred_ns.load(Ordering::Relaxed);
            let of_ns = figures.cost_of_ns.load(Ordering::Relaxed);
            let read_ns = of_ns.saturating_sub(inferred_ns);
            (figures.cost_of_ns).store(of_ns.min(cpu_ns.max(read_ns)), Ordering::Relaxed);
        }
    }

    fn unpatched(&self) -> Option<Warning> {
        let unpatches = self.shared.figures.unpatches.load(Ordering::Relaxed);
        (unpatches > 0).then_some(Warning::Unpatched {
            percent: self.options.budget()?.percent,
        })
    }

    fn systrace_failed(&self) -> Option<Warning> {
        let figures = &self.shared.figures;
        let failed = figures.systrace_failed.load(Ordering::Relaxed);
        let written = figures.systrace_written.load(Ordering::Relaxed);
        let all = failed.saturating_add(written);
        (failed > 0 && self.options.systrace.is_some())
            .then_some(Warning::SystraceFailed { failed, all })
    }

    /// What of a declared budget was not held, and by what. Says nothing of short programs: in them the
    /// recorder's own start is more than the budget.
    fn over_budget(&self) -> Option<Warning> {
        const LEAST_NS: u64 = 2_000_000_000;
        const TOLERANCE: f64 = 1.25;
        let budget = self.options.budget().filter(|b| b.is_declared)?;
        let figures = &self.shared.figures;
        let of_ns = figures.cost_of_ns.load(Ordering::Relaxed);
        let percent = |figure: &AtomicU64| {
            100.0 * figure.load(Ordering::Relaxed) as f64 / of_ns.max(1) as f64
        };
        let cost = percent(&figures.cost_ns);
        let captures = percent(&figures.cost_captures_ns);
        let hooks = percent(&figures.cost_hooks_ns);
        (of_ns >= LEAST_NS && cost > budget.percent * TOLERANCE).then_some(Warning::OverBudget {
            percent: budget.percent,
            cost,
            captures,
            hooks,
            recorder: cost - captures - hooks,
        })
    }

    fn explain(&self, error: &io::Error) -> String {
        if self.storage.is_in_memory() {
            return format!(
                "{}: {error}; what could not be written is lost, because the records have no file: make \
                 room, then record again",
                self.options.output.display()
            );
        }
        format!(
            "{}: {error}; what could not be written is kept in {}: make room, then run `stackbeat \
             recover {}`",
            self.options.output.display(),
            self.storage.path.display(),
            self.storage.path.display()
        )
    }

    fn store_the_rest(&self, drain: &mut DrainThread) -> io::Result<()> {
        let mapping = &self.shared.mapping;
        drain.last_pass()?;
        drain.drainer.conclude_living(mapping);
        if self.options.count_calls {
            for counts in
                hooked_calls::counts(mapping, &hooked_calls::of_agent(&self.options.agent)?)
            {
                drain
                    .drainer
                    .lifecycle
                    .say(packet::Body::CallCounts(counts));
            }
        }
        if drain.was_cut {
            drain.drainer.lifecycle.contradictions += 1;
        }
        drain.drainer.lifecycle.contradictions += u64::from(!mapping.is_intact());
        for (cause, count) in session_drops(&drain.drainer, self.shared) {
            drain.drainer.lifecycle.say(packet::Body::Drops(v1::Drops {
                utid: 0,
                cause: cause.into(),
                count,
            }));
        }
        drain.drainer.flush_queue(mapping, &mut drain.writer)?;
        drain.drainer.name_by_maps_left(None);
        drain.drainer.flush_queue(mapping, &mut drain.writer)
    }

    fn add_names_and_footer(
        &self,
        drain: &mut DrainThread,
        end: &Snapshot,
        cpu_at_end: Duration,
        progress: &mut dyn FnMut(&Progress),
        leave: &mut dyn FnMut() -> bool,
    ) -> io::Result<(u64, Vec<String>)> {
        let (mut skipped, mut without_names) = (0, Vec::new());
        if self.options.symbolize {
            let began = Instant::now();
            (skipped, without_names) = add_names(
                &mut drain.drainer,
                &mut drain.writer,
                self.options.names.clone(),
                self.options.compress,
                progress,
                leave,
            )?;
            let took = began.elapsed().as_nanos() as u64;
            self.shared
                .figures
                .symbolize_ns
                .store(took, Ordering::Relaxed);
        }
        if self.removes_jit_maps {
            let pids = drain.drainer.lifecycle.pids().map(|(_, pid)| pid);
            jit_maps::remove(
                pids,
                &self.shared.folders.all(),
                self.shared.program_began_at,
            );
        }
        let bytes = drain.writer.bytes();
        let figures = &self.shared.figures;
        figures.bytes_written.store(bytes, Ordering::Relaxed);
        let after_cpu = own_cpu().saturating_sub(cpu_at_end).as_nanos() as u64;
        figures.after_cpu_ns.store(after_cpu, Ordering::Relaxed);
        let summary = self.summary(drain, summary::Outcome::Finished);
        add_footer(
            &drain.drainer,
            &mut drain.writer,
            end.monotonic_ns,
            end,
            figures.all(),
            summary,
            without_names.clone(),
        )?;
        Ok((skipped, without_names))
    }
}

/// Adds the names of all addresses of the trace, until `leave` says that nobody wants to wait for more.
/// Gives how many addresses were left out, and why modules have no names.
pub(crate) fn add_names(
    drainer: &mut Drainer,
    writer: &mut Writer,
    sources: NameSources,
    compress: bool,
    progress: &mut dyn FnMut(&Progress),
    leave: &mut dyn FnMut() -> bool,
) -> io::Result<(u64, Vec<String>)> {
    let symbolizer = Symbolizer::new(stackbeat_symbolize::Options {
        sources: sources.clone(),
        // A thread of ours inside the program is one that no hook knows; those of the search would be the
        // program's.
        without_threads: own_threads::cpu().is_some(),
        ..Default::default()
    });
    let mut result = Ok(());
    let mut say = |p: stackbeat_symbolize::Progress<'_>| {
        progress(&Progress::Symbolizing {
            done: p.addresses_done as u64,
            total: p.addresses as u64,
            fetching: (sources.debug.as_ref()).and_then(|source| source.under_way()),
        });
        !leave()
    };
    let mut write = |body| {
        if result.is_ok() {
            let mut out = Vec::new();
            writer::encode(body, &mut out);
            if compress {
                let mut packed = Vec::new();
                stackbeat_proto::stream::write_compressed(&out, 6, &mut packed);
                out = packed;
            }
            result = writer.append(&out, 1);
        }
    };
    let qualified = methods::qualified(&drainer.methods.unqualified);
    qualified
        .into_iter()
        .map(packet::Body::Methods)
        .for_each(&mut write);
    if let Some(maps) = &sources.source_maps {
        let in_sources = in_sources(drainer.generated.methods(), &**maps);
        in_sources
            .into_iter()
            .map(packet::Body::Methods)
            .for_each(&mut write);
    }
    let report = symbolizer.symbolize(drainer.take_wanted(), &mut say, &mut |symbols| {
        write(packet::Body::Symbols(symbols));
    });
    result?;
    let mut reasons = report.reasons();
    reasons.extend(sources.complaints());
    let left_out = drainer.nodes.unnamed + drainer.generated.left_out;
    Ok((report.skipped as u64 + left_out, reasons))
}

/// Adds the last packet. `end_ns` is the end of the recording, `end` a reading of the clocks.
pub(crate) fn add_footer(
    drainer: &Drainer,
    writer: &mut Writer,
    end_ns: u64,
    end: &Snapshot,
    figures: Vec<(String, u64)>,
    summary: Summary,
    without_names: Vec<String>,
) -> io::Result<()> {
    let mut out = Vec::new();
    let body = packet::Body::Footer(Footer {
        end_ns,
        packets: writer.packets() + 1,
        samples: drainer.totals.samples,
        end: Some(clock_packet(end)),
        summary: (!writer.is_regular()).then_some(summary),
        figures: figures
            .into_iter()
            .map(|(name, value)| footer::CollectorFigure { name, value })
            .collect(),
        without_names,
    });
    writer::encode(body, &mut out);
    writer.append(&out, 1)
}

/// Losses that belong to no thread.
fn session_drops(drainer: &Drainer, shared: &Shared) -> Vec<(Cause, u64)> {
    let control = shared.mapping.control();
    let get = |word: &stackbeat_core::sync::AtomicU32| u64::from(word.load(Ordering::Relaxed));
    let damaged = damaged(drainer);
    let mut drops = vec![
        (Cause::Damaged, damaged),
        (Cause::NotHooked, drainer.lifecycle.not_hooked),
    ];
    // Who has written over the rest has written over these as well.
    if damaged == 0 {
        drops.extend([
            (Cause::ThreadTableFull, get(&control.threads_refused)),
            (Cause::ProcessTableFull, get(&control.processes_refused)),
            (Cause::AgentDisabled, get(&control.agents_disabled)),
            (Cause::NoAddressSpace, get(&control.processes_without_room)),
        ]);
    }
    drops.retain(|(_, count)| *count > 0);
    drops
}

/// Records, entries and sub-buffers that contradicted themselves.
fn damaged(drainer: &Drainer) -> u64 {
    drainer.totals.damaged + drainer.lifecycle.contradictions
}

/// Everything that was lost, cut or refused, by cause.
fn drops(drainer: &Drainer, shared: &Shared) -> Vec<(Cause, u64)> {
    let sums = drainer.lifecycle.sums(&shared.mapping);
    let mut drops = session_drops(drainer, shared);
    for cause in 0..drops::COUNT {
        if let Ok(known) = Cause::try_from(cause as i32)
            && sums.drops[cause] > 0
        {
            drops.push((known, sums.drops[cause]));
        }
    }
    drops
}

/// Takes back an output that nothing was recorded into.
pub(crate) fn remove_output(path: &Path) {
    if path.metadata().is_ok_and(|m| m.is_file()) {
        // What cannot be removed is an empty trace, which is valid.
        let _ = std::fs::remove_file(path);
    }
}
