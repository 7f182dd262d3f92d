//! Events of the program for the kernel's trace_marker, written by the thread that they are of: the kernel
//! dates a line by when it comes and keeps who wrote it, so nobody else can do it later.
//!
//! # The descriptor
//! It is the one descriptor of ours that stays in a program, and only where it is asked for: opened at the
//! start, because a program that has changed its root or its user may not do that any more. Its number is one
//! that the kernel gives to nobody (at or above the soft limit) or at least a high one. The program may close
//! it all the same, and the number may come to be that of a file of the program's: before each write the
//! kernel is asked whether the number still means what the collector has named, by device and inode. If not,
//! it is opened anew, a few times at most.
//!
//! # Signal safety
//! As all of the agent: nothing allocates, waits or touches `errno`. A pipe is opened for reading, too,
//! because a pipe without a reader would send the program SIGPIPE.

use super::scratch::LINE_BYTES;
use crate::shm::mapping::PATH_BYTES;

/// The path to open stands in the same memory.
const _: () = assert!(LINE_BYTES == PATH_BYTES);

/// How many threads the process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threads {
    One,
    Many,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod line;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod trace_marker;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use trace_marker::{event, start, stop};

/// There is no trace_marker.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod elsewhere {
    use super::{LINE_BYTES, Threads};
    use crate::shm::layout::Control;
    use crate::shm::mapping::Mapping;

    pub(in crate::agent) fn start(_: &Mapping, _: Threads) {}
    pub(in crate::agent) fn stop() {}
    pub(in crate::agent) fn event(_: &Control, _: u8, _: &[u8], _: i64, _: &mut [u8; LINE_BYTES]) {}
}
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use elsewhere::{event, start, stop};
