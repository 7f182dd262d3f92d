//! Dumps by themselves: on a signal to the recorder, when a thread waits for too long, when a turn of an event
//! loop takes too long, when the program dies of a fault.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stackbeat_proto::v1::{Event, event, packet};

use super::control::Session;
use super::control::protocol::{DumpReply, DumpRequest};
use super::drainer::Order;
use super::options::Dumps;
use super::shared::Reason;
use super::ticker::now_ns;

/// Signals that tell of a fault in the program.
const FAULTS: [(i32, &str); 7] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGSYS, "SIGSYS"),
];

/// What a dump was written for, unless somebody asked for it, and how it ended.
pub type Ended = (Option<String>, Result<DumpReply, String>);

/// A dump on its way.
#[derive(Debug)]
struct UnderWay {
    reason: Option<String>,
    thread: JoinHandle<Result<DumpReply, String>>,
}

/// Dumps one after the other, beside the recording.
#[derive(Debug)]
pub struct AutoDump {
    session: Arc<Session>,
    rules: Dumps,
    symbolize: bool,
    under_way: Option<UnderWay>,
    /// Wanted while one was under way: whether somebody asked, and what else happened.
    once_more: bool,
    crash: Option<String>,
    number: u32,
    /// When the last one was written that nobody asked for, and how many so far.
    last: Option<Instant>,
    unasked: u32,
}

impl AutoDump {
    pub fn new(session: Arc<Session>, rules: Dumps, symbolize: bool) -> AutoDump {
        AutoDump {
            session,
            rules,
            symbolize,
            under_way: None,
            once_more: false,
            crash: None,
            number: 0,
            last: None,
            unasked: 0,
        }
    }

    /// A dump is asked for. While one is under way, another one follows it, however often it is asked for.
    pub fn want(&mut self) {
        if self.under_way.is_some() {
            self.once_more = true;
        } else {
            self.write(None);
        }
    }

    /// Something happened that dumps are written for. The trace says so in any case.
    pub fn consider(&mut self, reason: Reason) {
        self.note(&reason);
        let every = Duration::from_nanos(self.rules.every_ns);
        let is_soon = self.last.is_some_and(|last| last.elapsed() < every);
        if !is_soon && self.unasked < self.rules.most && self.under_way.is_none() {
            self.last = Some(Instant::now());
            self.unasked += 1;
            self.write(Some(reason.text));
        }
    }

    /// The program itself has ended: by a fault? Its last state is dumped by [`AutoDump::finish`].
    pub fn program_ended(&mut self, wait_status: i32) {
        let signal = libc::WTERMSIG(wait_status);
        let fault = FAULTS.into_iter().find(|(number, _)| *number == signal);
        let Some((_, name)) = fault.filter(|_| libc::WIFSIGNALED(wait_status)) else {
            return;
        };
        let core = match libc::WCOREDUMP(wait_status) {
            true => " (core dumped)",
            false => "",
        };
        let reason = Reason {
            text: format!("the program died of {name}{core}"),
            thread_uid: 0,
            value_ns: 0,
        };
        self.note(&reason);
        self.crash = self.rules.crash.then_some(reason.text);
    }

    fn note(&self, reason: &Reason) {
        let note = Event {
            thread_uid: reason.thread_uid,
            time_ns: now_ns(),
            name: reason.text.clone(),
            kind: event::Kind::Note.into(),
            value: reason.value_ns as i64,
            node: 0,
        };
        let body = packet::Body::Event(note);
        self.session.shared.order(Order::Say(Box::new(body)));
    }

    fn write(&mut self, reason: Option<String>) {
        let request = DumpRequest {
            output: self.free_name(),
            overwrite: false,
            last_ns: self.rules.last_ns,
            symbolize: self.symbolize,
        };
        let session = Arc::clone(&self.session);
        let dump = thread::Builder::new().name("stackbeat dump".to_owned());
        let begun = dump.spawn(move || session.dump(&request)).ok();
        self.under_way = begun.map(|thread| UnderWay { reason, thread });
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
    pub fn ended(&mut self) -> Option<Ended> {
        if !self.under_way.as_ref()?.thread.is_finished() {
            return None;
        }
        let ended = self.join();
        if std::mem::take(&mut self.once_more) {
            self.want();
        }
        ended
    }

    /// Finishes what is under way or wanted. The drain must still run.
    pub fn finish(mut self) -> Vec<Ended> {
        let mut all = Vec::from_iter(self.join());
        if self.crash.is_some() || self.once_more {
            let crash = self.crash.take();
            self.write(crash);
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
