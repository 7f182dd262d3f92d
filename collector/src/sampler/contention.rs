//! Whether a process' threads wait for processors when they wake up. One that does begins to run with a tick of the kernel, and the
//! timers of CPU time go off at ticks: with bursts about as long as a tick they find it at the same moment of its work again and again
//! (measured: 0.29 of the CPU time as 0.8 of the samples). Our own ticks are hrtimers, and fall anywhere.

use std::collections::HashMap;

use stackbeat_core::ids::{Pid, Tid};

use crate::host::{Host, Scheduled};

/// Threads of a process that are asked about at a time: each is one or two small files.
pub(super) const MOST_THREADS: usize = 16;
/// This part of the running time spent ready for a processor is contention; and this part of a process' running time that is of such
/// threads.
const PART: u64 = 8;
/// Computing between two waits for so many ticks has lost the tick's phase.
const LONG_TICKS: u64 = 4;

/// What the scheduler had counted of a process' threads at the last poll.
#[derive(Debug, Default)]
pub(super) struct Contention {
    before: HashMap<Tid, Scheduled>,
}

impl Contention {
    /// Whether timers that go off each `tick_ns` would meet these threads of a process at moments that their waits choose, as far as
    /// that is known since the last poll; the first looks at their whole life.
    pub(super) fn poll(
        &mut self,
        host: &dyn Host,
        pid: Pid,
        threads: &[Tid],
        tick_ns: u64,
    ) -> bool {
        if threads.is_empty() {
            return false;
        }
        let is_first = self.before.is_empty();
        let before = std::mem::take(&mut self.before);
        let mut all_ns = 0;
        let mut chosen_ns = 0;
        for tid in threads.iter().take(MOST_THREADS) {
            let Some(now) = host.scheduled(pid, *tid) else {
                continue;
            };
            self.before.insert(*tid, now);
            let since = match before.get(tid) {
                Some(since) => *since,
                None if is_first => Scheduled::default(),
                None => continue,
            };
            let run_ns = now.run_ns.saturating_sub(since.run_ns);
            let ready_ns = now.ready_ns.saturating_sub(since.ready_ns);
            all_ns += run_ns;
            if ready_ns > run_ns / PART && has_short_bursts(host, pid, *tid, now.run_ns, tick_ns) {
                chosen_ns += run_ns;
            }
        }
        chosen_ns > all_ns / PART
    }
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
    use std::time::{Duration, Instant};

    use stackbeat_core::platform;

    use crate::linux::host::Linux;

    const TICK_NS: u64 = 4_000_000;

    /// Binds the calling thread to the processor it is on, and says what three passes of `poll` make of it, beside `rivals` that
    /// compute there.
    fn watched(rivals: usize, burst: Duration, pause: Option<Duration>) -> Vec<bool> {
        std::thread::spawn(move || {
            // SAFETY: plain calls with a local set; all threads started below inherit it.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
                libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
            }
            let ends = Instant::now() + Duration::from_millis(600);
            for _ in 0..rivals {
                std::thread::spawn(move || while Instant::now() < ends {});
            }
            let own = (Pid(std::process::id()), Tid(platform::thread_id()));
            let mut contention = Contention::default();
            let mut found = Vec::new();
            for _ in 0..3 {
                let until = Instant::now() + Duration::from_millis(180);
                while Instant::now() < until {
                    let begin = platform::thread_cpu_ns();
                    while platform::thread_cpu_ns() - begin < burst.as_nanos() as u64 {}
                    if let Some(pause) = pause {
                        std::thread::sleep(pause);
                    }
                }
                found.push(contention.poll(&Linux::of_the_dead(), own.0, &[own.1], TICK_NS));
            }
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

    #[test]
    fn threads_that_only_compute_keep_no_phase() {
        assert_eq!(watched(2, Duration::from_millis(60), None), [false; 3]);
    }

    #[test]
    fn a_thread_that_is_gone_says_nothing() {
        let mut contention = Contention::default();
        let host = Linux::of_the_dead();
        assert!(!contention.poll(&host, Pid(u32::MAX >> 1), &[Tid(1)], TICK_NS));
        assert!(!contention.poll(&host, Pid(std::process::id()), &[], TICK_NS));
    }
}
