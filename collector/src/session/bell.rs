//! How the thread that reads counters is called, and ended.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use stackbeat_core::platform;

use super::clocks::now_ns;

/// Calls a thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// Counts calls; a futex word.
    calls: AtomicU32,
    is_over: AtomicBool,
}

impl Bell {
    /// Somebody has captured.
    pub(crate) fn ring(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        platform::wake(&self.calls, 1);
    }

    /// The thread is to end.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// How often it was called.
    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Sleeps for this time; without one until it is called after `calls` times. False: it is over.
    pub(crate) fn sleep(&self, calls: u32, time: Option<Duration>) -> bool {
        let until_ns = time.map(|time| now_ns() + time.as_nanos() as u64);
        loop {
            if self.is_over.load(Ordering::SeqCst) {
                return false;
            }
            let now = self.calls();
            match until_ns.map(|until| until.saturating_sub(now_ns())) {
                Some(0) => return true,
                Some(left_ns) => platform::wait(&self.calls, now, Some(left_ns)),
                None if now != calls => return true,
                None => platform::wait(&self.calls, calls, None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever waits without a time is called, also by a call from before it waits; whoever waits for a time
    /// is not.
    #[test]
    fn a_call_is_not_missed_and_shortens_no_sleep() {
        let bell = Bell::default();
        bell.ring();
        assert!(bell.sleep(0, None));
        let before = now_ns();
        assert!(bell.sleep(0, Some(Duration::from_millis(20))));
        assert!(now_ns() - before >= 20_000_000);
        bell.end();
        assert!(!bell.sleep(0, None) && !bell.sleep(0, Some(Duration::from_secs(60))));
    }
}
