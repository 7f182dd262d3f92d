//! Surroundings that say nothing of other processes: for `recover` on Apple's systems, where a session saw
//! its own process only, and that one has ended.

use std::io;
use std::time::Duration;

use stackbeat_core::ids::{Pid, Tid};

use super::{
    Followed, Host, Image, Interruption, Limits, Peers, Resources, Scheduled, State, ThreadClock,
    Usage, Watch, Whose,
};
use stackbeat_core::platform;

/// Knows of no process.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Nobody {
    /// Of a session that is over.
    pub(crate) fn of_the_dead() -> Nobody {
        Nobody
    }
}

impl Host for Nobody {
    fn whose(&self, _: Pid) -> Whose {
        Whose::Gone
    }

    fn exists(&self, _: Pid) -> bool {
        false
    }

    fn watch(&self, _: Pid) -> Option<Box<dyn Watch>> {
        None
    }

    fn image(&self, _: Pid) -> Image {
        Image::default()
    }

    fn mapped_file(&self, _: Pid, _: u64) -> Option<String> {
        None
    }

    fn process_cpu_ns(&self, _: Pid) -> u64 {
        0
    }

    fn resources(&self, _: Pid) -> Option<Box<dyn Resources>> {
        None
    }

    fn limits(&self, _: Pid) -> Option<Box<dyn Limits>> {
        None
    }

    fn thread_count(&self, _: Pid) -> Option<u64> {
        None
    }

    fn threads(&self, _: Pid) -> Vec<Tid> {
        Vec::new()
    }

    fn has_thread(&self, _: Pid, _: Tid) -> bool {
        true
    }

    fn thread_name(&self, _: Pid, _: Tid) -> Option<String> {
        None
    }

    fn usage(&self, _: Pid, _: Tid) -> Option<Usage> {
        None
    }

    fn scheduled(&self, _: Pid, _: Tid) -> Option<Scheduled> {
        None
    }

    fn user_ns(&self, _: Pid, _: Tid) -> Option<u64> {
        None
    }

    fn state(&self, _: Pid, _: Tid) -> State {
        State::Gone
    }

    fn follow(&self, _: Pid, _: Tid) -> Box<dyn Followed> {
        Box::new(Ended)
    }

    fn is_waiting(&self, _: Pid, _: Tid) -> bool {
        false
    }

    fn interruption(&self) -> io::Result<Interruption> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn thread_clock(&self, _: Tid, _: u64) -> io::Result<Box<dyn ThreadClock>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn begin_ticking(&self) {}

    fn sleep_until(&self, ns: u64) {
        let now = platform::clock_ns(libc::CLOCK_MONOTONIC);
        std::thread::sleep(Duration::from_nanos(ns.saturating_sub(now)));
    }

    fn peers(&self) -> Option<Box<dyn Peers>> {
        None
    }
}

#[derive(Debug)]
struct Ended;

impl Followed for Ended {
    fn state(&mut self) -> State {
        State::Gone
    }
}
