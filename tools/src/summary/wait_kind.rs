//! What a wait is for, where an interpreter's own locks are told apart from others.

use stackbeat_core::probe::Cause;
use stackbeat_model::ProbeId;

use super::call_tree::{Label, Tree};
use super::libraries::{is_address, is_library, is_managed};
use super::metadata::{FunctionName, Metadata};

/// Of CPython, where a thread waits until it may run Python code.
const TAKES_GIL: &str = "take_gil";
/// And where it waits for a lock of the program's (Python/thread_pthread.h; from 3.13 on
/// Python/parking_lot.c).
const TAKES_LOCK: [&str; 2] = ["PyThread_acquire_lock_timed", "_PySemaphore_Wait"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WaitKind {
    /// Python's global interpreter lock, which each thread lets go of again and again: who has it is no news,
    /// and that others want it is.
    InterpreterLock,
    Of(Cause),
}

impl WaitKind {
    /// Of a wait in the call of a probe, at a place in a call tree.
    pub(crate) fn at(metadata: &Metadata, tree: &Tree, place: u32, probe: ProbeId) -> WaitKind {
        match probe.cause() {
            Cause::Lock if functions(metadata, tree, place).any(|f| f.name == TAKES_GIL) => {
                WaitKind::InterpreterLock
            }
            Cause::Wait if is_for_lock(metadata, tree, place) => WaitKind::Of(Cause::Lock),
            Cause::Wait if is_nameless_gil(metadata, tree, place, probe) => {
                WaitKind::InterpreterLock
            }
            cause => WaitKind::Of(cause),
        }
    }
}

/// Whether what waits at a place for another thread waits for one of Python's locks (`threading.Lock`,
/// `RLock`). `Condition`, `Event` and `Queue` are made of such locks, but there a function of the library's
/// waits.
pub(crate) fn is_for_lock(metadata: &Metadata, tree: &Tree, place: u32) -> bool {
    let mut takes_lock = false;
    for function in functions(metadata, tree, place) {
        if is_managed(function) {
            return takes_lock && !is_library(function);
        }
        takes_lock |= TAKES_LOCK.contains(&&*function.name);
    }
    false
}

/// Whether an interpreter without symbols waits on a condition: CPython's lock is the only one for which it
/// does so itself, and what else waits has an exported function around it.
fn is_nameless_gil(metadata: &Metadata, tree: &Tree, place: u32, probe: ProbeId) -> bool {
    let mut is_interpreters = false;
    for function in functions(metadata, tree, place) {
        if is_managed(function) {
            return is_interpreters && function.module == "python";
        }
        let file = function.module.rsplit('/').next().unwrap_or_default();
        if !is_address(&function.name) || !file.contains("python") {
            return false;
        }
        is_interpreters = probe.name().starts_with("pthread_cond_");
    }
    false
}

/// The functions at a place, innermost first.
fn functions<'a>(
    metadata: &'a Metadata,
    tree: &'a Tree,
    place: u32,
) -> impl Iterator<Item = &'a FunctionName> {
    tree.labels(place).filter_map(|label| match label {
        Label::Function(f) => metadata.functions.get(f.0 as usize),
        _ => None,
    })
}
