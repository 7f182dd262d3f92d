//! A session beside the program: what /proc and system calls say of other processes.

use std::io;

use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::platform::{self, Errno};
use stackbeat_core::shm::mapping::Mapping;

use super::limits::OfGroup;
use super::procfs;
use super::resources;
use super::thread_clock::{self, Events};
use super::thread_state::{self, KeptFiles, Task};
use super::ticking;
use super::unix_peers::UnixPeers;
use crate::host::{
    CopyOfCode, Followed, Host, Image, Interruption, Limits, Peers, Resources, Scheduled, Signals,
    State, ThreadClock, Usage, Watch, Whose,
};

/// The surroundings of a session beside the program.
#[derive(Debug)]
pub(crate) struct Linux {
    /// File name of the session's mapping, and pid of the program: they tell whose pids are ours.
    mapping_name: Vec<u8>,
    first_pid: Pid,
    kept: KeptFiles,
    /// Threads are suspended, not sent signals.
    suspends: bool,
}

impl Linux {
    /// Of a session that is about to begin: pids from `first_pid` on are the program's.
    pub(crate) fn of_session(mapping_name: &[u8], first_pid: Pid) -> Linux {
        Linux {
            mapping_name: mapping_name.to_vec(),
            first_pid,
            kept: KeptFiles::default(),
            suspends: false,
        }
    }

    /// One that behaves like a system without signals to threads.
    pub(crate) fn suspending(self) -> Linux {
        Linux {
            suspends: true,
            ..self
        }
    }

    /// Of one that is over, where nobody asks whose pids are ours.
    pub(crate) fn of_the_dead() -> Linux {
        Linux::of_session(b"", Pid(0))
    }
}

impl Host for Linux {
    fn whose(&self, pid: Pid) -> Whose {
        procfs::identify(pid, &self.mapping_name, self.first_pid)
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

    fn copies_of_code(&self, pid: Pid) -> Vec<CopyOfCode> {
        procfs::copies_of_code(pid)
    }

    fn process_cpu_ns(&self, pid: Pid) -> u64 {
        platform::clock_ns(procfs::process_clock(pid))
    }

    fn resources(&self, pid: Pid) -> Option<Box<dyn Resources>> {
        let opened = resources::OfProcess::open(pid)?;
        Some(Box::new(opened))
    }

    fn limits(&self, pid: Pid) -> Option<Box<dyn Limits>> {
        Some(Box::new(OfGroup::of(pid)))
    }

    fn thread_count(&self, pid: Pid) -> Option<u64> {
        procfs::thread_count(pid)
    }

    fn threads(&self, pid: Pid) -> Vec<Tid> {
        procfs::threads(pid)
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

    fn scheduled(&self, pid: Pid, tid: Tid) -> Option<Scheduled> {
        procfs::scheduled(pid, tid).ok()
    }

    fn user_ns(&self, pid: Pid, tid: Tid) -> Option<u64> {
        procfs::user_ns(pid, tid).ok()
    }

    fn state(&self, pid: Pid, tid: Tid) -> State {
        thread_state::state(pid, tid)
    }

    fn follow(&self, pid: Pid, tid: Tid) -> Box<dyn Followed> {
        Box::new(Task::new(pid, tid, &self.kept))
    }

    fn is_waiting(&self, pid: Pid, tid: Tid) -> bool {
        procfs::is_waiting(pid, tid).unwrap_or(false)
    }

    fn makes_our_call(&self, pid: Pid, tid: Tid) -> bool {
        let tracer = procfs::tracer(pid, tid).ok().flatten();
        tracer.is_some_and(|tracer| procfs::has_thread(Pid(std::process::id()), tracer))
    }

    fn interruption(&self) -> io::Result<Interruption> {
        match self.suspends {
            true => suspension(),
            false => Ok(Interruption::BySignal(Box::new(ThreadSignals))),
        }
    }

    fn thread_clock(&self, tid: Tid, period_ns: u64) -> io::Result<Box<dyn ThreadClock>> {
        if self.suspends {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Box::new(Events::open(tid, period_ns)?))
    }

    fn begin_ticking(&self) {
        ticking::begin();
    }

    fn sleep_until(&self, ns: u64) {
        ticking::sleep_until(ns);
    }

    fn system_tick_ns(&self) -> u64 {
        thread_clock::tick_ns()
    }

    fn peers(&self) -> Option<Box<dyn Peers>> {
        Some(Box::new(UnixPeers::new()))
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn suspension() -> io::Result<Interruption> {
    let by = super::suspension::ByTracing::start()?;
    Ok(Interruption::BySuspension(Box::new(by)))
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn suspension() -> io::Result<Interruption> {
    Err(io::ErrorKind::Unsupported.into())
}

/// `tgkill`, and the masks of /proc/PID/task/TID/status.
#[derive(Debug)]
struct ThreadSignals;

impl Signals for ThreadSignals {
    fn send(&self, pid: Pid, tid: Tid, signal: u32) -> Result<(), Errno> {
        platform::signal_thread(pid, tid, signal as i32)
    }

    fn pending(&self, pid: Pid, tid: Tid) -> Option<u64> {
        procfs::pending_signals(pid, tid).ok()
    }

    fn blocked(&self, pid: Pid, tid: Tid) -> Option<u64> {
        procfs::blocked_signals(pid, tid).ok()
    }

    fn barrier(&self) -> bool {
        platform::barrier_everywhere()
    }
}

impl Watch for procfs::Watch {
    fn has_ended(&self) -> bool {
        self.has_ended()
    }
}

impl Peers for UnixPeers {
    fn step(&mut self, mapping: &Mapping, now_ns: u64) {
        self.step(mapping, now_ns);
    }

    fn next_ns(&self) -> u64 {
        self.next_ns()
    }
}
