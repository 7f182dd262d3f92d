//! Signals that end a process because something in it is wrong.

/// Their numbers and names.
pub const CRASH_SIGNALS: [(i32, &str); 7] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGSYS, "SIGSYS"),
];

/// The name of a signal that is one of these.
pub fn name(signal: i32) -> Option<&'static str> {
    let found = CRASH_SIGNALS.iter().find(|(number, _)| *number == signal);
    found.map(|(_, name)| *name)
}

/// Stands for the node of a stack that could not be captured.
pub const NO_NODE: u32 = u32::MAX;

/// Stands for the signal where a process has ended by itself.
const NO_SIGNAL: u32 = 0x80;

/// What ended a process with this status of `wait`: a signal of any kind, or none; `None`: it was only
/// stopped.
pub fn end_of(status: i32) -> Option<u32> {
    match status & 0x7f {
        0 => Some(NO_SIGNAL),
        0x7f => None,
        signal => Some(signal as u32),
    }
}

/// The one that has ended a process with this status of `wait`.
pub fn of_status(status: i32) -> Option<i32> {
    let signal = end_of(status)? as i32;
    name(signal).map(|_| signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ends_by_a_crash_signal_are_taken_for_one() {
        let (exited, stopped) = (11 << 8, 11 << 8 | 0x7f);
        assert_eq!(
            [exited, stopped, libc::SIGKILL, 0].map(of_status),
            [None; 4]
        );
        assert_eq!(of_status(libc::SIGSEGV), Some(libc::SIGSEGV));
        // With a core.
        assert_eq!(of_status(libc::SIGABRT | 0x80), Some(libc::SIGABRT));
    }
}
