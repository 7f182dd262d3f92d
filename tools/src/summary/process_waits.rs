//! Which processes mostly wait for another recorded one: the stages of a pipeline, a client and its server.

use std::collections::BTreeMap;

use stackbeat_core::probe::Cause;
use stackbeat_model::ThreadIndex;

use super::load::Report;
use super::told_apart;
use crate::terminal::clean;
use crate::units::duration;

/// A process whose threads wait for another one in this part of their time mostly waits for it.
const MOSTLY: f64 = 0.5;
/// A process that lived for less than this part of the recording is not worth a word.
const LONG: f64 = 0.1;
/// Processes that are named.
const NAMED: usize = 3;

/// Waits of a process that say nothing of its work: that others end.
fn is_for_an_end(cause: Cause) -> bool {
    matches!(cause, Cause::Process | Cause::Join)
}

/// Who waits for whom in one line, longest first; `None`: no process mostly waits for another one. Processes
/// that nothing tells apart are one: what they wait for among themselves does not count.
pub(crate) fn text(report: &Report, wanted: &dyn Fn(ThreadIndex) -> bool) -> Option<String> {
    let metadata = &report.metadata;
    let process = |thread: ThreadIndex| {
        let row = metadata.threads.get(thread.0 as usize)?;
        metadata.processes.get(row.process).filter(|_| row.pid != 0)
    };
    let names = told_apart::names(metadata);
    let name = |thread: ThreadIndex| {
        let row = metadata.threads.get(thread.0 as usize);
        row.and_then(|row| names.get(row.process))
            .map_or("", String::as_str)
    };
    let mut waits: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for wait in report.waits.sums().filter(|wait| wanted(wait.thread)) {
        if let Some(waiting) = process(wait.thread)
            && let Some(waker) = wait.waker
            && let Some(other) = process(waker)
            && waiting.pid != other.pid
            && name(wait.thread) != name(waker)
            && !is_for_an_end(wait.probe.cause())
        {
            let by_other = waits.entry(name(wait.thread)).or_default();
            let sum = by_other.entry(name(waker)).or_default();
            *sum = sum.saturating_add(wait.total_ns);
        }
    }
    let mut lived: BTreeMap<&str, u64> = BTreeMap::new();
    for (thread, time) in (0..).map(ThreadIndex).zip(&report.profile.threads) {
        if process(thread).is_some() && wanted(thread) {
            *lived.entry(name(thread)).or_default() += time.wall_ns();
        }
    }
    let mut found: Vec<(u64, String)> = Vec::new();
    for (waiting, by_other) in waits {
        let Some((other, ns)) = by_other.into_iter().max_by_key(|(_, ns)| *ns) else {
            continue;
        };
        let lived_ns = lived.get(waiting).copied().unwrap_or(0);
        let is_long = lived_ns as f64 >= LONG * metadata.recording.duration_ns as f64;
        if is_long && lived_ns > 0 && ns as f64 >= MOSTLY * lived_ns as f64 {
            let (ns_text, lived) = (duration(ns), duration(lived_ns));
            found.push((ns, format!("{waiting} for {other} ({ns_text} of {lived})")));
        }
    }
    found.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
    let found: Vec<String> = found
        .into_iter()
        .take(NAMED)
        .map(|(_, text)| text)
        .collect();
    let text = format!("waits mostly: {}", found.join(", "));
    (!found.is_empty()).then(|| clean(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use stackbeat_core::probe::Probe;
    use stackbeat_model::{LongWait, StackIndex};

    use super::*;
    use crate::summary::call_tree::{ROOT, ThreadTime};
    use crate::testing;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_process_that_mostly_waits_for_another_is_named() {
        let mut report = testing::report();
        // Three threads of one process, and that of the other.
        for (index, time) in report.profile.threads.iter_mut().enumerate() {
            let wall_ns = if index == 3 { 400 } else { 300 } * MS;
            *time = ThreadTime {
                running_ns: wall_ns,
                ..ThreadTime::default()
            };
        }
        report.metadata.recording.duration_ns = 800 * MS;
        let said = |report: &Report| text(report, &|_| true);
        let add = |report: &mut Report, (thread, waker): (u32, u32), probe: Probe, ms: u64| {
            let wait = LongWait {
                thread: ThreadIndex(thread),
                owner: None,
                probe: probe.into(),
                begin_ns: 0,
                end_ns: ms * MS,
                stack: StackIndex::NONE,
                object: 0,
                result: 1,
                waker: Some(ThreadIndex(waker)),
                wake: None,
            };
            report.waits.add(&wait, ROOT, None);
        };
        // For a child's end, for threads of its own, and for less than half of its time.
        add(&mut report, (0, 3), Probe::Wait, 700);
        add(&mut report, (0, 1), Probe::Read, 700);
        add(&mut report, (3, 0), Probe::Read, 150);
        assert_eq!(said(&report), None);
        add(&mut report, (3, 1), Probe::Read, 150);
        let expected = "waits mostly: sh for shop (300 ms of 400 ms)";
        assert_eq!(said(&report).as_deref(), Some(expected));
    }
}
