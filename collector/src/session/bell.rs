//! How a thread that polls is called, and ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stackbeat_core::shm::calls::Calls;

use super::clocks::now_ns;

/// Calls a thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    calls: Calls,
    is_over: AtomicBool,
}

impl Bell {
    /// There is something to do.
    pub(crate) fn ring(&self) {
        self.calls.call();
    }

    /// The thread is to end.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// How often it was called.
    pub(crate) fn calls(&self) -> u32 {
        self.calls.count()
    }

    /// The same, unless it is over.
    fn note(&self) -> Option<u32> {
        (self.calls).note_unless(|| self.is_over.load(Ordering::SeqCst))
    }

    /// Sleeps for this time; without one until it is called after `calls` times. False: it is over.
    pub(crate) fn sleep(&self, calls: u32, time: Option<Duration>) -> bool {
        let until_ns = time.map(|time| now_ns() + time.as_nanos() as u64);
        while let Some(noted) = self.note() {
            match until_ns.map(|until| until.saturating_sub(now_ns())) {
                Some(0) => return true,
                Some(left_ns) => self.calls.sleep(noted, Some(left_ns)),
                None if noted != calls => return true,
                None => self.calls.sleep(noted, None),
            }
        }
        false
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
