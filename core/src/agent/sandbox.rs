//! The program enters a sandbox: seccomp, or another way by which the kernel keeps calls from its code.
//!
//! What the agent needs to go on: the moment, a thread's CPU time and, to interrupt threads, that a handler may return.
//! Without the last it captures in hooks only. Without one of the others it is off in this process from here on, and
//! the process' entry says so, with the CPU time up to here.

use super::capture::{self, Request};
use super::tls::{self, flag};
use super::{kernel_clock, patience, process, registered};
use crate::native::modules;
use crate::platform;
use crate::platform::sandbox::{self, Candidate, NotNoted};
use crate::probe::Probe;
use crate::shm::gate;
use crate::shm::layout::{ClockSource, entry_state, sandboxed};
use crate::shm::mapping::Mapping;
use crate::shm::registry;
use core::sync::atomic::{AtomicU32, Ordering};

/// What the program is about to ask the kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// Seccomp's strict mode: `read`, `write`, `exit` and `rt_sigreturn` only.
    Strict,
    /// A seccomp filter: the `struct sock_fprog` at this address; for other threads, too (`SECCOMP_FILTER_FLAG_TSYNC`)?
    Filter { program: u64, all_threads: bool },
    /// System calls of some code, or the cycle counter, become signals.
    NoCalls,
}

/// Bits of `sandboxed` that hold for this process; forked children inherit them.
static BITS: AtomicU32 = AtomicU32::new(0);

/// The program enters a sandbox, between what is done before and what after.
#[derive(Debug)]
#[must_use]
pub struct Entering {
    what: What,
    /// Bits of `sandboxed` that will hold.
    bits: u32,
    unseen_from_ns: u64,
    /// The calling thread's gate was closed before, and how.
    gate_before: Option<u32>,
}

#[derive(Debug)]
enum What {
    Filter(Candidate),
    /// Calls are closed; what [`sandbox::reopen`] takes.
    Closed(u32),
}

/// A sandbox is about to be entered. `None`: nothing of it concerns the agent.
pub fn enters_sandbox(sandbox: Sandbox) -> Option<Entering> {
    // The child of a vfork gets a filter of its own, but its memory is the parent's.
    if !process::is_active() || tls::block().has(flag::VFORK_CHILD) {
        return None;
    }
    super::children::check_for_fork();
    let mapping = process::mapping()?;
    let unseen_from_ns = platform::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    let mut entering = Entering {
        what: What::Closed(0),
        bits: sandboxed::OFF_STRICT,
        unseen_from_ns,
        gate_before: None,
    };
    match sandbox {
        Sandbox::Strict => {}
        Sandbox::NoCalls => entering.bits = sandboxed::OFF_NO_CALLS,
        Sandbox::Filter { program, .. } => match Candidate::read(program) {
            Err(NotNoted::Invalid) => return None,
            Err(NotNoted::Unknown) => {}
            Ok(candidate) => {
                entering.bits = consequences(mapping, |number, a| candidate.allows(number, &a));
                if entering.bits & sandboxed::OFF == 0 && !may_map_files(&candidate) {
                    take_in_all_modules();
                }
                entering.what = What::Filter(candidate);
            }
        },
    }
    if entering.bits & sandboxed::OFF != 0 {
        // The last moment that is seen.
        capture::slow(&Request {
            exempt: true,
            last: true,
            ..Request::point(Probe::Running)
        });
    }
    if !entering.is_interrupted() {
        process::AGENT.forget_signals();
        process::publish_signal(mapping);
        kernel_clock::stop_where(|_| true);
        let entry = registered(tls::block());
        entering.gate_before = entry.map(|(entry, _)| gate::close(entry, patience::await_signal));
    }
    Some(entering)
}

/// What a sandbox that allows these calls means for the recording: bits of `sandboxed`.
fn consequences(mapping: &Mapping, allows: impl Fn(i64, [usize; 6]) -> bool) -> u32 {
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

/// Whether unwind tables of libraries can be mapped later.
fn may_map_files(candidate: &Candidate) -> bool {
    let flags = libc::O_RDONLY | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let path = c"/".as_ptr() as usize;
    let (page, read, private) = (4096, libc::PROT_READ as usize, libc::MAP_PRIVATE as usize);
    let directory = libc::AT_FDCWD as usize;
    candidate.allows(
        libc::SYS_openat,
        &[directory, path, flags as usize, 0, 0, 0],
    ) && candidate.allows(platform::number::FSTAT, &[3, path, 0, 0, 0, 0])
        && candidate.allows(libc::SYS_mmap, &[0, page, read, private, 3, 0])
        && candidate.allows(libc::SYS_close, &[3, 0, 0, 0, 0, 0])
}

/// Takes every loaded module in, with its unwind tables, which could not be read later.
fn take_in_all_modules() {
    super::main_stack::for_each_code_mapping(|start| {
        let _ = modules::find_or_take_in(start);
    });
}

impl Entering {
    /// Whether threads are interrupted in the sandbox; if not, the caller takes our handlers away before
    /// [`Entering::begins`].
    pub fn is_interrupted(&self) -> bool {
        self.bits & (sandboxed::OFF | sandboxed::NO_SIGNALS) == 0
    }

    /// Whether handlers of ours that note how the process ends can do without what the sandbox refuses.
    pub fn handles_faults(&self) -> bool {
        let What::Filter(candidate) = &self.what else {
            return false;
        };
        self.is_interrupted() && handle_faults(|number, a| candidate.allows(number, &a))
    }

    /// The call is about to be made: the agent makes none from here on that would not be allowed then.
    pub fn begins(&mut self, sandbox: Sandbox) {
        match &mut self.what {
            What::Filter(candidate) => candidate.apply(),
            What::Closed(before) => *before = sandbox::close(),
        }
        if matches!(
            sandbox,
            Sandbox::Filter {
                all_threads: true,
                ..
            }
        ) {
            sandbox::settle();
        }
    }

    /// The call has been made. `false`: it failed, and the caller puts back what it took away.
    pub fn ends(self, has_succeeded: bool) {
        if let (Some(before), Some((entry, _))) = (self.gate_before, registered(tls::block())) {
            gate::reopen(entry, before);
        }
        if !has_succeeded {
            match self.what {
                What::Filter(candidate) => candidate.withdraw(),
                What::Closed(before) => sandbox::reopen(before),
            }
            return;
        }
        let bits = BITS.fetch_or(self.bits, Ordering::Relaxed) | self.bits;
        let Some(mapping) = process::mapping() else {
            return;
        };
        show(mapping);
        if bits & sandboxed::OFF != 0 {
            process::switch_off(mapping, self.unseen_from_ns);
        }
    }
}

/// Whether handlers for the signals that end the process can do their work with these calls.
fn handle_faults(allows: impl Fn(i64, [usize; 6]) -> bool) -> bool {
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
pub fn allows_fault_handlers() -> bool {
    allows_handlers() && handle_faults(platform::allows)
}

/// Says in the process' entry what holds, and leaves its filters for the images that it starts.
pub(super) fn show(mapping: &Mapping) {
    let bits = BITS.load(Ordering::Relaxed);
    if bits != 0
        && let Some(entry) = mapping.process(process::index())
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
            .max_by_key(|entry| entry.uid.load(Ordering::Relaxed))?;
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
    if let Some(entry) = process::mapping().and_then(|m| m.process(process::index())) {
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

/// Whether an image that this process starts can find the session: it does no more than the loader does, but opens a
/// file for writing.
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
