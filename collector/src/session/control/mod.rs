//! Control while a session runs: `stackbeat status|start|stop|set|mark|dump` speak to the collector
//! through a Unix socket, the collector acts on the control block and puts what it changed into the
//! trace.
//!
//! The recording does not depend on clients: one thread serves them with bounded memory, time and pace,
//! and shares with the recording only the control block and the drain's list of orders.

pub mod client;
mod refusal;
mod serve;
mod socket;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use stackbeat_core::clock::Snapshot;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::probe::Category;
use stackbeat_core::shm::layout::{
    ClockSource, Mode, ProcessEntry, ThreadClass, entry_state, sampled_by,
};
use stackbeat_core::shm::registry;
use stackbeat_proto::v1::{Event, event, packet};

use super::clocks::now_ns;
use super::dump::{self, Window};
use super::dump_error::DumpError;
use super::options::{MAX_INTERVAL_NS, MIN_INTERVAL_NS};
use super::orders::Order;
use super::protocol::{
    DumpReply, DumpRequest, LocksReply, MAX_MARK, Reply, Request, SessionStatus, Settings,
};
use super::shared::Shared;
use refusal::Refusal;
pub(crate) use serve::Server;
use stackbeat_symbolize::NameSources;

/// Most pids that a status lists.
const MAX_PIDS: usize = 1000;

/// What control knows of a session.
#[derive(Debug)]
pub(crate) struct Session {
    pub shared: Arc<Shared>,
    /// File name of the session's mapping.
    pub mapping_name: Vec<u8>,
    /// `PID.ID`.
    pub name: String,
    pub command: Vec<String>,
    pub trace: PathBuf,
    pub program_pid: AtomicU32,
    pub began: Instant,
    /// Of dumps: nobody waits for a download.
    pub names: NameSources,
    /// The clocks when it began, for the rate of the cycle counter.
    pub source: ClockSource,
    pub start: Snapshot,
    /// Who waits for which lock, by the file name of the session's mapping.
    pub locks: fn(&Arc<Shared>, &[u8]) -> LocksReply,
}

/// The name of a session.
pub fn session_name(session_id: [u8; 16]) -> String {
    let [a, b, c, d, ..] = session_id;
    let id = u32::from_be_bytes([a, b, c, d]);
    format!("{}.{id:08x}", std::process::id())
}

/// The name of a mode in files and on the command line.
pub fn mode_name(mode: u32) -> &'static str {
    match mode {
        1 => "ring",
        2 => "startup",
        _ => "endless",
    }
}

/// The mode with this name.
pub fn mode_from_name(name: &str) -> Option<Mode> {
    [Mode::Endless, Mode::Ring, Mode::Startup]
        .into_iter()
        .find(|mode| mode_name(*mode as u32) == name)
}

impl Session {
    /// Does what is asked for. Everything but a dump takes microseconds.
    pub(crate) fn handle(&self, request: &Request) -> Reply {
        let done = match request {
            Request::Status {} | Request::Locks {} => Ok(None),
            Request::Start {} => {
                self.switch(true);
                Ok(None)
            }
            Request::Stop {} => {
                self.switch(false);
                Ok(None)
            }
            Request::Set(settings) => self.set(settings).map(|()| None),
            Request::Mark { text } => self.mark(text).map(|()| None),
            Request::Dump(request) => self.dump(request, None).map(Some).map_err(Refusal::from),
        };
        match done {
            Ok(dump) => Reply {
                ok: true,
                error: None,
                session: Some(self.status()),
                dump,
                locks: matches!(request, Request::Locks {})
                    .then(|| (self.locks)(&self.shared, &self.mapping_name)),
            },
            Err(error) => Reply::error(error),
        }
    }

    fn say(&self, kind: event::Kind, name: &str, value: i64) {
        self.shared
            .order(Order::Say(Box::new(packet::Body::Event(Event {
                time_ns: now_ns(),
                name: name.to_owned(),
                kind: kind.into(),
                value,
                ..Event::default()
            }))));
    }

    /// The session begins, capturing or not.
    pub(crate) fn begin(&self, capturing: bool) {
        let control = self.shared.mapping.control();
        control.switch.store(u32::from(capturing), Ordering::SeqCst);
        if capturing {
            self.shared.wake_ticker();
        } else {
            self.say(event::Kind::ConfigChanged, "capture", 0);
        }
    }

    /// Begins or ends capturing.
    pub(crate) fn switch(&self, on: bool) {
        let control = self.shared.mapping.control();
        let before = control.switch.swap(u32::from(on), Ordering::SeqCst);
        if before != u32::from(on) {
            self.say(event::Kind::ConfigChanged, "capture", i64::from(on));
            self.shared.wake_ticker();
            if on {
                self.shared.polls.ring();
            }
        }
    }

    fn set(&self, settings: &Settings) -> Result<(), Refusal> {
        let control = self.shared.mapping.control();
        // Everything is checked before anything is changed.
        let intervals = [settings.interval_ns, settings.main_interval_ns];
        for ns in intervals.into_iter().flatten() {
            if !(MIN_INTERVAL_NS..=MAX_INTERVAL_NS).contains(&ns) {
                return Err(Refusal::Interval { ns });
            }
        }
        let probes = settings.probes.as_deref().map(mask_of).transpose()?;
        let mode = match &settings.mode {
            None => None,
            Some(name) => {
                let unknown = || Refusal::Mode { name: name.clone() };
                Some(mode_from_name(name).ok_or_else(unknown)?)
            }
        };
        if intervals == [None; 2] && probes.is_none() && mode.is_none() {
            return Err(Refusal::NothingToSet);
        }
        if intervals != [None; 2] {
            self.shared.keeps_interval.store(true, Ordering::Relaxed);
        }
        if let Some(ns) = settings.interval_ns {
            self.set_interval(ThreadClass::Other, ns);
            self.say(event::Kind::IntervalChanged, "threads", ns as i64);
        }
        if let Some(ns) = settings.main_interval_ns {
            self.set_interval(ThreadClass::Main, ns);
            self.say(event::Kind::IntervalChanged, "main threads", ns as i64);
        }
        if let Some(mask) = probes {
            control.probe_mask.store(mask, Ordering::SeqCst);
            self.say(event::Kind::ConfigChanged, "probes", mask as i64);
        }
        if let Some(mode) = mode {
            control.mode.store(mode as u32, Ordering::SeqCst);
            self.say(event::Kind::ConfigChanged, "mode", mode as i64);
        }
        self.shared.wake_ticker();
        Ok(())
    }

    /// Changes the interval of a class; not noted in the trace.
    pub(crate) fn set_interval(&self, class: ThreadClass, ns: u64) {
        let now = Snapshot::take(self.source);
        let elapsed = now.monotonic_ns.saturating_sub(self.start.monotonic_ns);
        let Cycles(cycles) = now.cycles.saturating_sub(self.start.cycles);
        let in_cycles = u128::from(cycles) * u128::from(ns) / u128::from(elapsed.max(1));
        let control = self.shared.mapping.control();
        let class = class as usize;
        control.interval_cycles[class].store(Cycles(in_cycles as u64), Ordering::Relaxed);
        control.interval_ns[class].store(ns as u32, Ordering::Release);
        // Until the ticker has found out what the budget makes of it.
        control.kept_interval_ns[class].store(0, Ordering::Relaxed);
        control.kept_wait_ns[class].store(0, Ordering::Relaxed);
    }

    /// Time since the trace's start, by the trace's clock: reports say the same of what happens now.
    fn elapsed_ns(&self) -> u64 {
        now_ns().saturating_sub(self.start.monotonic_ns)
    }

    fn mark(&self, text: &str) -> Result<(), Refusal> {
        if text.is_empty() || text.len() > MAX_MARK {
            return Err(Refusal::Mark { bytes: text.len() });
        }
        self.say(event::Kind::Mark, text, 0);
        Ok(())
    }

    /// Writes what the session holds, its last time counted from `before_ns` (`None`: now). Takes as long as
    /// it takes to look names up.
    ///
    /// # Errors
    ///
    /// What is wrong with the request, the session's trace or the output.
    pub(crate) fn dump(
        &self,
        request: &DumpRequest,
        before_ns: Option<u64>,
    ) -> Result<DumpReply, DumpError> {
        if !request.output.is_absolute() {
            return Err(DumpError::RelativePath {
                output: request.output.clone(),
            });
        }
        let (reply, frozen) = mpsc::sync_channel(1);
        if self.shared.stopping() {
            return Err(DumpError::SessionEnded);
        }
        self.shared.order(Order::Freeze(reply));
        let frozen = self.wait_for(&frozen)?;
        let window = Window {
            output: request.output.clone(),
            overwrite: request.overwrite,
            last_ns: request.last_ns,
            before_ns,
            symbolize: request.symbolize,
            names: self.names.clone(),
        };
        let written = frozen
            .and_then(|frozen| dump::write(frozen, &window))
            .map_err(|error| DumpError::of_io(request.output.clone(), error))?;
        Ok(DumpReply {
            output: request.output.to_string_lossy().into_owned(),
            samples: written.samples,
            threads: written.threads,
            bytes: written.bytes,
            covered_ns: written.covered_ns,
            elapsed_ns: self.elapsed_ns(),
        })
    }

    /// Waits for what the drain gives. A session that stops makes one more pass, and none after that.
    fn wait_for<T>(&self, given: &mpsc::Receiver<T>) -> Result<T, DumpError> {
        const POLL: Duration = Duration::from_millis(500);
        const POLLS_AFTER_STOP: u32 = 20;
        let mut polls_after_stop = 0;
        loop {
            match given.recv_timeout(POLL) {
                Ok(given) => return Ok(given),
                Err(RecvTimeoutError::Timeout) if !self.shared.stopping() => {}
                Err(RecvTimeoutError::Timeout) if polls_after_stop < POLLS_AFTER_STOP => {
                    polls_after_stop += 1;
                }
                Err(_) => return Err(DumpError::SessionEnded),
            }
        }
    }

    /// Where the session stands.
    pub(crate) fn status(&self) -> SessionStatus {
        let mapping = &self.shared.mapping;
        let control = mapping.control();
        let interval = |class: ThreadClass| {
            u64::from(control.interval_ns[class as usize].load(Ordering::Relaxed))
        };
        let kept = |class: ThreadClass| u64::from(control.interval_in_force_ns(class as usize));
        let ticks_ns = self.shared.ticks_apart_ns.load(Ordering::Relaxed);
        let timers_ns = ticks_ns.max(control.timer_ns.load(Ordering::Relaxed).into());
        let sampled_each = |process: &ProcessEntry| {
            let has_timers = control.has_timers()
                && process.sampled_by.load(Ordering::Relaxed) == sampled_by::SESSION_CLOCK;
            if has_timers { timers_ns } else { ticks_ns }
        };
        let mask = control.probe_mask.load(Ordering::Relaxed);
        let status = self.shared.state().status;
        let live = || {
            registry::processes(mapping)
                .filter(|(_, p)| p.state.load(Ordering::Relaxed) == entry_state::LIVE)
        };
        let sampled_each_ns = live().map(|(_, p)| sampled_each(p)).max();
        SessionStatus {
            session: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            collector_pid: std::process::id(),
            program_pid: self.program_pid.load(Ordering::Relaxed),
            command: self.command.clone(),
            trace: self.trace.to_string_lossy().into_owned(),
            elapsed_ns: self.elapsed_ns(),
            capturing: control.switch.load(Ordering::Relaxed) == 1,
            interval_ns: interval(ThreadClass::Other),
            main_interval_ns: interval(ThreadClass::Main),
            kept_interval_ns: kept(ThreadClass::Other),
            kept_main_interval_ns: kept(ThreadClass::Main),
            sampled_each_ns: sampled_each_ns.unwrap_or(0),
            probes: names_of(mask),
            mode: mode_name(control.mode.load(Ordering::Relaxed)).to_owned(),
            pids: live().map(|(_, p)| p.pid().0).take(MAX_PIDS).collect(),
            live_threads: status.live_threads,
            processes: status.processes,
            threads: status.threads,
            samples: status.samples,
            lost: status.lost,
            trace_bytes: status.bytes,
            write_failing: status.write_failing,
        }
    }
}

/// The names of the probe groups in a mask.
pub fn names_of(mask: u64) -> Vec<String> {
    let groups = Category::SELECTABLE.iter();
    groups
        .filter(|c| mask & c.bit() != 0)
        .map(|c| c.name().to_owned())
        .collect()
}

fn mask_of(names: &[String]) -> Result<u64, Refusal> {
    names.iter().try_fold(0, |mask, name| {
        let unknown = || Refusal::Probes { name: name.clone() };
        let group = Category::from_name(name).ok_or_else(unknown)?;
        Ok(mask | group.bit())
    })
}
