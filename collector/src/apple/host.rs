//! A session inside a process on Apple's systems: what Mach says of the process' own threads. Of other
//! processes nothing is known.

use std::io;
use std::sync::Arc;

use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::platform;

use super::mach::{Port, STATE_RUNNING, mach_absolute_time, mach_timebase_info, mach_wait_until};
use super::resources::OfProcess;
use super::suspension::ByMach;
use super::threads::Threads;
use super::window::{self, Refused};
use crate::host::{
    Followed, Host, Image, Interruption, Limits, Peers, Resources, Scheduled, State, ThreadClock,
    Usage, Watch, Whose,
};
use crate::session::own_threads;

/// The surroundings of a session inside the process.
#[derive(Debug)]
pub(crate) struct Inside {
    own_pid: Pid,
    threads: Arc<Threads>,
    /// From ns to the units of `mach_wait_until`.
    timebase: [u32; 2],
}

impl Inside {
    pub(crate) fn new(own_pid: Pid) -> Inside {
        let mut timebase = [1, 1];
        // SAFETY: writes the two numbers.
        unsafe { mach_timebase_info(&raw mut timebase) };
        Inside {
            own_pid,
            threads: Arc::default(),
            timebase,
        }
    }

    fn port(&self, pid: Pid, tid: Tid) -> Option<Port> {
        match pid == self.own_pid {
            true => self.threads.port(tid),
            false => None,
        }
    }
}

impl Host for Inside {
    fn whose(&self, pid: Pid) -> Whose {
        match pid == self.own_pid {
            true => Whose::Ours,
            // Apps have no children; of those of a program nothing can be seen.
            false => Whose::Foreign,
        }
    }

    fn exists(&self, pid: Pid) -> bool {
        pid == self.own_pid
    }

    fn watch(&self, _: Pid) -> Option<Box<dyn Watch>> {
        None
    }

    fn image(&self, pid: Pid) -> Image {
        if pid != self.own_pid {
            return Image::default();
        }
        let executable = std::env::current_exe().unwrap_or_default();
        let command_line: Vec<String> = std::env::args_os()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        Image {
            started_as: command_line.first().cloned().unwrap_or_default(),
            command_line,
            executable: executable.to_string_lossy().into_owned(),
        }
    }

    fn mapped_file(&self, _: Pid, _: u64) -> Option<String> {
        None
    }

    fn process_cpu_ns(&self, pid: Pid) -> u64 {
        match pid == self.own_pid {
            true => platform::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID),
            false => 0,
        }
    }

    fn resources(&self, pid: Pid) -> Option<Box<dyn Resources>> {
        (pid == self.own_pid).then(|| Box::new(OfProcess::new(pid)) as Box<dyn Resources>)
    }

    fn limits(&self, _: Pid) -> Option<Box<dyn Limits>> {
        None
    }

    fn thread_count(&self, pid: Pid) -> Option<u64> {
        (pid == self.own_pid).then(|| Threads::count().saturating_sub(own_threads::count(pid)))
    }

    fn threads(&self, pid: Pid) -> Vec<Tid> {
        if pid != self.own_pid {
            return Vec::new();
        }
        let mut threads = self.threads.all();
        threads.retain(|tid| !own_threads::has(*tid));
        threads
    }

    fn has_thread(&self, pid: Pid, tid: Tid) -> bool {
        self.port(pid, tid)
            .is_some_and(|port| !matches!(window::info(port), Err(Refused::Gone)))
    }

    fn thread_name(&self, pid: Pid, tid: Tid) -> Option<String> {
        let info = window::info(self.port(pid, tid)?).ok()?;
        let name = info.name.split(|byte| *byte == 0).next()?;
        let name = String::from_utf8_lossy(name).into_owned();
        (!name.is_empty()).then_some(name)
    }

    /// Switches of single threads are not counted there.
    fn usage(&self, _: Pid, _: Tid) -> Option<Usage> {
        None
    }

    fn scheduled(&self, pid: Pid, tid: Tid) -> Option<Scheduled> {
        let info = window::info(self.port(pid, tid)?).ok()?;
        let run_ns = info.user_ns + info.system_ns;
        Some(Scheduled {
            run_ns,
            ready_ns: 0,
            times: run_ns,
        })
    }

    fn user_ns(&self, pid: Pid, tid: Tid) -> Option<u64> {
        Some(window::info(self.port(pid, tid)?).ok()?.user_ns)
    }

    fn state(&self, pid: Pid, tid: Tid) -> State {
        match self.port(pid, tid) {
            Some(port) => state_of(port),
            None => State::Gone,
        }
    }

    fn follow(&self, pid: Pid, tid: Tid) -> Box<dyn Followed> {
        Box::new(Thread {
            threads: Arc::clone(&self.threads),
            tid: (pid == self.own_pid).then_some(tid),
        })
    }

    fn is_waiting(&self, pid: Pid, tid: Tid) -> bool {
        self.state(pid, tid) == State::Blocked
    }

    fn interruption(&self) -> io::Result<Interruption> {
        let by = ByMach::new(Arc::clone(&self.threads));
        Ok(Interruption::BySuspension(Box::new(by)))
    }

    fn thread_clock(&self, _: Tid, _: u64) -> io::Result<Box<dyn ThreadClock>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn begin_ticking(&self) {}

    fn sleep_until(&self, ns: u64) {
        let [numerator, denominator] = self.timebase.map(u64::from);
        let now_ns = platform::clock_ns(libc::CLOCK_MONOTONIC);
        // The monotonic clock goes on while the system sleeps, Mach's does not: the distance is what both
        // share.
        let units = ns.saturating_sub(now_ns).saturating_mul(denominator) / numerator.max(1);
        // SAFETY: asks for the time, and to be woken.
        unsafe {
            let now = mach_absolute_time();
            mach_wait_until(now.saturating_add(units))
        };
    }

    fn peers(&self) -> Option<Box<dyn Peers>> {
        None
    }
}

fn state_of(port: Port) -> State {
    match window::info(port) {
        Ok(info) if info.run_state == STATE_RUNNING => State::Running,
        Ok(_) | Err(Refused::NotNow) => State::Blocked,
        Err(Refused::Gone) => State::Gone,
    }
}

/// A thread that is asked about again and again.
#[derive(Debug)]
struct Thread {
    threads: Arc<Threads>,
    tid: Option<Tid>,
}

impl Followed for Thread {
    fn state(&mut self) -> State {
        let port = self.tid.and_then(|tid| self.threads.port(tid));
        port.map_or(State::Gone, state_of)
    }
}
