//! A session inside the program: the system is the same, and the session's own threads are none of the program's.

use std::io;

use stackbeat_core::ids::{Pid, Tid};

use crate::host::{
    Followed, Host, Image, Interruption, Peers, Scheduled, State, ThreadClock, Usage, Watch, Whose,
};
use crate::linux::host::Linux;
use crate::session::own_threads;

/// The surroundings of a session inside the program.
#[derive(Debug)]
pub(super) struct Inside {
    system: Linux,
    own_pid: Pid,
}

impl Inside {
    pub(super) fn new(mapping_name: &[u8], own_pid: Pid) -> Inside {
        Inside {
            system: Linux::of_session(mapping_name, own_pid),
            own_pid,
        }
    }
}

impl Host for Inside {
    fn whose(&self, pid: Pid) -> Whose {
        match pid == self.own_pid {
            true => Whose::Ours,
            // Forked children take part, too.
            false => self.system.whose(pid),
        }
    }

    fn thread_count(&self, pid: Pid) -> Option<u64> {
        let all = self.system.thread_count(pid)?;
        Some(all.saturating_sub(own_threads::count(pid)))
    }

    fn threads(&self, pid: Pid) -> Vec<Tid> {
        let mut threads = self.system.threads(pid);
        if pid == self.own_pid {
            threads.retain(|tid| !own_threads::has(*tid));
        }
        threads
    }

    fn exists(&self, pid: Pid) -> bool {
        self.system.exists(pid)
    }

    fn watch(&self, pid: Pid) -> Option<Box<dyn Watch>> {
        self.system.watch(pid)
    }

    fn image(&self, pid: Pid) -> Image {
        self.system.image(pid)
    }

    fn mapped_file(&self, pid: Pid, address: u64) -> Option<String> {
        self.system.mapped_file(pid, address)
    }

    fn process_cpu_ns(&self, pid: Pid) -> u64 {
        self.system.process_cpu_ns(pid)
    }

    fn has_thread(&self, pid: Pid, tid: Tid) -> bool {
        self.system.has_thread(pid, tid)
    }

    fn thread_name(&self, pid: Pid, tid: Tid) -> Option<String> {
        self.system.thread_name(pid, tid)
    }

    fn usage(&self, pid: Pid, tid: Tid) -> Option<Usage> {
        self.system.usage(pid, tid)
    }

    fn scheduled(&self, pid: Pid, tid: Tid) -> Option<Scheduled> {
        self.system.scheduled(pid, tid)
    }

    fn user_ns(&self, pid: Pid, tid: Tid) -> Option<u64> {
        self.system.user_ns(pid, tid)
    }

    fn state(&self, pid: Pid, tid: Tid) -> State {
        self.system.state(pid, tid)
    }

    fn follow(&self, pid: Pid, tid: Tid) -> Box<dyn Followed> {
        self.system.follow(pid, tid)
    }

    fn is_waiting(&self, pid: Pid, tid: Tid) -> bool {
        self.system.is_waiting(pid, tid)
    }

    fn interruption(&self) -> io::Result<Interruption> {
        self.system.interruption()
    }

    fn thread_clock(&self, tid: Tid, period_ns: u64) -> io::Result<Box<dyn ThreadClock>> {
        self.system.thread_clock(tid, period_ns)
    }

    fn begin_ticking(&self) {
        self.system.begin_ticking();
    }

    fn sleep_until(&self, ns: u64) {
        self.system.sleep_until(ns);
    }

    fn peers(&self) -> Option<Box<dyn Peers>> {
        self.system.peers()
    }
}
