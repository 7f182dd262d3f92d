//! Filters that were there before this image: what the process' own status says of them, and copies of their
//! programs that whoever installed them has left in memory that all processes of the recording share.

use super::{CAPACITY, MODE, USED, VALID, WORDS, instructions_of, mode};
use crate::platform;
use crate::sync::AtomicU64;
use core::sync::atomic::Ordering;

/// What `/proc/self/status` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The process.
    pub pid: u32,
    /// The process that started it.
    pub parent_pid: u32,
    /// How many filters there are; [`Status::SOME`]: the kernel does not say (before Linux 5.9).
    pub filters: u32,
}

impl Status {
    /// There are filters, and their number is not known.
    pub const SOME: u32 = u32::MAX;

    /// From the text of a process' `status` in /proc.
    pub fn parse(text: &[u8]) -> Status {
        let mut status = Status::default();
        let mut count = None;
        for line in text.split(|b| *b == b'\n') {
            let number = |name: &[u8]| {
                let rest = line.strip_prefix(name)?;
                core::str::from_utf8(rest).ok()?.trim().parse::<u32>().ok()
            };
            if let Some(pid) = number(b"Pid:") {
                status.pid = pid;
            } else if let Some(pid) = number(b"PPid:") {
                status.parent_pid = pid;
            } else if let Some(2) = number(b"Seccomp:") {
                status.filters = Status::SOME;
            } else if let Some(filters) = number(b"Seccomp_filters:") {
                count = Some(filters);
            }
        }
        if let (Some(count), Status::SOME) = (count, status.filters) {
            status.filters = count;
        }
        status
    }
}

/// Reads the process' own status, by calls that the dynamic loader makes, too. `None`: it cannot be read.
pub fn status() -> Option<Status> {
    read_status().0
}

/// The same, and how many bytes were read.
fn read_status() -> (Option<Status>, usize) {
    let Ok(fd) = platform::open(c"/proc/self/status", libc::O_RDONLY, 0) else {
        return (None, 0);
    };
    // What is looked for stands behind the lists of groups and of signals.
    let mut text = [0u8; 4096];
    let mut length = 0;
    while let Ok(n) = platform::read(fd, &mut text[length..]) {
        length += n;
        if n == 0 {
            break;
        }
        if length == text.len() {
            // The list of groups may be long. Before it stand the pids.
            const HEAD: usize = 1024;
            let half = (length - HEAD) / 2;
            text.copy_within(HEAD + half.., HEAD);
            text[HEAD - 1] = b'\n';
            length -= half;
        }
    }
    platform::close(fd);
    (Some(Status::parse(&text[..length])), length)
}

/// Collector: how many filters its own process has, which every process of the recording inherits.
pub fn baseline() -> u32 {
    status().map_or(0, |status| status.filters)
}

/// How an image may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The filters that hold, if any, are known as far as can be told: the agent joins the session.
    Joins,
    /// Under a filter of which nothing is known.
    Unknown,
}

/// What is found out before an image makes any call that might not be allowed.
#[derive(Debug)]
pub struct Image {
    status: Option<Status>,
    read_bytes: usize,
}

impl Image {
    /// The image begins: until [`Image::look_into`] only the loader's calls are made where there is a filter.
    pub fn begins() -> Image {
        MODE.store(mode::LOADER, Ordering::SeqCst);
        let (status, read_bytes) = read_status();
        if status.is_none_or(|status| status.filters == 0) {
            MODE.store(mode::OPEN, Ordering::SeqCst);
        }
        Image { status, read_bytes }
    }

    /// What was read for this: one call with these bytes, and one at the end of the file.
    pub fn reads(&self) -> [usize; 2] {
        [self.read_bytes, 0]
    }

    /// What `/proc/self/status` said when the image began; `None` when it could not be read.
    pub fn status(&self) -> Option<Status> {
        self.status
    }

    /// Takes over the filters that are known, and says whether these are all. `copies`: what others have
    /// left; `place_of`: where the newest image of the process with this pid has left it, if it has.
    /// `baseline`: filters that the recorder itself is under.
    pub fn look_into(
        &self,
        copies: &[AtomicU64],
        baseline: u32,
        place_of: impl Fn(u32) -> Option<usize>,
    ) -> Start {
        let take_over = |pid: u32, parent_pid: u32| {
            let place = place_of(pid).or_else(|| place_of(parent_pid));
            place.map_or(0, |place| take_over(copies, place))
        };
        let Some(status) = self.status else {
            // Without /proc: what the process that ran here before has left, by a number that costs no call.
            take_over(platform::own_tid_in_memory(), 0);
            return Start::Joins;
        };
        if status.filters == 0 {
            return Start::Joins;
        }
        let known = take_over(status.pid, status.parent_pid);
        let is_all = match (status.filters, baseline) {
            (Status::SOME, 0) => known > 0,
            (Status::SOME, _) | (_, Status::SOME) => true,
            (filters, baseline) => filters <= baseline.saturating_add(known),
        };
        match (is_all, known) {
            (false, _) => return Start::Unknown,
            (true, 0) => MODE.store(mode::OPEN, Ordering::SeqCst),
            (true, _) => {}
        }
        Start::Joins
    }
}

/// Takes over the copy at this place. Gives the number of filters.
fn take_over(copies: &[AtomicU64], place: usize) -> u32 {
    let known = copy(copies, place);
    if known > 0 {
        MODE.store(mode::FILTERED, Ordering::SeqCst);
    }
    known
}

/// The words of a copy: their number and a sum, then the words, as in `WORDS`.
fn sum(words: impl Iterator<Item = u64>) -> u32 {
    // FNV-1a, by words.
    let sum = words.fold(0xcbf2_9ce4_8422_2325_u64, |sum, word| {
        (sum ^ word).wrapping_mul(0x100_0000_01b3)
    });
    (sum ^ sum >> 32) as u32
}

/// Takes over the copy at a place; 0: none.
fn copy(words: &[AtomicU64], at: usize) -> u32 {
    let load = |i: usize| words.get(i).map_or(0, |word| word.load(Ordering::Relaxed));
    let head = load(at);
    let length = head as u32 as usize;
    let is_inside = at != 0 && length <= CAPACITY && at + 1 + length <= words.len();
    if !is_inside || sum((0..length).map(|i| load(at + 1 + i))) != (head >> 32) as u32 {
        return 0;
    }
    let mut known = 0;
    let mut next = 0;
    for (i, place) in WORDS.iter().enumerate().take(length) {
        let word = load(at + 1 + i);
        place.store(word, Ordering::Relaxed);
        if i == next {
            known += 1;
            next += 1 + instructions_of(word);
        }
    }
    if next != length {
        return 0;
    }
    USED.store(length, Ordering::Release);
    known
}

/// The process has installed a filter: leaves a copy of all its filters for the images that it will start,
/// and gives its place. 0: there is no room; then they find that there is a filter of which they know
/// nothing.
pub fn leave_copy(words: &[AtomicU64]) -> usize {
    let used = USED.load(Ordering::Acquire).min(CAPACITY);
    // Only what is in force.
    let in_force = || {
        let (mut next, mut is_valid) = (0, false);
        WORDS[..used]
            .iter()
            .enumerate()
            .filter_map(move |(i, word)| {
                let word = word.load(Ordering::Relaxed);
                if i == next {
                    next += 1 + instructions_of(word);
                    is_valid = word & VALID != 0;
                }
                is_valid.then_some(word)
            })
    };
    let length = in_force().count();
    let [end, words_of_copies @ ..] = words else {
        return 0;
    };
    let head = u64::from(sum(in_force())) << 32 | length as u64;
    let is_same = |at: usize| {
        let copied = words.get(at + 1..).unwrap_or(&[]).iter();
        copied
            .zip(in_force())
            .all(|(word, wanted)| word.load(Ordering::Relaxed) == wanted)
    };
    // Processes of one kind have the same filters.
    let mut at = 1;
    while at < (end.load(Ordering::Acquire) as usize + 1).min(words.len()) {
        let found = words[at].load(Ordering::Acquire);
        if found == head && is_same(at) {
            return at;
        }
        let length = found as u32 as usize;
        if found == 0 || length > words.len() {
            break;
        }
        at += 1 + length;
    }
    let room = |used: u64| {
        let wanted = used.saturating_add(1 + length as u64);
        (wanted <= words_of_copies.len() as u64).then_some(wanted)
    };
    let Ok(before) = end.fetch_update(Ordering::AcqRel, Ordering::Acquire, room) else {
        return 0;
    };
    let at = 1 + before as usize;
    for (place, word) in words[at + 1..].iter().zip(in_force()) {
        place.store(word, Ordering::Relaxed);
    }
    words[at].store(head, Ordering::Release);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_status_says() {
        let text =
            b"Name:\tx\nPid:\t12\nPPid:\t7\nTracerPid:\t3\nSeccomp:\t2\nSeccomp_filters:\t4\n";
        let status = Status::parse(text);
        assert_eq!((status.pid, status.parent_pid, status.filters), (12, 7, 4));
        assert_eq!(
            Status::parse(b"Seccomp:\t0\nSeccomp_filters:\t0\n").filters,
            0
        );
        assert_eq!(
            Status::parse(b"Pid:\t1\nSeccomp:\t2\n").filters,
            Status::SOME
        );
        assert_eq!(Status::parse(b"\xff\n:\n"), Status::default());
    }
}
