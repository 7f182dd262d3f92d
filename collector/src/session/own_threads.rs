//! The threads of a session inside the program: they are no threads of the program, though the kernel counts
//! them so.
//!
//! Outside the program there are none here, and all of the process is the recorder's.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::platform;

/// A session has five.
const MOST: usize = 8;

static TIDS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
/// CPU time of those that have ended, ns.
static ENDED_NS: AtomicU64 = AtomicU64::new(0);

/// The calling thread is one, from here on.
pub(crate) fn enter() {
    let tid = platform::thread_id();
    let _ = TIDS.iter().find(|slot| {
        slot.compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
}

/// The calling thread is about to end.
pub(crate) fn leave() {
    let tid = platform::thread_id();
    ENDED_NS.fetch_add(platform::thread_cpu_ns(), Ordering::Relaxed);
    for slot in &TIDS {
        let _ = slot.compare_exchange(tid, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Those that there are.
pub(crate) fn tids() -> impl Iterator<Item = u32> {
    let tids = TIDS.iter().map(|slot| slot.load(Ordering::Acquire));
    tids.filter(|tid| *tid != 0)
}

/// Whether a thread of this process is one of them.
pub(crate) fn has(tid: Tid) -> bool {
    tids().any(|own| own == tid.0)
}

/// How many of a process' threads they are.
pub(crate) fn count(pid: Pid) -> u64 {
    match pid.0 == std::process::id() {
        true => tids().count() as u64,
        false => 0,
    }
}

/// Their CPU time so far; `None`: there are none.
pub(crate) fn cpu() -> Option<Duration> {
    let ended_ns = ENDED_NS.load(Ordering::Relaxed);
    let (mut ns, mut is_inside) = (ended_ns, ended_ns != 0);
    for tid in tids() {
        is_inside = true;
        ns += platform::clock_ns(clock_of(tid));
    }
    is_inside.then(|| Duration::from_nanos(ns))
}

/// The CPU clock of a thread of this process (`MAKE_THREAD_CPUCLOCK` of the kernel's
/// include/linux/posix-timers_types.h).
fn clock_of(tid: u32) -> libc::clockid_t {
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    const CPUCLOCK_PERTHREAD: libc::clockid_t = 4;
    (!(tid as libc::clockid_t) << 3) | CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD
}
