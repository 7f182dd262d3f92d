//! The program enters a sandbox: seccomp, or another way by which the kernel keeps calls from its code.
//!
//! What the agent needs to go on: the moment, a thread's CPU time and, to interrupt threads, that a handler
//! may return. Without the last it captures in hooks only. Without one of the others it is off in this
//! process from here on, and the process' entry says so, with the CPU time up to here.

use super::session;
use crate::platform;
use crate::platform::sandbox::{self};
use crate::shm::layout::{ClockSource, entry_state, sandboxed};
use crate::shm::mapping::Mapping;
use crate::shm::registry;
use core::sync::atomic::{AtomicU32, Ordering};

/// Bits of `sandboxed` that hold for this process; forked children inherit them.
pub(super) static BITS: AtomicU32 = AtomicU32::new(0);

/// What a sandbox that allows these calls means for the recording: bits of `sandboxed`.
pub(super) fn consequences(mapping: &Mapping, allows: impl Fn(i64, [usize; 6]) -> bool) -> u32 {
    let place = 0u64;
    let to = (&raw const place) as usize;
    let clock = |clock: i32| allows(libc::SYS_clock_gettime, [clock as usize, to, 0, 0, 0, 0]);
    let usage = || {
        allows(
            libc::SYS_getrusage,
            [platform::RUSAGE_THREAD, to, 0, 0, 0, 0],
        )
    };
    let is_counted =
        mapping.control().clock_source.load(Ordering::Relaxed) == ClockSource::Cycles as u32;
    let mut bits = sandboxed::FILTERED;
    if !(is_counted || clock(libc::CLOCK_MONOTONIC))
        || !(clock(libc::CLOCK_THREAD_CPUTIME_ID) || usage())
    {
        bits |= sandboxed::OFF_NO_CLOCK;
    }
    if !allows(libc::SYS_rt_sigreturn, [0; 6]) {
        bits |= sandboxed::NO_SIGNALS;
    }
    bits
}

/// Whether handlers for the signals that end the process can do their work with these calls.
pub(super) fn handle_crashes(allows: impl Fn(i64, [usize; 6]) -> bool) -> bool {
    let own = [
        platform::process_id() as usize,
        platform::thread_id() as usize,
    ];
    let (signal, set) = (libc::SIGSEGV as usize, own.as_ptr() as usize);
    allows(libc::SYS_rt_sigaction, [signal, set, 0, 8, 0, 0])
        && allows(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_SETMASK as usize, set, set, 8, 0, 0],
        )
        && allows(
            libc::SYS_rt_tgsigqueueinfo,
            [own[0], own[1], signal, set, 0, 0],
        )
}

/// The same for an image that begins.
pub fn allows_crash_handlers() -> bool {
    allows_handlers() && handle_crashes(platform::allows)
}

/// Says in the process' entry what holds, and leaves its filters for the images that it starts.
pub(super) fn show(mapping: &Mapping) {
    let bits = BITS.load(Ordering::Relaxed);
    if bits != 0
        && let Some(entry) = mapping.process(session::index())
    {
        let place = sandbox::leave_copy(mapping.filters());
        entry.filters.store(place as u32, Ordering::Release);
        entry.sandboxed.fetch_or(bits, Ordering::Release);
    }
}

/// An image begins: takes over the filters of the image that ran in its process before, else of its parent.
pub(super) fn look_into(mapping: &Mapping, image: &sandbox::Image) -> sandbox::Start {
    let place_of = |pid: u32| {
        let newest = registry::processes(mapping)
            .map(|(_, entry)| entry)
            .filter(|entry| pid != 0 && entry.pid.load(Ordering::Relaxed) == pid)
            .filter(|entry| {
                let state = entry.state.load(Ordering::Acquire);
                matches!(state, entry_state::LIVE | entry_state::EXECED)
            })
            .max_by_key(|entry| entry.upid.load(Ordering::Relaxed))?;
        Some(newest.filters.load(Ordering::Acquire) as usize)
    };
    let baseline = mapping.control().filters.load(Ordering::Relaxed);
    image.look_into(mapping.filters(), baseline, place_of)
}

/// An image begins under filters that are known: whether it can be recorded.
pub(super) fn begins_filtered(mapping: &Mapping) -> u32 {
    let mut bits = match sandbox::is_filtered() {
        true => consequences(mapping, platform::allows),
        false => 0,
    };
    // Memory for what every thread has.
    let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    if !platform::allows(
        libc::SYS_mmap,
        [0, 4096, protection, anonymous, usize::MAX, 0],
    ) {
        bits |= sandboxed::OFF_UNKNOWN;
    }
    BITS.store(bits, Ordering::Relaxed);
    bits
}

/// A thread cannot take part, for want of memory or of its number.
#[cold]
pub(super) fn misses_thread() {
    if let Some(entry) = session::mapping().and_then(|m| m.process(session::index())) {
        entry
            .sandboxed
            .fetch_or(sandboxed::THREADS_MISSING, Ordering::Relaxed);
    }
}

/// Whether threads of this process may be interrupted: a handler of ours may be installed, and return.
pub fn allows_handlers() -> bool {
    BITS.load(Ordering::Relaxed) & (sandboxed::NO_SIGNALS | sandboxed::OFF) == 0
        && platform::allows(
            libc::SYS_rt_sigaction,
            [libc::SIGURG as usize, 0, 0, 8, 0, 0],
        )
}

/// Whether an image that this process starts can find the session: it does no more than the loader does, but
/// opens a file for writing.
pub fn images_can_join() -> bool {
    if !sandbox::is_filtered() {
        return true;
    }
    let path = c"/".as_ptr() as usize;
    let flags = (libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC) as usize;
    let read_only = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let directory = libc::AT_FDCWD as usize;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let (shared, length) = (libc::MAP_SHARED as usize, 1 << 27);
    let calls = [
        (libc::SYS_openat, [directory, path, flags, 0, 0, 0]),
        (libc::SYS_openat, [directory, path, read_only, 0, 0, 0]),
        (libc::SYS_read, [3, path, 4096, 0, 0, 0]),
        (platform::number::FSTAT, [3, path, 0, 0, 0, 0]),
        (libc::SYS_mmap, [0, length, protection, shared, 3, 0]),
        (libc::SYS_munmap, [path, length, 0, 0, 0, 0]),
        (libc::SYS_close, [3, 0, 0, 0, 0, 0]),
    ];
    calls
        .into_iter()
        .all(|(number, a)| platform::allows(number, a))
}
