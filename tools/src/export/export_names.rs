//! The names that exports give to things, the same in every format.

use stackbeat_model::{Counter, FrameIndex, ProbeId, ProcessIndex, StackIndex, ThreadIndex, Trace};
use stackbeat_proto::v1::event;

/// The slice or leaf that stands for time without evidence.
pub const GAP_NAME: &str = "[no evidence]";
/// The slice or leaf of time for which no stack is known.
pub const UNKNOWN_NAME: &str = "[unknown]";

/// The leaf that stands for a blocking call: its probe and what it waits for.
pub fn blocking_name(probe: ProbeId) -> String {
    format!("{} [{}]", probe.name(), probe.cause().name())
}

/// Names that are asked for again and again.
#[derive(Debug)]
pub(super) struct Names {
    blocking: Vec<String>,
}

impl Names {
    pub(super) fn new() -> Names {
        Names {
            blocking: (0..=u8::MAX).map(|n| blocking_name(ProbeId(n))).collect(),
        }
    }

    /// See [`blocking_name`].
    pub(super) fn blocking(&self, probe: ProbeId) -> &str {
        &self.blocking[probe.0 as usize]
    }

    /// The frames of a stack, outermost first.
    pub(super) fn frames_into(
        &self,
        trace: &Trace,
        stack: StackIndex,
        frames: &mut Vec<FrameIndex>,
    ) {
        frames.clear();
        if stack != StackIndex::NONE {
            frames.extend(trace.stack_frames(stack));
        }
    }
}

/// The name of a frame's function.
pub(super) fn function_name(trace: &Trace, frame: FrameIndex) -> &str {
    &trace.function(trace.frame(frame).function).name
}

/// The program's file name, or its id; a fork without an image of its own is called as its parent.
pub(super) fn process_name(trace: &Trace, process: ProcessIndex) -> String {
    let mut index = process;
    loop {
        let process = trace.process(index);
        let is_nameless = process.executable.is_empty() && process.command_line.is_empty();
        match process
            .parent
            .filter(|parent| is_nameless && *parent < index)
        {
            Some(parent) => index = parent,
            None => return process.name(),
        }
    }
}

/// "python3 (4711)".
pub(super) fn process_label(trace: &Trace, process: ProcessIndex) -> String {
    format!(
        "{} ({})",
        process_name(trace, process),
        trace.process(process).pid
    )
}

/// "worker (4712)".
pub(super) fn thread_label(trace: &Trace, thread: ThreadIndex) -> String {
    let thread = trace.thread(thread);
    format!("{} ({})", thread_name(&thread.name), thread.tid)
}

/// A thread's name, never empty.
pub(super) fn thread_name(name: &str) -> &str {
    if name.is_empty() { "thread" } else { name }
}

/// The headline of an export: the recorded command.
pub(super) fn title(trace: &Trace, options: &super::Options) -> String {
    options
        .title
        .clone()
        .unwrap_or_else(|| trace.header().command_line.join(" "))
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What kind of event it is.
pub(super) fn event_kind(kind: event::Kind) -> &'static str {
    match kind {
        event::Kind::Mark => "mark",
        event::Kind::ScopeBegin => "scope begin",
        event::Kind::ScopeEnd => "scope end",
        event::Kind::IntervalChanged => "interval changed",
        event::Kind::ConfigChanged => "configuration changed",
        event::Kind::LoopIteration => "event-loop iteration",
        event::Kind::Note => "note",
        event::Kind::FlowBegin => "flow begin",
        event::Kind::FlowStep => "flow step",
        event::Kind::FlowEnd => "flow end",
        event::Kind::AsyncBegin => "asynchronous begin",
        event::Kind::AsyncEnd => "asynchronous end",
    }
}

/// A counter's name with its unit.
pub(super) fn counter_name(counter: &Counter) -> String {
    match counter.unit.as_str() {
        "" => counter.name.clone(),
        unit => format!("{} ({unit})", counter.name),
    }
}
