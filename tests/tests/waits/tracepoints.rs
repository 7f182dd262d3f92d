//! Who woke whom, compared with what the kernel's scheduler says: its tracepoints, read by `perf`.

use super::{ROUNDS, Recorded, Through, report};
use stackbeat_tests::{run, scratch, stackbeat};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Sleeps from here on count, as those in the report do.
const LONG_S: f64 = 0.001;

/// By waker: how often it ended a long sleep of this thread, as `perf script` has it.
fn wakers_of(sleeper: u64, events: &str) -> BTreeMap<u64, u64> {
    let mut wakers = BTreeMap::new();
    let mut asleep_since = None;
    for line in events.lines() {
        let mut words = line.split_whitespace();
        let (Some(tid), Some(time), Some(event)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let time: f64 = time.trim_end_matches(':').parse().expect("seconds");
        let field = |name: &str| line.split(name).nth(1)?.split_whitespace().next();
        let is_of_sleeper = |name| field(name) == Some(&*sleeper.to_string());
        match event {
            "sched:sched_switch:" if is_of_sleeper(" prev_pid=") => {
                let sleeps = field(" prev_state=").is_some_and(|state| state.starts_with('S'));
                asleep_since = sleeps.then_some(time);
            }
            "sched:sched_waking:" if is_of_sleeper(" pid=") => {
                let slept_s = asleep_since.take().map_or(0.0, |since| time - since);
                let waker = tid.parse().expect("a tid");
                *wakers.entry(waker).or_default() += u64::from(slept_s > LONG_S);
            }
            _ => {}
        }
    }
    wakers
}

/// `perf script` of what the scheduler did while this kind was recorded; `None`: this machine does not tell.
fn record_under_perf(through: Through, kind: &str, folder: &Path) -> Option<(Recorded, String)> {
    let [trace, data] = ["t.beat", "perf.data"].map(|name| folder.join(name));
    let mut command = Command::new("perf");
    command
        .args(["record", "-q", "-k", "mono", "-o"])
        .arg(&data)
        .args(["-e", "sched:sched_waking,sched:sched_switch", "--"])
        .arg(stackbeat())
        .args(["record", "-q", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(through.program())
        .args([kind, &ROUNDS.to_string()]);
    let recorded = run(command);
    if !trace.exists() {
        eprintln!("not run: perf may not trace here: {}", recorded.stderr());
        return None;
    }
    let mut script = Command::new("perf");
    script
        .args(["script", "-F", "tid,time,event,trace", "-i"])
        .arg(&data);
    let recorded = Recorded {
        said: recorded.stdout(),
        report: report(&trace),
    };
    Some((recorded, run(script).stdout()))
}

#[test]
fn the_scheduler_names_the_same_wakers() {
    for (through, kind, call) in [
        (Through::Locks, "mutex", "pthread_mutex_lock"),
        (Through::Locks, "signal", "pthread_cond_wait"),
        (Through::Descriptors, "pipe", "read"),
        (Through::Descriptors, "epoll-event", "epoll_wait"),
        (Through::Descriptors, "unix", "recv"),
    ] {
        let folder = scratch();
        let Some((recorded, events)) = record_under_perf(through, kind, folder.path()) else {
            return;
        };
        recorded.wants(kind, call, "waker", "ends_it");
        let (waiter, waker) = (recorded.tid("waiter"), recorded.tid("waker"));
        let wakers = wakers_of(waiter, &events);
        let by_waker = wakers.get(&waker).copied().unwrap_or(0);
        println!("{kind}: {ROUNDS} waits, {by_waker} by the same thread");
        // Events are lost on a busy machine.
        assert!(
            by_waker * 10 >= ROUNDS * 9,
            "{kind}: {waker} woke {waiter} in {ROUNDS} rounds; the kernel says {wakers:?}"
        );
    }
}
