//! Whether a process' threads wait for processors when they wake up. One that waits for somebody who computes
//! begins to run with a tick of the kernel, and the timers of CPU time go off at ticks: with bursts about as
//! long as a tick they find it at the same moment of its work again and again (measured: 0.29 of the CPU time
//! as 0.8 of the samples). Our own ticks are hrtimers, and fall anywhere.

use std::collections::HashMap;

use stackbeat_core::ids::{Pid, Tid};

use crate::host::{Host, Scheduled};

/// Threads of a process that are asked about at a time: each is one or two small files.
pub(super) const MOST_THREADS: usize = 16;
/// Timers are wrong where more than one part in so many of a process' running time begins with ticks.
const PART: u64 = 8;
/// Computing between two waits for so many ticks has lost the tick's phase.
const LONG_TICKS: u64 = 4;

/// What the scheduler has counted of a process' threads, and what they did since the last
/// [`Contention::take`].
#[derive(Debug, Default)]
pub(super) struct Contention {
    before: HashMap<Tid, Scheduled>,
    since: Since,
}

/// What threads of a process did in some time, ns.
#[derive(Debug, Default)]
struct Since {
    run: u64,
    /// Waited for a processor.
    ready: u64,
    /// The part of `run` that began with ticks, of threads that compute for a few of them at most.
    begun_with_ticks: u64,
}

impl Contention {
    /// Asks about these threads of a process. What one did before it was first asked about is not known.
    pub(super) fn poll(&mut self, host: &dyn Host, pid: Pid, threads: &[Tid], tick_ns: u64) {
        let before = std::mem::take(&mut self.before);
        for tid in threads.iter().take(MOST_THREADS) {
            let Some(now) = host.scheduled(pid, *tid) else {
                continue;
            };
            self.before.insert(*tid, now);
            let Some(since) = before.get(tid) else {
                continue;
            };
            let run = now.run_ns.saturating_sub(since.run_ns);
            let ready = now.ready_ns.saturating_sub(since.ready_ns);
            self.since.run += run;
            self.since.ready += ready;
            let times = now.times.saturating_sub(since.times);
            let begun_with_ticks = begun_with_ticks(run, ready, times, tick_ns);
            // Less than that counts as none: it takes another file to know better.
            if begun_with_ticks > run / PART / 2
                && has_short_bursts(host, pid, *tid, now.run_ns, tick_ns)
            {
                self.since.begun_with_ticks += begun_with_ticks;
            }
        }
    }

    /// How long they waited for processors, ns.
    pub(super) fn ready_ns(&self) -> u64 {
        self.since.ready
    }

    /// Whether timers that go off each `tick_ns` would meet them at moments that their waits choose. Begins
    /// anew.
    pub(super) fn take(&mut self) -> bool {
        let since = std::mem::take(&mut self.since);
        since.begun_with_ticks > since.run / PART
    }
}

/// How much of a thread's running time began with a tick: it ran so long, was ready for a processor so long,
/// and was put on one so many times. Who waits for the tick that ends another's time is ready for half a tick
/// on average. Others make room by waiting themselves, at any moment and sooner. By the mean: a few long
/// waits among many short ones count for all of them.
fn begun_with_ticks(run_ns: u64, ready_ns: u64, times: u64, tick_ns: u64) -> u64 {
    let if_all_do = u128::from(times.max(1)) * u128::from(tick_ns / 2).max(1);
    let part = u128::from(run_ns) * u128::from(ready_ns) / if_all_do;
    u64::try_from(part).unwrap_or(run_ns).min(run_ns)
}

/// Whether a thread that has run for so long mostly computes for a few ticks only between two waits.
fn has_short_bursts(host: &dyn Host, pid: Pid, tid: Tid, run_ns: u64, tick_ns: u64) -> bool {
    let usage = host.usage(pid, tid);
    let waits = usage.map_or(0, |usage| usage.voluntary_switches);
    run_ns < waits.saturating_mul(LONG_TICKS * tick_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
    use stackbeat_core::platform;

    use crate::linux::host::Linux;

    const TICK_NS: u64 = 4_000_000;

    /// Binds the calling thread to the processor it is on, and says what three passes of `poll` make of it,
    /// beside `rivals` that compute there.
    fn watched(rivals: usize, burst: Duration, pause: Option<Duration>) -> Vec<bool> {
        std::thread::spawn(move || {
            // All threads started below inherit it.
            let mut own = CpuSet::new();
            own.set(sched_getcpu());
            sched_setaffinity(None, &own).expect("this thread's");
            let is_over = Arc::new(AtomicBool::new(false));
            for _ in 0..rivals {
                let is_over = Arc::clone(&is_over);
                std::thread::spawn(move || while !is_over.load(Ordering::Relaxed) {});
            }
            let own = (Pid(std::process::id()), Tid(platform::thread_id()));
            let mut contention = Contention::default();
            let poll = |contention: &mut Contention| {
                contention.poll(&Linux::of_the_dead(), own.0, &[own.1], TICK_NS);
            };
            poll(&mut contention);
            let (mut waited, mut found) = (Vec::new(), Vec::new());
            for _ in 0..3 {
                let until = Instant::now() + Duration::from_millis(180);
                while Instant::now() < until {
                    let begin = platform::thread_cpu_ns();
                    while platform::thread_cpu_ns() - begin < burst.as_nanos() as u64 {}
                    if let Some(pause) = pause {
                        std::thread::sleep(pause);
                    }
                }
                poll(&mut contention);
                waited.push(contention.ready_ns() > 50_000_000);
                found.push(contention.take());
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(waited, [rivals > 0; 3]);
            found
        })
        .join()
        .expect("does not panic")
    }

    #[test]
    fn short_bursts_that_wait_for_a_processor_are_found() {
        let pause = Some(Duration::from_micros(300));
        assert_eq!(watched(2, Duration::from_millis(4), pause), [true; 3]);
    }

    /// Numbers of `schedstat`, of one processor.
    #[test]
    fn who_waits_for_others_that_wait_does_not_begin_with_ticks() {
        // redis beside another one, and the clients of both.
        let redis = begun_with_ticks(5_760_000_000, 12_330_000_000, 93_864, TICK_NS);
        assert!(redis < 5_760_000_000 / PART, "{redis}");
        // One of the threads with which V8 collects garbage, beside another such program.
        let helper = begun_with_ticks(22_000_000, 60_000_000, 75, TICK_NS);
        assert!((7_000_000..11_000_000).contains(&helper), "{helper}");
        // Bursts of 4 ms beside loops.
        assert_eq!(
            begun_with_ticks(1_000_000_000, 8_000_000_000, 300, TICK_NS),
            1_000_000_000
        );
        assert_eq!(begun_with_ticks(0, 0, 0, 0), 0);
    }

    #[test]
    fn threads_that_only_compute_keep_no_phase() {
        assert_eq!(watched(2, Duration::from_millis(60), None), [false; 3]);
    }

    #[test]
    fn a_thread_that_is_gone_says_nothing() {
        let mut contention = Contention::default();
        let host = Linux::of_the_dead();
        for _ in 0..2 {
            contention.poll(&host, Pid(u32::MAX >> 1), &[Tid(1)], TICK_NS);
            contention.poll(&host, Pid(std::process::id()), &[], TICK_NS);
        }
        assert!(!contention.take());
    }
}
