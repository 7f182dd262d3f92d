//! The program enters a sandbox: what is done before, what after.

use super::capture::{self, Request};
use super::sandbox::{BITS, consequences, handle_crashes, show};
use super::tls::{self, flag};
use super::{fork, kernel_clock, main_stack, registered, session, signal_wait};
use crate::native::own_modules;
use crate::platform;
use crate::platform::sandbox::{self, Candidate, NotNoted};
use crate::probe::Probe;
use crate::shm::layout::sandboxed;
use crate::shm::signal_gate;
use core::sync::atomic::Ordering;

/// What the program is about to ask the kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// Seccomp's strict mode: `read`, `write`, `exit` and `rt_sigreturn` only.
    Strict,
    /// A seccomp filter.
    Filter {
        /// Address of its `struct sock_fprog`.
        program: u64,
        /// It holds for the other threads, too (`SECCOMP_FILTER_FLAG_TSYNC`).
        all_threads: bool,
    },
    /// System calls of some code, or the cycle counter, become signals.
    NoCalls,
}

/// The program enters a sandbox, between what is done before and what after.
#[derive(Debug)]
#[must_use]
pub struct Entering {
    what: What,
    /// Bits of `sandboxed` that will hold.
    bits: u32,
    unseen_from_ns: u64,
    /// The calling thread's gate was closed before, and how.
    signal_gate_before: Option<u32>,
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
    if !session::is_active() || tls::block().has(flag::VFORK_CHILD) {
        return None;
    }
    fork::check_for_fork();
    let mapping = session::mapping()?;
    let unseen_from_ns = platform::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    let mut entering = Entering {
        what: What::Closed(0),
        bits: sandboxed::OFF_STRICT,
        unseen_from_ns,
        signal_gate_before: None,
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
        session::AGENT.forget_signals();
        session::publish_signal(mapping);
        kernel_clock::stop_where(|_| true);
        let entry = registered(tls::block());
        entering.signal_gate_before =
            entry.map(|(entry, _)| signal_gate::close(entry, signal_wait::await_signal));
    }
    Some(entering)
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
    main_stack::for_each_code_mapping(|start| {
        let _ = own_modules::find_or_take_in(start);
    });
}

impl Entering {
    /// Whether threads are interrupted in the sandbox; if not, the caller takes our handlers away before
    /// [`Entering::begins`].
    pub fn is_interrupted(&self) -> bool {
        self.bits & (sandboxed::OFF | sandboxed::NO_SIGNALS) == 0
    }

    /// Whether handlers of ours that note how the process ends can do without what the sandbox refuses.
    pub fn handles_crashes(&self) -> bool {
        let What::Filter(candidate) = &self.what else {
            return false;
        };
        self.is_interrupted() && handle_crashes(|number, a| candidate.allows(number, &a))
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
        if let (Some(before), Some((entry, _))) =
            (self.signal_gate_before, registered(tls::block()))
        {
            signal_gate::reopen(entry, before);
        }
        if !has_succeeded {
            match self.what {
                What::Filter(candidate) => candidate.discard(),
                What::Closed(before) => sandbox::reopen(before),
            }
            return;
        }
        let bits = BITS.fetch_or(self.bits, Ordering::Relaxed) | self.bits;
        let Some(mapping) = session::mapping() else {
            return;
        };
        show(mapping);
        if bits & sandboxed::OFF != 0 {
            session::switch_off(mapping, self.unseen_from_ns);
        }
    }
}
