//! Folded stacks: `process;thread;outermost;…;innermost weight`, a line for each stack.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use stackbeat_model::call_tree::Leaf;
use stackbeat_model::{FrameIndex, Trace};

use super::drops;
use super::export_names::{self, GAP_NAME, Names, UNKNOWN_NAME};
use super::profile::{Entry, Profile};
use super::{Exported, Options, Selection};
use crate::terminal::clean;

pub(super) fn write(
    trace: &Trace,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Exported> {
    let profile = Profile::collect(trace, selection)?;
    for (line, weight) in lines(trace, &profile, options) {
        writeln!(out, "{line} {weight}")?;
    }
    // At the end, and without a number there: readers skip what is no stack, and know the format by the first
    // line.
    for line in drops::lines(trace) {
        writeln!(out, "# missing: {}.", clean(&line))?;
    }
    Ok(profile.exported)
}

/// Each distinct line with its weight, without those of weight 0.
fn lines(trace: &Trace, profile: &Profile, options: &Options) -> BTreeMap<String, u64> {
    let names = Names::new();
    let mut lines = BTreeMap::new();
    let mut path = Vec::new();
    let mut line = String::new();
    for entry in &profile.entries {
        let weight = entry.spent.get(options.weight.metric());
        if weight == 0 {
            continue;
        }
        line.clear();
        let thread = trace.thread(entry.thread);
        push(
            &mut line,
            &export_names::process_label(trace, thread.process),
        );
        push(&mut line, &export_names::thread_label(trace, entry.thread));
        path_of(trace, &names, entry, &mut path, |name| {
            push(&mut line, name);
        });
        *lines.entry(line.clone()).or_insert(0) += weight;
    }
    lines
}

/// Calls `each` with the names of an entry's stack, outermost first, and its leaf.
pub(super) fn path_of(
    trace: &Trace,
    names: &Names,
    entry: &Entry,
    frames: &mut Vec<FrameIndex>,
    mut each: impl FnMut(&str),
) {
    names.frames_into(trace, entry.stack, frames);
    for frame in frames.iter() {
        each(export_names::function_name(trace, *frame));
    }
    match entry.leaf {
        Leaf::Code if frames.is_empty() => each(UNKNOWN_NAME),
        Leaf::Code => {}
        Leaf::NoStack => each(UNKNOWN_NAME),
        Leaf::Blocking(probe) => each(names.blocking(probe)),
        Leaf::Gap => each(GAP_NAME),
    }
}

/// Adds a level. The characters that structure a line are replaced, as other tools do, and those that would
/// steer a terminal.
fn push(line: &mut String, name: &str) {
    if !line.is_empty() {
        line.push(';');
    }
    line.push_str(&clean(name).replace(';', ":"));
}

#[cfg(test)]
mod tests {
    use super::push;

    #[test]
    fn separators_inside_names_are_replaced() {
        let mut line = String::new();
        push(&mut line, "main");
        push(&mut line, "f<[u8; 4]>\n\x1b[2J");
        assert_eq!(line, "main;f<[u8: 4]> \u{fffd}[2J");
    }
}
