//! The agent that comes to a running process, leaves it and comes again: threads that were never
//! announced take part in the session under way and in no other.
#![cfg(target_os = "linux")]

use stackbeat_core::agent::{self, Refusal};
use stackbeat_core::clock;
use stackbeat_core::platform;
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::layout::{Capacity, ThreadEntry, entry_state};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::registry;
use stackbeat_core::shm::throttle::Ticker;
use std::ffi::CString;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use super::alone::is_alone;

fn session(number: u32) -> (Mapping, CString) {
    let path = format!(
        "/dev/shm/stackbeat-attached.{}.{number}",
        platform::process_id()
    );
    let path = CString::new(path).expect("no NUL");
    let mapping = Mapping::create(&path, Capacity::default()).expect("created");
    let control = mapping.control();
    control.switch.store(1, Ordering::Relaxed);
    control.depth_limit.store(128, Ordering::Relaxed);
    control.probe_mask.store(u64::MAX, Ordering::Relaxed);
    Ticker::default().advance_all(control, clock::cycles());
    (mapping, path)
}

fn attach(path: &CString) -> Result<(), Refusal> {
    // SAFETY: 0 lets the agent look for it.
    unsafe { agent::attach(path, 0) }
}

fn find(mapping: &Mapping, tid: u32) -> Option<&ThreadEntry> {
    registry::threads(mapping)
        .map(|(_, e)| e)
        .find(|e| e.tid.load(Ordering::Relaxed) == tid)
}

/// How often the file is mapped: by this test, and by the agent.
fn mappings(path: &CString) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    maps.matches(path.to_str().expect("ASCII")).count()
}

fn samples(entry: Option<&ThreadEntry>) -> u32 {
    entry.map_or(0, |e| e.samples.load(Ordering::Relaxed))
}

#[test]
fn sessions_come_and_go() {
    if !is_alone("attach_detach::sessions_come_and_go") {
        return;
    }
    // A thread that is there before the agent, and passes a hook whenever it is asked to.
    let (go, orders) = mpsc::channel::<()>();
    let (done, answers) = mpsc::channel::<u32>();
    let other = std::thread::spawn(move || {
        for () in orders {
            agent::hit(Probe::Read, 1);
            agent::allocated(Probe::Malloc, 10);
            done.send(platform::thread_id()).expect("somebody waits");
        }
    });
    let pass = || {
        agent::hit(Probe::Read, 1);
        go.send(()).expect("the thread lives");
        answers.recv().expect("the thread answers")
    };
    pass();
    let mut last_utids = 0;
    for round in 0..3 {
        let (mapping, path) = session(round);
        attach(&path).expect("attached");
        assert_eq!(attach(&path), Err(Refusal::Busy));
        let (_, process) = registry::processes(&mapping).next().expect("registered");
        assert_eq!(process.origin.load(Ordering::Relaxed), 3);
        assert_eq!(process.state.load(Ordering::Relaxed), entry_state::LIVE);

        let tid = pass();
        let entry = find(&mapping, tid).expect("its hook registered it");
        assert_eq!(samples(Some(entry)), 1, "round {round}");
        assert_eq!(entry.allocations.load(Ordering::Relaxed), 1);
        // What is taken for its stack was found in /proc/self/maps.
        let (low, high) = (
            entry.stack_low.load(Ordering::Relaxed),
            entry.stack_high.load(Ordering::Relaxed),
        );
        assert!(
            0 < low && low < high && high - low < 64 << 20,
            "{low:x} {high:x}"
        );
        let own = find(&mapping, platform::thread_id()).expect("its hook registered it");
        assert_eq!(samples(Some(own)), 1);
        assert!(mappings(&path) > 1, "the agent's parts");

        mapping.control().switch.store(0, Ordering::Relaxed);
        let written = entry.records.load(Ordering::Relaxed);
        agent::detach();
        assert_eq!(mappings(&path), 1);
        for _ in 0..3 {
            pass();
        }
        assert_eq!(entry.records.load(Ordering::Relaxed), written);
        assert_eq!(entry.allocations.load(Ordering::Relaxed), 1);
        // Detaching twice is nothing.
        agent::detach();
        last_utids += mapping.control().next_utid.load(Ordering::Relaxed) - 1;
        platform::remove(&path);
    }
    assert_eq!(last_utids, 6, "two threads in each of three sessions");
    let missing = c"/dev/shm/stackbeat-attached.none".to_owned();
    assert!(matches!(attach(&missing), Err(Refusal::Mapping(_))));
    drop(go);
    other.join().expect("no panic");
}
