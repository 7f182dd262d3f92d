//! Calls that a signal ends, where the program's handler has run in the hook before the call (`signal::entrance`): they give what
//! they would have given had it come a moment later.
//!
//! Some calls fail with EINTR after any handler, others only after one that was installed without SA_RESTART (signal(7)). Calls that
//! have something to give at once give it, whatever ran before.

use crate::{io, poll};
use core::ffi::c_int;
use core::ptr::null_mut;
use libc::{F_GETFL, O_NONBLOCK, POLLIN, POLLPRI, SYS_fcntl, SYS_poll, pollfd};
use stackbeat_core::agent::{self, Begun};
use stackbeat_core::sys;

/// The handlers that had begun on the calling thread when a hook began.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Handlers(Begun);

impl Handlers {
    #[inline(always)]
    pub(crate) fn so_far() -> Handlers {
        Handlers(agent::handlers_begun())
    }

    /// Whether one has run since.
    #[inline(always)]
    pub(crate) fn have_run(self) -> bool {
        agent::handlers_begun().all != self.0.all
    }

    /// Whether one has run since after which calls are not restarted.
    #[inline(always)]
    pub(crate) fn cut_calls(self) -> bool {
        agent::handlers_begun().cutting != self.0.cutting
    }
}

/// Fails as a call does that a signal ends.
#[cold]
pub(crate) fn fail() -> c_int {
    // SAFETY: errno of the calling thread is always there.
    unsafe { *libc::__errno_location() = libc::EINTR };
    -1
}

/// What a call gives that a signal ends unless something is ready; `at_once` is the same call without waiting.
#[cold]
pub(crate) fn unless_ready(at_once: impl FnOnce() -> c_int) -> c_int {
    match at_once() {
        0 => fail(),
        result => result,
    }
}

/// Whether a call that reads from this would wait.
#[cold]
#[inline(never)]
pub(crate) fn is_unreadable(file: c_int) -> bool {
    let mut asked = pollfd {
        fd: file,
        events: POLLIN | POLLPRI,
        revents: 0,
    };
    let place = (&raw const asked).addr();
    if !sys::allows(SYS_poll, [place, 1, 0, 0, 0, 0])
        || !sys::allows(SYS_fcntl, [file as usize, F_GETFL as usize, 0, 0, 0, 0])
    {
        return false;
    }
    // SAFETY: the originals, with a local structure.
    unsafe {
        let flags = io::fcntl::call(file, F_GETFL, null_mut());
        flags >= 0 && flags & O_NONBLOCK == 0 && poll::poll::call(&mut asked, 1, 0) == 0
    }
}
