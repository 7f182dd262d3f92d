//! The thread of polls that the recorder can do without: the off-CPU sampler, processes without an agent, and
//! counters. One thread for all of them, because each wake-up of a thread takes the processor away from the
//! program (some 50 µs), whatever it then does.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::ticking;
use crate::session::bell::Bell;
use crate::session::clocks::now_ns;
use crate::session::grid;
use crate::session::meter::Meter;

/// A poll that comes due less than this after a wake-up is done with it, ns.
const TOGETHER_NS: u64 = 1_000_000;

/// Something that polls.
pub(super) trait Poll: Send {
    /// Polls once. Gives the distance to the next poll.
    fn poll(&mut self) -> Duration;

    /// Whether the begin of capturing is a reason to poll before that time.
    fn comes_when_called(&self) -> bool {
        false
    }

    /// The session is over.
    fn finish(&mut self);
}

impl Poll for Meter {
    fn poll(&mut self) -> Duration {
        self.poll()
    }

    fn finish(&mut self) {
        self.finish();
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct Polls {
    thread: JoinHandle<()>,
    bell: Arc<Bell>,
}

impl Polls {
    /// Starts it. Each comes with the distance to its first poll; they are finished in this order. The bell
    /// calls those that come then.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub(super) fn start(all: Vec<(Box<dyn Poll>, Duration)>, bell: Arc<Bell>) -> io::Result<Polls> {
        let called_by = Arc::clone(&bell);
        let thread = thread::Builder::new()
            .name("stackbeat polls".to_owned())
            .spawn(move || {
                ticking::be_less_nice();
                run(all, &called_by);
            })?;
        Ok(Polls { thread, bell })
    }

    /// Ends it; what was seen is handed to the drain.
    pub(super) fn stop(self) {
        self.bell.end();
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn run(all: Vec<(Box<dyn Poll>, Duration)>, bell: &Bell) {
    let began_ns = now_ns();
    let mut all: Vec<(Box<dyn Poll>, u64)> = (all.into_iter())
        .map(|(poll, distance)| (poll, grid::moment_ns(began_ns, distance)))
        .collect();
    let mut calls = 0;
    loop {
        let next_ns = (all.iter().map(|(_, ns)| *ns).min()).unwrap_or(u64::MAX);
        let wait = Duration::from_nanos(next_ns.saturating_sub(now_ns()));
        if !bell.sleep_until_called(calls, wait) {
            break;
        }
        let is_called = std::mem::replace(&mut calls, bell.calls()) != calls;
        let now = now_ns();
        for (poll, next_ns) in &mut all {
            if *next_ns <= now + TOGETHER_NS || is_called && poll.comes_when_called() {
                let distance = poll.poll();
                *next_ns = grid::moment_ns(now_ns(), distance);
            }
        }
    }
    for (poll, _) in &mut all {
        poll.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Counted {
        polls: Arc<AtomicU32>,
        ended: Arc<Mutex<Vec<u64>>>,
        distance: Duration,
        comes: bool,
    }

    impl Poll for Counted {
        fn poll(&mut self) -> Duration {
            self.polls.fetch_add(1, Ordering::SeqCst);
            self.distance
        }

        fn comes_when_called(&self) -> bool {
            self.comes
        }

        fn finish(&mut self) {
            let ms = self.distance.as_millis() as u64;
            self.ended.lock().expect("no panic").push(ms);
        }
    }

    #[test]
    fn each_is_polled_at_its_own_distance_and_finished_in_order() {
        let ended = Arc::default();
        let polls: Vec<Arc<AtomicU32>> = (0..3).map(|_| Arc::default()).collect();
        let all = (polls.iter().zip([10, 40, 60_000])).map(|(polls, ms)| {
            let counted = Counted {
                polls: Arc::clone(polls),
                ended: Arc::clone(&ended),
                distance: Duration::from_millis(ms),
                comes: false,
            };
            let first = counted.distance.min(Duration::from_millis(10));
            (Box::new(counted) as Box<dyn Poll>, first)
        });
        let thread = Polls::start(all.collect(), Arc::default()).expect("starts");
        while polls[1].load(Ordering::SeqCst) < 4 {
            thread::sleep(Duration::from_millis(5));
        }
        thread.stop();
        let counts: Vec<u32> = polls.iter().map(|p| p.load(Ordering::SeqCst)).collect();
        assert!(counts[0] > counts[1] && counts[1] >= 4, "{counts:?}");
        assert_eq!(counts[2], 1);
        assert_eq!(*ended.lock().expect("no panic"), [10, 40, 60_000]);
    }

    #[test]
    fn who_comes_when_called_does_not_wait_for_its_time() {
        let polls: [Arc<AtomicU32>; 2] = Default::default();
        let bell: Arc<Bell> = Arc::default();
        let hour = Duration::from_secs(3600);
        let all = (polls.iter().zip([true, false])).map(|(polls, comes)| {
            let counted = Counted {
                polls: Arc::clone(polls),
                ended: Arc::default(),
                distance: hour,
                comes,
            };
            (Box::new(counted) as Box<dyn Poll>, hour)
        });
        let thread = Polls::start(all.collect(), Arc::clone(&bell)).expect("starts");
        for calls in 1..=3 {
            bell.ring();
            while polls[0].load(Ordering::SeqCst) < calls {
                thread::sleep(Duration::from_millis(1));
            }
        }
        thread.stop();
        assert_eq!(polls.map(|polls| polls.load(Ordering::SeqCst)), [3, 0]);
    }
}
