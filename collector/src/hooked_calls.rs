//! The functions that the agent hooks, read from its library, and the counts of their calls in a session
//! that counts them.

use std::fs;
use std::io;
use std::mem::offset_of;
use std::path::Path;

use object::read::{Object, ObjectSection};
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::layout::{FUNCTIONS, HookedFunction};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1;

/// Where the library lists them (hooks-linux/src/hooked_functions.rs).
const SECTION: &str = "stackbeat_functions";
const ENTRY_BYTES: usize = size_of::<HookedFunction>();
const _: () =
    assert!(offset_of!(HookedFunction, probe) == 0 && offset_of!(HookedFunction, name) == 1);

/// A hooked function; its place in the list is its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its symbol, as programs call it.
    pub name: String,
    /// The probe that its calls belong to.
    pub probe: Probe,
}

/// The functions that this agent library hooks.
///
/// # Errors
///
/// A file that cannot be read, or that is no agent library of this version.
pub fn of_agent(path: &Path) -> io::Result<Vec<Function>> {
    let odd = || {
        io::Error::other(format!(
            "{}: has no list of hooked functions; is it libstackbeat.so of this version?",
            path.display()
        ))
    };
    let bytes = fs::read(path)?;
    let file = object::File::parse(&*bytes).map_err(|_| odd())?;
    let section = file.section_by_name(SECTION).ok_or_else(odd)?;
    let data = section.data().map_err(|_| odd())?;
    let functions: Option<Vec<_>> = data.chunks(ENTRY_BYTES).take(FUNCTIONS).map(read).collect();
    functions.filter(|f| !f.is_empty()).ok_or_else(odd)
}

fn read(entry: &[u8]) -> Option<Function> {
    let (probe, name) = entry.split_first()?;
    let name = name.split(|b| *b == 0).next()?;
    Some(Function {
        name: std::str::from_utf8(name).ok()?.to_owned(),
        probe: Probe::from_number(*probe)?,
    })
}

/// What the threads of a session have called so far.
pub(crate) fn counts(mapping: &Mapping, functions: &[Function]) -> Vec<v1::CallCounts> {
    let used = mapping
        .control()
        .call_rows_used
        .load(Ordering::Relaxed)
        .saturating_add(1);
    (0..used.min(mapping.layout().capacity.call_rows))
        .filter_map(|i| {
            let row = mapping.call_row(i)?;
            let mut counts = v1::CallCounts {
                upid: row.upid.load(Ordering::Relaxed),
                utid: row.utid.load(Ordering::Relaxed),
                ..v1::CallCounts::default()
            };
            for (function, calls) in functions.iter().zip(&row.calls) {
                let calls = calls.load(Ordering::Relaxed);
                if calls > 0 {
                    counts.function.push(function.name.clone());
                    counts.probe.push(function.probe as u32);
                    counts.calls.push(calls);
                }
            }
            (!counts.calls.is_empty()).then_some(counts)
        })
        .collect()
}
