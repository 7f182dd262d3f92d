//! What a program has read and written, as the kernel counts it for the whole process.
//!
//! /proc/PID/io (proc(5)) of a process that has ended and nobody has waited for yet has the exact sums of all
//! its threads, and of the children that it waited for itself (`wait_task_zombie` in the kernel's
//! kernel/exit.c), theirs included. So one poll at the program's end is enough, and nothing is asked of the
//! program.

use std::fs::File;
use std::io::Read;

use stackbeat_core::ids::{Pid, Tid, Upid};
use stackbeat_core::platform;
use stackbeat_core::shm::layout::Control;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::CounterBatch;

use crate::drain::counters::Counters;
use stackbeat_model::transfers::{
    BYTES, BYTES_READ, BYTES_WRITTEN, CALLS, READ_CALLS, STORAGE_READ, STORAGE_WRITTEN, WRITE_CALLS,
};

/// Lines of the file, in the order in which they are kept: their names, those of the counters, and units.
const LINES: [(&str, &str, &str); 6] = [
    ("syscr", READ_CALLS, CALLS),
    ("syscw", WRITE_CALLS, CALLS),
    ("rchar", BYTES_READ, BYTES),
    ("wchar", BYTES_WRITTEN, BYTES),
    ("read_bytes", STORAGE_READ, BYTES),
    ("write_bytes", STORAGE_WRITTEN, BYTES),
];

/// Places of two of them.
const READ_CALLS_AT: usize = 0;
const BYTES_READ_AT: usize = 2;

/// Amounts of one process so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfers([u64; LINES.len()]);

impl Transfers {
    /// `None`: there is no such process, it may not be read (it has another user), or the kernel does not
    /// count.
    pub(crate) fn of_process(pid: Pid) -> Option<Transfers> {
        Some(read(&format!("/proc/{pid}/io"))?.0)
    }

    /// The same of a thread of this process.
    pub(crate) fn of_thread(tid: Tid) -> Option<Transfers> {
        Some(read(&format!("/proc/self/task/{tid}/io"))?.0)
    }

    /// Those of the calling thread, what is read to find them out included: it reads nothing from here on.
    pub(crate) fn of_ending_thread() -> Option<Transfers> {
        let (mut thread, bytes) = read(&format!("/proc/self/task/{}/io", platform::thread_id()))?;
        thread.0[READ_CALLS_AT] += 1;
        thread.0[BYTES_READ_AT] += bytes;
        Some(thread)
    }

    /// Those of this process and of the calling thread, at one moment.
    pub(crate) fn of_own_process_and_thread() -> Option<(Transfers, Transfers)> {
        let (process, bytes) = read("/proc/self/io")?;
        let mut thread = Transfers::of_thread(Tid(platform::thread_id()))?;
        // To read the first file was a call, which came after what that file says.
        for (at, of_reading) in [(READ_CALLS_AT, 1), (BYTES_READ_AT, bytes)] {
            thread.0[at] = thread.0[at].saturating_sub(of_reading);
        }
        Some((process, thread))
    }

    /// What came since an earlier reading.
    pub(crate) fn since(self, before: Transfers) -> Transfers {
        let mut amounts = self.0;
        for (amount, before) in amounts.iter_mut().zip(before.0) {
            *amount = amount.saturating_sub(before);
        }
        Transfers(amounts)
    }

    /// Both together.
    pub(crate) fn and(self, other: Transfers) -> Transfers {
        let mut amounts = self.0;
        for (amount, other) in amounts.iter_mut().zip(other.0) {
            *amount = amount.saturating_add(other);
        }
        Transfers(amounts)
    }

    /// Without what agents read themselves.
    pub(crate) fn without_agents(mut self, control: &Control) -> Transfers {
        let calls = u64::from(control.own_read_calls.load(Ordering::Relaxed));
        let bytes = control.own_read_bytes.load(Ordering::Relaxed);
        for (at, own) in [(READ_CALLS_AT, calls), (BYTES_READ_AT, bytes)] {
            self.0[at] = self.0[at].saturating_sub(own);
        }
        self
    }

    /// As counters of the whole program, with one value each.
    pub(crate) fn counters(self, time_ns: u64) -> impl Iterator<Item = CounterBatch> {
        let mut counters = Counters::default();
        for ((_, name, unit), amount) in LINES.into_iter().zip(self.0) {
            let value = i64::try_from(amount).unwrap_or(i64::MAX);
            counters.push(Upid(0), name.to_owned(), unit, time_ns, value);
        }
        counters.finish()
    }
}

/// What a file says, and how long it is: one call reads all of it.
fn read(path: &str) -> Option<(Transfers, u64)> {
    let mut text = [0; 512];
    let length = File::open(path).ok()?.read(&mut text).ok()?;
    let amounts = parse(std::str::from_utf8(&text[..length]).ok()?)?;
    Some((amounts, length as u64))
}

fn parse(text: &str) -> Option<Transfers> {
    let mut amounts = [0; LINES.len()];
    for (amount, (wanted, ..)) in amounts.iter_mut().zip(LINES) {
        let mut lines = text.lines().filter_map(|line| line.split_once(": "));
        let (_, value) = lines.find(|(name, _)| *name == wanted)?;
        *amount = value.parse().ok()?;
    }
    Some(Transfers(amounts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_found_by_name() {
        let text = "rchar: 30\nwchar: 40\nsyscr: 1\nsyscw: 2\nread_bytes: 4096\nwrite_bytes: 8192\n\
                    cancelled_write_bytes: 9\n";
        let parsed = parse(text).expect("all lines are there");
        assert_eq!(parsed, Transfers([1, 2, 30, 40, 4096, 8192]));
        assert_eq!(parsed.since(parsed), Transfers([0; 6]));
        assert_eq!(parsed.and(parsed).since(parsed), parsed);
        assert_eq!(parse("rchar: 30\n"), None);
    }

    /// What is read to find that out is no part of it.
    #[test]
    fn a_threads_own_reading_is_left_out() {
        let of_a_thread = std::thread::spawn(|| {
            let (_, before) = Transfers::of_own_process_and_thread().expect("may be read");
            let (_, after) = Transfers::of_own_process_and_thread().expect("may be read");
            let ending = Transfers::of_ending_thread().expect("may be read");
            [after, ending].map(|later| later.since(before).0[READ_CALLS_AT])
        });
        // The two files of the first time; those of the second time, and the last one, too.
        assert_eq!(of_a_thread.join().expect("it ends"), [2, 5]);
    }
}
