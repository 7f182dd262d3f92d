//! What threads waited for, where it is a variable: `cache` is a lock of the program's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use stackbeat_core::probe::Cause;
use stackbeat_model::{ProbeId, Segment, SegmentKind, ThreadIndex, Trace};

/// What has this part of the waits at a place is what they are for.
const NEARLY_ALL: f64 = 0.9;
/// Variables that a call names.
const NAMED: usize = 2;

/// Names of variables, by who waited and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitedFor {
    /// By thread and address.
    names: HashMap<(ThreadIndex, u64), Arc<str>>,
    /// By call and the place of its caller: `None` has no name.
    at: HashMap<(u32, ProbeId), Sums>,
}

/// How long for which variable, ns.
type Sums = BTreeMap<Option<Arc<str>>, u64>;

impl WaitedFor {
    /// Adds a segment, which counts for the thread of this row. `path`: the place of its stack.
    pub(crate) fn add(&mut self, trace: &Trace, segment: &Segment, row: ThreadIndex, path: u32) {
        let SegmentKind::Blocked(probe) = segment.kind else {
            return;
        };
        if !matches!(probe.cause(), Cause::Lock | Cause::Wait) {
            return;
        }
        let process = trace.thread(segment.thread).process;
        let object = segment.arg.filter(|_| !segment.is_inferred);
        let name = object.and_then(|object| trace.variable(process, object));
        if let (Some(object), Some(name)) = (object, name) {
            self.names
                .entry((row, object))
                .or_insert_with(|| Arc::clone(name));
        }
        let sums = self.at.entry((path, probe)).or_default();
        *sums.entry(name.cloned()).or_default() += segment.wall_ns();
    }

    /// The variable at an address of a thread's process.
    pub(crate) fn name(&self, thread: ThreadIndex, address: u64) -> Option<&str> {
        self.names.get(&(thread, address)).map(|name| &**name)
    }

    /// What nearly all waits in a call were for, by the place of its caller: `cache`, or several.
    pub(crate) fn at(&self, path: u32, probe: ProbeId) -> Option<String> {
        let mut sums: Vec<_> = self.at.get(&(path, probe))?.iter().collect();
        sums.sort_by_key(|(name, ns)| (Reverse(**ns), *name));
        let whole = sums.iter().map(|(_, ns)| **ns).fold(0, u64::saturating_add);
        let (mut names, mut so_far) = (Vec::new(), 0_u64);
        for (name, ns) in sums {
            if so_far as f64 >= NEARLY_ALL * whole as f64 {
                break;
            }
            names.push(&**name.as_ref()?);
            so_far = so_far.saturating_add(*ns);
        }
        if names.len() > NAMED {
            names.truncate(NAMED);
            names.push("…");
        }
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// A call with what it waits for: `pthread_mutex_lock(cache)`.
    pub(crate) fn call(&self, path: u32, probe: ProbeId) -> String {
        match self.at(path, probe) {
            Some(name) => format!("{}({name})", probe.name()),
            None => probe.name().into_owned(),
        }
    }
}
