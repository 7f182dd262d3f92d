//! What a trace does not have, in lines for people: formats without a place of their own for it say it in a
//! comment or a headline.

use stackbeat_model::Trace;

use crate::summary::load;

/// How complete the trace is when it is not, and each cause of loss with how often it struck. Empty: nothing
/// is missing.
pub(super) fn lines(trace: &Trace) -> Vec<String> {
    let by_cause = by_cause(trace).into_iter();
    incomplete(trace)
        .into_iter()
        .chain(by_cause.map(|(cause, count)| format!("{count} × {cause}")))
        .collect()
}

/// How complete the trace is when it is not.
pub(super) fn incomplete(trace: &Trace) -> Option<String> {
    Some(load::state(trace)).filter(|state| state != "complete")
}

/// Where a timeline says what is missing: at the end of the last thread. The recording itself may end later,
/// when the collector has named all functions.
pub(super) fn time_ns(trace: &Trace) -> u64 {
    let ends = trace.threads().iter().map(|thread| thread.end_ns);
    ends.max().unwrap_or(trace.start_ns())
}

/// Losses by cause, in the order of the trace.
pub(super) fn by_cause(trace: &Trace) -> Vec<(String, u64)> {
    let mut by_cause: Vec<(String, u64)> = Vec::new();
    for dropped in trace.drops().iter().filter(|dropped| dropped.count > 0) {
        let cause = dropped.name();
        match by_cause.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, count)) => *count = count.saturating_add(dropped.count),
            None => by_cause.push((cause, dropped.count)),
        }
    }
    by_cause
}

/// For one line after a headline; empty when nothing is missing.
pub(super) fn suffix(trace: &Trace) -> String {
    match lines(trace) {
        lines if lines.is_empty() => String::new(),
        lines => format!(" · missing: {}", lines.join("; ")),
    }
}
