//! When a capture reads the thread's faults and switches: a system call that most can do without.

use crate::sys::{self, Usage};

/// Captures between two reads when nothing says that they have changed.
const CAPTURES_BETWEEN: u32 = 8;

/// What a thread remembers of its last read.
#[repr(C)]
pub(super) struct State {
    captures: u32,
}

impl State {
    /// Forgets: the next capture reads.
    pub fn reset(&mut self) {
        self.captures = 0;
    }

    /// Now and then, more often at first: for what changes rarely (the thread's name).
    pub fn is_time_for_a_look(&self) -> bool {
        self.captures % 128 == 0 || self.captures.is_power_of_two()
    }

    /// Faults and switches if this capture is to read them. `waited`: the call may have slept.
    pub fn read(&mut self, waited: bool) -> Option<Usage> {
        let due = waited || self.captures % CAPTURES_BETWEEN == 0;
        self.captures = self.captures.wrapping_add(1);
        due.then(sys::thread_usage)
    }
}
