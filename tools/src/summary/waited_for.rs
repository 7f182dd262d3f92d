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

    /// Names what is waited for in some calls, which are told by the place of the caller: a lock that belongs
    /// to no variable of the program's.
    pub(crate) fn name_all(&mut self, name: &str, is_for_it: impl Fn(u32, ProbeId) -> bool) {
        for ((path, probe), sums) in &mut self.at {
            if is_for_it(*path, *probe) {
                let whole = sums
                    .values()
                    .fold(0, |sum: u64, ns| sum.saturating_add(*ns));
                *sums = Sums::from([(Some(name.into()), whole)]);
            }
        }
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

#[cfg(test)]
mod tests {
    use stackbeat_core::probe::Probe;

    use super::*;

    #[test]
    fn a_lock_without_a_variable_has_the_name_that_it_is_given() {
        let probe = ProbeId::from(Probe::CondWait);
        let mut waited_for = WaitedFor::default();
        for path in [1, 2] {
            let sums = Sums::from([(None, 3), (Some("_PyRuntime+0x188".into()), 5)]);
            waited_for.at.insert((path, probe), sums);
        }
        waited_for.name_all("GIL", |path, _| path == 1);
        assert_eq!(waited_for.at(1, probe).as_deref(), Some("GIL"));
        assert_eq!(waited_for.at(2, probe), None);
    }
}
