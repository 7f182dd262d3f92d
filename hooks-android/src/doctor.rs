//! What became of each hook: for the log, the trace, and whoever asks why something is not in it.
//!
//! ```text
//! art 14: 13 of 14 hooks in place
//! art 14, by dobby: MonitorLock, MonitorUnlock, …
//! art 14, not available: Park (this ART does not have it)
//! bionic, called by no loaded library: lockf, …
//! ```
//!
//! The tool's `android doctor` tells the lines apart by these words.

use stackbeat_core::agent;
use stackbeat_core::shm::record_format::TEXT_PART_BYTES;

use crate::backend::{HookError, Refusal};

/// What became of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is there, by this backend.
    Placed(&'static str),
    /// Nobody calls the function, so there is nothing to change.
    NotCalled,
    /// It is not there, and why.
    NotAvailable(String),
}

impl State {
    /// What all backends together have said.
    pub fn refused(reasons: &[HookError]) -> State {
        let is_idle = |reason: &HookError| {
            matches!(
                reason,
                HookError::Refused {
                    why: Refusal::NoSlots,
                    ..
                }
            )
        };
        match reasons {
            [] => State::NotAvailable("there is no backend".to_owned()),
            _ if reasons.iter().all(is_idle) => State::NotCalled,
            _ => {
                let reasons: Vec<String> = reasons.iter().map(reason_of).collect();
                State::NotAvailable(reasons.join("; "))
            }
        }
    }
}

/// Without the function's name.
fn reason_of(error: &HookError) -> String {
    match error {
        HookError::Unavailable { .. } => error.to_string(),
        HookError::Refused { backend, why, .. } => format!("{backend}: {why}"),
    }
}

/// The hooks of one library.
#[derive(Clone, Debug)]
#[must_use]
pub struct Hooks {
    of: String,
    all: Vec<(&'static str, State)>,
}

impl Hooks {
    /// None yet, of this library.
    pub fn new(of: String) -> Hooks {
        Hooks {
            of,
            all: Vec::new(),
        }
    }

    /// Another one.
    pub fn add(&mut self, name: &'static str, state: State) {
        self.all.push((name, state));
    }

    /// All of them.
    pub fn all(&self) -> &[(&'static str, State)] {
        &self.all
    }

    /// A line for each that is not available.
    pub fn missing(&self) -> impl Iterator<Item = String> {
        self.all.iter().filter_map(|(name, state)| match state {
            State::NotAvailable(why) => Some(format!("{}, not available: {name} ({why})", self.of)),
            State::Placed(_) | State::NotCalled => None,
        })
    }

    /// All lines. None is longer than a text of the trace.
    pub fn lines(&self) -> Vec<String> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let is_wanted = |(_, state): &&(_, State)| *state != State::NotCalled;
        let wanted = self.all.iter().filter(is_wanted).count();
        let names = |state: &State| -> Vec<&str> {
            let of_state = self.all.iter().filter(|(_, s)| s == state);
            of_state.map(|(name, _)| *name).collect()
        };
        let mut backends: Vec<&State> = Vec::new();
        for (_, state) in &self.all {
            if matches!(state, State::Placed(_)) && !backends.contains(&state) {
                backends.push(state);
            }
        }
        let placed: Vec<(&State, Vec<&str>)> =
            backends.into_iter().map(|s| (s, names(s))).collect();
        let count: usize = placed.iter().map(|(_, names)| names.len()).sum();
        let of = &self.of;
        let mut lines = vec![format!("{of}: {count} of {wanted} hooks in place")];
        for (state, names) in placed {
            if let State::Placed(backend) = state {
                lines.push(agent::list(&format!("{of}, by {backend}: "), &names));
            }
        }
        let not_called = names(&State::NotCalled);
        if !not_called.is_empty() {
            lines.push(agent::list(
                &format!("{of}, called by no loaded library: "),
                &not_called,
            ));
        }
        lines.extend(self.missing().map(|line| cut(line, TEXT_PART_BYTES)));
        lines
    }
}

fn cut(mut text: String, most: usize) -> String {
    let end = (0..=most.min(text.len())).rfind(|i| text.is_char_boundary(*i));
    text.truncate(end.unwrap_or(0));
    text
}
