//! Code that lies in no file, seen from outside of its process: who tells of it.

use std::fmt;

use stackbeat_core::unwind::rule::Rule;

/// Tells of code that one process' runtime has made. A library that knows the runtime adds each piece to the
/// agent's tables; other runtimes write a perf map.
pub(crate) trait CodeSource: fmt::Debug + Send {
    /// What it knows of an address (of the instruction itself, not behind a call). `exact`: the function was
    /// interrupted there, and has called nobody. `None`: no code of its own is there.
    fn look(&self, address: u64, exact: bool) -> Option<Code>;
}

/// What a source knows of an address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Code {
    /// How to get to the caller. `None`: this source does not know.
    pub rule: Option<Rule>,
    pub frames: Frames,
}

/// The managed frames at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frames {
    /// Addresses and kinds of their nodes, outermost first. Empty: code of no method.
    Nodes(Vec<(u64, u32)>),
    /// The node keeps its address. The drain names that, each name from a time on.
    NamedByTheDrain,
}
