//! Dumps by themselves: on a signal to the recorder, when a thread waits for too long, when an iteration of
//! an event loop takes too long, when the program or a process that it has started crashes.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stackbeat_core::crash_signals;
use stackbeat_core::ids::Pid;
use stackbeat_proto::v1::{Event, event, packet};

use super::clocks::now_ns;
use super::control::Session;
use super::dump_error::DumpError;
use super::options::{Dumps, Progress};
use super::orders::{Order, Reason};
use super::protocol::{DumpReply, DumpRequest};
use crate::drain::crash::Crash;

/// How long the drain may take for a pass at the end, until processes that died just before are left out.
const LAST_PASS: Duration = Duration::from_secs(2);

/// What a dump was written for, unless somebody asked for it, and how it ended.
pub(crate) type Ended = (Option<String>, Result<DumpReply, DumpError>);

/// A dump on its way.
#[derive(Debug)]
struct UnderWay {
    reason: Option<String>,
    thread: JoinHandle<Result<DumpReply, DumpError>>,
}

/// Dumps one after the other, beside the recording.
#[derive(Debug)]
pub(crate) struct AutoDump {
    session: Arc<Session>,
    rules: Dumps,
    symbolize: bool,
    under_way: Option<UnderWay>,
    /// Wanted while one was under way: whether somebody asked, and what else happened.
    once_more: bool,
    /// The program's entry says that it died of this.
    crash: Option<Reason>,
    /// The program has died of this, and its dump is not written yet.
    end: Option<Reason>,
    /// Processes that crashed while a dump was under way.
    crashes: VecDeque<Reason>,
    number: u32,
    /// When the last one was written that nobody asked for, and how many so far.
    last: Option<Instant>,
    unasked: u32,
}

impl AutoDump {
    pub(crate) fn new(session: Arc<Session>, rules: Dumps, symbolize: bool) -> AutoDump {
        AutoDump {
            session,
            rules,
            symbolize,
            under_way: None,
            once_more: false,
            crash: None,
            end: None,
            crashes: VecDeque::new(),
            number: 0,
            last: None,
            unasked: 0,
        }
    }

    /// A dump is asked for. While one is under way, another one follows it, however often it is asked for.
    pub(crate) fn want(&mut self) {
        if self.under_way.is_some() {
            self.once_more = true;
        } else {
            self.write(None);
        }
    }

    /// Looks after what was wanted and what has been done since the last call.
    pub(crate) fn attend(&mut self, progress: &mut dyn FnMut(&Progress)) {
        self.take_reasons();
        if let Some((reason, result)) = self.ended() {
            progress(&Progress::Dumped { reason, result });
        }
    }

    fn take_reasons(&mut self) {
        for reason in self.session.shared.take_reasons() {
            self.consider(reason);
        }
    }

    /// Something happened that dumps are written for. The trace says so in any case.
    fn consider(&mut self, reason: Reason) {
        let program = Pid(self.session.program_pid.load(Ordering::Relaxed));
        if reason.crash.as_ref().is_some_and(|c| c.pid == program) {
            // We are its parent, and are told how it ended: `program_ended`.
            self.crash = Some(reason);
            return;
        }
        self.note(&reason);
        if reason.crash.is_some() && !self.rules.crash {
            // Nobody asked for it: the program has written over what says so.
            return;
        }
        if self.under_way.is_none() {
            self.write_unasked(reason);
        } else if reason.crash.is_some() && self.crashes.len() < self.rules.most as usize {
            self.crashes.push_back(reason);
        }
    }

    /// Writes a dump that nobody asked for, within the limits of these. False: it would be too many.
    fn write_unasked(&mut self, reason: Reason) -> bool {
        let every = Duration::from_nanos(self.rules.every_ns);
        let is_soon = self.last.is_some_and(|last| last.elapsed() < every);
        if is_soon || self.unasked >= self.rules.most {
            return false;
        }
        self.last = Some(Instant::now());
        self.unasked += 1;
        self.write(Some(reason));
        true
    }

    /// The program itself has ended: by a crash? Its last state is dumped. The drain must still run.
    pub(crate) fn program_ended(&mut self, wait_status: i32) {
        self.await_news();
        self.take_reasons();
        let seen = self.crash.take().and_then(|reason| reason.crash);
        let Some(signal) = crash_signals::of_status(wait_status).and_then(crash_signals::name)
        else {
            return;
        };
        let shared = &self.session.shared;
        let pid = Pid(self.session.program_pid.load(Ordering::Relaxed));
        let crash = seen.or_else(|| Crash::of_pid(&shared.mapping, pid));
        let place = match &crash {
            // Of several threads the first is known; the kernel took another one's signal.
            Some(crash) if crash.signal != signal => {
                format!(", after {}{}", crash.signal, crash.place())
            }
            crash => crash.as_ref().map_or(String::new(), Crash::place),
        };
        let core = match libc::WCOREDUMP(wait_status) {
            true => " (core dumped)",
            false => "",
        };
        let reason = Reason {
            text: format!("the program died of {signal}{core}{place}"),
            ..crash.map_or_else(Reason::default, |crash| shared.reason_of(crash, ""))
        };
        self.note(&reason);
        self.end = self.rules.crash.then_some(reason);
        if self.under_way.is_none() {
            self.write_of_crash();
        }
    }

    /// Waits until the drain has looked at all processes once more: who died before the program ended is
    /// known then.
    fn await_news(&self) {
        if !self.rules.crash {
            return;
        }
        let shared = &self.session.shared;
        let drains = || shared.figures.drains.load(Ordering::Relaxed);
        // The pass under way may have looked before.
        let (began, wanted) = (Instant::now(), drains() + 2);
        while drains() < wanted && began.elapsed() < LAST_PASS {
            shared.want_drain();
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn note(&self, reason: &Reason) {
        let note = Event {
            utid: reason.utid.0,
            time_ns: reason.at_ns.unwrap_or_else(now_ns),
            name: reason.text.clone(),
            kind: event::Kind::Note.into(),
            value: reason.value_ns as i64,
            node: reason.node,
            upid: 0,
        };
        let body = packet::Body::Event(note);
        self.session.shared.order(Order::Say(Box::new(body)));
    }

    fn write(&mut self, reason: Option<Reason>) {
        let request = DumpRequest {
            output: self.free_name(),
            overwrite: false,
            last_ns: self.rules.last_ns,
            symbolize: self.symbolize,
        };
        // It may have been long ago: a core takes its time, and so do dumps of others.
        let crash = reason.as_ref().filter(|reason| reason.crash.is_some());
        let before_ns = crash.and_then(|reason| reason.at_ns);
        let reason = reason.map(|reason| reason.text);
        let session = Arc::clone(&self.session);
        let dump = thread::Builder::new().name("stackbeat dump".to_owned());
        let started = dump.spawn(move || session.dump(&request, before_ns)).ok();
        self.under_way = started.map(|thread| UnderWay { reason, thread });
    }

    /// `TRACE.dump-1.beat` and so on, the first that is free.
    fn free_name(&mut self) -> PathBuf {
        loop {
            self.number += 1;
            let name = format!("dump-{}.beat", self.number);
            let path = self.session.trace.with_extension(name);
            if !path.exists() {
                return path;
            }
        }
    }

    /// The dump that has ended since the last call.
    fn ended(&mut self) -> Option<Ended> {
        if !self.under_way.as_ref()?.thread.is_finished() {
            return None;
        }
        let ended = self.join();
        if std::mem::take(&mut self.once_more) {
            self.want();
        } else {
            self.write_of_crash();
        }
        ended
    }

    /// That of the program's own death, or the next one of those that came while a dump was under way.
    fn write_of_crash(&mut self) {
        if let Some(reason) = self.end.take() {
            self.write(Some(reason));
            return;
        }
        while let Some(reason) = self.crashes.pop_front() {
            if self.write_unasked(reason) {
                return;
            }
        }
    }

    /// Finishes what is under way or wanted. The drain must still run.
    pub(crate) fn finish(mut self) -> Vec<Ended> {
        // Children may have died after the program.
        self.await_news();
        self.take_reasons();
        let mut all = Vec::new();
        while let Some(ended) = self.join() {
            all.push(ended);
            self.write_of_crash();
        }
        if self.once_more {
            self.write(None);
            all.extend(self.join());
        }
        all
    }

    fn join(&mut self) -> Option<Ended> {
        let UnderWay { reason, thread } = self.under_way.take()?;
        let joined = thread.join();
        let result = joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Some((reason, result))
    }
}
