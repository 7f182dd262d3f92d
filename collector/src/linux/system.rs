//! What /proc says to the drain.

use stackbeat_core::ids::{Pid, Tid};

use super::procfs::{self, Identity};
use crate::drain::system::{Image, System, Usage, Watch};

/// The system that a session's processes run on.
#[derive(Debug)]
pub(crate) struct Linux {
    /// File name of the session's mapping, and pid of the program: they tell whose pids are ours.
    mapping_name: Vec<u8>,
    first_pid: Pid,
}

impl Linux {
    /// Of a session that is about to begin: pids from `first_pid` on are the program's.
    pub(crate) fn of_session(mapping_name: &[u8], first_pid: Pid) -> Linux {
        Linux {
            mapping_name: mapping_name.to_vec(),
            first_pid,
        }
    }

    /// Of one that is over, where nobody asks whose pids are ours.
    pub(crate) fn of_the_dead() -> Linux {
        Linux::of_session(b"", Pid(0))
    }
}

impl System for Linux {
    fn is_foreign(&self, pid: Pid) -> bool {
        procfs::identify(pid, &self.mapping_name, self.first_pid) == Identity::Foreign
    }

    fn exists(&self, pid: Pid) -> bool {
        procfs::exists(pid)
    }

    fn watch(&self, pid: Pid) -> Option<Box<dyn Watch>> {
        procfs::Watch::open(pid).map(|watch| Box::new(watch) as Box<dyn Watch>)
    }

    fn image(&self, pid: Pid) -> Image {
        Image {
            command_line: procfs::command_line(pid),
            executable: procfs::executable(pid),
            started_as: procfs::started_as(pid),
        }
    }

    fn mapped_file(&self, pid: Pid, address: u64) -> Option<String> {
        procfs::mapped_file(pid, address)
    }

    fn has_thread(&self, pid: Pid, tid: Tid) -> bool {
        procfs::has_thread(pid, tid)
    }

    fn thread_name(&self, pid: Pid, tid: Tid) -> Option<String> {
        procfs::thread_name(pid, tid)
    }

    fn usage(&self, pid: Pid, tid: Tid) -> Option<Usage> {
        let scheduled = procfs::scheduled(pid, tid).ok()?;
        let (voluntary_switches, involuntary_switches) = procfs::switches(pid, tid).ok()?;
        Some(Usage {
            cpu_ns: scheduled.run_ns,
            voluntary_switches,
            involuntary_switches,
        })
    }
}

impl Watch for procfs::Watch {
    fn has_ended(&self) -> bool {
        self.has_ended()
    }
}
