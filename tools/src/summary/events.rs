//! What happened at one moment: marks of users and of the program, and settings that were changed.

use serde::Serialize;
use stackbeat_collector::session::control::{mode_name, names_of};
use stackbeat_core::ids::Upid;
use stackbeat_model::{ThreadIndex, Trace, UNPATCHED};
use stackbeat_proto::v1::{Event, event};

use crate::units::duration;

/// Events that a report keeps; there may be millions of marks in a trace.
const MOST: usize = 20_000;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EventRow {
    /// Since the recording's start.
    pub at_ns: u64,
    /// 0: the session.
    pub utid: u32,
    /// `mark`, `note`, `interval` or `setting`.
    pub kind: &'static str,
    /// What is shown.
    pub text: String,
    pub value: i64,
    /// Where its thread was, in the tree of the profile; `ROOT`: it does not say.
    #[serde(skip)]
    pub place: u32,
    /// Nothing was captured from here on, until capturing began again.
    #[serde(skip)]
    pub is_off: bool,
}

/// Collects events while a trace is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    rows: Vec<EventRow>,
    left_out: u64,
}

impl Events {
    /// `place`: where the thread was, in the tree of the profile.
    pub(crate) fn add(
        &mut self,
        trace: &Trace,
        thread: Option<ThreadIndex>,
        event: &Event,
        place: u32,
    ) {
        let (kind, text) = match event.kind() {
            event::Kind::Mark => ("mark", event.name.clone()),
            event::Kind::Note => ("note", event.name.clone()),
            event::Kind::IntervalChanged if event.upid != 0 => ("timers", timers(trace, event)),
            event::Kind::IntervalChanged => {
                let ns = u64::try_from(event.value).unwrap_or(0);
                ("interval", format!("{} every {}", event.name, duration(ns)))
            }
            event::Kind::ConfigChanged => ("setting", setting(event)),
            event::Kind::FlowBegin
            | event::Kind::FlowStep
            | event::Kind::FlowEnd
            | event::Kind::AsyncBegin
            | event::Kind::AsyncEnd
            | event::Kind::ScopeBegin
            | event::Kind::ScopeEnd
            | event::Kind::LoopIteration => return,
        };
        if self.rows.len() >= MOST {
            self.left_out += 1;
            return;
        }
        self.rows.push(EventRow {
            at_ns: event.time_ns.saturating_sub(trace.start_ns()),
            utid: thread.map_or(0, |thread| trace.thread(thread).utid.0),
            kind,
            text,
            value: event.value,
            place,
            is_off: event.kind() == event::Kind::ConfigChanged
                && (event.name.as_str(), event.value) == CAPTURE_OFF,
        });
    }

    /// In order of time, and how many more there were.
    pub(crate) fn finish(mut self) -> (Vec<EventRow>, u64) {
        self.rows.sort_by_key(|row| row.at_ns);
        (self.rows, self.left_out)
    }
}

/// A process' threads are sampled by timers from here on, or not any more.
fn timers(trace: &Trace, event: &Event) -> String {
    let process = trace
        .processes()
        .iter()
        .find(|p| p.upid == Upid(event.upid));
    let pid = process.map_or(0, |process| process.pid.0);
    match u64::try_from(event.value) {
        Ok(ns) if ns > 0 => format!("process {pid} by timers, every {}", duration(ns)),
        _ => format!("process {pid} at ticks"),
    }
}

/// The setting by which a session is switched off.
const CAPTURE_OFF: (&str, i64) = ("capture", 0);

fn setting(event: &Event) -> String {
    match (event.name.as_str(), event.value) {
        CAPTURE_OFF => "capturing off".to_owned(),
        ("capture", _) => "capturing on".to_owned(),
        ("probes", mask) => {
            let names = names_of(mask as u64);
            match names.is_empty() {
                true => "probes none".to_owned(),
                false => format!("probes {}", names.join(" ")),
            }
        }
        (UNPATCHED, mask) => format!("hooks withdrawn: {}", names_of(mask as u64).join(" ")),
        ("mode", mode) => format!("mode {}", mode_name(mode as u32)),
        (name, value) => format!("{name} {value}"),
    }
}
