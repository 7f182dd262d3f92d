//! Processes that crashed: what their entries say of it.

use std::path::Path;

use stackbeat_core::crash_signals;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Pid, Tid, Utid};
use stackbeat_core::shm::layout::ProcessEntry;
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::registry;
use stackbeat_core::sync::Ordering;

/// What ended a process, as far as it could say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crash {
    pub pid: Pid,
    pub signal: &'static str,
    /// `None`: only its parent reported it.
    pub thread: Option<CrashedThread>,
}

/// Who got the signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CrashedThread {
    pub utid: Utid,
    tid: Tid,
    name: String,
    pub node: u32,
    pub cycles: Cycles,
}

impl Crash {
    /// What the entry of a process that is over says.
    pub(crate) fn of(entry: &ProcessEntry) -> Option<Crash> {
        let get = |word: &stackbeat_core::sync::AtomicU32| word.load(Ordering::Relaxed);
        let signal = i32::try_from(entry.fatal_signal.load(Ordering::Acquire)).ok()?;
        let signal = crash_signals::name(signal)?;
        let tid = get(&entry.fatal_tid);
        let name = entry.fatal_name.iter();
        let name: Vec<u8> = name
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        Some(Crash {
            pid: entry.pid(),
            signal,
            thread: (tid != 0).then(|| CrashedThread {
                utid: Utid(get(&entry.fatal_utid)),
                tid: Tid(tid),
                name: String::from_utf8_lossy(&name).into_owned(),
                node: Some(get(&entry.fatal_node))
                    .filter(|node| *node != crash_signals::NO_NODE)
                    .unwrap_or(0),
                cycles: entry.fatal_cycles.load(Ordering::Relaxed),
            }),
        })
    }

    /// What the entry of the newest image with this pid says.
    pub(crate) fn of_pid(mapping: &Mapping, pid: Pid) -> Option<Crash> {
        let entries = registry::processes(mapping);
        let entries = entries.filter(|(_, e)| e.pid() == pid);
        let (_, newest) = entries.max_by_key(|(_, e)| e.upid())?;
        Crash::of(newest)
    }

    /// Where it was, as the end of a sentence.
    pub(crate) fn place(&self) -> String {
        let thread = self.thread.as_ref();
        thread.map_or(String::new(), |thread| {
            format!(" in thread {} ({})", thread.tid, thread.name)
        })
    }
}

/// A process, as crashes name it.
pub(crate) fn process_name(pid: Pid, file: &str) -> String {
    let name = Path::new(file).file_name().unwrap_or_default();
    match name.to_string_lossy() {
        name if name.is_empty() => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_named_by_their_file() {
        assert_eq!(process_name(Pid(7), "/usr/sbin/nginx"), "process 7 (nginx)");
        assert_eq!(process_name(Pid(7), ""), "process 7");
    }
}
