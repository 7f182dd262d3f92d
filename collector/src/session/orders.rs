//! What threads of a session ask of one another: the drain to do something, and a dump to be written.

use std::io;
use std::sync::mpsc;

use stackbeat_core::ids::{Upid, Utid};
use stackbeat_proto::v1::{self, packet};

use super::dump::Frozen;
use crate::drain::crash::Crash;
use crate::drain::generated_code::MapLines;
use crate::drain::lifecycle::Since;
use crate::drain::seen_waits::SeenWait;
use crate::drain::suspended::SuspendedSample;

/// What others want of the drain.
#[derive(Debug)]
pub(crate) enum Order {
    /// Put this into the trace.
    Say(Box<packet::Body>),
    /// This was appended to a perf map.
    MapLines(MapLines),
    /// This process makes code at run time, and may have mapped more of its file's code beside it.
    FindCopiesOfCode(Upid),
    /// Threads were seen waiting, with stacks in these modules.
    Waits {
        modules: Vec<v1::Module>,
        waits: Vec<SeenWait>,
    },
    /// A running thread was suspended, with a stack in these modules.
    Suspended {
        modules: Vec<v1::Module>,
        sample: Box<SuspendedSample>,
    },
    /// A program ran without an agent, unless one of its own time has registered.
    /// And since when the process may have been there.
    Unrecorded(Box<v1::Unrecorded>, Since),
    /// Store everything, then say what the session holds at this moment.
    Freeze(mpsc::SyncSender<io::Result<Frozen>>),
}

/// Why a dump is wanted that nobody asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reason {
    pub text: String,
    pub utid: Utid,
    /// How long it took by then, ns.
    pub value_ns: u64,
    /// The node of the thread's stack; 0: it says nothing.
    pub node: u32,
    /// When it was, if that is not now.
    pub at_ns: Option<u64>,
    /// The crash that has ended a process.
    pub crash: Option<Crash>,
}
