//! How a thread that sleeps is called. Whoever calls counts up and wakes it. Whoever is called notes the
//! count first, then looks for what there is to do, and sleeps only while the count is still the noted one: a
//! call after the look ends that sleep before it begins.

use crate::sync::{AtomicU32, Ordering};

/// A futex word that counts calls. All-zero: none so far.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Calls(AtomicU32);

impl Calls {
    /// None so far.
    #[cfg(not(loom))]
    pub const fn new() -> Calls {
        Calls(AtomicU32::new(0))
    }

    /// How often somebody has called.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Notes the count, then looks whether all is over: `None`. Whoever ends it says so before it calls.
    pub fn note_unless(&self, is_over: impl FnOnce() -> bool) -> Option<u32> {
        let noted = self.count();
        crate::sync::between_sequential();
        (!is_over()).then_some(noted)
    }

    /// Counts a call, and wakes nobody.
    pub fn add(&self) {
        crate::sync::between_sequential();
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Calls.
    #[cfg(not(loom))]
    pub fn call(&self) {
        self.add();
        crate::platform::wake(&self.0, 1);
    }

    /// Sleeps until somebody calls, the time in ns is over, or spuriously. Does not sleep if a call came
    /// after `noted`.
    #[cfg(not(loom))]
    pub fn sleep(&self, noted: u32, time_ns: Option<u64>) {
        crate::platform::wait(&self.0, noted, time_ns);
    }
}
