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

    /// Sleeps for this time, or until it is called after `calls` times. False: it is over.
    pub(crate) fn sleep_until_called(&self, calls: u32, time: Duration) -> bool {
        let until_ns = now_ns().saturating_add(time.as_nanos() as u64);
        while let Some(noted) = self.note() {
            let left_ns = until_ns.saturating_sub(now_ns());
            if left_ns == 0 || noted != calls {
                return true;
            }
            self.calls.sleep(noted, Some(left_ns));
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

    #[test]
    fn a_call_ends_a_sleep_that_waits_for_it() {
        let bell = Bell::default();
        let hour = Duration::from_secs(3600);
        bell.ring();
        assert!(bell.sleep_until_called(0, hour));
        let before = now_ns();
        assert!(bell.sleep_until_called(1, Duration::from_millis(20)));
        assert!(now_ns() - before >= 20_000_000);
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            assert!(bell.sleep_until_called(1, hour));
        });
        bell.end();
        assert!(!bell.sleep_until_called(2, hour));
    }
}
