//! Deadlocks that the recorder noticed: which threads wait for which of each other's locks, and where.

use std::collections::HashMap;
use std::fmt::Write;

use serde::Serialize;
use stackbeat_model::{ProbeId, Segment, SegmentKind, ThreadIndex, Trace};

use super::facts::Facts;
use super::rows::Rows;
use crate::render::text::tables::{Layout, chain, label_text, title};
use crate::summary::call_tree::{Profile, ROOT};
use crate::terminal::clean;
use crate::units::duration;

/// A thread in a deadlock.
#[derive(Clone, Copy, Debug)]
struct Member {
    thread: ThreadIndex,
    probe: ProbeId,
    lock: u64,
    /// Where it waits, in the tree of the profile.
    place: u32,
}

/// Deadlocks of a trace: when they were noticed, and who is in them.
#[derive(Clone, Debug, Default)]
pub struct Deadlocks {
    found: Vec<(u64, Vec<Member>)>,
}

/// Collects where threads in deadlocks wait, while a trace is read.
#[derive(Debug, Default)]
pub struct Places {
    of_wait: HashMap<(usize, ThreadIndex), u32>,
}

impl Places {
    /// `path`: the place of the segment's stack.
    pub fn add(&mut self, trace: &Trace, segment: &Segment, path: u32) {
        if !matches!(segment.kind, SegmentKind::Blocked(_)) {
            return;
        }
        for (i, deadlock) in trace.deadlocks().iter().enumerate() {
            let holds = (segment.begin_ns..=segment.end_ns).contains(&deadlock.time_ns);
            if holds && deadlock.members.iter().any(|m| m.thread == segment.thread) {
                self.of_wait.insert((i, segment.thread), path);
            }
        }
    }

    pub fn finish(self, trace: &Trace, rows: &Rows) -> Deadlocks {
        let found = trace.deadlocks().iter().enumerate().map(|(i, deadlock)| {
            let member = |m: &stackbeat_model::DeadlockMember| Member {
                thread: rows.row(m.thread),
                probe: m.probe,
                lock: m.lock,
                place: self.of_wait.get(&(i, m.thread)).copied().unwrap_or(ROOT),
            };
            let members = deadlock.members.iter().map(member).collect();
            (deadlock.time_ns.saturating_sub(trace.start_ns()), members)
        });
        Deadlocks {
            found: found.collect(),
        }
    }
}

/// The text; empty when there was none.
pub fn text(deadlocks: &Deadlocks, facts: &Facts, profile: &Profile, layout: &Layout) -> String {
    let mut out = String::new();
    if deadlocks.found.is_empty() {
        return out;
    }
    title(&mut out, layout, "Deadlocks");
    let name = |thread: ThreadIndex| {
        let known = facts.threads.get(thread.0 as usize);
        known.map_or("?".to_owned(), |t| {
            format!("{} ({})", clean(&t.name), t.tid)
        })
    };
    for (at_ns, members) in deadlocks.found.iter().take(layout.top) {
        let _ = writeln!(out, "  {} after the start:", duration(*at_ns));
        for (member, holder) in members.iter().zip(members.iter().cycle().skip(1)) {
            let line = format!(
                "    {} waits in {} for {:#x}, which {} holds",
                name(member.thread),
                member.probe.name(),
                member.lock,
                name(holder.thread)
            );
            let _ = writeln!(out, "{}", layout.style.warning(&line));
            let stack = chain(facts, profile.tree.outwards(member.place));
            if !stack.is_empty() {
                let _ = writeln!(out, "      {stack}");
            }
        }
    }
    crate::render::text::tables::more(&mut out, layout, deadlocks.found.len());
    out
}

/// A deadlock in JSON (docs/json.md).
#[derive(Debug, Serialize)]
pub struct DeadlockJson {
    at_ns: u64,
    threads: Vec<MemberJson>,
}

#[derive(Debug, Serialize)]
struct MemberJson {
    thread_uid: u32,
    call: String,
    lock: String,
    /// Innermost first; empty when not known.
    stack: Vec<String>,
}

pub fn json(deadlocks: &Deadlocks, facts: &Facts, profile: &Profile) -> Vec<DeadlockJson> {
    let member = |m: &Member| MemberJson {
        thread_uid: facts.threads.get(m.thread.0 as usize).map_or(0, |t| t.uid),
        call: m.probe.name().into_owned(),
        lock: format!("{:#x}", m.lock),
        stack: profile
            .tree
            .outwards(m.place)
            .map(|(_, label)| label_text(facts, label))
            .collect(),
    };
    let all = deadlocks.found.iter();
    all.map(|(at_ns, members)| DeadlockJson {
        at_ns: *at_ns,
        threads: members.iter().map(member).collect(),
    })
    .collect()
}
